// A made-up fleet for tests of signals: hosts with eight GPUs and eight adapters that report every 5 s as agents do
// (what has changed, and everything once in two minutes), healthy until a test says otherwise. Values are written in
// the metrics' own units, by the names of docs/guide/node-metrics.md: "lockstep_gpu_clock_hertz{clock=sm}".
//
// Thread rule: Confined.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "diagnosis/signals/explain.h"
#include "diagnosis/signals/signal_store.h"

namespace lockstep::testing {

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr int64_t kBegin = 1'800'000'000 * kSecond;

struct Quantity {
  const char* spec;
  bool counter;  // then `healthy` is its increase per second
  double healthy;
  double noise;    // standard deviation as a share
  double quantum;  // values are told as multiples of this
};

// clang-format off
inline constexpr Quantity kGpuQuantities[] = {
    {"lockstep_gpu_up", false, 1, 0, 0},
    {"lockstep_gpu_clock_hertz{clock=sm}", false, 1.98e9, 0.003, 15e6},
    {"lockstep_gpu_throttle_seconds_total{reason=thermal}", true, 0, 0, 0},
    {"lockstep_gpu_throttle_seconds_total{reason=sw_thermal}", true, 0, 0, 0},
    {"lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", true, 0, 0, 0},
    {"lockstep_gpu_throttle_seconds_total{reason=power}", true, 0.05, 0.3, 0},
    {"lockstep_gpu_throttle_seconds_total{reason=hw_power_brake}", true, 0, 0, 0},
    {"hw.temperature{hw.sensor_location=gpu}", false, 62, 0.02, 1},
    {"lockstep_gpu_temperature_margin_celsius", false, 25, 0.04, 1},
    {"hw.power", false, 640, 0.03, 1},
    {"lockstep_gpu_power_limit_watts{limit=enforced}", false, 700, 0, 0},
    {"lockstep_gpu_sm_active", false, 0.85, 0.03, 1.0 / 1024},
    {"lockstep_gpu_tensor_active", false, 0.45, 0.03, 1.0 / 1024},
    {"hw.gpu.memory.utilization", false, 0.8, 0.001, 1.0 / 1024},
    {"hw.errors{error.type=corrected}", true, 0, 0, 0},
    {"hw.errors{error.type=uncorrected}", true, 0, 0, 0},
    {"lockstep_gpu_remapped_rows_total{cause=correctable}", true, 0, 0, 0},
    {"lockstep_gpu_row_remap_pending", false, 0, 0, 0},
    {"lockstep_gpu_row_remap_failure", false, 0, 0, 0},
    {"lockstep_gpu_pcie_generation", false, 5, 0, 0},
    {"lockstep_gpu_pcie_generation_max", false, 5, 0, 0},
    {"lockstep_gpu_pcie_width", false, 16, 0, 0},
    {"lockstep_gpu_pcie_width_max", false, 16, 0, 0},
    {"lockstep_gpu_pcie_replays_total", true, 0, 0, 0},
    {"lockstep_gpu_links", false, 18, 0, 0},
    {"lockstep_gpu_links_up", false, 18, 0, 0},
    {"lockstep_gpu_links_errors_total{type=crc_flit}", true, 0, 0, 0},
    {"lockstep_gpu_links_errors_total{type=replay}", true, 0, 0, 0},
    {"lockstep_gpu_foreign_processes", false, 0, 0, 0},
    {"lockstep_gpu_processes", false, 1, 0, 0},
    {"lockstep_thread_runqueue_wait_worst{thread_class=trainer}", false, 0.003, 0.5, 0},
    {"lockstep_thread_runqueue_wait_worst{thread_class=nccl}", false, 0.002, 0.5, 0},
    {"lockstep_thread_runqueue_wait_worst{thread_class=dataloader}", false, 0.01, 0.5, 0},
    {"lockstep_thread_cpu_seconds_total{thread_class=trainer}", true, 0.9, 0.03, 0},
    {"lockstep_thread_cpu_seconds_total{thread_class=dataloader}", true, 2.5, 0.1, 0},
    {"lockstep_cgroup_pressure_seconds_total{resource=cpu,scope=some}", true, 0.01, 0.5, 0},
    {"lockstep_cgroup_pressure_seconds_total{resource=memory,scope=some}", true, 0, 0, 0},
    {"lockstep_cgroup_pressure_seconds_total{resource=io,scope=some}", true, 0.002, 0.5, 0},
    {"lockstep_cgroup_cpu_throttled_seconds_total", true, 0, 0, 0},
};
inline constexpr Quantity kNicQuantities[] = {
    {"hw.network.up{port=1}", false, 1, 0, 0},
    {"hw.network.bandwidth.limit{port=1}", false, 50e9, 0, 0},
    {"hw.network.io{port=1,direction=transmit}", true, 9e9, 0.05, 0},
    {"lockstep_nic_port_xmit_discards_total{port=1}", true, 0, 0, 0},
    {"lockstep_nic_symbol_error_total{port=1}", true, 0, 0, 0},
    {"lockstep_nic_link_downed_total{port=1}", true, 0, 0, 0},
    {"lockstep_nic_packet_seq_err_total{port=1}", true, 0.02, 0.8, 0},
    {"lockstep_nic_roce_adp_retrans_total{port=1}", true, 0, 0, 0},
    {"lockstep_nic_out_of_sequence_total{port=1}", true, 0.5, 0.8, 0},
    {"lockstep_nic_rp_cnp_handled_total{port=1}", true, 200, 0.5, 0},
    {"lockstep_nic_np_ecn_marked_roce_packets_total{port=1}", true, 300, 0.5, 0},
    {"lockstep_nic_pci_stalled_ratio{direction=read}", false, 0.01, 0.5, 0},
};
// By the interface's own name.
inline constexpr Quantity kNetdevQuantities[] = {
    {"system.network.io{direction=transmit}", true, 2e4, 0.5, 0},
    {"lockstep_nic_pause_seconds_total{direction=receive,priority=3}", true, 0.001, 0.5, 0},
    {"lockstep_nic_pause_seconds_total{direction=receive,priority=global}", true, 0, 0, 0},
    {"lockstep_nic_fec_blocks_total{result=uncorrectable}", true, 0, 0, 0},
    {"lockstep_nic_fec_blocks_total{result=corrected}", true, 4000, 0.2, 0},
    {"lockstep_nic_crc_errors_total", true, 0, 0, 0},
};
inline constexpr Quantity kHostQuantities[] = {
    {"lockstep_host_pressure{resource=cpu,scope=some}", false, 0.02, 0.5, 0},
    {"lockstep_host_pressure{resource=memory,scope=some}", false, 0, 0, 0},
    {"lockstep_host_pressure{resource=io,scope=some}", false, 0.01, 0.8, 0},
    {"lockstep_host_tasks_running", false, 20, 0.2, 1},
    {"lockstep_host_disk_latency_seconds{system.device=nvme0n1,disk.io.direction=read}", false, 0.0004, 0.5, 0},
    {"lockstep_storage_rtt_seconds{mount=/data,op=read}", false, 0.0012, 0.3, 0},
    {"lockstep_storage_retransmissions_total{mount=/data}", true, 0, 0, 0},
    {"lockstep_host_vm_events_total{event=allocstall}", true, 0, 0, 0},
    {"system.paging.operations{system.paging.direction=in}", true, 0, 0, 0},
    {"system.memory.linux.available", false, 1.4e12, 0.005, 1e6},
    {"system.cpu.time{cpu.mode=iowait}", true, 0.1, 0.5, 0},
    {"lockstep_host_cpu_frequency_hertz{of=mean}", false, 3.4e9, 0.005, 1e6},
};
// clang-format on

class MadeUpFleet {
 public:
  explicit MadeUpFleet(int hosts, uint32_t seed = 1, int gpus = 8);

