#include "sim/score/scorer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "base/text.h"

namespace lockstep::sim {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

template <typename T>
bool contains(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

double seconds(int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

bool has_layer(const Truth& truth, const ReadVerdict& verdict) {
  return verdict.layer && contains(truth.layers, *verdict.layer);
}

// A dead rank may be told as a hang of the others or as a failure of its own; an uneven job as slow or as inefficient.
std::optional<VerdictKind> kind_group(std::optional<VerdictKind> kind) {
  if (kind == VerdictKind::kInefficient) return VerdictKind::kSlow;
  if (kind == VerdictKind::kFail) return VerdictKind::kHang;
  return kind;
}

// "rank 12" within a text; -1: none.
Rank rank_in(std::string_view text) {
  const size_t at = text.find("rank ");
  if (at == std::string_view::npos) return kNoRank;
  const size_t digits = at + 5;
  size_t end = digits;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  const std::optional<int64_t> number = parse_int(text.substr(digits, end - digits));
  return number ? Rank{static_cast<int32_t>(*number)} : kNoRank;
}

// All that was seen of one verdict.
struct Followed {
  std::vector<const Sighting*> open;  // suspected or confirmed, in order of time
  int64_t first_unix_ns = 0;
};

class Comparison {
 public:
  Comparison(const Scenario& scenario, const Answers& answers, const std::vector<ScenarioRun::Onset>& onsets,
             const Observed& observed)
      : scenario_(scenario), answers_(answers), onsets_(onsets), observed_(observed) {}

  CaseScore run() {
    describe();
    follow();
    detect();
    judge();
    top_one();
    compare_prices();
    measure_health();
    return std::move(score_);
  }

 private:
  const ScenarioRun::Onset& onset(const Truth& truth) const {
    static const ScenarioRun::Onset kNever;
    return truth.fault < onsets_.size() ? onsets_[truth.fault] : kNever;
  }

  void describe() {
    score_.name = scenario_.name;
    score_.parallelism = parallelism_of(scenario_);
    score_.damage = damage_of(scenario_.telemetry);
    score_.odd = !scenario_.oddities.empty();
    score_.switches = scenario_.topology.switches;
    if (!scenario_.jobs.empty()) {
      score_.noise = scenario_.jobs.front().noise.times;
      score_.heavy_tails = scenario_.jobs.front().noise.heavy_tails;
    }
    for (const JobPlan& job : scenario_.jobs) score_.ranks += job.world_size();
    score_.records = observed_.records;
    score_.subject_seconds = observed_.subject_seconds;
    score_.problem = observed_.problem;
    for (const Truth& truth : answers_.truths) {
      FaultScore& fault = score_.faults.emplace_back();
      fault.job = truth.job;
      fault.kind = truth.kind;
      fault.cost = truth.cost;
      fault.below_notice = truth.below_notice;
      fault.ranks = truth.ranks;
      fault.has_ranks = !truth.ranks.empty();
      fault.has_place = !truth.places.empty();
      fault.place = fault.has_place ? truth.places.front() : "";
      fault.began = onset(truth).began_unix_ns != 0;
      if (truth.fault < scenario_.faults.size()) {
        const ScenarioFault& of = scenario_.faults[truth.fault];
        fault.cause = to_text(of.cause);
        fault.shape = shape_text(of.shape);
        fault.severity = of.severity;
        fault.from_the_start = of.from_step == 0_step;
      }
    }
  }

  void follow() {
    for (const Sighting& sighting : observed_.sightings) {
      Followed& followed = verdicts_[{sighting.job, sighting.verdict.id}];
      if (followed.first_unix_ns == 0) followed.first_unix_ns = sighting.at_unix_ns;
      if (sighting.verdict.state != VerdictState::kCleared) followed.open.push_back(&sighting);
    }
  }

  bool in_time(const Truth& truth, int64_t first_unix_ns) const {
    const ScenarioRun::Onset& when = onset(truth);
    if (when.acted_unix_ns == 0 || first_unix_ns < when.acted_unix_ns) return false;
    return when.ended_unix_ns == 0 || first_unix_ns <= when.ended_unix_ns + late_ns(truth.job);
  }

  int64_t late_ns(const std::string& job) const {
    double step_ms = 0;
    for (const JobPlan& plan : scenario_.jobs)
      if (plan.job_id == job) step_ms = plan.step_ms;
    return std::max<int64_t>(kLateNs, kLateSteps * static_cast<int64_t>(step_ms * 1e6));
  }

  bool names(const ReadVerdict& verdict, const Truth& truth, bool any_kind) const {
    if (!any_kind && kind_group(verdict.kind) != kind_group(truth.kind)) return false;
    if (!verdict.place.empty() && contains(truth.places, verdict.place)) return true;
    if (!truth.ranks.empty()) return !verdict.ranks.empty() && contains(truth.ranks, verdict.ranks.front());
    return has_layer(truth, verdict) || verdict.ranks.empty();
  }

  // The fault that this sighting names; of several the one whose layer it has, then the one that has no verdict yet.
  size_t fault_of(const Sighting& sighting, int64_t first_unix_ns, bool any_kind = false) const {
    size_t best = kNone;
    int best_points = -1;
    for (size_t i = 0; i < answers_.truths.size(); ++i) {
      const Truth& truth = answers_.truths[i];
      if (truth.job != sighting.job || !in_time(truth, first_unix_ns) || !names(sighting.verdict, truth, any_kind))
        continue;
      const int points = (truth.ranks.empty() ? 0 : 8) + (has_layer(truth, sighting.verdict) ? 4 : 0) +
                         (contains(truth.causes, sighting.verdict.cause) ? 2 : 0) +
                         (score_.faults[i].confirmed() ? 0 : 1);
      if (points > best_points) {
        best = i;
        best_points = points;
      }
    }
    return best;
  }

  // What was seen before a ramp did harm was seen at once.
  double since_harm(const Truth& truth, const Sighting& sighting) const {
    const int64_t began = onset(truth).began_unix_ns;
    return began == 0 ? 0 : std::max(0.0, seconds(sighting.at_unix_ns - began));
  }

  // Steps with harm, and those since the last of them: where a fault comes now and then, nobody can see more in between.
  int64_t steps_since(const Truth& truth, const Sighting& sighting) const {
    const std::vector<StepNumber>& harmed = onset(truth).harmed;
    if (harmed.empty()) return -1;
    const auto reported = std::upper_bound(harmed.begin(), harmed.end(), sighting.newest_step);
    if (reported == harmed.begin()) return 0;
    return (reported - harmed.begin()) + (sighting.newest_step - *(reported - 1));
  }

  void detect() {
    for (const Sighting& sighting : observed_.sightings) {
      if (sighting.verdict.state == VerdictState::kCleared) continue;
      const size_t i = fault_of(sighting, verdicts_.at({sighting.job, sighting.verdict.id}).first_unix_ns);
      if (i == kNone || score_.faults[i].detected()) continue;
      score_.faults[i].detected_s = since_harm(answers_.truths[i], sighting);
      score_.faults[i].detected_steps = steps_since(answers_.truths[i], sighting);
    }
  }

  // In the order in which verdicts were first confirmed, then those that never were.
  void judge() {
    std::vector<std::pair<int64_t, const Followed*>> by_time;
    for (const auto& [key, followed] : verdicts_) {
      const auto confirmed = std::find_if(followed.open.begin(), followed.open.end(), [](const Sighting* seen) {
        return seen->verdict.state == VerdictState::kConfirmed;
      });
      if (confirmed == followed.open.end()) {
        judge_suspicion(followed);
      } else {
        by_time.emplace_back((*confirmed)->at_unix_ns, &followed);
      }
    }
    std::stable_sort(by_time.begin(), by_time.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& entry : by_time) judge_confirmed(*entry.second);
  }

  // Blames the network of a job in which nothing of the network is wrong.
  bool is_decoyed(const Sighting& seen) const {
    if (!score_.switches || !seen.verdict.layer) return false;
    const bool network = *seen.verdict.layer == Layer::kNic || *seen.verdict.layer == Layer::kLink ||
                         *seen.verdict.layer == Layer::kSwitch;
    return network && std::none_of(answers_.truths.begin(), answers_.truths.end(),
                                   [&](const Truth& truth) { return truth.job == seen.job && !truth.places.empty(); });
  }

  void judge_confirmed(const Followed& followed) {
    const auto decoyed = std::find_if(followed.open.begin(), followed.open.end(), [&](const Sighting* seen) {
      return seen->verdict.state == VerdictState::kConfirmed && is_decoyed(*seen);
    });
    if (decoyed != followed.open.end()) score_.decoyed.push_back(wrong_verdict(**decoyed));
    std::set<size_t> named;
    bool wrong = false, allowed = false;
    for (const Sighting* seen : followed.open) {
      if (seen->verdict.state != VerdictState::kConfirmed) continue;
      const size_t i = fault_of(*seen, followed.first_unix_ns);
      if (i != kNone) {
        take(i, *seen, named);
      } else if (const size_t same_rank = fault_of(*seen, followed.first_unix_ns, true);
                 same_rank != kNone && answers_.truths[same_rank].ranks.size() > 0) {
        if (named.insert(same_rank).second) ++score_.faults[same_rank].repeated;
      } else if (answers_.allowed && answers_.allowed(seen->job, seen->verdict.layer)) {
        allowed = true;
      } else if (!wrong) {
        wrong = true;
        score_.wrong.push_back(wrong_verdict(*seen));
        wrong_at_.push_back(seen);
      }
    }
    if (allowed && !wrong) ++score_.allowed;
  }

  void take(size_t i, const Sighting& seen, std::set<size_t>& named) {
    FaultScore& fault = score_.faults[i];
    const Truth& truth = answers_.truths[i];
    if (fault.has_place && fault.said_place.empty() && !seen.verdict.place.empty()) {
      fault.said_place = seen.verdict.place;
      fault.place_first = contains(truth.places, seen.verdict.place);
    }
    const bool first_of_this = named.insert(i).second;
    if (!fault.confirmed()) {
      fault.confirmed_s = since_harm(truth, seen);
      fault.confirmed_steps = steps_since(truth, seen);
      fault.layer = has_layer(truth, seen.verdict);
      fault.cause_right = contains(truth.causes, seen.verdict.cause);
      fault.said_layer = to_text(seen.verdict.layer);
      fault.said_cause = to_text(seen.verdict.cause);
      fault.sentence = seen.verdict.sentence;
      confirmed_at_[i] = seen.at_unix_ns;
      confirmed_id_[i] = seen.verdict.id;
    } else if (first_of_this) {
      ++fault.repeated;
    }
    if (confirmed_id_[i] == seen.verdict.id) fault.layer_at_last = has_layer(truth, seen.verdict);
  }

  void judge_suspicion(const Followed& followed) {
    if (followed.open.empty()) return;
    for (const Sighting* seen : followed.open) {
      if (fault_of(*seen, followed.first_unix_ns, true) != kNone) return;
      if (answers_.allowed && answers_.allowed(seen->job, seen->verdict.layer)) return;
    }
    score_.wrong_suspicions.push_back(wrong_verdict(*followed.open.back()));
  }

  // Was the first answer within the fault's time the right one?
  void top_one() {
    for (size_t i = 0; i < score_.faults.size(); ++i) {
      FaultScore& fault = score_.faults[i];
      const Truth& truth = answers_.truths[i];
      if (!fault.has_ranks) continue;
      fault.rank_first = fault.confirmed();
      fault.rank_among_three = fault.confirmed();
      for (const Sighting* wrong : wrong_at_) {
        if (wrong->job != truth.job || !in_time(truth, wrong->at_unix_ns)) continue;
        if (fault.confirmed() && wrong->at_unix_ns > confirmed_at_[i]) continue;
        if (!fault.confirmed() || kind_group(wrong->verdict.kind) == kind_group(truth.kind)) fault.rank_first = false;
        const std::vector<std::string>& others = wrong->verdict.alternatives;
        for (size_t place = 0; place < std::min<size_t>(2, others.size()); ++place)
          if (contains(truth.ranks, rank_in(others[place]))) fault.rank_among_three = true;
      }
    }
  }

  // A step as it is has the cost in it.
  void compare_prices() {
    for (size_t i = 0; i < score_.faults.size(); ++i) {
      FaultScore& fault = score_.faults[i];
      const Truth& truth = answers_.truths[i];
      const auto beside = std::count_if(answers_.truths.begin(), answers_.truths.end(),
                                        [&](const Truth& other) { return other.job == truth.job; });
      if (!fault.confirmed() || fault.kind != VerdictKind::kSlow || fault.shape != shape_text(Shape::kConstant) ||
          beside > 1)
        continue;
      const auto said = observed_.prices.find({truth.job, confirmed_id_[i]});
      if (said != observed_.prices.end()) fault.price_error = std::abs(said->second - truth.cost / (1 + truth.cost));
    }
  }

  WrongVerdict wrong_verdict(const Sighting& seen) const {
    WrongVerdict wrong;
    wrong.job = seen.job;
    wrong.kind = to_text(seen.verdict.kind);
    wrong.layer = to_text(seen.verdict.layer);
    wrong.cause = to_text(seen.verdict.cause);
    wrong.sentence = seen.verdict.sentence;
    wrong.ranks = seen.verdict.ranks;
    wrong.step = seen.newest_step;
    const auto job = observed_.jobs.find(seen.job);
    wrong.at_s = job == observed_.jobs.end() ? 0 : seconds(seen.at_unix_ns - job->second.first_unix_ns);
    wrong.while_healthy = std::none_of(answers_.truths.begin(), answers_.truths.end(), [&](const Truth& truth) {
      return truth.job == seen.job && in_time(truth, seen.at_unix_ns);
    });
    return wrong;
  }

  // A job's time less the time in which a fault of it was on. Faults may overlap.
  void measure_health() {
    for (const auto& [id, job] : observed_.jobs) {
      std::vector<std::pair<int64_t, int64_t>> ill;
      for (const Truth& truth : answers_.truths) {
        const ScenarioRun::Onset& when = onset(truth);
        if (truth.job != id || when.acted_unix_ns == 0) continue;
        ill.emplace_back(std::max(when.acted_unix_ns, job.first_unix_ns),
                         when.ended_unix_ns == 0 ? job.last_unix_ns : std::min(when.ended_unix_ns, job.last_unix_ns));
      }
      std::sort(ill.begin(), ill.end());
      int64_t healthy = job.last_unix_ns - job.first_unix_ns, covered = job.first_unix_ns;
      for (const auto& [from, to] : ill) {
        healthy -= std::max<int64_t>(0, to - std::max(from, covered));
        covered = std::max(covered, to);
      }
      score_.healthy_s += seconds(healthy);
      score_.played_s += seconds(job.last_unix_ns - job.first_unix_ns);
    }
  }

  const Scenario& scenario_;
  const Answers& answers_;
  const std::vector<ScenarioRun::Onset>& onsets_;
  const Observed& observed_;
  CaseScore score_;
  std::map<std::pair<std::string, std::string>, Followed> verdicts_;  // by job and id
  std::vector<const Sighting*> wrong_at_;
  std::map<size_t, int64_t> confirmed_at_;
  std::map<size_t, std::string> confirmed_id_;
};

}  // namespace

std::string parallelism_of(const Scenario& scenario) {
  if (scenario.jobs.empty()) return "none";
  const JobPlan& job = scenario.jobs.front();
  std::string text;
  for (const auto& [name, size] : {std::pair("tp", job.tp), std::pair("cp", job.cp), std::pair("pp", job.pp),
                                   std::pair("dp", job.dp), std::pair("ep", job.ep)}) {
    if (size > 1) text += format("%s%s%d", text.empty() ? "" : " ", name, size);
  }
  if (job.sharding == Sharding::kFull) text += text.empty() ? "sharded" : " sharded";
  return text.empty() ? "single" : text;
}

std::vector<std::string> damage_of(const TelemetryDamage& damage) {
  // What every fleet has is no damage: clocks that differ by less than a millisecond.
  constexpr double kUsualClockErrorUs = 1000;
  std::vector<std::string> words;
  if (damage.lost_agents > 0) words.push_back("lost agents");
  if (damage.guilty_agent_lost) words.push_back("culprit's agent lost");
  if (damage.late_share > 0) words.push_back("late data");
  if (damage.clock_error_us >= kUsualClockErrorUs) words.push_back("clock error");
  if (damage.no_plugin > 0) words.push_back("no plugin");
  if (damage.no_metrics > 0) words.push_back("no metrics");
  if (damage.duplicated > 0) words.push_back("duplicated");
  return words;
}

const char* shape_text(Shape shape) {
  switch (shape) {
    case Shape::kConstant:
      return "constant";
    case Shape::kPulsed:
      return "pulsed";
    case Shape::kRamp:
      return "ramp";
    case Shape::kIntermittent:
      return "intermittent";
  }
  return "unknown";
}

CaseScore compare(const Scenario& scenario, const Answers& answers, const std::vector<ScenarioRun::Onset>& onsets,
                  const Observed& observed) {
  CaseScore score = Comparison(scenario, answers, onsets, observed).run();
  int64_t first_unix_ns = 0;
  double gpu_hours = 0;
  for (const auto& [id, job] : observed.jobs) {
    if (first_unix_ns == 0 || job.first_unix_ns < first_unix_ns) first_unix_ns = job.first_unix_ns;
    const JobPlan* plan = find_job(scenario, id);
    if (plan != nullptr)
      gpu_hours += plan->world_size() * static_cast<double>(job.last_unix_ns - job.first_unix_ns) / 3.6e12;
  }
  score.ahead = judge_warnings(scenario, onsets, observed.warnings, first_unix_ns, gpu_hours);
  return score;
}

}  // namespace lockstep::sim
