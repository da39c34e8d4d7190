// Where every metrics receiver hands its series to the store: one push of a stream at a time, every sample counted by
// receiver, refusals said in a line.
//
// Counts: received = passed + refused[reason], per receiver, signal "samples" (an OTLP point, counted at its receiver
// as one of
//         "metrics", may be several); a native histogram is one sample. What a
//         receiver leaves out itself it tells by refuse(). A push that the store cannot take is refused as unavailable.
// Thread rule: Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "ingest/alias_feed.h"
#include "store/metric_writer.h"

namespace lockstep {

class MetricIntake {
 public:
  // feed: told of what is new and of what was taken; nullptr: nobody is.
  MetricIntake(MetricWriter& writer, const Clock& clock, Counters& counters, AliasFeed* feed = nullptr)
      : writer_(writer), clock_(clock), counters_(counters), feed_(feed), log_(clock, "ingest") {}

  // As MetricWriter::push(), which an error is from.
  Result<PushOutcome> push(std::string_view receiver, std::string_view stream, std::span<const PushedSeries> series,
                           const std::function<Result<Labels>(size_t k)>& canonical);
  // Samples that never became part of a push. reason: of a closed list.
  void refuse(std::string_view receiver, const char* reason, uint64_t samples, const std::string& line);
  // Tells the store what is new; peers say it again and again.
  void metadata(std::string_view name, std::string_view type, std::string_view help, std::string_view unit);

 private:
  static constexpr size_t kMetadataSeenBytesMax = 8u << 20;

  MetricWriter& writer_;
  const Clock& clock_;
  Counters& counters_;
  AliasFeed* const feed_;
  RateLimitedLog log_;
  std::array<Mutex, 256> streams_;  // a stream's pushes one after the other; streams may share a mutex
  Mutex metadata_mutex_;
  std::unordered_set<std::string> metadata_seen_ LOCKSTEP_GUARDED_BY(metadata_mutex_);
  size_t metadata_seen_bytes_ LOCKSTEP_GUARDED_BY(metadata_mutex_) = 0;
};

// What a refusal is to its sender: "refused 3 of 40 samples: series_limit (2): ...; too_old (1): ...". Empty: none.
std::string refusals_line(const PushOutcome& outcome, uint64_t samples);

}  // namespace lockstep
