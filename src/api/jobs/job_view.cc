#include "api/jobs/job_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "api/answer.h"
#include "api/jobs/step_window.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "incident/verdict_cost.h"

namespace lockstep {
namespace {

// Enough to be steady when single steps are not, few enough to follow a change within half a minute of most jobs.
constexpr int64_t kStepsForPace = 20;

bool is_open(const Verdict& verdict) {
  return verdict.state != VerdictState::kCleared;
}

int severity(const std::string& health) {
  static constexpr const char* kOrder[] = {"hang", "slow", "suspected", "unknown", "ok"};
  return static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), health) - std::begin(kOrder));
}

std::string health_of(const Verdict& verdict) {
  if (verdict.state == VerdictState::kSuspected) return "suspected";
  return is_standstill(verdict.kind) ? "hang" : "slow";
}

// to_json escapes quotes, so this text stands nowhere but at the field itself.
std::string as_cleared(std::string json) {
  static constexpr std::string_view kField = "\"state\":\"";
  size_t begin = json.find(kField);
  if (begin == std::string::npos) return json;
  begin += kField.size();
  return json.replace(begin, json.find('"', begin) - begin, to_text(VerdictState::kCleared));
}

std::string with_feedback(const ApiContext& context, const std::string& id, std::string json) {
  if (!json.ends_with('}')) return json;
  JsonWriter said;
  std::optional<VerdictFeedback> feedback = context.feedback != nullptr ? context.feedback->of(id) : std::nullopt;
  if (feedback) {
    write_feedback(said, *feedback);
  } else {
    said.null();
  }
  json.pop_back();
  return json + ",\"feedback\":" + said.take() + "}";
}

std::string with_cost(std::string json, const GpuCost& cost) {
  if (!json.ends_with('}')) return json;
  json.pop_back();
  JsonWriter money;
  money.begin_object();
  write_number(money, "lost_money", cost.has_price() ? cost.money : std::numeric_limits<double>::quiet_NaN());
  money.field("money", money_text(cost)).end_object();
  return json + "," + money.take().substr(1);
}

std::string with_cost(const ApiContext& context, const VerdictView& verdict, std::string json) {
  if (!context.gpu_prices().known()) return with_cost(std::move(json), {});
  const Result<JsonDocument> document = JsonDocument::parse(json);
  incident::VerdictLoss loss{verdict.id, verdict.job_id};
  if (document.ok()) {
    loss.attempt = document->root()["attempt"].integer().value_or(0);
    loss.gpu_seconds = document->root()["lost_gpu_seconds"].number().value_or(0);
  }
  return with_cost(std::move(json), incident::cost_of(loss, context.incidents, *context.pricing));
}

VerdictView live_view(const Verdict& verdict) {
  return {verdict.id, verdict.job_id, is_open(verdict), verdict.found_unix_ns, to_json(verdict)};
}

void append_stored(std::vector<VerdictView>& list, const ApiContext& context, const std::set<std::string>& live,
                   const std::vector<StoredVerdict>& stored) {
  for (const StoredVerdict& verdict : stored) {
    if (!live.contains(verdict.id) && (!context.owns || context.owns(verdict.job_id)))
      list.push_back({verdict.id, verdict.job_id, false, verdict.found_unix_ns, as_cleared(verdict.json)});
  }
}

void sort_newest_first(std::vector<VerdictView>& list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const VerdictView& a, const VerdictView& b) { return a.found_unix_ns > b.found_unix_ns; });
}

}  // namespace

const char* job_state(const JobInfo& job, int64_t now_unix_ns) {
  const bool all_ended = !job.ranks.empty() && std::all_of(job.ranks.begin(), job.ranks.end(),
                                                           [](const RankInfo& rank) { return rank.ended; });
  if (all_ended) return "ended";
  return now_unix_ns - job.last_seen_unix_ns > kSilentAfterNs ? "silent" : "running";
}

JobView view_of(const ApiContext& context, JobInfo info) {
  JobView view;
  view.info = std::move(info);
  const JobInfo& job = view.info;
  view.state = job_state(job, context.clock.unix_ns());
  view.summary = context.diagnosis.summary(job.job_id);
  view.sentence = view.summary;
  view.health = job.last_step < 0_step || view.state == "silent" ? "unknown" : "ok";
  for (const Verdict& verdict : context.diagnosis.verdicts(job.job_id)) {
    if (!is_open(verdict)) continue;
    std::string health = health_of(verdict);
    bool worst = view.verdicts_open == 0 || severity(health) < severity(view.health) ||
                 (health == view.health && verdict.lost_share > view.lost_share);
    ++view.verdicts_open;
    if (!worst) continue;
    view.health = health;
    view.sentence = verdict.sentence;
    view.lost_share = verdict.lost_share;
    view.cause = to_text(verdict.culprit.cause);
    view.layer = to_text(verdict.culprit.layer);
  }

  std::vector<double> paces;
  const int64_t steps = steps_within(job, kStepsForPace, kWordRowsMax);
  visit_window(context.steps, job, job.last_step - steps + 1, job.last_step,
               [&](const StepParts& step, std::span<const StepCell>) { paces.push_back(step.step_ms); });
  view.step_ms = median_of(paces);
  return view;
}

