#include "agent/evidence/stack_sampler.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "agent/ranks/watched_rank.h"
#include "model/events.h"
#include "sources/stacks/rank_sampler.h"

namespace lockstep {

StackSampler::~StackSampler() {
  stop(0);
  if (thread_.joinable()) thread_.join();
}

bool StackSampler::order(std::vector<SampleTarget> targets, int64_t seconds, int64_t hz) {
  MutexLock lock(mutex_);
  if (stopping_ || orders_.size() >= kOrdersMax) return false;
  orders_.push_back({std::move(targets), std::clamp<int64_t>(seconds, 1, kSampleSecondsMax),
                     std::clamp<int64_t>(hz, 1, kSampleHzMax)});
  if (!running_) {
    running_ = true;
    thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
  return true;
}

std::vector<ResourceGroup> StackSampler::take() {
  MutexLock lock(mutex_);
  return std::exchange(done_, {});
}

bool StackSampler::stop(int64_t within_ms) {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(mutex_, std::chrono::milliseconds(within_ms),
                           [this]() LOCKSTEP_REQUIRES(mutex_) { return !running_; });
}

bool StackSampler::is_stopping() {
  MutexLock lock(mutex_);
  return stopping_;
}

void StackSampler::run() {
  ReleasableMutexLock lock(mutex_);
  while (!stopping_) {
    if (orders_.empty()) {
      changed_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || !orders_.empty(); });
      continue;
    }
    const Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    std::vector<ResourceGroup> groups = sample(order);
    lock.lock();
    std::move(groups.begin(), groups.end(), std::back_inserter(done_));
  }
  running_ = false;
  changed_.notify_all();
}

std::vector<ResourceGroup> StackSampler::sample(const Order& order) {
  struct Sampled {
    const SampleTarget& target;
    std::optional<RankSampler> sampler;
    std::string note;
    int64_t ended_ns = 0;
  };
  std::vector<Sampled> ranks;
  for (const SampleTarget& target : order.targets) {
    Sampled& rank = ranks.emplace_back(Sampled{target, {}, {}});
    Result<RankSampler> sampler = RankSampler::begin(target.pid, target.start_ticks, target.owner);
    if (sampler.ok())
      rank.sampler.emplace(std::move(*sampler));
    else
      rank.note = sampler.error();
  }
  const int64_t begin_unix_ns = clock_.unix_ns(), begin_ns = clock_.monotonic_ns();
  const int64_t end_ns = begin_ns + order.seconds * 1'000'000'000;
  const int64_t asked_period_ns = 1'000'000'000 / order.hz;
  for (int64_t next_ns = begin_ns, now_ns = begin_ns; now_ns < end_ns && !is_stopping();) {
    bool any = false;
    for (Sampled& rank : ranks) {
      if (!rank.sampler || rank.ended_ns != 0) continue;
      any = true;
      if (rank.sampler->sample()) continue;
      rank.note = "its process ended meanwhile";
      rank.ended_ns = clock_.monotonic_ns();
    }
    if (!any) break;
    const int64_t took_ns = clock_.monotonic_ns() - now_ns;
    next_ns = std::max(next_ns + std::max(asked_period_ns, 2 * took_ns), clock_.monotonic_ns());
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<int64_t>(0, next_ns - clock_.monotonic_ns())));
    now_ns = clock_.monotonic_ns();
  }
  std::vector<ResourceGroup> groups;
  for (Sampled& rank : ranks) {
    RankSamples samples;
    samples.pid = rank.target.pid;
    if (rank.sampler) samples = rank.sampler->finish();
    samples.time_unix_ns = begin_unix_ns;
    samples.duration_ms = ((rank.ended_ns != 0 ? rank.ended_ns : clock_.monotonic_ns()) - begin_ns) / 1'000'000;
    samples.hz = order.hz;
    samples.note = rank.note;
    counters_.add("lockstep_agent_samples_total", samples.looks > 0 ? "result=\"told\"" : "result=\"failed\"");
    groups.push_back(
        {.resource = to_resource(rank.target.identity), .scope_name = kAgentScope, .logs = {to_record(samples)}});
  }
  return groups;
}

}  // namespace lockstep
