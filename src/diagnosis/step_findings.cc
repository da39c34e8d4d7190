#include "diagnosis/step_findings.h"

#include <algorithm>
#include <utility>

#include "diagnosis/detectors/registry.h"

namespace lockstep {
namespace {

bool is_any_of(const std::vector<Rank>& ranks, const std::set<Rank>& among) {
  return std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) { return among.contains(rank); });
}

bool is_of_whole_job(const Finding& finding) {
  return finding.kind == VerdictKind::kSlow && finding.ranks.empty() && finding.subject != "turns";
}

bool is_steady(const Finding& finding) {
  return finding.kind == VerdictKind::kSlow && finding.steps_hit >= 1;
}

// "Nothing says why" is for where nothing does.
bool is_unexplained(const Finding& finding) {
  return finding.kind == VerdictKind::kSlow && finding.ranks.empty() && finding.layer == Layer::kUnknown;
}

}  // namespace

StepFindings ask_step_detectors(const JobWindow& window, std::vector<AttributedRange> attributed) {
  StepFindings all;
  for (const StepDetector& detector : step_detectors()) {
    std::set<Rank> explained_here, surely_here;
    for (Finding& finding : detector.find(window, attributed)) {
      if (is_any_of(finding.ranks, finding.sure ? all.surely_explained : all.explained)) continue;
      if (!finding.only_with_signals) explained_here.insert(finding.ranks.begin(), finding.ranks.end());
      if (finding.sure) surely_here.insert(finding.ranks.begin(), finding.ranks.end());
      if (finding.sure && is_steady(finding))
        for (Rank rank : finding.ranks) attributed.push_back({rank, finding.since_step, finding.through_step});
      all.findings.push_back(std::move(finding));
    }
    all.explained.insert(explained_here.begin(), explained_here.end());
    all.surely_explained.insert(surely_here.begin(), surely_here.end());
  }
  return all;
}

void drop_explained(StepFindings& all) {
  std::vector<Finding>& findings = all.findings;
  // What is sure of a rank explains what is suspected of it.
  std::erase_if(findings, [&](const Finding& finding) {
    return !finding.sure && is_any_of(finding.ranks, all.surely_explained);
  });
  // A steady culprit explains the slow steps; who else was slow now and then, or that the whole job is slower, does not
  // matter while it is there.
  const bool steady = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return is_steady(finding) && !is_of_whole_job(finding) && !finding.only_with_signals;
  });
  if (steady) {
    // Input and own work are compared by their medians, which one culprit does not move; communication it does.
    std::erase_if(findings, [](const Finding& finding) {
      return finding.steps_hit < 1 || (is_of_whole_job(finding) && finding.layer == Layer::kSwitch);
    });
  }
  if (!std::all_of(findings.begin(), findings.end(), is_unexplained)) std::erase_if(findings, is_unexplained);
  // What needs signals to be believed gives way to what does not.
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.only_with_signals && is_any_of(finding.ranks, all.explained);
  });
}

void join_in_the_fabric(std::vector<Finding>& findings) {
  auto in_the_fabric = [](const Finding& finding) {
    return finding.kind == VerdictKind::kSlow && (finding.layer == Layer::kSwitch || finding.subject == kInTheFabric);
  };
  std::vector<const Finding*> alike;
  for (const Finding& finding : findings)
    if (in_the_fabric(finding)) alike.push_back(&finding);
  if (alike.size() < 2) return;
  Finding joined = **std::max_element(alike.begin(), alike.end(), [](const Finding* a, const Finding* b) {
    return a->lost_ns_per_step < b->lost_ns_per_step;
  });
  std::set<Rank> others;  // after those of the costliest, which stay in front
  for (const Finding* one : alike) {
    joined.sure |= one->sure;
    others.insert(one->ranks.begin(), one->ranks.end());
  }
  for (Rank rank : joined.ranks) others.erase(rank);
  joined.ranks.insert(joined.ranks.end(), others.begin(), others.end());
  joined.subject = kInTheFabric;
  std::erase_if(findings, in_the_fabric);
  findings.push_back(std::move(joined));
}

}  // namespace lockstep
