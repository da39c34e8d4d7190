// What a server asks of the agents under a job that is played live: whose stacks it wants. It asks as it asks real agents,
// by a long poll at the OTLP/HTTP receiver (docs/formats/commands.md). It says that it
// answers nothing else: simulated ranks have no processes to sample, no profiler and no detail to give.
//
// A receiver that knows no commands, or is away, is asked again after kPauseMs.
// Thread rule: Thread-safe. One thread of its own, which the destructor ends without waiting for the server.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/mutex.h"
#include "model/ids.h"
#include "net/http_client.h"

namespace lockstep::sim {

class StackOrders {
 public:
  static constexpr size_t kRanksMax = 4096;  // that wait to be taken; further ones are not noted
  static constexpr int64_t kPauseMs = 1000;

  // hosts: at most 64, as the server's rule is.
  StackOrders(const Url& otlp, std::string job_id, std::vector<std::string> hosts);
  ~StackOrders();

  // Of this attempt of the job, sorted and each once; what was asked of another attempt is dropped.
  std::vector<Rank> take(int64_t attempt);

 private:
  struct Wanted {
    int64_t attempt = 0;
    Rank rank;
    auto operator<=>(const Wanted&) const = default;
  };
  void run(std::stop_token stop);
  bool poll(std::string& cursor);

  const std::string job_id_;
  const std::vector<std::string> hosts_;
  UniqueFd wake_;  // readable: it is over
  HttpClient client_;
  Mutex mutex_;
  StoppableConditionVariable pause_;
  std::vector<Wanted> wanted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses all the others
};

}  // namespace lockstep::sim
