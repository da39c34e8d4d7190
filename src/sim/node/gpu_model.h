// One GPU of a simulated node (an H100 SXM: 700 W, 18 NVLinks): what its driver would tell. It follows what the job
// does on it and what acts on it; two GPUs differ a little, and each drifts.
//
// A GPU that waits in a collective is busy by every share of time and by none of the work: utilization 100 %, few SMs,
// low power, high clock. At full work many of them touch their power limit, which costs a little clock and counts
// as throttling: healthy, and the first thing that a naive rule calls broken.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>

#include "sim/node/effects.h"
#include "sim/node/node_series.h"
#include "sim/node/noise.h"

namespace lockstep::sim {

// What all parts of a node share in a reading.
struct Moment {
  int64_t unix_ns = 0;
  double seconds = 5;  // since the last reading
  double inlet = 26;   // degrees of the air or water that cools the node
  double heat = 0;     // clocks are lower by this, for the heat of the day
};

class GpuModel {
 public:
  GpuModel(uint64_t seed, int32_t index);

  // held: a job's process is on it.
  void advance(const Moment& moment, const GpuActivity& activity, bool held, const GpuEffects& effects);
  // Under NodeReadout::of_gpu.
  void put(NodeReadout& out) const;

  // One that the driver had to replace, as happens to healthy GPUs too.
  void remap_row() {
    remap_pending_ = true;
    ++remapped_correctable_;
  }
  bool lost() const { return lost_; }
  int32_t lanes() const { return lanes_; }
  int32_t generation() const { return generation_; }
  double aer_correctable() const { return pcie_correctable_; }
  double joules() const { return energy_; }

 private:
  void advance_power(const Moment& moment, const GpuActivity& activity, bool held, const GpuEffects& effects);
  void advance_errors(const Moment& moment, bool held, const GpuEffects& effects);
  void advance_traffic(const Moment& moment, const GpuActivity& activity, const GpuEffects& effects);
  void put_errors(NodeReadout& out) const;
  void put_links(NodeReadout& out) const;

  Noise noise_;
  // Of this GPU for its life.
  double cap_share_, compute_watts_, waiting_watts_, resistance_, memory_above_, tensor_, drip_per_s_, hot_blips_;
  double memory_bytes_;
  // Now.
  bool started_ = false, held_ = false, lost_ = false;
  double busy_ = 0, waiting_ = 0, engine_ = 0, sm_ = 0, occupancy_ = 0, tensor_active_ = 0, dram_ = 0, drift_ = 0;
  double utilization_ = 0, memory_controller_ = 0, used_bytes_ = 0;
  double watts_ = 0, instant_watts_ = 0, limit_ = 700, celsius_ = 40, memory_celsius_ = 45, hertz_ = 0;
  int32_t lanes_ = 16, generation_ = 5, recovery_action_ = 0, links_down_ = 0, link_bad_ = -1;
  bool link_is_down_ = false, remap_pending_ = false, remap_failure_ = false, uncorrected_reported_ = false;
  double transmit_rate_ = 0, receive_rate_ = 0, link_rate_ = 0;
  // Since the driver was loaded, or in the life of the GPU.
  double energy_ = 0, power_s_ = 0, thermal_s_ = 0, sw_thermal_s_ = 0, hw_thermal_s_ = 0, brake_s_ = 0, low_s_ = 0;
  double below_app_s_ = 0, below_base_s_ = 0;
  double corrected_ = 0, uncorrected_ = 0, corrected_before_ = 0, uncorrected_before_ = 0, sram_corrected_ = 0;
  double remapped_correctable_ = 0, remapped_uncorrectable_ = 0;
  double replays_ = 0, pcie_correctable_ = 0, pcie_recoveries_ = 0, transmit_ = 0, receive_ = 0;
  double links_bytes_ = 0, links_before_ = 0;
  std::array<double, kNvLinks> link_bytes_{}, link_crc_{}, link_replays_{}, link_recoveries_{};
};

}  // namespace lockstep::sim
