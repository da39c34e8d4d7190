// How an adapter or a switch port on a path does, from stored metrics: load, errors, congestion marks, pauses, at a
// time, beside what its siblings do.
//
// A counter is told as its rate over the minute before that time, anything else as its last value; both by samples of at
// most five minutes before, since agents send what does not change only every two.
// Siblings of an adapter are others on the same leaf (kSiblingsMax of them); of a link between switches those beside it
// on the path. A value is odd where it stands out: above three times theirs, a load below 0.7 of theirs, or down or slower where they are not; see is_odd().
// Cost: one or two selections by host and device, or by switch and port, for each of them.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fabric/topology.h"
#include "store/metric_reader.h"

namespace lockstep::fabric {

struct HopValue {
  std::string metric;     // as it is stored
  std::string direction;  // "transmit", "receive"; empty: it has none
  std::string meaning;    // "load", "errors", "ecn", "pause", "queue", "drops", "other"
  double value = 0;
  bool is_rate = false;            // per second
  std::optional<double> siblings;  // their median
  size_t sibling_count = 0;
  bool is_odd = false;
};

class HopStates {
 public:
  static constexpr size_t kSiblingsMax = 8;

  HopStates(const MetricReader& metrics, const Topology& topology, int64_t at_unix_ns);

  std::vector<HopValue> of_nic(NodeIndex nic);
  // The port at this end of a link; a switch reports it as {switch, port}.
  std::vector<HopValue> of_port(LinkIndex link, NodeIndex end);
  // Sets the median of others, each of which was read as `value` was.
  static void compare(std::vector<HopValue>& values, const std::vector<std::vector<HopValue>>& others);

 private:
  std::vector<HopValue> read_nic(NodeIndex nic);
  void read(const std::vector<LabelMatcher>& matchers, bool of_switch, std::vector<HopValue>& into);
  std::optional<double> value_of(const MetricSelection& selection, size_t series, bool is_rate) const;

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
