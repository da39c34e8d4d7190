// What tests of the metrics engine need: pushes and answers as text.
//
// Thread rule: Confined. For tests.
#pragma once

#include <bit>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/counters.h"
#include "store/metrics/metric_engine.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::metrics {

inline constexpr int64_t kStartNs = 1'800'000'000'000'000'000;  // when tests of the engine begin

// "power{host=a,gpu=1}" as sorted labels.
inline Labels labels_of(std::string_view text) {
  std::map<std::string, std::string> sorted;
  const size_t brace = text.find('{');
  sorted["__name__"] = text.substr(0, brace);
  if (brace != std::string_view::npos) {
    std::string_view rest = text.substr(brace + 1, text.size() - brace - 2);
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view pair = rest.substr(0, comma);
      const size_t equals = pair.find('=');
      sorted[std::string(pair.substr(0, equals))] = pair.substr(equals + 1);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return {sorted.begin(), sorted.end()};
}

// One push, put together series by series.
class TestPush {
 public:
  TestPush& add(std::string text, std::vector<int64_t> times_ms, std::vector<double> values) {
    texts_.push_back(std::move(text));
    times_.push_back(std::move(times_ms));
    values_.push_back(std::move(values));
    histograms_.emplace_back();
    exemplars_.emplace_back();
    return *this;
  }
  TestPush& add(std::string text, int64_t time_ms, double value) {
    return add(std::move(text), std::vector<int64_t>{time_ms}, std::vector<double>{value});
  }
  TestPush& histogram(std::string text, int64_t time_ms, NativeHistogram histogram) {
    add(std::move(text), std::vector<int64_t>{time_ms}, {});
    histograms_.back().push_back(std::move(histogram));
    return *this;
  }
  TestPush& exemplar(PushedExemplar exemplar) {
    exemplars_.back().push_back(std::move(exemplar));
    return *this;
  }
  Result<PushOutcome> to(MetricWriter& writer, std::string_view stream = "stream") const {
    std::vector<PushedSeries> series;
    for (size_t i = 0; i < texts_.size(); ++i)
      series.push_back({texts_[i], times_[i], values_[i], histograms_[i], exemplars_[i]});
    return writer.push(stream, series, [&](size_t k) {
      ++asked;
      return Result<Labels>(labels_of(texts_[k]));
    });
  }
  mutable size_t asked = 0;  // how often labels were asked for

 private:
  std::vector<std::string> texts_;
  std::vector<std::vector<int64_t>> times_;
  std::vector<std::vector<double>> values_;
  std::vector<std::vector<NativeHistogram>> histograms_;
  std::vector<std::vector<PushedExemplar>> exemplars_;
};

// Series as text, with their samples.
using Found = std::map<std::string, SampleColumns>;
inline Found found(const MetricReader& reader, const std::vector<LabelMatcher>& matchers, SelectOptions options) {
  Found list;
  Result<std::unique_ptr<MetricSelection>> selection = reader.select(matchers, options);
  if (!selection.ok()) {
    list["error: " + selection.error()];
    return list;
  }
  for (size_t i = 0; i < (*selection)->size(); ++i) {
    std::string name, rest;
    for (const LabelSymbols& label : (*selection)->labels(i)) {
      const std::string key((*selection)->text(label.name)), value((*selection)->text(label.value));
      if (key == "__name__") {
        name = value;
      } else {
        rest += (rest.empty() ? "" : ",") + key + "=" + value;
      }
    }
    SampleColumns columns;
    if (!(*selection)->samples(i, options.from_ms, options.to_ms, columns).ok()) list["error"];
    // The newest alone is the last of them, up to each of their times.
    for (size_t k = columns.times_ms.size(); k > 0; k -= (k + 7) / 8) {
      SampleColumns newest;
      if (!(*selection)->newest(i, options.from_ms, columns.times_ms[k - 1], newest).ok() ||
          newest.times_ms != std::vector{columns.times_ms[k - 1]} || newest.values.size() != 1 ||
          std::bit_cast<uint64_t>(newest.values[0]) != std::bit_cast<uint64_t>(columns.values[k - 1]))
        list["error: the newest of " + name + " is another than the last"];
    }
    list[rest.empty() ? name : name + "{" + rest + "}"] = std::move(columns);
  }
  return list;
}
inline Found found(const MetricReader& reader, const std::string& metric, int64_t from_ms = INT64_MIN / 2,
                   int64_t to_ms = INT64_MAX / 2) {
  return found(reader, {label_is("__name__", metric)}, {.from_ms = from_ms, .to_ms = to_ms});
}

}  // namespace lockstep::metrics
