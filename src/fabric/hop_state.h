// How an adapter or a switch port on a path does, from stored metrics: load, errors, congestion marks, pauses, at a
// time, beside what its siblings do.
//
// A counter is told as its rate over the minute before that time, anything else as its last value; both by samples of at
// most five minutes before, since agents send what does not change only every two.
// Siblings of an adapter are others on the same leaf (kSiblingsMax of them); of a link between switches those beside it
// on the path. A value is odd where it stands out: above three times theirs, a load below 0.7 of theirs, or down or
// slower where they are not; see is_odd().
// Cost: a selection for all adapters, and one for all switches that are asked for the same ports.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fabric/topology.h"
#include "store/metric_reader.h"

namespace lockstep::fabric {

struct HopValue {
  std::string metric;     // as it is stored
  std::string direction;  // "transmit": it leaves the adapter or switch; "receive"; empty: it has none
  std::string meaning;    // "load", "errors", "ecn", "pause", "queue", "drops", "up", "speed", "optics", "other"
  double value = 0;
  bool is_rate = false;            // per second
  std::optional<double> siblings;  // their median
  size_t sibling_count = 0;
  bool is_odd = false;
  // Of a switch's port: which it is and the direction, by the labels that its series is stored with.
  std::vector<std::pair<std::string, std::string>> labels;
};

class HopStates {
 public:
  static constexpr size_t kSiblingsMax = 8;

  HopStates(const MetricReader& metrics, const Topology& topology, int64_t at_unix_ns);

  using Values = std::vector<HopValue>;
  // Beside their siblings; as many as there are adapters.
  std::vector<Values> of_nics(std::span<const NodeIndex> nics) const;
  // The port at this end of a link; a switch, by its name or one that differs in the domain, reports it as {switch, port}.
  struct PortEnd {
    LinkIndex link = kNone;
    NodeIndex end = kNone;
  };
  // None of an end that is no port of a switch; as many as there are ends.
  std::vector<Values> of_ports(std::span<const PortEnd> ends) const;
  // Sets the median of others, each of which was read as `values` were.
  static void compare(Values& values, std::span<const Values* const> others);

 private:
  // Whose a series is, by the values of two of its labels; nullptr: nobody's.
  using Owner = std::function<Values*(std::string_view, std::string_view)>;
  std::vector<Values> read_nics(std::span<const NodeIndex> nics) const;
  void read(const std::vector<LabelMatcher>& matchers, bool of_switch, const Owner& owner) const;
  std::optional<HopValue> describe(std::string_view name, std::string_view direction, bool of_switch) const;
  std::optional<double> value_of(const MetricSelection& selection, size_t series, bool is_rate) const;
  std::vector<NodeIndex> siblings_of(NodeIndex nic) const;

  const MetricReader& metrics_;
  const Topology& topology_;
  const int64_t at_ms_;
  struct Meaning {
    const char* meaning;
    bool is_rate;
  };
  std::unordered_map<std::string, Meaning> nic_metrics_;  // by the name as stored
  std::unordered_map<std::string, bool> is_counter_;      // likewise, of what switches report
};

}  // namespace lockstep::fabric
