#include "sim/node/gpu_model.h"

#include <algorithm>
#include <cmath>

#include "sources/gpu/gpu_metrics.h"

namespace lockstep::sim {
namespace {

using enum Pace;
using enum Part;

constexpr double kLimitWatts = 700;
constexpr double kIdleWatts = 72, kHeldWatts = 118;
constexpr double kMaxHertz = 1980e6, kBaseHertz = 1590e6, kRestHertz = 345e6, kMemoryHertz = 2619e6;
constexpr double kClockStep = 15e6;
constexpr double kSlowdownCelsius = 87;
constexpr double kMiB = 1024.0 * 1024;
constexpr double kMemoryTotal = 81559 * kMiB;
constexpr double kReserved = 551 * kMiB;

constexpr const char* kLinkNames[kNvLinks] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",
                                              "9", "10", "11", "12", "13", "14", "15", "16", "17"};

// Towards `target`, in about `time_constant` seconds.
double approach(double now, double target, double seconds, double time_constant) {
  return target + (now - target) * std::exp(-seconds / time_constant);
}

void put_one(NodeReadout& out, GpuMetric metric, Pace pace, Part part, double value) {
  const char* label = kGpuLabelValues[static_cast<size_t>(metric)];
  const MetricDescriptor& row = gpu_metric(metric);
  if (label[0] == '\0') return out.put(row, {}, pace, part, value);
  // "gpu_uuid, reason": the second is its own.
  const char* name = std::char_traits<char>::find(row.labels, std::char_traits<char>::length(row.labels), ' ') + 1;
  out.put(row, {{name, label}}, pace, part, value);
}

}  // namespace

GpuModel::GpuModel(uint64_t seed, int32_t index) : noise_(mixed(seed, static_cast<uint64_t>(index) + 100)) {
  Noise traits(mixed(seed, static_cast<uint64_t>(index) + 9000));
  cap_share_ = traits.between(0, 0.35);
  compute_watts_ = std::min(697.0, 590 + 320 * cap_share_ + 8 * traits.gauss());
  waiting_watts_ = traits.between(195, 245);
  resistance_ = traits.between(0.052, 0.07);
  memory_above_ = traits.between(6, 12);
  tensor_ = traits.between(0.5, 0.56);
  memory_bytes_ = traits.between(62, 74) * 1024 * kMiB;
  const double luck = traits.uniform();
  drip_per_s_ = luck < 0.03 ? 1.0 / 60 : 1.0 / 14400;  // some drip corrected errors for years
  hot_blips_ = traits.uniform() < 0.04 ? 0.02 : 0;     // some sit at the warm end of the node
  if (hot_blips_ > 0) resistance_ += 0.008;
  corrected_before_ = traits.count(luck < 0.03 ? 400 : 0.6);
  remapped_correctable_ = traits.uniform() < 0.02 ? 1 : 0;
  remapped_uncorrectable_ = traits.uniform() < 0.02 ? 1 : 0;
  remap_pending_ = traits.uniform() < 0.006;  // for months, until somebody resets the GPU
  uncorrected_before_ = remapped_uncorrectable_;
  energy_ = traits.standing(1e9, 2e10);
  power_s_ = traits.standing(1e4, 3e5);
  low_s_ = traits.standing(1e4, 4e5);
  below_app_s_ = power_s_;
  thermal_s_ = sw_thermal_s_ = hot_blips_ > 0 ? traits.between(5, 60) : traits.uniform();
  replays_ = traits.count(0.4);
  pcie_correctable_ = traits.count(0.8);
  transmit_ = traits.standing(1e14, 1e15);
  receive_ = traits.standing(1e14, 1e15);
  links_before_ = traits.standing(1e15, 1e16);
  links_bytes_ = links_before_;
  link_bytes_.fill(std::floor(links_before_ / kNvLinks));
  for (double& replays : link_replays_) replays = traits.count(0.1);
}

