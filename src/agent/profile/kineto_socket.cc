#include "agent/profile/kineto_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "agent/profile/kineto_messages.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kPathAt = offsetof(sockaddr_un, sun_path);

// Every name that is not absent has a NUL at its end, which of an abstract one is part of it.
socklen_t set_name(sockaddr_un& address, std::string_view name, bool abstract) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + (abstract ? 1 : 0), name.data(), name.size());
  return static_cast<socklen_t>(kPathAt + (abstract ? 1 : 0) + name.size() + 1);
}

bool is_client_name(std::string_view name) {
  return name.starts_with(kKinetoClientName) && std::all_of(name.begin(), name.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '-';
         });
}

UniqueFd make_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  // Before it has a name: what comes from the first moment on has its sender with it.
  if (fd.valid() && ::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) fd.reset();
  return fd;
}

// Not valid: it is no socket of the folder's owner.
UniqueFd open_client(const UserFolder& folder, const std::string& name) {
  UniqueFd handle(::openat(folder.fd(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (handle.valid() && (::fstat(handle.get(), &info) != 0 || !S_ISSOCK(info.st_mode) || info.st_uid != folder.owner()))
    handle.reset();
  return handle;
}

}  // namespace

bool send_datagram(const UserFolder& folder, const std::string& name, std::string_view datagram) {
  const UniqueFd handle = open_client(folder, name);
  const UniqueFd fd = make_socket();
  if (!handle.valid() || !fd.valid()) return false;
  sockaddr_un address{};
  const socklen_t length = set_name(address, format("/proc/self/fd/%d", handle.get()), false);
  return ::sendto(fd.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                  reinterpret_cast<sockaddr*>(&address), length) == static_cast<ssize_t>(datagram.size());
}

bool KinetoSocket::is_dead(const UserFolder& folder, const std::string& name) {
  const UniqueFd handle = open_client(folder, name);
  const UniqueFd fd = make_socket();
  if (!handle.valid() || !fd.valid()) return false;
  sockaddr_un address{};
  const socklen_t length = set_name(address, format("/proc/self/fd/%d", handle.get()), false);
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 && errno == ECONNREFUSED;
}

Result<KinetoSocket> KinetoSocket::open_abstract(const std::string& name) {
  UniqueFd fd = make_socket();
  sockaddr_un address{};
  const socklen_t length = set_name(address, name, true);
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) return Error{"another daemon (dynolog, or another agent) has Kineto's socket"};
    return Error{format("no socket for Kineto: %s", std::strerror(errno))};
  }
  return KinetoSocket(std::move(fd), nullptr);
}

Result<KinetoSocket> KinetoSocket::open_in(std::shared_ptr<const UserFolder> folder) {
  auto failed = [&] {
    return Error{format("no socket for Kineto in %s: %s", folder->path().c_str(), std::strerror(errno))};
  };
  UniqueFd fd = make_socket();
  sockaddr_un address{};
  // By the folder's own name, not by our hold on it: a client ends its process where an answer comes from a name that
  // does not begin with its folder. The folder may be replaced under us; what is made elsewhere then is a socket that
  // nobody may write to.
  const std::string path = folder->path() + "/" + kKinetoDaemonName;
  if (path.size() >= sizeof address.sun_path || !folder->is_in_place()) {
    errno = ENAMETOOLONG;
    return failed();
  }
  folder->remove(kKinetoDaemonName);
  const socklen_t length = set_name(address, path, false);
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return failed();
  // The folder's owner must reach it, whoever we are. By a handle: the name may stand for something else by now.
  const UniqueFd handle(::openat(folder->fd(), kKinetoDaemonName, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!handle.valid() || ::fstat(handle.get(), &info) != 0) return failed();
  if (!S_ISSOCK(info.st_mode) || info.st_uid != ::geteuid()) return Error{"what is there is not our socket any more"};
  if (::chmod(format("/proc/self/fd/%d", handle.get()).c_str(), 0666) != 0) return failed();
  return KinetoSocket(std::move(fd), std::move(folder));
}

KinetoSocket::~KinetoSocket() {
  if (fd_.valid() && folder_ != nullptr) folder_->remove(kKinetoDaemonName);
}

bool KinetoSocket::receive(Received& received) {
  received = {};
  received.bytes.resize(kKinetoDatagramBytesMax + 1);
  sockaddr_un from{};
  iovec part{received.bytes.data(), received.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return false;
  received.bytes.resize(static_cast<size_t>(got));
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr; part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_CREDENTIALS) continue;
    ucred who{};
    std::memcpy(&who, CMSG_DATA(part_of), sizeof who);
    if (who.pid > 0) {  // 0: of a namespace that is none of ours
      received.pid = who.pid;
      received.user = who.uid;
    }
  }
  if (message.msg_namelen > kPathAt && message.msg_namelen <= sizeof from)
    received.address.assign(from.sun_path, message.msg_namelen - kPathAt);
  return true;
}

bool KinetoSocket::answer(const Received& to, std::string_view datagram) {
  sockaddr_un address{};
  socklen_t length = 0;
  UniqueFd handle;
  if (folder_ == nullptr) {
    std::string_view name = to.address;
    if (name.size() < 3 || name.front() != '\0') return false;
    name.remove_prefix(1);
    if (name.back() == '\0') name.remove_suffix(1);
    if (!is_client_name(name)) return false;
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, to.address.data(), to.address.size());
    length = static_cast<socklen_t>(kPathAt + to.address.size());
  } else {
    // Its path is as the process sees it. One that calls the folder by another name (a container's) must not be
    // answered: see open_in().
    const std::string path(to.address.c_str());
    const size_t slash = path.rfind('/');
    const std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
    if (slash == std::string::npos || path.substr(0, slash) != folder_->path() || !is_client_name(name)) return false;
    handle = open_client(*folder_, name);
    if (!handle.valid()) return false;
    length = set_name(address, format("/proc/self/fd/%d", handle.get()), false);
  }
  const ssize_t sent = ::sendto(fd_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<sockaddr*>(&address), length);
  return sent == static_cast<ssize_t>(datagram.size());
}

}  // namespace lockstep
