#include "net/http_client.h"

#include <algorithm>
#include <optional>

#include "base/secret_file.h"
#include "base/text.h"
#include "net/http_response.h"

namespace lockstep {
namespace {

bool has_line_break(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos;
}

}  // namespace

std::string_view HttpResponse::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

Result<Url> parse_url(std::string_view text, uint16_t default_port) {
  auto wrong = [&](const char* why) {
    return Error{format("URL '%.*s' %s", static_cast<int>(std::min<size_t>(text.size(), 200)), text.data(), why)};
  };
  const bool tls = text.starts_with("https://");
  if (tls && !tls_available()) return wrong("asks for TLS, which is not built in (this build found no OpenSSL)");
  if (!tls && !text.starts_with("http://")) return wrong("does not start with http:// or https://");
  std::string_view rest = text.substr(text.find("//") + 2);
  if (rest.find_first_of(std::string_view("\r\n\t \0", 5)) != std::string_view::npos)
    return wrong("has a space or line break in it");
  size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  if (path.find_first_of("?#") != std::string_view::npos || authority.find_first_of("?#") != std::string_view::npos)
    return wrong("has a query, which a base URL cannot have");
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (authority.find('@') != std::string_view::npos) return wrong("has a user name in it, which is not understood");

  Url url;
  url.port = default_port;
  url.path = path;
  url.tls = tls;
  std::string_view port;
  bool port_given = false;
  if (!authority.empty() && authority.front() == '[') {
    size_t close = authority.find(']');
    if (close == std::string_view::npos) return wrong("has a bracket that is not closed");
    url.host = authority.substr(1, close - 1);
    std::string_view tail = authority.substr(close + 1);
    if (!tail.empty() && tail.front() != ':') return wrong("has something other than a port after the address");
    port_given = !tail.empty();
    if (port_given) port = tail.substr(1);
  } else {
    size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    port_given = colon != std::string_view::npos;
    if (port_given) port = authority.substr(colon + 1);
  }
  if (url.host.empty()) return wrong("has no host");
  if (port_given) {
    std::optional<uint64_t> number = parse_uint(port);
    if (!number || *number == 0 || *number > 65535) return wrong("has a port that is not a number from 1 to 65535");
    url.port = static_cast<uint16_t>(*number);
  }
  return url;
}

Result<Url> parse_url(std::string_view text) {
  return parse_url(text, text.starts_with("https:") ? 443 : 80);
}

Result<RequestUrl> parse_request_url(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos) return Error{"the URL does not start with http:// or https://"};
  const size_t end = std::min(text.find_first_of("/?#", scheme + 3), text.size());
  Url server = LOCKSTEP_TRY(parse_url(text.substr(0, end)));
  const std::string_view target = text.substr(end);
  if (!is_printable(target) || target.find_first_of(" \t#") != std::string_view::npos)
    return Error{"the URL has a path that cannot be sent"};
  return RequestUrl{std::move(server), (target.starts_with('/') ? "" : "/") + std::string(target)};
}

std::string origin_of(const Url& url) {
  return (url.tls ? "https://" : "http://") + host_header(url);
}

std::string host_header(const Url& url) {
  std::string text = to_text(StreamAddress{.host = url.host, .port = url.port, .unix_path = {}});
  if (url.port == (url.tls ? 443 : 80)) text.resize(text.rfind(':'));
  return text;
}

HttpClient::HttpClient(Url server, int64_t timeout_ms, uint64_t body_bytes_max, const TlsOptions& tls)
    : server_(std::move(server)),
      timeout_ms_(timeout_ms),
      body_bytes_max_(body_bytes_max),
      connector_({.host = server_.host, .port = server_.port},
                 server_.tls ? std::optional<TlsOptions>(tls) : std::nullopt) {}

Result<HttpResponse> HttpClient::exchange(const HttpRequest& request, std::string_view head, const Deadline& deadline,
                                          bool* stale) {
  HttpResponseParser parser(request.method == "HEAD", body_bytes_max_, cuts_);
  std::string_view unsent[] = {head, request.body};
  size_t part = 0;
  bool can_send = true;
  bool answered = false;
  char buffer[64 * 1024];
  *stale = false;
  while (!parser.done()) {
    bool moved = false;
    while (part < 2 && unsent[part].empty()) ++part;
    if (can_send && part < 2) {
      Stream::Moved sent = connection_->write_some(unsent[part], part == 0 && !request.body.empty());
      unsent[part].remove_prefix(sent.bytes);
      moved = sent.bytes > 0;
      // The server closed its side; an answer it gave before that may still be here to read.
      if (!sent.error.empty()) can_send = false;
    }
    // Reading while sending: a server may refuse a large body before it has all of it.
    Stream::Moved got = connection_->read_some(buffer, sizeof buffer);
    if (!got.error.empty()) {
      *stale = !answered;
      return Error{got.error};
    }
    if (got.closed) {
      *stale = !answered;
      LOCKSTEP_TRY(parser.end_of_stream());
      break;
    }
    if (got.bytes == 0) {
      if (!can_send) {
        *stale = !answered;
        return Error{"the server closed the connection while the request was being sent"};
      }
      if (moved) continue;
      LOCKSTEP_TRY(connection_->wait(part < 2, deadline, part < 2 ? "sending the request" : "waiting for the answer"));
      continue;
    }
    answered = true;
    LOCKSTEP_TRY(parser.feed({buffer, got.bytes}));
  }
  bool whole_request_sent = unsent[0].empty() && unsent[1].empty();
  if (!parser.reusable() || !whole_request_sent) connection_.reset();
  return parser.take();
}

Result<HttpResponse> HttpClient::send(const HttpRequest& request) {
  std::string where = to_text(connector_.address());
  std::string url = (server_.tls ? "https://" : "http://") + where;
  if (has_line_break(request.method) || has_line_break(request.path) || request.method.empty() ||
      request.path.empty() || request.path.front() != '/') {
    return Error{format("request to %s has a malformed method or path", where.c_str())};
  }
  std::string head =
      request.method + " " + server_.path + request.path + " HTTP/1.1\r\nHost: " + host_header(server_) + "\r\n";
  for (const auto& [name, value] : request.headers) {
    if (name.empty() || has_line_break(name) || has_line_break(value))
      return Error{format("request to %s has a malformed header", where.c_str())};
    head += name + ": " + value + "\r\n";
  }
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    head += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  head += "\r\n";

  Deadline deadline(timeout_ms_, interrupt_fd_);
  for (;;) {
    bool reused = connection_ != nullptr;
    if (!reused) {
      Result<std::unique_ptr<Stream>> connected = connector_.open(deadline);
      if (!connected) return prefixed(connected.failure(), url + ": ");
      connection_ = std::move(*connected);
    }
    bool stale = false;
    Result<HttpResponse> answer = exchange(request, head, deadline, &stale);
    if (answer) return answer;
    connection_.reset();
    // Once only: the second time round the connection is fresh.
    if (!reused || !stale) return prefixed(answer.failure(), url + ": ");
  }
}

}  // namespace lockstep
