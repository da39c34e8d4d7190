// GET /api/fabric: what the topology has, where file and fabric differ, what changed lately.
// GET /api/fabric/affected: who depends on a component.
#include "fabric/fabric.h"

#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "fabric/graph.h"

namespace lockstep {

HttpResponse get_fabric(const ApiContext& context, const ApiRequest& request) {
  const Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 1000);
  if (!limit.ok()) return error_answer(400, limit.error());
  if (context.fabric == nullptr) return error_answer(404, "this server keeps no topology");
  const fabric::TopologyStore& store = context.fabric->topology;
  const std::shared_ptr<const fabric::Topology> topology = store.topology();
  JsonWriter json;
  json.begin_object().key("nodes").begin_object();
  for (size_t i = 0; i < fabric::kNodeKindCount; ++i) {
    const auto kind = static_cast<fabric::NodeKind>(i);
    if (topology->count(kind) > 0) json.field(to_text(kind), static_cast<uint64_t>(topology->count(kind)));
  }
  json.end_object().field("links", static_cast<uint64_t>(topology->links().size()));
  json.field("bytes", static_cast<uint64_t>(topology->memory_bytes()));
  json.field("forwarding_tables", topology->has_forwarding());
  json.field("reports_refused", store.refused_count());
  json.field("versions_refused", context.fabric->versions.refused_count());
  json.field("waits_left_out", context.fabric->waits.left_out());
  json.key("differences").begin_array();
  size_t shown = 0;
  for (const fabric::Difference& one : topology->differences()) {
    if (shown++ == static_cast<size_t>(*limit)) break;
    json.begin_object().field("kind", to_text(one.kind)).field("subject", one.subject);
    json.field("expected", one.expected).field("seen", one.seen).end_object();
  }
  json.end_array().field("differences_total",
                         static_cast<uint64_t>(topology->differences().size() + topology->differences_left_out()));
  json.key("changes").begin_array();
  for (const fabric::TopologyChange& one : store.changes(static_cast<size_t>(*limit))) {
    json.begin_object().field("time_unix_ns", one.time_unix_ns).field("subject", one.subject);
    json.field("before", one.before).field("after", one.after).end_object();
  }
  json.end_array().field("changes_total", store.change_count()).end_object();
  return json_answer(json);
}

HttpResponse get_affected(const ApiContext& context, const ApiRequest& request) {
  const Result<int64_t> at =
      int_parameter(request.http, "at", context.clock.unix_ns(), 0, std::numeric_limits<int64_t>::max());
  if (!at.ok()) return error_answer(400, at.error());
  const Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 1000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const std::string component = request.http.parameter("component");
  if (component.empty())
    return error_answer(400, "component: a name is needed (host:node-01, leaf:leaf-1, link:leaf-1:Ethernet49)");
  if (context.fabric == nullptr) return error_answer(404, "this server keeps no topology");
  const fabric::TopologyStore::AsOf as_of = context.fabric->topology.topology_at(*at);
  const Result<fabric::Affected> affected =
      fabric::find_affected(*as_of.topology, context.fabric->places, component, *at);
  if (!affected.ok()) return error_answer(affected.code() == ErrorCode::kNotFound ? 404 : 400, affected.error());
  JsonWriter json;
  json.begin_object().field("component", affected->component).field("kind", affected->kind).field("at_unix_ns", *at);
  json.field("gpus", static_cast<uint64_t>(affected->gpus)).field("hosts", static_cast<uint64_t>(affected->hosts));
  json.field("note", affected->note).key("jobs").begin_array();
  size_t shown = 0;
  for (const fabric::AffectedJob& job : affected->jobs) {
    if (shown == static_cast<size_t>(*limit)) break;
    ++shown;
    json.begin_object().field("job_id", job.job).field("ranks_hit", job.ranks_hit).field("ranks", job.ranks);
    write_number(json, "share", job.share);
    json.key("first_ranks").begin_array();
    for (const Rank rank : job.first_ranks) json.number(rank.value());
    json.end_array().end_object();
  }
  return list_answer(json, affected->jobs.size(), shown);
}

}  // namespace lockstep
