#include "analysis/cost/loss_account.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/median.h"
#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// Less than this of the window is the everyday difference between steps.
constexpr double kNothingShare = 0.01;

bool acts(const LossCause& cause, StepNumber step) {
  return cause.stopped_ms > 0 ? step == cause.since_step : cause.since_step <= step && step <= cause.through_step;
}

std::vector<size_t> acting(std::span<const LossCause> causes, StepNumber step) {
  std::vector<size_t> found;
  for (size_t i = 0; i < causes.size(); ++i) {
    if (acts(causes[i], step)) found.push_back(i);
  }
  return found;
}

// What causes cost together where nothing but their prices is known: late ranks wait for the latest of them, all else
// comes on top.
double together(std::span<const LossCause> causes, const std::vector<size_t>& which) {
  double latest = 0, rest = 0;
  for (const size_t i : which) {
    if (causes[i].stopped_ms > 0) continue;
    if (causes[i].parallel) {
      latest = std::max(latest, causes[i].price_ms);
    } else {
      rest += causes[i].price_ms;
    }
  }
  return latest + rest;
}

// A step that something holds up is not quicker than a healthy one: where it is, the job has become another since (its
// machine was busy then), and these steps say more, less what their causes cost.
void correct_baseline(std::span<const StepTime> steps, std::span<const LossCause> causes, LossAccount& account) {
  std::vector<double> measured, without;
  std::vector<StepNumber> numbers;
  for (const StepTime& step : steps) {
    const std::vector<size_t> here = acting(causes, step.step);
    const double cost = together(causes, here);
    if (cost <= 0) continue;
    measured.push_back(step.ms - step.reported_ms);
    without.push_back(std::max(0.0, measured.back() - cost));
    numbers.push_back(step.step);
  }
  if (measured.size() < kBaselineStepsMin || median_of(std::move(measured)) >= account.baseline_ms) return;
  account.baseline_ms = median_of(std::move(without));
  account.baseline_priced = true;
  account.baseline_from = numbers.front();
  account.baseline_to = numbers.back();
  account.baseline_steps = static_cast<int64_t>(numbers.size());
}

void find_baseline(std::span<const StepTime> before, std::span<const StepTime> window,
                   std::span<const LossCause> causes, size_t settling, LossAccount& account) {
  StepNumber first_cause = window.empty() ? 0_step : window.front().step;
  for (const LossCause& cause : causes) {
    if (window.empty() || cause.through_step < window.front().step) continue;
    first_cause = std::min(first_cause, cause.since_step);
  }
  const auto fewest_first = [&](std::span<const StepTime> steps, std::vector<const StepTime*>& out) {
    size_t fewest = SIZE_MAX;
    for (const StepTime& step : steps) fewest = std::min(fewest, acting(causes, step.step).size());
    for (const StepTime& step : steps) {
      if (acting(causes, step.step).size() == fewest) out.push_back(&step);
    }
    return fewest;
  };
  // Ahead of the trouble and nearest to it; else the earliest steps of the window with the fewest causes.
  std::vector<const StepTime*> chosen;
  for (const StepTime& step : before) {
    if (step.step < first_cause && acting(causes, step.step).empty()) chosen.push_back(&step);
  }
  if (chosen.size() > kBaselineSteps) chosen.erase(chosen.begin(), chosen.end() - kBaselineSteps);
  if (chosen.size() < kBaselineStepsMin) {
    chosen.clear();
    fewest_first(window.subspan(settling), chosen);
    if (chosen.size() > kBaselineSteps) chosen.resize(kBaselineSteps);
  }
  if (chosen.size() < kBaselineStepsMin) return;
  std::vector<double> times;
  for (const StepTime* step : chosen) {
    const std::vector<size_t> here = acting(causes, step->step);
    account.baseline_priced |= !here.empty();
    times.push_back(std::max(0.0, step->ms - step->reported_ms - together(causes, here)));
  }
  account.baseline_known = true;
  account.baseline_ms = median_of(std::move(times));
  account.baseline_from = chosen.front()->step;
  account.baseline_to = chosen.back()->step;
  account.baseline_steps = static_cast<int64_t>(chosen.size());
  correct_baseline(window.subspan(settling), causes, account);
}

