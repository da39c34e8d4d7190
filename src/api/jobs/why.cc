// GET /api/jobs/{job}/why: the verdicts of a job, where its time goes and, where there is no verdict, why not.
#include <vector>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "api/jobs/step_window.h"
#include "api/warnings.h"

namespace lockstep {
namespace {

constexpr int64_t kBreakdownSteps = 50;

// Shares of the ranks' time over the last steps; they add up to 1. null where no step is known.
void write_breakdown(JsonWriter& json, const ApiContext& context, const JobInfo& job) {
  struct Part {
    const char* name;
    double StepParts::*in_step;
    double sum_ms = 0;
  };
  Part parts[] = {{"compute", &StepParts::compute_ms},
                  {"waiting", &StepParts::waiting_ms},
                  {"communication", &StepParts::communication_ms},
                  {"input", &StepParts::input_ms},
                  {"host", &StepParts::host_ms},
                  {"checkpoint", &StepParts::checkpoint_ms},
                  {"idle", &StepParts::idle_ms},
                  {"other", &StepParts::other_ms}};
  double total = 0;
  const int64_t steps = steps_within(job, kBreakdownSteps, kWordRowsMax);
  visit_window(context.steps, job, job.last_step - steps + 1, job.last_step,
               [&](const StepParts& step, std::span<const StepCell> cells) {
                 for (Part& part : parts) {
                   part.sum_ms += step.*part.in_step * static_cast<double>(cells.size());
                   total += step.*part.in_step * static_cast<double>(cells.size());
                 }
               });
  json.key("breakdown");
  if (!(total > 0)) {
    json.null();
    return;
  }
  std::vector<double> shares;
  for (const Part& part : parts) shares.push_back(part.sum_ms / total);
  shares = rounded_shares(std::move(shares));
  json.begin_object();
  for (size_t i = 0; i < shares.size(); ++i) json.field(parts[i].name, shares[i]);
  json.end_object();
  // Several ranks, and none reports any: then what they wait for each other is in compute.
  const double communication_ms = parts[1].sum_ms + parts[2].sum_ms;
  json.field("communication_seen", job.ranks.size() < 2 || communication_ms > 0);
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
  VerdictFiles files(context);
  for (const VerdictView& verdict : verdicts_of(context, request.job))
    json.raw(with_incident(context, verdict.id, files.added_to(shown_json(context, verdict))));
  json.end_array().key("warnings").begin_array();
  for (const WarningView& warning : warnings_of(context, request.job, false)) write_warning(json, warning);
  json.end_array();
  write_breakdown(json, context, view.info);
  write_answers(json, context, view.info);
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
