#include "sim/node/effects.h"

#include <algorithm>
#include <cmath>

#include "sim/node/noise.h"

namespace lockstep::sim {
namespace {

constexpr double kAmountMost = 10;  // beyond, a node looks no worse
constexpr double kGiB = 1024.0 * 1024 * 1024;

double share(double value) {
  return std::clamp(value, 0.0, 1.0);
}

// One fault on one node, with everything it may touch.
struct Scene {
  const Topology& topology;
  int32_t host;
  std::span<const GpuActivity> activity;
  const ActingFault& acting;
  Character character;
  Effects& out;

  double amount() const { return std::min(acting.amount, kAmountMost); }
  bool hits(size_t gpu) const { return acting.gpu < 0 || static_cast<size_t>(acting.gpu) == gpu; }
  // The fault is about this very host or rank, not only felt here.
  bool is_target(size_t gpu) const {
    const Target& target = acting.fault->target;
    if (target.host >= 0) return target.host == host;
    if (target.rank == kNoRank || gpu >= activity.size()) return target.rank == kNoRank;
    const Identity& identity = activity[gpu].identity;
    return identity.rank == target.rank && (target.job.empty() || identity.job_id == target.job);
  }
  template <typename Change>
  void each_gpu(Change change) const {
    for (size_t i = 0; i < out.gpus.size(); ++i) {
      if (hits(i)) change(i);
    }
  }
};

void throttle_thermal(const Scene& scene) {
  scene.each_gpu([&](size_t i) {
    GpuEffects& gpu = scene.out.gpus[i];
    gpu.slower += scene.amount();
    gpu.thermal = share(gpu.thermal + 0.25 + 2 * scene.amount());
    gpu.thermal_by_hardware = scene.character.shows("hardware", 0.3);
    gpu.hot = true;
    gpu.hot_memory = !scene.character.shows("die temperature", 0.85);
  });
}

void throttle_power(const Scene& scene) {
  scene.each_gpu([&](size_t i) {
    GpuEffects& gpu = scene.out.gpus[i];
    gpu.slower += scene.amount();
    gpu.power_cap = share(gpu.power_cap + 0.3 + 2 * scene.amount());
    const double how = scene.character.draw("way");
    if (how < 0.5) {
      gpu.limit_lowered = true;
    } else if (how < 0.75) {
      gpu.power_brake = share(0.3 + 2 * scene.amount());
    }  // else: at its full limit, where its peers are below theirs
  });
}

void ecc(const Scene& scene) {
  const EccStory story = ecc_story(scene.character);
  scene.each_gpu([&](size_t i) {
    GpuEffects& gpu = scene.out.gpus[i];
    gpu.corrected_per_s += 2 + 60 * scene.amount();
    gpu.remap_pending |= story != EccStory::kCorrectedOnly;
    gpu.remap_failure |= story == EccStory::kRemapFailed;
    if (story == EccStory::kContained) gpu.uncorrected = 1;
    if (story == EccStory::kRemapFailed) gpu.recovery_action = 1;
  });
}

void xid(const Scene& scene) {
  const int32_t code = xid_of(scene.character);
  scene.each_gpu([&](size_t i) {
    GpuEffects& gpu = scene.out.gpus[i];
    switch (code) {
      case 79:
        gpu.lost = true;
        break;
      case 48:
        gpu.uncorrected = 1;
        gpu.recovery_action = 1;
        break;
      case 94:
        gpu.uncorrected = 1;
        gpu.remap_pending = true;
        break;
      case 62:
      case 109:
      case 119:
        gpu.recovery_action = 1;
        break;
      default:  // a fault of the program: the GPU is well
        break;
    }
    scene.out.ranks[i].gone |= code == 79 || code == 31 || code == 13 || code == 48 || code == 94;
  });
}

void foreign_process(const Scene& scene) {
  scene.each_gpu([&](size_t i) {
    GpuEffects& gpu = scene.out.gpus[i];
    // What the rank's kernels lose somebody else has; in the rank's own waiting that somebody has more.
    gpu.foreign = share(scene.amount() / (1 + scene.amount()) + 0.05);
    gpu.foreign_bytes = kGiB * (1 + 11 * scene.character.draw("memory"));
  });
}

void pcie_degraded(const Scene& scene) {
  const bool adapter_side = on_adapter_side(scene.character);
  const bool fewer_lanes = scene.character.shows("lanes", 0.6);
  const bool errors = scene.character.shows("replays", 0.85);
  scene.each_gpu([&](size_t i) {
    GpuEffects& gpu = scene.out.gpus[i];
    NicEffects& nic = scene.out.nics[i];
    // Half the lanes, or a generation less, is twice the time.
    const int32_t lanes = scene.amount() > 2.5 ? 4 : 8;
    if (adapter_side) {
      nic.lanes = lanes;
      if (errors) nic.aer_per_s += 0.5 + 4 * scene.amount();
    } else {
      if (fewer_lanes) {
        gpu.lanes = lanes;
      } else {
        gpu.generation = scene.amount() > 2.5 ? 2 : scene.amount() > 1.5 ? 3 : 4;
      }
      if (errors) gpu.pcie_errors_per_s += 1 + 10 * scene.amount();
    }
    nic.pci_stalled = share(nic.pci_stalled + 0.05 + 0.5 * scene.amount());
  });
}

void starved_proxy(const Scene& scene) {
  scene.each_gpu([&](size_t i) { scene.out.ranks[i].nccl_wait += share(0.1 + 0.3 * scene.amount()); });
}

void cpu_contention(const Scene& scene) {
  if (scene.acting.fault->thread != ScenarioFault::Thread::kAll) return starved_proxy(scene);
  const double how = scene.character.draw("way");
  const bool neighbours = how < 0.5, quota = how >= 0.5 && how < 0.8;
  scene.each_gpu([&](size_t i) {
    RankEffects& rank = scene.out.ranks[i];
    rank.trainer_wait += 0.9 * scene.amount();
    rank.nccl_wait += 0.5 * scene.amount();
    rank.loader_wait += 0.4 * scene.amount();
    if (quota) rank.throttled += 0.8 * scene.amount();
  });
  HostEffects& host = scene.out.host;
  if (neighbours) {
    host.busy_cores += 60 + 250 * scene.amount();
    host.cpu_pressure += 0.1 + 0.7 * scene.amount();
  } else if (!quota) {
    host.steal += 4 + 60 * scene.amount();
    host.cpu_pressure += 0.05 + 0.2 * scene.amount();
  }
}

void memory_pressure(const Scene& scene) {
  HostEffects& host = scene.out.host;
  host.memory_pressure += 0.05 + 0.7 * scene.amount();
  host.swaps |= scene.character.shows("swap", 0.5);
  host.io_pressure += host.swaps ? 0.02 + 0.1 * scene.amount() : 0;
  scene.each_gpu([&](size_t i) {
    scene.out.ranks[i].stalled_memory += 0.02 + 0.8 * scene.amount();
    scene.out.ranks[i].trainer_wait += 0.02 * scene.amount();
  });
}

void data_loader(const Scene& scene) {
  const bool short_of_cpu = scene.character.shows("cpu", 0.7);
  scene.each_gpu([&](size_t i) {
    RankEffects& rank = scene.out.ranks[i];
    rank.loader_cpu += short_of_cpu ? 2 + 4 * scene.amount() : 3 + 6 * scene.amount();
    if (short_of_cpu) rank.loader_wait += 0.15 + 1.2 * scene.amount();
  });
}

void storage(const Scene& scene) {
  const bool local = scene.character.shows("local disk", 0.2);
  HostEffects& host = scene.out.host;
  const bool pressure = scene.character.shows("pressure", 0.9);
  if (pressure) host.io_pressure += 0.05 + 0.6 * scene.amount();
  if (local) {
    host.disk_latency += 4 + 30 * scene.amount();
  } else {
    host.file_latency += 4 + 40 * scene.amount();
    host.file_timeouts += scene.amount() > 0.4 ? 0.1 : 0;
  }
  scene.each_gpu([&](size_t i) {
    RankEffects& rank = scene.out.ranks[i];
    if (pressure) rank.stalled_io += 0.02 + 0.5 * scene.amount();
    rank.loader_idle = share(rank.loader_idle + scene.amount());
    rank.blocked += scene.amount() > 0.05 ? 1 + 3 * scene.amount() : 0.3;
  });
}

void checkpoint(const Scene& scene) {
  HostEffects& host = scene.out.host;
  host.write_bytes_per_s += 1.5e9 * (0.3 + scene.amount());
  host.writes_local |= scene.character.shows("local disk", 0.3);
  host.io_pressure += 0.03 + 0.2 * scene.amount();
  scene.each_gpu([&](size_t i) {
    scene.out.ranks[i].stalled_io += 0.02 + 0.2 * scene.amount();
    scene.out.ranks[i].blocked += 0.5;
  });
}

void nvlink_degraded(const Scene& scene) {
  const bool down = nvlink_goes_down(scene.character);
  const int32_t link = static_cast<int32_t>(scene.character.draw("link") * kNvLinks);
  const bool errors = !down || scene.character.shows("errors", 0.8);
  scene.each_gpu([&](size_t i) {
    GpuEffects& gpu = scene.out.gpus[i];
    gpu.link_hit = std::clamp(link, 0, kNvLinks - 1);
    gpu.link_down |= down;
    if (errors) gpu.link_errors_per_s += down ? 0.5 : 2 + 40 * scene.amount();
  });
}

void nic_degraded(const Scene& scene) {
  const bool down = nic_trains_down(scene.character);
  const bool bits = damages_packets(scene.character);
  const bool retransmits = !down || scene.character.shows("retransmits", 0.5);
  scene.each_gpu([&](size_t i) {
    NicEffects& nic = scene.out.nics[i];
    // Links train in halves.
    if (down) nic.rate = scene.amount() > 2.5 ? 0.25 : 0.5;
    if (bits) nic.bit_errors += 2000 * (0.2 + scene.amount());
    if (retransmits) {
      nic.lost_per_packet += 1e-6 * (0.5 + 5 * scene.amount());
      nic.slow_restarts_per_s += 0.2 + 2 * scene.amount();
    }
  });
}

void link_flap(const Scene& scene) {
  // The link's coming and going is an event (node_telemetry.cc); between them a bad link has more bit errors.
  if (!scene.character.shows("bit errors", 0.6)) return;
  scene.each_gpu([&](size_t i) { scene.out.nics[i].bit_errors += 50; });
}

void congestion(const Scene& scene) {
  // Of a link or a spine: the adapters whose flows cross it are hit, one by one.
  const int32_t leaf = scene.acting.fault->target.spine < 0 ? scene.acting.fault->target.leaf : -1;
  const bool pauses = scene.character.shows("pauses", 0.5);
  for (size_t i = 0; i < scene.out.nics.size(); ++i) {
    NicEffects& nic = scene.out.nics[i];
    const bool under = leaf >= 0 ? scene.topology.leaf_of(scene.host, static_cast<int32_t>(i)) == leaf : scene.hits(i);
    // At the other end of these flows: the peers are on the same rail, or anywhere where there are no rails.
    const bool peer =
        !under && leaf >= 0 && scene.hits(i) &&
        (!scene.topology.rails || leaf % std::max(1, scene.topology.gpus_per_host) == static_cast<int>(i));
    if (under) {
      nic.marked_sent += scene.amount();
      nic.marked_received += 0.6 * scene.amount();
      if (pauses) nic.paused = share(nic.paused + 0.01 + 0.05 * scene.amount());
    } else if (peer) {
      nic.marked_received += 0.5 * scene.amount();
      nic.marked_sent += 0.1 * scene.amount();
    }
  }
}

// What is lost between the switches is sent again by the adapters.
void link_degraded(const Scene& scene) {
  scene.each_gpu([&](size_t i) {
    NicEffects& nic = scene.out.nics[i];
    nic.lost_per_packet += 1e-6 * (0.5 + 5 * scene.amount());
    nic.slow_restarts_per_s += 0.2 + 2 * scene.amount();
  });
}

void pfc_storm(const Scene& scene) {
  const bool named = scene.acting.fault->target.leaf < 0;
  for (size_t i = 0; i < scene.out.nics.size(); ++i) {
    NicEffects& nic = scene.out.nics[i];
    if (!scene.hits(i)) continue;
    if (named && scene.is_target(i)) {
      nic.pausing = share(nic.pausing + 0.15 + 0.5 * scene.amount());
      nic.paused = share(nic.paused + 0.02);
    } else {
      nic.paused = share(nic.paused + 0.1 + 0.4 * scene.amount());
    }
    if (scene.character.shows("marks", 0.5)) nic.marked_sent += 0.3 * scene.amount();
  }
}

// What shows before a fault comes. How high it rises before it breaks, and whether steadily or faster and faster,
// differs by a factor of ten between two faults of a kind: nobody knows more about real ones.
void show_signs(const Scene& scene) {
  const Character& character = scene.character;
  const double sign = share(scene.acting.sign);
  const double risen = std::pow(sign, 1 + character.draw("curve"));
  const double high = std::pow(10, character.draw("height"));
  scene.each_gpu([&](size_t i) {
    GpuEffects& gpu = scene.out.gpus[i];
    switch (scene.acting.fault->cause) {
      case Cause::kEcc:
        gpu.corrected_per_s += 0.3 * high * risen;
        if (ecc_story(character) != EccStory::kCorrectedOnly)
          gpu.remap_pending |= sign > 0.3 + 0.6 * character.draw("remapped");
        break;
      case Cause::kThrottleThermal:
        if (!character.shows("die temperature", 0.85)) break;  // it is the memory, and the die shows nothing
        gpu.heating = std::max(gpu.heating, risen * (0.85 + 0.15 * character.draw("height")));
        break;
      case Cause::kSlowCompute:
        gpu.slower += drift_of(character, sign);
        break;
      case Cause::kNvlinkDegraded:
        gpu.link_hit = std::clamp(static_cast<int32_t>(character.draw("link") * kNvLinks), 0, kNvLinks - 1);
        gpu.link_errors_per_s += 0.3 * high * risen;
        break;
      case Cause::kNicDegraded:
      case Cause::kLinkFlap:
        scene.out.nics[i].bit_errors += 300 * high * risen;
        break;
      default:
        break;
    }
  });
}

void act(const Scene& scene) {
  if (scene.acting.sign > 0) return show_signs(scene);
  switch (scene.acting.fault->cause) {
    case Cause::kThrottleThermal:
      return throttle_thermal(scene);
    case Cause::kThrottlePower:
      return throttle_power(scene);
    case Cause::kEcc:
      return ecc(scene);
    case Cause::kXid:
      return xid(scene);
    case Cause::kForeignProcess:
      return foreign_process(scene);
    case Cause::kPcieDegraded:
      return pcie_degraded(scene);
    case Cause::kCpuContention:
      return cpu_contention(scene);
    case Cause::kMemoryPressure:
      return memory_pressure(scene);
    case Cause::kProcessPaused:
      return scene.each_gpu([&](size_t i) {
        RankEffects& rank = scene.out.ranks[i];
        const bool wholly = i < scene.activity.size() && scene.activity[i].busy <= 0;
        rank.stopped = wholly ? 1 : share(std::max(rank.stopped, scene.amount() / (1 + scene.amount())));
      });
    case Cause::kGc:
      return scene.each_gpu([&](size_t i) { scene.out.ranks[i].trainer_cpu += 0.2 * scene.amount(); });
    case Cause::kDataLoader:
      return data_loader(scene);
    case Cause::kStorage:
      return storage(scene);
    case Cause::kCheckpoint:
      return checkpoint(scene);
    case Cause::kNvlinkDegraded:
      return nvlink_degraded(scene);
    case Cause::kNicDegraded:
      return nic_degraded(scene);
    case Cause::kLinkFlap:
      return link_flap(scene);
    case Cause::kCongestion:
      return congestion(scene);
    case Cause::kPfcStorm:
      return pfc_storm(scene);
    case Cause::kLinkDegraded:
      return link_degraded(scene);
    case Cause::kSwitchDown:
      return scene.each_gpu([&](size_t i) { scene.out.nics[i].down = true; });
    case Cause::kTcpFallback:
      return scene.each_gpu([&](size_t i) { scene.out.nics[i].tcp = true; });
    case Cause::kRankDead:
      return scene.each_gpu([&](size_t i) {
        scene.out.ranks[i].gone = true;
        scene.out.ranks[i].out_of_memory |= killed_for_memory(scene.character);
      });
    // A node shows nothing of these but what follows: who waits, and who works. A clock that has drifted stays low.
    case Cause::kSlowCompute:
      if (scene.acting.fault->precursor_s > 0)
        scene.each_gpu([&](size_t i) { scene.out.gpus[i].slower += scene.amount(); });
      return;
    case Cause::kStageImbalance:
    case Cause::kSequenceImbalance:
    case Cause::kExpertImbalance:
    case Cause::kRankMissing:
    case Cause::kOpMismatch:
    case Cause::kDeadlock:
    case Cause::kCodeRegression:
    case Cause::kNanSource:
    // Not played.
    case Cause::kInOperationStall:
    case Cause::kLossSpike:
    case Cause::kLessWork:
    case Cause::kNone:
      return;
  }
}

}  // namespace

Character::Character(uint64_t scenario_seed, const ScenarioFault& fault) {
  const Target& target = fault.target;
  seed_ = mixed(scenario_seed, target.job);
  // Its place among the causes that are played, not in the whole table: the same scenario stays the same fleet.
  const std::span<const Cause> causes = playable_causes();
  const int64_t place = std::find(causes.begin(), causes.end(), fault.cause) - causes.begin();
  for (int64_t part :
       {place, fault.from_step.value(), static_cast<int64_t>(target.rank.value()), static_cast<int64_t>(target.host),
        static_cast<int64_t>(target.stage), static_cast<int64_t>(target.leaf), static_cast<int64_t>(target.expert)}) {
    seed_ = mixed(seed_, static_cast<uint64_t>(part));
  }
  if (target.spine >= 0) seed_ = mixed(seed_, static_cast<uint64_t>(target.spine));
}

double Character::draw(std::string_view name) const {
  return unit_of(mixed(seed_, name));
}

int32_t xid_of(const Character& character) {
  struct Choice {
    int32_t code;
    double until;
  };
  // About as often as they are reported of H100s: lost GPUs, program faults, memory, firmware.
  constexpr Choice kChoices[] = {{79, 0.3}, {31, 0.5}, {13, 0.55}, {48, 0.7}, {94, 0.8}, {119, 0.92}, {109, 0.97}};
  const double drawn = character.draw("xid");
  for (const Choice& choice : kChoices) {
    if (drawn < choice.until) return choice.code;
  }
  return 62;
}

EccStory ecc_story(const Character& character) {
  const double drawn = character.draw("story");
  return drawn < 0.35   ? EccStory::kCorrectedOnly
         : drawn < 0.75 ? EccStory::kRemapped
         : drawn < 0.9  ? EccStory::kContained
                        : EccStory::kRemapFailed;
}

double drift_of(const Character& character, double sign) {
  return (0.02 + 0.015 * character.draw("height")) * std::pow(share(sign), 1 + character.draw("curve"));
}

bool nvlink_goes_down(const Character& character) {
  return character.shows("link down", 0.4);
}

bool damages_packets(const Character& character) {
  return !nic_trains_down(character) && character.shows("bit errors", 0.6);
}

bool shares_with_others(const Character& character) {
  return character.shows("another tenant", 0.6);
}

bool nic_trains_down(const Character& character) {
  return character.shows("trained down", 0.35);
}

bool on_adapter_side(const Character& character) {
  return character.shows("adapter", 0.3);
}

bool killed_for_memory(const Character& character) {
  return character.shows("out of memory", 0.4);
}

void act(const Topology& topology, uint64_t scenario_seed, int32_t host, std::span<const GpuActivity> gpus,
         std::span<const ActingFault> acting, Effects& out) {
  const size_t count = static_cast<size_t>(std::max(1, topology.gpus_per_host));
  out.gpus.assign(count, {});
  out.nics.assign(count, {});
  out.ranks.assign(count, {});
  out.host = {};
  for (const ActingFault& each : acting) {
    if (each.fault == nullptr || !(each.amount > 0 || each.sign > 0)) continue;
    act(Scene{topology, host, gpus, each, Character(scenario_seed, *each.fault), out});
  }
}

}  // namespace lockstep::sim
