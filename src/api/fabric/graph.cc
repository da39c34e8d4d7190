// GET /api/graph: what depends on what, from a focus outwards.
#include "fabric/graph.h"

#include <algorithm>
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "fabric/fabric.h"

namespace lockstep {
namespace {

// Culprits of open verdicts, by the graph's names.
fabric::Troubles troubles_of(const std::vector<Verdict>& verdicts) {
  fabric::Troubles troubles;
  for (const Verdict& verdict : verdicts) {
    if (verdict.state == VerdictState::kCleared) continue;
    for (const Rank rank : verdict.culprit.ranks)
      troubles.emplace(format("rank:%s/%d", verdict.job_id.c_str(), rank.value()), verdict.sentence);
    if (!verdict.culprit.host.empty()) troubles.emplace("host:" + verdict.culprit.host, verdict.sentence);
    if (!verdict.culprit.gpu_uuid.empty()) troubles.emplace("gpu:" + verdict.culprit.gpu_uuid, verdict.sentence);
    if (!verdict.culprit.place.empty()) troubles.emplace(verdict.culprit.place, verdict.sentence);
    troubles.emplace("job:" + verdict.job_id, verdict.sentence);
  }
  return troubles;
}

}  // namespace

HttpResponse get_graph(const ApiContext& context, const ApiRequest& request) {
  const Result<int64_t> at =
      int_parameter(request.http, "at", context.clock.unix_ns(), 0, std::numeric_limits<int64_t>::max());
  if (!at.ok()) return error_answer(400, at.error());
  const Result<int64_t> depth = int_parameter(request.http, "depth", 2, 0, fabric::kDepthMax);
  if (!depth.ok()) return error_answer(400, depth.error());
  const Result<int64_t> limit = int_parameter(request.http, "limit", 200, 1, static_cast<int64_t>(fabric::kNodesMax));
  if (!limit.ok()) return error_answer(400, limit.error());
  fabric::GraphQuestion question{.focus = request.http.parameter("focus"),
                                 .depth = static_cast<uint32_t>(*depth),
                                 .nodes_max = static_cast<size_t>(*limit),
                                 .at_unix_ns = *at};
  if (question.focus.empty())
    return error_answer(400, "focus: a name is needed (job:JOB, rank:JOB/5, host:node-01, leaf:leaf-1)");
  if (context.fabric == nullptr) return error_answer(404, "this server keeps no topology");
  const fabric::TopologyStore::AsOf as_of = context.fabric->topology.topology_at(*at);
  const Result<fabric::Graph> graph = fabric::find_graph(*as_of.topology, context.fabric->places,
                                                         troubles_of(context.diagnosis.verdicts("")), question);
  if (!graph.ok()) return error_answer(graph.code() == ErrorCode::kNotFound ? 404 : 400, graph.error());
  JsonWriter json;
  json.begin_object().field("at_unix_ns", *at).key("nodes").begin_array();
  for (const fabric::GraphNode& node : graph->nodes) {
    json.begin_object().field("id", node.id).field("kind", node.kind).field("name", node.name);
    json.field("depth", static_cast<uint64_t>(node.depth));
    if (!node.trouble.empty()) json.field("trouble", node.trouble);
    if (node.left_out > 0) json.field("neighbours_left_out", static_cast<uint64_t>(node.left_out));
    json.end_object();
  }
  json.end_array().key("edges").begin_array();
  for (const fabric::GraphEdge& edge : graph->edges) {
    json.begin_object().field("from", graph->nodes[edge.from].id).field("to", graph->nodes[edge.to].id);
    json.field("kind", edge.kind).field("weight", edge.weight);
    if (!edge.label.empty()) json.field("label", edge.label);
    if (!edge.known.empty()) json.field("known", edge.known);
    json.end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

}  // namespace lockstep
