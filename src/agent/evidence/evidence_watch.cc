#include "agent/evidence/evidence_watch.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kIdleWait{500};
constexpr std::chrono::milliseconds kBusyWait{25};

}  // namespace

EvidenceWatch::EvidenceWatch(EvidenceOptions options, const Clock& clock, Counters& counters)
    : counters_(counters), heartbeat_(options.heartbeat), taker_(options, clock, counters), sampler_(clock, counters) {
  thread_ = std::thread([this] { run(); });
}

void EvidenceWatch::set_ranks(std::vector<RecorderOwner> owners) {
  MutexLock lock(mutex_);
  const bool any_new = std::any_of(owners.begin(), owners.end(),
                                   [this](const RecorderOwner& owner)
                                       LOCKSTEP_REQUIRES(mutex_) { return !code_versions_.contains(owner.path); });
  owners_ = std::move(owners);
  owners_new_ = true;
  if (any_new) changed_.notify_all();
}

std::map<std::string, std::string> EvidenceWatch::code_versions() {
  MutexLock lock(mutex_);
  return code_versions_;
}

void EvidenceWatch::ask(StackRequest request) {
  MutexLock lock(mutex_);
  if (asked_.size() >= kAskedMax) {
    counters_.add("lockstep_agent_stacks_total", "result=\"busy\"", static_cast<int64_t>(request.ranks.size()));
    return;
  }
  asked_.push_back(std::move(request));
  changed_.notify_all();
}

void EvidenceWatch::ask(SampleRequest request) {
  MutexLock lock(mutex_);
  if (samples_asked_.size() >= kAskedMax) {
    counters_.add("lockstep_agent_samples_total", "result=\"busy\"", static_cast<int64_t>(request.ranks.size()));
    return;
  }
  samples_asked_.push_back(std::move(request));
  changed_.notify_all();
}

std::vector<ResourceGroup> EvidenceWatch::take() {
  std::vector<ResourceGroup> groups = sampler_.take();
  MutexLock lock(mutex_);
  std::move(fetched_.begin(), fetched_.end(), std::back_inserter(groups));
  fetched_.clear();
  return groups;
}

EvidenceWatch::~EvidenceWatch() {
  stop(0);
  thread_.join();
}

bool EvidenceWatch::stop(int64_t within_ms) {
  const bool sampler_ended = sampler_.stop(within_ms);
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(mutex_, std::chrono::milliseconds(within_ms), [this]() LOCKSTEP_REQUIRES(mutex_) {
    return ended_;
  }) && sampler_ended;
}

void EvidenceWatch::run() {
  ReleasableMutexLock lock(mutex_);
  while (!stopping_) {
    const std::vector<StackRequest> asked = std::exchange(asked_, {});
    const std::vector<SampleRequest> samples_asked = std::exchange(samples_asked_, {});
    std::vector<RecorderOwner> owners;
    const bool owners_new = std::exchange(owners_new_, false);
    if (owners_new) owners = owners_;
    lock.unlock();
    if (heartbeat_ != nullptr) heartbeat_->beat();
    if (owners_new) {
      taker_.set_ranks(owners);
      MutexLock publish(mutex_);
      code_versions_ = taker_.code_versions();
    }
    for (const StackRequest& request : asked) taker_.ask(request);
    for (const SampleRequest& request : samples_asked) {
      std::vector<SampleTarget> targets = taker_.sample_targets(request);
      const auto count = static_cast<int64_t>(targets.size());
      if (count > 0 && !sampler_.order(std::move(targets), request.seconds, request.hz))
        counters_.add("lockstep_agent_samples_total", "result=\"busy\"", count);
    }
    std::vector<ResourceGroup> fetched = taker_.poll();
    const bool busy = taker_.busy();
    lock.lock();
    std::move(fetched.begin(), fetched.end(), std::back_inserter(fetched_));
    if (heartbeat_ != nullptr) heartbeat_->waits();
    if (!stopping_ && !owners_new_ && asked_.empty() && samples_asked_.empty())
      changed_.wait_for(mutex_, busy ? kBusyWait : kIdleWait);
  }
  ended_ = true;
  changed_.notify_all();
}

}  // namespace lockstep
