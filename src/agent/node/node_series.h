// Every series of this node with its last value: what the metrics page shows, and what is sent.
//
// Read once a second, sent far less: a point costs bytes on every GPU of the fleet. A gauge that is noisy is sent as
// its mean over the window, rounded to its quantum; a sum as its last value; either only when it has changed since it
// was last told, or has not been told for refresh_ns, so that a query over a few minutes finds it. What stays the same
// costs next to nothing. A series that is no longer read is told once as ended (OTLP's "no recorded value"), and goes.
//
// Counts: every reading that comes in is a point sent, or unchanged, or part of a mean: points() tells.
// Limits: series_max series; further ones are refused and counted.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "sources/node_source.h"

namespace lockstep {

struct NodeSeriesOptions {
  std::string host;
  int64_t refresh_ns = 120'000'000'000;
  // Three slow ticks and a little: what was not read for so long has ended.
  int64_t ended_after_ns = 35'000'000'000;
  size_t series_max = 20'000;
};

class NodeSeries {
 public:
  struct Counts {
    uint64_t readings = 0;   // taken in
    uint64_t refused = 0;    // over series_max, or not a number
    uint64_t reported = 0;   // points handed out
    uint64_t unchanged = 0;  // series left out of a report because they had not changed
  };

  explicit NodeSeries(NodeSeriesOptions options) : options_(std::move(options)) {}

  void update(const std::vector<Reading>& readings, const Tick& tick);
  // Rows that say what something is ("..._info") and were not read since then have ended, at once: two of them for one
  // thing would break every join. name: one of them; empty: all.
  void end_info_not_read_since(int64_t monotonic_ns, std::string_view name = {});
  // What has changed since it was last told, one group per GPU and one for the rest. Begins a new window.
  std::vector<ResourceGroup> take(const Tick& tick);

  // In the order of the tables: all series of a metric together. Called under the lock: be quick.
  using Visitor = std::function<void(const MetricDescriptor&, const Labels&, double value)>;
  void visit(const Visitor& visitor) const;
  Counts counts() const;
  size_t size() const;

 private:
  struct Series {
    const MetricDescriptor* metric = nullptr;
    LabelSet labels;
    double last = 0;
    double sum = 0;  // over the window
    int64_t readings = 0;
    int64_t read_ns = 0;
    int64_t since_unix_ns = 0;  // a sum counts from here
    double reported = 0;
    int64_t reported_ns = -1;  // -1: never
    bool ended = false;
  };
  std::vector<const Series*> in_order() const LOCKSTEP_REQUIRES(mutex_);
  MetricPoint point_of(const Series& series, double value, int64_t unix_ns) const;

  const NodeSeriesOptions options_;
  mutable Mutex mutex_;
  std::unordered_map<std::string, Series> series_ LOCKSTEP_GUARDED_BY(mutex_);
  Counts counts_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
