// GET /api/jobs: every job known, worst first.
#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"

namespace lockstep {

HttpResponse get_jobs(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> limit = int_parameter(request.http, "limit", 1000, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  std::vector<JobView> jobs;
  for (JobInfo& info : context.steps.jobs()) jobs.push_back(view_of(context, std::move(info)));
  std::sort(jobs.begin(), jobs.end(), is_worse);
  size_t shown = std::min(jobs.size(), static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().key("jobs").begin_array();
  for (size_t i = 0; i < shown; ++i) write_job(json, jobs[i]);
  return list_answer(json, jobs.size(), shown);
}

}  // namespace lockstep
