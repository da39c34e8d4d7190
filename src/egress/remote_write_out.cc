#include "egress/remote_write_out.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/contained.h"
#include "base/log.h"
#include "base/text.h"
#include "model/metric_stream.h"
#include "wire/compression.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

constexpr int64_t kWaitMinMs = 30;
constexpr int64_t kWaitMaxMs = 5'000;
constexpr uint64_t kSentLabelsBytesMax = 256ull << 20;

bool is_remote_write_form(std::string_view raw) {
  return !raw.empty() && (raw[0] == '\x0A' || raw[0] == '\x8A');
}

}  // namespace

RemoteWriteOut::RemoteWriteOut(MetricWriter& store, RemoteWriteOutOptions options, const Clock& clock,
                               Counters& counters)
    : store_(store),
      options_(std::move(options)),
      clock_(clock),
      counters_(counters),
      log_(clock, "remote-write-out"),
      stop_event_(::eventfd(0, EFD_CLOEXEC)),
      sender_([this] { send_all(); }) {}

void RemoteWriteOut::count(const char* result, int64_t samples) {
  counters_.add("lockstep_remote_write_out_samples_total", format("result=\"%s\"", result), samples);
}

Result<PushOutcome> RemoteWriteOut::push(std::string_view stream, std::span<const PushedSeries> series,
                                         const std::function<Result<Labels>(size_t k)>& canonical) {
  PushOutcome outcome = LOCKSTEP_TRY(store_.push(stream, series, canonical));
  const std::string_view tenant = tenant_of_stream(stream);
  int64_t queued = 0, dropped = 0;
  MutexLock lock(mutex_);
  for (size_t k = 0; k < series.size(); ++k) {
    PushedSeries one = series[k];
    const int64_t samples = static_cast<int64_t>(one.times_ms.size());
    if (one.raw_labels.starts_with(kUnreadableLabels)) continue;
    // As they came, but for what others do not understand and for a tenant's, who is a label since.
    if (!tenant.empty() || !is_remote_write_form(one.raw_labels)) {
      const std::string key = std::string(tenant) + '\0' + std::string(one.raw_labels);
      auto known = labels_.find(key);
      if (known == labels_.end()) {
        Result<Labels> labels = canonical(k);
        if (!labels.ok()) continue;
        if (labels_bytes_ > kSentLabelsBytesMax) {
          labels_.clear();
          labels_bytes_ = 0;
        }
        known = labels_.emplace(key, remote_write::raw_labels_of(*labels)).first;
        labels_bytes_ += 200 + known->first.size() + known->second.size();
      }
      one.raw_labels = known->second;
    }
    if (queue_.empty() || queue_.back().bytes.size() >= options_.request_bytes_max) {
      if (queued_bytes_ >= options_.queue_bytes_max || stopping_) {
        dropped += samples;
        continue;
      }
      queue_.emplace_back();
    }
    Request& request = queue_.back();
    const size_t before = request.bytes.size();
    remote_write::append_series(request.bytes, one);
    request.samples += samples;
    queued_bytes_ += request.bytes.size() - before;
    queued += samples;
  }
  count("queued", queued);
  if (dropped > 0) {
    count("dropped", dropped);
    log_.warn("full",
              format("%lld samples dropped: %llu bytes wait for %s:%d (limit %llu)", static_cast<long long>(dropped),
                     static_cast<unsigned long long>(queued_bytes_), options_.url.host.c_str(), options_.url.port,
                     static_cast<unsigned long long>(options_.queue_bytes_max)));
  }
  changed_.notify_one();
  return outcome;
}

void RemoteWriteOut::send_all() {
  Url server = options_.url;
  server.path.clear();
  HttpClient client(server, 30'000, 1 << 20);
  client.interrupt_by(stop_event_.get());
  ReleasableMutexLock lock(mutex_);
  while (true) {
    changed_.wait(mutex_, [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) break;
    Request request = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    bool done = true;
    if (!contained("remote-write-out", "a request", [&] { done = send(client, request); }))
      count("refused", request.samples);
    lock.lock();
    queued_bytes_ -= request.bytes.size();
    if (done) continue;
    // Stopped before it got through: so is what comes after.
    int64_t left = request.samples;
    for (const Request& one : queue_) left += one.samples;
    queue_.clear();
    count("dropped", left);
    count("queued", -left);
    LOCKSTEP_LOG_WARN("remote-write-out", "stopping: %lld samples could not be sent", static_cast<long long>(left));
    break;
  }
  finished_ = true;
  changed_.notify_all();
}

bool RemoteWriteOut::send(HttpClient& client, const Request& request) {
  Result<std::string> frame = snappy_compress(request.bytes);
  if (!frame.ok()) {
    count("refused", request.samples);
    log_.warn("snappy", frame.error());
    return true;
  }
  HttpRequest post{"POST",
                   options_.url.path.empty() ? "/" : options_.url.path,
                   {{"content-type", "application/x-protobuf"},
                    {"content-encoding", "snappy"},
                    {"user-agent", "lockstepd"},
                    {"x-prometheus-remote-write-version", "0.1.0"}},
                   std::move(*frame)};
  if (!options_.tenant.empty()) post.headers.emplace_back("x-scope-orgid", options_.tenant);
  for (int64_t wait_ms = kWaitMinMs;; wait_ms = std::min(2 * wait_ms, kWaitMaxMs)) {
    Result<HttpResponse> answer = client.send(post);
    if (answer.ok() && answer->status / 100 == 2) {
      count("sent", request.samples);
      return true;
    }
    const bool again = !answer.ok() || answer->status == 429 || answer->status / 100 == 5;
    const std::string why =
        answer.ok() ? format("answered %d: %.200s", answer->status, as_one_line(answer->body).c_str()) : answer.error();
    log_.warn(again ? "again" : "refused", format("%lld samples %s: %s", static_cast<long long>(request.samples),
                                                  again ? "wait" : "refused", why.c_str()));
    if (!again) {
      count("refused", request.samples);
      return true;
    }
    int64_t pause_ms = wait_ms;
    if (answer.ok()) {
      const int64_t asked_s = parse_int(answer->header("retry-after")).value_or(0);
      pause_ms = std::max(pause_ms, std::clamp<int64_t>(asked_s, 0, 60) * 1000);
    }
    if (!wait(pause_ms)) return false;
  }
}

bool RemoteWriteOut::wait(int64_t milliseconds) {
  MutexLock lock(mutex_);
  const auto pause = std::chrono::milliseconds(milliseconds);
  if (!stopping_) {
    changed_.wait_for(mutex_, pause, [&]() LOCKSTEP_REQUIRES(mutex_) { return stopping_; });
    return !stopping_ || clock_.monotonic_ns() < stop_by_ns_;
  }
  if (clock_.monotonic_ns() + milliseconds * 1'000'000 >= stop_by_ns_) return false;
  changed_.wait_for(mutex_, pause, [] { return false; });
  return true;
}

void RemoteWriteOut::stop() {
  if (!sender_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    stop_by_ns_ = clock_.monotonic_ns() + options_.drain_ms * 1'000'000;
  }
  changed_.notify_all();
  {
    MutexLock lock(mutex_);
    changed_.wait_for(mutex_, std::chrono::milliseconds(options_.drain_ms),
                      [&]() LOCKSTEP_REQUIRES(mutex_) { return finished_; });
  }
  const uint64_t one = 1;  // whatever it waits for now is waited for no longer
  [[maybe_unused]] const ssize_t reported = ::write(stop_event_.get(), &one, sizeof one);
  sender_.join();
}

}  // namespace lockstep