void GpuModel::advance(const Moment& moment, const GpuActivity& activity, bool held, const GpuEffects& effects) {
  held_ = held;
  busy_ = std::clamp(activity.busy, 0.0, 1.0);
  waiting_ = std::clamp(activity.communicating, 0.0, 1.0 - busy_);
  if (!held) busy_ = waiting_ = 0;
  lost_ = effects.lost || (lost_ && busy_ + waiting_ <= 0);

  const double foreign = effects.foreign;
  drift_ = 0.9 * drift_ + 0.004 * noise_.gauss();
  const double wobble = noise_.gauss();
  engine_ = std::clamp(busy_ + waiting_ + foreign * (1 - busy_ - waiting_) - 0.004 * std::abs(wobble), 0.0, 1.0);
  utilization_ = std::min(1.0, std::round(100 * std::min(1.0, 1.02 * engine_)) / 100);
  // NCCL's kernels sit on about one SM in seven; a stranger's fill what the rank leaves.
  const double own_sm = busy_ * (0.93 + drift_) + waiting_ * 0.15;
  sm_ = std::clamp(own_sm + foreign * (0.97 - own_sm) + 0.004 * wobble * (held ? 1 : 0), 0.0, 1.0);
  occupancy_ = std::clamp(0.32 * sm_ + 0.004 * noise_.gauss() * (held ? 1 : 0), 0.0, 1.0);
  tensor_active_ = std::clamp(busy_ * (tensor_ + drift_) + 0.002 * noise_.gauss() * (held ? 1 : 0), 0.0, 1.0);
  dram_ = std::clamp(busy_ * (0.42 + drift_) + waiting_ * 0.05 + foreign * 0.15, 0.0, 1.0);
  memory_controller_ = std::clamp(busy_ * 0.62 + waiting_ * 0.1 + foreign * 0.2 + 0.01 * noise_.gauss(), 0.0, 1.0);
  used_bytes_ = std::min(kMemoryTotal - kReserved, (held ? memory_bytes_ : 4 * kMiB) + effects.foreign_bytes);

  advance_power(moment, activity, held, effects);
  advance_errors(moment, held, effects);
  advance_traffic(moment, activity, effects);
  started_ = true;
}

