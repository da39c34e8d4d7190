#include "sim/fleet/judge.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep::sim {

namespace {

bool layer_fits(FaultKind kind, std::optional<Layer> layer) {
  switch (kind) {
    case FaultKind::kSlowGpu:
      return layer == Layer::kGpu;
    case FaultKind::kSlowInput:
      return layer == Layer::kInput;
    case FaultKind::kSlowLink:
      return layer == Layer::kLink || layer == Layer::kNic;
    case FaultKind::kMissingRank:
      return true;
  }
  return false;
}

bool names(const ReadVerdict& verdict, const Fault& fault) {
  if (verdict.kind != (fault.kind == FaultKind::kMissingRank ? VerdictKind::kHang : VerdictKind::kSlow)) return false;
  // A link has two ends; the sender comes first.
  const size_t ranks_most = fault.kind == FaultKind::kSlowLink ? 2 : 1;
  if (verdict.ranks.empty() || verdict.ranks.size() > ranks_most || verdict.ranks.front() != fault.rank) return false;
  return layer_fits(fault.kind, verdict.layer) ||
         (verdict.state == VerdictState::kSuspected && verdict.layer == Layer::kUnknown);
}

}  // namespace

size_t Judge::injected(std::string job, Fault fault, StepNumber step, int64_t now_ns) {
  trials_.push_back({.job = std::move(job), .fault = fault, .step = step, .injected_ns = now_ns});
  return trials_.size() - 1;
}

std::vector<Judge::Sighting> Judge::saw(const std::string& job, const std::vector<ReadVerdict>& verdicts,
                                        StepNumber job_step, int64_t now_ns) {
  std::vector<Sighting> news;
  for (const ReadVerdict& verdict : verdicts) {
    const std::string ranks = human_ranks(verdict.ranks);
    std::string& reported = state_of_[job + "/" + verdict.id];
    const std::string now =
        format("%s %s %s %s %s", to_text(verdict.state), to_text(verdict.kind), to_text(verdict.layer),
               to_text(verdict.cause), ranks.c_str());
    if (reported == now) continue;
    const bool first_heard = reported.empty();
    reported = now;
    size_t found = kNone;
    for (size_t i = trials_.size(); i-- > 0 && found == kNone;) {
      if (trials_[i].job == job && names(verdict, trials_[i].fault)) found = i;
    }
    std::string why_wrong = found == kNone ? "no such fault was injected" : "";
    if (found != kNone && first_heard && verdict.state != VerdictState::kCleared && trials_[found].cleared_ns != 0 &&
        now_ns - trials_[found].cleared_ns > kLateNs) {
      why_wrong = format("that was over %.0f s before", static_cast<double>(now_ns - trials_[found].cleared_ns) / 1e9);
      found = kNone;
    }
    if (found == kNone) {
      std::string line =
          format("%s: a %s verdict (%s) names %s %s, layer %s, but %s", job.c_str(), to_text(verdict.state),
                 to_text(verdict.kind), verdict.ranks.size() == 1 ? "rank" : "ranks",
                 ranks.empty() ? "none" : ranks.c_str(), to_text(verdict.layer), why_wrong.c_str());
      if (wrong_ids_.insert(job + "/" + verdict.id).second) wrong_verdicts_.push_back(std::move(line));
    } else {
      Trial& trial = trials_[found];
      trial.cause = verdict.cause;
      if (verdict.state == VerdictState::kCleared) {
        if (trial.verdict_cleared_ns == 0) trial.verdict_cleared_ns = now_ns;
      } else if (trial.suspected_ns == 0) {
        trial.suspected_ns = now_ns;
      }
      if (verdict.state == VerdictState::kConfirmed && trial.confirmed_ns == 0) {
        trial.confirmed_ns = now_ns;
        trial.named_step = job_step;
        trial.sentence = verdict.sentence;
      }
    }
    news.push_back({verdict, found});
  }
  return news;
}

std::vector<std::string> Judge::mistakes() const {
  std::vector<std::string> lines = wrong_verdicts_;
  for (const Trial& trial : trials_) {
    if (trial.confirmed_ns != 0) continue;
    lines.push_back(format("%s: %s on rank %d from step %lld was not named by a confirmed verdict%s", trial.job.c_str(),
                           to_text(trial.fault.kind), trial.fault.rank.value(),
                           static_cast<long long>(trial.step.value()),
                           trial.suspected_ns != 0 ? " (only suspected)" : ""));
  }
  return lines;
}

}  // namespace lockstep::sim
