#include "sim/node/switch_telemetry.h"

#include <algorithm>
#include <cmath>

#include "sim/node/effects.h"

namespace lockstep::sim {
namespace {

constexpr double kPacketBytes = 4200;  // as adapters send them
constexpr double kFullQueueBytes = 12e6;

}  // namespace

SwitchTelemetry::SwitchTelemetry(const Topology& topology, int32_t hosts, uint64_t seed)
    : topology_(topology), leaves_(topology.leaves(hosts)), seed_(seed), noise_(mixed(seed, 0x5317C4)) {
  const double speed = topology.nic_gb_s * 1e9;
  auto add = [&](Switch& of, std::string name) {
    of.port_names.push_back(std::move(name));
    Port& port = of.ports.emplace_back();
    port.speed = speed;
    port.stray = noise_.uniform() < 0.04 ? 0.02 : 0;
    port.bytes_in = port.bytes_out = noise_.standing(1e13, 1e15);
    port.marked = noise_.standing(1e4, 1e7);
    port.pauses_in = port.pauses_out = noise_.standing(0, 1e4);
  };
  for (int32_t number = 0; number < leaves_; ++number) {
    Switch& made = switches_.emplace_back();
    made.name = leaf_name(number);
    for (int32_t port = 0; port < topology.leaf_ports(); ++port) add(made, leaf_port_name(port));
    for (int32_t up = 0; up < topology.spines; ++up) add(made, uplink_name(up));
  }
  for (int32_t number = 0; number < topology.spines; ++number) {
    Switch& made = switches_.emplace_back();
    made.name = spine_name(number);
    for (int32_t down = 0; down < leaves_; ++down) add(made, downlink_name(down));
  }
}

void SwitchTelemetry::carry(AdapterPlace from, AdapterPlace to, int32_t over, double bytes) {
  const int32_t first = topology_.leaf_of(from.host, from.gpu), last = topology_.leaf_of(to.host, to.gpu);
  leaf(first).ports[static_cast<size_t>(topology_.leaf_port_of(from.host, from.gpu))].carried_in += bytes;
  leaf(last).ports[static_cast<size_t>(topology_.leaf_port_of(to.host, to.gpu))].carried_out += bytes;
  if (first == last) return;
  leaf(first).ports[uplink(over)].carried_out += bytes;
  spine(over).ports[static_cast<size_t>(first)].carried_in += bytes;
  spine(over).ports[static_cast<size_t>(last)].carried_out += bytes;
  leaf(last).ports[uplink(over)].carried_in += bytes;
}

// Both ends of every link that a target names: one, all of a leaf, or all of a spine.
void SwitchTelemetry::each_link(const Target& target, void (*change)(Disturbed&, double), double amount) {
  for (int32_t down = 0; down < leaves_; ++down) {
    if (target.leaf >= 0 && target.leaf != down) continue;
    for (int32_t up = 0; up < topology_.spines; ++up) {
      if (target.spine >= 0 && target.spine != up) continue;
      change(leaf(down).disturbed[uplink(up)], amount);
      change(spine(up).disturbed[static_cast<size_t>(down)], amount);
    }
  }
}

void SwitchTelemetry::disturb(const SwitchFault& acting) {
  const ScenarioFault& fault = *acting.fault;
  const Target& target = fault.target;
  const double amount = acting.amount;
  const Character character(seed_, fault);
  switch (fault.cause) {
    case Cause::kCongestion:
      each_link(
          target,
          [](Disturbed& port, double more) {
            port.marked_share += 2e-3 * (0.5 + more);
            port.discards_per_s += more > 2 ? 3 * more : 0;
          },
          amount);
      if (shares_with_others(character))
        each_link(
            target, [](Disturbed& port, double) { port.filled = 0.95; }, amount);
      return;
    case Cause::kLinkDegraded:
      each_link(
          target, [](Disturbed& port, double more) { port.damaged_per_s += 2 + 20 * more; }, amount);
      return;
    case Cause::kPfcStorm:
      for (Disturbed& port : leaf(target.leaf).disturbed) port.paused_per_s += 2000 * (0.2 + amount);
      for (int32_t up = 0; up < topology_.spines; ++up)
        spine(up).disturbed[static_cast<size_t>(target.leaf)].paused_per_s += 500 * (0.2 + amount);
      return;
    case Cause::kSwitchDown:
      leaf(target.leaf).down = true;
      for (int32_t up = 0; up < topology_.spines; ++up)
        spine(up).disturbed[static_cast<size_t>(target.leaf)].down = true;
      return;
    case Cause::kNicDegraded:
    case Cause::kLinkFlap: {
      if (acting.adapter.host < 0) return;
      Disturbed& port =
          leaf(topology_.leaf_of(acting.adapter.host, acting.adapter.gpu))
              .disturbed[static_cast<size_t>(topology_.leaf_port_of(acting.adapter.host, acting.adapter.gpu))];
      if (fault.cause == Cause::kLinkFlap) {
        port.damaged_per_s += 0.5;
      } else if (nic_trains_down(character)) {
        port.rate = amount > 2.5 ? 0.25 : 0.5;
      } else if (damages_packets(character)) {
        port.damaged_per_s += 2 + 10 * amount;
      }
      return;
    }
    default:
      return;  // nothing that a switch sees
  }
}

void SwitchTelemetry::advance(Port& port, const Disturbed& disturbed, double seconds) {
  const double most = port.speed * seconds;
  port.up = !disturbed.down;
  port.speed = topology_.nic_gb_s * 1e9 * disturbed.rate;
  // Another tenant fills what is left of it.
  const double in = std::max(port.carried_in, disturbed.filled * most);
  const double out = std::max(port.carried_out, disturbed.filled * most);
  port.bytes_in += std::round(disturbed.down ? 0 : in);
  port.bytes_out += std::round(disturbed.down ? 0 : out);
  port.carried_in = port.carried_out = 0;
  const double packets = out / kPacketBytes;
  const double burst = std::exp(0.7 * noise_.gauss());
  port.marked += noise_.count(packets * (1e-6 * burst + disturbed.marked_share));
  port.discards += noise_.count(disturbed.discards_per_s * seconds);
  const double damaged = noise_.count((port.stray + disturbed.damaged_per_s) * seconds);
  port.fcs += damaged;
  port.symbols += noise_.count(2 * disturbed.damaged_per_s * seconds);
  port.pauses_in += noise_.count((0.2 + disturbed.paused_per_s) * seconds);
  port.pauses_out += noise_.count((0.2 + disturbed.paused_per_s) * seconds);
  const double full = std::min(1.0, 300 * disturbed.marked_share + disturbed.paused_per_s / 4000);
  port.queue_bytes = std::round(kFullQueueBytes * (0.02 * noise_.uniform() + full * (0.6 + 0.4 * noise_.uniform())));
}

void SwitchTelemetry::put(const Switch& of, int64_t at_unix_ns, ResourceGroup& out) {
  for (size_t i = 0; i < of.ports.size(); ++i) {
    const Port& port = of.ports[i];
    auto add = [&](const char* name, const char* direction, double value, bool counter) {
      MetricPoint& point = out.points.emplace_back();
      point.name = name;
      point.kind = counter ? MetricKind::kSum : MetricKind::kGauge;
      point.temporality = counter ? Temporality::kCumulative : Temporality::kUnspecified;
      point.monotonic = counter;
      point.attributes = {{"switch", of.name}, {"port", of.port_names[i]}};
      if (direction[0] != '\0') point.attributes.push_back({"direction", direction});
      point.time_unix_ns = at_unix_ns;
      point.value = value;
    };
    add("lockstep_port_bytes_total", "in", port.bytes_in, true);
    add("lockstep_port_bytes_total", "out", port.bytes_out, true);
    add("lockstep_port_discards_total", "out", port.discards, true);
    add("lockstep_port_fcs_errors_total", "in", port.fcs, true);
    add("lockstep_port_symbol_errors_total", "in", port.symbols, true);
    add("lockstep_port_ecn_marked_packets_total", "out", port.marked, true);
    add("lockstep_port_pfc_pause_frames_total", "in", port.pauses_in, true);
    add("lockstep_port_pfc_pause_frames_total", "out", port.pauses_out, true);
    add("lockstep_port_queue_bytes", "out", port.queue_bytes, false);
    add("lockstep_port_up", "", port.up ? 1 : 0, false);
    add("lockstep_port_speed_bytes_per_second", "", port.speed, false);
  }
}

Batch SwitchTelemetry::read(int64_t at_unix_ns, double seconds, std::span<const SwitchFault> acting) {
  for (Switch& each : switches_) {
    each.disturbed.assign(each.ports.size(), {});
    each.down = false;
  }
  for (const SwitchFault& fault : acting) {
    if (fault.amount > 0) disturb(fault);
  }
  Batch batch{.signal = Signal::kMetrics};
  ResourceGroup& group = batch.groups.emplace_back();
  group.resource = {{"service.name", "switches"}};
  group.scope_name = "lockstep.switches";
  for (Switch& each : switches_) {
    for (size_t i = 0; i < each.ports.size(); ++i) advance(each.ports[i], each.disturbed[i], seconds);
    if (!each.down) put(each, at_unix_ns, group);
  }
  return batch;
}

}  // namespace lockstep::sim
