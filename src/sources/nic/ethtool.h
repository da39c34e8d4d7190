// Statistics of network interfaces by ethtool: pauses, drops, error correction, PCIe stalls, transceiver.
//
// Two ways, because neither has it all. The driver's own statistics (`ethtool -S`, an ioctl) have the most, in names
// that differ by driver (ethtool_names.h); mlx5 tells pauses per priority only there. The kernel's netlink interfaces
// (ethtool_netlink.h) tell the standard ones of any driver: they fill rows that the driver's statistics lack.
// A priority is published once it has carried or paused anything, or has flow control switched on.
//
// In a recorded tree, the statistics of an interface are the file /run/lockstep-recorded/ethtool/NETDEV, as
// `ethtool -S` prints them.
//
// Thread rule: Confined.
// Limits:      kStatisticsMax statistics of an interface; one that answers slowly rests (SlowDevice).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sources/nic/ethtool_netlink.h"
#include "sources/nic/netdev.h"
#include "sources/nic/nic_context.h"

namespace lockstep {

// A driver's statistics, wherever they come from.
class EthtoolStatistics {
 public:
  static constexpr size_t kStatisticsMax = 65536;
  virtual ~EthtoolStatistics() = default;
  // Empty: this interface has none. An error is one line.
  virtual Result<std::vector<std::string>> names(const std::string& netdev) = 0;
  // In the order of names(). Another number of them than names: ask for the names again.
  virtual Result<void> values(const std::string& netdev, std::vector<uint64_t>& out) = 0;
};
std::unique_ptr<EthtoolStatistics> kernel_ethtool();
std::unique_ptr<EthtoolStatistics> recorded_ethtool(const std::string& root);

struct EthtoolStatistic {
  std::string name;
  uint64_t value = 0;
  bool operator==(const EthtoolStatistic&) const = default;
};
// Lines "   name: value"; others are passed over.
std::vector<EthtoolStatistic> parse_ethtool_text(std::string_view text);

class EthtoolMetrics {
 public:
  // netlink: null in a recorded tree.
  EthtoolMetrics(NicContext& context, std::unique_ptr<EthtoolStatistics> statistics,
                 std::unique_ptr<EthtoolNetlink> netlink)
      : context_(context), statistics_(std::move(statistics)), netlink_(std::move(netlink)) {}

  void read(const Tick& tick, const std::vector<Netdevs::Netdev>& netdevs, NodeReadings& out);
  size_t interfaces_with_statistics() const;

 private:
  struct Entry {
    size_t position = 0;
    const MetricDescriptor* metric = nullptr;
    LabelSet labels;
    double scale = 1;
    int priority = -1;
  };
  struct Interface {
    int ifindex = 0;
    bool asked_names = false;
    size_t names = 0;
    std::vector<Entry> entries;
    std::array<bool, 8> priority_in_use{};
    bool has_pause = false, has_priority_pause = false, has_corrected_bits = false, has_checksum = false,
         has_symbol = false;                                  // in the driver's statistics
    bool netlink_has_pause = false, netlink_has_pfc = false;  // as of the last slow tick
    std::map<std::string, LabelSet> labels;                   // of rows from netlink
    bool reported_failure = false;
    SlowDevice slow;
  };

  Result<void> find_names(const std::string& netdev, Interface& interface);
  Result<void> read_driver(const std::string& netdev, Interface& interface, NodeReadings& out);
  void read_netlink(const std::string& netdev, Interface& interface, bool slow, NodeReadings& out);
  static const LabelSet& labels_of(Interface& interface, const std::string& netdev, const Labels& more);

  NicContext& context_;
  std::unique_ptr<EthtoolStatistics> statistics_;
  std::unique_ptr<EthtoolNetlink> netlink_;
  std::map<std::string, Interface> interfaces_;
  std::vector<uint64_t> values_;
};

}  // namespace lockstep