  SignalStore book;
  bool only_changed = true;
  std::set<std::string, std::less<>> left_out;  // specs that nobody tells
  std::set<int> silent_hosts;
  // Who hears besides what the book does; may be empty.
  std::function<void(const Attributes& resource, std::span<const MetricPoint>)> also;

  static std::string host_name(int host) { return format("node-%d", host); }
  static std::string gpu_name(int host, int gpu) {
    return format("GPU-%08x-4a5b-11ee-be56-%012x", host * 64 + gpu, gpu);
  }
  int64_t now() const { return now_; }

  Identity identity(Rank rank) const {
    int host = rank.value() / gpus_, gpu = rank % gpus_;
    return {"job", 0, rank, hosts_ * gpus_, gpu, host_name(host), gpu_name(host, gpu)};
  }
  std::vector<Identity> all_but(const std::vector<Rank>& ranks) const;

  // The value of a GPU's, its adapter's or (gpu -1) a host's quantity from now on; for a counter its rate.
  void set(int host, int gpu, const std::string& spec, double value);
  void set_all(const std::string& spec, double value);
  void event(int host, NodeEvent event);

  void run(int seconds);

  // What explain() is asked about rank(s) that are slow since `since`.
  Question question(std::vector<Rank> ranks, uint32_t sign, int64_t since) const;

 private:
  struct Series {
    int host;
    int gpu;
    const Quantity* quantity;
    bool own_group;  // of a GPU: a resource of its own, as agents send it
    MetricPoint point;
    double value;
    double sum = 0;
    double reported = NAN;
    int64_t reported_at = 0;
  };

  void add(int host, int gpu, std::span<const Quantity> quantities, const char* label, const std::string& name,
           bool own);
  void report();
  void send(int host, int gpu, const std::vector<Series*>& due);  // gpu -1: the host's own group
  MetricPoint nic_info(int host, int gpu) const;

  int gpus_;
  int hosts_ = 0;
  int64_t now_ = kBegin;
  std::mt19937 random_;
  std::vector<Series> series_;
};

}  // namespace lockstep::testing
