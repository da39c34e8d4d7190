// Minutes of inference services in the ledger, by how long their requests took (analysis/inference.h): time to first token,
// time per output token, queue. A service is a job of its own there, "service NAME", with one GPU: it does not say how many.
//
// A minute is judged once, from what it reported by kGraceNs after its end. Fewer than kRequestsLeast requests: unknown, where the
// service was measured before. A slow first token is charged to the queue or to prefill, whichever takes more than half of it.
// Limits: kServicesMax services, the first by name.
// Thread rule: tick() for one thread, and never waits; a thread of its own looks, and ends with this.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "sle/ledger.h"
#include "store/metric_reader.h"
#include "store/span_store.h"

namespace lockstep::sle {

class ServiceWatch {
 public:
  static constexpr int64_t kGraceNs = 15'000'000'000;
  static constexpr size_t kServicesMax = 50, kRequestsLeast = 5;

  ServiceWatch(Ledger& ledger, const SpanStore& spans, const MetricReader& metrics, Thresholds thresholds);
  ~ServiceWatch();
  ServiceWatch(const ServiceWatch&) = delete;
  ServiceWatch& operator=(const ServiceWatch&) = delete;

  void tick(int64_t now_unix_ns);
  // The minute, now. For the thread, and for tests.
  void judge(int32_t minute);

 private:
  void run();

  Ledger& ledger_;
  const SpanStore& spans_;
  const MetricReader& metrics_;
  const Thresholds thresholds_;
  Mutex mutex_;
  ConditionVariable wake_;
  int32_t due_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace lockstep::sle
