#include "alert/open_series.h"

#include <bit>
#include <utility>

#include "alert/alert_watch.h"
#include "base/text.h"
#include "model/series_labels.h"
#include "store/metric_reader.h"

namespace lockstep {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

std::string bytes_of(const Labels& labels) {
  std::string bytes = "O";
  for (const auto& [name, value] : labels) bytes.append(name).append(1, '\0').append(value).append(1, '\0');
  return bytes;
}

Labels labels_of(const Verdict& verdict, const std::string& rank) {
  return {{kMetricNameLabel, OpenSeries::kVerdictOpen},
          {"job_id", verdict.job_id},
          {"kind", to_text(verdict.kind)},
          {"layer", to_text(verdict.culprit.layer)},
          {"cause", to_text(verdict.culprit.cause)},
          {"state", to_text(verdict.state)},
          {"host", verdict.culprit.host},
          {"gpu_uuid", verdict.culprit.gpu_uuid},
          {"rank", rank}};
}

// Labels of an alert that would stand in the way of those that ALERTS itself has.
Labels labels_of(const Alert& alert) {
  Labels labels = {{kMetricNameLabel, "ALERTS"}, {"alertstate", "firing"}};
  for (const auto& [name, value] : alert.labels) {
    if (name != kMetricNameLabel && name != "alertstate") labels.emplace_back(name, value);
  }
  return labels;
}

}  // namespace

OpenSeries::OpenSeries(Push push, const VerdictSource& verdicts, const AlertRegistry& alerts, const Clock& clock)
    : push_(std::move(push)), verdicts_(verdicts), alerts_(alerts), clock_(clock) {}

OpenSeries::Named OpenSeries::open_now() const {
  Named open;
  const auto add = [&](Labels labels) {
    if (open.size() < kSeriesMax) open.emplace(bytes_of(labels), std::move(labels));
  };
  for (const Verdict& verdict : verdicts_.verdicts("")) {
    if (verdict.state == VerdictState::kCleared) continue;
    const auto& ranks = verdict.culprit.ranks;
    if (ranks.empty()) add(labels_of(verdict, ""));
    for (size_t i = 0; i < ranks.size() && i < kRanksMax; ++i) add(labels_of(verdict, format("%d", ranks[i].value())));
  }
  for (const Alert& alert : alerts_.alerts()) {
    if (alert.firing && !alert.from_rule) add(labels_of(alert));
  }
  return open;
}

bool OpenSeries::write(const Named& named, double value, int64_t time_ms) {
  if (named.empty()) return true;
  std::vector<PushedSeries> series;
  std::vector<const Labels*> labels;
  for (const auto& [bytes, one] : named) {
    PushedSeries pushed;
    pushed.raw_labels = bytes;
    pushed.times_ms = {&time_ms, 1};
    pushed.values = {&value, 1};
    series.push_back(pushed);
    labels.push_back(&one);
  }
  return push_(series, [&](size_t k) { return canonical_labels(*labels[k]); }).ok();
}

void OpenSeries::tick() {
  const int64_t now = clock_.monotonic_ns(), time_ms = clock_.unix_ns() / kNsPerMs;
  const bool is_due = written_monotonic_ns_ == INT64_MIN || now - written_monotonic_ns_ >= kEveryNs;
  const uint64_t version = alerts_.version();
  const bool alerts_changed = std::exchange(alerts_version_, version) != version;
  if (!changed_.exchange(false) && !alerts_changed && !is_due) return;
  Named open = open_now();
  Named gone;
  bool has_new = false;
  for (const auto& [bytes, labels] : written_) {
    if (!open.contains(bytes)) gone.emplace(bytes, labels);
  }
  for (const auto& [bytes, labels] : open) has_new = has_new || !written_.contains(bytes);
  if (gone.empty() && !has_new && !is_due) return;
  if (!write(gone, std::bit_cast<double>(kStaleBits), time_ms) || !write(open, 1, time_ms)) {
    changed_ = true;  // once more
    return;
  }
  written_ = std::move(open);
  written_monotonic_ns_ = now;
}

}  // namespace lockstep
