// Network interfaces from /sys/class/net: traffic, link, speed, and an event for each time a link comes or goes.
//
// Which ones: those of a PCI or other device, and those that an RDMA device uses; not lo, bridges, veth, containers'
// ends, nor the representors of virtual functions. At most kNetdevsMax.
// Flaps between two readings are not missed: the kernel counts them (carrier_up_count, carrier_down_count).
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sources/nic/nic_context.h"
#include "sources/nic/pci_path.h"

namespace lockstep {

class Netdevs {
 public:
  static constexpr size_t kNetdevsMax = 64;

  struct Netdev {
    std::string name;
    int ifindex = 0;
    PciDevice pci;  // no chain: of no PCI device
    bool carrier = false;
    double speed = 0;                   // By/s; 0: not known
    int64_t link_event_ns = INT64_MIN;  // monotonic time of its last link event
  };

  Netdevs(NicContext& context, bool with_virtual) : context_(context), with_virtual_(with_virtual) {}

  // Finds interfaces that came and went; one that goes is an event. used_by_rdma: names to take whatever they are.
  void rescan(const Tick& tick, const std::vector<std::string>& used_by_rdma, NodeReadings& out);
  void read(const Tick& tick, NodeReadings& out);

  std::vector<Netdev> list() const;
  const Netdev* find(const std::string& name) const;
  // A link event of this interface within the last few seconds.
  bool changed_lately(const std::string& name, int64_t monotonic_ns) const;

 private:
  struct Statistic {
    SysfsFile file;
    const MetricDescriptor* metric = nullptr;
    LabelSet labels;
  };
  struct State {
    Netdev about;
    LabelSet labels;
    SysfsFile carrier_file, ups_file, downs_file, changes_file, speed_file, mtu_file;
    std::vector<Statistic> statistics;
    bool read_before = false;
    bool reported_failure = false;
    int64_t ups = 0, downs = 0, changes = 0;
  };

  State make(const std::string& name, int ifindex) const;
  bool is_wanted(const std::string& name, const std::vector<std::string>& used_by_rdma) const;
  struct Carrier {
    bool is_there = false;
    bool switched_off = false;  // by an administrator of this node
    int64_t went_down = 0, went_up = 0;
  };
  void read_link(const Tick& tick, State& state, NodeReadings& out);
  Carrier read_carrier(State& state, NodeReadings& out);
  void report_carrier(const Tick& tick, State& state, const Carrier& now, NodeReadings& out);
  void read_speed(const Tick& tick, State& state, NodeReadings& out);
  void emit(const Tick& tick, State& state, const char* name, EventSeverity severity, int64_t count, std::string text,
            const char* meaning, const char* action, NodeReadings& out);

  NicContext& context_;
  bool with_virtual_;
  bool scanned_before_ = false;
  std::map<std::string, State> states_;
};

}  // namespace lockstep
