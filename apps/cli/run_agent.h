// The agent of `lockstep run`: started where no agent reads this user's recorders, shared by every run on the node (a
// launcher may start one for each rank), ended by the last of them.
//
// Who is who is agreed on in one file in the recorder folder, `run.lock`, by locks that the kernel lets go of when
// their owner dies:
//   byte 0   held shared by each run while its command runs; the agent ends when it gets it for itself
//            (lockstep-agent --while-locked), so no run that was killed leaves one behind
//   byte 1   held by a run while it joins, starts or ends the agent
// and its text, which says who the agent is: PID START_TICKS DATA_FOLDER, and on a line of its own where its page is:
// metrics=ADDRESS.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace lockstep::cli {

// The page of the agent that reads these recorders: of a run, else the usual one ("http://127.0.0.1:9410"), whether one
// answers there or not.
std::string agent_page(const std::string& recorders);
// Where that agent sends to, as it says itself; nothing where it does not say.
std::optional<std::string> destination_of_agent(const std::string& recorders);

class RunAgent {
 public:
  enum class How { kStarted, kJoined, kAlreadyThere };
  struct Ended {
    std::string undelivered;  // folder where something is left that the server has not got; empty: nothing
    std::string postmortem;   // folder with the recorders of ranks that died; empty: none did
  };

  // Makes sure that the folder is read. server: for the agent's --server; empty: what its environment says.
  // On error nothing was started, and the one line says why.
  static Result<RunAgent> join(const std::string& recorders, const std::string& server);
  RunAgent(RunAgent&&) = default;

  How how() const { return how_; }

  // The command is over: waits until what it recorded was taken over (at most kTakeOverMs), and where this was the last
  // run, until the agent has sent it and is gone. What could not be sent and the recorders of ranks that died stay on
  // disk where they are wanted; else they go, and an agent that can reach nobody is not waited for.
  struct Leave {
    bool server_answers = true;
    bool keep_undelivered = true;
    bool keep_postmortem = true;
  };
  Ended leave(Leave requests);

 private:
  static constexpr int64_t kTakeOverMs = 4'000;
  RunAgent(How how, std::string recorders, UniqueFd lock)
      : how_(how), recorders_(std::move(recorders)), lock_(std::move(lock)) {}

  How how_;
  std::string recorders_;
  UniqueFd lock_;  // not valid: the agent was there before, and is not ours to end
};

}  // namespace lockstep::cli
