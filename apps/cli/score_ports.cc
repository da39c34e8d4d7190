#include "apps/cli/score_ports.h"

#include <algorithm>

#include "base/text.h"
#include "store/metrics/matching.h"

namespace lockstep::cli {

class PortSeries::Selection final : public MetricSelection {
 public:
  explicit Selection(const PortSeries& of) : of_(of) {}
  void add(const Series& series) { series_.push_back(&series); }

  size_t size() const override { return series_.size(); }
  std::span<const LabelSymbols> labels(size_t series) const override { return series_[series]->labels; }
  std::string_view text(uint32_t symbol) const override { return of_.texts_[symbol]; }
  Result<void> samples(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const override {
    out.clear();
    const SampleColumns& all = series_[series]->samples;
    for (size_t i = 0; i < all.times_ms.size(); ++i) {
      if (all.times_ms[i] < from_ms || all.times_ms[i] > to_ms) continue;
      out.times_ms.push_back(all.times_ms[i]);
      out.values.push_back(all.values[i]);
    }
    return {};
  }

 private:
  const PortSeries& of_;
  std::vector<const Series*> series_;
};

uint32_t PortSeries::symbol(std::string_view text) {
  if (const auto found = symbols_.find(text); found != symbols_.end()) return found->second;
  texts_.emplace_back(text);
  const auto id = static_cast<uint32_t>(texts_.size() - 1);
  symbols_.emplace(texts_.back(), id);
  return id;
}

void PortSeries::on_metrics(const Attributes&, std::span<const MetricPoint> points, int64_t) {
  for (const MetricPoint& point : points) {
    if (!hears_metric(point.name)) continue;
    const std::string_view of = find_string(point.attributes, "switch"), port = find_string(point.attributes, "port"),
                           direction = find_string(point.attributes, "direction");
    if (of.empty() || port.empty()) continue;
    const auto [known, is_new] = ports_.try_emplace({std::string(of), std::string(port)});
    if (is_new) asked_.clear();
    Series& series = known->second[point.name + " " + std::string(direction)];
    if (series.labels.empty()) {
      series.labels = {
          {symbol("__name__"), symbol(point.name)}, {symbol("port"), symbol(port)}, {symbol("switch"), symbol(of)}};
      if (!direction.empty()) series.labels.insert(series.labels.begin() + 1, {symbol("direction"), symbol(direction)});
    }
    SampleColumns& samples = series.samples;
    const int64_t time_ms = point.time_unix_ns / 1'000'000;
    if (!samples.times_ms.empty() && time_ms <= samples.times_ms.back()) continue;
    if (samples.times_ms.size() == kSamplesMax) {
      samples.times_ms.erase(samples.times_ms.begin());
      samples.values.erase(samples.values.begin());
    }
    samples.times_ms.push_back(time_ms);
    samples.values.push_back(point.is_int ? static_cast<double>(point.int_value) : point.value);
  }
}

Result<std::unique_ptr<MetricSelection>> PortSeries::select(std::span<const LabelMatcher> matchers,
                                                            const SelectOptions&) const {
  std::string question;
  for (const LabelMatcher& matcher : matchers)
    question += format("%s\n%d\n%s\n", matcher.name.c_str(), static_cast<int>(matcher.op), matcher.value.c_str());
  auto asked = asked_.find(question);
  if (asked == asked_.end()) {
    const metrics::CompiledMatchers compiled = LOCKSTEP_TRY(metrics::compile_matchers(matchers));
    asked = asked_.try_emplace(std::move(question)).first;
    for (const auto& [port, series] : ports_) {
      const bool fits =
          std::all_of(compiled.begin(), compiled.end(), [port = &port](const metrics::CompiledMatcher& one) {
            return one.matches(one.name() == "switch" ? port->first : one.name() == "port" ? port->second : "");
          });
      if (fits) asked->second.push_back(&series);
    }
  }
  auto selection = std::make_unique<Selection>(*this);
  for (const OfPort* port : asked->second)
    for (const auto& [name, series] : *port) selection->add(series);
  return std::unique_ptr<MetricSelection>(std::move(selection));
}

}  // namespace lockstep::cli
