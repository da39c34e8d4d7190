#include "ingest/metric_intake.h"

#include "base/text.h"

namespace lockstep {
namespace {

std::string labels_of(std::string_view receiver, const char* reason = nullptr) {
  std::string labels = "receiver=\"" + std::string(receiver) + "\",signal=\"samples\"";
  if (reason != nullptr) labels += ",reason=\"" + std::string(reason) + "\"";
  return labels;
}

}  // namespace

Result<PushOutcome> MetricIntake::push(std::string_view receiver, std::string_view stream,
                                       std::span<const PushedSeries> series,
                                       const std::function<Result<Labels>(size_t k)>& canonical) {
  int64_t samples = 0;
  for (const PushedSeries& one : series) samples += static_cast<int64_t>(one.times_ms.size());
  counters_.add("lockstep_ingest_received_records_total", labels_of(receiver), samples);
  Result<PushOutcome> outcome = [&] {
    MutexLock lock(streams_[std::hash<std::string_view>()(stream) % streams_.size()]);
    if (feed_ == nullptr) return writer_.push(stream, series, canonical);
    Result<PushOutcome> pushed = writer_.push(stream, series, [&](size_t k) {
      Result<Labels> labels = canonical(k);
      if (labels.ok()) feed_->note(stream, series[k].raw_labels, *labels);
      return labels;
    });
    if (pushed.ok()) feed_->taken(stream, series, clock_.unix_ns());
    return pushed;
  }();
  if (!outcome.ok()) {
    counters_.add("lockstep_ingest_refused_records_total", labels_of(receiver, "unavailable"), samples);
    log_.warn("unavailable", format("%s: %lld samples refused: %s", std::string(receiver).c_str(),
                                    static_cast<long long>(samples), outcome.error().c_str()));
    return outcome;
  }
  int64_t passed = samples;
  for (const RefusedSamples& refused : outcome->refused) {
    passed -= static_cast<int64_t>(refused.samples);
    counters_.add("lockstep_ingest_refused_records_total", labels_of(receiver, refused.reason.c_str()),
                  static_cast<int64_t>(refused.samples));
    log_.warn(refused.reason, format("%s: %llu of %lld samples refused as %s: %s", std::string(receiver).c_str(),
                                     static_cast<unsigned long long>(refused.samples), static_cast<long long>(samples),
                                     refused.reason.c_str(), as_one_line(refused.example).c_str()));
  }
  counters_.add("lockstep_ingest_passed_records_total", labels_of(receiver), passed);
  return outcome;
}

void MetricIntake::refuse(std::string_view receiver, const char* reason, uint64_t samples, const std::string& line) {
  if (samples == 0) return;
  counters_.add("lockstep_ingest_received_records_total", labels_of(receiver), static_cast<int64_t>(samples));
  counters_.add("lockstep_ingest_refused_records_total", labels_of(receiver, reason), static_cast<int64_t>(samples));
  log_.warn(reason, format("%s: %llu samples refused as %s: %s", std::string(receiver).c_str(),
                           static_cast<unsigned long long>(samples), reason, as_one_line(line).c_str()));
}

void MetricIntake::metadata(std::string_view name, std::string_view type, std::string_view help,
                            std::string_view unit) {
  std::string key;
  for (std::string_view part : {name, type, help, unit}) key.append(part).push_back('\0');
  {
    MutexLock lock(metadata_mutex_);
    if (metadata_seen_bytes_ >= kMetadataSeenBytesMax) {
      metadata_seen_.clear();
      metadata_seen_bytes_ = 0;
    }
    const size_t bytes = key.size() + sizeof(std::string);
    if (!metadata_seen_.insert(std::move(key)).second) return;
    metadata_seen_bytes_ += bytes;
  }
  writer_.set_metadata(name, type, help, unit);
}

std::string refusals_line(const PushOutcome& outcome, uint64_t samples) {
  std::string reasons;
  uint64_t refused = 0;
  for (const RefusedSamples& one : outcome.refused) {
    refused += one.samples;
    reasons += format("%s%s (%llu): %.300s", reasons.empty() ? "" : "; ", one.reason.c_str(),
                      static_cast<unsigned long long>(one.samples), as_one_line(one.example).c_str());
  }
  if (refused == 0) return {};
  return format("refused %llu of %llu samples: ", static_cast<unsigned long long>(refused),
                static_cast<unsigned long long>(samples)) +
         reasons;
}

}  // namespace lockstep
