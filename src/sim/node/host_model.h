// The host of a simulated node: CPUs, pressure, memory, disks, a file server, and the processes of each GPU's rank. A
// healthy host is never at rest: threads wait for a CPU now and then, files take their time, memory is nearly full of
// cache.
//
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>

#include "sim/node/effects.h"
#include "sim/node/gpu_model.h"
#include "sim/node/node_series.h"
#include "sim/node/noise.h"

namespace lockstep::sim {

// The processes of the rank on one GPU.
class RankModel {
 public:
  RankModel(uint64_t seed, int32_t index);

  void advance(const Moment& moment, const GpuActivity& activity, bool held, const RankEffects& effects,
               const HostEffects& host);
  // Under NodeReadout::of_gpu.
  void put(NodeReadout& out) const;

  double cores() const { return cores_; }
  double read_bytes() const { return read_bytes_; }  // since the last reading
  double blocked() const { return blocked_; }
  bool held() const { return held_; }

 private:
  static constexpr size_t kClasses = 5;  // trainer, nccl, dataloader, unnamed, other
  Noise noise_;
  double quiet_, loader_cores_, memory_bytes_, quota_;
  bool held_ = false;
  double cores_ = 0, read_bytes_ = 0, blocked_ = 0, memory_ = 0;
  std::array<double, kClasses> wait_{}, worst_{}, cpu_{}, switches_{};
  double cpu_some_ = 0, memory_some_ = 0, memory_full_ = 0, io_some_ = 0, io_full_ = 0, throttled_ = 0, periods_ = 0;
  double oom_kills_ = 0;
  bool killed_ = false;
};

class HostModel {
 public:
  explicit HostModel(uint64_t seed);

  struct Ranks {
    double held = 0;
    double cores = 0;
    double read_bytes = 0;
    double blocked = 0;
    double tcp_bytes = 0;  // through the kernel's network
  };
  void advance(const Moment& moment, const Ranks& ranks, const HostEffects& effects);
  void put(NodeReadout& out) const;
  void killed_for_memory() { ++oom_kills_; }
  void memory_error() { ++memory_errors_; }

 private:
  void advance_pressure(double seconds, const HostEffects& effects);
  void advance_files(double seconds, const Ranks& ranks, const HostEffects& effects);
  void put_cpus(NodeReadout& out) const;
  void put_memory(NodeReadout& out) const;
  void put_files(NodeReadout& out) const;

  struct FileOp {
    double operations = 0, bytes = 0, queue_s = 0, rtt_s = 0, execute_s = 0;
    double mean_rtt = -1;  // since the last reading; -1: there was none
  };
  struct DiskOp {
    double operations = 0, bytes = 0, time_s = 0;
    double mean_s = -1;
  };
  struct Stall {
    double some_s = 0, full_s = 0, some = 0, full = 0;
  };

  Noise noise_;
  double rtt_, disk_latency_, temperature_;
  std::array<double, 8> mode_{};
  double load_ = 0, running_ = 0, blocked_ = 0, switches_ = 0, interrupts_ = 0, softirqs_ = 0, hertz_ = 0;
  double energy_ = 0, package_ = 0;
  Stall cpu_, memory_, io_, irq_;
  double cached_ = 0, used_ = 0, dirty_ = 0, writeback_ = 0, swap_used_ = 0, available_ = 0;
  double major_faults_ = 0, swap_in_ = 0, swap_out_ = 0, scans_ = 0, alloc_stalls_ = 0, compact_stalls_ = 0;
  double refaults_ = 0, oom_kills_ = 0, memory_errors_ = 0;
  FileOp files_[3];  // read, write, metadata
  double retransmissions_ = 0, timeouts_ = 0;
  DiskOp disk_[2];  // read, write
  double disk_busy_s_ = 0, in_flight_ = 0, stuck_training_ = 0, stuck_seen_ = 0;
  bool stuck_on_files_ = false;
  double tcp_retransmits_ = 0, squeezed_ = 0, offset_ = 0, eth_in_ = 0, eth_out_ = 0;
};

}  // namespace lockstep::sim