void GpuModel::advance_power(const Moment& moment, const GpuActivity&, bool held, const GpuEffects& effects) {
  const double seconds = moment.seconds;
  const double slower = effects.slower;
  // Power falls faster than the clock: the voltage goes with it.
  const double relief = std::pow(1 + slower, -1.6);
  double working = compute_watts_ * relief;
  limit_ = kLimitWatts;
  if (effects.limit_lowered) {
    limit_ = std::max(200.0, std::round(working / 10) * 10);
    working = limit_ - 2;
  } else if (effects.power_cap > 0 && effects.power_brake <= 0) {
    working = kLimitWatts - 3;  // it needs all of its limit and gets less done with it
  }
  const double idle = held ? kHeldWatts : kIdleWatts;
  const double rest = std::max(0.0, 1 - busy_ - waiting_);
  watts_ = working * busy_ + waiting_watts_ * waiting_ + rest * (idle + effects.foreign * 300);
  watts_ = std::min(limit_, watts_ * (1 + 0.008 * noise_.gauss()));
  const double moment_watts = noise_.uniform();
  instant_watts_ = moment_watts < busy_              ? std::min(limit_, working * 1.01)
                   : moment_watts < busy_ + waiting_ ? waiting_watts_
                                                     : idle;
  energy_ += watts_ * seconds;

  double target = moment.inlet + resistance_ * watts_;
  target += effects.heating * std::max(0.0, kSlowdownCelsius - target);
  double time_constant = 30;
  if (effects.hot && !effects.hot_memory) {
    target = std::max(target, kSlowdownCelsius + 0.5);
    time_constant = 3;
    celsius_ = std::max(celsius_, kSlowdownCelsius - 2);  // it slows down because it is hot, not before
  }
  celsius_ = started_ ? approach(celsius_, target, seconds, time_constant)
                      : (effects.hot && !effects.hot_memory ? kSlowdownCelsius : target);
  celsius_ += 0.25 * noise_.gauss();
  memory_celsius_ = celsius_ + memory_above_ * (0.3 + 0.7 * (busy_ + 0.3 * waiting_));
  if (effects.hot_memory) memory_celsius_ = std::max(memory_celsius_, 97.0);

  // Where there is work, many are at their power limit for a part of it, and clock a little lower.
  const double capped = busy_ * std::clamp(cap_share_ * (1 + 0.15 * noise_.gauss()), 0.0, 1.0);
  double hertz = kMaxHertz * (1 - moment.heat) - 420e6 * cap_share_ * busy_ + 6e6 * noise_.gauss();
  hertz /= 1 + slower * std::min(1.0, busy_ * 1.2);
  if (!held && effects.foreign <= 0) hertz = kRestHertz;
  hertz_ = std::clamp(std::round(hertz / kClockStep) * kClockStep, kRestHertz, kMaxHertz);

  const double blip = noise_.count(hot_blips_ * seconds) * 0.02 * busy_;
  thermal_s_ += blip + effects.thermal * busy_ * seconds;
  sw_thermal_s_ += blip + (effects.thermal_by_hardware ? 0 : effects.thermal * busy_ * seconds);
  hw_thermal_s_ += effects.thermal_by_hardware ? effects.thermal * busy_ * seconds : 0;
  power_s_ += seconds * std::min(1.0, capped + effects.power_cap * busy_);
  brake_s_ += seconds * effects.power_brake * busy_;
  low_s_ += seconds * rest;
  below_app_s_ += seconds * std::min(1.0, capped + (slower > 0 ? busy_ : 0));
  below_base_s_ += hertz_ < kBaseHertz && held ? seconds * busy_ : 0;
}

void GpuModel::advance_errors(const Moment& moment, bool held, const GpuEffects& effects) {
  const double seconds = moment.seconds;
  corrected_ += noise_.count((drip_per_s_ + effects.corrected_per_s) * seconds);
  sram_corrected_ += noise_.count(seconds / 80000);
  if (effects.uncorrected > 0 && !uncorrected_reported_) uncorrected_ += effects.uncorrected;
  uncorrected_reported_ |= effects.uncorrected > 0;
  if (effects.remap_pending && !remap_pending_) {
    (effects.uncorrected > 0 ? remapped_uncorrectable_ : remapped_correctable_) += 1;
  }
  remap_pending_ |= effects.remap_pending;
  remap_failure_ |= effects.remap_failure;
  recovery_action_ = std::max(recovery_action_, effects.recovery_action);

  lanes_ = effects.lanes;
  generation_ = held || effects.foreign > 0 ? effects.generation : 1;  // at rest the link is slow on purpose
  const double errors = noise_.count((1e-4 + effects.pcie_errors_per_s) * seconds);
  replays_ += errors;
  pcie_correctable_ += errors + noise_.count(1e-4 * seconds);
  pcie_recoveries_ += noise_.count((1e-5 + 0.05 * effects.pcie_errors_per_s) * seconds);

  const bool was_down = link_is_down_;
  link_is_down_ = effects.link_down;
  link_bad_ = effects.link_hit;
  if (link_is_down_ && !was_down) ++links_down_;
  const double link_errors = noise_.count(effects.link_errors_per_s * seconds);
  const double recoveries = noise_.count(0.1 * effects.link_errors_per_s * seconds);
  const size_t harmless = static_cast<size_t>(noise_.word() % kNvLinks);
  const double stray = noise_.count(3e-4 * seconds);
  link_replays_[harmless] += stray;
  if (link_bad_ >= 0) {
    const size_t bad = static_cast<size_t>(link_bad_);
    link_crc_[bad] += link_errors;
    link_replays_[bad] += link_errors;
    link_recoveries_[bad] += recoveries + (link_is_down_ && !was_down ? 1 : 0);
  }
}

