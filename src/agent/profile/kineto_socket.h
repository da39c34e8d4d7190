// The socket that Kineto looks for: datagrams of AF_UNIX, by an abstract name (leading and trailing NUL are part of it)
// or, where a job was told a folder (KINETO_IPC_SOCKET_DIR), by a file in it.
//
// Who sent a datagram is the kernel's word (SO_PASSCRED), as numbers of our own namespaces. Where the answer goes is the
// sender's, so it is looked at: an abstract name as Kineto's clients have it, or a socket of the folder's owner in that
// very folder, found without following a link. So nobody can make an agent that may do more than he write to a socket
// that he may not write to himself.
//
// Never waits. Thread rule: Confined.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"
#include "base/user_files.h"

namespace lockstep {

inline constexpr const char* kKinetoDaemonName = "dynolog";
inline constexpr std::string_view kKinetoClientName = "dynoconfigclient";  // what each client's name begins with

// One datagram to a socket of the folder's owner in that very folder, found without following a link; never waits. False:
// there is none, nobody reads it, or it is full.
bool send_datagram(const UserFolder& folder, const std::string& name, std::string_view datagram);

class KinetoSocket {
 public:
  // One process of a network namespace has the name; the error says so where it is another.
  static Result<KinetoSocket> open_abstract(const std::string& name = kKinetoDaemonName);
  // In the place of what an agent before us has left there.
  static Result<KinetoSocket> open_in(std::shared_ptr<const UserFolder> folder);
  KinetoSocket(KinetoSocket&& other) noexcept = default;
  KinetoSocket& operator=(KinetoSocket&& other) noexcept = default;
  ~KinetoSocket();

  // Whether this is the socket of a client that is gone: its owner's, and nobody reads it.
  static bool is_dead(const UserFolder& folder, const std::string& name);

  int fd() const { return fd_.get(); }

  struct Received {
    std::string bytes;  // cut at one more than a datagram may have
    int32_t pid = -1;   // -1: the kernel did not say
    uid_t user = static_cast<uid_t>(-1);
    std::string address;  // of the sender, as the kernel gave it
  };
  // False: nothing waits.
  bool receive(Received& received);
  // False: it did not get there; whoever asks asks again.
  bool answer(const Received& to, std::string_view datagram);

 private:
  KinetoSocket(UniqueFd fd, std::shared_ptr<const UserFolder> folder)
      : fd_(std::move(fd)), folder_(std::move(folder)) {}

  UniqueFd fd_;
  std::shared_ptr<const UserFolder> folder_;  // none: abstract
};

}  // namespace lockstep
