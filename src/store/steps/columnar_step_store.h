// Steps on disk for days: recent ones in memory (MemoryStepStore), and all of them, minutes after they came, in
// immutable files of columnar row groups (step_file.h, docs/formats/step-blocks.md).
//
// Memory and disk overlap: a step is sealed early, so that little depends on the durable log, and leaves memory late, so
//   that questions about recent steps read no files. Jobs, ranks, statuses and logs are memory's; jobs whose steps are
//   on disk alone are known again after a restart, with their ranks and identities.
// Durability: the durable log is the write-ahead log. Files say up to which record of the log all rows are on disk;
//   rows of such a record that is replayed go to memory, for questions, and to no file again.
// Twice: the same row again replaces the old one: in memory at once, on disk by the order of files, and for good when
//   files are put together. A new attempt hides the rows of the old one, which stay on disk as long as others and are
//   seen again where the job goes back to it.
// Limits: days (by the earliest credible time, no faster than RetentionPace), bytes and rows, whole files, oldest first,
//   counted as dropped (retention, limit). While files cannot be written (disk full), rows stay in memory up to its
//   limits; beyond, the oldest are dropped and counted (unsealed). An append waits for the disk, for at most kStallNs,
//   where rows come faster than they can be written.
// On error: sealed/file_store.h.
// Thread rule: Thread-safe. Sealing, putting files together and retention run on a thread of its own. Questions work on
//   immutable files and hold no lock while they read them; a visit calls back under a lock only for rows in memory.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/memory_step_store.h"
#include "store/sealed/file_store.h"
#include "store/steps/step_file.h"
#include "store/steps/step_merge.h"

namespace lockstep {

struct ColumnarStepStoreOptions {
  std::string folder;
  int64_t days = 7;
  uint64_t bytes_max = 32ull << 30;
  uint64_t rows_max = 20'000'000'000;
  MemoryStepStoreOptions memory = {};  // its limits on steps are those of what cannot be written
  // Of what is on disk, memory keeps so much at hand.
  size_t hot_rows_max = 1'000'000;
  size_t hot_bytes_max = 1ull << 30;
  size_t seal_rows = 262'144;             // sealed when there are so many rows that are in no file,
  int64_t seal_age_ns = 120'000'000'000;  // or the first of them came so long ago;
  int64_t settle_ns = 10'000'000'000;     // a step that got no row for so long is likely to be whole
  size_t cache_bytes_max = 64ull << 20;   // of row groups read lately
  const ClockWitness* witness = nullptr;  // which time is credible; nullptr: what the clock says
  bool background = true;  // false: nothing happens but by seal() and maintain(), for tests and benchmarks
};

class ColumnarStepStore final : public StepStore, public sealed::FileStore {
 public:
  static Result<std::unique_ptr<ColumnarStepStore>> open(ColumnarStepStoreOptions options, const Clock& clock,
                                                         Counters& counters);
  // Seals what is in no file.
  ~ColumnarStepStore() override;

  static constexpr int64_t kStallNs = 2'000'000'000;

  void begin_record(uint64_t log_sequence, int64_t received_unix_ns) override;
  void end_record() override;
  // Whether all rows of this record of the log are in files already. Asked while the log is replayed.
  bool holds(uint64_t log_sequence, int64_t received_unix_ns) const;
  // The first record of the log of which a row is in no file yet; UINT64_MAX: there is none.
  uint64_t first_unsealed() const;
  // What comes from now on is new, whatever its sequence.
  void end_replay();

  void attempt_back(const std::string& job_id, int64_t attempt) override;
  void append_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override;
  void append_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) override {
    memory_.append_status(identity, status, received_unix_ns);
  }
  void append_comm(const Identity& identity, const CommInit& comm, int64_t received_unix_ns) override {
    memory_.append_comm(identity, comm, received_unix_ns);
  }
  void append_group(const Identity& identity, const CommGroup& group, int64_t received_unix_ns) override {
    memory_.append_group(identity, group, received_unix_ns);
  }
  void rank_started(const Identity& identity, int64_t received_unix_ns) override {
    memory_.rank_started(identity, received_unix_ns);
  }
  void rank_ended(const Identity& identity, bool clean, int64_t received_unix_ns) override {
    memory_.rank_ended(identity, clean, received_unix_ns);
  }
  void rank_lost_records(const Identity& identity, int64_t records) override {
    memory_.rank_lost_records(identity, records);
  }
  void append_log(std::shared_ptr<const Attributes> resource, LogRecord record) override {
    memory_.append_log(std::move(resource), std::move(record));
  }
  void append_step_log(StepReport report) override { memory_.append_step_log(std::move(report)); }

  std::vector<JobInfo> jobs() const override { return memory_.jobs(); }
  std::optional<JobInfo> job(std::string_view job_id) const override { return memory_.job(job_id); }
  std::vector<StepRow> steps(std::string_view job_id, StepNumber from_step, StepNumber to_step) const override;
  void visit_steps(std::string_view job_id, StepNumber from_step, StepNumber to_step,
                   const std::function<void(const Identity&, const StepSummary&)>& visit) const override;
  Page<StoredLog> logs(std::string_view service, std::string_view event, size_t limit) const override {
    return memory_.logs(service, event, limit);
  }
  void visit_rare_logs(const std::function<bool(const StoredLog&)>& visit) const override {
    memory_.visit_rare_logs(visit);
  }

