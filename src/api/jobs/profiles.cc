// GET /api/jobs/{job}/profiles, GET /api/jobs/{job}/profiles/{name}: kernel profiles and where their ranks stand.
// POST: one is ordered. POST /api/jobs/{job}/auto-profile: whether they are taken by themselves.
#include <algorithm>
#include <set>

#include "analysis/step/slowest_ranks.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "control/captures.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr int64_t kStepsDefault = 5;
constexpr int64_t kStepsJudged = 50;
constexpr size_t kWorstMax = 8;

// The culprits of open verdicts, else who has most own time beyond its peers.
std::vector<Rank> worst_ranks(const ApiContext& context, const JobInfo& job, const SlowestRanks& slowest) {
  for (const Verdict& verdict : context.diagnosis.verdicts(job.job_id)) {
    if (verdict.state == VerdictState::kCleared || verdict.attempt != job.attempt || verdict.culprit.ranks.empty())
      continue;
    std::vector<Rank> ranks = verdict.culprit.ranks;
    if (ranks.size() > kWorstMax) ranks.resize(kWorstMax);
    return ranks;
  }
  if (slowest.ranks.empty()) return {};
  return {slowest.ranks.front().rank};
}

// "worst,median,0,17", "all", "0-3".
Result<std::vector<Rank>> chosen_ranks(const ApiContext& context, const JobInfo& job, const std::string& text) {
  std::set<Rank> ranks;
  std::string numbers;
  std::optional<SlowestRanks> slowest;
  for (const std::string_view word : split(text, ',')) {
    if (word == "all") {
      for (const RankInfo& rank : job.ranks) {
        if (!rank.ended) ranks.insert(rank.identity.rank);
      }
    } else if (word == "worst" || word == "median") {
      if (!slowest) {
        const StepNumber from{std::max<int64_t>(0, job.last_step.value() - kStepsJudged)};
        slowest = slowest_ranks(context.steps, job.job_id, from, job.last_step);
      }
      if (slowest->ranks.empty())
        return Error{"ranks: no step is known by which one could be called " + std::string(word)};
      if (word == "worst") {
        for (const Rank rank : worst_ranks(context, job, *slowest)) ranks.insert(rank);
      } else {
        ranks.insert(slowest->ranks[slowest->ranks.size() / 2].rank);
      }
    } else {
      numbers += (numbers.empty() ? "" : ",") + std::string(word);
    }
  }
  if (!numbers.empty()) {
    const Result<std::vector<Rank>> list = ranks_from_text(numbers, kDetailRanksMax);
    if (!list.ok()) return Error{"ranks: " + list.error() + " (numbers, worst, median or all)", list.code()};
    ranks.insert(list->begin(), list->end());
  }
  return std::vector<Rank>(ranks.begin(), ranks.end());
}

}  // namespace

HttpResponse get_profiles(const ApiContext& context, const ApiRequest& request) {
  if (context.captures == nullptr) return error_answer(501, "this server takes no kernel profiles");
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const Result<int64_t> limit = int_parameter(request.http, "limit", 50, 1, 1'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const std::vector<Capture> all = context.captures->of_job(job->job_id);
  const size_t shown = std::min(all.size(), static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("automatic", context.captures->is_automatic(job->job_id))
      .key("profiles")
      .begin_array();
  for (size_t i = 0; i < shown; ++i) write_capture(json, all[i]);
  return list_answer(json, all.size(), shown);
}

HttpResponse get_profile(const ApiContext& context, const ApiRequest& request) {
  if (context.captures == nullptr) return error_answer(501, "this server takes no kernel profiles");
  const std::optional<Capture> capture = context.captures->find(request.job, request.name);
  if (!capture)
    return error_answer(404, format("job %.200s has no profile %.40s", request.job.c_str(), request.name.c_str()));
  JsonWriter json;
  write_capture(json, *capture);
  return json_answer(json);
}

HttpResponse post_profiles(const ApiContext& context, const ApiRequest& request) {
  if (from_another_site(request.http)) return error_answer(403, "asked from a page of another site");
  if (context.captures == nullptr) return error_answer(501, "this server takes no kernel profiles");
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const std::string ranks = request.http.parameter("ranks");
  Result<std::vector<Rank>> chosen = chosen_ranks(context, *job, ranks.empty() ? "worst,median" : ranks);
  if (!chosen.ok()) return error_answer(400, chosen.error());
  CaptureOrder order{.ranks = std::move(*chosen)};
  int64_t shapes = 0, stacks = 0, megabytes = 0;
  for (const auto& [name, value, fallback, least, most] :
       {std::tuple{"steps", &order.steps, kStepsDefault, int64_t{1}, kProfileStepsMax},
        {"limit_s", &order.limit_s, int64_t{0}, int64_t{0}, kProfileLimitSMax},
        {"mb", &megabytes, int64_t{0}, int64_t{0}, kProfileBytesMax >> 20},
        {"shapes", &shapes, int64_t{0}, int64_t{0}, int64_t{1}},
        {"stacks", &stacks, int64_t{0}, int64_t{0}, int64_t{1}}}) {
    const Result<int64_t> number = int_parameter(request.http, name, fallback, least, most);
    if (!number.ok()) return error_answer(400, number.error());
    *value = *number;
  }
  order.bytes_max = megabytes << 20;
  order.shapes = shapes != 0;
  order.stacks = stacks != 0;
  const Result<Capture> begun = context.captures->begin(*job, order);
  if (!begun.ok()) return error_answer(409, begun.error());
  request.object = "job " + job->job_id + " profile " + begun->order.capture + " ranks " + ranks_text(order.ranks);
  JsonWriter json;
  write_capture(json, *begun);
  HttpResponse answer = json_answer(json);
  answer.status = 202;
  return answer;
}

HttpResponse post_auto_profile(const ApiContext& context, const ApiRequest& request) {
  if (from_another_site(request.http)) return error_answer(403, "asked from a page of another site");
  if (context.captures == nullptr) return error_answer(501, "this server takes no kernel profiles");
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const Result<int64_t> on = int_parameter(request.http, "on", 1, 0, 1);
  if (!on.ok()) return error_answer(400, on.error());
  context.captures->set_automatic(job->job_id, *on != 0);
  JsonWriter json;
  json.begin_object().field("job_id", job->job_id).field("automatic", *on != 0).end_object();
  return json_answer(json);
}

}  // namespace lockstep
