// What the ports of switches say of a component of the network: whether one of them stands out from its siblings, and by
// what. Read from stored series (lockstep_port_*, docs/guide/fabric.md), by whatever way they came in.
//
// A link is shown by the ports at its ends, an adapter by the switch port behind it. A switch as a whole is shown by its
// neighbours' ports that lead to it: beside one another its own ports look alike.
// Limits: kSiblingsMax ports are read to compare with, kNeighboursMax links of a switch.
// Thread rule: Confined: of one moment.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diagnosis/network/suspects.h"
#include "fabric/hop_state.h"
#include "fabric/topology.h"
#include "store/metric_reader.h"

namespace lockstep {

struct PortEvidence {
  bool reported = false;  // some port that would show it reports
  std::string switch_name, port;
  std::optional<fabric::HopValue> odd;  // what stands out; of several the one that says most
};

class PortReadings {
 public:
  static constexpr size_t kSiblingsMax = 8;
  static constexpr size_t kNeighboursMax = 8;

  PortReadings(const MetricReader& metrics, const fabric::Topology& topology, int64_t at_unix_ns)
      : topology_(topology), states_(metrics, topology, at_unix_ns) {}

  PortEvidence of(const NetworkComponent& component);

 private:
  using PortEnd = fabric::HopStates::PortEnd;
  // Of each, in order; those that are not known yet are asked for together.
  std::vector<const fabric::HopStates::Values*> read(const std::vector<PortEnd>& ends);
  PortEvidence of_port(fabric::LinkIndex link, fabric::NodeIndex end);
  PortEvidence of_switch(fabric::NodeIndex node);

  const fabric::Topology& topology_;
  fabric::HopStates states_;
  std::map<std::pair<fabric::LinkIndex, fabric::NodeIndex>, fabric::HopStates::Values> known_;
};

}  // namespace lockstep
