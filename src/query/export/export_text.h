// Answers of Prometheus' query_range as files that other programs read: CSV (pandas, DuckDB), OpenMetrics text with
// times (promtool tsdb create-blocks-from openmetrics).
//
// CSV has a line per sample: time (UTC, ISO 8601), a column per label, value. OpenMetrics has the series of one name
// together; a series without a name is called "query". Native histograms have no place in either: they are counted.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep {

class ExportedSeries {
 public:
  // The body of one answer; further ones add later samples to the same series.
  Result<void> add(std::string_view query_range_json);
  std::string csv() const;
  std::string openmetrics() const;
  uint64_t samples() const { return samples_; }
  uint64_t histograms_left_out() const { return histograms_; }

 private:
  using Labels = std::vector<std::pair<std::string, std::string>>;  // sorted
  struct Sample {
    double time_s;
    std::string value;  // as it came
  };
  std::map<Labels, std::vector<Sample>> series_;
  uint64_t samples_ = 0;
  uint64_t histograms_ = 0;
};

// "now", "-90m" (before now), unix seconds, or 2026-11-15T22:00:00Z; in unix seconds.
Result<double> parse_moment(std::string_view text, double now_s);
// "15s", "1m30s", or seconds.
Result<double> parse_step(std::string_view text);

}  // namespace lockstep
