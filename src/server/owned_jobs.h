// Stores and diagnosis as the API of an analyzer shows them: without jobs that are another's now. Their rows stay in the
// files, and are there again with the job.
//
// Thread rule: Thread-safe, as what they stand for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "diagnosis/verdict_source.h"
#include "server/tenant.h"
#include "store/step_store.h"

namespace lockstep {

class OwnedStepStore final : public StepStore {
 public:
  // jobs nullptr: all are this process's.
  OwnedStepStore(StepStore& steps, const JobOwnership* jobs) : steps_(steps), jobs_(jobs) {}

  void attempt_back(const std::string& job_id, int64_t attempt) override { steps_.attempt_back(job_id, attempt); }
  void append_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override {
    steps_.append_step(identity, summary, received_unix_ns);
  }
  void append_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) override {
    steps_.append_status(identity, status, received_unix_ns);
  }
  void append_comm(const Identity& identity, const CommInit& comm, int64_t received_unix_ns) override {
    steps_.append_comm(identity, comm, received_unix_ns);
  }
  void append_group(const Identity& identity, const CommGroup& group, int64_t received_unix_ns) override {
    steps_.append_group(identity, group, received_unix_ns);
  }
  void rank_started(const Identity& identity, int64_t received_unix_ns) override {
    steps_.rank_started(identity, received_unix_ns);
  }
  void rank_ended(const Identity& identity, bool clean, int64_t received_unix_ns) override {
    steps_.rank_ended(identity, clean, received_unix_ns);
  }
  void rank_lost_records(const Identity& identity, int64_t records) override {
    steps_.rank_lost_records(identity, records);
  }
  void append_log(std::shared_ptr<const Attributes> resource, LogRecord record) override {
    steps_.append_log(std::move(resource), std::move(record));
  }

  std::vector<JobInfo> jobs() const override {
    std::vector<JobInfo> all = steps_.jobs();
    std::erase_if(all, [this](const JobInfo& job) { return !owns(job.job_id); });
    return all;
  }
  std::optional<JobInfo> job(std::string_view job_id) const override {
    return owns(job_id) ? steps_.job(job_id) : std::nullopt;
  }
  std::vector<StepRow> steps(std::string_view job_id, StepNumber from_step, StepNumber to_step) const override {
    return owns(job_id) ? steps_.steps(job_id, from_step, to_step) : std::vector<StepRow>();
  }
  void visit_steps(std::string_view job_id, StepNumber from_step, StepNumber to_step,
                   const std::function<void(const Identity&, const StepSummary&)>& visit) const override {
    if (owns(job_id)) steps_.visit_steps(job_id, from_step, to_step, visit);
  }
  Page<StoredLog> logs(std::string_view service, std::string_view event, size_t limit) const override {
    return steps_.logs(service, event, limit);
  }
  void visit_rare_logs(const std::function<bool(const StoredLog&)>& visit) const override {
    steps_.visit_rare_logs(visit);
  }

 private:
  bool owns(std::string_view job_id) const { return jobs_ == nullptr || jobs_->owns(job_id); }

  StepStore& steps_;
  const JobOwnership* const jobs_;
};

class OwnedVerdicts final : public VerdictSource {
 public:
  OwnedVerdicts(const VerdictSource& source, const JobOwnership* jobs) : source_(source), jobs_(jobs) {}

  std::vector<Verdict> verdicts(std::string_view job_id) const override {
    std::vector<Verdict> all = source_.verdicts(job_id);
    std::erase_if(all, [this](const Verdict& verdict) { return jobs_ != nullptr && !jobs_->owns(verdict.job_id); });
    return all;
  }
  std::string summary(std::string_view job_id) const override { return source_.summary(job_id); }
  std::vector<EarlyWarning> warnings() const override { return source_.warnings(); }

 private:
  const VerdictSource& source_;
  const JobOwnership* const jobs_;
};

}  // namespace lockstep
