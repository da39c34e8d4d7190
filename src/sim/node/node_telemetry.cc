#include "sim/node/node_telemetry.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "sim/node/agent_model.h"
#include "sim/node/effects.h"
#include "sim/node/gpu_model.h"
#include "sim/node/host_model.h"
#include "sim/node/nic_model.h"
#include "sim/node/node_events.h"
#include "sim/node/node_series.h"
#include "sim/node/noise.h"
#include "sources/gpu/gpu_own_metrics.h"
#include "sources/kernel/kernel_metrics.h"
#include "sources/ownership/gpu_ownership_metrics.h"

namespace lockstep::sim {
namespace {

using enum Pace;
using enum Part;

constexpr int64_t kSecond = 1'000'000'000;
constexpr double kDay = 86'400;
constexpr int64_t kSlowNs = 10 * kSecond;
constexpr int64_t kForeignReportedAfterNs = 10 * kSecond;  // as the agent waits
constexpr int64_t kLastXidNs = 300 * kSecond;
constexpr int64_t kFlapEveryNs = 15 * kSecond;  // while a flapping link is never said to rest
constexpr int64_t kFlapRestNs = 3 * kSecond;
// Harmless things of all kinds together: often enough that a rule which takes any event for a cause is wrong in many
// a run of a few minutes.
constexpr double kHarmlessPerSecond = 1.0 / 3600;

// Clocks are lowest in the afternoon.
double daily(int64_t unix_ns) {
  const double seconds = std::fmod(static_cast<double>(unix_ns / kSecond), kDay);
  return 0.5 - 0.5 * std::cos(2 * M_PI * (seconds / kDay - 4.0 / 24));
}

std::string made_up_uuid(uint64_t seed, int32_t host, int32_t gpu) {
  const uint64_t high = mixed(mixed(seed, static_cast<uint64_t>(host)), static_cast<uint64_t>(gpu) + 77);
  const uint64_t low = mixed(high, 1);
  return format("GPU-%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(high >> 32),
                static_cast<unsigned>(high >> 16 & 0xFFFF), static_cast<unsigned>(high & 0xFFFF),
                static_cast<unsigned>(low >> 48), static_cast<unsigned long long>(low & 0xFFFFFFFFFFFF));
}

Attributes job_labels(const Identity& identity) {
  return {{"job_id", identity.job_id},
          {"attempt", std::to_string(identity.attempt)},
          {"rank", std::to_string(identity.rank.value())},
          {"user", "train"},
          {"source", "recorder"}};
}

}  // namespace

class NodeTelemetry::Impl : public NodeLabels {
 public:
  Impl(std::string host, int32_t host_index, const Topology& topology, uint64_t seed, double daily_heat,
       bool all_series);

  Batch read(int64_t at, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting);
  Batch events(int64_t at, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting);

  void set_day(double share) { day_ = share; }

  const std::string& host() const override { return host_; }
  const std::string& gpu_uuid(int32_t gpu) const override { return slots_[static_cast<size_t>(gpu)].uuid; }
  void add_own(const SeriesShape& shape, Attributes& attributes) const override;

 private:
  // A GPU, its adapter and its rank.
  struct Slot {
    GpuModel gpu;
    NicModel nic;
    RankModel rank;
    std::string uuid;
    Identity reported_as;  // of lockstep_job_gpu_info
    Identity held_by;      // now; empty job: nobody
    bool gone = false;
    int64_t gone_attempt = 0;
    int32_t xid_last = 0;
    int64_t xid_last_ns = 0;
    int32_t lanes = 16, nic_lanes = 16;  // as last read
    double speed = 0;
    int64_t link_back_ns = 0;  // while its link is down
    int64_t flapped_ns = 0;
    bool flap_begins = false;
    double foreign = 0;
  };
  // A fault as it was when last looked at.
  struct Known {
    const ScenarioFault* fault = nullptr;
    int32_t gpu = -1;
    bool active = false, seen = false, reported = false, reported_late = false;
    int64_t since_ns = 0;
  };

