// Remote write to another server: what the receivers gave to the store goes there too, as remote write 1.0.
//
// It stands between the receivers and the store: a push that the store took is queued, then sent by a thread of its
// own; the receivers never wait for the other server. Series that this store refuses by a limit of its own are sent all
// the same; those whose labels cannot be read are not. Limits: queue_bytes_max of requests waiting; what does not fit
// is dropped and counted (data loss, there). A request has
//   at most request_bytes_max before compression.
// Retries: while the other server cannot be reached or answers 429 or 5xx, with waits from 30 ms doubled up to 5 s or
// as
//   Retry-After says; any other answer refuses the request for good.
// Counts: lockstep_remote_write_out_samples_total{result}: queued = sent + refused + waiting; dropped besides.
// Shutdown: stop() sends what waits for at most drain_ms, counts the rest as dropped, joins.
// Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/counters.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "net/http_client.h"
#include "store/metric_writer.h"

namespace lockstep {

struct RemoteWriteOutOptions {
  Url url;                  // with its path
  std::string tenant = {};  // sent as X-Scope-OrgID; empty: it is not
  uint64_t queue_bytes_max = 64ull << 20;
  uint64_t request_bytes_max = 1ull << 20;
  int64_t drain_ms = 5'000;
};

class RemoteWriteOut final : public MetricWriter {
 public:
  RemoteWriteOut(MetricWriter& store, RemoteWriteOutOptions options, const Clock& clock, Counters& counters);
  ~RemoteWriteOut() override { stop(); }

  Result<PushOutcome> push(std::string_view stream, std::span<const PushedSeries> series,
                           const std::function<Result<Labels>(size_t k)>& canonical) override;
  void set_metadata(std::string_view name, std::string_view type, std::string_view help,
                    std::string_view unit) override {
    store_.set_metadata(name, type, help, unit);
  }
  void stop();

 private:
  struct Request {
    std::string bytes;
    int64_t samples = 0;
  };
  void send_all();
  // true: done with it, sent or refused. false: stopped before.
  bool send(HttpClient& client, const Request& request);
  bool wait(int64_t milliseconds);  // false: told to stop
  void count(const char* result, int64_t samples);

  MetricWriter& store_;
  const RemoteWriteOutOptions options_;
  const Clock& clock_;
  Counters& counters_;
  RateLimitedLog log_;
  UniqueFd stop_event_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Request> queue_ LOCKSTEP_GUARDED_BY(mutex_);  // the last is still being filled
  uint64_t queued_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool finished_ LOCKSTEP_GUARDED_BY(mutex_) = false;   // the sender has ended
  int64_t stop_by_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // monotonic
  std::unordered_map<std::string, std::string> labels_
      LOCKSTEP_GUARDED_BY(mutex_);  // raw labels that are not remote write's
  uint64_t labels_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::thread sender_;
};

}  // namespace lockstep
