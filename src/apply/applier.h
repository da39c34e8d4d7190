// Turns a decoded batch into appends to the stores and then tells the subscribers. The same code runs when a receiver
// has accepted a batch and when the durable log is replayed, so both give the same stores.
//
// Metrics: subscribers hear of them; they are stored by their own receivers (ingest/otlp/metric_mapping.h), whose store
// has a log
//   of its own.
// Logs: Lockstep's events (model/events.h) become rows; every record is also kept as a log record. A record that has a
//   Lockstep event name and cannot be read as one is counted, and kept as a log record only. With keep_logs() they are on
//   disk too, all but steps, which have a store of their own. Of a job's attempts one
//   counts at a time (job_attempts.h): records of others are held, or refused as old_attempt.
//
// Order: batches are applied one after the other in the order of the calls; the caller keeps log order.
// Thread rule: Thread-safe (one mutex). subscribe() before the first apply().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apply/agent_registry.h"
#include "apply/job_attempts.h"
#include "apply/subscriber.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "model/step_report.h"
#include "model/telemetry.h"
#include "store/logs/columnar_log_store.h"
#include "store/span_store.h"
#include "store/step_store.h"

namespace lockstep {

class Applier {
 public:
  Applier(StepStore& steps, SpanStore& spans, AgentRegistry& agents, Counters& counters)
      : steps_(steps),
        spans_(spans),
        agents_(agents),
        counters_(counters),
        attempts_([this](const std::string& job_id) {
          const std::optional<JobInfo> job = steps_.job(job_id);
          return job ? std::optional<JobAttempts::Known>({job->attempt, job->last_seen_unix_ns}) : std::nullopt;
        }) {}

  // Before the first apply(). Who goes on to keep them outlives this.
  void keep_logs(ColumnarLogStore& logs) { logs_ = &logs; }
  void subscribe(StoreSubscriber& subscriber) { subscribers_.push_back(&subscriber); }
  // log_sequence: of the record of the durable log; 0: of none.
  // False: it failed (out of memory, a fault of ours). It is counted and told in one line with its sequence; what of it
  // was applied stays, the log has all of it, and what comes next is applied.
  bool apply(Signal signal, Batch batch, int64_t received_unix_ns, uint64_t log_sequence = 0);
  // Logs with their steps taken out: the same as the batch they are (model/step_report.h).
  bool apply_logs(LogsRequest request, int64_t received_unix_ns, uint64_t log_sequence = 0);
  // Metrics of which only points that somebody hears were made: `points` is how many there were. Subscribers hear no
  // less of them than of the whole batch.
  bool apply_metrics(Batch heard, int64_t points, int64_t received_unix_ns, uint64_t log_sequence);
  // Whether any subscriber does.
  bool hears_metric(std::string_view name) const;
  // Spans as columns. log_sequence: as for SpanStore::append().
  bool apply_spans(spans::SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence);
  // The last record of the durable log that is in the stores. Records that were passed over need not be told one by
  // one.
  uint64_t applied_through() const { return applied_through_; }
  void set_applied_through(uint64_t log_sequence) { applied_through_ = log_sequence; }

 private:
  void note_agent(const Attributes& resource, int64_t received_unix_ns, int64_t records_lost);
  // What became of a record: how many the sender says were lost; a reason where it was refused; whether it is held.
  struct Applied {
    int64_t records_lost = 0;
    const char* refused = nullptr;
    bool is_held = false;
  };
  // How far a request of logs is. Ranks of one host stand together: its agent is noted once for all of them.
  struct LogProgress {
    int64_t received_unix_ns = 0;
    uint64_t log_sequence = 0;
    int64_t received = 0, passed = 0;  // records
    std::string agent_host;            // whose steps are not noted yet; empty: nobody's
    int64_t agent_lost = 0;
    bool keeps = false;  // what comes is to be kept on disk
    logs::LogColumns kept = {};
  };
  void apply_report(StepReport& report, LogProgress& progress) LOCKSTEP_REQUIRES(mutex_);
  void apply_group(ResourceGroup& group, LogProgress& progress) LOCKSTEP_REQUIRES(mutex_);
  void note_steps_agent(LogProgress& progress);
  // What `apply` says; that it failed, where it throws. One record's failure is not the batch's.
  template <typename Apply>
  Applied contain_record(std::string_view event, const LogProgress& progress, const Apply& apply)
      LOCKSTEP_REQUIRES(mutex_);
  Applied apply_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  // Whether a record of this identity counts now; nullopt: it does.
  template <typename Hold>
  std::optional<Applied> decide(const Identity& identity, int64_t time_unix_ns, int64_t received_unix_ns, bool is_end,
                                const Hold& hold) LOCKSTEP_REQUIRES(mutex_);
  Applied apply_event(const LogRecord& record, const std::shared_ptr<const Attributes>& resource,
                      int64_t received_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  Applied apply_profile_event(const LogRecord& record, const Attributes& resource, int64_t received_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  // Of the attempt that counts.
  void apply_job_start(const Identity& identity, const LogRecord& record, int64_t received_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  Applied apply_job_event(const LogRecord& record, const Identity& identity, int64_t received_unix_ns)
      LOCKSTEP_REQUIRES(mutex_);
  void begin_attempt(const Identity& first) LOCKSTEP_REQUIRES(mutex_);
  void count_log(const char* refused);  // nullptr: passed
  void apply_records(LogsRequest& request, int64_t received_unix_ns, uint64_t log_sequence);
  void apply_points(const Batch& heard, int64_t points, int64_t received_unix_ns);
  bool contain(Signal signal, uint64_t log_sequence, const std::function<void()>& apply);
  // One that throws misses that record; the others hear of it all the same.
  template <typename Call>
  void notify(const Call& call);
  struct OneRecord;
  static constexpr int kFailuresReportedMax = 100;  // the rest are counted

  StepStore& steps_;
  SpanStore& spans_;
  ColumnarLogStore* logs_ = nullptr;  // nullptr: log records are in memory alone
  AgentRegistry& agents_;
  Counters& counters_;
  std::vector<StoreSubscriber*> subscribers_;
  std::atomic<uint64_t> applied_through_{0};
  JobAttempts attempts_ LOCKSTEP_GUARDED_BY(mutex_);
  int failures_reported_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  Mutex mutex_;  // one batch at a time
};

}  // namespace lockstep
