// A tiny HTTP server for pages of text, such as an agent's /metrics: libc only, one thread, GET and HEAD, one answer
// per connection. For anything more there is http_server.h.
//
// Limits: request 8 kB; connections_max at a time (further ones get 503); a client has 5 s to ask and 5 s to take the
// answer.
// TLS:     where options.tls names a certificate (tls_server.h), within the same 5 s.
// Callers: whoever `admits` does not let in gets 401.
// On error: a malformed request gets 400 with one line; the server goes on. Shutdown: stop() closes everything at once
// and joins the thread; the destructor does the same.
// Thread rule: Thread-safe. The handler runs on the server's one thread, so it must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/listen_address.h"
#include "net/tls_server.h"

namespace lockstep {

struct TextResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::string content_encoding;  // "gzip" where the body is; empty: as it is
};

struct TextRequest {
  std::string path;             // as sent, without the query
  std::string query;            // what follows the '?', as sent
  std::string accept;           // the Accept header, for pages that come in more than one form; empty where absent
  std::string accept_encoding;  // likewise: whether a large page may come compressed
};
// Whether whoever sent this Authorization header (empty: none) may see the page.
using TextAdmission = std::function<bool(const TextRequest& request, std::string_view authorization)>;
using TextHandler = std::function<TextResponse(const TextRequest& request)>;

struct TextServerOptions {
  ListenAddress address;
  size_t connections_max = 64;
  int64_t client_timeout_ms = 5'000;
  TlsListenerOptions tls = {};
  std::string name = "metrics";  // the receiver in the counters of TLS
  Counters* counters = nullptr;  // with kTlsCounters; needed for TLS alone
  TextAdmission admits = {};     // empty: everybody; runs on the server's thread like the handler
};

class TextServer {
 public:
  static Result<std::unique_ptr<TextServer>> start(TextServerOptions options, TextHandler handler);
  virtual ~TextServer() = default;
  virtual std::string address() const = 0;  // "127.0.0.1:9410" as bound
  virtual void stop() = 0;

  static constexpr size_t kRequestBytesMax = 8 * 1024;
};

}  // namespace lockstep
