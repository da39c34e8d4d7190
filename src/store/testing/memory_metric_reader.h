// Metrics in memory, read by walking over all of them: what PromQL's tests, benchmarks and script runner load into.
//
// Thread rule: Confined while it is filled; then Thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/metric_reader.h"

namespace lockstep {

class MemoryMetricReader : public MetricReader {
 public:
  using LabelList = std::vector<std::pair<std::string, std::string>>;

  // Labels in any order, with "__name__". Returns the series' columns to append to, in time order.
  SampleColumns& series(LabelList labels);
  void add(const LabelList& labels, int64_t time_ms, double value);
  // Replaces what stands at that time.
  void add(const LabelList& labels, int64_t time_ms, std::shared_ptr<const NativeHistogram> histogram);
  void add_metadata(MetricMetadata metadata) { metadata_.push_back(std::move(metadata)); }
  void add_exemplar(Exemplar exemplar) { exemplars_.push_back(std::move(exemplar)); }
  void clear();

  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                  const SelectOptions& options) const override;
  Result<std::vector<std::string>> label_names(std::span<const std::vector<LabelMatcher>> any, int64_t from_ms,
                                               int64_t to_ms) const override;
  Result<std::vector<std::string>> label_values(std::string_view name, std::span<const std::vector<LabelMatcher>> any,
                                                int64_t from_ms, int64_t to_ms) const override;
  std::vector<MetricMetadata> metadata() const override { return metadata_; }
  Result<std::vector<Exemplar>> exemplars(std::span<const LabelMatcher> matchers, int64_t from_ms,
                                          int64_t to_ms) const override;

 private:
  friend class MemorySelection;
  struct Series {
    LabelList labels;  // sorted by name
    std::vector<LabelSymbols> symbols;
    SampleColumns samples;
  };
  uint32_t symbol(std::string_view text);
  Result<std::vector<const Series*>> matching(std::span<const LabelMatcher> matchers, int64_t from_ms,
                                              int64_t to_ms) const;
  Result<std::vector<const Series*>> matching_any(std::span<const std::vector<LabelMatcher>> any, int64_t from_ms,
                                                  int64_t to_ms) const;

  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, uint32_t> symbols_;
  std::map<LabelList, std::unique_ptr<Series>> series_;
  std::vector<MetricMetadata> metadata_;
  std::vector<Exemplar> exemplars_;
};

}  // namespace lockstep
