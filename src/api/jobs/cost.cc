// GET /api/jobs/{job}/cost: where the time that a job loses goes; shares, lost GPU-seconds and money that add up.
#include <functional>
#include <limits>

#include "analysis/cost/loss_account.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"

namespace lockstep {
namespace {

constexpr int64_t kLastDefault = 200;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

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

using CostOf = std::function<GpuCost(double gpu_seconds)>;

double money_of(const GpuCost& cost) {
  return cost.has_price() ? cost.money : kUnknown;
}

void write_baseline(JsonWriter& json, const LossAccount& account) {
  write_number(json, "step_ms", account.steps > 0 ? account.step_ms : kUnknown);
  write_number(json, "baseline_ms", account.baseline_known ? account.baseline_ms : kUnknown);
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

void write_parts(JsonWriter& json, const JobLosses& losses, const CostOf& cost_of) {
  std::vector<double> shares;
  for (const JobLoss& loss : losses.parts) shares.push_back(loss.part.share);
  shares = rounded_shares(std::move(shares));
  json.key("parts").begin_array();
  for (size_t i = 0; i < losses.parts.size(); ++i) {
    const JobLoss& loss = losses.parts[i];
    const double gpu_seconds = losses.gpu_seconds(loss.part.lost_ms);
    json.begin_object().field("kind", to_text(loss.part.kind)).field("name", name_of(loss)).field("share", shares[i]);
    write_number(json, "lost_gpu_seconds", gpu_seconds);
    write_number(json, "lost_money", money_of(cost_of(gpu_seconds)));
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
  json.end_array();
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
  const double lost_gpu_seconds = losses.gpu_seconds(account.lost_ms);
  const CostOf cost_of = [&](double gpu_seconds) {
    return context.pricing == nullptr ? GpuCost() : context.pricing->cost_of(job->job_id, gpu_seconds);
  };
  const GpuCost lost = cost_of(lost_gpu_seconds);

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
  write_number(json, "lost_gpu_seconds", lost_gpu_seconds);
  write_number(json, "lost_money", money_of(lost));
  write_number(json, "gpu_hour_price", lost.has_price() ? lost.price() : kUnknown);
  json.field("money", money_text(lost));
  write_parts(json, losses, cost_of);
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
