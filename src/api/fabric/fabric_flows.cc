// GET /api/fabric/flows: what passed the ports of switches lately, as they reported it.
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "fabric/flows/flow_table.h"

namespace lockstep {
namespace {

void write_flow(JsonWriter& json, const FlowSighting& flow) {
  json.begin_object()
      .field("switch", flow.switch_name)
      .field("in_port", flow.in_port)
      .field("out_port", flow.out_port)
      .field("src", to_text(flow.key.source))
      .field("dst", to_text(flow.key.destination))
      .field("src_port", static_cast<int64_t>(flow.key.source_port))
      .field("dst_port", static_cast<int64_t>(flow.key.destination_port))
      .field("protocol", static_cast<int64_t>(flow.key.protocol));
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
  // Another tenant sees none: switches are the operator's.
  FlowTable::Found found;
  if (context.flows != nullptr) found = context.flows->find(query, static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().field("received", context.flows != nullptr).key("flows").begin_array();
  for (const FlowSighting& flow : found.flows) write_flow(json, flow);
  return list_answer(json, found.total, found.flows.size());
}

}  // namespace lockstep
