// GET /api/fabric/flows: what passed the ports of switches lately, as they reported it, and whose it was.
#include <algorithm>
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "fabric/fabric.h"
#include "fabric/flows/flow_ends.h"
#include "fabric/flows/flow_table.h"

namespace lockstep {
namespace {

constexpr size_t kRanksShown = 16;

void write_end(JsonWriter& json, const char* key, const fabric::Topology& topology, const fabric::FlowEnds& ends,
               const IpAddress& address) {
  const fabric::NodeIndex node = ends.find(address);
  if (node == fabric::kNone) return;
  json.key(key).begin_object().field("kind", to_text(topology.nodes()[node].kind)).field("name", topology.name(node));
  json.key("jobs").begin_array();
  for (const fabric::FlowEnds::JobRanks& job : ends.ranks_behind(node)) {
    json.begin_object().field("job_id", job.job).key("ranks").begin_array();
    for (size_t i = 0; i < std::min(kRanksShown, job.ranks.size()); ++i) json.number(job.ranks[i].value());
    json.end_array().field("ranks_total", static_cast<uint64_t>(job.ranks.size())).end_object();
  }
  json.end_array().end_object();
}

void write_flow(JsonWriter& json, const FlowSighting& flow, const fabric::Topology& topology,
                const fabric::FlowEnds& ends) {
  json.begin_object()
      .field("switch", flow.switch_name)
      .field("in_port", flow.in_port)
      .field("out_port", flow.out_port)
      .field("src", to_text(flow.key.source))
      .field("dst", to_text(flow.key.destination))
      .field("src_port", static_cast<int64_t>(flow.key.source_port))
      .field("dst_port", static_cast<int64_t>(flow.key.destination_port))
      .field("protocol", static_cast<int64_t>(flow.key.protocol));
  write_end(json, "src_end", topology, ends, flow.key.source);
  write_end(json, "dst_end", topology, ends, flow.key.destination);
  json.key("queue_pair");
  flow.key.queue_pair == kNoQueuePair ? json.null() : json.number(static_cast<int64_t>(flow.key.queue_pair));
  json.field("bytes", flow.bytes)
      .field("packets", flow.packets)
      .field("ecn_marked_packets", flow.marked_packets)
      .field("samples", flow.samples)
      .field("vlan", static_cast<int64_t>(flow.vlan))
      .field("dscp", static_cast<int64_t>(flow.traffic_class >> 2))
      .field("first_unix_ns", flow.first_unix_ns)
      .field("last_unix_ns", flow.last_unix_ns)
      .end_object();
}

}  // namespace

HttpResponse get_fabric_flows(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  Result<int64_t> from = int_parameter(request.http, "from", 0, 0, kLargest);
  if (!from.ok()) return error_answer(400, from.error());
  Result<int64_t> to = int_parameter(request.http, "to", kLargest, 0, kLargest);
  if (!to.ok()) return error_answer(400, to.error());
  FlowQuery query;
  query.from_unix_ns = *from;
  query.to_unix_ns = *to;
  query.switch_name = request.http.parameter("switch");
  query.port = request.http.parameter("port");
  for (const char* name : {"src", "dst"}) {
    const std::string text = request.http.parameter(name);
    if (text.empty()) continue;
    const std::optional<IpPrefix> prefix = parse_ip_prefix(text);
    if (!prefix) return error_answer(400, format("%s: an address or a prefix such as 10.0.0.0/8", name));
    (*name == 's' ? query.source : query.destination) = prefix;
  }
  const Result<int64_t> queue_pair = int_parameter(request.http, "queue_pair", kNoQueuePair, 0, kNoQueuePair);
  if (!queue_pair.ok()) return error_answer(400, queue_pair.error());
  query.queue_pair = static_cast<uint32_t>(*queue_pair);
  if (context.fabric == nullptr) return error_answer(404, "this server keeps no topology");
  const std::shared_ptr<const fabric::Topology> topology = context.fabric->topology.topology();
  const fabric::FlowEnds ends(*topology, context.fabric->places, context.clock.unix_ns());
  const std::string job = request.http.parameter("job");
  if (!job.empty() && !ends.has_job(job)) {
    const std::optional<std::string> meant = did_you_mean(job, context.fabric->places.jobs());
    return error_answer(404, format("no job \"%s\"%s", as_one_line(job.substr(0, 100)).c_str(),
                                    meant ? (". Did you mean " + *meant + "?").c_str() : ""));
  }
  if (!job.empty()) query.either_end = ends.addresses_of(job);
  const bool is_joined = job.empty() || !query.either_end.empty();
  // Another tenant sees none: switches are the operator's.
  FlowTable::Found found;
  if (context.flows != nullptr && is_joined) found = context.flows->find(query, static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().field("received", context.flows != nullptr);
  if (!is_joined)
    json.field("note",
               "no address of an adapter of this job is known: no agent reports one, and no topology file has one");
  json.key("flows").begin_array();
  for (const FlowSighting& flow : found.flows) write_flow(json, flow, *topology, ends);
  return list_answer(json, found.total, found.flows.size());
}

}  // namespace lockstep