  static std::shared_ptr<const NodeLayout> layout_of(const Impl& node, bool all_series);
  void put(NodeReadout& out) const;
  void put_who(NodeReadout& out, const Slot& slot) const;

  // Brings what happens, as against what is measured, up to `at`.
  void advance(int64_t at, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting);
  void follow(int64_t at, const ActingFault& each, bool first, Known& known);
  void begin(int64_t at, const ActingFault& each, const Character& character);
  void flap_links(int64_t at, std::span<const ActingFault> acting);
  void harmless(int64_t at, double seconds);
  void look_at_links(int64_t at, bool slow);

  template <typename Do>
  void each_hit(int32_t gpu, Do act_on) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (gpu < 0 || static_cast<size_t>(gpu) == i) act_on(i);
    }
  }
  NamedGpu named(size_t gpu) const;
  std::string leaf_port(size_t gpu) const;
  void emit(NodeEvent event);
  void emit_xid(size_t gpu, int32_t code, int64_t at, bool secondary = false);

  std::string host_;
  int32_t host_index_;
  Topology topology_;
  uint64_t seed_;
  double daily_heat_;
  bool all_series_;
  Noise noise_, harmless_noise_;
  std::vector<Slot> slots_;
  HostModel host_model_;
  AgentModel agent_model_;
  std::unique_ptr<NodeSeriesTable> table_;
  Effects effects_;
  std::vector<Known> known_;
  std::vector<NodeEvent> pending_;
  double inlet_, inlet_drift_ = 0, day_ = -1;
  double kernel_lines_ = 0, job_joules_ = 0;
  std::map<std::string, double> kernel_events_;
  std::map<std::pair<size_t, int32_t>, double> xids_;
  std::string job_;  // the first on this host
  int64_t read_ns_ = 0, advanced_ns_ = 0, slow_ns_ = 0;
};

NodeTelemetry::Impl::Impl(std::string host, int32_t host_index, const Topology& topology, uint64_t seed,
                          double daily_heat, bool all_series)
    : host_(std::move(host)),
      host_index_(host_index),
      topology_(topology),
      seed_(seed),
      daily_heat_(daily_heat),
      all_series_(all_series),
      noise_(mixed(mixed(seed, static_cast<uint64_t>(host_index)), 1)),
      harmless_noise_(mixed(mixed(seed, static_cast<uint64_t>(host_index)), 2)),
      host_model_(mixed(seed, static_cast<uint64_t>(host_index))),
      agent_model_(mixed(mixed(seed, static_cast<uint64_t>(host_index)), 4)) {
  const uint64_t own = mixed(seed, static_cast<uint64_t>(host_index));
  const int32_t count = std::max(1, topology.gpus_per_host);
  slots_.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    slots_.push_back(Slot{.gpu = GpuModel(own, i),
                          .nic = NicModel(own, i, topology.nic_gb_s * 1e9),
                          .rank = RankModel(own, i),
                          .uuid = made_up_uuid(seed, host_index, i)});
    slots_.back().speed = slots_.back().nic.speed();
  }
  inlet_ = Noise(mixed(own, 3)).between(22, 29);
  kernel_lines_ = 4000 + static_cast<double>(own % 5000);
  table_ = std::make_unique<NodeSeriesTable>(layout_of(*this, all_series));
}

std::shared_ptr<const NodeLayout> NodeTelemetry::Impl::layout_of(const Impl& node, bool all_series) {
  // Nodes of one shape share it; there are as many shapes as a program has kinds of nodes.
  static Mutex mutex;
  static std::map<std::pair<size_t, bool>, std::shared_ptr<const NodeLayout>> layouts LOCKSTEP_GUARDED_BY(mutex);
  MutexLock lock(mutex);
  std::shared_ptr<const NodeLayout>& found = layouts[{node.slots_.size(), all_series}];
  if (!found) {
    auto layout = std::make_shared<NodeLayout>();
    NodeReadout readout(*layout, all_series);
    node.put(readout);
    sort_for_sending(*layout);
    found = std::move(layout);
  }
  return found;
}

