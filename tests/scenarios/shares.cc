#include "tests/scenarios/shares.h"

#include <algorithm>
#include <bit>

#include "analysis/cost/loss_account.h"
#include "analysis/cost/mfu.h"
#include "apply/agent_registry.h"
#include "apply/applier.h"
#include "base/counters.h"
#include "base/median.h"
#include "diagnosis/engine.h"
#include "diagnosis/signals/gpu_reading.h"
#include "sim/scenario/conditions.h"
#include "sim/scenario/truth.h"
#include "sim/score/observe.h"
#include "sim/score/score_case.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr int64_t kFrom = 10;  // warm-up is not looked at

class Product final : public sim::Subject {
 public:
  Product() { applier.subscribe(engine); }
  void receive(Signal signal, std::string_view otlp, int64_t now_unix_ns) override {
    const Result<Batch> batch = otlp::decode(signal, otlp);
    if (batch.ok()) applier.apply(signal, *batch, now_unix_ns);
  }
  void tick(int64_t now_unix_ns) override { engine.tick(now_unix_ns); }
  std::string verdicts(std::string_view) override { return "[]"; }

  Counters counters{kStoreCounters};
  MemoryStepStore steps{{}, counters};
  MemorySpanStore spans{{}, counters};
  MemoryMetricReader metrics;
  AgentRegistry agents;
  DiagnosisEngine engine;
  Applier applier{steps, spans, agents, counters};
};

struct Played {
  double seconds = 0;  // of the steps looked at
  // Of those that the waterfall looks at.
  double shown_seconds = 0, flops = 0, capacity = 0;
};

Played play(const sim::Scenario& scenario, const std::vector<size_t>& faults, StepNumber last_step,
            int64_t shown_from) {
  sim::Scenario some = scenario;
  some.faults.clear();
  for (const size_t i : faults) some.faults.push_back(scenario.faults[i]);
  const sim::JobPlan& plan = some.jobs.front();
  const sim::JobShape shape = sim::shape_of(some, plan, 0, plan.dp);
  const sim::JobConditions conditions(some, plan, shape);
  sim::Fleet fleet(shape, 0);
  Played played;
  for (StepNumber step = 0_step; step <= last_step; ++step) {
    fleet.play_under(conditions.at(step).conditions);
    if (step < StepNumber{kFrom}) continue;
    std::vector<double> durations;
    for (Rank rank : all_ranks(shape.world_size())) {
      const StepSummary summary = fleet.summary(rank);
      durations.push_back(static_cast<double>(summary.duration_ns) / 1e9);
      double peak = 0;
      for (const StepScalar& scalar : summary.scalars) {
        if (scalar.name == "flops" && step >= StepNumber{shown_from}) played.flops += scalar.value;
        if (scalar.name == "peak_flops") peak = scalar.value;
      }
      if (step >= StepNumber{shown_from}) played.capacity += peak * durations.back();
    }
    const double seconds = median_of(durations);
    played.seconds += seconds;
    if (step >= StepNumber{shown_from}) played.shown_seconds += seconds;
  }
  return played;
}

bool belongs(const Verdict& verdict, const sim::Truth& truth) {
  const std::vector<Rank>& ranks = verdict.culprit.ranks;
  if (!truth.ranks.empty())
    return !ranks.empty() && std::find(truth.ranks.begin(), truth.ranks.end(), ranks.front()) != truth.ranks.end();
  return std::find(truth.layers.begin(), truth.layers.end(), verdict.culprit.layer) != truth.layers.end();
}

// What every set of faults costs, by its bits.
std::vector<Played> play_sets(const sim::Scenario& scenario, StepNumber last, int64_t shown_from) {
  const size_t count = scenario.faults.size();
  std::vector<Played> sets;
  for (uint32_t set = 0; set < 1u << count; ++set) {
    std::vector<size_t> faults;
    for (size_t i = 0; i < count; ++i)
      if (set >> i & 1) faults.push_back(i);
    sets.push_back(play(scenario, faults, last, shown_from));
  }
  return sets;
}

double factorial(size_t n) {
  double product = 1;
  for (size_t i = 2; i <= n; ++i) product *= static_cast<double>(i);
  return product;
}

// The seconds that a fault adds, averaged over all orders in which the faults may come.
double shapley_value(const std::vector<Played>& sets, size_t count, size_t fault) {
  double value = 0;
  for (uint32_t set = 0; set < 1u << count; ++set) {
    if (set >> fault & 1) continue;
    const auto size = static_cast<size_t>(std::popcount(set));
    const double orders = factorial(size) * factorial(count - size - 1);
    value += orders / factorial(count) * (sets[set | 1u << fault].seconds - sets[set].seconds);
  }
  return value;
}

