#include "diagnosis/network/port_evidence.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

namespace lockstep {
namespace {

// What says most comes first: damage is damage, while marks and queues follow from other troubles as well.
constexpr std::string_view kTelling[] = {"up", "errors", "speed", "ecn", "drops", "pause", "queue"};

size_t place_of(const fabric::HopValue& value) {
  return static_cast<size_t>(std::find(std::begin(kTelling), std::end(kTelling), value.meaning) - std::begin(kTelling));
}

// Standing out is not enough: an error in ten seconds slows nobody; any load has some marks and a queue now and then,
// while an idle sibling has none; a few pauses are how a lossless network works.
constexpr double kErrorsPerSecondMin = 0.1;
constexpr double kMarkedShareMin = 1e-4;  // of packets
constexpr double kPacketBytes = 4096;     // the payload of RoCE's largest packets
constexpr double kMarksPerSecondMin = 1;
constexpr double kPausesPerSecondMin = 10;
constexpr double kQueueBytesMin = 1e6;

bool matters(const fabric::HopValue& value, const std::vector<fabric::HopValue>& of_port) {
  if (value.meaning == "errors") return value.value >= kErrorsPerSecondMin;
  if (value.meaning == "pause") return value.value >= kPausesPerSecondMin;
  if (value.meaning == "queue") return value.value >= kQueueBytesMin;
  if (value.meaning != "ecn") return true;
  double bytes = 0;
  for (const fabric::HopValue& one : of_port)
    if (one.meaning == "load" && one.direction == value.direction) bytes = std::max(bytes, one.value);
  return value.value >= std::max(kMarksPerSecondMin, kMarkedShareMin * bytes / kPacketBytes);
}

bool says_more(const std::optional<fabric::HopValue>& a, const std::optional<fabric::HopValue>& b) {
  if (!a || !b) return a.has_value();
  return place_of(*a) < place_of(*b);
}

}  // namespace

std::vector<const fabric::HopStates::Values*> PortReadings::read(const std::vector<PortEnd>& ends) {
  std::vector<PortEnd> missing;
  for (const PortEnd& end : ends)
    if (known_.try_emplace({end.link, end.end}).second) missing.push_back(end);
  std::vector<fabric::HopStates::Values> asked = states_.of_ports(missing);
  for (size_t i = 0; i < missing.size(); ++i) known_[{missing[i].link, missing[i].end}] = std::move(asked[i]);
  std::vector<const fabric::HopStates::Values*> all;
  for (const PortEnd& end : ends) all.push_back(&known_[{end.link, end.end}]);  // a map's entries stay where they are
  return all;
}

PortEvidence PortReadings::of_port(fabric::LinkIndex link, fabric::NodeIndex end) {
  const fabric::NodeKind beyond = topology_.nodes()[topology_.other_end(link, end)].kind;
  std::vector<PortEnd> ends = {{link, end}};
  for (const fabric::LinkIndex other : topology_.links_of(end)) {
    if (ends.size() > kSiblingsMax) break;
    if (other != link && topology_.nodes()[topology_.other_end(other, end)].kind == beyond)
      ends.push_back({other, end});
  }
  const std::vector<const fabric::HopStates::Values*> all = read(ends);
  std::vector<fabric::HopValue> values = *all.front();
  PortEvidence evidence{.reported = !values.empty()};
  if (values.empty()) return evidence;
  fabric::HopStates::compare(values, std::span(all).subspan(1));
  for (const fabric::HopValue& value : values) {
    if (!value.is_odd || place_of(value) == std::size(kTelling) || !matters(value, values)) continue;
    if (!says_more(value, evidence.odd)) continue;
    evidence.odd = value;
  }
  const fabric::Link& one = topology_.links()[link];
  evidence.switch_name = topology_.name(end);
  evidence.port = topology_.text(one.a == end ? one.port_a : one.port_b);
  return evidence;
}

PortEvidence PortReadings::of_switch(fabric::NodeIndex node) {
  PortEvidence best;
  size_t asked = 0, odd = 0;
  for (const fabric::LinkIndex link : topology_.links_of(node)) {
    const fabric::NodeIndex neighbour = topology_.other_end(link, node);
    if (!fabric::is_switch(topology_.nodes()[neighbour].kind)) continue;
    if (++asked > kNeighboursMax) break;
    PortEvidence one = of_port(link, neighbour);
    odd += one.odd.has_value() ? 1 : 0;
    best.reported |= one.reported;
    if (says_more(one.odd, best.odd)) best = std::move(one);
  }
  // One bad port is a link's trouble.
  if (odd < 2 || 2 * odd < std::min(asked, kNeighboursMax)) best.odd.reset();
  return best;
}

PortEvidence PortReadings::of(const NetworkComponent& component) {
  if (component.link != fabric::kNone) {
    const fabric::Link& link = topology_.links()[component.link];
    PortEvidence one = of_port(component.link, link.a), other = of_port(component.link, link.b);
    const bool reported = one.reported || other.reported;
    PortEvidence& more = says_more(other.odd, one.odd) ? other : one;
    more.reported = reported;
    return std::move(more);
  }
  const fabric::NodeKind kind = topology_.nodes()[component.node].kind;
  if (fabric::is_switch(kind)) return of_switch(component.node);
  if (kind != fabric::NodeKind::kNic) return {};
  const std::optional<fabric::LinkIndex> uplink = topology_.uplink_of(component.node);
  return uplink ? of_port(*uplink, topology_.other_end(*uplink, component.node)) : PortEvidence{};
}

}  // namespace lockstep
