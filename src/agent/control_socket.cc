#include "agent/control_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr int kClientMs = 1'000;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Error{format("%s is too long for a socket (%zu bytes, at most %zu): choose a shorter --data", path.c_str(),
                        path.size(), sizeof address.sun_path - 1)};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

bool wait_readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) > 0;
}

}  // namespace

Result<ControlSocket> ControlSocket::open(const std::string& path) {
  sockaddr_un address = LOCKSTEP_TRY(address_of(path));
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  unlink(path.c_str());
  // Nobody but its user, from the first moment on.
  const mode_t before = umask(0177);
  const bool bound =
      listener.valid() && ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  umask(before);
  if (!bound || ::listen(listener.get(), 8) != 0)
    return Error{format("cannot listen on %s: %s", path.c_str(), std::strerror(errno))};
  return ControlSocket(std::move(listener), path);
}

ControlSocket::~ControlSocket() {
  if (listener_.valid()) unlink(path_.c_str());
}

void ControlSocket::poll(const std::function<std::string(const std::string&)>& answer) {
  UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!client.valid()) return;
  std::string request;
  while (request.find('\n') == std::string::npos && request.size() < kRequestBytesMax &&
         wait_readable(client.get(), kClientMs)) {
    char buffer[kRequestBytesMax];
    const ssize_t got = ::recv(client.get(), buffer, sizeof buffer, 0);
    if (got <= 0) break;
    request.append(buffer, static_cast<size_t>(got));
  }
  const size_t end = request.find('\n');
  const std::string text =
      end == std::string::npos ? "wrong: one line of at most 256 bytes is asked\n" : answer(request.substr(0, end));
  // Small answers: they fit the socket's buffer, so a client that does not read cannot hold the agent up.
  (void)!::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Result<std::string> ask_agent(const std::string& path, const std::string& request) {
  sockaddr_un address = LOCKSTEP_TRY(address_of(path));
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return Error{format("no agent listens at %s: %s (is it running, as this user, with the same --data?)", path.c_str(),
                        std::strerror(errno))};
  const std::string line = request + "\n";
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return Error{format("%s: %s", path.c_str(), std::strerror(errno))};
  std::string answer;
  char buffer[4096];
  while (wait_readable(socket.get(), 10'000)) {
    const ssize_t got = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (got < 0) return Error{format("%s: %s", path.c_str(), std::strerror(errno))};
    if (got == 0) return answer;
    answer.append(buffer, static_cast<size_t>(got));
  }
  return Error{format("the agent at %s did not answer within 10 s", path.c_str())};
}

}  // namespace lockstep
