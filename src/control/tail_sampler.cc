#include "control/tail_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/median.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;
// Rows of a step arrive within moments of each other; a rank that has gone silent must not hold up the rest.
constexpr int64_t kStepPatienceNs = 2'000'000'000;
constexpr size_t kBehindStepsMax = 4;
constexpr int64_t kBeforeVerdict = 1;
constexpr int64_t kAfterVerdict = 2;

int64_t phase_ns(const StepSummary& step, Phase phase) {
  return step.phase_ns[static_cast<size_t>(phase)];
}

// What was told to be checkpointing or evaluation explains itself.
double unexplained_ns(const StepSummary& step, int64_t whole_ns) {
  return static_cast<double>(
      std::max<int64_t>(0, whole_ns - phase_ns(step, Phase::kCheckpoint) - phase_ns(step, Phase::kEval)));
}

struct OwnTime {
  double own_ns;
  Rank rank;
};

// Own times of a step; ranks whose GPU times are not known have none.
std::vector<OwnTime> own_times(const StepStore& steps, const std::string& job_id, StepNumber step) {
  std::vector<OwnTime> own;
  steps.visit_steps(job_id, step, step, [&](const Identity& identity, const StepSummary& summary) {
    if (summary.gpu_time_known()) own.push_back({unexplained_ns(summary, summary.self_ns), identity.rank});
  });
  std::sort(own.begin(), own.end(), [](const OwnTime& a, const OwnTime& b) {
    return a.own_ns != b.own_ns ? a.own_ns < b.own_ns : a.rank < b.rank;
  });
  return own;
}

void add_median_ranks(const std::vector<OwnTime>& own, std::set<Rank>& ranks, size_t count) {
  const size_t begin = own.size() / 2 - std::min(own.size() / 2, count / 2);
  for (size_t i = begin; i < std::min(own.size(), begin + count); ++i) ranks.insert(own[i].rank);
}

// Ranks that are in a communicator with one of these, smallest communicators first: nearest in what they do.
void add_peers(const JobInfo& job, std::set<Rank>& ranks, size_t count) {
  std::map<std::pair<int32_t, CommId>, bool> comms;  // by size
  for (const RankInfo& rank : job.ranks) {
    if (!ranks.contains(rank.identity.rank)) continue;
    for (const CommInit& comm : rank.comms) comms[{comm.size, comm.comm_id}] = true;
  }
  std::set<Rank> peers;
  for (const auto& [key, unused] : comms) {
    for (const RankInfo& rank : job.ranks) {
      if (peers.size() >= count) break;
      const bool in = std::any_of(rank.comms.begin(), rank.comms.end(),
                                  [id = key.second](const CommInit& comm) { return comm.comm_id == id; });
      if (in && !ranks.contains(rank.identity.rank)) peers.insert(rank.identity.rank);
    }
    if (peers.size() >= count) break;
  }
  ranks.insert(peers.begin(), peers.end());
}

}  // namespace

void TailSampler::on_attempt_back(const std::string& job_id, int64_t attempt) {
  MutexLock lock(mutex_);
  auto found = jobs_.find(job_id);
  if (found == jobs_.end() || found->second.attempt <= attempt) return;
  found->second = Job{};
  found->second.attempt = attempt;
}

void TailSampler::on_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  auto found = jobs_.find(identity.job_id);
  if (found == jobs_.end()) {
    if (jobs_.size() >= kJobsMax) {
      jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(),
                                   [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; }));
    }
    found = jobs_.emplace(identity.job_id, Job{}).first;
    found->second.attempt = identity.attempt;
  }
  Job& job = found->second;
  if (identity.attempt < job.attempt) return;
  if (identity.attempt > job.attempt) {
    job = Job{};
    job.attempt = identity.attempt;
  }
  job.heard = ++heard_;
  job.ranks.insert(identity.rank);
  if (job.first_step < 0_step) job.first_step = summary.step;
  if (summary.step <= job.judged_through) {
    if (++job.rows_behind <= kBehindStepsMax * job.ranks.size()) return;  // late, or delivered again
    job.judged_through = summary.step - 1;
    job.first_step = summary.step;
    job.open.clear();
  }
  job.rows_behind = 0;
  OpenStep& open = job.open[summary.step];
  ++open.rows;
  open.last_unix_ns = received_unix_ns;
}

void TailSampler::note(const std::vector<Verdict>& changed) {
  MutexLock lock(mutex_);
  changed_.insert(changed_.end(), changed.begin(), changed.end());
}

void TailSampler::go_live() {
  MutexLock lock(mutex_);
  live_ = true;
}

void TailSampler::judge(const std::string& job_id, Job& job, StepNumber step, std::vector<DetailNeed>& needs) {
  std::vector<double> times;
  steps_.visit_steps(job_id, step, step, [&](const Identity&, const StepSummary& summary) {
    times.push_back(unexplained_ns(summary, summary.duration_ns));
  });
  if (times.empty() || step < job.first_step + kWarmUpSteps) return;
  const double time_ns = median_of(std::move(times));
  const std::vector<double> usual(job.usual_ns.begin(), job.usual_ns.end());
  job.usual_ns.push_back(time_ns);
  if (job.usual_ns.size() > kBaselineSteps) job.usual_ns.pop_front();
  if (usual.size() < kBaselineLeast) return;

  const double middle = median_of(usual);
  const double limit = middle + std::max(kMadFactor * spread_of(usual, middle), kSlowLeast * middle);
  if (time_ns <= limit) {
    if (++job.calm >= kCalmSteps) job.slow_ns = 0;
    return;
  }
  job.calm = 0;
  if (job.slow_ns > 0 && time_ns <= job.slow_ns * (1 + kSlowLeast)) return;  // more of the same
  job.slow_ns = time_ns;
  std::set<Rank> ranks;
  if (static_cast<int32_t>(job.ranks.size()) > kWholeJobRanks) {
    const std::vector<OwnTime> own = own_times(steps_, job_id, step);
    for (size_t i = 0; i < std::min(own.size(), kSlowestRanks); ++i) ranks.insert(own[own.size() - 1 - i].rank);
    add_median_ranks(own, ranks, kMedianRanks);
    if (ranks.empty()) return;  // nobody knows who
  }
  needs.push_back({job_id, step, step, {ranks.begin(), ranks.end()}, "slow_step"});
}

void TailSampler::issue(const DetailNeed& need, int64_t now_unix_ns) {
  auto left_out = [&](const char* reason) {
    counters_.add("lockstep_detail_asks_left_out_total", format("reason=\"%s\"", reason));
  };
  std::optional<JobInfo> info = steps_.job(need.job_id);
  Job& job = jobs_.find(need.job_id)->second;
  if (!info || info->attempt != job.attempt) return left_out("unknown_ranks");
  std::set<Rank> ranks(need.ranks.begin(), need.ranks.end());
  bool all = ranks.empty();
  if (need.verdict) {
    all = static_cast<int32_t>(info->ranks.size()) <= kWholeJobRanks;
    add_peers(*info, ranks, kPeersMax);
    add_median_ranks(own_times(steps_, need.job_id, need.to_step), ranks, kMedianRanks);
  }

  // What was asked before is not asked again; the agents would not send it twice either.
  for (StepNumber step = need.from_step; step <= need.to_step; ++step) {
    auto before =
        std::find_if(job.asked.begin(), job.asked.end(), [&](const Asked& asked) { return asked.step == step; });
    std::set<Rank> now = ranks;
    if (before != job.asked.end()) {
      if (before->all) continue;
      std::erase_if(now, [&](Rank rank) { return before->ranks.contains(rank); });
      if (!all && now.empty()) continue;
    }
    while (!job.asked_at_unix_ns.empty() && now_unix_ns - job.asked_at_unix_ns.front() >= kMinuteNs)
      job.asked_at_unix_ns.pop_front();
    if (static_cast<int64_t>(job.asked_at_unix_ns.size()) >= kAsksPerMinute) {
      left_out("budget");
      continue;
    }
    DetailRequest request{.job_id = need.job_id, .attempt = job.attempt, .from_step = step, .to_step = step};
    if (!all) request.ranks = {now.begin(), now.end()};
    const DetailAsked asked = ask_hosts(*info, request, asker_);
    if (asked.hosts == 0) {
      left_out(asked.ranks_refused > 0 ? "refused" : "unknown_ranks");
      continue;
    }
    job.asked_at_unix_ns.push_back(now_unix_ns);
    counters_.add("lockstep_detail_asks_total", format("reason=\"%s\"", need.reason));
    if (before == job.asked.end()) {
      job.asked.push_back({step, all, std::move(now)});
      if (job.asked.size() > kAskedMax) job.asked.pop_front();
    } else {
      before->all |= all;
      before->ranks.merge(now);
    }
  }
}

void TailSampler::tick(int64_t now_unix_ns) {
  MutexLock lock(mutex_);
  std::vector<DetailNeed> needs;
  for (auto& [job_id, job] : jobs_) {
    while (!job.open.empty()) {
      const auto oldest = job.open.begin();
      const bool complete = oldest->second.rows >= job.ranks.size();
      const bool overtaken = job.open.size() > kStepsOpenMax ||
                             (job.open.size() > 1 && now_unix_ns - oldest->second.last_unix_ns > kStepPatienceNs);
      if (!complete && !overtaken) break;
      judge(job_id, job, oldest->first, needs);
      job.judged_through = std::max(job.judged_through, oldest->first);
      job.open.erase(oldest);
    }
  }
  for (const Verdict& verdict : changed_) {
    auto found = jobs_.find(verdict.job_id);
    if (found == jobs_.end() || found->second.attempt != verdict.attempt) continue;
    Job& job = found->second;
    if (verdict.state == VerdictState::kCleared) {
      job.verdicts.erase(verdict.id);
      continue;
    }
    const auto [known, is_new] = job.verdicts.try_emplace(verdict.id, verdict.culprit.ranks);
    if (!is_new && known->second == verdict.culprit.ranks) continue;
    known->second = verdict.culprit.ranks;
    if (verdict.since_step < 0_step) continue;
    const StepNumber from = std::max(0_step, verdict.since_step - kBeforeVerdict);
    const StepNumber to = std::max(from, std::min(verdict.since_step + kAfterVerdict, job.judged_through));
    needs.push_back({verdict.job_id, from, to, verdict.culprit.ranks, "verdict", true});
  }
  changed_.clear();
  if (!live_) return;
  // Verdicts first: they know who it was.
  std::stable_partition(needs.begin(), needs.end(), [](const DetailNeed& need) { return need.verdict; });
  for (const DetailNeed& need : needs) issue(need, now_unix_ns);
}

}  // namespace lockstep
