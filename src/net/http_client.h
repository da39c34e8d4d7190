// HTTP/1.1 client for loopback and cluster use: plain TCP with libc only, so that the agent builds anywhere, and TLS
// where the build found OpenSSL (tls.h).
// One request, one answer; the connection is kept for the next request to the same host where the server allows.
//
// Limits: answers up to body_bytes_max; the deadline covers connect, send and receive together. (Looking up a host name
//         is the C library's business and takes as long as it takes; a numeric address needs no lookup.)
// On error: one clear line (connection refused, timed out after 5 s, answer is not HTTP, ...).
// Delivery: a kept connection that turns out closed before any byte of the answer is opened again and the request sent
//           once more, so a server may see a request twice.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/stream_connector.h"

namespace lockstep {

struct HttpRequest {
  std::string method = "GET";
  std::string path = "/";  // with query; the URL's base path is put before it
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// A body that is too large to be held, for servers: it is read piece by piece while it is sent. May block.
// Thread rule: Confined; any thread, one after the other.
class BodySource {
 public:
  virtual ~BodySource() = default;
  virtual uint64_t bytes() const = 0;
  // So many from there; fewer only at the end.
  virtual Result<std::string> read(uint64_t from, size_t bytes_max) = 0;
};

struct HttpResponse {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  std::shared_ptr<BodySource> source = {};               // of what HttpServer sends: the body instead of `body`
  std::string_view header(std::string_view name) const;  // empty where absent
};

// "http://127.0.0.1:4318/base" -> host, port, base path ("/base"; empty for "/"), and whether it was https. https is
// refused with a clear line where TLS is not built in.
struct Url {
  std::string host;
  uint16_t port = 80;
  std::string path;
  bool tls = false;
};
Result<Url> parse_url(std::string_view text, uint16_t default_port);
Result<Url> parse_url(std::string_view text);  // default: the scheme's own port, 80 or 443
// A URL of one thing: the server, and what is asked of it as it was written ("/a/?b=c"; "/" where nothing is). Path and
// query may be secrets: errors show none of them.
struct RequestUrl {
  Url server;
  std::string target;
};
Result<RequestUrl> parse_request_url(std::string_view text);
// "https://host:8443": what may be shown of it.
std::string origin_of(const Url& url);
// What the header Host says of it: without the port that is the scheme's own, as some who sign requests have it.
std::string host_header(const Url& url);

class HttpClient {
 public:
  // tls: used where the URL asks for TLS.
  explicit HttpClient(Url server, int64_t timeout_ms = 10'000, uint64_t body_bytes_max = 256ull << 20,
                      const TlsOptions& tls = {});
  Result<HttpResponse> send(const HttpRequest& request);
  // Once this can be read, send() ends with an error at once: for a thread that waits long and must be told to stop.
  void interrupt_by(int fd) { interrupt_fd_ = fd; }
  // Where the status decides: of an answer that is longer than body_bytes_max the beginning is given instead of an error.
  void cut_long_answers() { cuts_ = true; }

 private:
  // *stale: the connection broke before any byte of an answer came.
  Result<HttpResponse> exchange(const HttpRequest& request, std::string_view head, const Deadline& deadline,
                                bool* stale);

  Url server_;
  int64_t timeout_ms_;
  uint64_t body_bytes_max_;
  Connector connector_;
  std::unique_ptr<Stream> connection_;
  int interrupt_fd_ = -1;
  bool cuts_ = false;
};

}  // namespace lockstep
