#include "diagnosis/signals/signals.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr Place G = Place::kGpu, N = Place::kNic, H = Place::kHost;
constexpr FoundBy U = FoundBy::kGpuUuid, D = FoundBy::kDevice, P = FoundBy::kPci, O = FoundBy::kNothing;
constexpr SignalKind L = SignalKind::kLevel, R = SignalKind::kRate;
constexpr Merge one = Merge::kOne, sum = Merge::kSum, max = Merge::kMax;

// Scales keep every value between 1e-4 and 6e4, which is what the book's short floats hold exactly enough.
// clang-format off
constexpr SignalRow kRows[] = {
    // key, metric, filter, place, found by, kind, merge, scale, unit, words, most
    {"sm_clock", "lockstep_gpu_clock_hertz", "clock=sm", G, U, L, one, 1e-9, "GHz", "SM clock"},
    {"thermal_throttle", "lockstep_gpu_throttle_seconds_total", "reason=thermal", G, U, R, sum, 100, "%", "time slowed by heat", 100},
    {"thermal_throttle", "lockstep_gpu_throttle_seconds_total", "reason=sw_thermal", G, U, R, sum, 100, "%", "time slowed by heat", 100},
    {"thermal_throttle", "lockstep_gpu_throttle_seconds_total", "reason=hw_thermal", G, U, R, sum, 100, "%", "time slowed by heat", 100},
    {"power_throttle", "lockstep_gpu_throttle_seconds_total", "reason=power", G, U, R, sum, 100, "%", "time slowed by the power limit", 100},
    {"power_throttle", "lockstep_gpu_throttle_seconds_total", "reason=board_limit", G, U, R, sum, 100, "%", "time slowed by the power limit", 100},
    {"power_brake", "lockstep_gpu_throttle_seconds_total", "reason=hw_power_brake", G, U, R, one, 100, "%", "time slowed by the power brake"},
    {"temperature", "hw.temperature", "hw.sensor_location=gpu", G, U, L, one, 1, "C", "temperature"},
    {"temperature_margin", "lockstep_gpu_temperature_margin_celsius", "", G, U, L, one, 1, "C", "degrees left before it slows down"},
    {"power_limit", "lockstep_gpu_power_limit_watts", "limit=enforced", G, U, L, one, 1, "W", "power limit"},
    {"memory_used", "hw.gpu.memory.utilization", "", G, U, L, one, 100, "%", "GPU memory in use"},
    {"ecc_corrected", "hw.errors", "error.type=corrected", G, U, R, one, 60, "/min", "corrected memory errors"},
    {"ecc_uncorrected", "hw.errors", "error.type=uncorrected", G, U, R, one, 60, "/min", "uncorrected memory errors"},
    {"remapped_rows", "lockstep_gpu_remapped_rows_total", "", G, U, R, sum, 60, "/min", "memory rows replaced"},
    {"remap_pending", "lockstep_gpu_row_remap_pending", "", G, U, L, one, 1, "", "memory rows that wait for a reset"},
    {"remap_failure", "lockstep_gpu_row_remap_failure", "", G, U, L, one, 1, "", "memory rows that could not be replaced"},
    {"banks_without_spares", "lockstep_gpu_remap_banks", "spare=none", G, U, L, one, 1, "", "memory banks without spare rows"},
    {"sram_threshold", "lockstep_gpu_sram_threshold_exceeded", "", G, U, L, one, 1, "", "on-chip memory beyond its error limit"},
    {"pcie_generation", "lockstep_gpu_pcie_generation", "", G, U, L, one, 1, "", "PCIe generation"},
    {"pcie_generation_max", "lockstep_gpu_pcie_generation_max", "", G, U, L, one, 1, "", "PCIe generation possible"},
    {"pcie_width", "lockstep_gpu_pcie_width", "", G, U, L, one, 1, "lanes", "PCIe width"},
    {"pcie_width_max", "lockstep_gpu_pcie_width_max", "", G, U, L, one, 1, "lanes", "PCIe width possible"},
    {"pcie_replays", "lockstep_gpu_pcie_replays_total", "", G, U, R, one, 60, "/min", "PCIe packets sent again"},
    {"pcie_errors", "lockstep_gpu_pcie_errors_total", "", G, U, R, sum, 60, "/min", "PCIe errors"},
    {"links", "lockstep_gpu_links", "", G, U, L, one, 1, "", "NVLinks"},
    {"links_up", "lockstep_gpu_links_up", "", G, U, L, one, 1, "", "NVLinks up"},
    {"link_errors", "lockstep_gpu_links_errors_total", "", G, U, R, sum, 1, "/s", "NVLink errors"},
    {"fabric_degraded", "lockstep_gpu_fabric_degraded_bandwidth", "", G, U, L, one, 1, "", "NVLink fabric runs with fewer links"},
    {"fabric_health", "lockstep_gpu_fabric_health", "", G, U, L, one, 1, "", "NVLink fabric's health (1: healthy)"},
    {"foreign_processes", "lockstep_gpu_foreign_processes", "", G, U, L, one, 1, "", "processes of others on the GPU"},
    {"gpu_processes", "lockstep_gpu_processes", "", G, U, L, one, 1, "", "processes on the GPU"},
    {"gpu_up", "lockstep_gpu_up", "", G, U, L, one, 1, "", "GPU answers (1: yes)"},
    {"recovery_action", "lockstep_gpu_recovery_action", "", G, U, L, one, 1, "", "recovery that the driver asks for"},
    {"trainer_wait", "lockstep_thread_runqueue_wait_worst", "thread_class=trainer", G, U, L, one, 100, "%", "training threads ready without a CPU"},
    {"nccl_wait", "lockstep_thread_runqueue_wait_worst", "thread_class=nccl", G, U, L, one, 100, "%", "NCCL's threads ready without a CPU"},
    {"loader_wait", "lockstep_thread_runqueue_wait_worst", "thread_class=dataloader", G, U, L, one, 100, "%", "data loaders ready without a CPU"},
    {"trainer_cpu", "lockstep_thread_cpu_seconds_total", "thread_class=trainer", G, U, R, one, 100, "%", "CPU of the training threads"},
    {"loader_cpu", "lockstep_thread_cpu_seconds_total", "thread_class=dataloader", G, U, R, one, 100, "%", "CPU of the data loaders"},
    {"cgroup_cpu_pressure", "lockstep_cgroup_pressure_seconds_total", "resource=cpu,scope=some", G, U, R, one, 100, "%", "its cgroup stalled for CPU"},
    {"cgroup_memory_pressure", "lockstep_cgroup_pressure_seconds_total", "resource=memory,scope=some", G, U, R, one, 100, "%", "its cgroup stalled for memory"},
    {"cgroup_io_pressure", "lockstep_cgroup_pressure_seconds_total", "resource=io,scope=some", G, U, R, one, 100, "%", "its cgroup stalled for I/O"},
    {"cgroup_throttled", "lockstep_cgroup_cpu_throttled_seconds_total", "", G, U, R, one, 100, "%", "held back by its CPU quota"},
    {"cgroup_oom", "lockstep_cgroup_oom_kills_total", "", G, U, R, one, 60, "/min", "processes killed for want of memory"},
    {"sm_clock_max", "lockstep_gpu_clock_max_hertz", "clock=sm", G, U, L, one, 1e-9, "GHz", "highest SM clock"},
    {"numa_remote", "lockstep_process_numa_remote", "", G, U, L, one, 100, "%", "CPUs of the wrong socket"},

    {"nic_up", "hw.network.up", "", N, D, L, one, 1, "", "port up (1: yes)"},
    {"nic_rate", "hw.network.bandwidth.limit", "", N, D, L, one, 8e-9, "Gbit/s", "rate that the port trained to"},
    {"nic_rate", "lockstep_nic_speed", "", N, D, L, one, 8e-9, "Gbit/s", "rate that the port trained to"},
    {"rdma_sent", "hw.network.io", "direction=transmit", N, D, R, sum, 1e-6, "MB/s", "sent by RDMA"},
    {"net_sent", "system.network.io", "direction=transmit", N, D, R, sum, 1e-6, "MB/s", "sent by the interface"},
    {"xmit_wait", "lockstep_nic_port_xmit_wait_total", "", N, D, R, sum, 1e-3, "k/s", "ticks that the port waited for credit"},
    {"discards", "lockstep_nic_port_xmit_discards_total", "", N, D, R, sum, 1, "/s", "packets dropped at the port"},
    {"discards", "lockstep_nic_phy_discards_total", "", N, D, R, sum, 1, "/s", "packets dropped at the port"},
    {"symbol_errors", "lockstep_nic_symbol_error_total", "", N, D, R, sum, 1, "/s", "symbol errors"},
    {"symbol_errors", "lockstep_nic_pcs_symbol_errors_total", "", N, D, R, sum, 1, "/s", "symbol errors"},
    {"symbol_errors", "lockstep_nic_local_link_integrity_errors_total", "", N, D, R, sum, 1, "/s", "symbol errors"},
    {"fec_uncorrectable", "lockstep_nic_fec_blocks_total", "result=uncorrectable", N, D, R, one, 1, "/s", "blocks that error correction could not mend"},
    {"fec_corrected", "lockstep_nic_fec_blocks_total", "result=corrected", N, D, R, one, 1e-3, "k/s", "blocks that error correction mended"},
    {"crc_errors", "lockstep_nic_crc_errors_total", "", N, D, R, sum, 1, "/s", "damaged packets"},
    {"crc_errors", "lockstep_nic_port_rcv_errors_total", "", N, D, R, sum, 1, "/s", "damaged packets"},
    {"crc_errors", "lockstep_nic_rx_icrc_encapsulated_total", "", N, D, R, sum, 1, "/s", "damaged packets"},
    {"link_downs", "lockstep_nic_link_downed_total", "", N, D, R, sum, 60, "/min", "times the link went down"},
    {"link_downs", "lockstep_nic_link_down_events_total", "", N, D, R, sum, 60, "/min", "times the link went down"},
    {"link_downs", "lockstep_nic_carrier_changes_total", "", N, D, R, sum, 60, "/min", "times the link went down"},
    {"link_retrains", "lockstep_nic_link_error_recovery_total", "", N, D, R, one, 60, "/min", "times the link trained anew"},
    {"retransmissions", "lockstep_nic_packet_seq_err_total", "", N, D, R, sum, 1, "/s", "packets lost and sent again"},
    {"retransmissions", "lockstep_nic_implied_nak_seq_err_total", "", N, D, R, sum, 1, "/s", "packets lost and sent again"},
    {"retransmissions", "lockstep_nic_local_ack_timeout_err_total", "", N, D, R, sum, 1, "/s", "packets lost and sent again"},
    {"retransmissions", "lockstep_nic_roce_adp_retrans_total", "", N, D, R, sum, 1, "/s", "packets lost and sent again"},
    {"out_of_sequence", "lockstep_nic_out_of_sequence_total", "", N, D, R, one, 1, "/s", "packets out of sequence"},
    {"retries_exceeded", "lockstep_nic_req_transport_retries_exceeded_total", "", N, D, R, sum, 60, "/min", "connections given up"},
    {"retries_exceeded", "lockstep_nic_req_rnr_retries_exceeded_total", "", N, D, R, sum, 60, "/min", "connections given up"},
    {"cnp_handled", "lockstep_nic_rp_cnp_handled_total", "", N, D, R, one, 1e-3, "k/s", "congestion notifications received"},
    {"ecn_marked", "lockstep_nic_np_ecn_marked_roce_packets_total", "", N, D, R, one, 1e-3, "k/s", "packets marked by a congested switch"},
    {"pause_received", "lockstep_nic_pause_seconds_total", "direction=receive", N, D, R, sum, 100, "%", "time that the fabric stopped its sending"},
    {"pause_sent", "lockstep_nic_pause_seconds_total", "direction=transmit", N, D, R, sum, 100, "%", "time that it stopped the switch"},
    {"pause_storm", "lockstep_nic_pause_storm_total", "", N, D, R, sum, 60, "/min", "pauses that lasted too long"},
    {"pci_stalled", "lockstep_nic_pci_stalled_ratio", "", N, D, L, max, 100, "%", "time that the adapter waited for PCIe"},
    {"nic_pcie_width", "lockstep_pcie_link_width", "", N, P, L, one, 1, "lanes", "PCIe width of the adapter"},
    {"nic_pcie_width_max", "lockstep_pcie_link_width_max", "", N, P, L, one, 1, "lanes", "PCIe width possible of the adapter"},

    {"cpu_pressure", "lockstep_host_pressure", "resource=cpu,scope=some", H, O, L, one, 100, "%", "tasks stalled for CPU"},
    {"memory_pressure", "lockstep_host_pressure", "resource=memory,scope=some", H, O, L, one, 100, "%", "tasks stalled for memory"},
    {"io_pressure", "lockstep_host_pressure", "resource=io,scope=some", H, O, L, one, 100, "%", "tasks stalled for I/O"},
    {"tasks_running", "lockstep_host_tasks_running", "", H, O, L, one, 1, "tasks", "tasks that run or want a CPU"},
    {"tasks_blocked", "lockstep_host_tasks_blocked", "", H, O, L, one, 1, "tasks", "tasks that wait for block I/O"},
    {"training_stuck", "lockstep_host_tasks_uninterruptible", "kind=training", H, O, L, one, 1, "tasks", "training threads stuck in the kernel"},
    {"storage_waits", "lockstep_host_tasks_uninterruptible_wait", "wait=nfs", H, O, L, max, 1, "tasks", "tasks that wait for storage"},
    {"storage_waits", "lockstep_host_tasks_uninterruptible_wait", "wait=lustre", H, O, L, max, 1, "tasks", "tasks that wait for storage"},
    {"storage_waits", "lockstep_host_tasks_uninterruptible_wait", "wait=block", H, O, L, max, 1, "tasks", "tasks that wait for storage"},
    {"disk_latency", "lockstep_host_disk_latency_seconds", "", H, O, L, max, 1e3, "ms", "disk latency"},
    {"storage_rtt", "lockstep_storage_rtt_seconds", "", H, O, L, max, 1e3, "ms", "answer time of the file server"},
    {"storage_retries", "lockstep_storage_retransmissions_total", "", H, O, R, sum, 60, "/min", "requests to the file server sent again"},
    {"storage_retries", "lockstep_storage_timeouts_total", "", H, O, R, sum, 60, "/min", "requests to the file server sent again"},
    {"allocation_stalls", "lockstep_host_vm_events_total", "event=allocstall", H, O, R, one, 1, "/s", "allocations that had to wait for memory"},
    {"swapping", "system.paging.operations", "", H, O, R, sum, 1, "/s", "pages swapped"},
    {"major_faults", "system.paging.faults", "", H, O, R, sum, 1, "/s", "page faults that needed a disk"},
    {"memory_available", "system.memory.linux.available", "", H, O, L, one, 1e-9, "GB", "memory available"},
    {"cpu_frequency", "lockstep_host_cpu_frequency_hertz", "of=mean", H, O, L, one, 1e-9, "GHz", "CPU frequency"},
    {"cpu_heat", "lockstep_host_cpu_thermal_throttle_total", "", H, O, R, sum, 1, "/s", "times that the CPU slowed itself for heat"},
    {"cpu_steal", "system.cpu.time", "cpu.mode=steal", H, O, R, one, 100, "%", "CPU taken by the hypervisor"},
    {"io_wait", "system.cpu.time", "cpu.mode=iowait", H, O, R, one, 100, "%", "CPUs idle for I/O"},
    {"tcp_retransmits", "lockstep_host_tcp_total", "event=retransmits", H, O, R, one, 1, "/s", "TCP segments sent again"},
};

