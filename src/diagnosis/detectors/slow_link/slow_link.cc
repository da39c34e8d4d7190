#include "diagnosis/detectors/slow_link/slow_link.h"

#include <algorithm>
#include <set>
#include <utility>

#include "diagnosis/detectors/slow_flows/slow_flows.h"
#include "diagnosis/detectors/slow_link/flow_rates.h"
#include "diagnosis/detectors/slow_link/group_times.h"
#include "diagnosis/detectors/slow_link/last_data.h"
#include "diagnosis/detectors/slow_link/slow_flow_rule.h"
#include "diagnosis/detectors/slow_link/slow_group_rule.h"
#include "diagnosis/detectors/slow_link/slow_link_phrasing.h"
#include "diagnosis/detectors/slow_link/starved_proxy.h"
#include "diagnosis/detectors/straggler/straggler.h"
#include "diagnosis/evidence.h"
#include "diagnosis/flow_steps.h"

namespace lockstep {
namespace slow_link {
namespace {

constexpr size_t kWindow = 12;
constexpr size_t kGroupWindow = 24;
constexpr size_t kLastDataWindow = 64;

std::vector<StepNumber> last_of(const std::vector<StepNumber>& steps, size_t count) {
  return {steps.end() - static_cast<std::ptrdiff_t>(std::min(count, steps.size())), steps.end()};
}

std::vector<Finding> find_slow_flows(const JobWindow& window, std::vector<StepNumber> steps,
                                     const std::vector<Flow>& measured) {
  const ComparedSteps compared = compared_steps(window, std::move(steps));
  if (compared.step_ns <= 0) return {};
  const std::vector<SlowFlow> slow = slow_flows_in(
      window, compared, flows_since(measured, compared.steps.front(), std::min(compared.steps.size(), kPlainSteps)));
  if (slow.empty()) return {};
  const Handlings handlings(window, compared.steps);
  std::vector<Finding> findings;
  for (const SlowEnd& end : slow_ends(window, compared, slow, blamed_ends(slow, handlings), measured))
    findings.push_back(finding_of(window, compared, end, handlings));
  return findings;
}

std::vector<Finding> find_slow_groups(const JobWindow& window, std::vector<StepNumber> steps,
                                      const std::vector<AttributedRange>& explained) {
  std::vector<Group> groups = groups_over(window, steps);
  if (groups.size() < kGroupsMin) return {};
  std::set<Rank> late;
  for (const Finding& finding : find_stragglers(window, explained))
    late.insert(finding.ranks.begin(), finding.ranks.end());
  const ComparedSteps compared = compared_steps(window, std::move(steps));
  const std::vector<SlowGroup> slow = slow_groups(window, compared, std::move(groups), late);
  if (slow.empty()) return {};
  const Handlings handlings(window, compared.steps);
  std::vector<Finding> findings;
  for (const SlowGroup& group : slow) findings.push_back(finding_of(window, compared, group, handlings));
  return findings;
}

std::vector<Finding> find_last_data(const JobWindow& window, const std::vector<StepNumber>& steps) {
  const std::optional<LastData> last = whose_data_is_last(window, steps);
  if (!last) return {};
  const ComparedSteps compared = compared_steps(window, last->steps);
  return {finding_of(window, compared, *last, Handlings(window, compared.steps))};
}

}  // namespace
}  // namespace slow_link

std::vector<Finding> find_slow_links(const JobWindow& window, const std::vector<AttributedRange>& explained) {
  using namespace slow_link;
  if (window.slots() >= kSlowFlowsRanksMin) return {};
  const std::vector<StepNumber>& all = window.steps_to_compare();
  // What has just begun shows in the newest steps alone.
  std::vector<Finding> findings;
  const std::vector<StepNumber> with_flows = last_steps_with_flows(window, all, kWindow);
  const std::vector<Flow> measured = measure_flows(window, with_flows);
  for (size_t count = kWindow; findings.empty() && count >= kFlowStepsMin; count = count > 3 ? count / 2 : count - 1) {
    std::vector<StepNumber> newest = last_of(with_flows, count);
    if (newest.size() >= kFlowStepsMin) findings = find_slow_flows(window, std::move(newest), measured);
  }
  if (findings.empty() && all.size() >= kGroupStepsMin)
    findings = find_slow_groups(window, last_of(all, kGroupWindow), explained);
  if (findings.empty()) findings = find_last_data(window, last_steps_with_flows(window, all, kLastDataWindow));
  return findings;
}

}  // namespace lockstep
