// GET /api/graph: what depends on what, who waited for whom and what changed, from a focus outwards.
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
  constexpr int64_t kWindowS = 600, kWindowMaxS = 86'400;
  const Result<int64_t> window_s = int_parameter(request.http, "window", kWindowS, 1, kWindowMaxS);
  if (!window_s.ok()) return error_answer(400, window_s.error());
  fabric::GraphQuestion question{.focus = request.http.parameter("focus"),
                                 .depth = static_cast<uint32_t>(*depth),
                                 .nodes_max = static_cast<size_t>(*limit),
                                 .at_unix_ns = *at};
  if (question.focus.empty())
    return error_answer(400,
                        "focus: a name is needed (job:JOB, rank:JOB/5, host:node-01, leaf:leaf-1, version:driver 570)");
  if (context.fabric == nullptr) return error_answer(404, "this server keeps no topology");
  const fabric::TopologyStore::AsOf as_of = context.fabric->topology.topology_at(*at);
  constexpr size_t kChangesMax = 10'000;
  const int64_t from_unix_ns = *at - std::min(*at, *window_s * 1'000'000'000);
  const fabric::Changes changes =
      fabric::find_changes(context.fabric->topology, context.fabric->versions,
                           {.from_unix_ns = from_unix_ns, .to_unix_ns = *at, .limit = kChangesMax});
  const Result<fabric::Graph> graph =
      fabric::find_graph(*as_of.topology, context.fabric->places, troubles_of(context.diagnosis.verdicts("")), question,
                         {changes.shown, &context.fabric->waits, from_unix_ns});
  if (!graph.ok()) return error_answer(graph.code() == ErrorCode::kNotFound ? 404 : 400, graph.error());
  JsonWriter json;
  json.begin_object().field("at_unix_ns", *at).field("window_s", *window_s).key("nodes").begin_array();
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
    if (edge.at_unix_ns != 0) json.field("at_unix_ns", edge.at_unix_ns);
    json.end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

}  // namespace lockstep
