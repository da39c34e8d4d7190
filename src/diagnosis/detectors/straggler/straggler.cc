#include "diagnosis/detectors/straggler/straggler.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "diagnosis/roles.h"
#include "diagnosis/words.h"

namespace lockstep {
namespace {

// Steps looked at: few enough to answer within seconds, enough that one odd step changes nothing.
constexpr size_t kWindow = 10;
constexpr size_t kStepsSuspect = 4;
constexpr size_t kStepsSure = 6;
// A slowness that has just begun is suspected after so many steps in a row, each clearly slow, by one rank alone.
constexpr size_t kStepsFresh = 4;
constexpr double kFreshShareMin = 0.10;
// A job's first steps are often slow on one rank (compilation, page cache): be sure only after these.
constexpr int64_t kSettleSteps = 12;
// Below 5 % of a step a difference between ranks is everyday noise (and a culprit not worth a person at night).
constexpr double kShareMin = 0.05;
// Distance from the peers in robust standard deviations.
constexpr double kSigmas = 6;
constexpr double kExcessMinNs = 1e6;
// More than this share of a role late together: the work is shaped so.
constexpr double kStructuralShare = 1.0 / 3;

struct RankStats {
  std::vector<double> late;  // per step of the window, in order
  double typical = 0;
  uint32_t role = 0;
};

// The size of a slowness that began in the last kStepsFresh steps; 0 where there is none.
double fresh_lateness(const std::vector<double>& late, double limit) {
  if (late.size() < kStepsFresh) return 0;
  std::vector<double> newest(late.end() - static_cast<std::ptrdiff_t>(kStepsFresh), late.end());
  double least = *std::min_element(newest.begin(), newest.end());
  double size = median(newest);
  return least >= limit && least >= 0.6 * size ? size : 0;
}

double sum_bytes(const StepSummary& summary) {
  double bytes = 0;
  for (const CommStep& comm : summary.comms) bytes += static_cast<double>(comm.bytes);
  return bytes;
}

// True where the rank simply has more to do, and its bytes say so (more tokens routed or packed to it).
bool explained_by_workload(const JobWindow& window, int32_t rank, const std::vector<int64_t>& steps) {
  std::vector<double> bytes_ratio, own_ratio;
  for (int64_t number : steps) {
    const auto* rows = window.step(number);
    if (rows == nullptr || !rows->contains(rank)) continue;
    std::vector<double> bytes, own;
    for (const auto& [other, row] : *rows) {
      if (other == rank) continue;
      bytes.push_back(sum_bytes(row.summary));
      own.push_back(static_cast<double>(row.own_ns()));
    }
    double peer_bytes = median(bytes), peer_own = median(own);
    if (peer_bytes <= 0 || peer_own <= 0) continue;
    bytes_ratio.push_back(sum_bytes(rows->at(rank).summary) / peer_bytes);
    own_ratio.push_back(static_cast<double>(rows->at(rank).own_ns()) / peer_own);
  }
  double more_bytes = median(bytes_ratio);
  return more_bytes > 1.1 && median(own_ratio) < more_bytes * 1.2;
}

}  // namespace

void explain_own_time(const JobWindow& window, int32_t rank, const std::vector<int64_t>& steps, Finding& finding) {
  std::array<double, kPhaseCount> own_phase{}, peer_phase{};
  double own_queue = 0, peer_queue = 0, own_time = 0, peer_time = 0;
  double counted = 0;
  for (int64_t number : steps) {
    const auto* rows = window.step(number);
    if (rows == nullptr || !rows->contains(rank)) continue;
    const StepSummary& own = rows->at(rank).summary;
    std::vector<double> queue, time;
    std::array<std::vector<double>, kPhaseCount> phases;
    for (const auto& [other, row] : *rows) {
      if (other == rank) continue;
      queue.push_back(static_cast<double>(row.summary.queue_ns));
      time.push_back(static_cast<double>(row.own_ns()));
      for (size_t i = 0; i < kPhaseCount; ++i) phases[i].push_back(static_cast<double>(row.summary.phase_ns[i]));
    }
    for (size_t i = 0; i < kPhaseCount; ++i) {
      own_phase[i] += static_cast<double>(own.phase_ns[i]);
      peer_phase[i] += median(phases[i]);
    }
    own_queue += static_cast<double>(own.queue_ns);
    peer_queue += median(queue);
    own_time += static_cast<double>(rows->at(rank).own_ns());
    peer_time += median(time);
    counted += 1;
  }
  if (counted == 0) return;
  for (size_t i = 0; i < kPhaseCount; ++i) {
    own_phase[i] /= counted;
    peer_phase[i] /= counted;
  }
  own_queue /= counted;
  peer_queue /= counted;
  own_time /= counted;
  peer_time /= counted;
  double excess = std::max(1.0, own_time - peer_time);
  int64_t from = steps.front(), to = steps.back();
  std::string subject = format("rank %d", rank);
  std::string query = rank_query(rank, from, to);

  finding.chain.push_back(claim(
      "self_time", subject,
      format("Its own work takes %s, its peers' %s.", per_step(own_time).c_str(), human_duration(peer_time).c_str()),
      own_time / 1e6, "ms", 0, peer_time / 1e6, from, to, query));

  constexpr size_t kIn = static_cast<size_t>(Phase::kInput);
  double input_excess = own_phase[kIn] - peer_phase[kIn];
  double queue_excess = own_queue - peer_queue;
  bool phases_told = false;
  for (double phase : own_phase) phases_told |= phase > 0;
  auto exclude_input = [&] {
    if (!phases_told) return;
    finding.chain.push_back(claim("exclusion", subject,
                                  format("Not the input: %s, its peers %s.", per_step(own_phase[kIn]).c_str(),
                                         human_duration(peer_phase[kIn]).c_str()),
                                  own_phase[kIn] / 1e6, "ms", 0, peer_phase[kIn] / 1e6, from, to, query));
  };
  auto exclude_gpu = [&] {
    finding.chain.push_back(claim("exclusion", subject,
                                  format("Not its GPU: work is queued on it for %s, on its peers' %s.",
                                         per_step(own_queue).c_str(), human_duration(peer_queue).c_str()),
                                  own_queue / 1e6, "ms", 0, peer_queue / 1e6, from, to, query));
  };
  if (input_excess >= 0.5 * excess) {
    finding.layer = "input";
    finding.cause = "data-loader";
    finding.component = format("input of rank %d", rank);
    finding.chain.push_back(claim("self_time", subject,
                                  format("It waits %s for its input, its peers %s.", per_step(own_phase[kIn]).c_str(),
                                         human_duration(peer_phase[kIn]).c_str()),
                                  own_phase[kIn] / 1e6, "ms", 0, peer_phase[kIn] / 1e6, from, to, query));
    exclude_gpu();
    finding.alternatives.push_back({format("storage behind rank %d", rank), 0.3,
                                    "only this rank waits; shared storage would slow others too",
                                    "disk and NFS latency on its host"});
    finding.next.push_back(
        {"look at its data loader: workers, CPU, the shard it reads", format("lockstep why {job} --json")});
  } else if (queue_excess >= 0.4 * excess) {
    finding.layer = "gpu";
    finding.cause = "slow-compute";
    finding.component = format("GPU of rank %d", rank);
    finding.chain.push_back(claim(
        "self_time", subject,
        format("Its collectives wait %s behind its own kernels, its peers' %s: the host is on time, the GPU is behind.",
               per_step(own_queue).c_str(), human_duration(peer_queue).c_str()),
        own_queue / 1e6, "ms", 0, peer_queue / 1e6, from, to, query));
    exclude_input();
    finding.alternatives.push_back(
        {format("software of rank %d (more or other kernels than its peers)", rank), 0.4,
         "cannot be told apart from a slow GPU without its clocks",
         "GPU clocks and throttle time of its host, or a kernel profile of it and one peer"});
    finding.next.push_back({"compare its GPU's clocks, temperature and processes with a peer's",
                            "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,PIDS"});
  } else {
    finding.layer = "host";
    finding.cause = "cpu-contention";
    finding.component = format("host side of rank %d", rank);
    exclude_gpu();
    exclude_input();
    finding.alternatives.push_back({format("software of rank %d (garbage collection, extra work in Python)", rank), 0.4,
                                    "looks the same from outside", "a stack sample of its main thread"});
    finding.next.push_back(
        {"look at its host: CPU load, cgroup throttling, other processes, a stack of its main thread",
         "py-spy dump --pid PID"});
  }
}

std::vector<Finding> find_stragglers(const JobWindow& window, const std::vector<Explained>&) {
  std::vector<int64_t> steps = window.complete_steps();
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.size() < kStepsSuspect) return {};

