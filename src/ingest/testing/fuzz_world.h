// What fuzzers of the metrics receivers share: a writer that takes everything and stops at a series that breaks a
// promise to the store.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "model/series_labels.h"
#include "store/metric_writer.h"

namespace lockstep::testing {

struct CheckingWriter final : MetricWriter {
  Result<PushOutcome> push(std::string_view, std::span<const PushedSeries> series,
                           const std::function<Result<Labels>(size_t)>& canonical) override {
    PushOutcome outcome;
    for (size_t k = 0; k < series.size(); ++k) {
      if (series[k].values.size() + series[k].histograms.size() != series[k].times_ms.size()) std::abort();
      Result<Labels> labels = canonical(k);
      if (!labels.ok()) {
        outcome.refused.push_back(
            {"labels_invalid", series[k].times_ms.size(), series[k].histograms.size(), labels.error()});
      } else if (!std::is_sorted(labels->begin(), labels->end()) || *canonical_labels(*labels) != *labels) {
        std::abort();
      }
    }
    return outcome;
  }
  void set_metadata(std::string_view, std::string_view, std::string_view, std::string_view) override {}
};

}  // namespace lockstep::testing
