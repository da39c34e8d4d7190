// GET /api/jobs: every job known, or those that are asked for, worst first.
#include <algorithm>
#include <set>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "api/nodes/node_view.h"

namespace lockstep {
namespace {

// Empty: any. Names match where they contain it, words where they are it.
struct Wanted {
  std::string job, host, user, state, health, cause;
};

bool has_host(const JobInfo& job, const std::string& part) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [&](const RankInfo& rank) { return rank.identity.host.find(part) != std::string::npos; });
}

// By the job alone: what diagnosis says of it costs more to know.
bool fits(const JobInfo& job, const Wanted& wanted, const std::set<std::string>& of_user) {
  if (!wanted.job.empty() && job.job_id.find(wanted.job) == std::string::npos) return false;
  if (!wanted.user.empty() && !of_user.contains(job.job_id)) return false;
  return wanted.host.empty() || has_host(job, wanted.host);
}

bool fits(const JobView& job, const Wanted& wanted) {
  return (wanted.state.empty() || job.state == wanted.state) &&
         (wanted.health.empty() || job.health == wanted.health) && (wanted.cause.empty() || job.cause == wanted.cause);
}

}  // namespace

HttpResponse get_jobs(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> limit = int_parameter(request.http, "limit", 1000, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const auto asked = [&](const char* name) { return request.http.parameter(name); };
  const Wanted wanted{asked("job"), asked("host"), asked("user"), asked("state"), asked("health"), asked("cause")};
  const std::set<std::string> of_user =
      wanted.user.empty() ? std::set<std::string>{} : jobs_of_user(context, wanted.user);
  std::vector<JobView> jobs;
  std::vector<JobInfo> all = context.steps.jobs();
  const size_t known = all.size();
  for (JobInfo& info : all) {
    if (!fits(info, wanted, of_user)) continue;
    JobView view = view_of(context, std::move(info));
    if (fits(view, wanted)) jobs.push_back(std::move(view));
  }
  std::sort(jobs.begin(), jobs.end(), is_worse);
  size_t shown = std::min(jobs.size(), static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().field("known", static_cast<uint64_t>(known)).key("jobs").begin_array();
  for (size_t i = 0; i < shown; ++i) write_job(json, jobs[i]);
  return list_answer(json, jobs.size(), shown);
}

}  // namespace lockstep
