#include "sim/score/baselines.h"

#include <algorithm>
#include <unordered_map>

#include "base/json_writer.h"
#include "base/median.h"
#include "base/text.h"
#include "model/events.h"
#include "wire/otlp.h"

namespace lockstep::sim {
namespace {

constexpr Layer kLayers[] = {Layer::kGpu,  Layer::kHost,   Layer::kInput,    Layer::kNvlink,  Layer::kNic,
                             Layer::kLink, Layer::kSwitch, Layer::kSoftware, Layer::kWorkload};
constexpr double kOverMedian = 1.1;
constexpr int kWalkRounds = 20;
constexpr double kRestart = 0.15;
constexpr size_t kOpenStepsMax = 4;   // a step that some rank never tells is judged without it
constexpr size_t kReportedMax = 200;  // accusations kept per rule and job

// Ranks (places in the step) by communicator, with their time in it.
std::unordered_map<CommId, std::vector<std::pair<size_t, double>>> groups_of(const BaselineStep& step) {
  std::unordered_map<CommId, std::vector<std::pair<size_t, double>>> groups;
  for (size_t i = 0; i < step.ranks.size(); ++i)
    for (const CommStep& comm : step.ranks[i].comms)
      if (!comm.p2p) groups[comm.comm_id].emplace_back(i, static_cast<double>(comm.gpu_ns));
  return groups;
}

Rank longest_own(const BaselineStep& step) {
  const auto longest = std::max_element(step.ranks.begin(), step.ranks.end(),
                                        [](const auto& a, const auto& b) { return a.own < b.own; });
  return longest->rank;
}

Rank longest_collective(const BaselineStep& step) {
  Rank rank = kNoRank;
  int64_t longest = 0;
  for (const BaselineStep::RankTimes& entry : step.ranks) {
    for (const CommStep& comm : entry.comms) {
      if (comm.p2p || comm.longest_ns <= longest) continue;
      longest = comm.longest_ns;
      rank = entry.rank;
    }
  }
  return rank;
}

Rank over_group_median(const BaselineStep& step) {
  std::vector<std::pair<CommId, const std::vector<std::pair<size_t, double>>*>> in_order;
  const auto groups = groups_of(step);
  for (const auto& [id, members] : groups)
    if (members.size() >= 3) in_order.emplace_back(id, &members);
  std::sort(in_order.begin(), in_order.end());
  Rank rank = kNoRank;
  double most = kOverMedian;
  for (const auto& [id, members] : in_order) {
    std::vector<double> own;
    for (const auto& [place, time] : *members) own.push_back(step.ranks[place].own);
    const double typical = upper_median_of(own);
    if (typical <= 0) continue;
    for (const auto& [place, time] : *members) {
      if (step.ranks[place].own / typical <= most) continue;
      most = step.ranks[place].own / typical;
      rank = step.ranks[place].rank;
    }
  }
  return rank;
}

// Within a group, mass goes from who waits to who makes wait, in proportion to how much shorter a rank's own time in
// the collective is than the longest. The product of two columns, so a round costs one pass over the members.
Rank walk(const BaselineStep& step) {
  const size_t count = step.ranks.size();
  const auto groups = groups_of(step);
  std::vector<std::vector<std::pair<size_t, double>>> members;
  std::vector<CommId> ids;
  for (const auto& entry : groups)
    if (entry.second.size() >= 2) ids.push_back(entry.first);
  std::sort(ids.begin(), ids.end());
  for (CommId id : ids) members.push_back(groups.at(id));

  std::vector<double> own, start(count);
  for (const BaselineStep::RankTimes& rank : step.ranks) own.push_back(rank.own);
  const double typical = upper_median_of(own);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += start[i] = std::max(0.0, own[i] - typical) + 1e-3 * typical + 1;
  for (double& mass : start) mass /= sum;

  std::vector<double> waits(count, 0), shortest(members.size()), longest(members.size()), shorter_sum(members.size());
  for (size_t g = 0; g < members.size(); ++g) {
    shortest[g] = longest[g] = members[g].front().second;
    for (const auto& [place, time] : members[g]) {
      shortest[g] = std::min(shortest[g], time);
      longest[g] = std::max(longest[g], time);
    }
    for (const auto& [place, time] : members[g]) {
      waits[place] += time - shortest[g];
      shorter_sum[g] += longest[g] - time;
    }
  }
  std::vector<double> mass = start;
  for (int round = 0; round < kWalkRounds; ++round) {
    std::vector<double> next(count);
    for (size_t i = 0; i < count; ++i) {
      const double stays = own[i] / std::max(1.0, own[i] + waits[i]);  // who hardly waits keeps what it has
      next[i] = kRestart * start[i] + (1 - kRestart) * mass[i] * stays;
    }
    for (size_t g = 0; g < members.size(); ++g) {
      if (shorter_sum[g] <= 0) continue;
      double pool = 0;
      for (const auto& [place, time] : members[g]) {
        if (waits[place] > 0)
          pool += (1 - kRestart) * mass[place] * (time - shortest[g]) / std::max(1.0, own[place] + waits[place]);
      }
      for (const auto& [place, time] : members[g]) next[place] += pool * (longest[g] - time) / shorter_sum[g];
    }
    mass.swap(next);
  }
  return step.ranks[static_cast<size_t>(std::max_element(mass.begin(), mass.end()) - mass.begin())].rank;
}

uint64_t seed_of(std::string_view job, Rule rule) {
  uint64_t hash = 1469598103934665603ull + static_cast<uint64_t>(rule);
  for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
  return hash;
}

}  // namespace

const char* to_text(Rule rule) {
  switch (rule) {
    case Rule::kSlowestRank:
      return "slowest rank";
    case Rule::kLongestCollective:
      return "longest collective";
    case Rule::kGroupMedian:
      return "group median";
    case Rule::kRandomWalk:
      return "random walk";
    case Rule::kRandomGuess:
      return "random guess";
  }
  return "unknown";
}

Rank accuse(Rule rule, const BaselineStep& step, bool slow, std::mt19937_64& random) {
  if (step.ranks.empty()) return kNoRank;
  if (rule == Rule::kGroupMedian) return over_group_median(step);
  if (!slow) return kNoRank;
  switch (rule) {
    case Rule::kSlowestRank:
      return longest_own(step);
    case Rule::kLongestCollective:
      return longest_collective(step);
    case Rule::kRandomWalk:
      return walk(step);
    case Rule::kRandomGuess:
      return step.ranks[random() % step.ranks.size()].rank;
    case Rule::kGroupMedian:
      break;
  }
  return kNoRank;
}

Baselines::Baselines() = default;
Baselines::~Baselines() = default;

void Baselines::receive(Signal signal, std::string_view otlp, int64_t) {
  if (signal != Signal::kLogs) return;
  const Result<Batch> batch = otlp::decode(signal, otlp);
  if (!batch.ok()) return;
  for (const ResourceGroup& group : batch->groups) {
    const Result<Identity> identity = identity_from_resource(group.resource);
    if (!identity.ok()) continue;
    for (const LogRecord& record : group.logs) {
      if (record.event_name != kEventTrainStep) continue;
      const Result<StepSummary> summary = step_from_record(record);
      if (!summary.ok()) continue;
      Job& job = jobs_[identity->job_id];
      if (identity->attempt < job.attempt) continue;
      if (identity->attempt > job.attempt) {
        job.open.clear();
        job.first_durations.clear();
        job.closed = kNoStep;
        job.seen_steps = 0;
        job.attempt = identity->attempt;
      }
      job.world_size = std::max(job.world_size, identity->world_size);
      if (summary->step <= job.closed) continue;
      BaselineStep::RankTimes& rank = job.open[summary->step][identity->rank];
      rank.rank = identity->rank;
      rank.own = static_cast<double>(summary->self_ns);
      rank.duration = static_cast<double>(summary->duration_ns);
      rank.comms = summary->comms;
    }
  }
}

void Baselines::tick(int64_t) {
  for (auto& entry : jobs_) {
    Job& job = entry.second;
    while (!job.open.empty()) {
      const bool complete = job.open.begin()->second.size() >= static_cast<size_t>(job.world_size);
      if (!complete && job.open.size() <= kOpenStepsMax) break;
      close(entry.first, job, job.open.begin()->first);
    }
  }
}

void Baselines::close(const std::string& job_id, Job& job, StepNumber number) {
  BaselineStep step;
  std::vector<double> durations;
  for (auto& [rank, row] : job.open[number]) {
    durations.push_back(row.duration);
    step.ranks.push_back(std::move(row));
  }
  job.open.erase(number);
  job.closed = number;
  const double duration = upper_median_of(durations);
  ++job.seen_steps;
  if (job.seen_steps > kWarmUpSteps && job.first_durations.size() < kBaselineSteps)
    job.first_durations.push_back(duration);
  const bool learned = job.first_durations.size() >= kBaselineSteps;
  const bool slow = learned && duration > (1 + kSlow) * upper_median_of(job.first_durations);
  for (size_t i = 0; i < kRuleCount; ++i) {
    const auto rule = static_cast<Rule>(i);
    const auto [entry, fresh] = job.voting.try_emplace(rule);
    Voting& voting = entry->second;
    if (fresh) voting.random.seed(seed_of(job_id, rule));
    vote(rule, voting, learned ? accuse(rule, step, slow, voting.random) : kNoRank);
  }
}

void Baselines::vote(Rule rule, Voting& voting, Rank accused) {
  voting.votes.push_back(accused);
  if (voting.votes.size() > kWindow) voting.votes.pop_front();
  std::map<Rank, size_t> count;
  size_t cast = 0;
  for (Rank vote : voting.votes) {
    if (vote == kNoRank) continue;
    ++count[vote];
    ++cast;
  }
  Rank favourite = kNoRank;
  size_t most = 0;
  for (const auto& [rank, votes] : count) {
    if (votes > most) {
      most = votes;
      favourite = rank;
    }
  }
  // A guess never gathers votes for one rank: it speaks by the number of slow steps, once.
  if (rule == Rule::kRandomGuess) {
    const bool open = !voting.reported.empty() && voting.reported.back().state != VerdictState::kCleared;
    most = cast;
    if (open) favourite = voting.reported.back().rank;
  }
  for (Accusation& reported : voting.reported) {
    if (reported.state == VerdictState::kCleared) continue;
    reported.silent = favourite == reported.rank && most >= kSuspect ? 0 : reported.silent + 1;
    if (reported.silent >= static_cast<int>(kWindow)) reported.state = VerdictState::kCleared;
  }
  if (favourite == kNoRank || most < kSuspect) return;
  auto reported = std::find_if(voting.reported.begin(), voting.reported.end(), [&](const Accusation& entry) {
    return entry.rank == favourite && entry.state != VerdictState::kCleared;
  });
  if (reported == voting.reported.end()) {
    Accusation fresh;
    fresh.serial = voting.reported.empty() ? 1 : voting.reported.back().serial + 1;
    fresh.rank = favourite;
    fresh.layer = rule == Rule::kLongestCollective ? Layer::kLink
                  : rule == Rule::kRandomGuess     ? kLayers[voting.random() % std::size(kLayers)]
                                                   : Layer::kGpu;
    fresh.state = VerdictState::kSuspected;
    voting.reported.push_back(std::move(fresh));
    if (voting.reported.size() > kReportedMax) voting.reported.erase(voting.reported.begin());
    reported = voting.reported.end() - 1;
  }
  if (most >= kConfirm) reported->state = VerdictState::kConfirmed;
}

std::string Baselines::verdicts(std::string_view job_id) {
  return verdicts_of(Rule::kSlowestRank, job_id);
}

std::string Baselines::verdicts_of(Rule rule, std::string_view job_id) const {
  const auto job = jobs_.find(job_id);
  JsonWriter json;
  json.begin_array();
  if (job != jobs_.end()) {
    const auto voting = job->second.voting.find(rule);
    if (voting != job->second.voting.end()) {
      for (const Accusation& reported : voting->second.reported) {
        json.begin_object()
            .field("id", format("%d", reported.serial))
            .field("state", to_text(reported.state))
            .field("kind", to_text(VerdictKind::kSlow))
            .field("sentence", format("%s: rank %d", to_text(rule), reported.rank.value()));
        json.key("culprit").begin_object().key("rank").begin_array().number(reported.rank.value()).end_array();
        json.field("layer", to_text(reported.layer)).field("cause", to_text(Cause::kNone)).end_object();
        json.key("alternatives").begin_array().end_array().end_object();
      }
    }
  }
  json.end_array();
  return json.take();
}

}  // namespace lockstep::sim
