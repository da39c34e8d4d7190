// What evaluation costs on one core, without a store: the two questions that the budgets name, over columns in memory.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <unordered_map>

#include "base/text.h"
#include "query/promql/query.h"

namespace {

using namespace lockstep;

// Series of one metric that share their times; labels as a store would have them: symbols, made once.
class Columns : public MetricReader, public MetricSelection {
 public:
  Columns(size_t series, size_t samples) : samples_(samples) {
    for (size_t i = 0; i < series; ++i) {
      add("__name__", "x_total");
      add("gpu", std::to_string(i % 8));
      add("gpu_uuid", format("GPU-%zu", i % 8192));
      add("host", format("node-%zu", i % 1024));
      add("job_id", format("job-%zu", i % 12));
      add("rank", std::to_string(i % 8192));
      add("unit", std::to_string(i / 8192));
      sizes_.push_back(labels_.size());
    }
    for (size_t k = 0; k < samples; ++k) times_.push_back(1'000'000 + static_cast<int64_t>(k) * 5'000);
    values_.resize(series * samples);
    for (size_t i = 0; i < series; ++i) {
      for (size_t k = 0; k < samples; ++k)
        values_[i * samples + k] = static_cast<double>(i % 97) + 3.5 * static_cast<double>(k);
    }
  }
  int64_t last_ms() const { return times_.back(); }

  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher>, const SelectOptions&) const override {
    return std::unique_ptr<MetricSelection>(std::make_unique<View>(*this));
  }
  size_t size() const override { return sizes_.size(); }
  std::span<const LabelSymbols> labels(size_t i) const override {
    const size_t begin = i == 0 ? 0 : sizes_[i - 1];
    return {labels_.data() + begin, sizes_[i] - begin};
  }
  std::string_view text(uint32_t symbol) const override { return texts_[symbol]; }
  Result<void> samples(size_t i, int64_t from_ms, int64_t to_ms, SampleColumns& out) const override {
    out.clear();
    size_t begin = 0, end = times_.size();
    while (begin < end && times_[begin] < from_ms) ++begin;
    while (end > begin && times_[end - 1] > to_ms) --end;
    out.times_ms.assign(times_.begin() + static_cast<ptrdiff_t>(begin), times_.begin() + static_cast<ptrdiff_t>(end));
    const double* row = values_.data() + i * samples_;
    out.values.assign(row + begin, row + end);
    return {};
  }
  Result<std::vector<std::string>> label_names(std::span<const std::vector<LabelMatcher>>, int64_t,
                                               int64_t) const override {
    return std::vector<std::string>{};
  }
  Result<std::vector<std::string>> label_values(std::string_view, std::span<const std::vector<LabelMatcher>>, int64_t,
                                                int64_t) const override {
    return std::vector<std::string>{};
  }
  std::vector<MetricMetadata> metadata() const override { return {}; }
  Result<std::vector<Exemplar>> exemplars(std::span<const LabelMatcher>, int64_t, int64_t) const override {
    return std::vector<Exemplar>{};
  }

 private:
  struct View : MetricSelection {
    explicit View(const Columns& all) : all_(all) {}
    size_t size() const override { return all_.size(); }
    std::span<const LabelSymbols> labels(size_t i) const override { return all_.labels(i); }
    std::string_view text(uint32_t symbol) const override { return all_.text(symbol); }
    Result<void> samples(size_t i, int64_t from, int64_t to, SampleColumns& out) const override {
      return all_.samples(i, from, to, out);
    }
    const Columns& all_;
  };
  void add(std::string_view name, std::string_view value) { labels_.push_back({symbol(name), symbol(value)}); }
  uint32_t symbol(std::string_view given) {
    if (const auto found = ids_.find(given); found != ids_.end()) return found->second;
    texts_.emplace_back(given);
    ids_.emplace(texts_.back(), static_cast<uint32_t>(texts_.size() - 1));
    return static_cast<uint32_t>(texts_.size() - 1);
  }
  size_t samples_;
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, uint32_t> ids_;
  std::vector<LabelSymbols> labels_;
  std::vector<size_t> sizes_;
  std::vector<int64_t> times_;
  std::vector<double> values_;
};

void run(benchmark::State& state, size_t series, const char* query, size_t expected, bool range) {
  const Columns columns(series, 24);
  promql::QueryTimes times{columns.last_ms(), columns.last_ms(), 0};
  if (range) times = {columns.last_ms() - 60'000, columns.last_ms(), 5'000};
  for (auto _ : state) {
    const promql::QueryResult result = promql::run_query(query, columns, times, {});
    if (!result.ok() || result.series.size() != expected) std::abort();
    benchmark::DoNotOptimize(result.series.data());
  }
  state.counters["series"] = static_cast<double>(series);
}

void BM_SlowestOf8192(benchmark::State& state) {
  run(state, 8192, "topk(5, avg by (rank) (avg_over_time(x_total{job=\"a\"}[2m])))", 5, false);
}
void BM_RateOver184k(benchmark::State& state) {
  run(state, 184'320, "sum by (job_id) (rate(x_total[1m]))", 12, false);
}
void BM_RateOver8192At13Steps(benchmark::State& state) {
  run(state, 8192, "sum by (job_id) (rate(x_total[1m]))", 12, true);
}
BENCHMARK(BM_SlowestOf8192)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RateOver184k)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RateOver8192At13Steps)->Unit(benchmark::kMillisecond);

}  // namespace
