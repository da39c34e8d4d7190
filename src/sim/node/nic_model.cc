#include "sim/node/nic_model.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "sources/nic/nic_metrics.h"

namespace lockstep::sim {
namespace {

using enum Pace;
using enum Part;

constexpr double kPacketBytes = 4200;  // of 4 KiB payload
constexpr double kPlainPacketBytes = 8900;
constexpr std::string_view kPriority = "3";  // of RDMA
constexpr double kPauseFrame = 20e-6;        // seconds that one stands for

// Buses as a board with four PCIe switches numbers them; a second tray is a domain of its own.
std::string pci_of(int32_t index, int32_t offset) {
  return format("%04x:%02x:00.0", static_cast<unsigned>(index / 8),
                static_cast<unsigned>(0x17 + (index % 8) * 0x1a + offset));
}

double generation_transfers(int32_t generation) {
  constexpr double kTransfers[] = {2.5e9, 2.5e9, 5e9, 8e9, 16e9, 32e9};
  return kTransfers[std::clamp(generation, 0, 5)];
}

}  // namespace

std::string nic_device(int32_t index) {
  return format("mlx5_%d", index);
}
std::string nic_interface(int32_t index) {
  return format("ens%dnp0", 10 + index);
}
std::string nic_pci(int32_t index) {
  return pci_of(index, 0);
}
std::string gpu_pci(int32_t index) {
  return pci_of(index, 1);
}
int32_t numa_node(int32_t index, int32_t count) {
  return index * 2 >= count ? 1 : 0;
}

NicModel::NicModel(uint64_t seed, int32_t index, double bytes_per_second)
    : noise_(mixed(seed, static_cast<uint64_t>(index) + 300)), index_(index), bytes_per_second_(bytes_per_second) {
  Noise traits(mixed(seed, static_cast<uint64_t>(index) + 9300));
  marks_ = std::exp(0.7 * traits.gauss());
  stray_ = traits.uniform() < 0.06 ? 20 : 1;      // a path with a little loss that nobody notices
  pauses_ = traits.uniform() < 0.2 ? 1.5 : 0.02;  // where buffers are shared with storage
  bits_ = std::exp(1.2 * traits.gauss()) * (traits.uniform() < 0.03 ? 40 : 1);
  sent_ = received_ = traits.standing(1e14, 5e15);
  packets_sent_ = packets_received_ = std::floor(sent_ / kPacketBytes);
  marked_ = traits.standing(1e4, 1e7);
  notified_ = handled_ = std::floor(0.6 * marked_);
  wait_ = traits.standing(1e6, 1e9);
  out_of_sequence_ = traits.count(40 * stray_);
  sequence_error_ = traits.count(12 * stray_);
  received_bits_ = 8 * received_;
  corrected_bits_ = std::floor(received_bits_ * 1e-9 * bits_);
  corrected_blocks_ = std::floor(corrected_bits_ * 0.7);
  carrier_changes_ = 1 + 2 * traits.count(0.6);
  link_downed_ = (carrier_changes_ - 1) / 2;
  plain_sent_ = plain_received_ = traits.standing(1e7, 1e9);
  plain_packets_sent_ = plain_packets_received_ = std::floor(plain_sent_ / 900);
  pause_frames_received_ = traits.count(1000 * pauses_);
  pause_received_s_ = pause_frames_received_ * kPauseFrame;
  writes_ = std::floor(packets_received_ / 64);
  aer_ = traits.count(0.5);
}

void NicModel::advance(const Moment& moment, const GpuActivity& activity, bool held, const NicEffects& effects) {
  held_ = held;
  tcp_ = effects.tcp;
  rate_ = effects.rate;
  lanes_ = effects.lanes;
  const Carried carried = carry(moment.seconds, activity, effects.down);
  congest(carried, effects);
  lose(carried, effects);
  mend_bits(carried, effects);
  stall_bus(moment.seconds, effects);
}

NicModel::Carried NicModel::carry(double seconds, const GpuActivity& activity, bool down) {
  Carried now{.seconds = seconds};
  const double carried = down ? 0 : 1;  // what it would carry takes another adapter
  const double out_bytes = carried * static_cast<double>(std::max<int64_t>(0, activity.sent_bytes));
  const double in_bytes = carried * static_cast<double>(std::max<int64_t>(0, activity.received_bytes));
  now.rdma_out = tcp_ ? 0 : out_bytes;
  now.rdma_in = tcp_ ? 0 : in_bytes;
  now.packets_out = std::round(now.rdma_out / kPacketBytes);
  now.packets_in = std::round(now.rdma_in / kPacketBytes);
  sent_ += std::round(now.rdma_out * 1.02);
  received_ += std::round(now.rdma_in * 1.02);
  packets_sent_ += now.packets_out;
  packets_received_ += now.packets_in;
  writes_ += std::round(now.packets_in / 64);

  // The interface itself carries little (ARP, LLDP), or everything where the job speaks TCP.
  const double little = 4000 * seconds * (1 + 0.2 * noise_.gauss());
  const double plain_out = little + (tcp_ ? out_bytes * 1.04 : 0);
  now.plain_in = little + (tcp_ ? in_bytes * 1.04 : 0);
  plain_sent_ += std::round(plain_out);
  plain_received_ += std::round(now.plain_in);
  plain_packets_sent_ += std::round(plain_out / (tcp_ ? kPlainPacketBytes : 120));
  plain_packets_received_ += std::round(now.plain_in / (tcp_ ? kPlainPacketBytes : 120));
  return now;
}

// Congestion: any load has some, in bursts.
void NicModel::congest(const Carried& now, const NicEffects& effects) {
  burst_ = 0.7 * burst_ + 0.5 * noise_.gauss();
  const double usual = 1.5e-6 * marks_ * std::exp(burst_);
  marked_ += noise_.count(now.packets_in * std::min(0.2, usual + 6e-4 * effects.marked_received));
  notified_ += noise_.count(now.packets_in * (0.6 * usual + 2.5e-4 * effects.marked_received));
  handled_ += noise_.count(now.packets_out * (0.6 * usual + 4e-4 * effects.marked_sent));
  wait_ += noise_.count(now.packets_out *
                        (0.002 * (1 + 0.3 * std::abs(burst_)) + 0.3 * effects.marked_sent + 1.5 * effects.paused));
  const double pause_rate = now.rdma_out > 0 ? pauses_ : 0.001;
  const double pauses = noise_.count(pause_rate * now.seconds);
  // In a storm the frames come without end; what counts is the time.
  const double storm_in = effects.paused * now.seconds, storm_out = effects.pausing * now.seconds;
  pause_frames_received_ += pauses + std::round(storm_in / kPauseFrame);
  pause_received_s_ += pauses * kPauseFrame + storm_in;
  const double own_pauses = noise_.count(0.2 * pauses_ * now.seconds);
  pause_frames_sent_ += own_pauses + std::round(storm_out / kPauseFrame);
  pause_sent_s_ += own_pauses * kPauseFrame + storm_out;
  storm_warnings_ += noise_.count(effects.pausing * 0.5 * now.seconds);
  passed_threshold_ += noise_.count((0.001 + 5 * effects.pausing) * now.seconds);
  phy_discards_ += noise_.count((effects.pausing > 0.3 ? 20 * effects.pausing : 0) * now.seconds);
}

void NicModel::lose(const Carried& now, const NicEffects& effects) {
  const double lost = 2e-10 * stray_ + effects.lost_per_packet;
  out_of_sequence_ += noise_.count(now.packets_in * (3 * 2e-10 * stray_ + 0.2 * effects.lost_per_packet));
  sequence_error_ += noise_.count(now.packets_out * lost);
  duplicate_ += noise_.count(now.packets_in * 0.2 * lost);
  retransmitted_ += noise_.count(now.packets_out * lost * 2);
  slow_restarts_ += noise_.count((1e-4 + effects.slow_restarts_per_s) * now.seconds * (now.packets_out > 0 ? 1 : 0));
  timeout_ += noise_.count(0.1 * effects.slow_restarts_per_s * now.seconds);
}

// The wire: forward error correction mends what is normal.
void NicModel::mend_bits(const Carried& now, const NicEffects& effects) {
  const double bits_in = 8 * (now.rdma_in + now.plain_in) + 1e6 * now.seconds;
  received_bits_ += std::round(bits_in);
  const double corrected = noise_.count(bits_in * 1e-9 * bits_ * (1 + effects.bit_errors));
  corrected_bits_ += corrected;
  corrected_blocks_ += std::round(0.7 * corrected);
  const double beyond = effects.bit_errors > 100 ? bits_in * 1e-14 * effects.bit_errors : 0;
  const double damaged = noise_.count(beyond);
  uncorrectable_ += damaged;
  pcs_symbols_ += noise_.count(3 * beyond);
  symbol_ += noise_.count(beyond);
  crc_ += noise_.count(beyond);
}

void NicModel::stall_bus(double seconds, const NicEffects& effects) {
  stalled_read_ = std::clamp(0.004 + 0.004 * std::abs(noise_.gauss()) + effects.pci_stalled, 0.0, 1.0);
  stalled_write_ = std::clamp(0.003 + 0.003 * std::abs(noise_.gauss()) + 0.7 * effects.pci_stalled, 0.0, 1.0);
  stalled_read_s_ += stalled_read_ > 0.3 ? std::round(seconds) : 0;
  stalled_write_s_ += stalled_write_ > 0.3 ? std::round(seconds) : 0;
  const double aer = noise_.count((5e-5 + effects.aer_per_s) * seconds);
  aer_ += aer;
  signal_ += effects.aer_per_s > 0 ? aer : 0;
}

void NicModel::flap() {
  up_ = false;
  ++carrier_changes_;
  ++link_downed_;
  timeout_ += held_ ? 12 : 0;
  sequence_error_ += held_ ? 30 : 0;
  retransmitted_ += held_ ? 60 : 0;
  discards_ += held_ ? 25 : 0;
}

void NicModel::come_back() {
  up_ = true;
  ++carrier_changes_;
}

void NicModel::put(NodeReadout& out) const {
  put_port(out);
  put_interface(out);
  const std::string pci = nic_pci(index_);
  out.put(nic_metric("lockstep_pcie_link_width"), {{"pci", pci}}, kSlow, kCore, lanes_);
  out.put(nic_metric("lockstep_pcie_link_width_max"), {{"pci", pci}}, kSlow, kCore, 16);
  out.put(nic_metric("lockstep_pcie_link_speed"), {{"pci", pci}}, kSlow, kRest, generation_transfers(5));
  out.put(nic_metric("lockstep_pcie_link_speed_max"), {{"pci", pci}}, kSlow, kRest, generation_transfers(5));
  out.put(nic_metric("lockstep_pcie_aer_total"), {{"pci", pci}, {"severity", "correctable"}}, kSlow, kCore, aer_);
  out.put(nic_metric("lockstep_pcie_aer_total"), {{"pci", pci}, {"severity", "nonfatal"}}, kSlow, kRest, 0);
  out.put(nic_metric("lockstep_pcie_aer_total"), {{"pci", pci}, {"severity", "fatal"}}, kSlow, kRest, 0);
}

void NicModel::put_port(NodeReadout& out) const {
  const std::string device = nic_device(index_);
  auto port = [&](const MetricDescriptor& metric, Pace pace, Part part, double value) {
    out.put(metric, {{"device", device}, {"port", "1"}}, pace, part, value);
  };
  auto directed = [&](const MetricDescriptor& metric, const char* direction, Part part, double value) {
    out.put(metric, {{"device", device}, {"port", "1"}, {"direction", direction}}, kFast, part, value);
  };
  port(nic_metric("hw.network.up"), kFast, kCore, up_ ? 1 : 0);
  port(nic_metric("hw.network.bandwidth.limit"), kFast, kCore, speed());
  port(nic_metric("lockstep_nic_port_state"), kFast, kRest, up_ ? 4 : 1);
  port(nic_metric("lockstep_nic_port_phys_state"), kFast, kRest, up_ ? 5 : 2);
  directed(nic_metric("hw.network.io"), "transmit", kCore, sent_);
  directed(nic_metric("hw.network.io"), "receive", kCore, received_);
  directed(nic_metric("hw.network.packets"), "transmit", kRest, packets_sent_);
  directed(nic_metric("hw.network.packets"), "receive", kRest, packets_received_);
  port(nic_metric("lockstep_nic_port_xmit_wait_total"), kFast, kCore, wait_);
  port(nic_metric("lockstep_nic_port_xmit_discards_total"), kFast, kCore, discards_);
  port(nic_metric("lockstep_nic_port_rcv_errors_total"), kFast, kRest, crc_);
  port(nic_metric("lockstep_nic_port_rcv_remote_physical_errors_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_symbol_error_total"), kFast, kCore, symbol_);
  port(nic_metric("lockstep_nic_link_error_recovery_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_link_downed_total"), kFast, kCore, link_downed_);
  port(nic_metric("lockstep_nic_local_link_integrity_errors_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_excessive_buffer_overrun_errors_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_port_rcv_switch_relay_errors_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_rx_write_requests_total"), kFast, kRest, writes_);
  port(nic_metric("lockstep_nic_rx_read_requests_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_out_of_buffer_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_out_of_sequence_total"), kFast, kCore, out_of_sequence_);
  port(nic_metric("lockstep_nic_duplicate_request_total"), kFast, kRest, duplicate_);
  port(nic_metric("lockstep_nic_rnr_nak_retry_err_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_packet_seq_err_total"), kFast, kCore, sequence_error_);
  port(nic_metric("lockstep_nic_implied_nak_seq_err_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_local_ack_timeout_err_total"), kFast, kCore, timeout_);
  port(nic_metric("lockstep_nic_rp_cnp_handled_total"), kFast, kCore, handled_);
  port(nic_metric("lockstep_nic_rp_cnp_ignored_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_np_ecn_marked_roce_packets_total"), kFast, kCore, marked_);
  port(nic_metric("lockstep_nic_np_cnp_sent_total"), kFast, kCore, notified_);
  port(nic_metric("lockstep_nic_req_cqe_error_total"), kFast, kRest, flushed_);
  port(nic_metric("lockstep_nic_resp_cqe_error_total"), kFast, kRest, flushed_);
  port(nic_metric("lockstep_nic_req_cqe_flush_error_total"), kFast, kRest, flushed_);
  port(nic_metric("lockstep_nic_resp_cqe_flush_error_total"), kFast, kRest, flushed_);
  port(nic_metric("lockstep_nic_req_transport_retries_exceeded_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_req_rnr_retries_exceeded_total"), kFast, kRest, 0);
  port(nic_metric("lockstep_nic_roce_adp_retrans_total"), kFast, kCore, retransmitted_);
  port(nic_metric("lockstep_nic_roce_adp_retrans_to_total"), kFast, kRest, timeout_);
  port(nic_metric("lockstep_nic_roce_slow_restart_total"), kFast, kCore, slow_restarts_);
  port(nic_metric("lockstep_nic_rx_icrc_encapsulated_total"), kFast, kRest, 0);
  out.put(nic_metric("lockstep_rdma_queue_pairs"), {{"device", device}, {"state", "RTS"}, {"type", "RC"}}, kSlow, kCore,
          held_ && !tcp_ ? 48 : 0);
}

void NicModel::put_interface(NodeReadout& out) const {
  const std::string device = nic_interface(index_);
  auto plain = [&](const MetricDescriptor& metric, Pace pace, Part part, double value) {
    out.put(metric, {{"device", device}}, pace, part, value);
  };
  auto both = [&](const MetricDescriptor& metric, Part part, double received, double sent) {
    out.put(metric, {{"device", device}, {"direction", "receive"}}, kFast, part, received);
    out.put(metric, {{"device", device}, {"direction", "transmit"}}, kFast, part, sent);
  };
  auto by_priority = [&](const MetricDescriptor& metric, const char* direction, Part part, double value) {
    out.put(metric, {{"device", device}, {"priority", kPriority}, {"direction", direction}}, kFast, part, value);
  };
  both(nic_metric("system.network.io"), kCore, plain_received_, plain_sent_);
  both(nic_metric("system.network.packet.count"), kRest, plain_packets_received_, plain_packets_sent_);
  both(nic_metric("system.network.errors"), kRest, crc_, 0);
  both(nic_metric("system.network.packet.dropped"), kRest, 0, 0);
  plain(nic_metric("lockstep_nic_carrier"), kFast, kCore, up_ ? 1 : 0);
  plain(nic_metric("lockstep_nic_carrier_changes_total"), kFast, kCore, carrier_changes_);
  plain(nic_metric("lockstep_nic_speed"), kFast, kCore, up_ ? speed() : kNotRead);
  plain(nic_metric("lockstep_nic_mtu"), kSlow, kRest, 9000);
  by_priority(nic_metric("lockstep_nic_pause_frames_total"), "receive", kCore, pause_frames_received_);
  by_priority(nic_metric("lockstep_nic_pause_frames_total"), "transmit", kCore, pause_frames_sent_);
  by_priority(nic_metric("lockstep_nic_pause_seconds_total"), "receive", kCore, pause_received_s_);
  by_priority(nic_metric("lockstep_nic_pause_seconds_total"), "transmit", kCore, pause_sent_s_);
  by_priority(nic_metric("lockstep_nic_pause_transitions_total"), "receive", kRest,
              std::round(pause_frames_received_ / 2));
  by_priority(nic_metric("lockstep_nic_priority_bytes_total"), "receive", kRest, received_);
  by_priority(nic_metric("lockstep_nic_priority_bytes_total"), "transmit", kRest, sent_);
  out.put(nic_metric("lockstep_nic_pfc_enabled"), {{"device", device}, {"priority", kPriority}}, kSlow, kRest, 1);
  out.put(nic_metric("lockstep_nic_priority_discards_total"),
          {{"device", device}, {"priority", kPriority}, {"reason", "port"}}, kFast, kRest, phy_discards_);
  out.put(nic_metric("lockstep_nic_pause_storm_total"), {{"device", device}, {"severity", "warning"}}, kFast, kCore,
          storm_warnings_);
  out.put(nic_metric("lockstep_nic_pause_storm_total"), {{"device", device}, {"severity", "error"}}, kFast, kRest, 0);
  out.put(nic_metric("lockstep_nic_phy_discards_total"), {{"device", device}, {"direction", "receive"}}, kFast, kRest,
          phy_discards_);
  plain(nic_metric("lockstep_nic_crc_errors_total"), kFast, kCore, crc_);
  plain(nic_metric("lockstep_nic_link_down_events_total"), kFast, kCore, link_downed_);
  plain(nic_metric("lockstep_nic_phy_received_bits_total"), kFast, kRest, received_bits_);
  plain(nic_metric("lockstep_nic_fec_corrected_bits_total"), kFast, kCore, corrected_bits_);
  out.put(nic_metric("lockstep_nic_fec_blocks_total"), {{"device", device}, {"result", "corrected"}}, kFast, kRest,
          corrected_blocks_);
  out.put(nic_metric("lockstep_nic_fec_blocks_total"), {{"device", device}, {"result", "uncorrectable"}}, kFast, kCore,
          uncorrectable_);
  plain(nic_metric("lockstep_nic_pcs_symbol_errors_total"), kFast, kRest, pcs_symbols_);
  plain(nic_metric("lockstep_nic_rx_out_of_buffer_total"), kFast, kRest, 0);
  plain(nic_metric("lockstep_nic_buffer_passed_threshold_total"), kFast, kRest, passed_threshold_);
  out.put(nic_metric("lockstep_nic_pci_stalled_ratio"), {{"device", device}, {"direction", "read"}}, kFast, kCore,
          stalled_read_);
  out.put(nic_metric("lockstep_nic_pci_stalled_ratio"), {{"device", device}, {"direction", "write"}}, kFast, kCore,
          stalled_write_);
  out.put(nic_metric("lockstep_nic_pci_stalled_seconds_total"), {{"device", device}, {"direction", "read"}}, kFast,
          kRest, stalled_read_s_);
  out.put(nic_metric("lockstep_nic_pci_stalled_seconds_total"), {{"device", device}, {"direction", "write"}}, kFast,
          kRest, stalled_write_s_);
  plain(nic_metric("lockstep_nic_pci_buffer_overflow_total"), kFast, kRest, 0);
  out.put(nic_metric("lockstep_nic_pci_signal_integrity_total"), {{"device", device}, {"direction", "receive"}}, kFast,
          kRest, signal_);
  out.put(nic_metric("lockstep_nic_module_events_total"), {{"device", device}, {"event", "high_temp"}}, kFast, kRest,
          0);
}

void NicModel::put_of_gpu(NodeReadout& out, int32_t nics) const {
  out.put(nic_metric("lockstep_nic_info"),
          {{"device", nic_device(index_)},
           {"port", "1"},
           {"netdev", nic_interface(index_)},
           {"pci", nic_pci(index_)},
           {"link_layer", "Ethernet"},
           {"firmware", "28.43.2026"},
           {"numa_node", numa_node(index_, nics) == 0 ? "0" : "1"},
           {"distance", "PIX"}},
          kSlow, kCore, 1, Own::kNicInfo);
  for (int32_t nic = 0; nic < nics; ++nic) {
    const bool same_socket = numa_node(nic, nics) == numa_node(index_, nics);
    out.put(nic_metric("lockstep_gpu_nic_distance"), {{"device", nic_device(nic)}}, kSlow, kRest,
            nic == index_ ? 4
            : same_socket ? 8
                          : 9);
  }
}

void NicModel::put_gpu_device(NodeReadout& out, const GpuModel& gpu) const {
  const std::string pci = gpu_pci(index_);
  const double lost = gpu.lost() ? kNotRead : 0;
  out.put(nic_metric("lockstep_pcie_link_width"), {{"pci", pci}}, kSlow, kCore, gpu.lanes() + lost);
  out.put(nic_metric("lockstep_pcie_link_width_max"), {{"pci", pci}}, kSlow, kCore, 16 + lost);
  out.put(nic_metric("lockstep_pcie_link_speed"), {{"pci", pci}}, kSlow, kCore,
          generation_transfers(gpu.generation()) + lost);
  out.put(nic_metric("lockstep_pcie_link_speed_max"), {{"pci", pci}}, kSlow, kCore, generation_transfers(5) + lost);
  out.put(nic_metric("lockstep_pcie_aer_total"), {{"pci", pci}, {"severity", "correctable"}}, kSlow, kCore,
          gpu.aer_correctable() + lost);
  out.put(nic_metric("lockstep_pcie_aer_total"), {{"pci", pci}, {"severity", "nonfatal"}}, kSlow, kRest, 0 + lost);
  out.put(nic_metric("lockstep_pcie_aer_total"), {{"pci", pci}, {"severity", "fatal"}}, kSlow, kRest, 0 + lost);
}

}  // namespace lockstep::sim
