// What the faults that act on a node do to its parts in this moment: the one place that says which cause moves what
// (docs/guide/scenario-signals.md). The models of GPU, adapter, rank and host know no causes; they know physics.
//
// A fault has a character: which of several ways it shows itself in, and which of the signals that one would expect
// with it are missing this time. Character comes from the scenario's seed and the fault, so that all hosts that it
// acts on agree.
// Thread rule: Immutable values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/node/node_telemetry.h"
#include "sim/scenario/scenario.h"

namespace lockstep::sim {

inline constexpr int32_t kNvLinks = 18;

struct GpuEffects {
  double slower = 0;   // clocks are held back so that kernels take 1 + this
  double thermal = 0;  // share of the time held back for heat
  bool thermal_by_hardware = false;
  bool hot_memory = false;  // it is the memory that is hot; the die's sensor shows nothing
  bool hot = false;
  double heating = 0;    // how far it is on its way from its usual temperature to where it slows down
  double power_cap = 0;  // share of the time held back for power
  bool limit_lowered = false;
  double power_brake = 0;
  double foreign = 0;  // share of the GPU that somebody else takes
  double foreign_bytes = 0;
  double corrected_per_s = 0;  // ECC
  int32_t uncorrected = 0;
  bool sram = false;
  bool remap_pending = false;
  bool remap_failure = false;
  bool lost = false;
  int32_t recovery_action = 0;
  int32_t lanes = 16;
  int32_t generation = 5;
  double pcie_errors_per_s = 0;
  int32_t link_hit = -1;  // the NVLink that is bad
  bool link_down = false;
  double link_errors_per_s = 0;
};

struct NicEffects {
  double rate = 1;             // of the link's speed, as it trained
  double bit_errors = 0;       // times the healthy rate of bit errors is multiplied, minus one
  double lost_per_packet = 0;  // packets that had to be sent again
  double slow_restarts_per_s = 0;
  double marked_sent = 0;      // congestion met by what it sends
  double marked_received = 0;  // and by what it receives
  double paused = 0;           // share of the time in which the fabric stopped it
  double pausing = 0;          // share of the time in which it stopped the switch
  bool tcp = false;            // the job does not use RDMA at all
  bool down = false;           // the switch behind its link is gone
  double pci_stalled = 0;
  int32_t lanes = 16;
  double aer_per_s = 0;
};

// The processes of one GPU's rank.
struct RankEffects {
  double trainer_wait = 0;  // share of the time ready and without a CPU
  double nccl_wait = 0;
  double loader_wait = 0;
  double loader_cpu = 0;   // cores more
  double loader_idle = 0;  // share of its work that it does not do, because it waits for files
  double trainer_cpu = 0;
  double throttled = 0;  // by the quota of its cgroup
  double stalled_memory = 0;
  double stalled_io = 0;
  double stopped = 0;  // share of the time stopped by a signal
  double blocked = 0;  // tasks in state D
  bool gone = false;
  bool out_of_memory = false;
};

struct HostEffects {
  double busy_cores = 0;  // of others
  double steal = 0;       // cores
  double cpu_pressure = 0;
  double memory_pressure = 0;
  bool swaps = false;
  double file_latency = 0;  // file server: times slower, minus one
  double file_timeouts = 0;
  double disk_latency = 0;
  double write_bytes_per_s = 0;
  bool writes_local = false;
  double io_pressure = 0;
};

struct Effects {
  std::vector<GpuEffects> gpus;
  std::vector<NicEffects> nics;
  std::vector<RankEffects> ranks;
  HostEffects host;
};

// Of one fault in one scenario.
class Character {
 public:
  Character(uint64_t scenario_seed, const ScenarioFault& fault);
  // One draw for each name, always the same.
  double draw(std::string_view name) const;
  bool shows(std::string_view name, double probability) const { return draw(name) < probability; }

 private:
  uint64_t seed_;
};

// Which number an XID of this fault has.
int32_t xid_of(const Character& character);
enum class EccStory : uint8_t { kCorrectedOnly, kRemapped, kContained, kRemapFailed };
EccStory ecc_story(const Character& character);
bool nvlink_goes_down(const Character& character);
bool nic_trains_down(const Character& character);
bool damages_packets(const Character& character);     // a bad adapter or its cable: errors on the wire
bool shares_with_others(const Character& character);  // congestion: by another tenant's traffic; else by its own alone
bool on_adapter_side(const Character& character);     // of a bad PCIe link; else the GPU's
bool killed_for_memory(const Character& character);

// Clocks drift before a GPU gets slow without a reason: kernels take 1 + this when signs have risen so far.
double drift_of(const Character& character, double sign);

// Fills `out` from scratch. host: its number.
void act(const Topology& topology, uint64_t scenario_seed, int32_t host, std::span<const GpuActivity> gpus,
         std::span<const ActingFault> acting, Effects& out);

}  // namespace lockstep::sim
