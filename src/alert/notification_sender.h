// Delivers what the registry has queued for one receiver, by a thread of its own: a receiver that is slow or down holds up
// no other. And the one for a real Alertmanager, which holds the state by itself: it is told everything that fires, again
// and again, and of what is over for a while.
//
// Delivery: at least once. Tried again with growing waits while the receiver cannot be reached, answers 5xx, 429, 408, or
//   with something that a person can mend (401, 403, 404, a redirect, a mail's sender or all of its addresses refused);
//   given up only where it refuses this very message (400, 413, 422, SMTP 5xx to the mail). A receiver that failed is left
//   alone for a while that grows with each failure in a row, or as long as its Retry-After says, whatever waits for it.
//   Redirects are not followed: they would take a secret elsewhere. Of an answer kNotifyAnswerBytesMax are read; its
//   status decides.
// Mail: addresses that are refused for good are counted and shown, those that are put off (4xx) are tried again alone.
// Alerts of one name that come within kGroupNs go in one message.
// Thread rule: Thread-safe; stop() before what it uses goes.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "alert/alert_registry.h"
#include "alert/notify_config.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "net/http_client.h"

namespace lockstep {

inline constexpr int64_t kNotifyTimeoutMs = 10'000;
inline constexpr uint64_t kNotifyAnswerBytesMax = 64u << 10;

// A thread that does its work every while and can be told to stop, also in the middle of a call.
class SenderThread {
 public:
  SenderThread();
  virtual ~SenderThread() = default;
  void start();
  void stop();               // of whoever derives, in its destructor too
  virtual void round() = 0;  // what the thread does, every kEveryMs

 protected:
  int stop_fd() const { return stop_event_.get(); }
  bool stopping() const { return stopping_; }

 private:
  static constexpr int64_t kEveryMs = 200;
  UniqueFd stop_event_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class NotificationSender final : public SenderThread {
 public:
  static constexpr int64_t kGroupNs = 2'000'000'000;
  static constexpr size_t kAlertsPerMessage = 50;

  static constexpr int64_t kRetryAfterMaxS = 3'600;

  NotificationSender(ReceiverConfig config, std::string external_url, AlertRegistry& alerts, const Clock& clock,
                     Counters& counters);
  ~NotificationSender() override { stop(); }
  void round() override;

 private:
  struct Outcome {
    bool delivered = false;
    bool again = true;
    int64_t retry_ns = 0;
    std::string line;
  };
  static constexpr size_t kMailedMax = 1'000;

  Outcome send(const std::vector<Delivery>& deliveries);
  Outcome post(const std::string& url, const std::string& body, const std::string& secret, const std::string& id);
  Outcome mail(const std::vector<Delivery>& deliveries);

  const ReceiverConfig config_;
  const std::string external_url_;
  AlertRegistry& alerts_;
  const Clock& clock_;
  Counters& counters_;
  RateLimitedLog log_;
  int64_t failures_ = 0;        // in a row
  int64_t quiet_until_ns_ = 0;  // monotonic
  // Who has got what of mails that were put off for others, by the notification's id.
  std::map<std::string, std::set<std::string>> mailed_;
};

// Where an Alertmanager stands, for the API.
struct AlertmanagerState {
  std::string url;           // without what is secret in it: scheme, host and port
  int64_t sent_unix_ns = 0;  // last time that it took the list; 0: never
  std::string error;         // of the newest attempt; empty: it went well
};

class AlertmanagerSender final : public SenderThread {
 public:
  static constexpr int64_t kEveryNs = 30'000'000'000;  // and at once when something changed
  static constexpr int64_t kHoldMs = 240'000;          // what is not said again within that time is over there
  static constexpr int64_t kOverNs = 900'000'000'000;  // so long it is told that something is over
  static constexpr int64_t kRetryNs = 5'000'000'000;

  AlertmanagerSender(Url url, std::string external_url, AlertRegistry& alerts, const Clock& clock, Counters& counters);
  ~AlertmanagerSender() override { stop(); }
  void round() override;
  AlertmanagerState state() const;

 private:
  const Url url_;
  const std::string external_url_, shown_;
  AlertRegistry& alerts_;
  const Clock& clock_;
  Counters& counters_;
  RateLimitedLog log_;
  HttpClient client_;
  uint64_t sent_version_ = 0;  // of the registry, when it was told last
  int64_t next_ns_ = 0;
  mutable Mutex mutex_;
  AlertmanagerState state_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
