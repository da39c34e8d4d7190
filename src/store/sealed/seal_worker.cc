#include "store/sealed/seal_worker.h"

#include "base/contained.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::sealed {
namespace {
constexpr int64_t kRetryNs = 5'000'000'000;
constexpr int64_t kReportAgainNs = 60'000'000'000;
constexpr int64_t kMaintainNs = 60'000'000'000;
}  // namespace

void SealWorker::run(std::stop_token stop, const SealWork& work) {
  int64_t maintained_ns = 0;
  while (!stop.stop_requested()) {
    work.on_wake();
    {
      MutexLock lock(mutex_);
      wake_.wait_for(mutex_, stop, std::chrono::milliseconds(250), [&] {
        return stop.stop_requested() || (clock_.monotonic_ns() >= not_before_ns_ && work.is_due());
      });
    }
    if (stop.stop_requested()) return;
    const int64_t now_ns = clock_.monotonic_ns();
    const bool sealed = now_ns >= not_before_ns_ && work.is_due() && try_seal(work, now_ns);
    if (sealed || maintained_ns == 0 || now_ns - maintained_ns >= kMaintainNs) {
      maintained_ns = now_ns;
      if (!contained(work.store, "retention", [&] { work.maintain(); })) counters_.add("lockstep_store_failures_total");
    }
  }
}

bool SealWorker::try_seal(const SealWork& work, int64_t now_ns) {
  Result<bool> sealed = Error{"an exception"};
  if (!contained(work.store, "a seal", [&] { sealed = work.seal(); })) counters_.add(work.count_failed);
  if (!sealed.ok()) not_before_ns_ = now_ns + kRetryNs;
  work.on_sealed(sealed.ok());
  if (sealed.ok()) {
    if (reported_ns_ != 0) LOCKSTEP_LOG_INFO(work.store, "sealed again: the disk has room");
    reported_ns_ = 0;
  } else if (reported_ns_ == 0 || now_ns - reported_ns_ >= kReportAgainNs) {
    LOCKSTEP_LOG_ERROR(work.store, "cannot be sealed: %s; they stay in memory (limit %s), trying again every %s",
                       sealed.error().c_str(), work.limit().c_str(),
                       human_duration(static_cast<double>(kRetryNs)).c_str());
    reported_ns_ = now_ns;
  }
  return sealed.ok();
}

}  // namespace lockstep::sealed