void NodeTelemetry::Impl::put(NodeReadout& out) const {
  out.of_node();
  host_model_.put(out);
  agent_model_.put(out);
  out.put(kKernelLinesTotal, {}, kFast, kRest, kernel_lines_);
  out.put(kKernelLinesLost, {}, kFast, kRest, 0);
  out.put(own_metric(GpuOwnMetric::kReaderUp), {}, kFast, kRest, 1);
  out.put(own_metric(GpuOwnMetric::kReaderHungSeconds), {}, kFast, kRest, 0);
  out.put(own_metric(GpuOwnMetric::kReaderStarts), {}, kFast, kRest, 1);
  out.put(descriptor_of(GpuOwnershipMetric::kJobEnergy), {}, kFast, kRest, job_.empty() ? kNotRead : job_joules_,
          Own::kJobEnergy);
  for (const Slot& slot : slots_) {
    slot.nic.put(out);
    slot.nic.put_gpu_device(out, slot.gpu);
  }
  const int32_t count = static_cast<int32_t>(slots_.size());
  for (int32_t i = 0; i < count; ++i) {
    const Slot& slot = slots_[static_cast<size_t>(i)];
    out.of_gpu(i);
    const std::string index = std::to_string(i);
    out.put(own_metric(GpuOwnMetric::kInfo),
            {{"vendor", "nvidia"}, {"model", "NVIDIA H100 80GB HBM3"}, {"pci", gpu_pci(i)}, {"index", index}}, kFast,
            kCore, 1, Own::kGpuInfo);
    slot.gpu.put(out);
    slot.rank.put(out);
    put_who(out, slot);
    slot.nic.put_of_gpu(out, count);
  }
}

void NodeTelemetry::Impl::put_who(NodeReadout& out, const Slot& slot) const {
  const bool held = !slot.held_by.job_id.empty();
  out.put(descriptor_of(GpuOwnershipMetric::kJobGpuInfo), {}, kFast, kCore, held ? 1 : kNotRead, Own::kJobInfo);
  const double foreign = slot.foreign > 0 ? 1 : 0;
  const double processes = (held ? 1 : 0) + foreign;
  out.put(descriptor_of(GpuOwnershipMetric::kAllocated), {}, kFast, kRest, processes > 0 ? 1 : 0);
  out.put(descriptor_of(GpuOwnershipMetric::kProcesses), {}, kSlow, kCore, processes);
  out.put(descriptor_of(GpuOwnershipMetric::kProcessMemory), {}, kSlow, kRest, held ? 68.0 * (1 << 30) : 0);
  out.put(descriptor_of(GpuOwnershipMetric::kForeignProcesses), {}, kSlow, kCore, foreign);
  const bool recent = slot.xid_last != 0 && read_ns_ - slot.xid_last_ns < kLastXidNs;
  out.put(kGpuXidLast, {}, kFast, kCore, recent ? slot.xid_last : 0);
}

