// Reads this node: GPUs, NICs, host and kernel, once a tick, and works out who owns what. What it reads goes to the
// metrics page at once, and to the server thinned out (node_series.h); events go to the server as they happen.
//
// The sources are read on a thread of its own, so that a file that does not answer cannot hold up the flight recorders;
// GPUs in a process of their own (gpu_process.h). A source that has not come back for kStuckNs is named on the page, in
// the log and by status().
//
// Over its CPU budget it reads less often (agent/own_cost.h), and says so: "agent.shedding".
// Thread rule: Thread-safe, but start() before the first of the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/heartbeat.h"
#include "agent/node/gpu_process.h"
#include "agent/node/node_series.h"
#include "agent/own_cost.h"
#include "agent/ranks/recorder_watch.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "sources/gpu/gpu_readings.h"
#include "sources/node_source.h"
#include "sources/ownership/gpu_ownership.h"

namespace lockstep {

struct NodeOptions {
  std::string host;
  int64_t interval_ns = 1'000'000'000;
  int64_t slow_every_ns = 10'000'000'000;
  int64_t send_every_ns = 5'000'000'000;
  double cpu_budget = 0.03;  // of one core
  bool gpus = true;
  GpuReaderOptions gpu_reader;
  GpuOwnershipOptions who;
  Heartbeat* heartbeat = nullptr;  // of the thread that reads the sources
};

class NodeWatch {
 public:
  // A look at a disk that is being unmounted, say, may take a second; a minute is a fault.
  static constexpr int64_t kStuckNs = 10'000'000'000;

  // Sources are opened by the caller, while it still may.
  NodeWatch(NodeOptions options, std::vector<std::unique_ptr<NodeSource>> sources, const Clock& clock,
            Counters& counters);
  ~NodeWatch();
  void start();
  // Ends the thread. False: it did not come back within that time, from a file that does not answer, say.
  bool stop(int64_t within_ms);

  // What there is to send since the last call.
  CollectedBatch take();
  // The recorders that are being read here, as of now.
  void set_recorders(std::vector<RecorderOwner> recorders);
  // Threads of a process that drive NCCL's network, as its recorder knows them; pid as this machine numbers it. For the
  // host source, on the thread of the sources.
  std::vector<int32_t> proxy_threads(int32_t pid) const;
  // What was found out about each of them, by path.
  std::map<std::string, Completion> completions() const;

  std::string page(bool dcgm_names) const;
  std::vector<SourceCheck> checks() const;

  // Lets go of every GPU; for_s 0: until resume().
  void drain(int64_t for_s);
  void resume();
  // "running", "drained", ...: the state of the GPU reader, and what is stuck, one line.
  std::string status() const;
  // True once no process of ours holds a GPU.
  bool drained() const;

 private:
  struct Source {
    std::unique_ptr<NodeSource> source;
    LabelSet labels;
    int64_t failures = 0;
  };
  void run();
  void tick(int64_t now_ns);
  void read_sources(const Tick& tick);
  void take_snapshot(GpuSnapshot snapshot);
  void poll_ownership(const Tick& tick);
  void note_cost(const Tick& tick);
  void refresh_checks();
  void apply_commands();
  void publish(NodeReadings& readings, const Tick& tick);
  Attributes resource_of(const NodeEvent& event) const;

  const NodeOptions options_;
  const Clock& clock_;
  Counters& counters_;
  NodeSeries series_;

  // The thread's own.
  std::vector<Source> sources_;
  std::unique_ptr<GpuReaderProcess> gpu_;
  GpuReadings gpu_readings_;
  GpuOwnership who_;
  GpuOwnershipInputs who_inputs_;
  bool who_due_ = true;
  OwnerTable owners_;
  std::vector<GpuEvent> gpu_events_;
  OwnCost cost_;
  int64_t next_slow_ns_ = 0;
  int64_t next_send_ns_ = 0;
  int64_t next_checks_ns_ = 0;

  // What the thread is doing, for whoever watches it.
  std::atomic<const char*> reading_{nullptr};  // name of the source; nullptr: none
  std::atomic<int64_t> reading_since_ns_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};

  mutable Mutex mutex_;
  CollectedBatch batch_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string stuck_reported_ LOCKSTEP_GUARDED_BY(mutex_);  // the source that was said to be stuck
  std::vector<RecorderOwner> recorders_ LOCKSTEP_GUARDED_BY(mutex_);
  bool recorders_changed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::map<std::string, Completion> completions_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<GpuInfo> gpus_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<SourceCheck> checks_ LOCKSTEP_GUARDED_BY(mutex_);
  GpuReaderStatus gpu_status_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t drain_wanted_s_ LOCKSTEP_GUARDED_BY(mutex_) = -1;  // -1: not asked
  bool resume_wanted_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep
