#include "analysis/cost/rank_series.h"

#include <algorithm>

#include "base/text.h"
#include "base/wrapping.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
// What a peer says may be absurd; beyond these it is left out.
constexpr int64_t kStepNsMax = 1'000'000'000'000'000;      // eleven days
constexpr int64_t kTimeNsMax = 4'000'000'000'000'000'000;  // the year 2096

constexpr RankNumberRow kRows[kRankNumbers] = {
    {"lockstep_rank_step_seconds", "Step time of the rank: mean over its steps since the sample before."},
    {"lockstep_rank_own_seconds",
     "Own time of the rank, the step less its communication: mean over its steps since the sample before. Who makes "
     "the "
     "others wait has most."},
    {"lockstep_node_own_seconds", "Own time of the slowest rank of a job on the node."},
};

Labels labels_of(RankNumber number, const std::string& job_id, const std::string& host) {
  return {{kMetricNameLabel, kRows[static_cast<size_t>(number)].name}, {"host", host}, {"job_id", job_id}};
}

std::string raw_of(const Labels& labels) {
  std::string raw = "R";
  for (const auto& [name, value] : labels) raw.append(name).append(1, '\0').append(value).append(1, '\0');
  return raw;
}

}  // namespace

std::span<const RankNumberRow, kRankNumbers> rank_number_rows() {
  return kRows;
}

RankSeries::RankSeries(Push push, Counters& counters)
    : push_(std::move(push)),
      left_out_(counters.at("lockstep_rank_series_left_out_total")),
      dropped_(counters.at("lockstep_rank_series_dropped_total")) {}

void RankSeries::on_step(const Identity& identity, const StepSummary& summary, int64_t /*received_unix_ns*/) {
  if (identity.rank < 0_rank || summary.duration_ns <= 0 || summary.duration_ns > kStepNsMax ||
      summary.start_unix_ns < 0 || summary.start_unix_ns > kTimeNsMax)
    return;
  MutexLock lock(mutex_);
  auto found = jobs_.find(identity.job_id);
  if (found == jobs_.end()) {
    if (ranks_ >= kRanksMax) {
      ++left_out_;
      return;
    }
    found = jobs_.try_emplace(identity.job_id).first;
  }
  Job& job = found->second;
  if (identity.attempt < job.attempt) return;
  if (identity.attempt > job.attempt) {
    ranks_ -= job.ranks.size();
    job.ranks.clear();
    job.attempt = identity.attempt;
  }
  auto rank = job.ranks.find(identity.rank);
  if (rank == job.ranks.end()) {
    if (ranks_ >= kRanksMax) {
      ++left_out_;
      return;
    }
    ++ranks_;
    rank = job.ranks.try_emplace(identity.rank).first;
  }
  RankSums& sums = rank->second;
  const int64_t end = summary.start_unix_ns + summary.duration_ns;
  const bool is_old = sums.steps > 0 && (end < sums.first_end_unix_ns || end - sums.first_end_unix_ns > 2 * kEveryNs);
  if (sums.steps == 0 || is_old) {
    sums.step_s = sums.own_s = 0;
    sums.steps = sums.own_steps = 0;
    sums.first_end_unix_ns = end;
  }
  if (sums.host != identity.host) sums.host = identity.host;
  if (sums.gpu_uuid != identity.gpu_uuid) sums.gpu_uuid = identity.gpu_uuid;
  sums.step_s += static_cast<double>(summary.duration_ns) / 1e9;
  ++sums.steps;
  if (summary.gpu_time_known() && summary.self_ns >= 0 && summary.self_ns <= summary.duration_ns) {
    sums.own_s += static_cast<double>(summary.self_ns) / 1e9;
    ++sums.own_steps;
  }
  job.newest_end_unix_ns = std::max(job.newest_end_unix_ns, end);
}

RankSeries::Due RankSeries::take(const std::string& job_id, Job& job) {
  Due due{.job_id = job_id, .time_ms = job.newest_end_unix_ns / kNsPerMs, .labels = {}, .values = {}};
  std::map<std::string, double> slowest;  // by host
  const auto add = [&](RankNumber number, Rank rank, const RankSums& sums, double value) {
    Labels labels = labels_of(number, job_id, sums.host);
    labels.emplace_back("rank", format("%d", rank.value()));
    labels.emplace_back("gpu_uuid", sums.gpu_uuid);
    due.labels.push_back(std::move(labels));
    due.values.push_back(value);
  };
  for (auto& [rank, sums] : job.ranks) {
    if (sums.steps == 0) continue;
    add(RankNumber::kStep, rank, sums, sums.step_s / sums.steps);
    if (sums.own_steps > 0) {
      const double own_s = sums.own_s / sums.own_steps;
      add(RankNumber::kOwn, rank, sums, own_s);
      double& most = slowest[sums.host];
      most = std::max(most, own_s);
    }
    sums.steps = sums.own_steps = 0;
  }
  for (const auto& [host, own_s] : slowest) {
    if (host.empty()) continue;
    due.labels.push_back(labels_of(RankNumber::kNodeOwn, job_id, host));
    due.values.push_back(own_s);
  }
  job.written_unix_ns = job.newest_end_unix_ns;
  return due;
}

void RankSeries::push(const Due& due) {
  std::vector<std::string> raw;
  for (const Labels& labels : due.labels) raw.push_back(raw_of(labels));
  std::vector<PushedSeries> series(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    series[i].raw_labels = raw[i];
    series[i].times_ms = {&due.time_ms, 1};
    series[i].values = {&due.values[i], 1};
  }
  const Result<PushOutcome> outcome =
      push_("ranks " + due.job_id, series, [&](size_t k) { return canonical_labels(due.labels[k]); });
  if (!outcome.ok()) dropped_ += static_cast<int64_t>(series.size());
}

void RankSeries::write() {
  std::vector<Due> all;
  {
    MutexLock lock(mutex_);
    int64_t newest = 0;
    for (const auto& [job_id, job] : jobs_) newest = std::max(newest, job.newest_end_unix_ns);
    for (auto at = jobs_.begin(); at != jobs_.end();) {
      Job& job = at->second;
      if (job.newest_end_unix_ns - job.written_unix_ns >= kEveryNs) all.push_back(take(at->first, job));
      if (newest - job.newest_end_unix_ns <= kForgetNs) {
        ++at;
        continue;
      }
      ranks_ -= job.ranks.size();
      at = jobs_.erase(at);
    }
  }
  for (const Due& due : all) push(due);
}

}  // namespace lockstep
