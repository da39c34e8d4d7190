#include "fabric/hop_state.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/metric_series.h"
#include "base/median.h"
#include "base/text.h"
#include "fabric/flows/port_series.h"

namespace lockstep::fabric {
namespace {

constexpr int64_t kRateMs = 60'000;
constexpr int64_t kLookBackMs = 300'000;
constexpr std::string_view kPortPrefix = "lockstep_port_";
constexpr uint64_t kSeriesMax = 50'000;

struct NicRow {
  const char* name;
  const char* meaning;
  bool is_rate;
};
constexpr NicRow kNicRows[] = {
    {"hw.network.io", "load", true},
    {"hw.network.bandwidth.limit", "speed", false},
    {"hw.network.up", "up", false},
    {"lockstep_nic_np_ecn_marked_roce_packets_total", "ecn", true},
    {"lockstep_nic_rp_cnp_handled_total", "ecn", true},
    {"lockstep_nic_port_xmit_wait_total", "queue", true},
    {"lockstep_nic_port_xmit_discards_total", "drops", true},
    {"lockstep_nic_symbol_error_total", "errors", true},
    {"lockstep_nic_link_downed_total", "errors", true},
    {"lockstep_nic_out_of_sequence_total", "errors", true},
    {"lockstep_nic_packet_seq_err_total", "errors", true},
    {"lockstep_nic_local_ack_timeout_err_total", "errors", true},
    {"system.network.io", "load", true},
    {"system.network.errors", "errors", true},
    {"system.network.packet.dropped", "drops", true},
    {"lockstep_nic_pause_seconds_total", "pause", true},
    {"lockstep_nic_phy_discards_total", "drops", true},
    {"lockstep_nic_crc_errors_total", "errors", true},
    {"lockstep_nic_fec_corrected_bits_total", "optics", true},
    {"lockstep_nic_module_events_total", "optics", true},
};

const PortMetricRow* port_row(std::string_view name) {
  const auto rows = port_metric_rows();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const PortMetricRow& row) { return name == row.name; });
  return found == rows.end() ? nullptr : &*found;
}

// Of series that others push for their switches.
const char* meaning_by_words(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kWords[] = {
      {"error", "errors"}, {"discard", "drops"}, {"drop", "drops"},  {"ecn", "ecn"},          {"pause", "pause"},
      {"pfc", "pause"},    {"queue", "queue"},   {"depth", "queue"}, {"optic", "optics"},     {"power", "optics"},
      {"speed", "speed"},  {"octets", "load"},   {"bytes", "load"},  {"utilization", "load"}, {"port_up", "up"}};
  for (const auto& [word, meaning] : kWords)
    if (name.find(word) != std::string_view::npos) return meaning;
  return "other";
}

std::string literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view(".*+?()[]{}|^$\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

LabelMatcher label_is_any(std::string name, const std::set<std::string>& patterns) {
  std::string any;
  for (const std::string& one : patterns) any += (any.empty() ? "" : "|") + one;
  return {std::move(name), LabelMatcher::Op::kRegex, std::move(any)};
}

bool is_odd(const HopValue& value) {
  if (!value.siblings || value.sibling_count < 2 || value.meaning == "other") return false;
  if (value.meaning == "up") return value.value < *value.siblings;
  if (value.meaning == "speed") return value.value < 0.9 * *value.siblings;
  if (value.meaning == "load") return *value.siblings > 1e6 && value.value < 0.7 * *value.siblings;
  // A single event in a minute is nobody's oddity.
  return value.value > 3 * *value.siblings && value.value > 2.0 / 60;
}

}  // namespace

HopStates::HopStates(const MetricReader& metrics, const Topology& topology, int64_t at_unix_ns)
    : metrics_(metrics), topology_(topology), at_ms_(at_unix_ns / 1'000'000) {
  const std::vector<MetricMetadata> known = metrics.metadata();
  for (const NicRow& row : kNicRows)
    for (const std::string& stored : stored_names(known, row.name)) nic_metrics_[stored] = {row.meaning, row.is_rate};
  for (const MetricMetadata& one : known)
    if (one.name.starts_with(kPortPrefix)) is_counter_[one.name] = one.type == "counter";
}

