// Writing metrics: one push of one stream at a time. What every metrics receiver and the Kafka consumer write through.
//
// A stream is one sender that repeats the same series in the same order (an agent's resource and scope, a remote
// writer's connection, a scrape target). Whoever writes gives the series' labels as bytes exactly as they came
// ("raw labels"); when the k-th series of a push has the bytes of the k-th series of the push before, the store knows
// the series without looking at a label. Otherwise it looks the bytes up, and only for bytes never seen it asks the
// caller (`canonical`) for sorted labels.
// On success: the samples are durable as the acknowledge mode says, and seen by the next select().
// On error:   kUnavailable (disk full, shutting down): nothing of the push was taken; the sender may try again.
// Refused:    per reason, with the rest of the push taken (limits, too old, too far in the future, forbidden label).
// Thread rule: Thread-safe; pushes of one stream come one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/pushed_series.h"

namespace lockstep {

struct RefusedSamples {
  std::string reason;  // series_limit job_limit metric_limit tenant_limit agent_limit too_old future label_forbidden
                       // labels_invalid ...
  uint64_t samples = 0;
  uint64_t histograms = 0;  // of these: native histograms, which remote write 2.0 answers for apart
  std::string example;      // one line a person can act on
};

struct PushOutcome {
  uint64_t stored = 0;
  uint64_t replaced = 0;  // same series and time, another value: the last wins
  uint64_t repeated = 0;  // same series, time and value
  std::vector<RefusedSamples> refused;
};

class MetricWriter {
 public:
  virtual ~MetricWriter() = default;
  // stream: any text that stays the same for the sender, tenant included. canonical(k): labels of the k-th series,
  // sorted by name, with "__name__"; an error refuses that series as labels_invalid. It is asked under a lock: it may
  // call set_metadata() and nothing else here.
  virtual Result<PushOutcome> push(std::string_view stream, std::span<const PushedSeries> series,
                                   const std::function<Result<Labels>(size_t k)>& canonical) = 0;
  virtual void set_metadata(std::string_view name, std::string_view type, std::string_view help,
                            std::string_view unit) = 0;
};

}  // namespace lockstep
