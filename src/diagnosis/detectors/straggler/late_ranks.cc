#include "diagnosis/detectors/straggler/late_ranks.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/median.h"
#include "diagnosis/evidence.h"
#include "diagnosis/sequential/chance.h"

namespace lockstep::straggler {
namespace {

// Below 5 % of a step a difference between ranks is everyday noise (and a culprit not worth a person at night).
constexpr double kShareMin = 0.05;
constexpr double kExcessMinNs = 1e6;
// Distance from the peers in robust standard deviations.
constexpr double kSigmas = 6;
// What has just begun is clear after more steps, and suspected from so much of a step on.
constexpr size_t kStepsFreshSure = 4;
constexpr double kFreshShareMin = 0.07;
// So many times that share is plain to see.
constexpr double kPlainTimes = 2;
// What is so many times as large as any hiccup before is none; a few hiccups do not hide what has just begun.
constexpr double kHiccupTimes = 2;
constexpr std::ptrdiff_t kHiccupsMax = 2;
// A rank that has a verdict keeps it above this part of the limit.
constexpr double kStays = 0.6;
// Evidence tells from how small a difference on; who is this little later than its peers is nobody's concern.
constexpr double kLeastShare = ShiftMonitor::Options{}.least_shift;
// A size is taken this many standard errors to the careful side.
constexpr double kErrors = 2;
// Steps that explain what evidence has found.
constexpr size_t kStretch = 40;

// The size of a slowness that is in all of the last steps; 0 where there is none.
double fresh_lateness(const std::vector<double>& late, double limit, size_t steps) {
  if (late.size() < std::max(steps, kStepsSuspect)) return 0;
  std::vector<double> newest(late.end() - static_cast<std::ptrdiff_t>(steps), late.end());
  double least = *std::min_element(newest.begin(), newest.end());
  double size = median(newest);
  return least >= limit && least >= 0.6 * size ? size : 0;
}

// How much steps vary, as a share of one. What is less than that nobody would notice, and other steps hide it.
double step_spread(const JobWindow& window) {
  constexpr size_t kMany = 64;
  std::vector<double> durations;
  for (auto fact = window.facts().rbegin(); fact != window.facts().rend() && durations.size() < kMany; ++fact)
    durations.push_back(fact->duration_ns);
  const double usual = median(durations);
  return usual > 0 ? spread_of(std::move(durations), usual) / usual : 0;
}

// It was never otherwise, and the others of a group that spans hosts are about as late for good: that is how the group
// is placed, and no rank's or host's trouble.
bool is_as_its_group(const JobWindow& window, size_t slot) {
  const ShiftMonitor& monitor = window.own_time();
  const StepFrame& frame = *window.frame(window.steps_to_compare().back());
  for (CommId id : small_groups(window, frame, slot)) {
    const auto group = window.comms().find(id);
    if (group == window.comms().end()) continue;
    std::set<std::string_view> hosts;
    std::vector<double> levels;
    for (const auto& [place, rank] : group->second.world_rank) {
      const auto identity = window.ranks().find(rank);
      const int32_t member = window.slot_of(rank);
      if (identity == window.ranks().end() || member < 0) continue;
      hosts.insert(identity->second.host);
      const auto at = static_cast<size_t>(member);
      if (at != slot && at < monitor.streams()) levels.push_back(monitor.baseline(at));
    }
    if (hosts.size() > 1 && !levels.empty() && median(std::move(levels)) >= kAlikePart * monitor.baseline(slot))
      return true;
  }
  return false;
}

// How late a rank was in the newest step; 0: not known.
double last_late(const JobWindow& window, size_t slot) {
  const std::vector<float>& late = lateness(window, *window.frame(window.steps_to_compare().back())).late_ns;
  return slot < late.size() && !std::isnan(late[slot]) ? static_cast<double>(late[slot]) : 0;
}

// Where noise is known, slow waves too, it tells whether chance may be the cause, and no limit does.
bool may_be_noise(const JobWindow& window, size_t slot) {
  const ShiftMonitor& monitor = window.own_time();
  return window.complete_steps().size() >= kStretch && monitor.noise().known && slot < monitor.streams() &&
         monitor.evidence_nats(slot) < window.suspect_nats();
}

}  // namespace

Typical typical_in(const JobWindow& window, const LastSteps& last) {
  Typical typical;
  typical.ns.assign(window.slots(), std::nan(""));
  typical.limit = std::max(kExcessMinNs, kShareMin * last.step_ns);
  std::vector<double> values, noise;
  for (size_t slot = 0; slot < typical.ns.size(); ++slot) {
    last.of_slot(slot, values);
    if (values.empty()) continue;
    ++typical.known;
    typical.ns[slot] = median(values);
    if (typical.ns[slot] < typical.limit) noise.insert(noise.end(), values.begin(), values.end());
  }
  typical.limit = std::max(typical.limit, kSigmas * spread_of(std::move(noise), 0));
  typical.fresh_limit = std::max(typical.limit, kFreshShareMin * last.step_ns);
  return typical;
}

std::vector<StepNumber> stretch_since(const JobWindow& window, StepNumber begin) {
  std::vector<StepNumber> steps = window.steps_to_compare();
  auto from = std::lower_bound(steps.begin(), steps.end(), begin);
  if (from == steps.end()) --from;
  from = std::max(from, steps.end() - static_cast<std::ptrdiff_t>(std::min(kStretch, steps.size())));
  return {from, steps.end()};
}

std::set<CommId> small_groups(const JobWindow& window, const StepFrame& frame, size_t slot) {
  std::set<CommId> groups;
  if (!frame.knows(slot)) return groups;
  for (const CommStep& comm : frame.rows[slot].summary.comms)
    if (comm.size < window.world_size()) groups.insert(comm.comm_id);
  return groups;
}

std::vector<Late> late_by_rule(const JobWindow& window, const LastSteps& last, const Typical& typical,
                               const std::set<Rank>& named) {
  const double limit = typical.limit, fresh_limit = typical.fresh_limit;
  std::vector<double> values;
  // Where nobody else was late before, or by far less, two steps are enough to suspect somebody; where ranks take turns
  // they are chance.
  std::vector<double> hiccups(last.steps.size() - kStepsFresh, 0.0);  // the latest in each step before
  for (size_t slot = 0; slot < typical.ns.size(); ++slot) {
    if (std::isnan(typical.ns[slot]) || named.contains(window.rank_of(slot))) continue;
    last.of_slot(slot, values);
    if (values.size() < kStepsFresh || fresh_lateness(values, fresh_limit, kStepsFresh) > 0) continue;
    for (size_t i = 0; i < hiccups.size(); ++i) {
      const std::vector<float>& before = last.late[i]->late_ns;
      if (slot < before.size() && !std::isnan(before[slot]))
        hiccups[i] = std::max(hiccups[i], static_cast<double>(before[slot]));
    }
  }
  const double hiccup = hiccups.empty() ? 0 : *std::max_element(hiccups.begin(), hiccups.end());
  const auto steps_with_hiccup =
      std::count_if(hiccups.begin(), hiccups.end(), [&](double ns) { return ns >= fresh_limit; });
  const double calm_limit = std::max(fresh_limit, kHiccupTimes * hiccup);
  const size_t fresh_steps = steps_with_hiccup <= kHiccupsMax ? kStepsFresh : kStepsFreshSure;
  std::vector<Late> late;
  for (size_t slot = 0; slot < typical.ns.size(); ++slot) {
    if (std::isnan(typical.ns[slot])) continue;
    const double own_limit = named.contains(window.rank_of(slot)) ? kStays * limit : limit;
    last.of_slot(slot, values);
    const double fresh =
        std::max(fresh_lateness(values, fresh_limit, fresh_steps), fresh_lateness(values, calm_limit, kStepsFresh));
    if (typical.ns[slot] < own_limit && fresh == 0) continue;
    Late entry{
        .rank = window.rank_of(slot), .slot = slot, .ns = typical.ns[slot] >= own_limit ? typical.ns[slot] : fresh};
    auto hits_of = [&](double size) {
      return static_cast<size_t>(std::count_if(values.begin(), values.end(),
                                               [&](double one) { return one >= 0.5 * size && one >= own_limit; }));
    };
    entry.hits = hits_of(entry.ns);
    entry.lasting = typical.ns[slot] >= own_limit && entry.hits >= kStepsSuspect &&
                    static_cast<double>(entry.hits) >= 0.7 * static_cast<double>(values.size());
    entry.goes_on = values.back() >= own_limit;
    entry.obvious = entry.lasting && typical.ns[slot] >= kPlainTimes * limit && !may_be_noise(window, slot);
    if (!entry.lasting) {
      entry.ns = fresh;
      entry.hits = hits_of(entry.ns);
      entry.plain = fresh_lateness(values, std::max(kPlainTimes * fresh_limit, calm_limit), kStepsFresh) > 0;
      entry.clear =
          fresh_lateness(values, fresh_limit, kStepsFreshSure) > 0 ||
          enough_steps(kPlainSteps, kStepsFreshSure,
                       fresh_lateness(values, std::max(kPlainTimes * fresh_limit, calm_limit), kPlainSteps) > 0,
                       last.late.back()->duration_ns);
    }
    if (entry.ns > 0) late.push_back(entry);
  }
  return late;
}

void add_evident(const JobWindow& window, double step_ns, std::vector<Late>& late, Typical& typical) {
  const ShiftMonitor& monitor = window.own_time();
  const double suspect = window.suspect_nats(), sure = window.sure_nats();
  const double least = std::max(kLeastShare, step_spread(window));
  for (size_t slot = 0; slot < std::min(typical.ns.size(), monitor.streams()); ++slot) {
    const double nats = monitor.evidence_nats(slot);
    if (std::isnan(typical.ns[slot]) || nats < suspect) continue;
    Late found{.rank = window.rank_of(slot),
               .slot = slot,
               .goes_on = true,
               .evident = true,
               .by_evidence_alone = true,
               .nearly_sure = nats >= sure - witness_nats(),
               .shift = monitor.estimate(slot)};
    // What was never otherwise is told only where it is surely more than healthy ranks differ by.
    if (found.shift.lasting &&
        (found.shift.size - kErrors * found.shift.error < kLastingMax || is_as_its_group(window, slot)))
      continue;
    // What is far out of all noise for a step or two may be anything (compilation, for one), and be over.
    const size_t lasted =
        found.shift.lasting ? window.complete_steps().size() + 1 : static_cast<size_t>(found.shift.steps);
    found.sure = nats >= sure && lasted >= kPlainSteps && last_late(window, slot) >= 0.5 * found.shift.size * step_ns;
    if (window.complete_steps().size() < kStepsFresh) found.nearly_sure = false;
    auto known = std::find_if(late.begin(), late.end(), [&](const Late& entry) { return entry.slot == slot; });
    if (known != late.end()) {
      known->evident = true;
      known->nearly_sure = found.nearly_sure;
      known->sure = found.sure;
      known->shift = found.shift;
      continue;
    }
    const std::vector<StepNumber> stretch = stretch_since(window, found.begin());
    found.ns = typical_lateness(window, stretch, slot);
    found.hits = stretch.size();
    // It has become slower than it was, as far as the steps since can tell by how much. It is late only if it is slower
    // than the others, too.
    if (found.shift.size - kErrors * found.shift.error < least || !(found.ns >= least * step_ns)) continue;
    typical.ns[slot] = found.ns;
    late.push_back(found);
  }
}

}  // namespace lockstep::straggler
