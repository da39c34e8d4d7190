// What arrives under dcgm-exporter's names (model/metric_aliases.h), told to diagnosis under ours: a scraped
// DCGM_FI_DEV_SM_CLOCK is a GPU's clock as an agent's lockstep_gpu_clock_hertz is.
//
// Which series these are is learned when the store asks for the labels of a new one, so nothing is looked up for
// streams that have none. The host is the label Hostname, hostname, node or host, else `instance` without its port; a
// series without a GPU or a host is stored and not told. DCGM's marks for "no value" are left out. A GPU of which an
// agent sends series of its own is the agent's: it would count twice. What is told is not kept: after a restart
// diagnosis has no past of these GPUs.
// Limits: kSeriesMax series and kGpusMax GPUs; beyond, they are stored and not told, and counted.
// Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/counters.h"
#include "base/mutex.h"
#include "model/metric_aliases.h"
#include "model/pushed_series.h"
#include "model/telemetry.h"

namespace lockstep {

class AliasFeed {
 public:
  static constexpr size_t kSeriesMax = 2'000'000;
  static constexpr size_t kGpusMax = 200'000;

  using Report =
      std::function<void(const Attributes& resource, std::span<const MetricPoint>, int64_t received_unix_ns)>;
  // is_heard: whether anybody listens to it. report: as StoreSubscriber::on_metrics(), from any thread.
  AliasFeed(std::function<bool(const MetricAlias&)> is_heard, Report report, Counters& counters)
      : is_heard_(std::move(is_heard)), report_(std::move(report)), counters_(counters) {}

  // A series that the store did not know, with its labels.
  void note(std::string_view stream, std::string_view raw_labels, const Labels& labels);
  // What the store has taken.
  void taken(std::string_view stream, std::span<const PushedSeries> series, int64_t received_unix_ns);

 private:
  struct Gpu {
    std::string host, uuid;
    bool has_agent = false;
  };
  struct Heard {
    const MetricAlias* alias = nullptr;
    uint32_t gpu = 0;
  };
  uint32_t gpu_of(std::string_view host, std::string_view uuid) LOCKSTEP_REQUIRES(mutex_);

  const std::function<bool(const MetricAlias&)> is_heard_;
  const Report report_;
  Counters& counters_;
  std::atomic<bool> any_{false};  // there are streams that have such series: else no lock is taken for a push
  Mutex mutex_;
  std::unordered_set<std::string> streams_ LOCKSTEP_GUARDED_BY(mutex_);         // that have such series
  std::unordered_map<uint64_t, Heard> series_ LOCKSTEP_GUARDED_BY(mutex_);      // by a hash of the raw labels
  std::unordered_map<std::string, uint32_t> gpus_ LOCKSTEP_GUARDED_BY(mutex_);  // by uuid, into gpu_
  std::vector<Gpu> gpu_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