  std::map<int32_t, RankStats> stats;
  std::vector<double> durations;
  for (int64_t number : steps) {
    const auto& rows = *window.step(number);
    const StepLateness& in_step = lateness(window, *window.frame(number));
    for (const auto& [rank, late] : lateness(window, rows)) {
      stats[rank].late.push_back(late);
      stats[rank].role = in_step.role[static_cast<size_t>(window.slot_of(rank))];
    }
    std::vector<double> step_durations;
    for (const auto& [rank, row] : rows) step_durations.push_back(static_cast<double>(row.summary.duration_ns));
    durations.push_back(median(step_durations));
  }
  double step_ns = median(durations);
  if (step_ns <= 0) return {};
  for (auto& [rank, stat] : stats) stat.typical = median(stat.late);

  std::vector<Finding> findings;
  std::vector<int32_t> late_ranks;
  std::vector<double> noise;
  double limit = std::max(kExcessMinNs, kShareMin * step_ns);
  for (const auto& [rank, stat] : stats) {
    if (stat.typical < limit) {
      for (double late : stat.late) noise.push_back(std::fabs(late));
    }
  }
  // 1.4826: from the median absolute deviation to a standard deviation.
  limit = std::max(limit, kSigmas * 1.4826 * median(noise));
  double fresh_limit = std::max(limit, kFreshShareMin * step_ns);
  for (const auto& [rank, stat] : stats) {
    if (stat.typical >= limit || fresh_lateness(stat.late, fresh_limit) > 0) late_ranks.push_back(rank);
  }
  if (late_ranks.empty()) return {};
  // Late together, in the job or in a role: the work is shaped so.
  auto structural = [](size_t late, size_t all) {
    return late > 1 && static_cast<double>(late) >= kStructuralShare * static_cast<double>(all);
  };
  if (structural(late_ranks.size(), stats.size())) return {};
  std::map<uint32_t, std::pair<size_t, size_t>> roles;  // late, all
  for (const auto& [rank, stat] : stats) ++roles[stat.role].second;
  for (int32_t rank : late_ranks) ++roles[stats[rank].role].first;
  std::erase_if(late_ranks, [&](int32_t rank) {
    return structural(roles[stats[rank].role].first, roles[stats[rank].role].second);
  });

