#include "server/captures/capture_findings.h"

#include <algorithm>
#include <optional>

#include "control/capture_summary.h"
#include "model/profile_finding.h"
#include "wire/otlp.h"

namespace lockstep {

void CaptureKernels::add(const Capture& capture, std::string_view summary) {
  Result<KernelClasses> read = kernel_classes_from_summary_untrusted(summary);
  MutexLock lock(mutex_);
  if (known_.size() >= kKeptMax) known_.clear();
  known_[capture.order.capture] = {capture.summary.traces, read.ok() ? std::move(*read) : KernelClasses{}};
}

KernelClasses CaptureKernels::newest_of(std::string_view job_id) {
  for (const Capture& capture : captures_.of_job(job_id)) {
    if (capture.summary.state != SummaryState::kReady) continue;
    const auto find = [&]() -> std::optional<KernelClasses> {
      MutexLock lock(mutex_);
      const auto known = known_.find(capture.order.capture);
      if (known == known_.end() || known->second.traces != capture.summary.traces) return std::nullopt;
      return known->second.classes;
    };
    std::optional<KernelClasses> classes = find();
    if (!classes) {
      const Result<std::string> summary = read_capture_summary(capture, blobs_);
      if (!summary.ok() && summary.code() != ErrorCode::kNotFound) continue;  // a bucket that does not answer now
      add(capture, summary.ok() ? *summary : "");
      classes = find();
    }
    if (classes && classes->kernel_us > 0) return std::move(*classes);
  }
  return {};
}

Result<void> put_down_finding(const Capture& capture, std::string_view summary, const StepStore& steps,
                              IngestSink& sink, int64_t now_unix_ns) {
  const BlamedRanks blamed =
      LOCKSTEP_TRY(profile_finding_from_summary_untrusted(summary, {.time_unix_ns = now_unix_ns,
                                                                    .capture = capture.order.capture,
                                                                    .first_step = capture.order.start_step,
                                                                    .steps = capture.order.steps}));
  const std::optional<JobInfo> job = steps.job(capture.order.job_id);
  // A job that has been restarted meanwhile is another one to its verdicts.
  if (!job || job->attempt != capture.order.attempt) return {};
  Batch batch{.signal = Signal::kLogs};
  for (const RankInfo& rank : job->ranks) {
    if (std::find(blamed.ranks.begin(), blamed.ranks.end(), rank.identity.rank) == blamed.ranks.end()) continue;
    for (ResourceGroup& group : to_groups({blamed.finding, {rank.identity.rank}}, rank.identity))
      batch.groups.push_back(std::move(group));
  }
  if (batch.groups.empty()) return {};
  const std::string bytes = otlp::encode(batch);
  const AcceptResult taken = sink.accept(Signal::kLogs, std::move(batch), bytes, now_unix_ns);
  if (taken.error != AcceptError::kNone) return Error{taken.message};
  return {};
}

}  // namespace lockstep
