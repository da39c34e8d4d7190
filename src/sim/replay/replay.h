// A replay of a recording: one process per rank, all started together, each a RankPlayer into the real plugin.
//
// Times: what the libraries see is recorded time moved by a constant, the same for every rank, such that the end of the
// recording falls on the planned end of the replay. With a speed of N the stamps stay as recorded and the wall time
// shrinks. The recorder's clock anchor is this machine's own, so that moved times read as recent Unix time; GPU times
// are passed on as recorded.
//
// A rank whose communicators were all finalized shuts down and ends; any other stays, silent, until it is ended:
// that is what a hung process looks like.
//
// Limits: the caller must not have other threads when it calls start() (ranks are forked, and run on without exec).
// Thread rule: Confined. Rank processes die with the Replay object and with the thread that started them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/replay/recording.h"

namespace lockstep::replay {

struct ReplayOptions {
  double speed = 1.0;
  std::string job_id;              // empty: default_job_id()
  std::string plugin_path;         // libnccl-profiler-lockstep.so
  std::string capi_path;           // liblockstep.so; empty: no step marks
  std::string recorder_directory;  // empty: what the environment says
};

// "replay-" and 8 hex digits of the content: the same recording is the same job wherever it lies.
std::string default_job_id(const Recording& recording);

class Replay {
 public:
  // Forks the ranks, waits until each has loaded its libraries, gives the common start. The recording must outlive it.
  static Result<Replay> start(const Recording& recording, const ReplayOptions& options);
  Replay(Replay&&) noexcept;
  ~Replay();

  struct Progress {
    uint64_t calls_passed = 0;  // of Recording::calls_total
    uint64_t calls_made = 0;    // without those outside the plugin's mask
    uint32_t ranks_ended = 0;
    uint32_t ranks_lingering = 0;
    bool through = false;  // every rank has ended or lingers
  };
  // An error when a rank's process failed: which, and how. The replay is then of no further use.
  Result<Progress> progress();

  // When the last call is due, on this machine's monotonic clock.
  int64_t planned_end_ns() const { return planned_end_ns_; }

  // Ends every rank that is still there.
  void stop();

 private:
  struct Control;  // lies in memory shared with the ranks
  struct RankProcess {
    int number = 0;
    pid_t pid = -1;
    bool ended = false;
  };
  Replay() = default;
  Result<void> check_ranks();

  Control* control_ = nullptr;
  std::vector<RankProcess> ranks_;
  int64_t planned_end_ns_ = 0;
};

}  // namespace lockstep::replay
