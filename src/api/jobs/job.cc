// GET /api/jobs/{job}: one job.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"

namespace lockstep {

HttpResponse get_job(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  JsonWriter json;
  write_job(json, view_of(context, std::move(*job)));
  return json_answer(json);
}

}  // namespace lockstep
