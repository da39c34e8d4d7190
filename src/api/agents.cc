// GET /api/agents: agents heard of, as of now or of a moment.
#include <algorithm>
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"

namespace lockstep {

HttpResponse get_agents(const ApiContext& context, const ApiRequest& request) {
  std::vector<AgentInfo> agents = context.agents.agents();
  Result<int64_t> at =
      int_parameter(request.http, "at", context.clock.unix_ns(), 0, std::numeric_limits<int64_t>::max());
  if (!at.ok()) return error_answer(400, at.error());
  const int64_t now = *at;
  if (const std::string host = request.http.parameter("host"); !host.empty())
    std::erase_if(agents, [&](const AgentInfo& agent) { return agent.host != host; });
  JsonWriter json;
  json.begin_object().key("agents").begin_array();
  for (const AgentInfo& agent : agents) {
    json.begin_object()
        .field("host", agent.host)
        .field("first_seen_unix_ns", agent.first_seen_unix_ns)
        .field("last_seen_unix_ns", agent.last_seen_unix_ns)
        .field("records_lost", agent.records_lost)
        .field("silent_s", static_cast<double>(std::max<int64_t>(0, now - agent.last_seen_unix_ns)) / 1e9)
        .field("status", now - agent.last_seen_unix_ns > kSilentAfterNs ? "silent" : "ok")
        .end_object();
  }
  return list_answer(json, agents.size(), agents.size());
}

}  // namespace lockstep