// Whose a reported part of the loss is, among the faults; their number: nobody's.
size_t fault_of(const JobLoss& loss, const std::vector<sim::Truth>& truths, const std::string& job_id, size_t count) {
  size_t at = count;
  for (const sim::Truth& truth : truths) {
    const bool layer =
        std::find(truth.layers.begin(), truth.layers.end(), loss.verdict.culprit.layer) != truth.layers.end();
    if (truth.job == job_id && belongs(loss.verdict, truth) && (at == count || layer)) at = truth.fault;
  }
  return at;
}

void add_reported(const sim::Scenario& scenario, const JobLosses& losses, SharesCheck& check) {
  const std::vector<sim::Truth> truths = sim::truths(scenario);
  const size_t count = scenario.faults.size();
  for (const JobLoss& loss : losses.parts) {
    check.sum_reported += loss.part.share;
    if (loss.part.kind == LossKind::kUnexplained) check.unexplained_reported += loss.part.share;
    // Slow checkpoints are named by the phase that the job tells; no verdict has to.
    for (size_t i = 0; i < count && loss.part.kind == LossKind::kReported; ++i) {
      if (scenario.faults[i].cause == Cause::kCheckpoint) check.faults[i].reported += loss.part.share;
    }
    if (loss.part.kind != LossKind::kVerdict) continue;
    const size_t at = fault_of(loss, truths, scenario.jobs.front().job_id, count);
    (at < count ? check.faults[at].reported : check.other_reported) += loss.part.share;
  }
}

void add_mfu(const Mfu& mfu, const Played& healthy, const Played& faulty, SharesCheck& check) {
  check.mfu_truth = faulty.flops / faulty.capacity;
  check.mfu_reported = mfu.achieved;
  check.stragglers_truth = (faulty.shown_seconds - healthy.shown_seconds) / faulty.shown_seconds;
  check.stragglers_reported =
      mfu.points[static_cast<size_t>(MfuBar::kStragglers)] + mfu.points[static_cast<size_t>(MfuBar::kSlowLinks)];
  check.clocks_reported = mfu.points[static_cast<size_t>(MfuBar::kClocks)];
  check.bars_sum = mfu.achieved;
  for (const double points : mfu.points) check.bars_sum += points;
  check.mfu_sentence = mfu.sentence;
  if (!mfu.change) return;
  check.change_sentence = mfu.change->sentence;
  for (const std::string& what : mfu.change->what) check.change_sentence += " | " + what;
}

}  // namespace

SharesCheck check_shares(const sim::Scenario& scenario) {
  SharesCheck check;
  check.name = scenario.name;
  const std::string& job_id = scenario.jobs.front().job_id;

  Product product;
  sim::Subject* const subjects[] = {&product};
  sim::ScenarioRun run(scenario, sim::kScoreStartUnixNs);
  sim::observe([&] { return run.next(); }, subjects, {});
  const std::optional<JobInfo> job = product.steps.job(job_id);
  if (!job) return check;
  check.restarted = job->attempt > 0;
  if (check.restarted) return check;  // the account is of the newest attempt, the truth would be of both
  const std::vector<Verdict> verdicts = product.engine.verdicts(job_id);
  const JobLosses losses = job_losses(product.steps, *job, verdicts, StepNumber{kFrom}, job->last_step);
  const Mfu mfu =
      job_mfu(product.steps, product.metrics, *job, verdicts,
              {.last = job->last_step - StepNumber{kFrom} + 1,
               .read_gpu = [&](std::string_view host, std::string_view gpu, int64_t since, int64_t through) {
                 return gpu_reading(product.engine.signals(), host, gpu, since, through);
               }});

  const std::vector<Played> sets = play_sets(scenario, job->last_step, mfu.from_step.value());
  const size_t count = scenario.faults.size();
  const double all = sets.back().seconds - sets.front().seconds;
  check.lost_truth = all / sets.back().seconds;
  check.lost_reported = losses.account.window_ms > 0 ? losses.account.lost_ms / losses.account.window_ms : 0;
  for (size_t i = 0; i < count; ++i)
    check.faults.push_back({sim::describe(scenario.faults[i]), all > 0 ? shapley_value(sets, count, i) / all : 0, 0});
  add_reported(scenario, losses, check);
  add_mfu(mfu, sets.front(), sets.back(), check);
  check.cost_sentence = sentence_of(losses);
  return check;
}

}  // namespace lockstep
