// Steps: what every rank did in every step, where ranks stand now, and events.
//
// Contract (store/step_store_contract_test.cc runs it against every backing):
//  - what was appended is seen by the next query from any thread;
//  - the same (job, attempt, rank, step) appended again replaces the old row (at-least-once delivery is harmless);
//  - queries answer in a defined order and never more than asked for; what is left out is counted in the answer;
//  - beyond its limits the store drops its oldest rows first and counts them.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/events.h"
#include "model/step.h"
#include "model/step_report.h"
#include "model/telemetry.h"
#include "store/page.h"

namespace lockstep {

struct StepRow {
  Identity identity;
  StepSummary summary;
};

struct RankInfo {
  Identity identity;
  int64_t last_seen_unix_ns = 0;
  StepNumber last_step = kNoStep;
  bool ended = false;
  bool ended_cleanly = false;
  std::optional<RankStatus> status;  // the newest rank.status
  std::vector<CommInit> comms;
  std::vector<CommGroup> groups;  // as the training framework told them, by name
  int64_t records_lost = 0;       // from telemetry.gap and summaries
};

struct JobInfo {
  std::string job_id;
  int64_t attempt = 0;
  int32_t world_size = 0;
  int64_t first_seen_unix_ns = 0;
  int64_t last_seen_unix_ns = 0;
  StepNumber last_step = kNoStep;
  std::vector<RankInfo> ranks;  // by rank
};

struct StoredLog {
  std::shared_ptr<const Attributes> resource;
  LogRecord record;
};

class StepStore {
 public:
  virtual ~StepStore() = default;

  // What is appended from begin_record() to end_record() is of this record of the durable log. For stores that outlive
  // the process: it lets them say after a crash which rows they have already. Records come in the log's order.
  virtual void begin_record(uint64_t /*log_sequence*/, int64_t /*received_unix_ns*/) {}
  virtual void end_record() {}

  // The job's attempt is this one, though a later one is known: rows of that one are hidden, as those of an attempt
  // that is over. Where the attempt is the same already nothing happens.
  virtual void attempt_back(const std::string& job_id, int64_t attempt) = 0;
  virtual void append_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) = 0;
  virtual void append_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) = 0;
  virtual void append_comm(const Identity& identity, const CommInit& comm, int64_t received_unix_ns) = 0;
  virtual void append_group(const Identity& identity, const CommGroup& group, int64_t received_unix_ns) = 0;
  virtual void rank_started(const Identity& identity, int64_t received_unix_ns) = 0;
  virtual void rank_ended(const Identity& identity, bool clean, int64_t received_unix_ns) = 0;
  virtual void rank_lost_records(const Identity& identity, int64_t records) = 0;
  virtual void append_log(std::shared_ptr<const Attributes> resource, LogRecord record) = 0;
  // The record that a step came as.
  virtual void append_step_log(StepReport report) { append_log(resource_of(report), to_record(report)); }

  virtual std::vector<JobInfo> jobs() const = 0;  // newest attempt of each, by job id
  virtual std::optional<JobInfo> job(std::string_view job_id) const = 0;
  // Rows of the newest attempt with from <= step <= to, sorted by (step, rank).
  virtual std::vector<StepRow> steps(std::string_view job_id, StepNumber from_step, StepNumber to_step) const = 0;
  // The same rows in the same order without copying them. visit must be quick and must not call the store: appends
  // wait.
  virtual void visit_steps(std::string_view job_id, StepNumber from_step, StepNumber to_step,
                           const std::function<void(const Identity&, const StepSummary&)>& visit) const = 0;
  virtual Page<StoredLog> logs(std::string_view service, std::string_view event,
                               size_t limit) const = 0;  // empty: any; newest first
  // Records but those that come with every step or while a rank is quiet, newest first, until visit says false: what
  // happened on nodes is among these, and found without walking over steps. visit as for visit_steps().
  virtual void visit_rare_logs(const std::function<bool(const StoredLog&)>& visit) const = 0;
};

}  // namespace lockstep