void NodeTelemetry::Impl::add_own(const SeriesShape& shape, Attributes& attributes) const {
  const Slot* slot = shape.gpu >= 0 ? &slots_[static_cast<size_t>(shape.gpu)] : nullptr;
  switch (shape.own) {
    case Own::kNothing:
      return;
    case Own::kJobInfo:
      for (Attribute& each : job_labels(slot->reported_as)) attributes.push_back(std::move(each));
      return;
    case Own::kGpuInfo:
      attributes.push_back(
          {"serial", format("16%011llu", static_cast<unsigned long long>(mixed(9, slot->uuid) % 100'000'000'000))});
      attributes.push_back({"driver", "570.124.06"});
      return;
    case Own::kNicInfo:
      attributes.push_back({"leaf", leaf_name(topology_.leaf_of(host_index_, shape.gpu))});
      attributes.push_back({"leaf_port", leaf_port(static_cast<size_t>(shape.gpu))});
      return;
    case Own::kJobEnergy:
      attributes.push_back({"job_id", job_});
      return;
  }
}

NamedGpu NodeTelemetry::Impl::named(size_t gpu) const {
  const Slot& slot = slots_[gpu];
  // Whoever died on it still counts as its owner in the moment.
  return {slot.uuid, gpu_pci(static_cast<int32_t>(gpu)), slot.gone ? slot.reported_as : slot.held_by};
}

std::string NodeTelemetry::Impl::leaf_port(size_t gpu) const {
  return leaf_port_name(topology_.leaf_port_of(host_index_, static_cast<int32_t>(gpu)));
}

void NodeTelemetry::Impl::emit(NodeEvent event) {
  if (event.name.empty()) return;
  if (event.source.starts_with("kmsg")) {
    kernel_lines_ += static_cast<double>(event.count);
    double& total = kernel_events_[event.name];
    total += static_cast<double>(event.count);
    table_->set_further(kKernelEventsTotal, -1, {{"kind", event.name}}, total);
  }
  pending_.push_back(std::move(event));
}

void NodeTelemetry::Impl::emit_xid(size_t gpu, int32_t code, int64_t at, bool secondary) {
  Slot& slot = slots_[gpu];
  NodeEvent event = xid_event(named(gpu), code, at);
  event.secondary = secondary;
  slot.xid_last = code;
  slot.xid_last_ns = at;
  double& total = xids_[{gpu, code}];
  ++total;
  table_->set_further(kGpuXidTotal, static_cast<int32_t>(gpu), {{"xid", std::to_string(code)}}, total);
  emit(std::move(event));
}

// What happens in the moment in which a fault begins.
void NodeTelemetry::Impl::begin(int64_t at, const ActingFault& each, const Character& character) {
  switch (each.fault->cause) {
    case Cause::kXid:
      return each_hit(each.gpu, [&](size_t i) {
        const int32_t code = xid_of(character);
        emit_xid(i, code, at);
        if (code == 79) return emit(gpu_lost_event(named(i), at));
        if (code == 48 || code == 119 || code == 109 || code == 62) emit(recovery_event(named(i), 1, at));
        if (character.shows("channels", 0.7)) emit_xid(i, 45, at, true);
      });
    case Cause::kEcc:
      if (!character.shows("told", 0.85)) return;
      return each_hit(each.gpu, [&](size_t i) {
        const EccStory story = ecc_story(character);
        if (story == EccStory::kCorrectedOnly) return;
        if (story == EccStory::kContained) emit_xid(i, 94, at);
        if (story == EccStory::kRemapFailed) return emit_xid(i, 64, at);
        emit_xid(i, 63, at, story == EccStory::kContained);
      });
    case Cause::kNvlinkDegraded:
      if (!character.shows("told", nvlink_goes_down(character) ? 0.8 : 0.3)) return;
      return each_hit(each.gpu, [&](size_t i) { emit_xid(i, 74, at); });
    case Cause::kPcieDegraded:
      if (!character.shows("told", 0.6)) return;
      return each_hit(each.gpu, [&](size_t i) {
        const std::string pci =
            character.shows("adapter", 0.3) ? nic_pci(static_cast<int32_t>(i)) : gpu_pci(static_cast<int32_t>(i));
        emit(
            kernel_event(format("pcieport 0000:15:01.0: AER: Multiple Corrected error received: %s", pci.c_str()), at));
      });
    case Cause::kMemoryPressure:
      if (!character.shows("kill", 0.15)) return;
      host_model_.killed_for_memory();
      return emit(kernel_event(
          "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task_memcg=/system.slice,task=fluentd,pid=2211,uid=0",
          at));
    case Cause::kStorage:
      if (each.amount < 0.4 || character.shows("local disk", 0.2)) return;
      return emit(kernel_event("nfs: server 10.20.0.8 not responding, still trying", at));
    case Cause::kRankDead:
      return each_hit(each.gpu, [&](size_t i) {
        slots_[i].nic.process_ended();
        if (!killed_for_memory(character)) return;
        host_model_.killed_for_memory();
        emit(oom_event(named(i), at));
      });
    default:
      return;
  }
}

void NodeTelemetry::Impl::follow(int64_t at, const ActingFault& each, bool first, Known& known) {
  const bool acts = each.amount > 0;
  if (first) known.since_ns = each.since_unix_ns > 0 && each.since_unix_ns <= at ? each.since_unix_ns : at;
  const Character character(seed_, *each.fault);
  if (acts && !known.active && !known.reported) {
    // A fault that comes in pulses tells once of what it has broken.
    known.reported = true;
    begin(std::max(known.since_ns, std::min(at, advanced_ns_)), each, character);
  }
  if (acts && !known.active && each.fault->cause == Cause::kLinkFlap) {
    each_hit(each.gpu, [&](size_t i) { slots_[i].flap_begins = true; });
  }
  known.active = acts;
  if (acts && each.fault->cause == Cause::kForeignProcess && !known.reported_late &&
      at - known.since_ns >= kForeignReportedAfterNs) {
    known.reported_late = true;
    if (character.shows("told", 0.9)) {
      each_hit(each.gpu, [&](size_t i) { emit(foreign_process_event(named(i), 4711 + static_cast<int32_t>(i), at)); });
    }
  }
}

void NodeTelemetry::Impl::flap_links(int64_t at, std::span<const ActingFault> acting) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const std::string interface = nic_interface(static_cast<int32_t>(i));
    const std::string where =
        format("leaf-%d port %s", topology_.leaf_of(host_index_, static_cast<int32_t>(i)), leaf_port(i).c_str());
    if (!slot.nic.up() && at >= slot.link_back_ns) {
      slot.nic.come_back();
      emit(link_event(interface, true, where, named(i), slot.link_back_ns));
    }
    for (const ActingFault& each : acting) {
      if (each.fault == nullptr || !(each.amount > 0) || (each.gpu >= 0 && static_cast<size_t>(each.gpu) != i))
        continue;
      if (each.fault->cause == Cause::kSwitchDown) {
        // It comes back some time after the fault is over: no reading finds it acting any more.
        slot.link_back_ns = at + kFlapEveryNs;
        if (!slot.nic.up()) continue;
        slot.nic.flap();
        emit(link_event(interface, false, where, named(i),
                        each.since_unix_ns > 0 ? std::min(at, each.since_unix_ns) : at));
        continue;
      }
      if (each.fault->cause != Cause::kLinkFlap || !slot.nic.up()) continue;
      // At the beginning of every pulse, and again and again where it lasts.
      const int64_t rested_ns = slot.flapped_ns == 0 ? kFlapEveryNs : at - slot.flapped_ns;
      if (rested_ns < (slot.flap_begins ? kFlapRestNs : kFlapEveryNs)) continue;
      const int64_t moment = slot.flapped_ns == 0 && each.since_unix_ns > 0 ? std::min(at, each.since_unix_ns) : at;
      slot.flap_begins = false;
      slot.flapped_ns = at;
      slot.link_back_ns =
          moment + 1'500'000'000 + static_cast<int64_t>(mixed(seed_, static_cast<uint64_t>(at)) % 3) * kSecond;
      slot.nic.flap();
      emit(link_event(interface, false, where, named(i), moment));
    }
  }
}

void NodeTelemetry::Impl::harmless(int64_t at, double seconds) {
  const double many = harmless_noise_.count(kHarmlessPerSecond * seconds);
  const uint64_t which = harmless_noise_.word();
  if (many <= 0) return;
  const size_t i = (which >> 8) % slots_.size();
  switch (which % 8) {
    case 0:
    case 1:
      return emit(kernel_event(
          format("pcieport 0000:15:01.0: AER: Corrected error received: %s", nic_pci(static_cast<int32_t>(i)).c_str()),
          at));
    case 2:
    case 3: {
      NodeEvent event = kernel_event(
          format("mlx5_core %s: wait_func_handle_exec_timeout:1109:(pid 1893): cmd[0]: QUERY_VPORT_COUNTER(0x770) "
                 "recovered after timeout",
                 nic_pci(static_cast<int32_t>(i)).c_str()),
          at);
      return emit(std::move(event));
    }
    case 4:
      host_model_.memory_error();
      return emit(
          kernel_event("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)", at));
    case 5:
      slots_[i].gpu.remap_row();
      return emit_xid(i, 63, at);
    default: {
      NamedGpu nobody;
      NodeEvent event = link_event("eno1", false, "", nobody, at);
      event.severity = EventSeverity::kWarn;
      event.text = "eno1: link lost, and is back";
      emit(std::move(event));
      return emit(link_event("eno1", true, "", nobody, at));
    }
  }
}

// The agent tells of a link that trained down when it reads it.
void NodeTelemetry::Impl::look_at_links(int64_t at, bool slow) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const int32_t index = static_cast<int32_t>(i);
    if (slot.nic.up() && slot.nic.speed() != slot.speed) {
      const std::string where = format("leaf-%d port %s", topology_.leaf_of(host_index_, index), leaf_port(i).c_str());
      emit(slower_link_event(nic_interface(index), slot.speed, slot.nic.speed(), where, named(i), at));
      slot.speed = slot.nic.speed();
    }
    if (!slow) continue;
    if (slot.gpu.lanes() < slot.lanes) {
      const NamedGpu gpu = named(i);
      emit(fewer_lanes_event(gpu_pci(index), slot.lanes, slot.gpu.lanes(), &gpu, at));
    }
    if (slot.nic.lanes() < slot.nic_lanes) {
      emit(fewer_lanes_event(nic_pci(index), slot.nic_lanes, slot.nic.lanes(), nullptr, at));
    }
    slot.lanes = slot.gpu.lanes();
    slot.nic_lanes = slot.nic.lanes();
  }
}