constexpr EventRow kEvents[] = {
    // key, event, codes, least and greatest severity (0 info, 1 app, 2 warn, 3 critical), words
    {"xid_memory", "gpu.xid", "48,63,64,92,94,95,140,156,157,160,161,171,172", 0, 3, "memory error of the GPU"},
    {"xid_nvlink", "gpu.xid", "74,136,144-150,155", 0, 3, "NVLink error of the GPU"},
    {"xid_program", "gpu.xid", "", 1, 1, "fault of the program on the GPU"},
    {"xid_hardware", "gpu.xid", "", 2, 3, "fault of the GPU"},
    {"gpu_lost", "gpu.lost", "", 0, 3, "GPU lost"},
    {"gpu_lost", "gpu.hung", "", 0, 3, "GPU lost"},
    {"gpu_recovery", "gpu.recovery_action", "", 2, 3, "the driver asks for a recovery of the GPU"},
    {"nvswitch", "nvswitch.sxid", "", 0, 3, "NVSwitch error"},
    {"pcie_error", "pcie.aer", "", 2, 3, "PCIe error"},
    {"pcie_error", "pcie.link_down", "", 0, 3, "PCIe error"},
    {"lanes_lost", "link.degraded", "", 0, 3, "link slower than it was"},
    {"nic_health", "nic.health", "", 2, 3, "fault of the network adapter"},
    {"nic_health", "nic.module", "", 2, 3, "fault of the network adapter"},
    {"nic_lost", "nic.lost", "", 2, 3, "network adapter lost"},
    {"link_down", "link.down", "", 0, 3, "link down"},
    {"link_up", "link.up", "", 0, 3, "link up again"},
    {"oom_kill", "host.oom_kill", "", 0, 3, "process killed for want of memory"},
    {"hung_task", "host.hung_task", "", 0, 3, "task hung in the kernel"},
    {"machine_check", "host.mce", "", 0, 3, "machine check"},
    {"cpu_hot", "host.cpu_throttled", "", 0, 3, "CPU slowed down by heat"},
    {"storage_server", "storage.nfs", "", 2, 3, "file server does not answer"},
};
// clang-format on

