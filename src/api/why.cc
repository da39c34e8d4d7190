// GET /api/jobs/{job}/why: the verdicts of a job, where its time goes and, where there is no verdict, why not.
#include <algorithm>
#include <cmath>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/job_view.h"
#include "api/step_window.h"

namespace lockstep {
namespace {

constexpr int64_t kBreakdownSteps = 50;

// Shares of the ranks' time over the last steps; they add up to 1. null where no step is known.
void write_breakdown(JsonWriter& json, const ApiContext& context, const JobInfo& job) {
  double compute = 0, waiting = 0, communication = 0, input = 0, other = 0;
  visit_window(context.steps, job, job.last_step - kBreakdownSteps + 1, job.last_step,
               [&](const StepParts& step, std::span<const StepCell> cells) {
                 double ranks = static_cast<double>(cells.size());
                 compute += step.compute_ms * ranks;
                 waiting += step.waiting_ms * ranks;
                 communication += step.communication_ms * ranks;
                 input += step.input_ms * ranks;
                 other += step.other_ms * ranks;
               });
  double total = compute + waiting + communication + input + other;
  json.key("breakdown");
  if (!(total > 0)) {
    json.null();
    return;
  }
  auto share = [&](double part) { return std::round(part / total * 1e4) / 1e4; };
  double others = share(compute) + share(waiting) + share(communication) + share(input);
  json.begin_object()
      .field("compute", share(compute))
      .field("waiting", share(waiting))
      .field("communication", share(communication))
      .field("input", share(input))
      .field("other", std::round(std::max(0.0, 1 - others) * 1e4) / 1e4)
      .end_object();
}

}  // namespace

HttpResponse get_why(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  JobView view = view_of(context, std::move(*job));
  JsonWriter json;
  json.begin_object().key("job");
  write_job(json, view);
  json.field("health", view.health).field("summary", view.summary).key("verdicts").begin_array();
  for (const VerdictView& verdict : verdicts_of(context, request.job)) json.raw(verdict.json);
  json.end_array();
  write_breakdown(json, context, view.info);
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
