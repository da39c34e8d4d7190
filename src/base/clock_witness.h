// Which time may it be? The server's own clock is one witness of several: it may jump, and it may be wrong from the
// start.
//
// The others are the monotonic clock, which does not jump, and the clocks of those who send: what fits the server's
// time best of all they sent lately. now() gives the earliest and the latest time that is credible. Where all agree
// (within kToleranceNs) both are the server's own. Whoever deletes or refuses by age uses the earliest, whoever refuses
// the future uses the latest: so nothing is deleted or refused that is right by any credible clock, and a liar can only
// have more accepted, never have anything deleted.
//
// A jump of the server's clock is believed at once where most senders agree with it, and after kBelieveNs where nobody
// says anything; one that goes back is forgotten. Senders count where there are kSendersMin of them, and more than half
// agree with each other: one sender from the future moves nothing. A sender that delivers what it kept while the server
// was away looks like one whose clock is behind; that too only postpones deletion.
//
// Limits: kSendersMax senders, each heard within kWindowNs; further ones are not listened to.
// Thread rule: Thread-safe. now() takes no lock while all agree.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"

namespace lockstep {

struct CredibleTime {
  int64_t earliest_unix_ns;
  int64_t latest_unix_ns;
};

class ClockWitness {
 public:
  static constexpr int64_t kToleranceNs = 600'000'000'000;  // as far as a sender may be ahead (ingest/otlp/admission.h)
  static constexpr int64_t kWindowNs = 600'000'000'000;
  static constexpr int64_t kBelieveNs = 3'600'000'000'000;
  static constexpr size_t kSendersMin = 3;  // of fewer, the majority is all or nobody
  static constexpr size_t kSendersMax = 4096;
  static constexpr size_t kSenderBytesMax = 256;

  explicit ClockWitness(const Clock& clock) : clock_(clock), own_base_ns_(clock.unix_ns() - clock.monotonic_ns()) {}

  // A time in what a sender has just sent, the nearest to the server's. sender: what stays the same, as a host's name.
  void note(std::string_view sender, int64_t unix_ns);
  CredibleTime now() const;

  struct Report {
    size_t senders = 0;      // heard lately
    int64_t senders_ns = 0;  // the time of most senders less the server's; 0: they do not agree, or are too few
    int64_t jumped_ns = 0;   // how far the server's clock has jumped lately; 0: it has not
    std::string line;        // what is wrong and what follows from it; empty: nothing
  };
  Report report() const;

 private:
  struct Sender {
    int64_t base_ns = 0;   // its time less the monotonic clock's
    int64_t heard_ns = 0;  // monotonic
  };
  static constexpr int64_t kUnknown = INT64_MIN;

  void judge(int64_t monotonic_ns) LOCKSTEP_REQUIRES(mutex_);
  int64_t senders_base(int64_t monotonic_ns) const;                    // kUnknown: none
  int64_t believed_base(int64_t base_ns, int64_t monotonic_ns) const;  // the server's own, without a jump

  const Clock& clock_;
  mutable std::atomic<int64_t> own_base_ns_;             // unix less monotonic, as it is believed
  mutable std::atomic<int64_t> jump_base_ns_{kUnknown};  // to which the server's clock has jumped
  std::atomic<int64_t> senders_base_ns_{kUnknown};
  std::atomic<int64_t> senders_until_ns_{0};  // monotonic

  mutable Mutex mutex_;
  std::unordered_map<std::string, Sender> senders_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t judged_ns_ LOCKSTEP_GUARDED_BY(mutex_) = kUnknown;
  mutable int64_t jump_seen_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // monotonic
};

// How far retention may reach: whatever the clock says, no more than a day of history goes in an hour. So a clock that
// is wrong for minutes costs minutes of the oldest data, and a server that was away for a week has caught up in a few
// hours. Limits by size are not held up by this.
//
// Thread rule: Confined.
class RetentionPace {
 public:
  static constexpr int64_t kPace = 24;

  // What is older than this may go. now: the time it is; keep: for how long things are kept; oldest: of what there is
  // (INT64_MAX: nothing). All four in the same unit. A gap that is longer than everything that is kept is passed at
  // once: what was received before a clock was set at all must not hold up the rest for years.
  int64_t cutoff(int64_t now, int64_t keep, int64_t oldest, int64_t monotonic);

 private:
  int64_t reached_ = INT64_MIN;
  int64_t asked_ = INT64_MIN;  // monotonic
};

}  // namespace lockstep
