// Keeps the ledger: hears what the server stores, and a while after each minute has ended has it judged and put down.
//
// A minute is judged kGraceNs after its end, and again when something of it comes later or when a verdict on it changes,
// as far back as the ledger's minutes are open; of minutes older than kMeasuredMinutes the sums are gone, and what comes
// of them begins anew. Minutes of a job that is silent are unknown for kSilentMinutes; then the job is taken to be gone,
// and has no minutes.
// Restarts: the log is read back through here. A job's baselines and newest minute come from the ledger, and what it
//   holds from more rows stays (ledger.h).
// Limits: kJobsMax jobs, the one not heard of for longest goes first; ranks from kRanksMax on are left out; kRowsMax
//   rank-minutes that are measured, beyond which new ones are left out; kHostsMax hosts; kEventsMax events of hosts.
// Thread rule: Thread-safe (one lock); note() and tick() are for one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apply/subscriber.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/sparse_rows.h"
#include "diagnosis/verdict_source.h"
#include "sle/ledger.h"
#include "sle/minute_judge.h"
#include "sle/minute_measure.h"

namespace lockstep::sle {

class SleWatch final : public StoreSubscriber {
 public:
  static constexpr int64_t kGraceNs = 15'000'000'000;
  static constexpr int64_t kAheadNs = 120'000'000'000;  // a clock that is further ahead is not believed
  static constexpr int32_t kMeasuredMinutes = 5;
  static constexpr int32_t kSilentMinutes = 10;
  static constexpr int32_t kStartMinutes = 3;  // of an attempt: not in steps is taken for its start
  static constexpr size_t kJobsMax = 10'000;
  static constexpr int32_t kRanksMax = 1'000'000;
  static constexpr size_t kRowsMax = 4'000'000;
  static constexpr size_t kHostsMax = 200'000;
  static constexpr size_t kEventsMax = 10'000;

  struct Reads {
    const VerdictSource& diagnosis;
    std::function<std::vector<HardwareFault>()> faults = {};               // of now and the last minutes
    std::function<std::string(std::string_view gpu_uuid)> gpu_model = {};  // "": not known
  };
  SleWatch(Ledger& ledger, Reads reads, Thresholds thresholds, Counters& counters);

  void on_attempt_back(const std::string& job_id, int64_t attempt) override;
  void on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override;
  void on_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) override;
  void on_rank_started(const Identity& identity, int64_t received_unix_ns) override;
  void on_rank_ended(const Identity& identity, const RankEnd& end, int64_t received_unix_ns) override;
  void on_records_lost(const Identity& identity, int64_t records, int64_t received_unix_ns) override;
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) override;
  void on_node_event(std::string_view host, const NodeEvent& event, int64_t received_unix_ns) override;

  void note(std::span<const Verdict> changed, int64_t now_unix_ns);
  // A few times a second, and while the log is read back: then with the time of what was read.
  void tick(int64_t now_unix_ns);
  // What was judged is on disk once it returns, or one line says why not. Not while the log is read back.
  void flush();

 private:
  struct RankSeen {
    StepNumber newest = kNoStep, highest = kNoStep;
    uint64_t mask = 0;  // of the 64 steps up to the newest
    int64_t newest_end_unix_ns = INT64_MIN;
  };
  struct Seat {
    std::string host, gpu_uuid;
    bool known = false, ended = false;
  };
  struct Steps {  // of a minute
    int32_t minute = 0;
    int64_t attempt = 0;
    StepNumber first = kNoStep, last = kNoStep;
  };
  struct Job {
    int64_t attempt = 0;
    int32_t world_size = 0;
    SparseRows<Seat, 64> seats;
    int32_t ended = 0;  // seats
    SparseRows<RankSeen, 64> seen;
    std::shared_ptr<const Placement> placement;
    std::string gpu_model;
    std::deque<MeasuredMinute> minutes;  // in order, the newest kMeasuredMinutes
    std::deque<Steps> steps;             // in order, the newest Ledger::kOpenMinutes
    Baselines baselines{};
    int64_t first_unix_ns = 0;   // of this attempt
    int64_t ended_unix_ns = 0;   // the last that a rank did
    int32_t heard_minute = 0;    // newest
    int32_t judged_through = 0;  // every minute up to it was judged once
    int32_t learned_through = 0;
    int32_t restored_through = 0;  // the ledger had minutes up to it before anything was heard of the job
    uint64_t heard = 0;
  };
  struct HostHeard {
    int32_t newest = 0;
    uint64_t mask = 0;  // of the 64 minutes up to the newest
  };

  Job& job_of(const std::string& job_id) LOCKSTEP_REQUIRES(mutex_);
  // nullptr: of an attempt that is over, or absurd.
  Job* job_for(const Identity& identity, int64_t received_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void take_seat(Job& job, const Identity& identity) LOCKSTEP_REQUIRES(mutex_);
  RankMinute* row_of(Job& job, Rank rank, int32_t minute) LOCKSTEP_REQUIRES(mutex_);
  MeasuredMinute* measured_minute(Job& job, int32_t minute) LOCKSTEP_REQUIRES(mutex_);
  static bool is_over(const Job& job) { return job.ended > 0 && job.ended >= job.world_size; }
  enum class Seen : uint8_t { kNew, kAgain, kRepeatedWork };
  static Seen see(RankSeen& seen, const StepSummary& summary);
  void note_steps(Job& job, int32_t minute, StepNumber step) LOCKSTEP_REQUIRES(mutex_);
  void make_placement(Job& job) LOCKSTEP_REQUIRES(mutex_);
  void look_at(const std::string& job_id, Job& job, int32_t through) LOCKSTEP_REQUIRES(mutex_);
  void judge_minute(const std::string& job_id, Job& job, MeasuredMinute& measured, std::span<const Verdict> verdicts)
      LOCKSTEP_REQUIRES(mutex_);
  void charge(const Verdict& verdict) LOCKSTEP_REQUIRES(mutex_);
  bool acts_in(const Verdict& verdict, const Job& job, int32_t minute) const LOCKSTEP_REQUIRES(mutex_);
  void hear_host(std::string_view host, int64_t received_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void forget(std::map<std::string, Job, std::less<>>::iterator job) LOCKSTEP_REQUIRES(mutex_);

  Ledger& ledger_;
  const Reads reads_;
  const Thresholds thresholds_;
  std::atomic<int64_t>&received_, &taken_, &repeated_, &late_, &future_, &left_out_;
  Counters& counters_;
  mutable Mutex mutex_;
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  std::pair<const std::string, Job>* newest_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;  // a batch is of one job
  std::map<std::string, HostHeard, std::less<>> hosts_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<HardwareFault> events_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> cleared_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_);  // verdicts; by id
  std::vector<HardwareFault> faults_ LOCKSTEP_GUARDED_BY(mutex_);               // of this look
  uint64_t records_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t rows_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int32_t expired_minute_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int32_t looked_minute_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t looked_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool failing_ = false;  // of flush() alone
};

}  // namespace lockstep::sle
