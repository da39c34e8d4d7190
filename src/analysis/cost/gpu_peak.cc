#include "analysis/cost/gpu_peak.h"

#include <re2/re2.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "analysis/cost/peak_flops_table.h"
#include "base/text.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr int64_t kEverMs = INT64_MAX / 1'000'000;

struct Row {
  std::unique_ptr<RE2> pattern;
  std::string_view precision;  // "*": any
  double flops;                // 0: not settled
  std::string_view source;
};

// Ours, so a row that does not read is left out and a test says so.
std::vector<Row> rows() {
  std::vector<Row> all;
  RE2::Options options;
  options.set_case_sensitive(false);
  bool head = true;
  for (std::string_view line : split(kPeakFlopsTable, '\n')) {
    if (line.empty() || line.front() == '#' || std::exchange(head, false)) continue;
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() < 4) continue;
    auto pattern = std::make_unique<RE2>(re2::StringPiece(cells[0].data(), cells[0].size()), options);
    if (!pattern->ok()) continue;
    const size_t source_at = static_cast<size_t>(cells[3].data() - line.data());
    all.push_back({std::move(pattern), cells[1], cells[2] == "unknown" ? 0 : std::atof(std::string(cells[2]).c_str()),
                   line.substr(source_at)});
  }
  return all;
}

// When a series of the selection was reported last; 0: that cannot be read.
int64_t newest_ms(const MetricSelection& found, size_t series, int64_t from_ms) {
  SampleColumns samples;
  const bool is_read = found.newest(series, from_ms, kEverMs, samples).ok();
  return is_read && !samples.times_ms.empty() ? samples.times_ms.back() : 0;
}

// By the series of lockstep_gpu_info that say a model. A selection is in no promised order, so where two of a GPU's series
// differ their times decide.
Result<GpuModels> models_of(const MetricReader& metrics, std::vector<LabelMatcher> which, int64_t from_ms) {
  which.push_back(label_is(kMetricNameLabel, "lockstep_gpu_info"));
  const std::unique_ptr<MetricSelection> found =
      LOCKSTEP_TRY(metrics.select(which, {.from_ms = from_ms, .to_ms = kEverMs}));
  GpuModels models;
  std::unordered_map<std::string_view, size_t> series;  // that a model is of
  for (size_t i = 0; i < found->size(); ++i) {
    std::string_view gpu_uuid, model;
    for (const LabelSymbols& label : found->labels(i)) {
      const std::string_view name = found->text(label.name);
      if (name == "gpu_uuid") gpu_uuid = found->text(label.value);
      if (name == "model") model = found->text(label.value);
    }
    if (gpu_uuid.empty() || model.empty()) continue;
    const auto [known, is_new] = models.try_emplace(std::string(gpu_uuid), model);
    if (is_new) {
      series[known->first] = i;
    } else if (known->second != model &&
               newest_ms(*found, i, from_ms) > newest_ms(*found, series[known->first], from_ms)) {
      known->second = model;
      series[known->first] = i;
    }
  }
  return models;
}

}  // namespace

std::optional<GpuPeak> gpu_peak(std::string_view gpu_name, std::string_view precision) {
  static const std::vector<Row> kRows = rows();
  for (const Row& row : kRows) {
    if (row.precision != precision && row.precision != "*") continue;
    if (!RE2::PartialMatch(re2::StringPiece(gpu_name.data(), gpu_name.size()), *row.pattern)) continue;
    if (row.flops <= 0) return std::nullopt;
    return GpuPeak{row.flops, std::string(row.source)};
  }
  return std::nullopt;
}

std::string gpu_model(const MetricReader& metrics, std::string_view gpu_uuid) {
  const Result<GpuModels> models = models_of(metrics, {label_is("gpu_uuid", std::string(gpu_uuid))}, 0);
  return models.ok() && !models->empty() ? models->begin()->second : std::string();
}

Result<GpuModels> gpu_models(const MetricReader& metrics, int64_t from_ms) {
  return models_of(metrics, {}, from_ms);
}

}  // namespace lockstep