void NodeTelemetry::Impl::advance(int64_t at, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting) {
  act(topology_, seed_, host_index_, gpus, acting, effects_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const Identity nobody;
    const Identity& identity = i < gpus.size() ? gpus[i].identity : nobody;
    if (!identity.gpu_uuid.empty() && identity.gpu_uuid != slot.uuid) {
      slot.uuid = identity.gpu_uuid;
      table_->forget(static_cast<int32_t>(i));
    }
    const bool works = i < gpus.size() && gpus[i].busy > 0;
    if (effects_.ranks[i].gone) {
      slot.gone = true;
      slot.gone_attempt = identity.attempt;
    } else if (slot.gone && (works || identity.attempt != slot.gone_attempt)) {
      slot.gone = false;  // started again
    }
    slot.held_by = slot.gone ? Identity{} : identity;
    if (!slot.held_by.job_id.empty() && slot.held_by != slot.reported_as) {
      if (!slot.reported_as.job_id.empty())
        table_->end(Own::kJobInfo, static_cast<int32_t>(i), job_labels(slot.reported_as));
      slot.reported_as = slot.held_by;
    }
    if (job_.empty()) job_ = slot.held_by.job_id;
  }
  for (Known& known : known_) known.seen = false;
  for (const ActingFault& each : acting) {
    if (each.fault == nullptr || each.sign > 0) continue;  // signs are no events
    auto found = std::find_if(known_.begin(), known_.end(),
                              [&](const Known& known) { return known.fault == each.fault && known.gpu == each.gpu; });
    const bool first = found == known_.end();
    if (first) found = known_.insert(known_.end(), Known{.fault = each.fault, .gpu = each.gpu});
    found->seen = true;
    follow(at, each, first, *found);
  }
  for (Known& known : known_) {
    if (!known.seen) known.active = false;
  }
  flap_links(at, acting);
  harmless(at, advanced_ns_ > 0 ? static_cast<double>(at - advanced_ns_) / 1e9 : 0);
  advanced_ns_ = at;
}

