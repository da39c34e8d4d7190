// When records of the bus were received, as far as what they say can be believed. Anybody who may write to a topic says what
// he likes, and by this time the places of a reader are put in order and history is looked at: one of the year 2100 would
// keep its place behind all the others, and stores would take one of 1970 for what they no longer keep.
//
// A record was received before it is read, and not longer ago than any bus keeps it. What says otherwise was received when
// the one before it in its place was, or, where that is news too, now. So a clock of this machine that is behind moves
// nothing but the time of receipt.
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "bus/telemetry_bus.h"

namespace lockstep {

class RecordTimes {
 public:
  static constexpr int64_t kAheadMaxNs = 600'000'000'000;  // clocks of machines that are right differ by less
  static constexpr int64_t kOldestNs = 3'650 * 86'400 * 1'000'000'000LL;  // ago

  struct Believed {
    int64_t unix_ns;
    bool is_corrected;
  };
  // said_unix_ns: nullopt: it does not say.
  Believed believe(const BusPlace& place, std::optional<int64_t> said_unix_ns, int64_t now_unix_ns) {
    const auto before = last_.find(place);
    const bool is_credible = said_unix_ns && *said_unix_ns <= now_unix_ns + kAheadMaxNs &&
                             *said_unix_ns >= std::max<int64_t>(now_unix_ns - kOldestNs, 1);
    int64_t time = now_unix_ns;
    if (is_credible)
      time = std::min(*said_unix_ns, now_unix_ns);
    else if (before != last_.end() && now_unix_ns - before->second > kAheadMaxNs)
      time = before->second;
    last_[place] = time;
    return {time, said_unix_ns && !is_credible};
  }
  void reset() { last_.clear(); }

 private:
  std::map<BusPlace, int64_t> last_;
};

}  // namespace lockstep
