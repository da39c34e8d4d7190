// RDMA ports from /sys/class/infiniband: counters, state, rate; InfiniBand and RoCE, of any vendor.
//
// One odd port or file costs that reading alone: "N/A (no PMA)", EINVAL, no counters/ folder, a driver that invents its
// state. Counters of the table below have rows of their own and are read every tick; any other counter of a port is
// published as lockstep_nic_counter_total on slow ticks, at most kOtherCountersMax of a port. The files of
// hw_counters/ are read back to back: the driver fetches them all at once and serves the next ones from memory.
// What falls: see counter32.h for the 32-bit ones; any other counter that falls has been reset, and the sum falls too.
//
// Thread rule: Confined.
// Limits:      kDevicesMax devices, kPortsMax ports each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sources/nic/counter32.h"
#include "sources/nic/netdev.h"
#include "sources/nic/nic_context.h"
#include "sources/nic/pci_path.h"

namespace lockstep {

// "4: ACTIVE" -> 4 and "ACTIVE".
struct PortState {
  int number = 0;
  std::string name;
  bool operator==(const PortState&) const = default;
};
std::optional<PortState> parse_port_state(std::string_view text);
// "400 Gb/sec (4X NDR)" -> 50e9 bytes per second.
std::optional<double> parse_port_rate(std::string_view text);

struct RdmaPort {
  std::string device;  // "mlx5_0"
  int port = 1;        // 0: counters of the device as a whole
  std::string netdev;  // empty: none, as with InfiniBand without IPoIB
  std::string driver;  // "mlx5_core"; empty: not known
  std::string link_layer;
  std::string firmware;
  PciDevice pci;
  std::string name() const { return device + "/" + std::to_string(port); }
};

class RdmaPorts {
 public:
  static constexpr size_t kDevicesMax = 64;
  static constexpr size_t kPortsMax = 8;
  static constexpr size_t kOtherCountersMax = 64;

  explicit RdmaPorts(NicContext& context) : context_(context) {}

  // Finds ports that came and went. A machine without RDMA is no failure.
  void rescan(const Tick& tick, NodeReadings& out);
  // netdevs: as of this tick, so that a port's event can be told from its interface's.
  void read(const Tick& tick, const Netdevs& netdevs, NodeReadings& out);

  std::vector<RdmaPort> list() const;

 private:
  struct Counter {
    SysfsFile file;
    std::string name;  // "hw_counters/out_of_buffer"
    const MetricDescriptor* metric = nullptr;
    LabelSet labels;
    double scale = 1;
    bool is_32_bit = false;
    bool every_tick = false;
    bool unreadable = false;  // left out until the next slow tick
    Counter32 extended;
    uint64_t raw = 0;  // as last read
    bool has_raw = false;
    uint64_t raw_now = 0;  // as read in this tick
    bool is_new = false;
  };
  struct Port {
    RdmaPort about;
    LabelSet labels;
    SysfsFile state_file, phys_state_file, rate_file;
    std::vector<Counter> counters;
    std::optional<PortState> state, phys_state;
    double active_rate = 0;  // By/s, when it was last ACTIVE
    bool reported_failure = false;
    SlowDevice slow;
    // EFA says ACTIVE whatever happens.
    bool invents_state() const { return about.driver == "efa"; }
  };

  // Of a device, and 0 where it has counters of its own.
  std::vector<int> port_numbers(const std::string& device, NodeReadings& out) const;
  Port make(const std::string& device, int port) const;
  void report_gone(const Tick& tick, const Port& port, NodeReadings& out) const;
  void find_counters(Port& port, NodeReadings& out) const;
  void fail(Port& port, const std::string& file, const std::string& why, NodeReadings& out) const;
  void read_state(const Tick& tick, const Netdevs& netdevs, Port& port, NodeReadings& out);
  void read_counters(const Tick& tick, Port& port, NodeReadings& out) const;
  void emit(const Tick& tick, const Port& port, const char* name, EventSeverity severity, std::string text,
            const char* meaning, const char* action, bool secondary, NodeReadings& out) const;

  NicContext& context_;
  bool scanned_before_ = false;
  std::map<std::string, Port> ports_;  // by name()
};

}  // namespace lockstep
