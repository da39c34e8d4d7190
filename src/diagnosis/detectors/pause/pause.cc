#include "diagnosis/detectors/pause/pause.h"

#include <algorithm>

#include "diagnosis/detectors/pause/interruptions.h"
#include "diagnosis/detectors/pause/pause_phrasing.h"
#include "diagnosis/detectors/pause/seen_stopped.h"
#include "diagnosis/sequential/chance.h"

namespace lockstep {
namespace pause {
namespace {

constexpr size_t kWindow = 96;
constexpr size_t kStepsMin = 8;
constexpr int64_t kRecentSteps = 16;
// One pair alone may be half of the picture of a paused process: to call it a link takes more.
constexpr size_t kEventsSureLink = 12;
// They cost the job something.
constexpr double kLostShareMin = 0.03;
constexpr double kLostShareSignals = 0.01;  // with signals that explain it
// Nothing is concluded from a job's first steps.
constexpr int64_t kSettleSteps = 6;

// Who had a part in most of them; kNoRank: nobody.
Rank most_involved(const Interruptions& all) {
  Rank culprit = kNoRank;
  size_t most_events = 0, most_own = 0;
  for (const auto& [rank, part] : all.parts) {
    // A transfer that stands accuses both ends alike; what tells them apart is which end left arrived data lying or was
    // late itself, or stands between two of them. Of a single link, the sender is named.
    const size_t own = (part.undrained + part.late.size() + part.quiet.size()) * 3 + (part.peers.size() >= 2 ? 2 : 0) +
                       (part.outward > 0 ? 1 : 0);
    if (part.events() < most_events || (part.events() == most_events && own <= most_own)) continue;
    culprit = rank;
    most_events = part.events();
    most_own = own;
  }
  return culprit;
}

// Minus the logarithm of the chance that a healthy rank has such a part.
double nats_of_part(const JobWindow& window, const UsualSteps& usual, const Interruptions& all, Rank rank) {
  const Part& part = all.parts.at(rank);
  const size_t count = usual.steps.size();
  Repetition seen{.hits = part.events(),
                  .steps = count,
                  .size = part.lost_ns / static_cast<double>(part.events()),
                  .others_hits = all.steps.size() - part.events(),
                  .others_steps = (window.slots() - 1) * count};
  const auto slot = static_cast<size_t>(window.slot_of(rank));
  for (const PauseFacts* one : usual.facts)
    seen.others_largest = std::max({seen.others_largest, one->latest.of_others(slot), one->quietest.of_others(slot)});
  // Transfers have no size that could be compared with that.
  if (!part.stood.empty()) seen.size = 0;
  return nats_of(seen) + nats_of_windows(count);
}

}  // namespace
}  // namespace pause

std::vector<Finding> find_pauses(const JobWindow& window, const std::vector<AttributedRange>& explained) {
  using namespace pause;
  // While one is seen to be stopped, that others stand still too is its echo.
  if (std::vector<Finding> seen = find_seen_stopped(window); !seen.empty()) return seen;
  std::vector<StepNumber> steps = window.complete_steps();
  std::erase_if(steps, [&](StepNumber number) { return number < window.first_step() + kSettleSteps; });
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.size() < kStepsMin) return {};

  // Measure.
  const UsualSteps usual = usual_in(window, std::move(steps));
  if (usual.good_ns <= 0) return {};
  const Interruptions all = interruptions_in(window, usual, explained);
  const Rank culprit = most_involved(all);
  if (culprit == kNoRank) return {};

  // Decide.
  const Part& part = all.parts.at(culprit);
  const double nats = nats_of_part(window, usual, all, culprit);
  const bool often = nats >= window.suspect_nats() && part.lost_ns >= kLostShareMin * usual.total_ns;
  const bool large = nats >= window.suspect_nats() - witness_nats() &&
                     part.lost_ns >= kLostShareSignals * usual.total_ns &&
                     part.steps().back() + kRecentSteps >= usual.steps.back();
  if (!often && !large) return {};
  const Accused accused{
      .rank = culprit,
      .part = &part,
      .sure = often && nats >= window.sure_nats() && (part.is_own_side() || part.events() >= kEventsSureLink),
      .sure_with_signals = nats >= window.sure_nats() - witness_nats(),
      .only_with_signals = !often};
  return {finding_of(window, usual, all, accused)};
}

}  // namespace lockstep