// What the steps of a window lost, by who is charged with it.
struct Losses {
  std::vector<double> by_cause;
  std::vector<int64_t> steps_of;  // each cause
  double reported = 0, start = 0, unexplained = 0;
  int64_t reported_steps = 0;
};

Losses losses_of(std::span<const StepTime> window, std::span<const LossCause> causes, size_t settling,
                 const LossAccount& account) {
  Losses losses;
  losses.by_cause.assign(causes.size(), 0);
  losses.steps_of.assign(causes.size(), 0);
  // Steps by the set of causes that act in them: what was measured beyond a healthy step, and how many they are.
  struct Stretch {
    double lost_ms = 0;
    int64_t steps = 0;
  };
  std::map<std::vector<size_t>, Stretch> stretches;
  for (size_t at = 0; at < window.size(); ++at) {
    const StepTime& step = window[at];
    const std::vector<size_t> here = acting(causes, step.step);
    const double reported_ms = std::clamp(step.reported_ms, 0.0, step.ms);
    losses.reported += reported_ms;
    losses.reported_steps += reported_ms > 0 ? 1 : 0;
    const double healthy =
        account.baseline_known ? account.baseline_ms : step.ms - reported_ms - together(causes, here);
    if (at < settling) {
      losses.start += std::max(0.0, step.ms - reported_ms - healthy);
      continue;
    }
    Stretch& stretch = stretches[here];
    stretch.lost_ms += step.ms - reported_ms - healthy;
    ++stretch.steps;
    for (const size_t i : here) ++losses.steps_of[i];
  }
  for (const auto& [here, stretch] : stretches) {
    std::vector<double> prices;
    double sum = 0;
    for (const size_t i : here) {
      const LossCause& cause = causes[i];
      prices.push_back(cause.stopped_ms > 0 ? cause.stopped_ms : cause.price_ms * static_cast<double>(stretch.steps));
      sum += prices.back();
    }
    const double explained = std::clamp(stretch.lost_ms, 0.0, sum);
    for (size_t k = 0; k < here.size(); ++k) losses.by_cause[here[k]] += sum > 0 ? explained * prices[k] / sum : 0;
    losses.unexplained += stretch.lost_ms - explained;
  }
  return losses;
}

// The largest first, what is not explained last.
void add_parts(const Losses& losses, size_t settling, LossAccount& account) {
  for (size_t i = 0; i < losses.by_cause.size(); ++i) {
    if (losses.by_cause[i] > 0 || losses.steps_of[i] > 0)
      account.parts.push_back(
          {.kind = LossKind::kVerdict, .cause = i, .lost_ms = losses.by_cause[i], .steps = losses.steps_of[i]});
  }
  if (losses.reported > 0)
    account.parts.push_back({.kind = LossKind::kReported, .lost_ms = losses.reported, .steps = losses.reported_steps});
  if (losses.start > 0)
    account.parts.push_back(
        {.kind = LossKind::kStart, .lost_ms = losses.start, .steps = static_cast<int64_t>(settling)});
  std::stable_sort(account.parts.begin(), account.parts.end(),
                   [](const LossPart& a, const LossPart& b) { return a.lost_ms > b.lost_ms; });
  // Steps that were quicker than the baseline are no gain for somebody else's loss.
  account.parts.push_back(
      {.kind = LossKind::kUnexplained, .lost_ms = std::max(0.0, losses.unexplained), .steps = account.steps});
  for (const LossPart& part : account.parts) account.lost_ms += part.lost_ms;
  for (LossPart& part : account.parts) part.share = account.lost_ms > 0 ? part.lost_ms / account.lost_ms : 0;
}

}  // namespace

