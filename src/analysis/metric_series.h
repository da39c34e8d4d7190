// The series of one metric by its exact name: what our own pages need of metrics, where PromQL would be too much.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/metric_descriptor.h"
#include "store/metric_reader.h"

namespace lockstep {

struct NamedSample {
  int64_t time_unix_ns = 0;
  double value = 0;
};

struct NamedSeries {
  std::string name;
  Labels labels;                                          // without the name; sorted
  std::vector<NamedSample> samples;                       // in time order; native histograms are left out
  const std::string* label(std::string_view name) const;  // nullptr: it has none
};

// Names under which a metric is stored: the name itself, and those that an OTLP metric of that name became
// (docs/decisions/0009). known: MetricReader::metadata().
std::vector<std::string> stored_names(const std::vector<MetricMetadata>& known, std::string_view name);

// from <= time <= to, at most series_max series in label order; *total says how many there are. Empty where the store
// cannot read them (it has said so).
std::vector<NamedSeries> series_named(const MetricReader& metrics, std::string_view name, int64_t from_unix_ns,
                                      int64_t to_unix_ns, size_t series_max, size_t* total = nullptr);

}  // namespace lockstep