void GpuModel::advance_traffic(const Moment& moment, const GpuActivity& activity, const GpuEffects&) {
  const double seconds = moment.seconds;
  // Copies of input and checkpoints, besides what adapters read and write in its memory.
  const double copies = held_ ? (1.5e8 * (1 + 0.1 * noise_.gauss()) * (busy_ + 0.1)) * seconds : 0;
  const double sent = static_cast<double>(std::max<int64_t>(0, activity.sent_bytes));
  const double received = static_cast<double>(std::max<int64_t>(0, activity.received_bytes));
  transmit_ += 0.2 * copies + sent;
  receive_ += copies + received;
  transmit_rate_ = (0.2 * copies + sent) * 1.06 / seconds;
  receive_rate_ = (copies + received) * 1.06 / seconds;
  const double nvlink = static_cast<double>(std::max<int64_t>(0, activity.nvlink_bytes));
  link_rate_ = nvlink / seconds;
  links_bytes_ += nvlink;
  const int32_t up = kNvLinks - (link_is_down_ ? 1 : 0);
  for (int32_t link = 0; link < kNvLinks; ++link) {
    if (link_is_down_ && link == link_bad_) continue;
    link_bytes_[static_cast<size_t>(link)] += nvlink / up;
  }
}

void GpuModel::put(NodeReadout& out) const {
  using enum GpuMetric;
  // A GPU that is lost answers nothing any more, but that it is lost.
  const bool lost = lost_;
  auto one = [&](GpuMetric metric, Pace pace, Part part, double value) {
    put_one(out, metric, pace, part, lost ? kNotRead : value);
  };
  put_one(out, kUp, kFast, kCore, lost ? 0 : 1);
  one(kReadSeconds, kFast, kRest, 0.0021);
  one(kRecoveryAction, kSlow, kCore, recovery_action_);
  one(kFabricState, kSlow, kRest, 3);
  one(kFabricStatus, kSlow, kRest, 0);
  one(kFabricHealth, kSlow, kCore, link_is_down_ ? 3 : 1);
  one(kFabricHealthMask, kSlow, kRest, link_is_down_ ? 1 : 2);
  one(kFabricDegradedBandwidth, kSlow, kCore, link_is_down_ ? 1 : 0);
  one(kMigMode, kSlow, kRest, 0);
  one(kMigInstances, kSlow, kRest, 0);

  one(kEngineActive, kFast, kRest, engine_);
  one(kSmActive, kFast, kCore, sm_);
  one(kSmOccupancy, kFast, kRest, occupancy_);
  one(kTensorActive, kFast, kCore, tensor_active_);
  one(kPipeHmma, kFast, kRest, tensor_active_);
  one(kPipeImma, kFast, kRest, 0);
  one(kPipeDfma, kFast, kRest, 0);
  one(kPipeInt, kFast, kRest, 0.18 * sm_);
  one(kPipeFp64, kFast, kRest, 0);
  one(kPipeFp32, kFast, kRest, 0.11 * sm_);
  one(kPipeFp16, kFast, kRest, 0.04 * sm_);
  one(kDramActive, kFast, kCore, dram_);
  one(kUtilGeneral, kFast, kCore, utilization_);
  one(kUtilEncoder, kSlow, kRest, 0);
  one(kUtilDecoder, kSlow, kRest, 0);
  one(kMemoryControllerActive, kFast, kRest, memory_controller_);

  one(kMemoryLimit, kFast, kRest, kMemoryTotal);
  one(kMemoryUsage, kFast, kCore, used_bytes_);
  one(kMemoryUtilization, kFast, kRest, used_bytes_ / (kMemoryTotal - kReserved));
  one(kMemoryFree, kFast, kRest, kMemoryTotal - kReserved - used_bytes_);
  one(kMemoryReserved, kFast, kRest, kReserved);
  one(kBar1Limit, kSlow, kRest, 131072 * kMiB);
  one(kBar1Usage, kSlow, kRest, held_ ? 5 * kMiB : kMiB);

  one(kPower, kFast, kCore, watts_);
  one(kPowerInstant, kFast, kRest, instant_watts_);
  one(kPowerLimit, kSlow, kCore, limit_);
  one(kPowerLimitRequested, kSlow, kRest, limit_);
  one(kPowerLimitDefault, kSlow, kCore, kLimitWatts);
  one(kPowerLimitMin, kSlow, kRest, 200);
  one(kPowerLimitMax, kSlow, kRest, kLimitWatts);
  one(kEnergy, kSlow, kRest, energy_);

  const double die = std::round(celsius_);
  one(kTempGpu, kFast, kCore, die);
  one(kTempMemory, kFast, kCore, std::round(memory_celsius_));
  one(kTempMargin, kSlow, kCore, kSlowdownCelsius - die);
  one(kTempLimitShutdown, kSlow, kRest, 92);
  one(kTempLimitSlowdown, kSlow, kRest, kSlowdownCelsius);
  one(kTempLimitMax, kSlow, kRest, 85);
  one(kTempLimitMemory, kSlow, kRest, 95);

  one(kClockSm, kFast, kCore, hertz_);
  one(kClockMemory, kFast, kRest, kMemoryHertz);
  one(kClockVideo, kSlow, kRest, std::round(hertz_ * 0.78 / kClockStep) * kClockStep);
  one(kClockMaxSm, kSlow, kCore, kMaxHertz);
  one(kClockMaxMemory, kSlow, kRest, kMemoryHertz);
  one(kPState, kSlow, kRest, 0);
  one(kThrottlePower, kFast, kCore, power_s_);
  one(kThrottleThermal, kSlow, kCore, thermal_s_);
  one(kThrottleSyncBoost, kFast, kRest, 0);
  one(kThrottleBoardLimit, kFast, kRest, 0);
  one(kThrottleLowUtilization, kFast, kRest, low_s_);
  one(kThrottleReliability, kFast, kRest, 0);
  one(kThrottleAppClocks, kFast, kRest, below_app_s_);
  one(kThrottleBaseClocks, kFast, kRest, below_base_s_);
  one(kThrottleSwThermal, kFast, kCore, sw_thermal_s_);
  one(kThrottleHwThermal, kSlow, kCore, hw_thermal_s_);
  one(kThrottlePowerBrake, kSlow, kCore, brake_s_);
  put_errors(out);
  put_links(out);
}

