#include "sim/score/warnings.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "sim/fleet/fleet.h"
#include "sim/node/nic_model.h"

namespace lockstep::sim {
namespace {

using Outcome = WarningScore::Outcome;

std::string text_of(simdjson::dom::element object, const char* key) {
  std::string_view text;
  return object[key].get(text) == simdjson::SUCCESS ? std::string(text) : std::string();
}

bool warns_of(Cause said, Cause cause) {
  if (said == cause) return true;
  return cause == Cause::kLinkFlap && said == Cause::kNicDegraded;
}

bool is_there(const SeenWarning& warning, const Identity& target) {
  if (warning.host != target.host) return false;
  return warning.gpu_uuid.empty() ? warning.device == nic_device(target.local_rank)
                                  : warning.gpu_uuid == target.gpu_uuid;
}

// Of one kind of warning, and in all.
struct Row {
  int64_t faults = 0, warned = 0;  // with signs, that did harm
  std::vector<double> leads;
  int64_t raised = 0, came_true = 0, later = 0, nothing = 0;
  int64_t by_false_signs = 0;  // of those that came to nothing
};

double middle_of(std::vector<double> values) {
  if (values.empty()) return -1;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::string minutes(double seconds) {
  return seconds < 0 ? "-" : format("%.0f min", seconds / 60);
}

std::string share(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : format("%.0f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void add(Row& row, const SignedFault& fault) {
  if (!fault.began) return;
  ++row.faults;
  if (fault.warned_s < 0) return;
  ++row.warned;
  row.leads.push_back(fault.warned_s);
}

void add(Row& row, const WarningScore& score) {
  if (score.outcome == Outcome::kAlreadyThere) return;
  ++row.raised;
  row.came_true += score.outcome == Outcome::kTrue;
  row.later += score.outcome == Outcome::kLater;
  row.nothing += score.outcome == Outcome::kNothing;
  row.by_false_signs += score.false_sign;
}

struct Sum {
  Row all;
  std::map<std::string, Row> by_cause, by_signal;
  int64_t false_signs = 0;
  double gpu_hours = 0;
};

Sum sum_of(const std::vector<const WarningCase*>& cases) {
  Sum sum;
  for (const WarningCase* each : cases) {
    sum.false_signs += each->false_signs;
    sum.gpu_hours += each->gpu_hours;
    for (const SignedFault& fault : each->faults) {
      add(sum.all, fault);
      add(sum.by_cause[fault.cause], fault);
    }
    for (const WarningScore& score : each->warnings) {
      add(sum.all, score);
      add(sum.by_cause[to_text(score.warning.cause)], score);
      add(sum.by_signal[score.warning.signal], score);
    }
  }
  return sum;
}

double per_thousand(int64_t count, double gpu_hours) {
  return gpu_hours > 0 ? 1000.0 * static_cast<double>(count) / gpu_hours : 0;
}

std::string table_row(const std::string& name, const Row& row, double gpu_hours) {
  return format("| %s | %lld | %lld | %s | %lld | %lld | %lld | %lld | %s | %.1f |\n", name.c_str(),
                static_cast<long long>(row.faults), static_cast<long long>(row.warned),
                minutes(middle_of(row.leads)).c_str(), static_cast<long long>(row.raised),
                static_cast<long long>(row.came_true), static_cast<long long>(row.later),
                static_cast<long long>(row.nothing), share(row.came_true, row.raised).c_str(),
                per_thousand(row.nothing, gpu_hours));
}

void write_row(JsonWriter& json, const Row& row) {
  json.field("faults", row.faults)
      .field("warned", row.warned)
      .field("lead_p50_s", middle_of(row.leads))
      .field("raised", row.raised)
      .field("came_true", row.came_true)
      .field("later", row.later)
      .field("nothing", row.nothing)
      .field("by_false_signs", row.by_false_signs);
}

}  // namespace

Result<void> WarningWatcher::read(std::string_view json) {
  if (json == last_) return {};
  last_ = json;
  simdjson::dom::parser parser;
  simdjson::dom::array warnings;
  simdjson::padded_string padded(json);
  simdjson::dom::element root;
  if (parser.parse(padded).get(root) != simdjson::SUCCESS || root.get(warnings) != simdjson::SUCCESS)
    return Error{format("not an array of warnings: %s", as_one_line(json.substr(0, 120)).c_str())};
  for (simdjson::dom::element item : warnings) {
    SeenWarning warning;
    warning.id = text_of(item, "id");
    if (warning.id.empty() || item["raised_unix_ns"].get(warning.raised_unix_ns) != simdjson::SUCCESS ||
        item["horizon_s"].get(warning.horizon_s) != simdjson::SUCCESS)
      return Error{format("warning \"%s\" has no id, raised_unix_ns or horizon_s", as_one_line(warning.id).c_str())};
    if (text_of(item, "state") != "raised" || raised_[warning.id] == warning.raised_unix_ns) continue;
    raised_[warning.id] = warning.raised_unix_ns;
    warning.host = text_of(item, "host");
    warning.gpu_uuid = text_of(item, "gpu_uuid");
    warning.device = text_of(item, "device");
    warning.signal = text_of(item, "signal");
    warning.cause = term_of<Cause>(text_of(item, "cause")).value_or(Cause::kNone);
    warning.sentence = text_of(item, "sentence");
    seen_.push_back(std::move(warning));
  }
  return {};
}

WarningCase judge_warnings(const Scenario& scenario, const std::vector<ScenarioRun::Onset>& onsets,
                           const std::vector<SeenWarning>& seen, int64_t first_unix_ns, double gpu_hours) {
  WarningCase out;
  out.gpu_hours = gpu_hours;
  out.false_signs = static_cast<int64_t>(scenario.signs.size());
  std::vector<size_t> place(scenario.faults.size(), SIZE_MAX);  // in out.faults
  for (size_t i = 0; i < scenario.faults.size(); ++i) {
    if (scenario.faults[i].precursor_s <= 0) continue;
    place[i] = out.faults.size();
    out.faults.push_back({to_text(scenario.faults[i].cause), onsets[i].began_unix_ns > 0, -1});
  }
  for (const SeenWarning& warning : seen) {
    WarningScore& score = out.warnings.emplace_back();
    score.warning = warning;
    score.raised_s = static_cast<double>(warning.raised_unix_ns - first_unix_ns) / 1e9;
    for (size_t i = 0; i < scenario.faults.size(); ++i) {
      const ScenarioFault& fault = scenario.faults[i];
      const JobPlan* plan = find_job(scenario, fault.target.job);
      if (plan == nullptr || onsets[i].began_unix_ns == 0 || !warns_of(warning.cause, fault.cause)) continue;
      const JobShape shape = shape_of(scenario, *plan, 0, plan->dp);
      const std::vector<Rank> ranks = ranks_of(fault.target, shape);
      const bool here = std::any_of(ranks.begin(), ranks.end(),
                                    [&](Rank rank) { return is_there(warning, identity_of(shape, rank)); });
      if (!here) continue;
      const double left_s = static_cast<double>(onsets[i].began_unix_ns - warning.raised_unix_ns) / 1e9;
      score.fault = static_cast<int32_t>(i);
      score.outcome = left_s <= 0                   ? Outcome::kAlreadyThere
                      : left_s <= warning.horizon_s ? Outcome::kTrue
                                                    : Outcome::kLater;
      if (left_s > 0 && place[i] != SIZE_MAX) {
        double& warned = out.faults[place[i]].warned_s;
        warned = std::max(warned, left_s);
      }
      break;
    }
    if (score.outcome != Outcome::kNothing) continue;
    for (const FalseSign& sign : scenario.signs) {
      const JobPlan* plan = find_job(scenario, sign.of.target.job);
      if (plan == nullptr || !warns_of(warning.cause, sign.of.cause)) continue;
      score.false_sign |= is_there(warning, identity_of(shape_of(scenario, *plan, 0, plan->dp), sign.of.target.rank));
    }
  }
  return out;
}

std::string warnings_markdown(const std::vector<const WarningCase*>& cases) {
  const Sum sum = sum_of(cases);
  if (sum.all.faults == 0 && sum.false_signs == 0 && sum.all.raised == 0) return "";
  std::string text = format(
      "\n## Early warnings\n\n%lld faults showed signs before they came, %lld signs came to nothing by themselves, in "
      "%.0f GPU-hours. How to read this: docs/guide/warnings.md.\n\n"
      "| cause | faults with signs | warned of | before (median) | warnings | came true in time | later | came to "
      "nothing | precision | nothing per 1,000 GPU-hours |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      static_cast<long long>(sum.all.faults), static_cast<long long>(sum.false_signs), sum.gpu_hours);
  text += table_row("all", sum.all, sum.gpu_hours);
  for (const auto& [cause, row] : sum.by_cause) text += table_row(cause, row, sum.gpu_hours);
  text += format(
      "\nOf the %lld that came to nothing %lld were raised where signs did rise and came to nothing; %lld where "
      "nothing was "
      "wrong at all, %.1f per 1,000 GPU-hours.\n",
      static_cast<long long>(sum.all.nothing), static_cast<long long>(sum.all.by_false_signs),
      static_cast<long long>(sum.all.nothing - sum.all.by_false_signs),
      per_thousand(sum.all.nothing - sum.all.by_false_signs, sum.gpu_hours));
  text += "\n| what rises | warnings | came true in time | later | came to nothing |\n|---|--:|--:|--:|--:|\n";
  for (const auto& [signal, row] : sum.by_signal) {
    if (row.raised == 0) continue;
    text += format("| %s | %lld | %lld | %lld | %lld |\n", signal.c_str(), static_cast<long long>(row.raised),
                   static_cast<long long>(row.came_true), static_cast<long long>(row.later),
                   static_cast<long long>(row.nothing));
  }
  return text;
}

void write_warnings(JsonWriter& json, const std::vector<const WarningCase*>& cases) {
  const Sum sum = sum_of(cases);
  json.begin_object().field("gpu_hours", sum.gpu_hours).field("false_signs", sum.false_signs);
  write_row(json, sum.all);
  json.field("nothing_per_1000_gpu_hours", per_thousand(sum.all.nothing, sum.gpu_hours));
  json.key("by_signal").begin_object();
  for (const auto& [signal, row] : sum.by_signal) {
    json.key(signal).begin_object();
    write_row(json, row);
    json.end_object();
  }
  json.end_object().end_object();
}

}  // namespace lockstep::sim
