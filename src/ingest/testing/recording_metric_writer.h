// A MetricWriter for tests: knows series by their raw labels as the store does, keeps every sample.
//
// Thread rule: Thread-safe.
#pragma once

#include <map>
#include <set>

#include "base/mutex.h"
#include "store/metric_writer.h"

namespace lockstep::testing {

struct RecordedSample {
  int64_t time_ms = 0;
  double value = 0;
};

class RecordingMetricWriter final : public MetricWriter {
 public:
  Result<PushOutcome> push(std::string_view stream, std::span<const PushedSeries> series,
                           const std::function<Result<Labels>(size_t k)>& canonical) override {
    MutexLock lock(mutex_);
    if (!unavailable_.empty()) return Error{unavailable_};
    streams.emplace(stream);
    PushOutcome outcome;
    for (size_t k = 0; k < series.size(); ++k) {
      const auto raw = std::pair(std::string(stream), std::string(series[k].raw_labels));
      auto known = by_raw_.find(raw);
      if (known == by_raw_.end()) {
        ++asked;
        Result<Labels> labels = canonical(k);
        if (!labels.ok()) {
          outcome.refused.push_back(
              {"labels_invalid", series[k].times_ms.size(), series[k].histograms.size(), labels.error()});
          continue;
        }
        known = by_raw_.emplace(raw, text_of(*labels)).first;
      }
      for (size_t i = 0; i < series[k].times_ms.size(); ++i) {
        if (series[k].histograms.empty()) {
          samples[known->second].push_back({series[k].times_ms[i], series[k].values[i]});
        } else {
          histograms[known->second].emplace_back(series[k].times_ms[i], series[k].histograms[i]);
        }
        ++outcome.stored;
      }
      for (const PushedExemplar& exemplar : series[k].exemplars) exemplars[known->second].push_back(exemplar);
    }
    return outcome;
  }
  void set_metadata(std::string_view name, std::string_view type, std::string_view help,
                    std::string_view unit) override {
    MutexLock lock(mutex_);
    metadata[std::string(name)] = std::string(type) + "|" + std::string(help) + "|" + std::string(unit);
    ++metadata_calls;
  }
  void refuse_all(std::string why) {
    MutexLock lock(mutex_);
    unavailable_ = std::move(why);
  }

  // name{a="1",b="2"}
  static std::string text_of(const Labels& labels) {
    std::string name, rest;
    for (const auto& [key, value] : labels) {
      if (key == "__name__") {
        name = value;
      } else {
        rest += (rest.empty() ? "" : ",") + key + "=\"" + value + "\"";
      }
    }
    return rest.empty() ? name : name + "{" + rest + "}";
  }

  // Read while nobody writes.
  std::set<std::string> streams;
  std::map<std::string, std::vector<RecordedSample>> samples;
  std::map<std::string, std::vector<std::pair<int64_t, NativeHistogram>>> histograms;
  std::map<std::string, std::vector<PushedExemplar>> exemplars;
  std::map<std::string, std::string> metadata;
  size_t metadata_calls = 0;
  size_t asked = 0;  // for canonical labels

 private:
  Mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::string> by_raw_
      LOCKSTEP_GUARDED_BY(mutex_);  // by stream and labels as sent
  std::string unavailable_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::testing