Batch NodeTelemetry::Impl::read(int64_t at, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting) {
  advance(at, gpus, acting);
  Moment moment;
  moment.unix_ns = at;
  moment.seconds = read_ns_ > 0 ? std::max(1e-3, static_cast<double>(at - read_ns_) / 1e9) : 5;
  inlet_drift_ = 0.98 * inlet_drift_ + 0.1 * noise_.gauss();
  moment.heat = daily_heat_ * (day_ >= 0 ? day_ : daily(at));
  moment.inlet = inlet_ + inlet_drift_ + 400 * moment.heat;
  // Agents do not all start in the same second: their slow readings come at different times.
  bool slow = slow_ns_ == 0 || at - slow_ns_ >= kSlowNs - kSecond / 10;
  if (slow_ns_ == 0) {
    slow_ns_ = at - static_cast<int64_t>(mixed(seed_, static_cast<uint64_t>(host_index_)) % 2) * kSlowNs / 2;
  } else if (slow) {
    slow_ns_ = at;
  }
  read_ns_ = at;

  static const GpuActivity kNothing;
  HostModel::Ranks ranks;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const bool held = !slot.held_by.job_id.empty();
    const GpuActivity& activity = i < gpus.size() && held ? gpus[i] : kNothing;
    const double before = slot.gpu.joules();
    slot.foreign = effects_.gpus[i].foreign;
    slot.gpu.advance(moment, activity, held, effects_.gpus[i]);
    slot.nic.advance(moment, activity, held, effects_.nics[i]);
    slot.rank.advance(moment, activity, held, effects_.ranks[i], effects_.host);
    if (held && slot.held_by.job_id == job_) job_joules_ += slot.gpu.joules() - before;
    ranks.held += held ? 1 : 0;
    ranks.cores += slot.rank.cores();
    ranks.read_bytes += slot.rank.read_bytes();
    ranks.blocked += slot.rank.blocked();
    if (effects_.nics[i].tcp) ranks.tcp_bytes += static_cast<double>(activity.sent_bytes + activity.received_bytes);
  }
  host_model_.advance(moment, ranks, effects_.host);
  agent_model_.advance(moment.seconds, ranks.held);
  look_at_links(at, slow);

  std::vector<double>& values = table_->values();
  NodeReadout readout(values, all_series_);
  put(readout);
  Batch batch;
  batch.signal = Signal::kMetrics;
  batch.groups.reserve(slots_.size() + 1);
  table_->take(values, at, slow, *this, batch);
  return batch;
}

