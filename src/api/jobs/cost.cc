// GET /api/jobs/{job}/cost: where the time that a job loses goes; shares, lost GPU-seconds and money that add up.
#include <limits>

#include "analysis/cost/gpu_peak.h"
#include "analysis/cost/loss_account.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"

namespace lockstep {
namespace {

constexpr int64_t kLastDefault = 200;

const char* to_text(LossKind kind) {
  switch (kind) {
    case LossKind::kVerdict:
      return "verdict";
    case LossKind::kReported:
      return "told";
    case LossKind::kStart:
      return "start";
    case LossKind::kUnexplained:
      return "unexplained";
  }
  return "unexplained";
}

// What a step takes, and what it would take if nothing were lost.
void write_baseline(JsonWriter& json, const LossAccount& account) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  write_number(json, "step_ms", account.steps > 0 ? account.step_ms : unknown);
  write_number(json, "baseline_ms", account.baseline_known ? account.baseline_ms : unknown);
  json.key("baseline");
  if (!account.baseline_known) {
    json.null();
    return;
  }
  json.begin_object()
      .field("from_step", account.baseline_from.value())
      .field("to_step", account.baseline_to.value())
      .field("steps", account.baseline_steps)
      .field("priced", account.baseline_priced)
      .end_object();
}

}  // namespace

HttpResponse get_cost(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<int64_t> last = int_parameter(request.http, "last", kLastDefault, 1, kStepsShownMax);
  if (!last.ok()) return error_answer(400, last.error());
  const int64_t steps = steps_within_reach(*job, *last);
  const JobLosses losses = job_losses(context.steps, *job, context.diagnosis.verdicts(request.job),
                                      std::max(0_step, job->last_step - steps + 1), job->last_step);
  const LossAccount& account = losses.account;
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  const std::string gpu = job->ranks.empty() ? "" : job->ranks.front().identity.gpu_uuid;
  const double price =
      context.gpu_prices.of(context.gpu_prices.has_models() ? gpu_model(context.metrics, gpu) : std::string());
  const auto money = [&](double gpu_seconds) { return price > 0 ? gpu_seconds / 3600 * price : unknown; };
  std::vector<double> shares;
  for (const JobLoss& loss : losses.parts) shares.push_back(loss.part.share);
  shares = rounded_shares(std::move(shares));

  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("sentence", sentence_of(losses))
      .field("from_step", account.from_step.value())
      .field("to_step", account.to_step.value())
      .field("steps", account.steps)
      .field("gpus", losses.gpus);
  write_baseline(json, account);
  json.field("lost_share", account.window_ms > 0 ? account.lost_ms / account.window_ms : 0.0);
  const double lost_gpu_seconds = losses.gpu_seconds(account.lost_ms);
  write_number(json, "lost_gpu_seconds", lost_gpu_seconds);
  write_number(json, "lost_money", money(lost_gpu_seconds));
  write_number(json, "gpu_hour_price", price > 0 ? price : unknown);
  json.key("parts").begin_array();
  for (size_t i = 0; i < losses.parts.size(); ++i) {
    const JobLoss& loss = losses.parts[i];
    const double gpu_seconds = losses.gpu_seconds(loss.part.lost_ms);
    json.begin_object().field("kind", to_text(loss.part.kind)).field("name", name_of(loss)).field("share", shares[i]);
    write_number(json, "lost_gpu_seconds", gpu_seconds);
    write_number(json, "lost_money", money(gpu_seconds));
    json.field("steps", loss.part.steps);
    if (loss.part.kind == LossKind::kVerdict) {
      json.field("verdict", loss.verdict.id)
          .field("state", to_text(loss.verdict.state))
          .field("layer", to_text(loss.verdict.culprit.layer))
          .field("cause", to_text(loss.verdict.culprit.cause))
          .field("sentence", loss.verdict.sentence);
    }
    json.end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

}  // namespace lockstep
