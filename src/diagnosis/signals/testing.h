// A made-up fleet for tests of signals: hosts with eight GPUs and eight adapters that report every 5 s as agents do
// (what has changed, and everything once in two minutes), healthy until a test says otherwise. Values are written in
// the metrics' own units, by the names of docs/guide/node-metrics.md: "lockstep_gpu_clock_hertz{clock=sm}".
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
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
  explicit MadeUpFleet(int hosts, uint32_t seed = 1, int gpus = 8) : gpus_(gpus), random_(seed) {
    for (int host = 0; host < hosts; ++host) {
      for (int gpu = 0; gpu < gpus; ++gpu) {
        add(host, gpu, kGpuQuantities, "gpu_uuid", gpu_name(host, gpu), true);
        add(host, gpu, kNicQuantities, "device", format("mlx5_%d", gpu), false);
        add(host, gpu, kNetdevQuantities, "device", format("eth%d", gpu), false);
      }
      add(host, -1, kHostQuantities, "", "", false);
    }
    hosts_ = hosts;
  }

  SignalStore book;
  bool only_changed = true;
  std::set<std::string> left_out;  // specs that nobody tells
  std::set<int> silent_hosts;

  static std::string host_name(int host) { return format("node-%d", host); }
  static std::string gpu_name(int host, int gpu) {
    return format("GPU-%08x-4a5b-11ee-be56-%012x", host * 64 + gpu, gpu);
  }
  int64_t now() const { return now_; }

  Identity identity(Rank rank) const {
    int host = rank.value() / gpus_, gpu = rank % gpus_;
    return {"job", 0, rank, hosts_ * gpus_, gpu, host_name(host), gpu_name(host, gpu)};
  }
  std::vector<Identity> all_but(const std::vector<Rank>& ranks) const {
    std::vector<Identity> others;
    for (Rank rank : all_ranks(hosts_ * gpus_)) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) others.push_back(identity(rank));
    }
    return others;
  }

  // The value of a GPU's, its adapter's or (gpu -1) a host's quantity from now on; for a counter its rate.
  void set(int host, int gpu, const std::string& spec, double value) {
    bool found = false;
    for (Series& series : series_) {
      if (series.host != host || series.gpu != gpu || spec != series.quantity->spec) continue;
      series.value = value;
      found = true;
    }
    if (!found) throw std::runtime_error("no such quantity: " + spec);
  }
  void set_all(const std::string& spec, double value) {
    for (Series& series : series_) {
      if (spec == series.quantity->spec) series.value = value;
    }
  }
  void event(int host, NodeEvent event) {
    if (event.time_unix_ns == 0) event.time_unix_ns = now_;
    book.on_node_event(host_name(host), event, now_);
  }

  void run(int seconds) {
    for (int64_t end = now_ + seconds * kSecond; now_ < end;) {
      now_ += 5 * kSecond;
      report();
    }
  }

  // What explain() is asked about rank(s) that are slow since `since`.
  Question question(std::vector<Rank> ranks, uint32_t sign, int64_t since) const {
    Question question;
    for (Rank rank : ranks) question.culprits.push_back(identity(rank));
    question.peers = all_but(ranks);
    question.sign = sign;
    question.layer = Layer::kWorkload;
    question.cause = Cause::kLessWork;
    question.component = "component";
    question.job_from_unix_ns = kBegin;
    question.since_unix_ns = since;
    question.through_unix_ns = now_;
    return question;
  }

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

  template <size_t N>
  void add(int host, int gpu, const Quantity (&quantities)[N], const char* label, const std::string& name, bool own) {
    for (const Quantity& quantity : quantities) {
      Series series{host, gpu, &quantity, own, {}, quantity.healthy};
      std::string spec = quantity.spec;
      size_t brace = spec.find('{');
      series.point.name = spec.substr(0, brace);
      series.point.kind = quantity.counter ? MetricKind::kSum : MetricKind::kGauge;
      series.point.monotonic = quantity.counter;
      series.point.temporality = quantity.counter ? Temporality::kCumulative : Temporality::kUnspecified;
      if (label[0] != '\0') series.point.attributes.push_back({label, name});
      if (brace != std::string::npos) {
        std::string inside = spec.substr(brace + 1, spec.size() - brace - 2);
        for (std::string_view part : split(inside, ',')) {
          size_t equals = part.find('=');
          series.point.attributes.push_back(
              {std::string(part.substr(0, equals)), std::string(part.substr(equals + 1))});
        }
      }
      series_.push_back(std::move(series));
    }
  }

  void report() {
    std::map<std::pair<int, int>, std::vector<MetricPoint>> groups;
    std::normal_distribution<double> spread(0, 1);
    for (Series& series : series_) {
      const Quantity& quantity = *series.quantity;
      double value = series.value * (1 + quantity.noise * spread(random_));
      if (quantity.counter) {
        series.sum += std::max(0.0, value) * 5;
        value = series.value >= 1 ? std::floor(series.sum) : series.sum;
      }
      if (quantity.quantum > 0) value = std::round(value / quantity.quantum) * quantity.quantum;
      if (silent_hosts.contains(series.host) || left_out.contains(quantity.spec)) continue;
      if (only_changed && value == series.reported && now_ - series.reported_at < 120 * kSecond) continue;
      series.reported = value;
      series.reported_at = now_;
      series.point.value = value;
      series.point.time_unix_ns = now_;
      groups[{series.host, series.own_group ? series.gpu : -1}].push_back(series.point);
    }
    for (auto& [where, points] : groups) {
      if (where.second < 0 && (now_ - kBegin) / kSecond % 120 == 5) {
        for (int gpu = 0; gpu < gpus_; ++gpu) {
          MetricPoint info;
          info.name = "lockstep_nic_info";
          info.value = 1;
          info.time_unix_ns = now_;
          info.attributes = {{"device", format("mlx5_%d", gpu)},
                             {"netdev", format("eth%d", gpu)},
                             {"pci", format("0000:%02x:00.0", 16 + gpu)},
                             {"gpu_uuid", gpu_name(where.first, gpu)}};
          points.push_back(info);
        }
      }
      Attributes resource{{"service.name", "lockstep-agent"}, {"host.name", host_name(where.first)}};
      if (where.second >= 0) resource.push_back({"lockstep.gpu_uuid", gpu_name(where.first, where.second)});
      book.on_metrics(resource, points, now_);
    }
  }

  int gpus_;
  int hosts_ = 0;
  int64_t now_ = kBegin;
  std::mt19937 random_;
  std::vector<Series> series_;
};

}  // namespace lockstep::testing
