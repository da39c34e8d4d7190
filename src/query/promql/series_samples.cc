#include "query/promql/evaluator.h"

namespace lockstep::promql {

void split_samples(SampleColumns& columns, SeriesSamples& out) {
  out.histogram_times.clear();
  out.histograms.clear();
  if (columns.histograms.empty()) {
    size_t kept = 0;
    const size_t count = columns.times_ms.size();
    while (kept < count && !is_stale(columns.values[kept])) ++kept;
    for (size_t i = kept; i < count; ++i) {
      if (is_stale(columns.values[i])) continue;
      columns.times_ms[kept] = columns.times_ms[i];
      columns.values[kept++] = columns.values[i];
    }
    columns.times_ms.resize(kept);
    columns.values.resize(kept);
    std::swap(out.times, columns.times_ms);
    std::swap(out.values, columns.values);
    return;
  }
  out.times.clear();
  out.values.clear();
  for (size_t i = 0; i < columns.times_ms.size(); ++i) {
    if (columns.histograms[i]) {
      if (is_stale(columns.histograms[i]->sum)) continue;
      out.histogram_times.push_back(columns.times_ms[i]);
      out.histograms.push_back(columns.histograms[i]);
    } else if (!is_stale(columns.values[i])) {
      out.times.push_back(columns.times_ms[i]);
      out.values.push_back(columns.values[i]);
    }
  }
}

void find_resets(SampleColumns& columns) {
  const NativeHistogram* before = nullptr;
  HistogramPtr kept;
  for (HistogramPtr& histogram : columns.histograms) {
    if (!histogram || is_stale(histogram->sum)) continue;
    const HistogramPtr original = histogram;
    if (before != nullptr && histogram->reset == CounterReset::kUnknown) {
      auto reported = std::make_shared<NativeHistogram>(*histogram);
      reported->reset = was_reset(*histogram, *before) ? CounterReset::kYes : CounterReset::kNo;
      histogram = std::move(reported);
    }
    kept = original;
    before = kept.get();
  }
}

}  // namespace lockstep::promql
