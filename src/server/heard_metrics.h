// What diagnosis, topology, versions and alerts heard of metrics before the start, told to them again: from the metrics
// store, which has every sample of OTLP, so that no second log has to.
//
// They hear points of the time and value that they had, grouped by host and time, under the names by which agents send
// them. A stored name may stand for several of OTLP: that counts which somebody hears. What the store does not keep does
// not come back: nanoseconds, the type of an attribute (all are text), what it had refused as too old or too many, and
// on a power loss what --metric-ack=written leaves for a second. Series without the label `host` are nobody's.
// Limits: about kSamplesMax samples, the newest; kSliceSamples of them in memory at a time, or what one second has.
// On error: what cannot be read of the store is one line and left out.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apply/applier.h"
#include "server/set_aside.h"
#include "store/metric_reader.h"

namespace lockstep {

class HeardMetrics {
 public:
  static constexpr uint64_t kSamplesMax = 50'000'000;  // half a minute of reading
  static constexpr size_t kSliceSamples = 1'000'000;

  // set_aside: which moments are left out, because the server has ended in them again and again.
  HeardMetrics(const MetricReader& store, Applier& applier, SetAside& set_aside, int64_t from_unix_ns,
               int64_t through_unix_ns, uint64_t samples_max = kSamplesMax, size_t slice_samples = kSliceSamples);
  // Tells those up to this time that were not told yet.
  void tell_through(int64_t unix_ns);
  uint64_t points() const { return points_; }

 private:
  struct Sample {
    int64_t time_ms = 0;
    uint32_t source = 0;
    uint32_t order = 0;  // what says which parts there are comes first
    double value = 0;
    static constexpr uint32_t kNoInfo = 1u << 31;
    size_t series() const { return order & ~kNoInfo; }
  };
  void find_names(int64_t from_ms);
  // From when on there are about so many.
  int64_t start_of_newest(uint64_t samples_max, int64_t from_ms) const;
  std::unique_ptr<MetricSelection> select(int64_t from_ms, int64_t to_ms) const;
  // Whose the series is: hosts and jobs of the slice have a number; a series without a host has none.
  uint32_t source_of(size_t series);
  std::string_view name_of(size_t series) const;  // stored
  bool read_slice();                              // false: there is none any more
  MetricPoint point_of(const Sample& sample) const;
  // Samples of one time, from slice_[at_] on.
  void tell_one_time();

  const MetricReader& store_;
  Applier& applier_;
  SetAside& set_aside_;
  const int64_t to_ms_;
  const size_t slice_samples_;
  std::unordered_map<std::string, std::string> sent_name_;   // by the stored name
  std::unordered_map<std::string, std::string> sent_label_;  // of those that are stored under another
  std::string any_name_;                                     // a regular expression

  int64_t next_ms_ = 0;  // what the next slice begins with
  int64_t slice_ms_ = 60'000;
  std::unique_ptr<MetricSelection> selection_;  // of the slice at hand
  std::vector<Sample> slice_;                   // by time and source
  size_t at_ = 0;
  std::vector<Attributes> sources_;
  std::map<std::vector<std::string_view>, uint32_t> source_number_;
  uint64_t points_ = 0;
};

}  // namespace lockstep
