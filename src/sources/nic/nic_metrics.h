// What is published about network ports, their links, and the PCIe devices behind them, one row each.
//
// A name of the form lockstep_nic_X_total is the counter X as the driver calls it (out_of_sequence, np_cnp_sent, …), so
// that whoever knows the counter knows the metric; `device` is then the RDMA device and `port` its port. Rows with
// `device` alone are about a network interface. What has no row here goes to lockstep_nic_counter_total.
//
// Thread rule: Immutable.
#pragma once

#include <string_view>

#include "model/metric_descriptor.h"

namespace lockstep {

inline constexpr MetricDescriptor kNicMetrics[] = {
    // RDMA ports: what they are and how they stand.
    {"lockstep_nic_info", "1", MetricKind::kGauge,
     "device, port, netdev, pci, link_layer, firmware, numa_node, gpu_uuid, distance, leaf, leaf_port, address",
     "Always 1: joins a port with its interface, its nearest GPU, the switch port that LLDP names and its address."},
    {"hw.network.up", "1", MetricKind::kGauge, "device, port",
     "1: the RDMA port is ACTIVE. Not reported where the driver always says so and no interface shows the truth."},
    {"hw.network.bandwidth.limit", "By/s", MetricKind::kGauge, "device, port", "Rate that the RDMA port trained to."},
    {"lockstep_nic_port_state", "1", MetricKind::kGauge, "device, port",
     "1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE, 5 ACTIVE_DEFER."},
    {"lockstep_nic_port_phys_state", "1", MetricKind::kGauge, "device, port",
     "1 Sleep, 2 Polling, 3 Disabled, 4 PortConfigurationTraining, 5 LinkUp, 6 LinkErrorRecovery, 7 Phy Test."},

    // counters/ of an RDMA port.
    {"hw.network.io", "By", MetricKind::kSum, "device, port, direction", "RDMA bytes: transmit, receive."},
    {"hw.network.packets", "{packet}", MetricKind::kSum, "device, port, direction", "RDMA packets: transmit, receive."},
    {"lockstep_nic_port_xmit_wait_total", "1", MetricKind::kSum, "device, port",
     "Ticks in which there was something to send and no credit: congestion on InfiniBand."},
    {"lockstep_nic_port_xmit_discards_total", "1", MetricKind::kSum, "device, port",
     "Dropped on the way out: port down or congested."},
    {"lockstep_nic_port_rcv_errors_total", "1", MetricKind::kSum, "device, port",
     "Packets that arrived with an error."},
    {"lockstep_nic_port_rcv_remote_physical_errors_total", "1", MetricKind::kSum, "device, port",
     "Packets that were already marked bad upstream."},
    {"lockstep_nic_symbol_error_total", "1", MetricKind::kSum, "device, port", "Symbol errors on the wire."},
    {"lockstep_nic_link_error_recovery_total", "1", MetricKind::kSum, "device, port", "Successful retrains."},
    {"lockstep_nic_link_downed_total", "1", MetricKind::kSum, "device, port", "Failed retrains: the link went down."},
    {"lockstep_nic_local_link_integrity_errors_total", "1", MetricKind::kSum, "device, port",
     "Local physical errors beyond the threshold."},
    {"lockstep_nic_excessive_buffer_overrun_errors_total", "1", MetricKind::kSum, "device, port",
     "Buffer overruns: the lossless contract was broken."},
    {"lockstep_nic_port_rcv_switch_relay_errors_total", "1", MetricKind::kSum, "device, port",
     "Packets that a switch could not forward."},

    // hw_counters/ of an RDMA port.
    {"lockstep_nic_rx_write_requests_total", "1", MetricKind::kSum, "device, port", "RDMA writes received."},
    {"lockstep_nic_rx_read_requests_total", "1", MetricKind::kSum, "device, port", "RDMA reads received."},
    {"lockstep_nic_out_of_buffer_total", "1", MetricKind::kSum, "device, port",
     "Receiver: no receive request was posted; a slow consumer."},
    {"lockstep_nic_out_of_sequence_total", "1", MetricKind::kSum, "device, port",
     "Receiver: packets out of sequence; loss, or adaptive routing."},
    {"lockstep_nic_duplicate_request_total", "1", MetricKind::kSum, "device, port",
     "Receiver: requests seen twice; the peer sent again."},
    {"lockstep_nic_rnr_nak_retry_err_total", "1", MetricKind::kSum, "device, port",
     "Sender: the peer had no receive buffer."},
    {"lockstep_nic_packet_seq_err_total", "1", MetricKind::kSum, "device, port",
     "Sender: the peer missed packets of ours; they were lost."},
    {"lockstep_nic_implied_nak_seq_err_total", "1", MetricKind::kSum, "device, port",
     "Sender: an answer skipped one of our requests; implied loss."},
    {"lockstep_nic_local_ack_timeout_err_total", "1", MetricKind::kSum, "device, port",
     "Sender: no answer in time; a black hole or severe congestion."},
    {"lockstep_nic_rp_cnp_handled_total", "1", MetricKind::kSum, "device, port",
     "Sender: congestion notifications that throttled us."},
    {"lockstep_nic_rp_cnp_ignored_total", "1", MetricKind::kSum, "device, port",
     "Sender: congestion notifications that were ignored."},
    {"lockstep_nic_np_ecn_marked_roce_packets_total", "1", MetricKind::kSum, "device, port",
     "Receiver: packets marked on their way; congestion on the path to us."},
    {"lockstep_nic_np_cnp_sent_total", "1", MetricKind::kSum, "device, port",
     "Receiver: congestion notifications that we sent back."},
    {"lockstep_nic_req_cqe_error_total", "1", MetricKind::kSum, "device, port",
     "Sender: requests that completed with an error."},
    {"lockstep_nic_resp_cqe_error_total", "1", MetricKind::kSum, "device, port",
     "Receiver: requests that completed with an error."},
    {"lockstep_nic_req_cqe_flush_error_total", "1", MetricKind::kSum, "device, port",
     "Sender: requests flushed; normal when a connection ends."},
    {"lockstep_nic_resp_cqe_flush_error_total", "1", MetricKind::kSum, "device, port",
     "Receiver: requests flushed; normal when a connection ends."},
    {"lockstep_nic_req_transport_retries_exceeded_total", "1", MetricKind::kSum, "device, port",
     "Sender: gave up after all retries; the connection died and NCCL fails."},
    {"lockstep_nic_req_rnr_retries_exceeded_total", "1", MetricKind::kSum, "device, port",
     "Sender: gave up on a peer without buffers; the connection died and NCCL fails."},
    {"lockstep_nic_roce_adp_retrans_total", "1", MetricKind::kSum, "device, port", "Sender: adaptive retransmissions."},
    {"lockstep_nic_roce_adp_retrans_to_total", "1", MetricKind::kSum, "device, port",
     "Sender: timeouts of adaptive retransmission."},
    {"lockstep_nic_roce_slow_restart_total", "1", MetricKind::kSum, "device, port", "Sender: slow restarts."},
    {"lockstep_nic_rx_icrc_encapsulated_total", "1", MetricKind::kSum, "device, port",
     "Receiver: corrupt behind a valid Ethernet checksum; a bad switch, cable or host."},
    {"lockstep_nic_counter_total", "1", MetricKind::kSum, "device, port, counter",
     "Any other counter that the driver offers, by its own name; port 0 is the device itself."},

    // Network interfaces.
    {"system.network.io", "By", MetricKind::kSum, "device, direction", "Bytes of an interface: transmit, receive."},
    {"system.network.packet.count", "{packet}", MetricKind::kSum, "device, direction", "Packets of an interface."},
    {"system.network.errors", "{error}", MetricKind::kSum, "device, direction", "Errors of an interface."},
    {"system.network.packet.dropped", "{packet}", MetricKind::kSum, "device, direction",
     "Packets dropped without error."},
    {"lockstep_nic_carrier", "1", MetricKind::kGauge, "device", "1: the interface has a link."},
    {"lockstep_nic_carrier_changes_total", "1", MetricKind::kSum, "device", "Times the link came or went."},
    {"lockstep_nic_speed", "By/s", MetricKind::kGauge, "device", "Speed of the link; not reported without a link."},
    {"lockstep_nic_mtu", "By", MetricKind::kGauge, "device", "MTU of the interface."},

    // ethtool statistics of an interface.
    {"lockstep_nic_pause_frames_total", "1", MetricKind::kSum, "device, priority, direction",
     "Pause frames. receive: the fabric stopped us; transmit: we stopped the switch. Priority 0-7, or global."},
    {"lockstep_nic_pause_seconds_total", "s", MetricKind::kSum, "device, priority, direction",
     "Time paused. receive: our sending stood still; transmit: the switch had to stop for us."},
    {"lockstep_nic_pause_transitions_total", "1", MetricKind::kSum, "device, priority, direction",
     "Changes from running to paused."},
    {"lockstep_nic_pfc_enabled", "1", MetricKind::kGauge, "device, priority",
     "1: priority flow control is on for this priority."},
    {"lockstep_nic_priority_bytes_total", "By", MetricKind::kSum, "device, priority, direction",
     "Bytes by priority, for those that are in use."},
    {"lockstep_nic_priority_discards_total", "1", MetricKind::kSum, "device, priority, reason",
     "Received and dropped, by priority and reason: port, buffer, congestion."},
    {"lockstep_nic_priority_marked_total", "1", MetricKind::kSum, "device, priority",
     "Packets that this adapter marked as having met congestion."},
    {"lockstep_nic_pause_storm_total", "1", MetricKind::kSum, "device, severity",
     "We paused the switch for too long. warning: near the limit; error: pausing was switched off, and packets drop."},
    {"lockstep_nic_phy_discards_total", "1", MetricKind::kSum, "device, direction",
     "Dropped at the port for lack of buffers."},
    {"lockstep_nic_crc_errors_total", "1", MetricKind::kSum, "device", "Frames with a bad checksum."},
    {"lockstep_nic_link_down_events_total", "1", MetricKind::kSum, "device", "Times the adapter saw its link go down."},
    {"lockstep_nic_phy_received_bits_total", "1", MetricKind::kSum, "device",
     "Bits received, to relate corrected ones to."},
    {"lockstep_nic_fec_corrected_bits_total", "1", MetricKind::kSum, "device", "Bits that error correction repaired."},
    {"lockstep_nic_fec_blocks_total", "1", MetricKind::kSum, "device, result",
     "Blocks with errors: corrected, uncorrectable."},
    {"lockstep_nic_pcs_symbol_errors_total", "1", MetricKind::kSum, "device", "Symbol errors that were not corrected."},
    {"lockstep_nic_lane_errors_total", "1", MetricKind::kSum, "device, lane", "Errors of each lane of the link."},
    {"lockstep_nic_rx_out_of_buffer_total", "1", MetricKind::kSum, "device",
     "Dropped because the host had posted no receive buffer (Ethernet queues)."},
    {"lockstep_nic_buffer_passed_threshold_total", "1", MetricKind::kSum, "device",
     "Times the port's receive buffer was more than 85 % full."},
    {"lockstep_nic_pci_stalled_ratio", "1", MetricKind::kGauge, "device, direction",
     "Share of the last second in which the adapter waited for PCIe: read, write.", 1.0 / 64},
    {"lockstep_nic_pci_stalled_seconds_total", "s", MetricKind::kSum, "device, direction",
     "Seconds in which it waited for PCIe for more than 30 %: read, write."},
    {"lockstep_nic_pci_buffer_overflow_total", "1", MetricKind::kSum, "device",
     "Packets dropped because PCIe did not take them."},
    {"lockstep_nic_pci_signal_integrity_total", "1", MetricKind::kSum, "device, direction",
     "PCIe errors seen by the adapter: receive (CRC), transmit (retries)."},
    {"lockstep_nic_module_events_total", "1", MetricKind::kSum, "device, event",
     "Transceiver: high_temp, bus_stuck, bad_shorted, unplug."},

    // PCIe devices: GPUs and network adapters.
    {"lockstep_gpu_nic_distance", "1", MetricKind::kGauge, "gpu_uuid, device",
     "NCCL's path number: 4 PIX, 5 PXB, 8 PHB, 9 SYS."},
    {"lockstep_pcie_link_width", "1", MetricKind::kGauge, "pci", "Lanes in use."},
    {"lockstep_pcie_link_width_max", "1", MetricKind::kGauge, "pci", "Lanes that the device has."},
    {"lockstep_pcie_link_speed", "{transfer}/s", MetricKind::kGauge, "pci",
     "Transfers per second and lane; a GPU at rest lowers it."},
    {"lockstep_pcie_link_speed_max", "{transfer}/s", MetricKind::kGauge, "pci", "What the device can do."},
    {"lockstep_pcie_aer_total", "1", MetricKind::kSum, "pci, severity",
     "Errors that the device reported: correctable, nonfatal, fatal."},
    {"lockstep_pcie_numa_node", "1", MetricKind::kGauge, "pci",
     "NUMA node that the device hangs on; not reported where it is not known."},

    {"lockstep_rdma_queue_pairs", "1", MetricKind::kGauge, "device, state, type", "RDMA queue pairs."},
};

// The row of that name; a name that is in no row does not compile.
consteval const MetricDescriptor& nic_metric(std::string_view name) {
  for (const MetricDescriptor& metric : kNicMetrics) {
    if (name == metric.name) return metric;
  }
  throw "no such row in kNicMetrics";
}

}  // namespace lockstep
