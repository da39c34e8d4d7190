#include "agent/evidence/evidence_watch.h"

#include <chrono>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kIdleWait{500};
constexpr std::chrono::milliseconds kBusyWait{25};

}  // namespace

EvidenceWatch::EvidenceWatch(EvidenceOptions options, const Clock& clock, Counters& counters)
    : counters_(counters), heartbeat_(options.heartbeat), taker_(options, clock, counters) {
  thread_ = std::thread([this] { run(); });
}

void EvidenceWatch::set_ranks(std::vector<RecorderOwner> owners) {
  MutexLock lock(mutex_);
  owners_ = std::move(owners);
  owners_new_ = true;
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

std::vector<ResourceGroup> EvidenceWatch::take() {
  MutexLock lock(mutex_);
  return std::exchange(fetched_, {});
}

EvidenceWatch::~EvidenceWatch() {
  stop(0);
  thread_.join();
}

bool EvidenceWatch::stop(int64_t within_ms) {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(mutex_, std::chrono::milliseconds(within_ms),
                           [this]() LOCKSTEP_REQUIRES(mutex_) { return ended_; });
}

void EvidenceWatch::run() {
  ReleasableMutexLock lock(mutex_);
  while (!stopping_) {
    const std::vector<StackRequest> asked = std::exchange(asked_, {});
    std::vector<RecorderOwner> owners;
    const bool owners_new = std::exchange(owners_new_, false);
    if (owners_new) owners = owners_;
    lock.unlock();
    if (heartbeat_ != nullptr) heartbeat_->beat();
    if (owners_new) taker_.set_ranks(owners);
    for (const StackRequest& request : asked) taker_.ask(request);
    std::vector<ResourceGroup> fetched = taker_.poll();
    const bool busy = taker_.busy();
    lock.lock();
    std::move(fetched.begin(), fetched.end(), std::back_inserter(fetched_));
    if (heartbeat_ != nullptr) heartbeat_->waits();
    if (!stopping_ && asked_.empty()) changed_.wait_for(mutex_, busy ? kBusyWait : kIdleWait);
  }
  ended_ = true;
  changed_.notify_all();
}

}  // namespace lockstep
