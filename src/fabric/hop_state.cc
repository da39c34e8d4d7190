#include "fabric/hop_state.h"

#include <algorithm>

#include "analysis/metric_series.h"
#include "base/median.h"
#include "base/text.h"

namespace lockstep::fabric {
namespace {

constexpr int64_t kRateMs = 60'000;
constexpr int64_t kLookBackMs = 300'000;
constexpr std::string_view kPortPrefix = "lockstep_port_";

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

const char* port_meaning(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kWords[] = {
      {"error", "errors"}, {"discard", "drops"}, {"drop", "drops"},  {"ecn", "ecn"},          {"pause", "pause"},
      {"pfc", "pause"},    {"queue", "queue"},   {"depth", "queue"}, {"optic", "optics"},     {"power", "optics"},
      {"speed", "speed"},  {"octets", "load"},   {"bytes", "load"},  {"utilization", "load"}, {"port_up", "up"}};
  for (const auto& [word, meaning] : kWords)
    if (name.find(word) != std::string_view::npos) return meaning;
  return "other";
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

void HopStates::read(const std::vector<LabelMatcher>& matchers, bool of_switch, std::vector<HopValue>& into) {
  const auto selected =
      metrics_.select(matchers, {.from_ms = at_ms_ - kLookBackMs, .to_ms = at_ms_, .series_max = 5'000});
  if (!selected.ok()) return;
  const MetricSelection& selection = **selected;
  for (size_t i = 0; i < selection.size(); ++i) {
    std::string_view name, direction;
    for (const LabelSymbols& label : selection.labels(i)) {
      const std::string_view key = selection.text(label.name);
      if (key == "__name__") name = selection.text(label.value);
      if (key == "direction" || key == "network_io_direction") direction = selection.text(label.value);
    }
    HopValue value{.metric = std::string(name), .direction = std::string(direction)};
    if (of_switch) {
      if (!name.starts_with(kPortPrefix) || name.ends_with("_info")) continue;
      const auto counter = is_counter_.find(value.metric);
      value.is_rate = counter != is_counter_.end() ? counter->second : name.ends_with("_total");
      value.meaning = port_meaning(name);
    } else {
      const auto row = nic_metrics_.find(value.metric);
      if (row == nic_metrics_.end()) continue;
      value.is_rate = row->second.is_rate;
      value.meaning = row->second.meaning;
    }
    const std::optional<double> read = value_of(selection, i, value.is_rate);
    if (!read) continue;
    value.value = *read;
    const auto same = std::find_if(into.begin(), into.end(), [&](const HopValue& one) {
      return one.metric == value.metric && one.direction == value.direction;
    });
    if (same == into.end())
      into.push_back(std::move(value));
    else
      same->value += value.value;  // priorities, lanes and reasons together
  }
}

std::vector<HopValue> HopStates::read_nic(NodeIndex nic) {
  const Node& node = topology_.nodes()[nic];
  const std::string host(topology_.text(topology_.nodes()[node.parent].name));
  const std::string_view name = topology_.text(node.name);
  const std::string device(name.substr(0, name.find('/'))), netdev(topology_.text(node.more));
  std::vector<HopValue> values;
  read({label_is("host", host), label_is("device", device)}, false, values);
  if (!netdev.empty() && netdev != device) {
    std::vector<HopValue> of_interface;
    read({label_is("host", host), label_is("device", netdev)}, false, of_interface);
    // RDMA's own bytes are the load; the interface's beside them only where there are none.
    const bool has_load =
        std::any_of(values.begin(), values.end(), [](const HopValue& one) { return one.meaning == "load"; });
    for (HopValue& one : of_interface)
      if (!has_load || one.meaning != "load" || one.value > 1e6) values.push_back(std::move(one));
  }
  return values;
}

void HopStates::compare(std::vector<HopValue>& values, const std::vector<std::vector<HopValue>>& others) {
  for (HopValue& value : values) {
    std::vector<double> theirs;
    for (const std::vector<HopValue>& other : others)
      for (const HopValue& one : other)
        if (one.metric == value.metric && one.direction == value.direction) theirs.push_back(one.value);
    if (theirs.empty()) continue;
    value.sibling_count = theirs.size();
    value.siblings = median_of(std::move(theirs));
    value.is_odd = is_odd(value);
  }
}

std::vector<HopValue> HopStates::of_nic(NodeIndex nic) {
  std::vector<HopValue> values = read_nic(nic);
  const std::optional<LinkIndex> uplink = topology_.uplink_of(nic);
  if (!uplink || values.empty()) return values;
  std::vector<std::vector<HopValue>> others;
  const NodeIndex leaf = topology_.other_end(*uplink, nic);
  for (const LinkIndex link : topology_.links_of(leaf)) {
    const NodeIndex other = topology_.other_end(link, leaf);
    if (other == nic || topology_.nodes()[other].kind != NodeKind::kNic) continue;
    others.push_back(read_nic(other));
    if (others.size() == kSiblingsMax) break;
  }
  compare(values, others);
  return values;
}

std::vector<HopValue> HopStates::of_port(LinkIndex link, NodeIndex end) {
  const Link& one = topology_.links()[link];
  const std::string port(topology_.text(one.a == end ? one.port_a : one.port_b));
  std::vector<HopValue> values;
  if (port.empty() || !is_switch(topology_.nodes()[end].kind)) return values;
  read({label_is("switch", std::string(topology_.text(topology_.nodes()[end].name))), label_is("port", port)}, true,
       values);
  return values;
}

}  // namespace lockstep::fabric