 private:
  struct PendingStep {  // rows of a step that are in no file
    std::vector<Rank> ranks;
    uint64_t appends = 0;
    int64_t first_ns = 0;
    int64_t last_ns = 0;
    uint64_t first_sequence = 0;
    uint64_t last_sequence = 0;
    columns::Range<int64_t> received_unix_ns;
  };
  struct PendingJob {
    int64_t attempt = 0;
    std::map<StepNumber, PendingStep> steps;
  };
  struct Taken {  // for a file
    std::string job_id;
    int64_t attempt = 0;
    StepNumber step;
    PendingStep rows;
  };
  struct TakenSteps {
    std::vector<Taken> steps;  // by (job, attempt, step)
    uint64_t through_sequence = 0;
    int64_t through_unix_ns = 0;
  };
  struct OnDisk {  // of a job's newest attempt there
    int64_t attempt = 0;
    columns::Range<StepNumber> steps;
  };
  struct Through {  // all rows of records up to this sequence, received by this time, are on disk
    uint64_t sequence;
    int64_t unix_ns;
  };

  ColumnarStepStore(ColumnarStepStoreOptions options, const Clock& clock, Counters& counters);
  // sealed::FileStore
  Result<bool> seal_some(Which which) override;
  sealed::SealWork work() override;
  Result<sealed::FilePointer> open_file(std::string_view name) const override;
  void adopt(sealed::Files& files) override LOCKSTEP_REQUIRES(seal_mutex_, mutex_);
  Result<Joined> join(const sealed::Files& small, uint64_t number) override LOCKSTEP_REQUIRES(seal_mutex_);

  bool restore_jobs(const steps::StepFile& file, std::map<std::string, std::pair<int64_t, size_t>>& known);
  bool seal_is_due() const;
  bool is_too_much() const;  // in no file; more, and memory would have to drop some
  void wait_for_room();
  void notify_room();

  TakenSteps take(Which which);
  // Steps from `from` on, until the file is full; gives the first that is not in it.
  size_t write_steps(const std::vector<Taken>& taken, size_t from, steps::StepWriter& writer, steps::StepFileInfo& info,
                     std::map<const char*, uint64_t>& missing);
  // Likewise, written and taken over.
  Result<size_t> seal_file(const TakenSteps& taken, size_t from) LOCKSTEP_REQUIRES(seal_mutex_);
  void count_ranks_once(std::vector<Taken>& taken);
  void put_back(std::vector<Taken> taken, size_t from);
  // Where a row of this step goes; nullptr: its attempt is over.
  PendingStep* pending_step(const Identity& identity, StepNumber step) LOCKSTEP_REQUIRES(pending_mutex_);
  void note_row(PendingStep& step, Rank rank, bool may_be_there, int64_t received_unix_ns)
      LOCKSTEP_REQUIRES(pending_mutex_);
  void drop_pending(PendingJob& job, const char* reason) LOCKSTEP_REQUIRES(pending_mutex_);
  void note_on_disk(std::string_view job_id, int64_t attempt, StepNumber first, StepNumber last)
      LOCKSTEP_REQUIRES(mutex_);
  bool may_be_on_disk(std::string_view job_id, int64_t attempt, StepNumber step) const;

  std::vector<steps::PartRef> parts_of(const sealed::Files& files, std::string_view job_id, int64_t attempt,
                                       StepNumber from_step, StepNumber to_step) const;

  const ColumnarStepStoreOptions options_;
  std::atomic<int64_t>& received_;
  std::atomic<int64_t>& replaced_;
  std::atomic<int64_t>& unsealed_;
  std::atomic<int64_t>& memory_bytes_;
  mutable MemoryStepStore memory_;  // a question may find out that a step is whole there
  mutable steps::GroupCache cache_;
  std::atomic<bool> record_is_held_{false};
  std::atomic<bool> is_live_{false};
  std::atomic<bool> cannot_write_{false};
  std::atomic<int64_t> coarse_ns_;  // some time ago: asking the clock for every row would cost as much as the rest

  mutable Mutex pending_mutex_;
  std::map<std::string, PendingJob, std::less<>> pending_ LOCKSTEP_GUARDED_BY(pending_mutex_);
  size_t pending_rows_ LOCKSTEP_GUARDED_BY(pending_mutex_) = 0;
  // No pending step is older; there need not be one that is as old.
  mutable int64_t pending_first_ns_ LOCKSTEP_GUARDED_BY(pending_mutex_) = INT64_MAX;
  const std::string* latest_id_ LOCKSTEP_GUARDED_BY(pending_mutex_) =
      nullptr;  // where the last row went; void where latest_step_ is nullptr
  PendingJob* latest_job_ LOCKSTEP_GUARDED_BY(pending_mutex_) = nullptr;
  StepNumber latest_number_ LOCKSTEP_GUARDED_BY(pending_mutex_);
  PendingStep* latest_step_ LOCKSTEP_GUARDED_BY(pending_mutex_) = nullptr;
  uint64_t sealing_first_sequence_ LOCKSTEP_GUARDED_BY(pending_mutex_) =
      UINT64_MAX;                                             // of what was taken for a file that is not there yet
  uint64_t record_ LOCKSTEP_GUARDED_BY(pending_mutex_) = 0;   // being applied
  uint64_t applied_ LOCKSTEP_GUARDED_BY(pending_mutex_) = 0;  // the last that was
  int64_t received_most_unix_ns_ LOCKSTEP_GUARDED_BY(pending_mutex_) = 0;

  std::map<std::string, OnDisk, std::less<>> on_disk_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Through> through_ LOCKSTEP_GUARDED_BY(mutex_);  // of the files found at start

  Mutex room_mutex_;
  ConditionVariable room_;
};

}  // namespace lockstep