  for (int32_t rank : late_ranks) {
    RankStats& stat = stats[rank];
    auto hits_of = [&](double size) {
      return static_cast<size_t>(std::count_if(stat.late.begin(), stat.late.end(),
                                               [&](double late) { return late >= 0.5 * size && late >= limit; }));
    };
    size_t hits = hits_of(stat.typical);
    bool lasting = stat.typical >= limit && hits >= kStepsSuspect &&
                   static_cast<double>(hits) >= 0.7 * static_cast<double>(stat.late.size());
    if (!lasting) {
      double fresh = fresh_lateness(stat.late, fresh_limit);
      if (fresh == 0 || late_ranks.size() > 1) continue;
      stat.typical = fresh;
      hits = hits_of(fresh);
    }
    if (explained_by_workload(window, rank, steps)) continue;

    Finding finding;
    finding.kind = "slow";
    finding.ranks = {rank};
    bool goes_on = stat.late.back() >= limit;
    finding.sure = lasting && goes_on && hits >= kStepsSure && steps.back() >= window.first_step() + kSettleSteps;
    finding.through_step = steps.back();
    // Since when: back to the first step of the unbroken stretch, as far as the window remembers.
    std::vector<int64_t> all = window.complete_steps();
    finding.since_step = steps.back();
    int misses = 0;
    for (auto at = all.rbegin(); at != all.rend() && misses < 3; ++at) {
      std::map<int32_t, double> late = lateness(window, *window.step(*at));
      if (late.contains(rank) && late[rank] >= 0.5 * stat.typical) {
        finding.since_step = *at;
        misses = 0;
      } else {
        ++misses;
      }
    }
    // What the step would take without it: the next slowest rank sets the pace then.
    double next_slowest = 0;
    for (const auto& [other, other_stat] : stats) {
      if (other != rank) next_slowest = std::max(next_slowest, other_stat.typical);
    }
    double saved = std::clamp(stat.typical - std::max(0.0, next_slowest), 0.0, step_ns);
    finding.step_ns = static_cast<int64_t>(step_ns);
    finding.step_without_ns = static_cast<int64_t>(step_ns - saved);
    finding.lost_ns_per_step = static_cast<int64_t>(saved);
    finding.victims = victims_of(window, finding.ranks);
    add_wait_claims(window, rank, steps, finding);
    explain_own_time(window, rank, steps, finding);
    add_network_exclusion(window, rank, steps, finding);
    finding.chain.push_back(claim("counterfactual", format("rank %d", rank),
                                  format("Without it a step would take %s instead of %s.",
                                         human_duration(step_ns - saved).c_str(), human_duration(step_ns).c_str()),
                                  (step_ns - saved) / 1e6, "ms", step_ns / 1e6, 0, steps.front(), steps.back(),
                                  steps_query(steps.front(), steps.back())));
    finding.sentence = format("%s makes %s wait %s since step {since}: %s of the job.", name_of(window, rank).c_str(),
                              static_cast<int32_t>(finding.victims.size()) + 1 >= window.world_size()
                                  ? format("all %d ranks", window.world_size()).c_str()
                                  : format("%zu ranks", finding.victims.size()).c_str(),
                              per_step(saved).c_str(), percent(saved / step_ns).c_str());
    finding.coverage = window.world_size() > 0 ? static_cast<double>(stats.size()) / window.world_size() : 1;
    finding.confidence = std::min(0.99, 0.5 + 0.05 * static_cast<double>(hits)) * std::min(1.0, finding.coverage + 0.2);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace lockstep
