// GET /api/agents: agents heard of.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"

namespace lockstep {

HttpResponse get_agents(const ApiContext& context, const ApiRequest&) {
  std::vector<AgentInfo> agents = context.agents.agents();
  int64_t now = context.clock.unix_ns();
  JsonWriter json;
  json.begin_object().key("agents").begin_array();
  for (const AgentInfo& agent : agents) {
    json.begin_object()
        .field("host", agent.host)
        .field("first_seen_unix_ns", agent.first_seen_unix_ns)
        .field("last_seen_unix_ns", agent.last_seen_unix_ns)
        .field("records_lost", agent.records_lost)
        .field("status", now - agent.last_seen_unix_ns > kSilentAfterNs ? "silent" : "ok")
        .end_object();
  }
  return list_answer(json, agents.size(), agents.size());
}

}  // namespace lockstep
