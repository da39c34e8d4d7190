// One RDMA adapter (RoCE, mlx5) of a simulated node and the PCIe devices beside it: counters as sysfs, ethtool and the
// kernel would tell them. Some marks, notifications, pauses and packets out of sequence come with any load.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>

#include "sim/node/effects.h"
#include "sim/node/gpu_model.h"
#include "sim/node/node_series.h"
#include "sim/node/noise.h"

namespace lockstep::sim {

// How things are called on every node of this kind.
std::string nic_device(int32_t index);     // "mlx5_3"
std::string nic_interface(int32_t index);  // "ens13np0"
std::string nic_pci(int32_t index);
std::string gpu_pci(int32_t index);
int32_t numa_node(int32_t index, int32_t count);

class NicModel {
 public:
  NicModel(uint64_t seed, int32_t index, double bytes_per_second);

  // held: a job's process uses it.
  void advance(const Moment& moment, const GpuActivity& activity, bool held, const NicEffects& effects);
  // Under the node, then under the GPU beside it.
  void put(NodeReadout& out) const;
  void put_of_gpu(NodeReadout& out, int32_t nics) const;
  // The PCIe device of the GPU beside it, which the same source reads.
  void put_gpu_device(NodeReadout& out, const GpuModel& gpu) const;

  void flap();  // its link goes down now
  void come_back();
  bool up() const { return up_; }
  double speed() const { return bytes_per_second_ * rate_; }
  int32_t lanes() const { return lanes_; }
  int32_t index() const { return index_; }
  void process_ended() { flushed_ += 40; }  // its connections were torn down

 private:
  // What went through it in a moment: bytes and packets by RDMA, and bytes that the interface itself received.
  struct Carried {
    double seconds = 0;
    double rdma_out = 0, rdma_in = 0;
    double packets_out = 0, packets_in = 0;
    double plain_in = 0;
  };
  Carried carry(double seconds, const GpuActivity& activity, bool down);
  void congest(const Carried& now, const NicEffects& effects);
  void lose(const Carried& now, const NicEffects& effects);
  void mend_bits(const Carried& now, const NicEffects& effects);
  void stall_bus(double seconds, const NicEffects& effects);
  void put_port(NodeReadout& out) const;
  void put_interface(NodeReadout& out) const;

  Noise noise_;
  int32_t index_;
  double bytes_per_second_;
  double marks_, stray_, pauses_, bits_;  // of this port for its life
  bool up_ = true, held_ = false, tcp_ = false;
  double rate_ = 1, burst_ = 0, stalled_read_ = 0, stalled_write_ = 0;
  int32_t lanes_ = 16;
  double sent_ = 0, received_ = 0, packets_sent_ = 0, packets_received_ = 0, wait_ = 0, discards_ = 0;
  double symbol_ = 0, link_downed_ = 0, out_of_sequence_ = 0, duplicate_ = 0, sequence_error_ = 0, timeout_ = 0;
  double handled_ = 0, marked_ = 0, notified_ = 0, retransmitted_ = 0, slow_restarts_ = 0, flushed_ = 0, writes_ = 0;
  double plain_sent_ = 0, plain_received_ = 0, plain_packets_sent_ = 0, plain_packets_received_ = 0;
  double carrier_changes_ = 1, pause_frames_received_ = 0, pause_frames_sent_ = 0, pause_received_s_ = 0;
  double pause_sent_s_ = 0, storm_warnings_ = 0, received_bits_ = 0, corrected_bits_ = 0, corrected_blocks_ = 0;
  double uncorrectable_ = 0, crc_ = 0, pcs_symbols_ = 0, passed_threshold_ = 0, phy_discards_ = 0;
  double stalled_read_s_ = 0, stalled_write_s_ = 0, signal_ = 0, aer_ = 0;
};

}  // namespace lockstep::sim
