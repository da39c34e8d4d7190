// Keeps the ledger: hears what the server stores, and a while after each minute has ended has it judged and put down.
//
// A step is of when it says it was; what says no time is of when it was received, and of now where that is further ahead of the
// credible time than a clock may be (ClockWitness::kToleranceNs).
// A minute is judged kGraceNs after its end, and again when something of it comes later or when a verdict on it changes,
// as far back as the ledger's minutes are open; of minutes older than kMeasuredMinutes the sums are gone, and what comes
// of them begins anew. Minutes of a job that is silent are unknown for kSilentMinutes; then the job is taken to be gone,
// and has no minutes.
// In a window that is planned (planned.h) minutes are idle, and no baseline is learned from them.
// Restarts: the log is read back through here. A job's baselines and newest minute come from the ledger, and what it
//   holds from more rows stays (ledger.h).
// Limits: kJobsMax jobs, the one not heard of for longest goes first; kRanksMax ranks of all jobs together, as they say how many
//   they are, and from half of it on what is gone is forgotten at once (beyond it, the job of which most ranks are only claimed
//   and were never heard of goes for one of which fewer are, so that a claim takes nobody's place; else the new one is left
//   out); kRowsMax rows of ranks and their minutes, beyond which new ones are left out; kHostsMax hosts; kEventsMax events of
//   hosts.
// Thread rule: Thread-safe (one lock, under which nothing is asked of others: who stores does not wait for the ledger); note()
//   and tick() are for one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
#include "sle/planned.h"

namespace lockstep::sle {

class SleWatch final : public StoreSubscriber {
 public:
  static constexpr int64_t kGraceNs = 15'000'000'000;
  static constexpr int64_t kAheadNs = 120'000'000'000;  // a clock that is further ahead is not believed
  static constexpr int32_t kMeasuredMinutes = 5;
  static constexpr int32_t kSilentMinutes = 10;
  static constexpr int32_t kStartMinutes = 3;  // of an attempt: not in steps is taken for its start
  static constexpr size_t kJobsMax = 10'000;
  static constexpr int64_t kRanksMax = 1'000'000;
  static constexpr size_t kRowsMax = 4'000'000;
  static constexpr size_t kHostsMax = 200'000;
  static constexpr size_t kEventsMax = 10'000;

  struct Reads {
    const VerdictSource& diagnosis;
    // Those that there are, or that were over since then.
    std::function<std::vector<HardwareFault>(int64_t over_since_unix_ns)> faults = {};
    std::function<std::string(std::string_view gpu_uuid)> gpu_model = {};  // "": not known
    std::function<std::vector<PlannedWindow>()> planned = {};
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
  // A few times a second, and while the log is read back: then with the time of what was read. credible: the earliest time
  // that it may be.
  void tick(int64_t now_unix_ns, int64_t credible_unix_ns);
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
    int32_t ended = 0;           // seats
    int32_t seated = 0;          // that are known
    int32_t no_room_minute = 0;  // was looked for in it, and not found
    SparseRows<RankSeen, 64> seen;
    std::shared_ptr<const Placement> placement;
    std::string gpu_model;               // of this attempt; "": not known
    int32_t model_asked_minute = 0;      // once in a minute
    std::deque<MeasuredMinute> minutes;  // in order, the newest kMeasuredMinutes
    std::deque<Steps> steps;             // in order, the newest Ledger::kOpenMinutes
    std::optional<Baselines> baselines;  // nullopt: the ledger's, which was not asked yet
    int64_t first_unix_ns = 0;           // of this attempt
    int64_t ended_unix_ns = 0;           // the last that a rank did
    int32_t heard_minute = 0;            // newest
    int32_t judged_through = 0;          // every minute up to it was judged once
    int32_t learned_through = 0;
    int32_t restored_through = -1;  // the ledger had minutes up to it before anything was judged; -1: not asked yet
    uint64_t heard = 0;
  };
  struct Due {  // a job with minutes to judge, and what others know of it
    std::string job_id;
    int32_t last = 0;  // minute
    std::string gpu_uuid = {};
    bool asks_ledger = false;
    std::string gpu_model = {};
    std::vector<Verdict> verdicts = {};
    Baselines baselines{};
    int32_t newest_minute = 0;
  };
  struct Others {  // what others know of all jobs
    FaultsByHost faults;
    std::vector<PlannedWindow> planned;
  };
  struct Charge {
    Owner owner;
    std::vector<int32_t> minutes;
    std::vector<Sle> sles;
  };
  using Judged = std::vector<std::pair<std::string, JudgedMinute>>;
  struct HostHeard {
    int32_t newest = 0;
    uint64_t mask = 0;  // of the 64 minutes up to the newest
  };

  Job& job_of(const std::string& job_id) LOCKSTEP_REQUIRES(mutex_);
  // nullptr: of an attempt that is over, or absurd.
  Job* job_for(const Identity& identity, int64_t received_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  int64_t believed(int64_t received_unix_ns) const LOCKSTEP_REQUIRES(mutex_);
  bool take_seat(Job& job, const Identity& identity) LOCKSTEP_REQUIRES(mutex_);
  // Whether the job may have so many ranks of which it has shown `seated`; others may have to go for it.
  bool make_room(Job& job, int32_t world_size, int32_t seated, int32_t minute) LOCKSTEP_REQUIRES(mutex_);
  // nullptr: there is no room for it.
  template <typename Row>
  Row* row_at(SparseRows<Row, 64>& rows, Rank rank) LOCKSTEP_REQUIRES(mutex_);
  RankMinute* row_of(MeasuredMinute* measured, Rank rank) LOCKSTEP_REQUIRES(mutex_);
  // nullptr: too old.
  MeasuredMinute* measured_minute(Job& job, int32_t minute) LOCKSTEP_REQUIRES(mutex_);
  static bool is_over(const Job& job) { return job.ended > 0 && job.ended >= job.world_size; }
  enum class Seen : uint8_t { kNew, kAgain, kRepeatedWork };
  static Seen see(RankSeen& seen, const StepSummary& summary);
  void note_steps(Job& job, int32_t minute, StepNumber step) LOCKSTEP_REQUIRES(mutex_);
  void make_placement(Job& job) LOCKSTEP_REQUIRES(mutex_);
  static bool is_due(const Job& job, const MeasuredMinute& minute, int32_t last);
  std::vector<Due> due_jobs(int32_t through) LOCKSTEP_REQUIRES(mutex_);
  void ask(Due& due) const;
  void judge_job(const Due& due, Job& job, const Others& others, Judged& judged) LOCKSTEP_REQUIRES(mutex_);
  JudgedMinute judge_minute(Job& job, MeasuredMinute& measured, const Due& due, const Others& others)
      LOCKSTEP_REQUIRES(mutex_);
  void let_go(Job& job, int32_t last) LOCKSTEP_REQUIRES(mutex_);
  // What it is to be charged with; its measured minutes are due again.
  std::optional<Charge> charge_of(const Verdict& verdict) LOCKSTEP_REQUIRES(mutex_);
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
  uint64_t records_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t rows_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t ranks_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // world sizes of all jobs
  int32_t looked_minute_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t looked_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t credible_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // 0: not known yet
  int32_t expired_ = 0;                                       // ten minutes; of tick() alone
  bool failing_ = false;                                      // of flush() alone
};

}  // namespace lockstep::sle
