#include "server/captures/capture_findings.h"

#include <algorithm>

#include "base/text.h"
#include "model/capture_results.h"
#include "model/profile_finding.h"
#include "wire/otlp.h"

namespace lockstep {

std::string summary_of(const Capture& capture, BlobStore& blobs) {
  if (capture.summary.state != SummaryState::kReady) return {};
  const Result<std::unique_ptr<BlobReader>> file =
      blobs.open({capture.order.job_id, capture.order.capture, std::string(kSummaryFile)});
  if (!file.ok()) return {};
  Result<std::string> text = (*file)->read(0, std::min<uint64_t>((*file)->bytes(), kSummaryBytesMax));
  return text.ok() ? std::move(*text) : std::string();
}

std::string newest_summary(const Captures& captures, BlobStore& blobs, std::string_view job_id) {
  for (const Capture& capture : captures.of_job(job_id)) {
    std::string text = summary_of(capture, blobs);
    if (!text.empty()) return text;
  }
  return {};
}

Result<void> put_down_finding(const Capture& capture, BlobStore& blobs, const StepStore& steps, IngestSink& sink,
                              int64_t now_unix_ns) {
  const BlamedRanks blamed = LOCKSTEP_TRY(
      profile_finding_from_summary_untrusted(summary_of(capture, blobs), {.time_unix_ns = now_unix_ns,
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
