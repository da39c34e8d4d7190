// GET /api/fabric/path: the way from one GPU or rank to another, each hop with how it is known and how it does.
#include "fabric/path.h"

#include <algorithm>
#include <limits>
#include <map>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "fabric/fabric.h"
#include "fabric/hop_state.h"
#include "model/roce.h"

namespace lockstep {
namespace {

using fabric::FabricPath;
using fabric::Hop;
using fabric::HopValue;
using fabric::kNone;
using fabric::NodeIndex;
using fabric::NodeKind;
using fabric::Topology;

// Packets sampled this long before and after count: a flow of a job lasts for hours, and samples are few.
constexpr int64_t kObservedNs = 300'000'000'000;

// "101,102": the numbers of both queue pairs.
Result<uint16_t> source_port_in(const ServerRequest& request) {
  const int64_t given = LOCKSTEP_TRY(int_parameter(request, "source_port", 0, 0, 65535));
  const std::string pairs = request.parameter("qp");
  if (pairs.empty()) return static_cast<uint16_t>(given);
  const std::vector<std::string_view> numbers = split(pairs, ',');
  const std::optional<uint64_t> local = parse_uint(numbers[0]),
                                remote = numbers.size() == 2 ? parse_uint(numbers[1]) : std::nullopt;
  if (!local || !remote || *local > 0xFFFFFF || *remote > 0xFFFFFF)
    return Error{"qp: the numbers of both queue pairs were expected, LOCAL,REMOTE, each up to 16777215"};
  return roce_udp_source_port(static_cast<uint32_t>(*local), static_cast<uint32_t>(*remote));
}

void write_end(JsonWriter& json, const char* key, const Topology& topology, const fabric::PathEnd& end, NodeIndex nic) {
  const fabric::Node& gpu = topology.nodes()[end.gpu];
  json.key(key).begin_object().field("gpu", topology.name(end.gpu)).field("host", topology.name(gpu.parent));
  json.field("index", static_cast<int64_t>(gpu.index));
  if (end.rank != kNoRank) json.field("rank", end.rank.value());
  if (gpu.more != fabric::kNoText) json.field("model", topology.text(gpu.more));
  if (nic != kNone) {
    json.field("nic", topology.name(nic));
    if (topology.nodes()[nic].index >= 0) json.field("rail", static_cast<int64_t>(topology.nodes()[nic].index));
    if (topology.nodes()[nic].address != fabric::kNoText)
      json.field("address", topology.text(topology.nodes()[nic].address));
  }
  json.end_object();
}

void write_values(JsonWriter& json, const char* key, const std::vector<HopValue>& values) {
  if (values.empty()) return;
  json.key(key).begin_array();
  for (const HopValue& one : values) {
    json.begin_object().field("metric", one.metric).field("meaning", one.meaning);
    if (!one.direction.empty()) json.field("direction", one.direction);
    json.field("unit", one.is_rate ? "per second" : "");
    write_number(json, "value", one.value);
    if (one.siblings) {
      write_number(json, "siblings", *one.siblings);
      json.field("sibling_count", static_cast<uint64_t>(one.sibling_count)).field("odd", one.is_odd);
    }
    json.end_object();
  }
  json.end_array();
}

// The states of hops, those of links side by side compared with each other.
class PathStates {
 public:
  PathStates(const ApiContext& context, const Topology& topology, const FabricPath& path, int64_t at_unix_ns)
      : at_(path.hops.size()) {
    std::vector<NodeIndex> nics;
    std::vector<fabric::HopStates::PortEnd> ends;
    std::map<uint32_t, std::vector<size_t>> links;  // hops by position
    for (size_t i = 0; i < path.hops.size(); ++i) {
      const Hop& hop = path.hops[i];
      if (hop.link != kNone) {
        at_[i] = ends.size();
        ends.push_back({hop.link, hop.node});
        ends.push_back({hop.link, topology.other_end(hop.link, hop.node)});
        links[hop.position].push_back(i);
      } else if (topology.nodes()[hop.node].kind == NodeKind::kNic) {
        at_[i] = nics.size();
        nics.push_back(hop.node);
      }
    }
    const fabric::HopStates states(context.metrics, topology, at_unix_ns);
    nics_ = states.of_nics(nics);
    ports_ = states.of_ports(ends);
    for (const auto& [position, hops] : links)
      for (const size_t end : {0, 1}) compare(hops, end);
  }

  void write(JsonWriter& json, const Topology& topology, const FabricPath& path, size_t index) const {
    const Hop& hop = path.hops[index];
    if (hop.link != kNone) {
      write_values(json, "from_state", ports_[at_[index]]);
      write_values(json, "to_state", ports_[at_[index] + 1]);
    } else if (topology.nodes()[hop.node].kind == NodeKind::kNic) {
      write_values(json, "state", nics_[at_[index]]);
    }
  }

 private:
  void compare(const std::vector<size_t>& hops, size_t end) {
    for (const size_t hop : hops) {
      std::vector<const std::vector<HopValue>*> others;
      for (const size_t other : hops)
        if (other != hop) others.push_back(&ports_[at_[other] + end]);
      fabric::HopStates::compare(ports_[at_[hop] + end], others);
    }
  }