void GpuModel::put_errors(NodeReadout& out) const {
  using enum GpuMetric;
  const bool lost = lost_;
  auto one = [&](GpuMetric metric, Part part, double value) {
    put_one(out, metric, kSlow, part, lost ? kNotRead : value);
  };
  auto labelled = [&](GpuMetric metric, const char* name, const char* label, double value) {
    out.put(gpu_metric(metric), {{name, label}}, kSlow, kRest, lost ? kNotRead : value);
  };
  one(kEccEnabled, kRest, 1);
  one(kEccCorrected, kCore, corrected_ + sram_corrected_);
  one(kEccUncorrected, kCore, uncorrected_);
  one(kEccAggregateCorrected, kRest, corrected_before_ + corrected_ + sram_corrected_);
  one(kEccAggregateUncorrected, kRest, uncorrected_before_ + uncorrected_);
  for (const char* unit : {"l1", "l2", "memory", "register", "texture"}) {
    labelled(kEccUnitCorrected, "unit", unit, unit[0] == 'm' ? corrected_ : unit[1] == '2' ? sram_corrected_ : 0);
    labelled(kEccUnitUncorrected, "unit", unit, unit[0] == 'm' ? uncorrected_ : 0);
  }
  one(kSramCorrected, kRest, sram_corrected_);
  one(kSramUncorrected, kRest, 0);
  one(kSramThreshold, kRest, 0);
  one(kRemappedCorrectable, kCore, remapped_correctable_);
  one(kRemappedUncorrectable, kCore, remapped_uncorrectable_);
  one(kRemapPending, kCore, remap_pending_ ? 1 : 0);
  one(kRemapFailure, kCore, remap_failure_ ? 1 : 0);
  const double used = remapped_correctable_ + remapped_uncorrectable_;
  one(kBanksMax, kRest, 640 - used);
  one(kBanksHigh, kRest, used);
  one(kBanksPartial, kRest, 0);
  one(kBanksLow, kRest, 0);
  one(kBanksNone, kRest, remap_failure_ ? 1 : 0);
  one(kRepairChannelPending, kRest, 0);
  one(kRepairTpcPending, kRest, 0);

  one(kPcieGeneration, kCore, generation_);
  one(kPcieGenerationMax, kCore, 5);
  one(kPcieWidth, kCore, lanes_);
  one(kPcieWidthMax, kCore, 16);
  one(kPcieReplays, kCore, replays_);
  one(kPcieCorrectable, kCore, pcie_correctable_);
  one(kPcieNonFatal, kRest, 0);
  one(kPcieFatal, kRest, 0);
  one(kPcieRecoveries, kRest, pcie_recoveries_);
  one(kPcieTransmit, kRest, transmit_);
  one(kPcieReceive, kRest, receive_);
  put_one(out, kPcieTransmitRate, kFast, kRest, lost ? kNotRead : transmit_rate_);
  put_one(out, kPcieReceiveRate, kFast, kRest, lost ? kNotRead : receive_rate_);
}

