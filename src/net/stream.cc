#include "net/stream.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep {
namespace {

// Waits where the connection is under way; the error is errno's number, 0 once connected.
Result<int> finish_connect(int fd, const sockaddr* to, socklen_t length, const Deadline& deadline) {
  int error = ::connect(fd, to, length) == 0 ? 0 : errno;
  if (error != EINPROGRESS) return error;
  LOCKSTEP_TRY(deadline.wait(fd, POLLOUT, "connecting"));
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

Result<UniqueFd> try_connect(int family, const sockaddr* to, socklen_t length, const Deadline& deadline) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Error{std::strerror(errno)};
  int error = LOCKSTEP_TRY(finish_connect(fd.get(), to, length, deadline));
  if (error != 0) return Error{std::strerror(error)};
  return fd;
}

Result<UniqueFd> connect_unix(const std::string& path, const Deadline& deadline) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path)
    return Error{format("the path of a UNIX socket has %zu bytes at most", sizeof to.sun_path - 1)};
  std::memcpy(to.sun_path, path.data(), path.size());
  return try_connect(AF_UNIX, reinterpret_cast<const sockaddr*>(&to), sizeof to, deadline);
}

class PlainStream final : public Stream {
 public:
  explicit PlainStream(UniqueFd fd) : fd_(std::move(fd)) {}

  Moved read_some(char* to, size_t bytes_max) override {
    ssize_t got = recv(fd_.get(), to, bytes_max, MSG_DONTWAIT);
    if (got > 0) return {.bytes = static_cast<size_t>(got)};
    if (got == 0) return {.closed = true};
    return failed();
  }
  Moved write_some(std::string_view bytes, bool more) override {
    ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (sent >= 0) return {.bytes = static_cast<size_t>(sent)};
    return failed();
  }
  Result<void> wait(bool to_write, const Deadline& deadline, const char* doing) override {
    return deadline.wait(fd_.get(), static_cast<short>(to_write ? POLLIN | POLLOUT : POLLIN), doing);
  }

 private:
  static Moved failed() {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
    return {.error = std::strerror(errno)};
  }
  UniqueFd fd_;
};

}  // namespace

Deadline::Deadline(int64_t timeout_ms, int interrupt_fd)
    : timeout_ms_(timeout_ms),
      at_ns_(SystemClock().monotonic_ns() + timeout_ms * 1'000'000),
      interrupt_fd_(interrupt_fd) {}

int64_t Deadline::left_ms() const {
  return (at_ns_ - SystemClock().monotonic_ns() + 999'999) / 1'000'000;
}

Result<void> Deadline::wait(int fd, short events, const char* doing) const {
  for (;;) {
    int64_t left = left_ms();
    if (left <= 0)
      return Error{
          format("timed out after %s while %s", human_duration(static_cast<double>(timeout_ms_) * 1e6).c_str(), doing)};
    pollfd entries[] = {{fd, events, 0}, {interrupt_fd_, POLLIN, 0}};
    int ready = poll(entries, interrupt_fd_ < 0 ? 1 : 2, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0 && entries[1].revents != 0) return Error{"interrupted"};
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Error{format("poll: %s", std::strerror(errno))};
  }
}

std::string to_text(const StreamAddress& address) {
  if (!address.unix_path.empty()) return address.unix_path;
  bool ipv6 = address.host.find(':') != std::string::npos;
  return format(ipv6 ? "[%s]:%u" : "%s:%u", address.host.c_str(), address.port);
}

Result<UniqueFd> connect_socket(const StreamAddress& address, const Deadline& deadline) {
  if (!address.unix_path.empty()) return connect_unix(address.unix_path, deadline);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int failed = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failed != 0) return Error{gai_strerror(failed)};
  Result<UniqueFd> connected = Error{"no address"};
  for (addrinfo* target = found; target != nullptr && !connected.ok(); target = target->ai_next)
    connected = try_connect(target->ai_family, target->ai_addr, target->ai_addrlen, deadline);
  freeaddrinfo(found);
  if (!connected.ok()) return connected;
  int on = 1;
  setsockopt(connected->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return connected;
}

std::unique_ptr<Stream> plain_stream(UniqueFd connected) {
  return std::make_unique<PlainStream>(std::move(connected));
}

}  // namespace lockstep