struct Tables {
  std::vector<const SignalRow*> first;  // of each signal
  std::vector<uint8_t> ordinal;         // of each signal
  std::array<uint8_t, 3> of_place{};
  std::unordered_map<std::string_view, SignalIndex> index;
  std::vector<Feed> feeds;  // those of one metric lie together
  std::unordered_map<std::string_view, FeedsOfMetric> of_metric;

  Tables() {
    for (const SignalRow& row : kRows) {
      if (!index.emplace(row.key, static_cast<SignalIndex>(first.size())).second) continue;
      first.push_back(&row);
      ordinal.push_back(of_place[static_cast<size_t>(row.place)]++);
    }
    for (const SignalRow& row : kRows) {
      Feed feed;
      feed.signal = index.at(row.key);
      feed.ordinal = ordinal[feed.signal];
      feed.row = &row;
      for (std::string_view part : split(row.filter, ',')) {
        size_t equals = part.find('=');
        if (equals == std::string_view::npos || feed.filter_count == kFiltersMax) continue;
        feed.filters[feed.filter_count++] = {part.substr(0, equals), part.substr(equals + 1)};
      }
      feeds.push_back(feed);
    }
    std::stable_sort(feeds.begin(), feeds.end(), [](const Feed& a, const Feed& b) {
      return std::string_view(a.row->metric) < std::string_view(b.row->metric);
    });
    for (size_t from = 0; from < feeds.size();) {
      size_t to = from;
      while (to < feeds.size() && std::string_view(feeds[to].row->metric) == feeds[from].row->metric) ++to;
      of_metric[feeds[from].row->metric].feeds = std::span(feeds).subspan(from, to - from);
      from = to;
    }
    of_metric["lockstep_gpu_info"].info = InfoMetric::kGpu;
    of_metric["lockstep_nic_info"].info = InfoMetric::kNic;
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

bool code_fits(std::string_view codes, int64_t code) {
  if (codes.empty()) return true;
  for (std::string_view part : split(codes, ',')) {
    size_t dash = part.find('-');
    int64_t from = parse_int(part.substr(0, dash)).value_or(-1);
    int64_t to = dash == std::string_view::npos ? from : parse_int(part.substr(dash + 1)).value_or(-1);
    if (code >= from && code <= to) return true;
  }
  return false;
}

}  // namespace

std::span<const SignalRow> signal_rows() {
  return kRows;
}

size_t signal_count() {
  return tables().first.size();
}

SignalIndex signal_index(std::string_view key) {
  auto found = tables().index.find(key);
  return found == tables().index.end() ? kNoSignal : found->second;
}

const SignalRow& signal_row(SignalIndex signal) {
  return *tables().first[signal];
}

size_t ordinal_of(SignalIndex signal) {
  return tables().ordinal[signal];
}

size_t signals_of(Place place) {
  return tables().of_place[static_cast<size_t>(place)];
}

std::string signal_query(SignalIndex signal, std::string_view host, std::span<const std::string> ids,
                         int64_t since_unix_ns, int64_t through_unix_ns) {
  const SignalRow& row = signal_row(signal);
  std::string text = format("/api/signals?signal=%s&host=%s", row.key, url_part(host).c_str());
  for (size_t i = 0; i < ids.size(); ++i)
    text += (i > 0 ? "," : row.place == Place::kGpu ? "&gpu=" : "&device=") + url_part(ids[i]);
  return text +
         format("&from=%lld&to=%lld", static_cast<long long>(since_unix_ns), static_cast<long long>(through_unix_ns));
}

const FeedsOfMetric* feeds_of(std::string_view metric) {
  const auto& all = tables().of_metric;
  auto found = all.find(metric);
  return found == all.end() ? nullptr : &found->second;
}

std::span<const EventRow> event_rows() {
  return kEvents;
}

EventIndex event_index(std::string_view key) {
  for (size_t i = 0; i < std::size(kEvents); ++i) {
    if (key == kEvents[i].key) return static_cast<EventIndex>(i);
  }
  return kNoEvent;
}

EventIndex event_of(std::string_view name, int64_t code, uint8_t severity) {
  for (const EventRow& row : kEvents) {
    if (name == row.name && severity >= row.severity_min && severity <= row.severity_max && code_fits(row.codes, code))
      return event_index(row.key);  // rows of one key are one kind
  }
  return kNoEvent;
}

}  // namespace lockstep
