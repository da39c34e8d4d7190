// Asks the server, again and again, whether it wants anything: a long poll, because agents only dial out
// (docs/formats/commands.md). The answer comes at once when there is something, else after some 25 s and empty.
//
// The receiver is the one that telemetry goes to over OTLP/HTTP, with the same TLS, token and headers. A server that
// does not know the path (404, 405, 501, or a page for people) is asked for the right port once (other_port.h); a plain OTLP collector is left
// alone for unknown_wait_ms; this is said once.
// A server that is away is tried again with back-off.
//
// Limits: kHostsMax hosts; kWaitingMax requests wait to be taken, further ones are counted and dropped.
// Counts: lockstep_agent_commands_polls_total by result, lockstep_agent_commands_total by result.
// Thread rule: Thread-safe. One thread of its own, joined by stop(), which does not wait for the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/export/otlp_target.h"
#include "base/counters.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/result.h"
#include "model/detail_request.h"
#include "model/profile_capture.h"
#include "net/http_client.h"

namespace lockstep {

struct CommandPollOptions {
  OtlpTarget target;  // as command_target() gives it
  int64_t timeout_ms = 40'000;
  int64_t backoff_first_ms = 500;
  int64_t backoff_most_ms = 30'000;
  int64_t unknown_wait_ms = 900'000;
};

// Where commands come from: the receiver that spans go to. The error says why there are none (gRPC, or an endpoint of
// one's own for spans).
Result<OtlpTarget> command_target(const OtlpTargets& targets);

class CommandPoll {
 public:
  static constexpr size_t kHostsMax = 64;
  static constexpr size_t kWaitingMax = 1024;

  CommandPoll(CommandPollOptions options, Counters& counters);
  ~CommandPoll() { stop(); }

  // Whose commands to ask for, the most important first: what is over kHostsMax is left out. A change ends the present
  // poll and begins another. Nothing is asked before the first.
  void set_hosts(std::vector<std::string> hosts);
  // What has arrived since.
  std::vector<DetailRequest> take();
  std::vector<StackRequest> take_stacks();
  std::vector<ProfileRequest> take_profiles();
  std::vector<SampleRequest> take_samples();
  void stop();

 private:
  struct Outcome {
    const char* result;        // for counters
    int64_t wait_ms = -1;      // until the next poll; -1: back off
    std::string why;           // one line, where something is wrong
    bool wrong_place = false;  // no receiver of polls answers there: another port of the server may
  };
  void run();
  Outcome poll_once(const std::vector<std::string>& hosts);
  void connect();
  bool find_right_port();  // true: there is another one
  void interrupt() LOCKSTEP_REQUIRES(mutex_);

  const CommandPollOptions options_;
  Counters& counters_;
  UniqueFd wake_;  // readable: the present wait is over

  // The thread's own.
  std::string cursor_;
  std::string token_;
  OtlpTarget target_;
  std::optional<HttpClient> client_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<std::string> hosts_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<DetailRequest> arrived_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<StackRequest> stacks_arrived_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<ProfileRequest> profiles_arrived_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<SampleRequest> samples_arrived_ LOCKSTEP_GUARDED_BY(mutex_);
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace lockstep
