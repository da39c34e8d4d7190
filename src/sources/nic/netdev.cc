#include "sources/nic/netdev.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "sources/nic/nic_metrics.h"

namespace lockstep {

namespace {

constexpr int64_t kLatelyNs = 5'000'000'000;

constexpr struct {
  const char* file;
  const MetricDescriptor* metric;
  const char* direction;
} kStatistics[] = {
    {"rx_bytes", &nic_metric("system.network.io"), "receive"},
    {"tx_bytes", &nic_metric("system.network.io"), "transmit"},
    {"rx_packets", &nic_metric("system.network.packet.count"), "receive"},
    {"tx_packets", &nic_metric("system.network.packet.count"), "transmit"},
    {"rx_errors", &nic_metric("system.network.errors"), "receive"},
    {"tx_errors", &nic_metric("system.network.errors"), "transmit"},
    {"rx_dropped", &nic_metric("system.network.packet.dropped"), "receive"},
    {"tx_dropped", &nic_metric("system.network.packet.dropped"), "transmit"},
};

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

// "pf0vf3", "c1pf0sf2": the host's end of a function that belongs to a guest or a pod. A node may have hundreds.
bool is_representor(std::string_view port_name) {
  size_t pf = port_name.find("pf");
  if (pf == std::string_view::npos) return false;
  std::string_view rest = port_name.substr(pf + 2);
  return rest.find("vf") != std::string_view::npos || rest.find("sf") != std::string_view::npos;
}

int64_t count_or_none(SysfsFile& file) {
  FileText text = file.read();
  return text.ok() ? parse_int(text.text).value_or(-1) : -1;
}

std::string gigabits(double bytes_per_second) {
  return format("%g Gb/s", bytes_per_second * 8 / 1e9);
}

}  // namespace

bool Netdevs::is_wanted(const std::string& name, const std::vector<std::string>& used_by_rdma) const {
  if (std::find(used_by_rdma.begin(), used_by_rdma.end(), name) != used_by_rdma.end()) return true;
  const std::string folder = context_.root + "/sys/class/net/" + name;
  if (!exists(folder + "/device")) return with_virtual_ && name != "lo";
  FileText port_name = read_small_file(folder + "/phys_port_name");
  return !port_name.ok() || !is_representor(port_name.text);
}

Netdevs::State Netdevs::make(const std::string& name, int ifindex) const {
  const std::string folder = context_.root + "/sys/class/net/" + name;
  FileBudget* files = &context_.files;
  State state;
  state.about.name = name;
  state.about.ifindex = ifindex;
  state.about.pci = pci_device_at(folder + "/device");
  state.labels = std::make_shared<const Labels>(Labels{{"device", name}});
  state.carrier_file = SysfsFile(folder + "/carrier", files);
  state.ups_file = SysfsFile(folder + "/carrier_up_count", files);
  state.downs_file = SysfsFile(folder + "/carrier_down_count", files);
  state.changes_file = SysfsFile(folder + "/carrier_changes", files);
  state.speed_file = SysfsFile(folder + "/speed", files);
  state.mtu_file = SysfsFile(folder + "/mtu", nullptr);
  for (const auto& row : kStatistics) {
    Statistic statistic;
    statistic.file = SysfsFile(folder + "/statistics/" + row.file, files);
    statistic.metric = row.metric;
    statistic.labels = std::make_shared<const Labels>(Labels{{"device", name}, {"direction", row.direction}});
    state.statistics.push_back(std::move(statistic));
  }
  return state;
}

void Netdevs::emit(const Tick& tick, State& state, const char* name, EventSeverity severity, int64_t count,
                   std::string text, const char* meaning, const char* action, NodeReadings& out) {
  NodeEvent event;
  event.name = name;
  event.time_unix_ns = tick.unix_ns;
  event.severity = severity;
  event.device = state.about.name;
  event.count = count;
  event.text = std::move(text);
  event.meaning = meaning;
  event.action = action;
  event.source = "sysfs";
  out.events.push_back(std::move(event));
  state.about.link_event_ns = tick.monotonic_ns;
}

void Netdevs::rescan(const Tick& tick, const std::vector<std::string>& used_by_rdma, NodeReadings& out) {
  const std::string folder = context_.root + "/sys/class/net";
  Result<std::vector<std::string>> names = list_directory(folder);
  if (!names) {
    ++out.failures;
    context_.say_once(out, "nic: " + names.error() + "; no network interfaces are read");
    return;
  }
  std::map<std::string, State> found;
  for (const std::string& name : *names) {
    if (!is_wanted(name, used_by_rdma)) continue;
    if (found.size() >= kNetdevsMax) {
      context_.say_once(out, format("nic: more than %zu network interfaces; the others are not read", kNetdevsMax));
      break;
    }
    FileText index = read_small_file(folder + "/" + name + "/ifindex");
    const int ifindex = index.ok() ? static_cast<int>(parse_int(index.text).value_or(0)) : 0;
    auto old = states_.find(name);
    // Another index is another interface: its counters and its link have begun anew.
    if (old != states_.end() && old->second.about.ifindex == ifindex) {
      found.emplace(name, std::move(old->second));
      states_.erase(old);
      continue;
    }
    State state = make(name, ifindex);
    if (scanned_before_ && old == states_.end()) {
      emit(tick, state, "nic.appeared", EventSeverity::kInfo, 1, "network interface " + name + " appeared",
           "A network interface is there that was not", "", out);
    }
    if (old != states_.end()) states_.erase(old);
    found.emplace(name, std::move(state));
  }
  for (auto& [name, state] : states_) {  // what is left has gone
    const PciDevice& pci = state.about.pci;
    const bool off_bus = !pci.chain.empty() && !exists(context_.root + "/sys/bus/pci/devices/" + pci.chain.back());
    if (off_bus) {
      emit(tick, state, "nic.lost", EventSeverity::kCritical, 1,
           "network interface " + name + " is gone, and " + pci.address + " with it",
           "The network adapter fell off the PCIe bus", "drain the node, reboot; replace the card if it comes back",
           out);
    } else {
      emit(tick, state, "nic.lost", EventSeverity::kInfo, 1, "network interface " + name + " is gone",
           "It was given to another network namespace, renamed, or its driver was unloaded", "", out);
    }
  }
  states_ = std::move(found);
  scanned_before_ = true;
}

Netdevs::Carrier Netdevs::read_carrier(State& state, NodeReadings& out) {
  // Read first: a change between the readings is then found in the next tick, not missed.
  const int64_t ups = count_or_none(state.ups_file);
  const int64_t downs = count_or_none(state.downs_file);
  const bool counted_apart = ups >= 0 && downs >= 0;
  const int64_t changes = counted_apart ? ups + downs : count_or_none(state.changes_file);
  FileText carrier_text = state.carrier_file.read();
  Carrier now;
  now.switched_off = carrier_text.error == EINVAL;
  now.is_there = carrier_text.ok() && carrier_text.text == "1";
  out.add(nic_metric("lockstep_nic_carrier"), state.labels, now.is_there ? 1 : 0);
  if (changes >= 0) {
    out.add(nic_metric("lockstep_nic_carrier_changes_total"), state.labels, static_cast<double>(changes));
  }

  const bool had_carrier = state.about.carrier;
  if (counted_apart) {
    now.went_down = downs - state.downs;
    now.went_up = ups - state.ups;
  } else if (changes >= 0) {  // an older kernel: they alternate, and the state before tells which was first
    const int64_t more = changes - state.changes;
    now.went_down = had_carrier ? (more + 1) / 2 : more / 2;
    now.went_up = more - now.went_down;
  } else {  // no counts at all: what we see ourselves
    now.went_down = had_carrier && !now.is_there;
    now.went_up = !had_carrier && now.is_there;
  }
  state.ups = ups;
  state.downs = downs;
  state.changes = changes;
  state.about.carrier = now.is_there;
  return now;
}

void Netdevs::report_carrier(const Tick& tick, State& state, const Carrier& now, NodeReadings& out) {
  const std::string& name = state.about.name;
  if (now.went_down > 0) {
    std::string text = name + ": link lost";
    if (now.went_down > 1) text += format(" %lld times", static_cast<long long>(now.went_down));
    if (now.is_there) text += ", and is back";
    if (now.switched_off) text += ": the interface was switched off on this node";
    emit(tick, state, "link.down", now.is_there || now.switched_off ? EventSeverity::kWarn : EventSeverity::kCritical,
         now.went_down, text, "The network link went down",
         now.switched_off ? "" : "check cable, transceiver and the switch's port", out);
  }
  if (now.went_up > 0) {
    emit(tick, state, "link.up", EventSeverity::kInfo, now.went_up,
         name + (now.is_there ? ": link came up" : ": link came up, and is lost again"), "The network link came up", "",
         out);
  }
}

void Netdevs::read_speed(const Tick& tick, State& state, NodeReadings& out) {
  if (!state.about.carrier) return;
  FileText text = state.speed_file.read();  // EINVAL or -1: not known
  std::optional<int64_t> megabits = text.ok() ? parse_int(text.text) : std::nullopt;
  if (!megabits || *megabits <= 0 || *megabits >= UINT32_MAX) return;
  const double speed = static_cast<double>(*megabits) * 1e6 / 8;
  out.add(nic_metric("lockstep_nic_speed"), state.labels, speed);
  const double before = std::exchange(state.about.speed, speed);  // kept while the link is down
  if (before <= 0 || speed == before) return;
  std::string change =
      format("%s: %s -> %s", state.about.name.c_str(), gigabits(before).c_str(), gigabits(speed).c_str());
  if (speed < before) {
    emit(tick, state, "link.degraded", EventSeverity::kWarn, 1, std::move(change),
         "The link trained down: it is slower than before", "check cable, transceiver and the switch's port", out);
  } else {
    emit(tick, state, "link.restored", EventSeverity::kInfo, 1, std::move(change), "The link is faster than before", "",
         out);
  }
}

void Netdevs::read_link(const Tick& tick, State& state, NodeReadings& out) {
  const Carrier now = read_carrier(state, out);
  if (state.read_before) report_carrier(tick, state, now, out);
  read_speed(tick, state, out);
  state.read_before = true;
}

void Netdevs::read(const Tick& tick, NodeReadings& out) {
  for (auto& [name, state] : states_) {
    int bad = 0;
    std::string why;
    for (Statistic& statistic : state.statistics) {
      FileText text = statistic.file.read();
      std::optional<uint64_t> value = text.ok() ? parse_uint(text.text) : std::nullopt;
      if (!value) {
        ++bad;
        why = statistic.file.path() + ": " + (text.ok() ? "no number" : strerror(text.error));
        continue;
      }
      out.add(*statistic.metric, statistic.labels, static_cast<double>(*value));
    }
    out.failures += bad;
    if (bad > 0 && !state.reported_failure) {
      state.reported_failure = true;
      out.notes.push_back("nic: " + why + "; what cannot be read of " + name + " is left out");
    }
    // It has gone altogether; the next scan tells. A link that is only not there any more did not go down.
    if (bad == static_cast<int>(state.statistics.size())) continue;
    read_link(tick, state, out);
    if (tick.slow) {
      FileText mtu = state.mtu_file.read();
      if (std::optional<int64_t> value = mtu.ok() ? parse_int(mtu.text) : std::nullopt) {
        out.add(nic_metric("lockstep_nic_mtu"), state.labels, static_cast<double>(*value));
      }
    }
  }
}

std::vector<Netdevs::Netdev> Netdevs::list() const {
  std::vector<Netdev> all;
  for (const auto& [name, state] : states_) all.push_back(state.about);
  return all;
}

const Netdevs::Netdev* Netdevs::find(const std::string& name) const {
  auto found = states_.find(name);
  return found == states_.end() ? nullptr : &found->second.about;
}

bool Netdevs::changed_lately(const std::string& name, int64_t monotonic_ns) const {
  const Netdev* netdev = find(name);
  return netdev && netdev->link_event_ns != INT64_MIN && monotonic_ns - netdev->link_event_ns < kLatelyNs;
}

}  // namespace lockstep