LossAccount split_losses(std::span<const StepTime> before, std::span<const StepTime> window,
                         std::span<const LossCause> causes, size_t settling) {
  LossAccount account;
  settling = std::min(settling, window.size());
  if (!window.empty()) {
    account.from_step = window.front().step;
    account.to_step = window.back().step;
  }
  account.steps = static_cast<int64_t>(window.size());
  for (const StepTime& step : window) account.window_ms += step.ms;
  account.step_ms = window.empty() ? 0 : account.window_ms / static_cast<double>(window.size());
  find_baseline(before, window, causes, settling, account);
  Losses losses = losses_of(window, causes, settling, account);
  // A hang that lasts has held up no step that has ended.
  for (size_t i = 0; i < causes.size(); ++i) {
    if (causes[i].stopped_ms <= 0 || (!window.empty() && causes[i].since_step <= account.to_step)) continue;
    losses.by_cause[i] = causes[i].stopped_ms;
    account.window_ms += causes[i].stopped_ms;
  }
  add_parts(losses, settling, account);
  return account;
}

namespace {

std::vector<StepTime> step_times(const StepStore& store, const std::string& job_id, StepNumber from, StepNumber to) {
  std::vector<StepTime> out;
  if (to < from) return out;
  std::vector<double> durations;
  double reported = 0;
  StepNumber step;
  const auto flush = [&] {
    if (!durations.empty()) out.push_back({step, median_of(durations), reported});
    durations.clear();
  };
  store.visit_steps(job_id, from, to, [&](const Identity&, const StepSummary& summary) {
    if (summary.step != step) flush();
    step = summary.step;
    if (summary.duration_ns <= 0) return;  // a peer's nonsense
    const int64_t phases =
        summary.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] + summary.phase_ns[static_cast<size_t>(Phase::kEval)];
    const double reported_here = static_cast<double>(std::max<int64_t>(0, phases)) / 1e6;
    reported = durations.empty() ? reported_here : std::min(reported, reported_here);
    durations.push_back(static_cast<double>(summary.duration_ns) / 1e6);
  });
  flush();
  return out;
}

bool costs_time(const Verdict& verdict) {
  return verdict.kind == VerdictKind::kSlow || is_standstill(verdict.kind) || verdict.kind == VerdictKind::kInefficient;
}

}  // namespace

JobLosses job_losses(const StepStore& steps, const JobInfo& job, std::span<const Verdict> verdicts,
                     StepNumber from_step, StepNumber to_step) {
  JobLosses losses;
  losses.gpus = std::max<int32_t>(job.world_size, static_cast<int32_t>(job.ranks.size()));
  const std::vector<StepTime> window = step_times(steps, job.job_id, from_step, to_step);
  std::vector<LossCause> causes;
  std::vector<const Verdict*> of_cause;
  StepNumber first = from_step;
  for (const Verdict& verdict : verdicts) {
    if (verdict.attempt != job.attempt || !costs_time(verdict) || verdict.since_step < 0_step) continue;
    const bool open = verdict.state != VerdictState::kCleared;
    const bool hang = is_standstill(verdict.kind);
    LossCause cause{.since_step = verdict.since_step,
                    .through_step = open && !hang ? std::max(verdict.through_step, to_step) : verdict.through_step,
                    .parallel = !verdict.culprit.ranks.empty() &&
                                (verdict.culprit.layer == Layer::kGpu || verdict.culprit.layer == Layer::kHost ||
                                 verdict.culprit.layer == Layer::kInput || verdict.culprit.layer == Layer::kSoftware)};
    if (hang) {
      cause.stopped_ms = losses.gpus > 0 ? verdict.lost_gpu_seconds / losses.gpus * 1e3 : 0;
      if (!open && cause.since_step < from_step) continue;
    } else if (cause.through_step < from_step || cause.since_step > to_step) {
      continue;
    } else {
      // A share of the steps in which it acts, and so is its price.
      double sum = 0;
      int64_t count = 0;
      for (const StepTime& step : window) {
        if (!acts(cause, step.step)) continue;
        sum += step.ms;
        ++count;
      }
      if (count > 0)
        cause.price_ms = std::max(verdict.lost_share, verdict.lost_share_alone) * sum / static_cast<double>(count);
    }
    first = std::min(first, cause.since_step);
    causes.push_back(cause);
    of_cause.push_back(&verdict);
  }
  constexpr auto kLook = static_cast<int64_t>(kBaselineSteps + kSettlingSteps);
  std::vector<StepTime> before =
      step_times(steps, job.job_id, StepNumber{std::max<int64_t>(0, (first - kLook).value())}, first - 1);
  const bool is_start = before.empty();
  // Fewer than were asked for: these are the job's first.
  if (before.size() < static_cast<size_t>(kLook))
    before.erase(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(std::min(kSettlingSteps, before.size())));
  losses.account = split_losses(before, window, causes, is_start ? kSettlingSteps : 0);
  for (const LossPart& part : losses.account.parts) {
    JobLoss& loss = losses.parts.emplace_back();
    loss.part = part;
    if (part.kind == LossKind::kVerdict) loss.verdict = *of_cause[part.cause];
  }
  return losses;
}