std::optional<double> HopStates::value_of(const MetricSelection& selection, size_t series, bool is_rate) const {
  SampleColumns columns;
  if (!selection.samples(series, at_ms_ - kLookBackMs, at_ms_, columns).ok()) return std::nullopt;
  const size_t count = columns.times_ms.size();
  if (count == 0 || is_stale(columns.values[count - 1])) return std::nullopt;
  if (!is_rate) return columns.values[count - 1];
  // What it was a minute ago; else the first that is known since.
  size_t first = 0;
  while (first + 1 < count && columns.times_ms[first + 1] <= at_ms_ - kRateMs) ++first;
  if (is_stale(columns.values[first])) return std::nullopt;
  const int64_t since_ms = std::max(columns.times_ms[first], at_ms_ - kRateMs);
  const int64_t through_ms = columns.times_ms[first] <= at_ms_ - kRateMs ? at_ms_ : columns.times_ms[count - 1];
  if (through_ms - since_ms < 1'000) return std::nullopt;
  double increase = 0;
  for (size_t i = first + 1; i < count; ++i) {
    if (is_stale(columns.values[i]) || is_stale(columns.values[i - 1])) continue;
    const double rise = columns.values[i] - columns.values[i - 1];
    increase += rise >= 0 ? rise : columns.values[i];  // it began again
  }
  return increase * 1000.0 / static_cast<double>(through_ms - since_ms);
}

std::optional<HopValue> HopStates::describe(std::string_view name, std::string_view direction, bool of_switch) const {
  HopValue value{.metric = std::string(name), .direction = std::string(direction)};
  if (direction == "in") value.direction = "receive";
  if (direction == "out") value.direction = "transmit";
  if (!of_switch) {
    const auto row = nic_metrics_.find(value.metric);
    if (row == nic_metrics_.end()) return std::nullopt;
    value.is_rate = row->second.is_rate;
    value.meaning = row->second.meaning;
    return value;
  }
  if (!name.starts_with(kPortPrefix) || name.ends_with("_info")) return std::nullopt;
  const PortMetricRow* const own = port_row(name);
  const auto counter = is_counter_.find(value.metric);
  value.is_rate = counter != is_counter_.end() ? counter->second : name.ends_with("_total");
  value.meaning = own != nullptr ? own->meaning : meaning_by_words(name);
  return value;
}

// By two labels alone: a matcher of names would collect the series of all adapters of the fleet first.
void HopStates::read(const std::vector<LabelMatcher>& matchers, bool of_switch, const Owner& owner) const {
  const auto selected =
      metrics_.select(matchers, {.from_ms = at_ms_ - kLookBackMs, .to_ms = at_ms_, .series_max = kSeriesMax});
  if (!selected.ok()) return;
  const MetricSelection& selection = **selected;
  for (size_t i = 0; i < selection.size(); ++i) {
    std::string_view name, direction, first, second;
    std::vector<std::pair<std::string, std::string>> labels;
    for (const LabelSymbols& label : selection.labels(i)) {
      const std::string_view key = selection.text(label.name);
      if (key == "__name__") name = selection.text(label.value);
      const bool is_direction = key == "direction" || key == "network_io_direction";
      if (is_direction) direction = selection.text(label.value);
      if (key == matchers[0].name) first = selection.text(label.value);
      if (key == matchers[1].name) second = selection.text(label.value);
      if (of_switch && (is_direction || key == matchers[0].name || key == matchers[1].name))
        labels.emplace_back(key, selection.text(label.value));
    }
    Values* const into = owner(first, second);
    std::optional<HopValue> value = into == nullptr ? std::nullopt : describe(name, direction, of_switch);
    const std::optional<double> read = value ? value_of(selection, i, value->is_rate) : std::nullopt;
    if (!read) continue;
    value->value = *read;
    value->labels = std::move(labels);
    const auto same = std::find_if(into->begin(), into->end(), [&](const HopValue& one) {
      return one.metric == value->metric && one.direction == value->direction;
    });
    if (same == into->end())
      into->push_back(std::move(*value));
    else
      same->value += value->value;  // priorities, lanes and reasons together
  }
}

std::vector<HopStates::Values> HopStates::read_nics(std::span<const NodeIndex> nics) const {
  std::set<std::string> hosts, devices;
  std::map<std::pair<std::string, std::string>, Values> read_values;  // by host and device or interface
  auto places_of = [&](NodeIndex nic) {
    const Node& node = topology_.nodes()[nic];
    const std::string host(topology_.text(topology_.nodes()[node.parent].name));
    const std::string_view name = topology_.text(node.name);
    return std::pair(std::pair(host, std::string(name.substr(0, name.find('/')))),
                     std::pair(host, std::string(topology_.text(node.more))));
  };
  for (const NodeIndex nic : nics) {
    const auto [device, interface] = places_of(nic);
    hosts.insert(literal(device.first));
    for (const auto& place : {device, interface}) {
      if (place.second.empty()) continue;
      devices.insert(literal(place.second));
      read_values[place];
    }
  }
  if (nics.empty()) return {};
  read({label_is_any("host", hosts), label_is_any("device", devices)}, false,
       [&](std::string_view host, std::string_view device) -> Values* {
         const auto found = read_values.find({std::string(host), std::string(device)});
         return found == read_values.end() ? nullptr : &found->second;
       });
  std::vector<Values> all;
  for (const NodeIndex nic : nics) {
    const auto [device, interface] = places_of(nic);
    Values values = read_values[device];
    // RDMA's own bytes are the load; the interface's beside them only where there are none.
    const bool has_load =
        std::any_of(values.begin(), values.end(), [](const HopValue& one) { return one.meaning == "load"; });
    if (interface != device && !interface.second.empty())
      for (const HopValue& one : read_values[interface])
        if (!has_load || one.meaning != "load" || one.value > 1e6) values.push_back(one);
    all.push_back(std::move(values));
  }
  return all;
}

void HopStates::compare(Values& values, std::span<const Values* const> others) {
  for (HopValue& value : values) {
    std::vector<double> theirs;
    for (const Values* other : others)
      for (const HopValue& one : *other)
        if (one.metric == value.metric && one.direction == value.direction) theirs.push_back(one.value);
    if (theirs.empty()) continue;
    value.sibling_count = theirs.size();
    value.siblings = median_of(std::move(theirs));
    value.is_odd = is_odd(value);
  }
}

std::vector<NodeIndex> HopStates::siblings_of(NodeIndex nic) const {
  std::vector<NodeIndex> siblings;
  const std::optional<LinkIndex> uplink = topology_.uplink_of(nic);
  if (!uplink) return siblings;
  const NodeIndex leaf = topology_.other_end(*uplink, nic);
  for (const LinkIndex link : topology_.links_of(leaf)) {
    const NodeIndex other = topology_.other_end(link, leaf);
    if (other == nic || topology_.nodes()[other].kind != NodeKind::kNic) continue;
    siblings.push_back(other);
    if (siblings.size() == kSiblingsMax) break;
  }
  return siblings;
}

std::vector<HopStates::Values> HopStates::of_nics(std::span<const NodeIndex> nics) const {
  std::vector<NodeIndex> asked(nics.begin(), nics.end());
  std::vector<std::pair<size_t, size_t>> siblings;  // of each, as a range of `asked`
  for (const NodeIndex nic : nics) {
    const std::vector<NodeIndex> beside = siblings_of(nic);
    siblings.emplace_back(asked.size(), asked.size() + beside.size());
    asked.insert(asked.end(), beside.begin(), beside.end());
  }
  std::vector<Values> all = read_nics(asked);
  for (size_t i = 0; i < nics.size(); ++i) {
    std::vector<const Values*> others;
    for (size_t at = siblings[i].first; at < siblings[i].second; ++at) others.push_back(&all[at]);
    compare(all[i], others);
  }
  all.resize(nics.size());
  return all;
}

std::vector<HopStates::Values> HopStates::of_ports(std::span<const PortEnd> ends) const {
  std::map<std::pair<NodeIndex, std::string>, Values> read_values;
  auto port_of = [&](const PortEnd& end) {
    const Link& link = topology_.links()[end.link];
    return std::string(topology_.text(link.a == end.end ? link.port_a : link.port_b));
  };
  std::map<NodeIndex, std::set<std::string>> ports_of;
  for (const PortEnd& end : ends) {
    if (port_of(end).empty() || !is_switch(topology_.nodes()[end.end].kind)) continue;
    read_values[{end.end, port_of(end)}];
    ports_of[end.end].insert(literal(port_of(end)));
  }
  // Spines are mostly asked for the same ports.
  std::map<std::set<std::string>, std::set<std::string>> switches_of;
  for (const auto& [node, ports] : ports_of) {
    const std::string_view name = topology_.text(topology_.nodes()[node].name), short_name = short_name_of(name);
    switches_of[ports].insert(literal(short_name) + (parse_ip(name) ? "" : "(\\..*)?"));
  }
  std::map<std::string, NodeIndex, std::less<>> nodes;  // by what a series calls them
  for (const auto& [ports, switches] : switches_of)
    read({label_is_any("switch", switches), label_is_any("port", ports)}, true,
         [&](std::string_view name, std::string_view port) -> Values* {
           auto node = nodes.find(name);
           if (node == nodes.end()) node = nodes.emplace(name, topology_.find_switch(name).value_or(kNone)).first;
           const auto found = read_values.find({node->second, std::string(port)});
           return found == read_values.end() ? nullptr : &found->second;
         });
  std::vector<Values> all;
  for (const PortEnd& end : ends) {
    const auto found = read_values.find({end.end, port_of(end)});
    all.push_back(found == read_values.end() ? Values{} : found->second);
    // What is counted is better than what is estimated from flows.
    const bool is_counted = std::any_of(all.back().begin(), all.back().end(),
                                        [](const HopValue& one) { return one.metric == "lockstep_port_bytes_total"; });
    if (is_counted)
      std::erase_if(all.back(), [](const HopValue& one) { return one.metric == "lockstep_port_flow_bytes_total"; });
  }
  return all;
}

}  // namespace lockstep::fabric
