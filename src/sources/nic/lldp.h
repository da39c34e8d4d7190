// Which switch port a network interface is connected to, from the LLDP frames that the switch sends by itself every
// half minute or so. Frames are received directly (a packet socket for ethertype 0x88cc): no LLDP daemon is needed, and
// one that runs is not disturbed. Some adapters keep the frames for themselves (mlx5 with DCBX in its firmware).
//
// In a recorded tree, the file /run/lockstep-recorded/lldp/NETDEV is the last frame of an interface.
//
// Thread rule: Confined (LldpListener), Thread-safe (functions).
// Limits:      kFramesMax frames a tick; a neighbour is forgotten when its time to live is over.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "sources/nic/netdev.h"
#include "sources/nic/netlink.h"
#include "sources/nic/nic_context.h"

namespace lockstep {

struct LldpNeighbour {
  std::string chassis_id;  // as text: a name, or an address in hexadecimal
  std::string port_id;
  bool port_id_is_address = false;
  std::string system_name;
  std::string port_description;
  int ttl_seconds = 0;  // 0: the neighbour says goodbye

  // For people and for joins: the switch, and its port as its administrator calls it.
  std::string leaf() const { return system_name.empty() ? chassis_id : system_name; }
  std::string leaf_port() const { return port_id_is_address && !port_description.empty() ? port_description : port_id; }
  bool operator==(const LldpNeighbour&) const = default;
};

// A whole Ethernet frame, with or without a VLAN tag.
Result<LldpNeighbour> parse_lldp_frame(Bytes frame);

class LldpListener {
 public:
  static constexpr int kFramesMax = 64;

  // Opens the socket, so that privileges may be dropped later.
  explicit LldpListener(NicContext& context);
  // Listens on these interfaces. On slow ticks.
  void join(const std::vector<Netdevs::Netdev>& netdevs);
  void read(const Tick& tick, const std::vector<Netdevs::Netdev>& netdevs, NodeReadings& out);

  const LldpNeighbour* neighbour(const std::string& netdev) const;
  size_t neighbours() const { return neighbours_.size(); }
  const std::string& why_not() const { return why_not_; }  // empty: works

 private:
  struct Known {
    LldpNeighbour neighbour;
    int64_t until_ns = INT64_MAX;
  };

  void accept(const std::string& netdev, Bytes frame, int64_t monotonic_ns, NodeReadings& out);

  NicContext& context_;
  UniqueFd socket_;
  std::string why_not_;
  std::set<int> joined_;
  std::map<std::string, Known> neighbours_;
};

}  // namespace lockstep
