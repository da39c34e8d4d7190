// A reader that gives out samples and nothing that a store knows without reading them, so that tests and benchmarks can
// tell what the latter changes: time, never an answer.
//
// Thread rule: as MetricReader's.
#pragma once

#include <memory>
#include <utility>

#include "store/metric_reader.h"

namespace lockstep::promql {

class SamplesOnly final : public MetricReader {
 public:
  explicit SamplesOnly(const MetricReader& store) : store_(store) {}

  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                  const SelectOptions& options) const override {
    std::unique_ptr<MetricSelection> selection = LOCKSTEP_TRY(store_.select(matchers, options));
    return std::unique_ptr<MetricSelection>(std::make_unique<Selection>(std::move(selection)));
  }
  Result<std::vector<std::string>> label_names(std::span<const std::vector<LabelMatcher>> any, int64_t from_ms,
                                               int64_t to_ms) const override {
    return store_.label_names(any, from_ms, to_ms);
  }
  Result<std::vector<std::string>> label_values(std::string_view name, std::span<const std::vector<LabelMatcher>> any,
                                                int64_t from_ms, int64_t to_ms) const override {
    return store_.label_values(name, any, from_ms, to_ms);
  }
  std::vector<MetricMetadata> metadata() const override { return store_.metadata(); }
  Result<std::vector<Exemplar>> exemplars(std::span<const LabelMatcher> matchers, int64_t from_ms,
                                          int64_t to_ms) const override {
    return store_.exemplars(matchers, from_ms, to_ms);
  }

 private:
  class Selection final : public MetricSelection {
   public:
    explicit Selection(std::unique_ptr<MetricSelection> of) : of_(std::move(of)) {}
    size_t size() const override { return of_->size(); }
    std::span<const LabelSymbols> labels(size_t series) const override { return of_->labels(series); }
    std::string_view text(uint32_t symbol) const override { return of_->text(symbol); }
    Result<void> samples(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const override {
      return of_->samples(series, from_ms, to_ms, out);
    }

   private:
    const std::unique_ptr<MetricSelection> of_;
  };
  const MetricReader& store_;
};

}  // namespace lockstep::promql
