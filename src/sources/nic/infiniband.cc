#include "sources/nic/infiniband.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "sources/nic/nic_metrics.h"

namespace lockstep {

namespace {

constexpr int kActive = 4;

struct KnownCounter {
  std::string_view file;
  const MetricDescriptor* metric;
  const char* direction = nullptr;
  double scale = 1;
  bool is_32_bit = false;
};

constexpr const MetricDescriptor* kIo = &nic_metric("hw.network.io");
constexpr const MetricDescriptor* kPackets = &nic_metric("hw.network.packets");

#define LOCKSTEP_COUNTER(name) #name, &nic_metric("lockstep_nic_" #name "_total")

constexpr KnownCounter kPortCounters[] = {
    {"port_xmit_data", kIo, "transmit", 4},  // in words of four bytes
    {"port_rcv_data", kIo, "receive", 4},
    {"port_xmit_packets", kPackets, "transmit"},
    {"port_rcv_packets", kPackets, "receive"},
    {LOCKSTEP_COUNTER(port_xmit_wait)},
    {LOCKSTEP_COUNTER(port_xmit_discards)},
    {LOCKSTEP_COUNTER(port_rcv_errors)},
    {LOCKSTEP_COUNTER(port_rcv_remote_physical_errors)},
    {LOCKSTEP_COUNTER(symbol_error)},
    {LOCKSTEP_COUNTER(link_error_recovery)},
    {LOCKSTEP_COUNTER(link_downed)},
    {LOCKSTEP_COUNTER(local_link_integrity_errors)},
    {LOCKSTEP_COUNTER(excessive_buffer_overrun_errors)},
    {LOCKSTEP_COUNTER(port_rcv_switch_relay_errors)},
};

constexpr KnownCounter kHardwareCounters[] = {
    // The queue counters of mlx5: 32 bits in the adapter.
    {LOCKSTEP_COUNTER(rx_write_requests), nullptr, 1, true},
    {LOCKSTEP_COUNTER(rx_read_requests), nullptr, 1, true},
    {LOCKSTEP_COUNTER(out_of_buffer), nullptr, 1, true},
    {LOCKSTEP_COUNTER(out_of_sequence), nullptr, 1, true},
    {LOCKSTEP_COUNTER(duplicate_request), nullptr, 1, true},
    {LOCKSTEP_COUNTER(rnr_nak_retry_err), nullptr, 1, true},
    {LOCKSTEP_COUNTER(packet_seq_err), nullptr, 1, true},
    {LOCKSTEP_COUNTER(implied_nak_seq_err), nullptr, 1, true},
    {LOCKSTEP_COUNTER(local_ack_timeout_err), nullptr, 1, true},
    {LOCKSTEP_COUNTER(req_cqe_error), nullptr, 1, true},
    {LOCKSTEP_COUNTER(resp_cqe_error), nullptr, 1, true},
    {LOCKSTEP_COUNTER(req_cqe_flush_error), nullptr, 1, true},
    {LOCKSTEP_COUNTER(resp_cqe_flush_error), nullptr, 1, true},
    {LOCKSTEP_COUNTER(req_transport_retries_exceeded), nullptr, 1, true},
    {LOCKSTEP_COUNTER(req_rnr_retries_exceeded), nullptr, 1, true},
    {LOCKSTEP_COUNTER(roce_adp_retrans), nullptr, 1, true},
    {LOCKSTEP_COUNTER(roce_adp_retrans_to), nullptr, 1, true},
    {LOCKSTEP_COUNTER(roce_slow_restart), nullptr, 1, true},
    // Its congestion and port counters: 64 bits.
    {LOCKSTEP_COUNTER(rp_cnp_handled)},
    {LOCKSTEP_COUNTER(rp_cnp_ignored)},
    {LOCKSTEP_COUNTER(np_ecn_marked_roce_packets)},
    {LOCKSTEP_COUNTER(np_cnp_sent)},
    {LOCKSTEP_COUNTER(rx_icrc_encapsulated)},
    // Traffic as drivers without counters/ name it (EFA, bnxt_re).
    {"tx_bytes", kIo, "transmit"},
    {"rx_bytes", kIo, "receive"},
    {"tx_pkts", kPackets, "transmit"},
    {"rx_pkts", kPackets, "receive"},
};

#undef LOCKSTEP_COUNTER

// Counters of mlx5 without a row that have 32 bits as well.
constexpr std::string_view kOther32Bit[] = {
    "rx_atomic_requests",         "rx_dct_connect",           "resp_local_length_error",
    "req_remote_invalid_request", "req_remote_access_errors", "resp_remote_access_errors",
    "roce_slow_restart_cnps",     "roce_slow_restart_trans",
};

template <size_t N>
const KnownCounter* find_known(const KnownCounter (&table)[N], std::string_view file) {
  for (const KnownCounter& known : table) {
    if (known.file == file) return &known;
  }
  return nullptr;
}

std::string link_target_name(const std::string& link) {
  char target[PATH_MAX];
  ssize_t size = readlink(link.c_str(), target, sizeof target);
  if (size <= 0) return {};
  std::string_view path(target, static_cast<size_t>(size));
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string text_or_empty(const std::string& path) {
  FileText text = read_small_file(path);
  return text.ok() && !has_control_characters(text.text) ? std::string(text.text) : std::string();
}

// The GID table knows best, but has no entry before the interface has an address. The folder of the PCI device may
// hold several interfaces: then the one of this port number is meant.
std::string find_netdev(const std::string& device_folder, int port) {
  const std::string gids = device_folder + "/ports/" + std::to_string(port) + "/gid_attrs/ndevs/";
  for (const char* index : {"0", "1", "2", "3"}) {
    std::string name = text_or_empty(gids + index);
    if (!name.empty()) return name;
  }
  const std::string folder = device_folder + "/device/net";
  Result<std::vector<std::string>> names = list_directory(folder);
  if (!names || names->empty()) return {};
  if (names->size() == 1) return names->front();
  for (const std::string& name : *names) {
    if (text_or_empty(folder + "/" + name + "/dev_port") == std::to_string(port - 1)) return name;
  }
  return {};
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string describe_rate(double bytes_per_second) {
  return format("%g Gb/s", bytes_per_second * 8 / 1e9);
}

}  // namespace

std::optional<PortState> parse_port_state(std::string_view text) {
  size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::optional<int64_t> number = parse_int(trim(text.substr(0, colon)));
  std::string_view name = trim(text.substr(colon + 1));
  if (!number || *number < 0 || *number > 255 || has_control_characters(name)) return std::nullopt;
  return PortState{static_cast<int>(*number), std::string(name)};
}

std::optional<double> parse_port_rate(std::string_view text) {
  size_t unit = text.find(" Gb/sec");
  if (unit == std::string_view::npos) return std::nullopt;
  std::optional<double> gigabits = parse_double(text.substr(0, unit));
  if (!gigabits || !(*gigabits >= 0) || *gigabits > 1e6) return std::nullopt;
  return *gigabits * 1e9 / 8;
}

void RdmaPorts::emit(const Tick& tick, const Port& port, const char* name, EventSeverity severity, std::string text,
                     const char* meaning, const char* action, bool secondary, NodeReadings& out) const {
  NodeEvent event;
  event.name = name;
  event.time_unix_ns = tick.unix_ns;
  event.severity = severity;
  event.device = port.about.name();
  event.text = std::move(text);
  event.meaning = meaning;
  event.action = action;
  event.source = "sysfs";
  event.secondary = secondary;
  out.events.push_back(std::move(event));
}

void RdmaPorts::fail(Port& port, const std::string& file, const std::string& why, NodeReadings& out) const {
  ++out.failures;
  if (port.reported_failure) return;
  port.reported_failure = true;
  out.notes.push_back(format("nic: %s: %s: %s; what cannot be read of this port is left out, and tried again",
                             port.about.name().c_str(), file.c_str(), why.c_str()));
}

RdmaPorts::Port RdmaPorts::make(const std::string& device, int number) const {
  const std::string device_folder = context_.root + "/sys/class/infiniband/" + device;
  const std::string folder = number == 0 ? device_folder : device_folder + "/ports/" + std::to_string(number);
  Port port;
  port.about.device = device;
  port.about.port = number;
  port.about.driver = link_target_name(device_folder + "/device/driver");
  port.about.firmware = text_or_empty(device_folder + "/fw_ver");
  port.about.pci = pci_device_at(device_folder + "/device");
  port.labels = std::make_shared<const Labels>(Labels{{"device", device}, {"port", std::to_string(number)}});
  if (number > 0) {
    port.about.link_layer = text_or_empty(folder + "/link_layer");
    port.state_file = SysfsFile(folder + "/state", &context_.files);
    port.phys_state_file = SysfsFile(folder + "/phys_state", &context_.files);
    port.rate_file = SysfsFile(folder + "/rate", &context_.files);
  }
  return port;
}

void RdmaPorts::find_counters(Port& port, NodeReadings& out) const {
  const std::string device_folder = context_.root + "/sys/class/infiniband/" + port.about.device;
  const std::string folder =
      port.about.port == 0 ? device_folder : device_folder + "/ports/" + std::to_string(port.about.port);
  std::map<std::string, Counter> old;
  for (Counter& counter : port.counters) old.emplace(counter.name, std::move(counter));
  port.counters.clear();

  // Some drivers offer the same traffic in both folders: the first one is taken, the other goes by its own name.
  std::set<std::pair<const MetricDescriptor*, std::string>> claimed;
  size_t others = 0;
  for (const char* kind : {"counters", "hw_counters"}) {
    Result<std::vector<std::string>> files = list_directory(folder + "/" + kind);
    if (!files) continue;  // bnxt_re has no counters/, many have no hw_counters/
    for (const std::string& file : *files) {
      if (file == "lifespan" || is_folder(folder + "/" + kind + "/" + file)) continue;
      const std::string name = std::string(kind) + "/" + file;
      const KnownCounter* known = *kind == 'c' ? find_known(kPortCounters, file) : find_known(kHardwareCounters, file);
      const std::string direction = known && known->direction ? known->direction : "";
      if (known && !claimed.emplace(known->metric, direction).second) known = nullptr;
      if (!known && ++others > kOtherCountersMax) {
        context_.say_once(out, format("nic: %s has more than %zu counters without a row; the others are not read",
                                      port.about.name().c_str(), kOtherCountersMax));
        continue;
      }
      const MetricDescriptor* metric = known ? known->metric : &nic_metric("lockstep_nic_counter_total");
      if (auto kept = old.find(name); kept != old.end() && kept->second.metric == metric) {
        kept->second.unreadable = false;
        port.counters.push_back(std::move(kept->second));
        continue;
      }
      Counter counter;
      counter.file = SysfsFile(folder + "/" + name, known ? &context_.files : nullptr);
      counter.name = name;
      counter.metric = metric;
      counter.scale = known ? known->scale : 1;
      counter.every_tick = known != nullptr;
      const bool may_be_32_bit = port.about.driver.empty() || port.about.driver == "mlx5_core";
      counter.is_32_bit = may_be_32_bit && (known ? known->is_32_bit
                                                  : std::find(std::begin(kOther32Bit), std::end(kOther32Bit), file) !=
                                                        std::end(kOther32Bit));
      if (known && direction.empty()) {
        counter.labels = port.labels;
      } else {
        Labels labels = *port.labels;
        labels.emplace_back(known ? "direction" : "counter", known ? direction : file);
        counter.labels = std::make_shared<const Labels>(std::move(labels));
      }
      port.counters.push_back(std::move(counter));
    }
  }
}

std::vector<int> RdmaPorts::port_numbers(const std::string& device, NodeReadings& out) const {
  const std::string folder = context_.root + "/sys/class/infiniband/" + device;
  std::vector<int> numbers;
  if (Result<std::vector<std::string>> names = list_directory(folder + "/ports"); names) {
    for (const std::string& name : *names) {
      std::optional<int64_t> number = parse_int(name);
      if (number && *number > 0 && *number < 65536) numbers.push_back(static_cast<int>(*number));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  if (numbers.size() > kPortsMax) {
    context_.say_once(out, format("nic: %s has %zu ports, more than %zu; the others are not read", device.c_str(),
                                  numbers.size(), kPortsMax));
    numbers.resize(kPortsMax);
  }
  if (is_folder(folder + "/hw_counters")) numbers.push_back(0);
  return numbers;
}

void RdmaPorts::report_gone(const Tick& tick, const Port& port, NodeReadings& out) const {
  const std::string name = port.about.name();
  const PciDevice& pci = port.about.pci;
  struct stat status {};
  const std::string pci_folder = context_.root + "/sys/bus/pci/devices/" + (pci.chain.empty() ? "" : pci.chain.back());
  if (!pci.chain.empty() && stat(pci_folder.c_str(), &status) != 0) {
    emit(tick, port, "nic.lost", EventSeverity::kCritical,
         "RDMA port " + name + " is gone, and " + pci.address + " with it", "The network adapter fell off the PCIe bus",
         "drain the node, reboot; replace the card if it comes back", false, out);
  } else {
    emit(tick, port, "nic.lost", EventSeverity::kWarn, "RDMA port " + name + " is gone",
         "Its driver was unloaded, it was renamed, or it was given to another network namespace",
         "check that nobody who needs it has lost it", false, out);
  }
}

void RdmaPorts::rescan(const Tick& tick, NodeReadings& out) {
  const std::string folder = context_.root + "/sys/class/infiniband";
  std::vector<std::string> devices;
  if (Result<std::vector<std::string>> names = list_directory(folder); names) devices = std::move(*names);
  if (devices.size() > kDevicesMax) {
    context_.say_once(
        out, format("nic: %zu RDMA devices, more than %zu; the others are not read", devices.size(), kDevicesMax));
    devices.resize(kDevicesMax);
  }
  std::map<std::string, Port> found;
  for (const std::string& device : devices) {
    for (int number : port_numbers(device, out)) {
      const std::string name = RdmaPort{device, number}.name();
      Port port;
      if (auto old = ports_.find(name); old != ports_.end()) {
        port = std::move(old->second);
        ports_.erase(old);
      } else {
        port = make(device, number);
        if (scanned_before_ && number > 0) {
          emit(tick, port, "nic.appeared", EventSeverity::kInfo, "RDMA port " + name + " appeared",
               "An RDMA port is there that was not", "", false, out);
        }
      }
      if (number > 0) port.about.netdev = find_netdev(folder + "/" + device, number);
      find_counters(port, out);
      found.emplace(name, std::move(port));
    }
  }
  for (const auto& [name, port] : ports_) {  // what is left has gone
    if (port.about.port != 0) report_gone(tick, port, out);
  }
  ports_ = std::move(found);
  scanned_before_ = true;
}

void RdmaPorts::read_state(const Tick& tick, const Netdevs& netdevs, Port& port, NodeReadings& out) {
  if (port.about.port == 0) return;
  const Netdevs::Netdev* netdev = netdevs.find(port.about.netdev);
  auto read_text = [&](SysfsFile& file, const char* name, auto parse) -> decltype(parse(std::string_view())) {
    FileText text = file.read();
    if (!text.ok()) {
      fail(port, name, strerror(text.error), out);
      return std::nullopt;
    }
    auto value = parse(text.text);
    if (!value) fail(port, name, "'" + std::string(text.text.substr(0, 60)) + "' is not understood", out);
    return value;
  };
  std::optional<double> rate = read_text(port.rate_file, "rate", parse_port_rate);
  if (rate) out.add(nic_metric("hw.network.bandwidth.limit"), port.labels, *rate);

  if (port.invents_state()) {
    if (netdev) out.add(nic_metric("hw.network.up"), port.labels, netdev->carrier ? 1 : 0);
    return;
  }
  std::optional<PortState> state = read_text(port.state_file, "state", parse_port_state);
  std::optional<PortState> phys_state = read_text(port.phys_state_file, "phys_state", parse_port_state);
  if (phys_state) out.add(nic_metric("lockstep_nic_port_phys_state"), port.labels, phys_state->number);
  if (!state) return;
  out.add(nic_metric("lockstep_nic_port_state"), port.labels, state->number);
  out.add(nic_metric("hw.network.up"), port.labels, state->number == kActive ? 1 : 0);

  const std::string name = port.about.name();
  // The interface of a RoCE port tells the same, and tells it first.
  const bool secondary = netdevs.changed_lately(port.about.netdev, tick.monotonic_ns);
  const bool was_active = port.state && port.state->number == kActive;
  const bool is_active = state->number == kActive;
  if (port.state && was_active != is_active) {
    std::string text = name + ": " + port.state->name + " -> " + state->name;
    if (phys_state && port.phys_state && *phys_state != *port.phys_state) {
      text += " (" + port.phys_state->name + " -> " + phys_state->name + ")";
    }
    if (is_active) {
      emit(tick, port, "link.up", EventSeverity::kInfo, text, "The RDMA port came up", "", secondary, out);
    } else {
      emit(tick, port, "link.down", EventSeverity::kCritical, text, "The RDMA port went down: jobs that use it stall",
           "check cable, transceiver and the switch's port", secondary, out);
    }
  }
  // Without a link the rate means nothing; it is compared with what it was when there was one.
  if (is_active && rate && *rate > 0) {
    if (port.active_rate > 0 && *rate != port.active_rate) {
      const bool slower = *rate < port.active_rate;
      emit(tick, port, slower ? "link.degraded" : "link.restored", slower ? EventSeverity::kWarn : EventSeverity::kInfo,
           name + ": " + describe_rate(port.active_rate) + " -> " + describe_rate(*rate),
           slower ? "The link trained down: it is slower than before" : "The link is faster than before",
           slower ? "check cable, transceiver and the switch's port" : "", secondary, out);
    }
    port.active_rate = *rate;
  }
  port.state = std::move(state);
  port.phys_state = std::move(phys_state);
}

void RdmaPorts::read_counters(const Tick& tick, Port& port, NodeReadings& out) const {
  bool reset = false;
  for (Counter& counter : port.counters) {
    counter.is_new = false;
    if (counter.unreadable || !(counter.every_tick || tick.slow)) continue;
    FileText text = counter.file.read();
    std::optional<uint64_t> value = text.ok() ? parse_uint(text.text) : std::nullopt;
    if (!value) {
      counter.unreadable = true;
      fail(port, counter.name, text.ok() ? "'" + std::string(text.text.substr(0, 60)) + "'" : strerror(text.error),
           out);
      continue;
    }
    if (text.reopened) {  // the driver was loaded anew
      counter.extended.restart();
      counter.has_raw = false;
    }
    counter.is_new = true;
    counter.raw_now = *value;
    reset |= counter.is_32_bit ? counter.extended.is_reset(*value, tick.monotonic_ns)
                               : counter.has_raw && *value < counter.raw;
  }
  for (Counter& counter : port.counters) {
    if (!counter.is_new) continue;
    const uint64_t value =
        counter.is_32_bit ? counter.extended.extend(counter.raw_now, tick.monotonic_ns, reset) : counter.raw_now;
    counter.raw = counter.raw_now;
    counter.has_raw = true;
    out.add(*counter.metric, counter.labels, static_cast<double>(value) * counter.scale);
  }
}

void RdmaPorts::read(const Tick& tick, const Netdevs& netdevs, NodeReadings& out) {
  for (auto& [name, port] : ports_) {
    if (port.slow.resting(tick.monotonic_ns)) {
      ++out.failures;
      continue;
    }
    const Stopwatch watch;
    read_state(tick, netdevs, port, out);
    read_counters(tick, port, out);
    const int64_t elapsed = watch.elapsed_ns();
    if (port.slow.took(elapsed, tick.monotonic_ns)) {
      context_.say_once(out,
                        format("nic: %s took %s to read its counters (limit 500 ms); left alone for 30 s each time",
                               name.c_str(), human_duration(static_cast<double>(elapsed)).c_str()));
    }
  }
}

std::vector<RdmaPort> RdmaPorts::list() const {
  std::vector<RdmaPort> all;
  for (const auto& [name, port] : ports_) {
    if (port.about.port > 0) all.push_back(port.about);
  }
  return all;
}

}  // namespace lockstep
