#include "agent/detail/trace_sampler.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr double kWeight = 1.0 / 16;  // of a new step in the averages: a job that changes is followed within some steps
constexpr double kSecondsLeast = 1e-4;
// N is halved only once the cost is below three quarters of what the half would allow: near a border it stands still.
constexpr double kRoomToSpare = 0.75;

int64_t power_of_two_at_least(double value, int64_t most) {
  int64_t power = 1;
  while (power < most && static_cast<double>(power) < value) power *= 2;
  return power;
}

}  // namespace

int64_t TraceSampler::turns(int32_t world_size) {
  const int64_t blocks = (std::max(world_size, 1) + int64_t{kBlockRanks} - 1) / kBlockRanks;
  constexpr int64_t kBlocksAtOnce = kRanksAtOnce / kBlockRanks;
  return (blocks + kBlocksAtOnce - 1) / kBlocksAtOnce | 1;
}

bool TraceSampler::has_turn(StepNumber step, Rank rank, int32_t world_size) {
  if (step < 0_step || rank < 0_rank) return false;
  const int64_t all = turns(world_size);
  return (step % all + rank.value() / kBlockRanks) % all == 0;
}

bool TraceSampler::wants(const Identity& identity, const StepDetail& detail) {
  if (budget_bytes_s_ <= 0) return false;
  Job& job = jobs_[{identity.job_id, identity.attempt}];
  job.heard = ++heard_;
  const double spans = 1.0 + static_cast<double>(detail.phases.size() + detail.ops.size());
  const double seconds = std::max(kSecondsLeast, static_cast<double>(detail.duration_ns) / 1e9);
  const bool is_first = job.rates.empty();
  if (is_first) {
    job.spans = spans;
    job.seconds = seconds;
  } else {
    job.spans += (spans - job.spans) * kWeight;
    job.seconds += (seconds - job.seconds) * kWeight;
  }
  if (is_first || detail.step > job.newest_step) {
    job.newest_step = detail.step;
    const double wanted = job.spans * kWireBytesPerSpan /
                          (job.seconds * budget_bytes_s_ * static_cast<double>(turns(identity.world_size)));
    const double now = is_first ? 0 : static_cast<double>(job.rates.back().every);
    if (wanted > now || wanted < now / 2 * kRoomToSpare) {
      const int64_t every = power_of_two_at_least(wanted, kEveryMax);
      if (is_first || every != job.rates.back().every) job.rates.push_back({detail.step, every});
      if (job.rates.size() > kRatesMax) job.rates.pop_front();
    }
  }
  const bool wanted_now =
      detail.step % job.every(detail.step) == 0 && has_turn(detail.step, identity.rank, identity.world_size);
  if (jobs_.size() > kJobsMax) {
    jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(),
                                 [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; }));
  }
  return wanted_now;
}

int64_t TraceSampler::every(const std::string& job_id, int64_t attempt) const {
  auto found = jobs_.find({job_id, attempt});
  return found == jobs_.end() || found->second.rates.empty() ? 0 : found->second.rates.back().every;
}

int64_t TraceSampler::Job::every(StepNumber step) const {
  for (auto rate = rates.rbegin(); rate != rates.rend(); ++rate) {
    if (rate->from_step <= step) return rate->every;
  }
  return rates.front().every;
}

}  // namespace lockstep
