// Plays a simulated job in real time and hands on what the agents of its hosts would send: job.start and comm.init of
// every rank, train.step one request per host and step, rank.status while the job is stuck (first after 2 s, then ever
// more rarely, as an agent does), the collective metrics every 5 s, spans of one step in `trace_every`, job.end; where the caller gives them also the stacks that
// agents were asked for. The nodes under it (node/job_nodes.h) send by themselves.
//
// Thread rule: Thread-safe. run() is called once, on a thread of its own; callbacks come on that thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/mutex.h"
#include "model/telemetry.h"
#include "sim/fleet/fault.h"
#include "sim/fleet/fleet.h"

namespace lockstep::sim {

struct FaultChange {
  Fault fault;
  bool began = true;  // else it has ended
  StepNumber step;    // the first step with it, or without it
};

struct PlayerOptions {
  int64_t steps = 0;  // 0: until stopped
  double speed = 1;   // 2: a second of the job in half a second. Times are laid so that the last step ends now, so it
                      // needs `steps`.
  int64_t trace_every = 8;  // steps; 0: no spans
  std::vector<Fault> faults;
  std::function<void(const Batch&, std::stop_token)> deliver;
  std::function<void(const FaultChange&)> on_fault;  // may be empty
  // May be empty: time goes by for the job's nodes, told once a step and while the job is stuck. What they send is the
  // callee's business.
  std::function<void(const Fleet&, std::span<const Fault>, int64_t job_ns, std::stop_token)> nodes;
  // May be empty: whose stacks were asked for since the last call.
  std::function<std::vector<Rank>()> stacks_wanted;
};

class Player {
 public:
  // The shape and the faults must have passed check().
  Player(JobShape shape, PlayerOptions options);

  // Returns when all steps are played or a stop is asked for. A job that ends while it is stuck ends unclean.
  void run(std::stop_token stop);

  void inject(Fault fault);                  // from the next step on; its from_step does not matter
  void clear();                              // no fault from the next step on; a missing rank enters
  StepNumber step() const { return step_; }  // the last one delivered, -1 before the first
  bool hung() const { return hung_; }

 private:
  struct CollectiveTotals {
    int32_t size = 0;
    int64_t operations = 0, bytes = 0, gpu_ns = 0;
    double bus_bytes = 0;
  };

  std::vector<Fault> faults_of(StepNumber step);
  void announce(const std::vector<Fault>& active, StepNumber step);
  bool hold(std::stop_token stop);
  bool wait_until(int64_t job_ns, std::stop_token stop, bool wake_on_clear);
  int64_t job_now_ns() const;
  // One batch per host; fill puts what one rank tells into its group.
  void deliver_by_host(Signal signal, const std::function<void(Rank rank, ResourceGroup&)>& fill, std::stop_token stop);
  void deliver_logs(const std::function<std::vector<LogRecord>(Rank)>& records_of, std::stop_token stop);
  void deliver_start(std::stop_token stop);
  void deliver_step(bool released, bool traced, std::stop_token stop);
  void deliver_end(std::stop_token stop);
  void count_collectives();
  void deliver_metrics(int64_t job_ns, std::stop_token stop);
  // What comes from the nodes: that they are read, and stacks that were asked for.
  void deliver_node_side(int64_t job_ns, std::stop_token stop);

  const PlayerOptions options_;
  Fleet fleet_;  // run() alone, as all down to the mutex
  const int64_t start_job_ns_;
  int64_t start_wall_ns_ = 0;
  std::vector<Fault> announced_;
  std::vector<std::vector<CollectiveTotals>> collectives_;  // per rank
  int64_t metrics_due_ns_ = 0;

  std::atomic<StepNumber> step_{kNoStep};
  std::atomic<bool> hung_{false};
  Mutex mutex_;
  StoppableConditionVariable wake_;
  std::vector<Fault> faults_ LOCKSTEP_GUARDED_BY(mutex_);
  bool cleared_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep::sim