void GpuModel::put_links(NodeReadout& out) const {
  using enum GpuMetric;
  const bool lost = lost_;
  auto one = [&](GpuMetric metric, Pace pace, Part part, double value) {
    put_one(out, metric, pace, part, lost ? kNotRead : value);
  };
  auto sum = [](const std::array<double, kNvLinks>& links) {
    double total = 0;
    for (double link : links) total += link;
    return total;
  };
  one(kLinks, kSlow, kCore, kNvLinks);
  one(kLinksUp, kSlow, kCore, kNvLinks - (link_is_down_ ? 1 : 0));
  one(kLinkDowns, kSlow, kCore, links_down_);
  one(kLinksTransmit, kFast, kCore, links_bytes_);
  one(kLinksReceive, kFast, kRest, links_bytes_);
  one(kLinksRate, kFast, kRest, 2 * link_rate_);
  one(kLinksTransmitRate, kFast, kRest, link_rate_);
  one(kLinksReceiveRate, kFast, kRest, link_rate_);
  out.put(gpu_metric(kLinksError), {{"type", "crc"}}, kSlow, kCore, lost ? kNotRead : sum(link_crc_));
  one(kLinksReplay, kSlow, kCore, sum(link_replays_));
  one(kLinksRecovery, kSlow, kCore, sum(link_recoveries_));
  one(kLinksEcc, kSlow, kRest, 0);
  for (size_t link = 0; link < kNvLinks; ++link) {
    auto of_link = [&](GpuMetric metric, double value) {
      out.put(gpu_metric(metric), {{"link", kLinkNames[link]}}, kSlow, kRest, lost ? kNotRead : value);
    };
    of_link(kLinkUp, link_is_down_ && static_cast<int32_t>(link) == link_bad_ ? 0 : 1);
    of_link(kLinkTransmit, link_bytes_[link]);
    of_link(kLinkReceive, link_bytes_[link]);
    of_link(kLinkCrc, link_crc_[link]);
    of_link(kLinkReplay, link_replays_[link]);
    of_link(kLinkRecovery, link_recoveries_[link]);
  }
}

}  // namespace lockstep::sim
