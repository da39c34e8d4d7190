// How a person at the node speaks to the running agent: a UNIX socket in its data folder, for its own user only. One
// line is asked, some lines are answered, the connection ends.
//
// Limits: a request of kRequestBytesMax; a client has 1 s to ask; one client at a time (they wait in the backlog).
// Thread rule: Confined. poll() belongs into the agent's loop.
#pragma once

#include <functional>
#include <string>

#include "base/files.h"
#include "base/result.h"

namespace lockstep {

class ControlSocket {
 public:
  static constexpr size_t kRequestBytesMax = 256;

  // Replaces a socket that an earlier agent left there (the caller holds the folder's lock).
  static Result<ControlSocket> open(const std::string& path);
  ControlSocket(ControlSocket&&) = default;
  ~ControlSocket();

  // Answers whoever waits. Returns at once when nobody does.
  void poll(const std::function<std::string(const std::string& request)>& answer);

 private:
  ControlSocket(UniqueFd listener, std::string path) : listener_(std::move(listener)), path_(std::move(path)) {}
  UniqueFd listener_;
  std::string path_;
};

// The other side. An error says that no agent listens there, and what to look at.
Result<std::string> ask_agent(const std::string& path, const std::string& request);

}  // namespace lockstep