void write_job(JsonWriter& json, const JobView& job) {
  const JobInfo& info = job.info;
  // Against the job's own last word, so that an ended job still says how many ranks were with it to the end.
  auto reporting = std::count_if(info.ranks.begin(), info.ranks.end(), [&](const RankInfo& rank) {
    return info.last_seen_unix_ns - rank.last_seen_unix_ns <= kSilentAfterNs;
  });
  json.begin_object()
      .field("job_id", info.job_id)
      .field("attempt", info.attempt)
      .field("world_size", info.world_size)
      .field("ranks_seen", static_cast<uint64_t>(info.ranks.size()))
      .field("ranks_reporting", static_cast<int64_t>(reporting))
      .field("state", job.state)
      .field("last_step", info.last_step.value());
  write_number(json, "step_ms", job.step_ms);
  json.field("first_seen_unix_ns", info.first_seen_unix_ns)
      .field("last_seen_unix_ns", info.last_seen_unix_ns)
      .field("health", job.health)
      .field("sentence", job.sentence)
      .field("verdicts_open", static_cast<uint64_t>(job.verdicts_open))
      .field("cause", job.cause)
      .field("layer", job.layer)
      .end_object();
}

bool is_worse(const JobView& a, const JobView& b) {
  if (severity(a.health) != severity(b.health)) return severity(a.health) < severity(b.health);
  if (a.lost_share != b.lost_share) return a.lost_share > b.lost_share;
  return a.info.job_id < b.info.job_id;
}

std::optional<JobInfo> find_job(const ApiContext& context, const std::string& job_id) {
  std::optional<JobInfo> job = context.steps.job(job_id);
  if (job || job_id.empty() || (context.owns && !context.owns(job_id))) return job;
  std::vector<StoredVerdict> stored = context.state.verdicts(job_id);
  if (stored.empty()) return std::nullopt;
  JobInfo past;
  past.job_id = job_id;
  past.first_seen_unix_ns = stored.back().found_unix_ns;
  past.last_seen_unix_ns = stored.front().found_unix_ns;
  return past;
}

void write_answers(JsonWriter& json, const ApiContext& context, const JobInfo& job) {
  const auto some = [&](size_t kind, Answers answer) {
    return std::any_of(job.ranks.begin(), job.ranks.end(), [&](const RankInfo& rank) {
      return context.who_answers(rank.identity.host, static_cast<CommandKind>(kind)) == answer;
    });
  };
  std::vector<const char*> unknown;
  json.key("answers").begin_array();
  for (size_t i = 0; i < std::size(kCommandKinds); ++i) {
    const bool is_answered = !context.who_answers || some(i, Answers::kYes);
    if (!is_answered && some(i, Answers::kUnknown)) unknown.push_back(kCommandKinds[i]);
    if (is_answered || (!unknown.empty() && unknown.back() == kCommandKinds[i])) json.string(kCommandKinds[i]);
  }
  json.end_array().key("answers_unknown").begin_array();
  for (const char* kind : unknown) json.string(kind);
  json.end_array();
}

HttpResponse unknown_job(const ApiContext& context, const std::string& job_id) {
  std::vector<std::string> names;
  for (const JobInfo& job : context.steps.jobs()) names.push_back(job.job_id);
  std::optional<std::string> near = job_id.size() <= kIdentityTextMax ? did_you_mean(job_id, names) : std::nullopt;
  JsonWriter json;
  std::string line = format("no job \"%.256s\" is known", job_id.c_str());
  json.begin_object().field(
      "error", near ? line + format("; did you mean \"%s\"?", near->c_str()) : line + "; /api/jobs lists all");
  if (near) json.field("did_you_mean", *near);
  json.end_object();
  return text_answer(404, "application/json", json.take());
}

std::string rank_state(const RankInfo& rank, int64_t now_unix_ns) {
  if (rank.ended) return rank.ended_cleanly ? "ended" : "failed";
  // A status counts until the rank has finished the step it was given in.
  bool status_is_current = rank.status && (rank.status->step < 0_step || rank.status->step > rank.last_step);
  if (rank.status && !rank.status->process_alive) return "dead";
  if (now_unix_ns - rank.last_seen_unix_ns > kSilentAfterNs) return "silent";
  return status_is_current ? "quiet" : "ok";
}

std::string shown_json(const ApiContext& context, VerdictView verdict) {
  std::string json = with_cost(context, verdict, std::move(verdict.json));
  return with_feedback(context, verdict.id, std::move(json));
}

std::vector<VerdictView> verdicts_of(const ApiContext& context, const std::string& job_id) {
  std::vector<VerdictView> list;
  std::set<std::string> live;
  for (const Verdict& verdict : context.diagnosis.verdicts(job_id)) {
    live.insert(verdict.id);
    list.push_back(live_view(verdict));
  }
  append_stored(list, context, live, context.state.verdicts(job_id));
  return list;
}

std::vector<VerdictView> all_verdicts(const ApiContext& context) {
  std::vector<VerdictView> list = verdicts_of(context, "");
  sort_newest_first(list);
  return list;
}

std::vector<VerdictView> live_verdicts(const ApiContext& context) {
  std::vector<VerdictView> list;
  for (const Verdict& verdict : context.diagnosis.verdicts("")) list.push_back(live_view(verdict));
  sort_newest_first(list);
  return list;
}

std::optional<VerdictView> find_verdict(const ApiContext& context, const std::string& id) {
  if (id.empty()) return std::nullopt;
  for (const Verdict& verdict : context.diagnosis.verdicts("")) {
    if (verdict.id == id) return live_view(verdict);
  }
  std::vector<VerdictView> stored;
  append_stored(stored, context, {}, context.state.find_verdicts({.id = id}));
  return stored.empty() ? std::nullopt : std::optional(std::move(stored.front()));
}

}  // namespace lockstep
