// Made-up scenarios and sightings for tests of the scorer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/score/scorer.h"

namespace lockstep::sim::testing {

inline constexpr int64_t kStartNs = 1'000'000'000'000;
inline constexpr int64_t kSecondNs = 1'000'000'000;
inline constexpr Cause kRightCause = Cause::kSlowCompute;  // of every fault and every verdict here

// A job of 64 ranks with 1 s steps that lasts 100 s; a slow GPU on rank 5 from second 40 on.
class MadeUpCase {
 public:
  MadeUpCase() {
    scenario_.name = "made-up";
    JobPlan job;
    job.job_id = "job";
    job.tp = 8;
    job.dp = 8;
    job.step_ms = 1000;
    scenario_.jobs.push_back(job);
    ObservedJob& seen = observed_.jobs["job"];
    seen.first_unix_ns = kStartNs;
    seen.last_unix_ns = kStartNs + 100 * kSecondNs;
    seen.newest_step = 100_step;
    answers_.allowed = [](const std::string&, std::optional<Layer>) { return false; };
  }

  Truth& fault(Cause cause, VerdictKind kind, std::vector<Rank> ranks, std::vector<Layer> layers, int64_t from_s,
               int64_t to_s = 0) {
    ScenarioFault fault;
    fault.cause = cause;
    scenario_.faults.push_back(fault);
    Truth truth;
    truth.job = "job";
    truth.kind = kind;
    truth.ranks = std::move(ranks);
    truth.layers = std::move(layers);
    truth.causes = {kRightCause};
    truth.cost = 0.2;
    truth.fault = scenario_.faults.size() - 1;
    answers_.truths.push_back(std::move(truth));
    const int64_t began = kStartNs + from_s * kSecondNs;
    onsets_.push_back({began, began, to_s == 0 ? 0 : kStartNs + to_s * kSecondNs, {}});
    for (int64_t step = from_s; step < (to_s == 0 ? 100 : to_s); ++step)
      onsets_.back().harmed.push_back(StepNumber{step});
    return answers_.truths.back();
  }
  // The last fault is a ramp that has acted since then.
  void acted_since(int64_t from_s) { onsets_.back().acted_unix_ns = kStartNs + from_s * kSecondNs; }
  // The last fault comes and goes.
  void harmed_only_in(std::vector<StepNumber> steps) { onsets_.back().harmed = std::move(steps); }
  void priced(std::string id, double share) { observed_.prices[{"job", std::move(id)}] = share; }
  Truth& slow_gpu() { return fault(Cause::kSlowCompute, VerdictKind::kSlow, {5_rank}, {Layer::kGpu}, 40); }

  ReadVerdict& saw(double at_s, std::string id, VerdictState state, std::vector<Rank> ranks, Layer layer = Layer::kGpu,
                   VerdictKind kind = VerdictKind::kSlow) {
    Sighting sighting;
    sighting.at_unix_ns = kStartNs + static_cast<int64_t>(at_s * kSecondNs);
    sighting.job = "job";
    sighting.newest_step = StepNumber{static_cast<int64_t>(at_s) - 1};
    sighting.verdict.id = std::move(id);
    sighting.verdict.state = state;
    sighting.verdict.kind = kind;
    sighting.verdict.layer = layer;
    sighting.verdict.cause = kRightCause;
    sighting.verdict.ranks = std::move(ranks);
    sighting.verdict.sentence = "said so";
    observed_.sightings.push_back(std::move(sighting));
    return observed_.sightings.back().verdict;
  }

  void allow(Layer layer) {
    answers_.allowed = [layer](const std::string&, std::optional<Layer> said) { return said == layer; };
  }
  CaseScore score() const { return compare(scenario_, answers_, onsets_, observed_); }
  Scenario& scenario() { return scenario_; }

 private:
  Scenario scenario_;
  Answers answers_;
  std::vector<ScenarioRun::Onset> onsets_;
  Observed observed_;
};

}  // namespace lockstep::sim::testing
