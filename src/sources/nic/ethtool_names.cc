#include "sources/nic/ethtool_names.h"

#include "sources/nic/nic_metrics.h"

namespace lockstep {

namespace {

struct Row {
  std::string_view name;  // '#' stands for one digit: the priority or the lane
  const MetricDescriptor* metric;
  double scale = 1;
  const char* key = nullptr;  // a label and its value
  const char* value = nullptr;
};

constexpr const MetricDescriptor* kFrames = &nic_metric("lockstep_nic_pause_frames_total");
constexpr const MetricDescriptor* kSeconds = &nic_metric("lockstep_nic_pause_seconds_total");
constexpr const MetricDescriptor* kTransitions = &nic_metric("lockstep_nic_pause_transitions_total");
constexpr const MetricDescriptor* kPriorityBytes = &nic_metric("lockstep_nic_priority_bytes_total");
constexpr const MetricDescriptor* kPriorityDiscards = &nic_metric("lockstep_nic_priority_discards_total");
constexpr const MetricDescriptor* kDiscards = &nic_metric("lockstep_nic_phy_discards_total");
constexpr const MetricDescriptor* kStalled = &nic_metric("lockstep_nic_pci_stalled_ratio");
constexpr const MetricDescriptor* kStalledSeconds = &nic_metric("lockstep_nic_pci_stalled_seconds_total");
constexpr const MetricDescriptor* kSignal = &nic_metric("lockstep_nic_pci_signal_integrity_total");
constexpr const MetricDescriptor* kModule = &nic_metric("lockstep_nic_module_events_total");
constexpr double kMicroseconds = 1e-6;

constexpr Row kRows[] = {
    // mlx5, by priority
    {"rx_prio#_pause", kFrames, 1, "direction", "receive"},
    {"tx_prio#_pause", kFrames, 1, "direction", "transmit"},
    {"rx_prio#_pause_duration", kSeconds, kMicroseconds, "direction", "receive"},
    {"tx_prio#_pause_duration", kSeconds, kMicroseconds, "direction", "transmit"},
    {"rx_prio#_pause_transition", kTransitions, 1, "direction", "receive"},
    {"tx_prio#_pause_transition", kTransitions, 1, "direction", "transmit"},
    {"rx_prio#_bytes", kPriorityBytes, 1, "direction", "receive"},
    {"tx_prio#_bytes", kPriorityBytes, 1, "direction", "transmit"},
    {"rx_prio#_discards", kPriorityDiscards, 1, "reason", "port"},
    {"rx_prio#_buf_discard", kPriorityDiscards, 1, "reason", "buffer"},
    {"rx_prio#_cong_discard", kPriorityDiscards, 1, "reason", "congestion"},
    {"rx_prio#_marked", &nic_metric("lockstep_nic_priority_marked_total")},
    // mlx5, global pause (without priority flow control)
    {"rx_global_pause", kFrames, 1, "direction", "receive"},
    {"tx_global_pause", kFrames, 1, "direction", "transmit"},
    {"rx_global_pause_duration", kSeconds, kMicroseconds, "direction", "receive"},
    {"tx_global_pause_duration", kSeconds, kMicroseconds, "direction", "transmit"},
    {"rx_global_pause_transition", kTransitions, 1, "direction", "receive"},
    {"tx_global_pause_transition", kTransitions, 1, "direction", "transmit"},
    // bnxt_en
    {"rx_pfc_ena_frames_pri#", kFrames, 1, "direction", "receive"},
    {"tx_pfc_ena_frames_pri#", kFrames, 1, "direction", "transmit"},
    {"pfc_pri#_rx_duration_us", kSeconds, kMicroseconds, "direction", "receive"},
    {"pfc_pri#_tx_duration_us", kSeconds, kMicroseconds, "direction", "transmit"},
    {"pfc_pri#_rx_transitions", kTransitions, 1, "direction", "receive"},
    {"pfc_pri#_tx_transitions", kTransitions, 1, "direction", "transmit"},
    {"rx_bytes_pri#", kPriorityBytes, 1, "direction", "receive"},
    {"tx_bytes_pri#", kPriorityBytes, 1, "direction", "transmit"},
    // ice: a frame that stops and one that lets go are counted apart
    {"rx_priority_#_xoff.nic", kFrames, 1, "direction", "receive"},
    {"tx_priority_#_xoff.nic", kFrames, 1, "direction", "transmit"},
    // mlx5, the port
    {"tx_pause_storm_warning_events", &nic_metric("lockstep_nic_pause_storm_total"), 1, "severity", "warning"},
    {"tx_pause_storm_error_events", &nic_metric("lockstep_nic_pause_storm_total"), 1, "severity", "error"},
    {"rx_discards_phy", kDiscards, 1, "direction", "receive"},
    {"tx_discards_phy", kDiscards, 1, "direction", "transmit"},
    {"rx_crc_errors_phy", &nic_metric("lockstep_nic_crc_errors_total")},
    {"link_down_events_phy", &nic_metric("lockstep_nic_link_down_events_total")},
    {"rx_bits_phy", &nic_metric("lockstep_nic_phy_received_bits_total")},
    {"rx_corrected_bits_phy", &nic_metric("lockstep_nic_fec_corrected_bits_total")},
    {"rx_pcs_symbol_err_phy", &nic_metric("lockstep_nic_pcs_symbol_errors_total")},
    {"rx_err_lane_#_phy", &nic_metric("lockstep_nic_lane_errors_total")},
    {"rx_out_of_buffer", &nic_metric("lockstep_nic_rx_out_of_buffer_total")},
    {"rx_buffer_passed_thres_phy", &nic_metric("lockstep_nic_buffer_passed_threshold_total")},
    {"outbound_pci_stalled_rd", kStalled, 0.01, "direction", "read"},
    {"outbound_pci_stalled_wr", kStalled, 0.01, "direction", "write"},
    {"outbound_pci_stalled_rd_events", kStalledSeconds, 1, "direction", "read"},
    {"outbound_pci_stalled_wr_events", kStalledSeconds, 1, "direction", "write"},
    {"outbound_pci_buffer_overflow", &nic_metric("lockstep_nic_pci_buffer_overflow_total")},
    {"rx_pci_signal_integrity", kSignal, 1, "direction", "receive"},
    {"tx_pci_signal_integrity", kSignal, 1, "direction", "transmit"},
    {"module_high_temp", kModule, 1, "event", "high_temp"},
    {"module_bus_stuck", kModule, 1, "event", "bus_stuck"},
    {"module_bad_shorted", kModule, 1, "event", "bad_shorted"},
    {"module_unplug", kModule, 1, "event", "unplug"},
};

// The digit that '#' stands for; -1: matches and has none; -2: does not match.
int match(std::string_view pattern, std::string_view name) {
  if (pattern.size() != name.size()) return -2;
  size_t digit = pattern.find('#');
  if (digit == std::string_view::npos) return pattern == name ? -1 : -2;
  if (pattern.substr(0, digit) != name.substr(0, digit) || pattern.substr(digit + 1) != name.substr(digit + 1))
    return -2;
  return name[digit] >= '0' && name[digit] <= '7' ? name[digit] - '0' : -2;
}

}  // namespace

std::optional<EthtoolMeaning> ethtool_meaning(std::string_view statistic) {
  for (const Row& row : kRows) {
    const int digit = match(row.name, statistic);
    if (digit == -2) continue;
    EthtoolMeaning meaning;
    meaning.metric = row.metric;
    meaning.scale = row.scale;
    if (row.metric == &nic_metric("lockstep_nic_lane_errors_total")) {
      meaning.labels.emplace_back("lane", std::to_string(digit));
    } else if (digit >= 0) {
      meaning.labels.emplace_back("priority", std::to_string(digit));
      meaning.priority = digit;
    } else if (row.metric == kFrames || row.metric == kSeconds || row.metric == kTransitions) {
      meaning.labels.emplace_back("priority", "global");
    }
    if (row.key) meaning.labels.emplace_back(row.key, row.value);
    return meaning;
  }
  return std::nullopt;
}

}  // namespace lockstep