Batch NodeTelemetry::Impl::events(int64_t at, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting) {
  advance(at, gpus, acting);
  Batch batch;
  batch.signal = Signal::kLogs;
  for (const NodeEvent& event : pending_) batch.groups.push_back(to_group(event, host_));
  pending_.clear();
  return batch;
}

NodeTelemetry::NodeTelemetry(std::string host, int32_t host_index, const Topology& topology, uint64_t seed,
                             double daily_heat, bool all_series)
    : impl_(std::make_unique<Impl>(std::move(host), host_index, topology, seed, daily_heat, all_series)) {}
NodeTelemetry::~NodeTelemetry() = default;
NodeTelemetry::NodeTelemetry(NodeTelemetry&&) noexcept = default;

Batch NodeTelemetry::read(int64_t at_unix_ns, std::span<const GpuActivity> gpus, std::span<const ActingFault> acting) {
  return impl_->read(at_unix_ns, gpus, acting);
}

Batch NodeTelemetry::events(int64_t at_unix_ns, std::span<const GpuActivity> gpus,
                            std::span<const ActingFault> acting) {
  return impl_->events(at_unix_ns, gpus, acting);
}

void NodeTelemetry::set_day(double share) {
  impl_->set_day(share);
}

}  // namespace lockstep::sim
