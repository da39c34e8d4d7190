#include "net/http_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "net/http_answer.h"

namespace lockstep {
namespace {

bool has_line_break(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos;
}

std::string host_and_port(const Url& url) {
  bool ipv6 = url.host.find(':') != std::string::npos;
  return format(ipv6 ? "[%s]:%u" : "%s:%u", url.host.c_str(), url.port);
}

}  // namespace

struct HttpClient::Deadline {
  int64_t timeout_ms;
  int64_t at_ns;

  explicit Deadline(int64_t ms) : timeout_ms(ms), at_ns(SystemClock().monotonic_ns() + ms * 1'000'000) {}

  // Waits for one of the events. Errors and hang-ups count as readiness: the next call on the socket says what it is.
  Result<short> wait(int fd, short events, const char* doing) const {
    for (;;) {
      int64_t left_ms = (at_ns - SystemClock().monotonic_ns() + 999'999) / 1'000'000;
      if (left_ms <= 0)
        return Error{format("timed out after %s while %s",
                            human_duration(static_cast<double>(timeout_ms) * 1e6).c_str(), doing)};
      pollfd entry{fd, events, 0};
      int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left_ms, 60'000)));
      if (ready > 0) return entry.revents;
      if (ready < 0 && errno != EINTR) return Error{format("poll: %s", std::strerror(errno))};
    }
  }
};

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
  constexpr std::string_view kScheme = "http://";
  if (text.substr(0, 8) == "https://") return wrong("asks for TLS, which is not built in yet: use http://");
  if (text.substr(0, kScheme.size()) != kScheme) return wrong("does not start with http://");
  std::string_view rest = text.substr(kScheme.size());
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

HttpClient::HttpClient(Url server, int64_t timeout_ms, uint64_t body_bytes_max)
    : server_(std::move(server)), timeout_ms_(timeout_ms), body_bytes_max_(body_bytes_max) {}

Result<UniqueFd> HttpClient::connect(const Deadline& deadline) const {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int failed = getaddrinfo(server_.host.c_str(), std::to_string(server_.port).c_str(), &hints, &found);
  if (failed != 0) return Error{gai_strerror(failed)};
  std::string last = "no address";
  UniqueFd connected;
  for (addrinfo* target = found; target != nullptr && !connected.valid(); target = target->ai_next) {
    UniqueFd fd(socket(target->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) {
      last = std::strerror(errno);
      continue;
    }
    int error = ::connect(fd.get(), target->ai_addr, target->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      Result<short> ready = deadline.wait(fd.get(), POLLOUT, "connecting");
      if (!ready) {
        last = ready.error();
        continue;
      }
      socklen_t length = sizeof error;
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error != 0) {
      last = std::strerror(error);
      continue;
    }
    int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connected = std::move(fd);
  }
  freeaddrinfo(found);
  if (!connected.valid()) return Error{last};
  return connected;
}

Result<HttpResponse> HttpClient::exchange(const HttpRequest& request, std::string_view head, const Deadline& deadline,
                                          bool* stale) {
  HttpAnswerParser parser(request.method == "HEAD", body_bytes_max_);
  std::string_view unsent[] = {head, request.body};
  size_t part = 0;
  bool can_send = true;
  bool answered = false;
  char buffer[64 * 1024];
  *stale = false;
  while (!parser.done()) {
    while (part < 2 && unsent[part].empty()) ++part;
    bool sending = can_send && part < 2;
    // Reading while sending: a server may refuse a large body before it has all of it.
    Result<short> ready = deadline.wait(connection_.get(), static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN),
                                        sending ? "sending the request" : "waiting for the answer");
    if (!ready) return Error{ready.error()};
    if ((*ready & POLLOUT) != 0 && sending) {
      ssize_t sent = ::send(connection_.get(), unsent[part].data(), unsent[part].size(),
                            MSG_NOSIGNAL | (part == 0 && !request.body.empty() ? MSG_MORE : 0));
      if (sent > 0) unsent[part].remove_prefix(static_cast<size_t>(sent));
      // The server closed its side; an answer it gave before that may still be here to read.
      if (sent < 0 && errno != EAGAIN && errno != EINTR) can_send = false;
    }
    if ((*ready & (POLLIN | POLLHUP | POLLERR)) == 0 && can_send) continue;
    ssize_t got = recv(connection_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (can_send) continue;
      *stale = !answered;
      return Error{"the server closed the connection while the request was being sent"};
    }
    if (got < 0) {
      *stale = !answered;
      return Error{std::strerror(errno)};
    }
    if (got == 0) {
      *stale = !answered;
      Result<void> ended = parser.end_of_stream();
      if (!ended) return Error{ended.error()};
      break;
    }
    answered = true;
    Result<void> fed = parser.feed({buffer, static_cast<size_t>(got)});
    if (!fed) return Error{fed.error()};
  }
  bool whole_request_sent = unsent[0].empty() && unsent[1].empty();
  if (!parser.reusable() || !whole_request_sent) connection_.reset();
  return parser.take();
}

Result<HttpResponse> HttpClient::send(const HttpRequest& request) {
  std::string where = host_and_port(server_);
  if (has_line_break(request.method) || has_line_break(request.path) || request.method.empty() ||
      request.path.empty() || request.path.front() != '/') {
    return Error{format("request to %s has a malformed method or path", where.c_str())};
  }
  std::string head = request.method + " " + server_.path + request.path + " HTTP/1.1\r\nHost: " + where + "\r\n";
  for (const auto& [name, value] : request.headers) {
    if (name.empty() || has_line_break(name) || has_line_break(value))
      return Error{format("request to %s has a malformed header", where.c_str())};
    head += name + ": " + value + "\r\n";
  }
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT")
    head += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  head += "\r\n";

  Deadline deadline(timeout_ms_);
  for (;;) {
    bool reused = connection_.valid();
    if (!reused) {
      Result<UniqueFd> connected = connect(deadline);
      if (!connected) return Error{format("http://%s: %s", where.c_str(), connected.error().c_str())};
      connection_ = std::move(*connected);
    }
    bool stale = false;
    Result<HttpResponse> answer = exchange(request, head, deadline, &stale);
    if (answer) return answer;
    connection_.reset();
    // Once only: the second time round the connection is fresh.
    if (!reused || !stale) return Error{format("http://%s: %s", where.c_str(), answer.error().c_str())};
  }
}

}  // namespace lockstep
