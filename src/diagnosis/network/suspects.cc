#include "diagnosis/network/suspects.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace lockstep {

std::vector<Suspect> rank_suspects(std::span<const FlowPath> flows) {
  struct Tally {
    Suspect suspect;
    double crossing = 0;       // shares
    double score[2] = {0, 0};  // by direction, against nothing being ill
    bool goes[2] = {false, false};
    // In both directions, or in one of them.
    double best() const {
      if (!goes[0] || !goes[1]) return score[0] + score[1];
      return std::max(score[0] + score[1], std::max(score[0], score[1]) - std::log(2.0));
    }
  };
  std::map<NetworkComponent, Tally> tallies;
  const double strays = std::log(kStray), clean = std::log(1 - kStray);
  auto add = [&](const CrossedComponent& crossed, bool is_slow) {
    Tally& tally = tallies[crossed.component];
    const double slow = crossed.share * kFollows + (1 - crossed.share) * kStray;
    tally.suspect.component = crossed.component;
    tally.score[crossed.back] += is_slow ? std::log(slow) - strays : std::log(1 - slow) - clean;
    tally.goes[crossed.back] = true;
    tally.crossing += crossed.share;
    ++(is_slow ? tally.suspect.slow_crossing : tally.suspect.fast_crossing);
  };
  for (const FlowPath& flow : flows) {
    for (const CrossedComponent& crossed : flow.crossed) add(crossed, flow.slow);
    if (flow.between == nullptr) continue;
    for (const CrossedComponent& crossed : *flow.between) add(crossed, flow.slow);
  }
  std::vector<Suspect> suspects;
  for (auto& [component, tally] : tallies) {
    if (tally.suspect.slow_crossing == 0) continue;
    tally.suspect.score = tally.best() - std::log(std::max(1.0, tally.crossing));
    suspects.push_back(tally.suspect);
  }
  std::stable_sort(suspects.begin(), suspects.end(),
                   [](const Suspect& a, const Suspect& b) { return a.score > b.score; });
  return suspects;
}

}  // namespace lockstep
