#include "sim/score/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/json_writer.h"
#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Nearest rank: the smallest delay within which a share q of the faults lies. -1: more than the rest was missed.
double percentile(std::vector<double> delays, double q) {
  if (delays.empty()) return -1;
  std::sort(delays.begin(), delays.end());
  const auto place = static_cast<size_t>(std::ceil(q * static_cast<double>(delays.size())));
  const double delay = delays[std::max<size_t>(place, 1) - 1];
  return std::isinf(delay) ? -1 : delay;
}

std::string percent(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : format("%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string delay_text(double seconds) {
  return seconds < 0 ? "never" : format("%.1f s", seconds);
}

double per_thousand_hours(const Totals& totals) {
  return totals.healthy_hours <= 0 ? -1
                                   : 1000.0 * static_cast<double>(totals.wrong_while_healthy) / totals.healthy_hours;
}

std::string rate_text(const Totals& totals) {
  const double rate = per_thousand_hours(totals);
  return rate < 0 ? "-" : format("%.1f", rate);
}

std::string rank_words(const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "no rank";
  const std::string text = human_ranks(ranks, 4);
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string severity_words(const FaultScore& fault) {
  if (is_standstill(fault.kind) || fault.kind == VerdictKind::kIncorrect) return "stop";
  if (fault.severity >= 1) return "2x or more";
  constexpr double kSteps[] = {0.02, 0.04, 0.08, 0.2, 0.5};
  double nearest = kSteps[0];
  for (double step : kSteps)
    if (std::abs(std::log(fault.severity / step)) < std::abs(std::log(fault.severity / nearest))) nearest = step;
  return format("%.0f %%", nearest * 100);
}

std::string noise_words(const CaseScore& score) {
  return format("x%g%s", score.noise, score.heavy_tails ? ", heavy tails" : "");
}

std::string scale_words(int64_t ranks) {
  for (int64_t most : {16, 128, 1024, 8192})
    if (ranks <= most) return format("up to %s ranks", with_thousands(most).c_str());
  return "more than 8,192 ranks";
}

std::string damage_words(const CaseScore& score) {
  std::string text;
  for (const std::string& word : score.damage) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "none" : text;
}

int64_t faults_that_count(const CaseScore& score) {
  return static_cast<int64_t>(
      std::count_if(score.faults.begin(), score.faults.end(), [](const FaultScore& fault) { return fault.began; }));
}

// Its switches report, and nothing is wrong with the network.
bool is_decoy(const CaseScore& score) {
  return score.switches && std::none_of(score.faults.begin(), score.faults.end(),
                                        [](const FaultScore& fault) { return fault.has_place; });
}

constexpr double kHoursToTell = 1000;  // one in a thousand hours cannot be shown in fewer

struct Goal {
  const char* what;
  std::string wanted, got;
  const char* state;  // "met", "not met", "cannot tell"
};
const char* met_or_not(bool met) {
  return met ? "met" : "not met";
}

Goal at_least(const char* what, int wanted_percent, int64_t part, int64_t whole) {
  return {what, format(">= %d %%", wanted_percent), percent(part, whole),
          whole == 0 ? "cannot tell" : met_or_not(100 * part >= wanted_percent * whole)};
}

// Of faults that cost so much in jobs with usual noise, so many percent must be found within so many steps.
struct CurveGoal {
  const char* what;
  size_t cost, steps;  // in kCurveCosts and kCurveSteps
  int wanted_percent;
};
constexpr CurveGoal kCurveGoals[] = {
    {"faults of 8 % found within 6 steps, noise x1", 2, 1, 95},
    {"faults of 4 % found within 20 steps, noise x1", 1, 2, 90},
    {"faults of 2 % found within 60 steps, noise x1", 0, 3, 80},
};

// How far the price of a verdict may be from the truth.
struct PriceGoal {
  const char* what;
  double Totals::*error;
  double most;  // of a step
};
constexpr PriceGoal kPriceGoals[] = {
    {"what a verdict says it costs, half of them off by", &Totals::price_error_p50, 0.02},
    {"what a verdict says it costs, nine of ten off by", &Totals::price_error_p90, 0.10},
};

std::vector<Goal> goals(const Totals& totals, const std::vector<CaseScore>& cases) {
  std::vector<Goal> all;
  if (totals.faults > 0) {
    all = {
        at_least("rank, first answer", 97, totals.rank_first, totals.with_rank),
        at_least("layer, first answer", 93, totals.layer, totals.faults),
        at_least("cause, first answer", 88, totals.cause, totals.faults),
        at_least("faults of 20 % and more detected within 3 s or 2 steps", 92, totals.detected_in_time, totals.plain),
        at_least("verdict within 10 s or 4 steps", 92, totals.confirmed_in_time, totals.faults)};
    for (const PriceGoal& goal : kPriceGoals) {
      const double error = totals.*goal.error;
      all.push_back({goal.what, format("<= %g %% of a step", 100 * goal.most),
                     totals.priced == 0 ? "-" : format("%.1f %%", 100 * error),
                     totals.priced == 0 ? "cannot tell" : met_or_not(error <= goal.most)});
    }
  }
  if (totals.with_place > 0)
    all.push_back(at_least("link, adapter or switch, first answer", 90, totals.place_first, totals.with_place));
  if (totals.decoys > 0)
    all.push_back(
        {"decoys blamed on the network", "0",
         format("%lld of %lld", static_cast<long long>(totals.decoyed), static_cast<long long>(totals.decoys)),
         met_or_not(totals.decoyed == 0)});
  const std::vector<CurvePoint> curve = small_fault_curve(cases);
  for (const CurveGoal& goal : kCurveGoals) {
    const auto point = std::find_if(curve.begin(), curve.end(), [&](const CurvePoint& each) {
      return each.noise == 1 && each.cost == kCurveCosts[goal.cost];
    });
    if (point != curve.end())
      all.push_back(at_least(goal.what, goal.wanted_percent, point->found_within[goal.steps], point->faults));
  }
  all.push_back({"false confirmed verdicts per 1,000 healthy job-hours", "<= 1",
                 format("%s (%lld in %.2f h)", rate_text(totals).c_str(),
                        static_cast<long long>(totals.wrong_while_healthy), totals.healthy_hours),
                 per_thousand_hours(totals) > 1        ? "not met"
                 : totals.healthy_hours < kHoursToTell ? "cannot tell"
                                                       : "met"});
  return all;
}

// Nearest of kCurveCosts by ratio; nothing for what is less than half of the smallest, or twice the largest.
std::optional<double> curve_cost(double cost) {
  if (cost < 0.5 * kCurveCosts.front() || cost > 2 * kCurveCosts.back()) return std::nullopt;
  double nearest = kCurveCosts.front();
  for (double step : kCurveCosts)
    if (std::abs(std::log(cost / step)) < std::abs(std::log(cost / nearest))) nearest = step;
  return nearest;
}

std::string curve_table(const std::vector<CaseScore>& cases) {
  const std::vector<CurvePoint> curve = small_fault_curve(cases);
  if (curve.empty()) return "";
  std::string text =
      "\n## How soon by cost and noise\n\nConstant slow faults by what they cost the job (played, nearest of 2, 4, 8, "
      "20 "
      "and 50 % of a step); found: suspected or confirmed with the right rank, counted in steps with harm.\n\n"
      "| noise | cost | faults |";
  for (int64_t steps : kCurveSteps) text += format(" within %lld steps |", static_cast<long long>(steps));
  text += " ever | confirmed |\n|---|--:|--:|";
  for (size_t i = 0; i < kCurveSteps.size(); ++i) text += "--:|";
  text += "--:|--:|\n";
  for (const CurvePoint& point : curve) {
    text += format("| x%g | %g %% | %lld |", point.noise, 100 * point.cost, static_cast<long long>(point.faults));
    for (int64_t found : point.found_within) text += " " + percent(found, point.faults) + " |";
    text += format(" %s | %s |\n", percent(point.found, point.faults).c_str(),
                   percent(point.confirmed, point.faults).c_str());
  }
  return text;
}

// Rows that read alike in every table.
constexpr const char* kColumns =
    "| %-28s | faults | detected | verdict | rank | top-3 | layer | cause | detect p50 | p90 | verdict p50 | p90 |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";

std::string row(const std::string& name, const Totals& totals) {
  return format("| %s | %lld | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name.c_str(),
                static_cast<long long>(totals.faults), percent(totals.detected, totals.faults).c_str(),
                percent(totals.confirmed, totals.faults).c_str(), percent(totals.rank_first, totals.with_rank).c_str(),
                percent(totals.rank_among_three, totals.with_rank).c_str(),
                percent(totals.layer, totals.faults).c_str(), percent(totals.cause, totals.faults).c_str(),
                delay_text(totals.detected_p50_s).c_str(), delay_text(totals.detected_p90_s).c_str(),
                delay_text(totals.confirmed_p50_s).c_str(), delay_text(totals.confirmed_p90_s).c_str());
}

// One row per word that `word` gives a fault.
std::string table(const std::vector<CaseScore>& cases, const std::string& title, const std::string& column,
                  const std::function<std::string(const CaseScore&, const FaultScore&)>& word,
                  std::vector<std::string> order = {}, bool small_too = false) {
  std::set<std::string> words;
  for (const CaseScore& score : cases)
    for (const FaultScore& fault : score.faults) words.insert(word(score, fault));
  std::erase_if(order, [&](const std::string& item) { return !words.contains(item); });
  for (const std::string& item : words)
    if (std::find(order.begin(), order.end(), item) == order.end()) order.push_back(item);
  std::vector<CaseScore> counted = cases;
  if (small_too) {
    for (CaseScore& score : counted)
      for (FaultScore& fault : score.faults) fault.below_notice = false;
  }
  std::string text = "\n## " + title + "\n\n" + format(kColumns, column.c_str());
  for (const std::string& item : order) {
    const Totals totals =
        total(counted, [&](const CaseScore& score, const FaultScore& fault) { return word(score, fault) == item; });
    if (totals.faults > 0) text += row(item, totals);
  }
  return text;
}

bool is_slow(const CaseScore&, const FaultScore& fault) {
  return fault.kind == VerdictKind::kSlow || fault.kind == VerdictKind::kInefficient;
}

// Of faults in the network whose switches report: whether the right link, adapter or switch was named.
std::string network_table(const std::vector<CaseScore>& cases) {
  std::map<std::string, Totals> by_cause;
  for (const CaseScore& score : cases)
    for (const FaultScore& fault : score.faults)
      if (fault.has_place) by_cause.try_emplace(fault.cause + " of a " + fault.place.substr(0, fault.place.find(':')));
  if (by_cause.empty()) return "";
  std::string text =
      "\n## The network's side\n\nWhere switches report: the first place that a confirmed verdict named.\n\n"
      "| cause | faults | named | right place |\n|---|--:|--:|--:|\n";
  for (auto& [name, totals] : by_cause) {
    totals = total(cases, [&, word = &name](const CaseScore&, const FaultScore& fault) {
      return fault.has_place && fault.cause + " of a " + fault.place.substr(0, fault.place.find(':')) == *word;
    });
    text += format("| %s | %lld | %s | %s |\n", name.c_str(), static_cast<long long>(totals.faults),
                   percent(totals.confirmed, totals.faults).c_str(),
                   percent(totals.place_first, totals.with_place).c_str());
  }
  return text;
}

std::string beside_table(const std::vector<SubjectScores>& subjects) {
  std::string text =
      "| on slow faults | rank | layer | detected | verdict p90 | wrong verdicts | of these in healthy time | per "
      "1,000 "
      "healthy job-hours |\n|---|--:|--:|--:|--:|--:|--:|--:|\n";
  for (const SubjectScores& subject : subjects) {
    const Totals slow = total(subject.cases, is_slow);
    text += format("| %s | %s | %s | %s | %s | %lld | %lld | %s |\n", subject.name.c_str(),
                   percent(slow.rank_first, slow.with_rank).c_str(), percent(slow.layer, slow.faults).c_str(),
                   percent(slow.detected, slow.faults).c_str(), delay_text(slow.confirmed_p90_s).c_str(),
                   static_cast<long long>(slow.wrong), static_cast<long long>(slow.wrong_while_healthy),
                   rate_text(slow).c_str());
  }
  return text;
}

std::string healthy_table(const std::vector<CaseScore>& cases) {
  struct Row {
    int64_t cases = 0, wrong = 0, suspicions = 0;
    double hours = 0;
  };
  std::map<std::string, Row> rows;
  for (const CaseScore& score : cases) {
    const std::string kind = faults_that_count(score) > 0 ? "with faults: before, between and after them"
                             : score.odd                  ? "healthy but odd"
                                                          : "healthy";
    Row& entry = rows[kind + ", noise " + noise_words(score)];
    entry.cases += 1;
    entry.hours += score.healthy_s / 3600;
    entry.wrong += std::count_if(score.wrong.begin(), score.wrong.end(),
                                 [](const WrongVerdict& wrong) { return wrong.while_healthy; });
    entry.suspicions += std::count_if(score.wrong_suspicions.begin(), score.wrong_suspicions.end(),
                                      [](const WrongVerdict& wrong) { return wrong.while_healthy; });
  }
  std::string text =
      "\n## Healthy time\n\n| | scenarios | job-hours | false confirmed verdicts | suspicions that came to nothing |\n"
      "|---|--:|--:|--:|--:|\n";
  for (const auto& [name, entry] : rows)
    text += format("| %s | %lld | %.2f | %lld | %lld |\n", name.c_str(), static_cast<long long>(entry.cases),
                   entry.hours, static_cast<long long>(entry.wrong), static_cast<long long>(entry.suspicions));
  return text;
}

std::vector<const WarningCase*> ahead_of(const std::vector<CaseScore>& cases) {
  std::vector<const WarningCase*> all;
  for (const CaseScore& score : cases) all.push_back(&score.ahead);
  return all;
}

void write_fault(JsonWriter& json, const FaultScore& fault) {
  json.begin_object()
      .field("job", fault.job)
      .field("cause", fault.cause)
      .field("kind", to_text(fault.kind))
      .field("shape", fault.shape)
      .field("severity", fault.severity)
      .field("cost", fault.cost)
      .field("from_the_start", fault.from_the_start)
      .field("below_notice", fault.below_notice)
      .field("began", fault.began)
      .field("detected_s", fault.detected_s)
      .field("detected_steps", fault.detected_steps)
      .field("confirmed_s", fault.confirmed_s)
      .field("confirmed_steps", fault.confirmed_steps)
      .field("has_ranks", fault.has_ranks)
      .field("rank", fault.rank_first)
      .field("rank_top3", fault.rank_among_three)
      .field("layer", fault.layer)
      .field("layer_at_last", fault.layer_at_last)
      .field("cause_right", fault.cause_right)
      .field("place", fault.place)
      .field("place_right", fault.place_first)
      .field("said_place", fault.said_place)
      .field("said_layer", fault.said_layer)
      .field("said_cause", fault.said_cause)
      .field("repeated", fault.repeated)
      .field("price_error", fault.price_error)
      .field("sentence", fault.sentence)
      .end_object();
}

void write_wrong(JsonWriter& json, const char* name, const std::vector<WrongVerdict>& list) {
  json.key(name).begin_array();
  for (const WrongVerdict& wrong : list) {
    json.begin_object().field("job", wrong.job).field("kind", wrong.kind).key("rank").begin_array();
    for (size_t i = 0; i < std::min<size_t>(wrong.ranks.size(), 16); ++i) json.number(wrong.ranks[i].value());
    json.end_array()
        .field("layer", wrong.layer)
        .field("cause", wrong.cause)
        .field("at_s", wrong.at_s)
        .field("step", wrong.step.value())
        .field("while_healthy", wrong.while_healthy)
        .field("sentence", wrong.sentence)
        .end_object();
  }
  json.end_array();
}

void write_totals(JsonWriter& json, const Totals& totals) {
  json.begin_object()
      .field("scenarios", totals.cases)
      .field("faults", totals.faults)
      .field("detected", totals.detected)
      .field("confirmed", totals.confirmed)
      .field("with_rank", totals.with_rank)
      .field("rank", totals.rank_first)
      .field("rank_top3", totals.rank_among_three)
      .field("layer", totals.layer)
      .field("layer_at_last", totals.layer_at_last)
      .field("cause", totals.cause)
      .field("with_place", totals.with_place)
      .field("place", totals.place_first)
      .field("decoys", totals.decoys)
      .field("decoyed", totals.decoyed)
      .field("plain", totals.plain)
      .field("detected_in_time", totals.detected_in_time)
      .field("confirmed_in_time", totals.confirmed_in_time)
      .field("detected_p50_s", totals.detected_p50_s)
      .field("detected_p90_s", totals.detected_p90_s)
      .field("confirmed_p50_s", totals.confirmed_p50_s)
      .field("confirmed_p90_s", totals.confirmed_p90_s)
      .field("priced", totals.priced)
      .field("price_error_p50", totals.price_error_p50)
      .field("price_error_p90", totals.price_error_p90)
      .field("repeated", totals.repeated)
      .field("wrong", totals.wrong)
      .field("wrong_while_healthy", totals.wrong_while_healthy)
      .field("wrong_suspicions", totals.wrong_suspicions)
      .field("small_faults", totals.small_faults)
      .field("small_detected", totals.small_detected)
      .field("healthy_hours", totals.healthy_hours)
      .field("wrong_per_1000_healthy_hours", per_thousand_hours(totals))
      .end_object();
}

// How long it took, and what it was off by, of all faults.
struct Spreads {
  std::vector<double> detected, confirmed;  // of all; kNever: it was not
  std::vector<double> found, named;         // of those that were
  std::vector<double> price_errors;
};

void count_fault(const FaultScore& fault, Totals& totals, Spreads& spreads) {
  if (!fault.began) return;
  if (fault.below_notice) {
    ++totals.small_faults;
    totals.small_detected += fault.detected();
    return;
  }
  ++totals.faults;
  totals.detected += fault.detected();
  totals.confirmed += fault.confirmed();
  totals.with_rank += fault.has_ranks;
  totals.rank_first += fault.has_ranks && fault.rank_first;
  totals.rank_among_three += fault.has_ranks && fault.rank_among_three;
  totals.layer += fault.layer;
  totals.layer_at_last += fault.layer_at_last;
  totals.cause += fault.cause_right;
  totals.with_place += fault.has_place;
  totals.place_first += fault.has_place && fault.place_first;
  totals.repeated += fault.repeated;
  const auto within = [](double seconds, int64_t steps, double seconds_most, int64_t steps_most) {
    return seconds <= seconds_most || (steps >= 0 && steps <= steps_most);
  };
  const bool plain = fault.cost >= kPlainShare;
  totals.plain += plain;
  totals.detected_in_time +=
      plain && fault.detected() && within(fault.detected_s, fault.detected_steps, kDetectSeconds, kDetectSteps);
  totals.confirmed_in_time +=
      fault.confirmed() && within(fault.confirmed_s, fault.confirmed_steps, kVerdictSeconds, kVerdictSteps);
  spreads.detected.push_back(fault.detected() ? fault.detected_s : kNever);
  spreads.confirmed.push_back(fault.confirmed() ? fault.confirmed_s : kNever);
  if (fault.detected()) spreads.found.push_back(fault.detected_s);
  if (fault.confirmed()) spreads.named.push_back(fault.confirmed_s);
  if (fault.price_error >= 0) spreads.price_errors.push_back(fault.price_error);
}

// What belongs to a scenario, not to one of its faults.
void count_case(const CaseScore& score, Totals& totals) {
  ++totals.cases;
  if (is_decoy(score)) {
    ++totals.decoys;
    totals.decoyed += !score.decoyed.empty();
  }
  totals.wrong += static_cast<int64_t>(score.wrong.size());
  totals.wrong_while_healthy += std::count_if(score.wrong.begin(), score.wrong.end(),
                                              [](const WrongVerdict& wrong) { return wrong.while_healthy; });
  totals.wrong_suspicions += static_cast<int64_t>(score.wrong_suspicions.size());
  totals.healthy_hours += score.healthy_s / 3600;
  totals.played_hours += score.played_s / 3600;
  totals.records += score.records;
  totals.subject_seconds += score.subject_seconds;
}

}  // namespace

Totals total(const std::vector<CaseScore>& cases, const FaultFilter& which) {
  Totals totals;
  Spreads spreads;
  for (const CaseScore& score : cases) {
    bool counted = false;
    for (const FaultScore& fault : score.faults) {
      if (which && !which(score, fault)) continue;
      counted = true;
      count_fault(fault, totals, spreads);
    }
    // What is wrong counts where any of its faults does, and in a table of all where there is none.
    if (!which || counted || score.faults.empty()) count_case(score, totals);
  }
  totals.detected_p50_s = percentile(spreads.detected, 0.5);
  totals.detected_p90_s = percentile(spreads.detected, 0.9);
  totals.confirmed_p50_s = percentile(spreads.confirmed, 0.5);
  totals.confirmed_p90_s = percentile(spreads.confirmed, 0.9);
  totals.found_p90_s = percentile(spreads.found, 0.9);
  totals.named_p90_s = percentile(spreads.named, 0.9);
  totals.priced = static_cast<int64_t>(spreads.price_errors.size());
  totals.price_error_p50 = percentile(spreads.price_errors, 0.5);
  totals.price_error_p90 = percentile(spreads.price_errors, 0.9);
  return totals;
}

std::vector<CurvePoint> small_fault_curve(const std::vector<CaseScore>& cases) {
  std::map<std::pair<double, double>, CurvePoint> points;
  for (const CaseScore& score : cases) {
    for (const FaultScore& fault : score.faults) {
      if (!fault.began || fault.shape != "constant" || !is_slow(score, fault)) continue;
      const std::optional<double> cost = curve_cost(fault.cost);
      if (!cost) continue;
      CurvePoint& point = points[{score.noise, *cost}];
      point.cost = *cost;
      point.noise = score.noise;
      ++point.faults;
      point.found += fault.detected();
      point.confirmed += fault.confirmed();
      for (size_t i = 0; i < kCurveSteps.size(); ++i)
        point.found_within[i] +=
            fault.detected() && fault.detected_steps >= 0 && fault.detected_steps <= kCurveSteps[i];
    }
  }
  std::vector<CurvePoint> curve;
  for (auto& entry : points) curve.push_back(entry.second);
  return curve;
}

std::vector<std::string> complaints(const CaseScore& score) {
  std::vector<std::string> lines;
  if (!score.problem.empty()) lines.push_back(format("%s: not scored: %s", score.name.c_str(), score.problem.c_str()));
  for (const FaultScore& fault : score.faults) {
    if (fault.below_notice && !fault.confirmed()) continue;
    const std::string truth = format("%s: %s%s (%s, %s)", score.name.c_str(), fault.cause.c_str(),
                                     fault.has_ranks ? (" on " + rank_words(fault.ranks)).c_str() : "",
                                     severity_words(fault).c_str(), fault.shape.c_str());
    if (!fault.began) {
      lines.push_back(truth + " never did harm: the run was too short, or the fault does nothing here");
    } else if (!fault.confirmed()) {
      lines.push_back(truth + (fault.detected() ? " was suspected only" : " was missed"));
    } else {
      if (fault.has_ranks && !fault.rank_first) lines.push_back(truth + " was named only after a wrong answer");
      if (!fault.layer || !fault.cause_right)
        lines.push_back(format("%s was called %s/%s: %s", truth.c_str(), fault.said_layer.c_str(),
                               fault.said_cause.c_str(), fault.sentence.c_str()));
      if (fault.has_place && !fault.place_first)
        lines.push_back(format("%s at %s was placed %s", truth.c_str(), fault.place.c_str(),
                               fault.said_place.empty() ? "nowhere" : ("at " + fault.said_place).c_str()));
      if (fault.repeated > 0) lines.push_back(format("%s was reported %d times more", truth.c_str(), fault.repeated));
    }
  }
  for (const WrongVerdict& wrong : score.decoyed)
    lines.push_back(format("%s: the network was blamed: %s/%s: %s", score.name.c_str(), wrong.layer.c_str(),
                           wrong.cause.c_str(), wrong.sentence.c_str()));
  for (const WrongVerdict& wrong : score.wrong)
    lines.push_back(format("%s: wrong after %.1f s%s: %s, %s/%s: %s", score.name.c_str(), wrong.at_s,
                           wrong.while_healthy ? ", while all was well" : "", rank_words(wrong.ranks).c_str(),
                           wrong.layer.c_str(), wrong.cause.c_str(), wrong.sentence.c_str()));
  return lines;
}

std::string progress_line(const CaseScore& score) {
  const std::vector<std::string> wrong = complaints(score);
  std::string reported;
  for (const FaultScore& fault : score.faults) {
    reported += format("%s%s ", reported.empty() ? "" : "; ", fault.cause.c_str());
    if (!fault.began) {
      reported += "did no harm";
    } else if (!fault.confirmed()) {
      reported += fault.detected()     ? format("suspected after %.1f s, never confirmed", fault.detected_s)
                  : fault.below_notice ? "too small, not seen"
                                       : "missed";
    } else {
      reported +=
          format("named after %.1f s%s%s", fault.confirmed_s, fault.has_ranks && !fault.rank_first ? ", late" : "",
                 fault.layer ? "" : (", called " + fault.said_layer).c_str());
    }
  }
  if (score.faults.empty()) reported = score.odd ? "healthy but odd" : "healthy";
  if (!score.wrong.empty()) reported += format("; %zu wrong verdicts", score.wrong.size());
  // Through the receivers it is the server that works, for all scenarios together.
  const std::string cost = score.subject_seconds > 0 ? format(" in %.1f s of CPU", score.subject_seconds) : "";
  return format("%-5s %s: %s (%s ranks, %s s of the job%s)", wrong.empty() ? "ok" : "wrong", score.name.c_str(),
                reported.c_str(), with_thousands(score.ranks).c_str(),
                with_thousands(static_cast<int64_t>(score.played_s)).c_str(), cost.c_str());
}

std::string terminal(const std::vector<SubjectScores>& subjects) {
  if (subjects.empty()) return "";
  const std::vector<CaseScore>& cases = subjects.front().cases;
  const Totals all = total(cases);
  std::string text;
  for (const CaseScore& score : cases)
    for (const std::string& line : complaints(score)) text += "  " + line + "\n";
  if (!text.empty()) text = "Not right:\n" + text + "\n";
  text += format(
      "%lld scenarios, %lld faults to judge and %lld too small to, %.2f job-hours (%.2f healthy), %s records\n\n",
      static_cast<long long>(all.cases), static_cast<long long>(all.faults), static_cast<long long>(all.small_faults),
      all.played_hours, all.healthy_hours, with_thousands(all.records).c_str());
  if (all.faults > 0) {
    text += format("  detected %s, named %s; rank %s (top-3 %s), layer %s (at last %s), cause %s\n",
                   percent(all.detected, all.faults).c_str(), percent(all.confirmed, all.faults).c_str(),
                   percent(all.rank_first, all.with_rank).c_str(), percent(all.rank_among_three, all.with_rank).c_str(),
                   percent(all.layer, all.faults).c_str(), percent(all.layer_at_last, all.faults).c_str(),
                   percent(all.cause, all.faults).c_str());
    text += format(
        "  detected after p50 %s, p90 %s (of those found %s); verdict after p50 %s, p90 %s (of those named %s)\n",
        delay_text(all.detected_p50_s).c_str(), delay_text(all.detected_p90_s).c_str(),
        delay_text(all.found_p90_s).c_str(), delay_text(all.confirmed_p50_s).c_str(),
        delay_text(all.confirmed_p90_s).c_str(), delay_text(all.named_p90_s).c_str());
  }
  text += format("  wrong confirmed verdicts %lld (%lld in healthy time), wrong suspicions %lld, repeated %lld\n\n",
                 static_cast<long long>(all.wrong), static_cast<long long>(all.wrong_while_healthy),
                 static_cast<long long>(all.wrong_suspicions), static_cast<long long>(all.repeated));
  for (const Goal& target : goals(all, subjects.front().cases)) {
    text += format("  %-11s %-54s %-8s %s\n", target.state, target.what, target.wanted.c_str(), target.got.c_str());
  }
  if (subjects.size() > 1 && all.faults > 0) {
    text += format("\n  %-22s %8s %8s %9s %8s\n", "on slow faults", "rank", "layer", "detected", "wrong");
    for (const SubjectScores& subject : subjects) {
      const Totals slow = total(subject.cases, is_slow);
      text += format("  %-22s %8s %8s %9s %8lld\n", subject.name.c_str(),
                     percent(slow.rank_first, slow.with_rank).c_str(), percent(slow.layer, slow.faults).c_str(),
                     percent(slow.detected, slow.faults).c_str(), static_cast<long long>(slow.wrong));
    }
  }
  return text;
}

std::string markdown(const std::vector<SubjectScores>& subjects, const std::string& title) {
  if (subjects.empty()) return "";
  const std::vector<CaseScore>& cases = subjects.front().cases;
  const Totals all = total(cases);
  std::string text = "# " + title + "\n\n";
  text += format(
      "%lld scenarios, %lld faults to judge (and %lld so small that silence is no miss: %lld of them seen), "
      "%.2f job-hours, %.2f of them healthy, %s records. How to read this: docs/guide/score.md.\n\n",
      static_cast<long long>(all.cases), static_cast<long long>(all.faults), static_cast<long long>(all.small_faults),
      static_cast<long long>(all.small_detected), all.played_hours, all.healthy_hours,
      with_thousands(all.records).c_str());
  text += "| target | wanted | measured | |\n|---|--:|--:|---|\n";
  for (const Goal& target : goals(all, cases))
    text += format("| %s | %s | %s | %s |\n", target.what, target.wanted.c_str(), target.got.c_str(), target.state);
  text += "\n" + format(kColumns, "") + row("all", all);
  text += format(
      "\nOf those found: detected p90 %s; of those named: verdict p90 %s. Layer as the verdict stood at last: "
      "%s. Wrong confirmed verdicts: %lld; suspicions that came to nothing: %lld; reported again: %lld.\n",
      delay_text(all.found_p90_s).c_str(), delay_text(all.named_p90_s).c_str(),
      percent(all.layer_at_last, all.faults).c_str(), static_cast<long long>(all.wrong),
      static_cast<long long>(all.wrong_suspicions), static_cast<long long>(all.repeated));
  if (subjects.size() > 1) text += "\n## Beside simple rules\n\n" + beside_table(subjects);
  text += network_table(cases);
  const std::vector<std::string> severities{"2 %", "4 %", "8 %", "20 %", "50 %", "2x or more", "stop"};
  text += table(
      cases, "By severity (small ones count here)", "severity",
      [](const CaseScore&, const FaultScore& fault) { return severity_words(fault); }, severities, true);
  text += curve_table(cases);
  text +=
      table(cases, "By noise", "noise", [](const CaseScore& score, const FaultScore&) { return noise_words(score); });
  text += table(cases, "By cause", "cause", [](const CaseScore&, const FaultScore& fault) { return fault.cause; });
  text += table(cases, "By shape", "shape", [](const CaseScore&, const FaultScore& fault) {
    return fault.shape + (fault.from_the_start ? ", from the first step" : "");
  });
  text += table(cases, "By scale", "job",
                [](const CaseScore& score, const FaultScore&) { return scale_words(score.ranks); },
                {"up to 16 ranks", "up to 128 ranks", "up to 1,024 ranks", "up to 8,192 ranks"});
  text += table(cases, "By parallelism", "job",
                [](const CaseScore& score, const FaultScore&) { return score.parallelism; });
  text += table(cases, "By damage to the telemetry", "damage",
                [](const CaseScore& score, const FaultScore&) { return damage_words(score); }, {"none"});
  text += table(cases, "By faults at once", "faults", [](const CaseScore& score, const FaultScore&) {
    return format("%lld", static_cast<long long>(faults_that_count(score)));
  });
  text += healthy_table(cases);
  text += warnings_markdown(ahead_of(cases));
  text += "\n## Everything that was not right\n\n";
  bool any = false;
  for (const CaseScore& score : cases) {
    for (const std::string& line : complaints(score)) {
      text += "- " + line + "\n";
      any = true;
    }
  }
  if (!any) text += "Nothing.\n";
  return text;
}

std::string json(const std::vector<SubjectScores>& subjects) {
  JsonWriter json;
  json.begin_object().key("subjects").begin_array();
  for (const SubjectScores& subject : subjects) {
    json.begin_object().field("name", subject.name).key("all");
    write_totals(json, total(subject.cases));
    json.key("slow");
    write_totals(json, total(subject.cases, is_slow));
    json.key("warnings");
    write_warnings(json, ahead_of(subject.cases));
    json.key("scenarios").begin_array();
    for (const CaseScore& score : subject.cases) {
      json.begin_object()
          .field("name", score.name)
          .field("file", score.file)
          .field("parallelism", score.parallelism)
          .field("ranks", score.ranks)
          .field("damage", damage_words(score))
          .field("odd", score.odd)
          .field("noise", score.noise)
          .field("healthy_s", score.healthy_s)
          .field("played_s", score.played_s)
          .field("records", score.records)
          .field("allowed", score.allowed);
      if (!score.problem.empty()) json.field("problem", score.problem);
      json.key("faults").begin_array();
      for (const FaultScore& fault : score.faults) write_fault(json, fault);
      json.end_array();
      write_wrong(json, "wrong", score.wrong);
      write_wrong(json, "wrong_suspicions", score.wrong_suspicions);
      write_wrong(json, "network_blamed", score.decoyed);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

}  // namespace lockstep::sim
