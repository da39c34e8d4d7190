// GET /api/jobs/{job}/comms: the communicators of a job, who is in them and what they are for.
#include <algorithm>

#include "analysis/step/comm_roles.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep {

HttpResponse get_comms(const ApiContext& context, const ApiRequest& request) {
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const Result<int64_t> limit = int_parameter(request.http, "limit", 1000, 1, 100'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const CommRoles roles = comm_roles(context.steps, *job);
  const size_t shown = std::min(roles.all().size(), static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().field("job_id", job->job_id).key("comms").begin_array();
  for (size_t i = 0; i < shown; ++i) {
    const CommRole& role = roles.all()[i];
    std::vector<Rank> members;
    for (Rank rank : role.members) {
      if (rank != kNoRank) members.push_back(rank);
    }
    const size_t unknown = role.members.size() - members.size();
    json.begin_object()
        .field("comm_id", comm_id_text(role.comm_id))
        .field("role", to_text(role.kind))
        .field("name", role.name)
        .field("told", role.reported)
        .field("index", role.index)
        .field("size", role.size)
        .field("ranks", ranks_text(members))
        .field("ranks_unknown", static_cast<uint64_t>(unknown));
    json.key("nodes");
    role.nodes > 0 ? json.number(role.nodes) : json.null();
    json.field("collectives", role.use.collectives)
        .field("collective_bytes", role.use.collective_bytes)
        .field("messages", role.use.messages)
        .end_object();
  }
  return list_answer(json, roles.all().size(), shown);
}

}  // namespace lockstep
