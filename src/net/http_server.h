// HTTP/1.1 server (Boost.Beast): keep-alive, chunked requests, limits, one handler per request on a small thread pool.
// Handlers may block (a receiver waits for the disk): reading and writing go on meanwhile on a thread of their own.
//
// Limits: header 16 kB (431), body body_bytes_max or what its path has in path_limits (413 with one line), all bodies
// held at once bodies_bytes_max and what the memory budget has (429 with
//         Retry-After), answers that clients have not read yet what the memory budget has (503 instead of the answer),
//         idle connections are closed after 60 s, a request must arrive whole within 30 s.
//         connections_max: a further one takes the place of the one whose next request takes longest to come; where all
//         are being answered it gets 503 and is closed.
// Browsers: what a page of another site may have sent is refused with 403 (cross_site.h).
// Large answers: one with a source (http_client.h) is read from it and sent in pieces of 256 KiB, one at a time, by the
//         threads of the handlers; where reading fails the connection is closed before the length that was announced.
// Callers:  whoever the gatekeeper does not let in (caller.h) is told so before the body is read, and is closed where
//         one is on its way. Handlers see who calls, never what it was shown by: authorization, proxy-authorization and
//         cookie are not in the headers they get.
// TLS:     where options.tls names a certificate (tls_server.h); who has not agreed on it within 10 s is closed.
// Long polls: a handler may take the responder instead of answering, and answer later from any thread; meanwhile no
//         thread waits and the connection costs about a kilobyte. deferred_max of them (503 beyond); a peer that goes
//         away is noticed, its answer is dropped. What is deferred does not hold up stop().
// On error: a malformed request gets 400 with one line and is counted; one that fails here or in its handler (an
//           exception, out of memory) costs its own connection at most; the server goes on.
// Counts:  lockstep_http_requests_total{receiver,code}, lockstep_http_connections{receiver},
//          lockstep_http_bad_requests_total{receiver,reason}, and where requests are deferred
//          lockstep_http_deferred{receiver}; the table handed in must have these rows, and with TLS kTlsCounters.
// Shutdown: stop() closes the listener, lets requests in progress finish (at most 5 s), joins its threads. A handler
// that
//           does not return holds up stop().
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/counters.h"
#include "base/memory_budget.h"
#include "base/result.h"
#include "net/caller.h"
#include "net/cross_site.h"
#include "net/http_client.h"
#include "net/listen_address.h"
#include "net/tls_server.h"

namespace lockstep {

struct ServerRequest {
  std::string method;
  std::string path;                                          // without query, percent-decoded
  std::string query;                                         // raw, after '?'
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  Caller caller = {};
  std::string peer = {};  // "203.0.113.9:5123", as connected
  // Of what may take long: true once nobody waits for the answer any more. Empty: not known. Thread-safe.
  std::function<bool()> is_gone = {};
  int64_t waited_ms = 0;  // for its turn, where requests have turns
  size_t depth = 0;       // slashes in the path as it was sent, still encoded, after the first
  std::string_view header(std::string_view name) const;
  // Value of a query parameter, percent-decoded; empty where absent.
  std::string parameter(std::string_view name) const;
};

using HttpHandler = std::function<HttpResponse(const ServerRequest&)>;

// The way back to whoever asked. answer() once; further calls, and those after the peer has gone, do nothing. One that
// is dropped without an answer answers 500. Outlives the server without harm.
// Thread rule: Thread-safe.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;
  virtual void answer(HttpResponse response) = 0;
  // The answer comes later. False: too many wait already; then answer now.
  virtual bool defer() = 0;
  // Nobody is there any more to be answered.
  virtual bool gone() const = 0;
};
using DeferringHandler = std::function<void(const ServerRequest&, std::shared_ptr<HttpResponder>)>;

// A path whose bodies have a limit of their own.
struct PathLimit {
  std::string path;  // exactly
  uint64_t body_bytes_max = 0;
};

struct HttpServerOptions {
  ListenAddress address;
  uint64_t body_bytes_max = 64ull << 20;
  std::vector<PathLimit> path_limits = {};
  uint64_t bodies_bytes_max = 1ull << 30;  // of all requests being received or handled; at least one body always fits
  size_t connections_max = 4096;
  size_t deferred_max = 1024;  // of these: requests whose answer comes later
  size_t threads = 8;
  MemoryBudget* memory =
      nullptr;       // where bodies and answers are taken from; nullptr: no limit for all servers together
  std::string name;  // receiver name in counters and log lines, e.g. "otlp_http", "http"
  CrossSitePolicy cross_site = {};
  Gatekeeper* gatekeeper = nullptr;  // nullptr: everybody is let in, with all roles
  TlsListenerOptions tls = {};
  int64_t request_timeout_ms = 30'000;
  int64_t idle_timeout_ms = 60'000;
  int64_t drain_timeout_ms = 5'000;
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, HttpHandler handler, Counters& counters);
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, DeferringHandler handler,
                                                   Counters& counters);
  virtual ~HttpServer() = default;
  virtual std::string address() const = 0;  // "127.0.0.1:7070" as bound
  virtual void stop() = 0;
};

}  // namespace lockstep
