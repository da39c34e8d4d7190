// Faults of GPUs that show in metrics alone, with or without a job: uncorrected memory errors, NVLinks that went down,
// heat and the power brake. Straight from what agents send, so that an alert does not wait for a look at the fleet.
//
// Limits: kGpusMax GPUs, kGpusOfHostMax of a host; what is beyond is not watched. A host that is not heard of for kForgetNs
//   is forgotten.
// Clocks: shares of time are of the node's own clock, whichever time that shows; when something was seen is by ours.
// Cost:   a point of another metric is one comparison of lengths and a few bytes.
// Thread rule: Thread-safe (one lock, taken once per group of points that has one of ours).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alert/alert_registry.h"
#include "base/mutex.h"
#include "model/telemetry.h"

namespace lockstep {

class GpuWatch {
 public:
  static constexpr size_t kGpusMax = 200'000, kGpusOfHostMax = 64;
  static constexpr double kThrottledShare = 0.5, kFreeShare = 0.1;
  static constexpr int64_t kErrorsLastNs = 3'600'000'000'000;
  static constexpr int64_t kForgetNs = AlertRegistry::kMetricNs;

  explicit GpuWatch(AlertRegistry& alerts) : alerts_(alerts) {}

  static bool hears_metric(std::string_view name);
  // from_log: read back after a start.
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns,
                  bool from_log);
  // Every few seconds.
  void forget(int64_t monotonic_ns);

 private:
  struct Counter {
    double value = 0;
    int64_t time_unix_ns = 0;  // by the node's clock
    int streak = 0;
    bool is_free = false;  // and the registry knows
  };
  struct Gpu {
    std::map<std::string, Counter, std::less<>> throttle;  // by reason
    Counter uncorrected;
    double links = -1, links_up = -1, links_best = -1;  // that it has, that are up, that were up at a time
  };
  // One point as it is taken.
  struct Taken {
    std::string_view host, uuid;
    const MetricPoint& point;
    double value = 0;
    int64_t received_unix_ns = 0;
    bool from_log = false;
  };
  void take_throttle(Gpu& gpu, const Taken& taken) LOCKSTEP_REQUIRES(mutex_);
  void take_errors(Gpu& gpu, const Taken& taken) LOCKSTEP_REQUIRES(mutex_);
  void take_links(Gpu& gpu, const Taken& taken) LOCKSTEP_REQUIRES(mutex_);

  struct Host {
    std::vector<std::pair<std::string, Gpu>> gpus;  // few: looked through
    bool heard = true;                              // since forget() looked
    int64_t heard_ns = 0;                           // by forget(); monotonic, 0: not yet
  };
  Gpu* find(Host*& host, std::string_view name, std::string_view uuid) LOCKSTEP_REQUIRES(mutex_);

  AlertRegistry& alerts_;
  Mutex mutex_;
  std::map<std::string, Host, std::less<>> hosts_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t gpus_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