std::string name_of(const JobLoss& loss) {
  if (loss.part.kind == LossKind::kReported) return "checkpoints and evaluation";
  if (loss.part.kind == LossKind::kStart) return "the job's first steps";
  if (loss.part.kind == LossKind::kUnexplained) return "unexplained";
  const Culprit& culprit = loss.verdict.culprit;
  const std::vector<Rank>& ranks = culprit.ranks;
  const std::string who = !ranks.empty()               ? format("rank %s", human_ranks(ranks, 3).c_str())
                          : !culprit.component.empty() ? culprit.component
                                                       : "the whole job";
  return format("%s (%s)", who.c_str(), to_text(culprit.cause));
}

std::string sentence_of(const JobLosses& losses) {
  const LossAccount& account = losses.account;
  if (account.steps == 0 && account.lost_ms <= 0) return "Cannot tell: no step of this window is known.";
  const double share = account.window_ms > 0 ? account.lost_ms / account.window_ms : 0;
  const std::string window = format("the last %s steps", with_thousands(account.steps).c_str());
  if (!account.baseline_known && losses.parts.size() <= 1)
    return format("Cannot tell what a healthy step takes: %s steps are too few.",
                  with_thousands(account.steps).c_str());
  if (share < kNothingShare)
    return format("Nothing to speak of is lost in %s: %s a step, and %s before.", window.c_str(),
                  human_duration(account.step_ms * 1e6).c_str(), human_duration(account.baseline_ms * 1e6).c_str());
  std::string text = format("%.0f %% of %s is lost", 100 * share, window.c_str());
  // A job that has become quicker than its baseline lost what it did in single steps alone.
  if (account.baseline_known && account.steps > 0 && account.step_ms > account.baseline_ms)
    text += format(": %s a step where %s would do", human_duration(account.step_ms * 1e6).c_str(),
                   human_duration(account.baseline_ms * 1e6).c_str());
  const auto worst = std::max_element(losses.parts.begin(), losses.parts.end(), [](const JobLoss& a, const JobLoss& b) {
    return a.part.lost_ms < b.part.lost_ms;
  });
  if (worst->part.kind == LossKind::kUnexplained) {
    text += worst->part.share > 0.995 ? ". No verdict explains it."
                                      : format(". %.0f %% of that no verdict explains.", 100 * worst->part.share);
  } else {
    text += format(". %.0f %% of that: %s.", 100 * worst->part.share, name_of(*worst).c_str());
  }
  return text;
}

}  // namespace lockstep
