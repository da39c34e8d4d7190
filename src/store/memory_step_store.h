// Steps and logs in memory. What it forgets at its limits, or loses with the process, the durable log may still
// have.
//
// Limits: the options; each counts rows and bytes (estimated), whichever is reached first. Whole steps (all ranks) are
//         dropped, oldest arrival first. A new attempt of a job takes the place of the old one.
// Order:  logs are newest first by arrival.
// More:   what steps/columnar_step_store.h needs besides, to keep on disk what leaves here: which rows are on disk yet,
//         and which steps are here as a whole.
// Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <variant>

#include "base/counters.h"
#include "base/most_reported.h"
#include "base/mutex.h"
#include "store/step_follower.h"
#include "store/step_store.h"

namespace lockstep {

struct MemoryStepStoreOptions {
  size_t step_rows_max = 2'000'000;
  size_t step_bytes_max = 2ull << 30;
  size_t jobs_max = 10'000;
  size_t ranks_max = 500'000;  // over all jobs
  size_t comms_per_rank_max = 4'096;
  size_t groups_per_rank_max = 256;
  size_t logs_max = 200'000;
  size_t events_max = 10'000;           // train.step and rank.status as log records: many, and held as rows already
  size_t log_bytes_max = 256ull << 20;  // for each of the two
  const char* steps_table = "steps";    // what its rows of steps are counted as
};

class MemoryStepStore final : public StepStore {
 public:
  MemoryStepStore(MemoryStepStoreOptions options, Counters& counters);

  void attempt_back(const std::string& job_id, int64_t attempt) override;
  void append_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override;
  void append_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) override;
  void append_comm(const Identity& identity, const CommInit& comm, int64_t received_unix_ns) override;
  void append_group(const Identity& identity, const CommGroup& group, int64_t received_unix_ns) override;
  void rank_started(const Identity& identity, int64_t received_unix_ns) override;
  void rank_ended(const Identity& identity, bool clean, int64_t received_unix_ns) override;
  void rank_lost_records(const Identity& identity, int64_t records) override;
  void append_log(std::shared_ptr<const Attributes> resource, LogRecord record) override;
  void append_step_log(StepReport report) override;

  std::vector<JobInfo> jobs() const override;
  std::optional<JobInfo> job(std::string_view job_id) const override;
  std::vector<StepRow> steps(std::string_view job_id, StepNumber from_step, StepNumber to_step) const override;
  void visit_steps(std::string_view job_id, StepNumber from_step, StepNumber to_step,
                   const std::function<void(const Identity&, const StepSummary&)>& visit) const override;
  Page<StoredLog> logs(std::string_view service, std::string_view event, size_t limit) const override;
  void visit_rare_logs(const std::function<bool(const StoredLog&)>& visit) const override;

  enum class Outcome { kNew, kReplaced, kOldAttempt, kRankLimit };  // the last two: refused
  struct Appended {
    Outcome outcome;
    bool is_new_step;
  };
  // is_sealed: the row is on disk, and what it lost was counted when the job was restored.
  Appended append(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns, bool is_sealed);
  // What is known of a job from elsewhere; adds to what is known here. Of an attempt that is over: nothing happens.
  void restore(const JobInfo& job);
  std::optional<JobInfo> job_without_ranks(std::string_view job_id) const;

  struct HeldStep {
    StepNumber step;
    bool is_whole;  // no other rows of it are elsewhere
  };
  struct HeldSteps {
    int64_t attempt = 0;
    std::vector<HeldStep> steps;  // sorted
  };
  std::optional<HeldSteps> held_steps(std::string_view job_id, StepNumber from_step, StepNumber to_step) const;
  // Rows of a step, by rank; how many there were. whole_only: none where it is not whole.
  size_t visit_step(std::string_view job_id, int64_t attempt, StepNumber step, bool whole_only,
                    const std::function<void(const Identity&, const StepSummary&)>& visit) const;
  // Rows of a step of these ranks (sorted), until visit does not take one.
  struct Visited {
    size_t done = 0;     // of the ranks; the next one was not taken
    size_t missing = 0;  // of those done: not here
  };
  Visited visit_rows(std::string_view job_id, int64_t attempt, StepNumber step, std::span<const Rank> ranks,
                     const std::function<bool(const RankInfo&, const StepSummary&)>& visit) const;
  void mark_whole(std::string_view job_id, int64_t attempt, StepNumber step);
  // So many calls of append() for this step are on disk now.
  void mark_sealed(std::string_view job_id, int64_t attempt, StepNumber step, uint64_t appends);
  // Drops whole steps, oldest arrival first, down to these limits, but stops at the first that is not all sealed.
  void trim(size_t rows_max, size_t bytes_max);

