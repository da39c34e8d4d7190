#include "sim/fleet/otlp_sender.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/text.h"
#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep::sim {

namespace {

constexpr int64_t kBackoffFirstMs = 100;
constexpr int64_t kBackoffMostMs = 2'000;

const char* path_of(Signal signal) {
  switch (signal) {
    case Signal::kMetrics:
      return "/v1/metrics";
    case Signal::kLogs:
      return "/v1/logs";
    case Signal::kSpans:
      return "/v1/traces";
  }
  return "/v1/logs";
}

void sleep_ms(int64_t ms, std::stop_token stop) {
  Mutex mutex;
  StoppableConditionVariable wake;
  MutexLock lock(mutex);
  wake.wait_for(mutex, stop, std::chrono::milliseconds(ms), [] { return false; });
}

}  // namespace

OtlpSender::OtlpSender(Url server, int64_t patience_ms)
    : client_(std::move(server), 10'000), patience_ms_(patience_ms) {}

bool OtlpSender::send(const Batch& batch, std::stop_token stop) {
  HttpRequest request{.method = "POST",
                      .path = path_of(batch.signal),
                      .headers = {{"content-type", "application/x-protobuf"}},
                      .body = otlp::encode(batch)};
  if (available(Encoding::kZstd)) {
    // A whole fleet on one machine: zstd as agents use it was two fifths of a simulation's CPU.
    if (Result<std::string> packed = compress(Encoding::kZstd, request.body, Effort::kFast); packed.ok()) {
      request.body = std::move(*packed);
      request.headers.emplace_back("content-encoding", "zstd");
    }
  }
  const auto records = static_cast<int64_t>(batch.record_count());
  const SystemClock clock;
  const int64_t give_up_ns = clock.monotonic_ns() + (gave_up_ ? 0 : patience_ms_) * 1'000'000;
  std::string why;
  for (int64_t backoff_ms = kBackoffFirstMs;; backoff_ms = std::min(2 * backoff_ms, kBackoffMostMs)) {
    Result<HttpResponse> answer = client_.send(request);
    int64_t wait_ms = backoff_ms;
    if (answer.ok() && answer->status == 200) {
      Result<otlp::PartialSuccess> partial = otlp::decode_response(answer->body);
      MutexLock lock(mutex_);
      int64_t rejected = partial.ok() ? std::clamp<int64_t>(partial->rejected, 0, records) : 0;
      ++totals_.requests_sent;
      totals_.records_accepted += records - rejected;
      totals_.records_rejected += rejected;
      gave_up_ = false;
      totals_.bytes += static_cast<int64_t>(request.body.size());
      if (rejected > 0) totals_.last_error = partial->message;
      return true;
    }
    if (answer.ok()) {
      why = format("%s answered %d: %s", request.path.c_str(), answer->status,
                   std::string(trim(answer->body.substr(0, 200))).c_str());
      if (answer->status != 429 && answer->status != 503 && answer->status != 502 && answer->status != 504) break;
      if (std::optional<int64_t> after_s = parse_int(answer->header("retry-after")))
        wait_ms = std::max(wait_ms, std::clamp<int64_t>(*after_s, 0, 60) * 1000);
    } else {
      why = answer.error();
    }
    if (stop.stop_requested() || clock.monotonic_ns() + wait_ms * 1'000'000 > give_up_ns) break;
    {
      MutexLock lock(mutex_);
      ++totals_.retries;
    }
    sleep_ms(wait_ms, stop);
  }
  MutexLock lock(mutex_);
  gave_up_ = true;
  ++totals_.requests_failed;
  totals_.records_failed += records;
  totals_.last_error = why;
  return false;
}

SendTotals OtlpSender::totals() const {
  MutexLock lock(mutex_);
  return totals_;
}

}  // namespace lockstep::sim
