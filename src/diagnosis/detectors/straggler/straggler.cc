#include "diagnosis/detectors/straggler/straggler.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "diagnosis/detectors/straggler/culprits.h"
#include "diagnosis/detectors/straggler/late_ranks.h"
#include "diagnosis/detectors/straggler/own_time.h"
#include "diagnosis/detectors/straggler/recurring.h"
#include "diagnosis/detectors/straggler/straggler_phrasing.h"

namespace lockstep {
namespace straggler {
namespace {

// Steps looked at: few enough to answer within seconds, enough that one odd step changes nothing.
constexpr size_t kWindow = 10;
// Culprits at a time; more than these are a matter of shape.
constexpr size_t kFindingsMax = 16;
// A slowness that has just begun is told of so few.
constexpr size_t kFreshMax = 3;

bool is_later(const Late& a, const Late& b) {
  return a.ns > b.ns;
}

// Hosts whose ranks are late together; what is told so leaves `late`.
void find_late_hosts(const JobWindow& window, const LastSteps& last, const Typical& typical,
                     const std::set<size_t>& victims, const std::vector<Late>& latest, std::vector<Late>& late,
                     std::vector<Finding>& findings) {
  std::map<std::string, std::vector<Late>> hosts = late_hosts(window, late, victims, typical.ns);
  const auto elsewhere = std::count_if(
      late.begin(), late.end(), [&](const Late& entry) { return !hosts.contains(window.ranks().at(entry.rank).host); });
  for (auto& [host, together] : hosts) {
    std::vector<Late>& entries = together;
    const bool lasting =
        std::any_of(entries.begin(), entries.end(), [](const Late& entry) { return entry.lasting || entry.sure; });
    if (!lasting && elsewhere > static_cast<std::ptrdiff_t>(kFreshMax)) continue;
    std::erase_if(late, [&](const Late& entry) {
      return std::any_of(entries.begin(), entries.end(), [&](const Late& other) { return other.slot == entry.slot; });
    });
    const double saved = saved_without(typical.ns, entries, last.step_ns);
    if (!is_shadow(window, entries, latest, saved, last))
      findings.push_back(finding_of(window, host, std::move(entries), saved, last, typical.known));
  }
}

// Ranks that are late each by itself.
void find_late_ranks(const JobWindow& window, const LastSteps& last, const Typical& typical,
                     const std::vector<Late>& latest, std::vector<Late> late, std::vector<Finding>& findings) {
  const bool few = late.size() <= kFreshMax;
  std::sort(late.begin(), late.end(), is_later);
  if (late.size() > kFindingsMax) late.resize(kFindingsMax);
  for (const Late& entry : late) {
    if (!entry.lasting && !entry.sure && !few) continue;
    if (has_more_work(window, entry.rank, last.steps)) continue;
    const double saved = saved_without(typical.ns, {entry}, last.step_ns);
    if (!is_shadow(window, {entry}, latest, saved, last))
      findings.push_back(finding_of(window, "", {entry}, saved, last, typical.known));
  }
}

// Behind one who is named for sure, who is hidden is the next one: with the first repaired it would cost something.
// Behind nobody who is named, the lateness of both may be anything.
void confirm_behind_named(const std::vector<AttributedRange>& explained, StepNumber since,
                          const std::vector<Late>& latest, std::vector<Finding>& findings) {
  std::set<Rank> named;
  for (const AttributedRange& entry : explained)
    if (entry.sure && entry.to_step >= since) named.insert(entry.rank);
  for (const Finding& finding : findings)
    if (finding.sure) named.insert(finding.ranks.begin(), finding.ranks.end());
  for (Finding& finding : findings) {
    if (finding.sure || !is_hidden(finding) || !finding.sure_with_signals) continue;
    const auto worst_ns = static_cast<double>(finding.lost_alone_ns);
    finding.sure = std::any_of(latest.begin(), latest.end(), [&](const Late& other) {
      return other.ns > worst_ns && named.contains(other.rank) &&
             std::find(finding.ranks.begin(), finding.ranks.end(), other.rank) == finding.ranks.end();
    });
  }
}

}  // namespace
}  // namespace straggler

std::vector<Finding> find_stragglers(const JobWindow& window, const std::vector<AttributedRange>& explained) {
  using namespace straggler;
  std::vector<StepNumber> steps = window.steps_to_compare();
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.size() < kStepsFresh) return {};
  const LastSteps last(window, std::move(steps));
  if (last.step_ns <= 0) return {};

  // Measure.
  Typical typical = typical_in(window, last);
  // Who is named already stays so until it is clearly better: a slowness at the limit does not come and go.
  std::set<Rank> named;
  for (const AttributedRange& entry : explained)
    if (entry.to_step >= last.steps.front()) named.insert(entry.rank);
  std::vector<Late> late;
  if (window.complete_steps().size() >= kStepsSuspect) late = late_by_rule(window, last, typical, named);
  const size_t by_rule = late.size();
  add_evident(window, last.step_ns, late, typical);

  // Decide. So many may be late alike that nobody stands out, though some of them wait for others.
  const bool alike = is_structural(late.size(), typical.known) && are_alike(late);
  std::sort(late.begin(), late.end(), is_later);
  const std::set<size_t> victims = take_victims(window, last, late);
  std::vector<Finding> findings;
  if (by_rule == 0 || late.empty()) {
    // Who comes and goes has gathered evidence, too, but no stretch of it tells what it costs.
    findings = find_recurring(window, typical.fresh_limit, explained);
    for (const Finding& finding : findings)
      std::erase_if(late, [&](const Late& entry) {
        return std::find(finding.ranks.begin(), finding.ranks.end(), entry.rank) != finding.ranks.end();
      });
    if (late.empty()) return findings;
  }
  // What has just begun counts as it is now: who is late behind it is.
  for (const Late& entry : late) typical.ns[entry.slot] = entry.ns;
  // The latest, in order, are who others may be late behind.
  const std::vector<Late> latest(late.begin(),
                                 late.begin() + static_cast<std::ptrdiff_t>(std::min(late.size(), kAskedMax)));
  find_late_hosts(window, last, typical, victims, latest, late, findings);
  if (!alike && !is_structural(late.size(), typical.known) &&
      !same_place_everywhere(window, *window.frame(last.steps.back()), late)) {
    take_structural(last, typical.ns, late);
    find_late_ranks(window, last, typical, latest, std::move(late), findings);
  }
  confirm_behind_named(explained, last.steps.front(), latest, findings);
  return findings;
}

}  // namespace lockstep