  std::vector<size_t> at_;  // by hop: its adapter in nics_, or its first end in ports_
  std::vector<std::vector<HopValue>> nics_, ports_;
};

void write_hop(JsonWriter& json, const Topology& topology, const FabricPath& path, size_t index,
               const PathStates& states) {
  const Hop& hop = path.hops[index];
  json.begin_object().field("position", static_cast<uint64_t>(hop.position));
  uint8_t known = topology.nodes()[hop.node].known;
  if (hop.link == kNone) {
    json.field("kind", to_text(topology.nodes()[hop.node].kind)).field("name", topology.name(hop.node));
  } else {
    const fabric::Link& link = topology.links()[hop.link];
    const NodeIndex to = topology.other_end(hop.link, hop.node);
    known = link.known;
    json.field("kind", "link").field("link", to_text(link.kind));
    json.field("name", topology.port_name(hop.link, hop.node) + " - " + topology.port_name(hop.link, to));
    json.field("from", topology.port_name(hop.link, hop.node)).field("to", topology.port_name(hop.link, to));
    if (*fabric::pcie_distance_text(link.distance) != '\0')
      json.field("distance", fabric::pcie_distance_text(link.distance));
    if (link.gbit_s > 0) json.field("gbit_s", static_cast<double>(link.gbit_s));
  }
  json.field("known", fabric::known_by_text(known)).field("sure", to_text(hop.sure));
  write_number(json, "share", hop.share);
  if (hop.packets > 0) json.field("packets_sampled", hop.packets);
  states.write(json, topology, path, index);
  json.end_object();
}

// "over spine-1 or 3 others": what a person reads first.
std::string sentence_of(const Topology& topology, const FabricPath& path) {
  switch (path.kind) {
    case fabric::PathKind::kSameGpu:
      return "Both are the same GPU.";
    case fabric::PathKind::kNvlink:
      return "Over NVLink, within one domain.";
    case fabric::PathKind::kPcie:
      return "Within one host, over PCIe or its memory.";
    case fabric::PathKind::kUnknown:
      return "The way is not known.";
    case fabric::PathKind::kNetwork:
      break;
  }
  if (path.equal_paths == 0) return "Over the network; part of the way is not known.";
  size_t switches = 0;
  bool is_observed = false, is_routed = false;
  for (const Hop& hop : path.hops) {
    if (hop.link == kNone && fabric::is_switch(topology.nodes()[hop.node].kind) && hop.share > 0.9999) ++switches;
    is_observed |= hop.sure == fabric::Certainty::kObserved;
    is_routed |= hop.sure == fabric::Certainty::kRouted;
  }
  if (is_routed) return format("Over the network, through %zu switches by the subnet manager's tables.", switches);
  if (path.equal_paths == 1 && switches == 1) return "Over the network, through one switch.";
  if (is_observed && path.equal_paths == 1)
    return format("Over the network, through %zu switches, as packets were seen.", switches);
  if (path.equal_paths == 1) return format("Over the network, through %zu switches; there is one way.", switches);
  return format("Over the network, by 1 of %zu equal paths%s.", path.equal_paths,
                is_observed ? " (packets were seen)" : ", not observed");
}

}  // namespace

HttpResponse get_path(const ApiContext& context, const ApiRequest& request) {
  const Result<int64_t> at =
      int_parameter(request.http, "at", context.clock.unix_ns(), 0, std::numeric_limits<int64_t>::max());
  if (!at.ok()) return error_answer(400, at.error());
  const Result<uint16_t> source_port = source_port_in(request.http);
  if (!source_port.ok()) return error_answer(400, source_port.error());
  if (context.fabric == nullptr) return error_answer(404, "this server keeps no topology");
  const fabric::TopologyStore::AsOf as_of = context.fabric->topology.topology_at(*at);
  const Topology& topology = *as_of.topology;
  const std::string job = request.http.parameter("job");
  fabric::PathEnd ends[2];
  for (const auto& [end, key] : {std::pair(&ends[0], "a"), {&ends[1], "b"}}) {
    const std::string text = request.http.parameter(key);
    if (text.empty()) return error_answer(400, format("%s: a rank, HOST:gpuN or a GPU's UUID is needed", key));
    const Result<fabric::PathEnd> found = fabric::find_path_end(topology, context.fabric->places, job, text, *at);
    if (!found.ok()) return error_answer(found.code() == ErrorCode::kNotFound ? 404 : 400, found.error());
    *end = *found;
  }
  fabric::PathQuestion question{.a = ends[0].gpu, .b = ends[1].gpu};
  question.from_unix_ns = std::max<int64_t>(0, *at - kObservedNs);
  question.to_unix_ns = *at > std::numeric_limits<int64_t>::max() - kObservedNs ? *at : *at + kObservedNs;
  if (*source_port != 0)
    question.flow = FlowKey{.source_port = *source_port, .destination_port = kRocePort, .protocol = 17};
  const FabricPath path = fabric::find_path(topology, question, context.fabric->observer);
  const PathStates states(context, topology, path, *at);

  JsonWriter json;
  json.begin_object().field("sentence", sentence_of(topology, path)).field("kind", to_text(path.kind));
  json.field("at_unix_ns", *at);
  if (!job.empty()) json.field("job_id", job);
  write_end(json, "a", topology, ends[0], path.nic_a);
  write_end(json, "b", topology, ends[1], path.nic_b);
  json.field("equal_paths", static_cast<uint64_t>(path.equal_paths));
  if (*source_port != 0) json.field("source_port", static_cast<int64_t>(*source_port));
  json.key("notes").begin_array();
  for (const std::string& note : path.notes) json.string(note);
  if (as_of.is_too_old) json.string("changes of that time are no longer known: this is the oldest topology that is");
  json.end_array().key("hops").begin_array();
  for (size_t i = 0; i < path.hops.size(); ++i) write_hop(json, topology, path, i, states);
  json.end_array().field("hops_left_out", static_cast<uint64_t>(path.hops_left_out)).end_object();
  return json_answer(json);
}

}  // namespace lockstep
