// Tomography: which component of the network, were it ill, explains best which flows are slow and which are not.
//
// Each component is a hypothesis: a flow that crosses it is slow (kFollows), another one is not (kStray). A flow crosses
// what is on its path by the share of the path: where one of four equal links carries it and nobody saw which, by a
// quarter of each. So fast flows speak for whatever they cross, and a switch in the middle, which every path crosses, is
// guilty only where nearly all of them are slow. An adapter or a link may be ill in one direction alone, as one laser is.
// Of what explains the flows equally well the one that fewer of them cross
// comes first: a component's share in the prior is one over the flows that cross it.
//
// Components: hosts, adapters (with their cables), switches, and links between switches.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fabric/topology.h"

namespace lockstep {

// A node, or a link between two switches.
struct NetworkComponent {
  fabric::NodeIndex node = fabric::kNone;
  fabric::LinkIndex link = fabric::kNone;
  auto operator<=>(const NetworkComponent&) const = default;
};

struct CrossedComponent {
  NetworkComponent component;
  double share = 1;
  // The other direction: an adapter receives it; it goes from a link's end b to its end a; it stays under a leaf, while
  // others use the leaf's links to other switches.
  bool back = false;
};

// What a flow crosses, each component once.
struct FlowPath {
  std::vector<CrossedComponent> crossed;
  const std::vector<CrossedComponent>* between =
      nullptr;  // and what flows between the same places share; nullptr: nothing
  bool slow = false;
};

struct Suspect {
  NetworkComponent component;
  double score = 0;                             // natural logarithm; the best first
  size_t slow_crossing = 0, fast_crossing = 0;  // flows, with any share
};

inline constexpr double kFollows = 0.95;  // a flow that crosses what is ill is slow
inline constexpr double kStray = 0.02;    // one that does not cross it

// Those that at least one slow flow crosses.
std::vector<Suspect> rank_suspects(std::span<const FlowPath> flows);

}  // namespace lockstep
