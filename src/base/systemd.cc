#include "base/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {

bool systemd_notify(std::string_view words) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = path == nullptr ? 0 : std::strlen(path);
  if (length < 2 || length >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@')) return false;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return false;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  return ::sendto(socket.get(), words.data(), words.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
                  size) == static_cast<ssize_t>(words.size());
}

int64_t systemd_watchdog_ns() {
  const char* usec = std::getenv("WATCHDOG_USEC");
  if (usec == nullptr) return 0;
  const char* pid = std::getenv("WATCHDOG_PID");
  if (pid != nullptr && parse_int(pid) != static_cast<int64_t>(getpid())) return 0;
  return parse_int(usec).value_or(0) * 1000 / 2;
}

}  // namespace lockstep