 private:
  struct Step {
    std::map<Rank, StepSummary> rows;  // by rank
    bool is_whole = false;
    uint64_t unsealed = 0;  // calls of append() that are not on disk
  };
  struct Job {
    uint64_t generation = 0;  // changes when the job is replaced, so that entries of arrivals_ for the old one are void
    JobInfo info;             // without ranks; what the next two say counts before it
    StepFollower last_step;
    MostReported<int32_t> world_size;
    std::map<Rank, RankInfo> ranks;
    std::map<StepNumber, Step> steps;
  };
  struct Arrival {  // first row of a step: what is dropped first
    std::string job_id;
    uint64_t generation;
    StepNumber step;
  };
  template <typename T>
  struct Ring {
    std::string table;
    size_t rows_max;
    size_t bytes_max;
    std::atomic<int64_t>& received;
    std::atomic<int64_t>& held;
    std::atomic<int64_t>& held_bytes;
    std::atomic<int64_t>& dropped;
    struct Entry {
      uint64_t number;
      size_t bytes;
      T item;
    };
    std::deque<Entry> entries{};
    size_t bytes = 0;
    void push(uint64_t number, size_t item_bytes, T item);
  };
  template <typename T>
  Ring<T> make_ring(const char* table, size_t rows_max, size_t bytes_max);

  void begin_attempt(Job& job, int64_t attempt) LOCKSTEP_REQUIRES(steps_mutex_);
  static void count_world_size(Job& job, const Identity& before, const Identity& now);
  // nullptr: the record is of an attempt that is over.
  Job* job_of(const Identity& identity, int64_t received_unix_ns) LOCKSTEP_REQUIRES(steps_mutex_);
  // nullptr: that, or there are too many ranks; refused_because says which.
  RankInfo* rank_of(const Identity& identity, int64_t received_unix_ns, const char** refused_because = nullptr)
      LOCKSTEP_REQUIRES(steps_mutex_);
  void drop_job_rows(Job& job, const char* reason) LOCKSTEP_REQUIRES(steps_mutex_);
  void drop_longest_silent_job(const std::string& except) LOCKSTEP_REQUIRES(steps_mutex_);
  void drop_step(Job& job, StepNumber step, std::atomic<int64_t>& dropped) LOCKSTEP_REQUIRES(steps_mutex_);
  void drop_steps_over_limit() LOCKSTEP_REQUIRES(steps_mutex_);
  void report_sizes() LOCKSTEP_REQUIRES(steps_mutex_);
  // nullptr: not here, or of another attempt.
  const Job* find_job(std::string_view job_id, int64_t attempt) const LOCKSTEP_REQUIRES_SHARED(steps_mutex_);
  Step* find_step(std::string_view job_id, int64_t attempt, StepNumber step) LOCKSTEP_REQUIRES(steps_mutex_);
  const Step* find_step(std::string_view job_id, int64_t attempt, StepNumber step) const
      LOCKSTEP_REQUIRES_SHARED(steps_mutex_);
  static JobInfo info_of(const Job& job);
  static JobInfo info_without_ranks(const Job& job);

  const MemoryStepStoreOptions options_;
  Counters& counters_;
  std::atomic<int64_t>& steps_received_;
  std::atomic<int64_t>& steps_replaced_;
  std::atomic<int64_t>& steps_dropped_;
  std::atomic<int64_t>& steps_held_;
  std::atomic<int64_t>& steps_bytes_;

  mutable SharedMutex steps_mutex_;
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(steps_mutex_);
  std::deque<Arrival> arrivals_ LOCKSTEP_GUARDED_BY(steps_mutex_);
  size_t step_rows_ LOCKSTEP_GUARDED_BY(steps_mutex_) = 0;
  size_t step_bytes_total_ LOCKSTEP_GUARDED_BY(steps_mutex_) = 0;
  size_t ranks_ LOCKSTEP_GUARDED_BY(steps_mutex_) = 0;
  uint64_t generations_ LOCKSTEP_GUARDED_BY(steps_mutex_) = 0;

  mutable SharedMutex records_mutex_;
  uint64_t next_number_ LOCKSTEP_GUARDED_BY(records_mutex_) = 0;
  Ring<StoredLog> logs_ LOCKSTEP_GUARDED_BY(records_mutex_);
  // Log records of steps are made where somebody asks for them.
  using StoredEvent = std::variant<StoredLog, StepReport>;
  Ring<StoredEvent> events_ LOCKSTEP_GUARDED_BY(records_mutex_);
};

}  // namespace lockstep
