// People signed in on the page. A session is 256 random bits in a cookie; here is its SHA-256 and who it is. In memory
// alone: whoever was signed in when the server stopped signs in again.
//
// A session that came from a token may do what the token may, as long as that is valid. One that came from elsewhere
// (an identity provider) brings its own roles and ends by itself.
// Limits: kSessionsMax; a further one takes the place of the one that ends first. kSessionNs from signing in.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/counters.h"
#include "base/sha256.h"
#include "net/caller.h"

namespace lockstep {

inline constexpr size_t kSessionsMax = 10'000;
inline constexpr int64_t kSessionNs = 12ll * 3'600'000'000'000;

struct Session {
  std::string id;     // public; Caller::session
  std::string token;  // id of the token it came from; empty: `caller` says what it may
  Caller caller;
  int64_t until_ns = 0;  // Clock::monotonic_ns()
};

class Sessions {
 public:
  Sessions(const Clock& clock, Counters& counters) : clock_(clock), counters_(counters) {}

  // The cookie's value.
  std::string begin(std::string token, Caller caller);
  std::optional<Session> find(std::string_view secret);
  void end(std::string_view id);

 private:
  void count();

  const Clock& clock_;
  Counters& counters_;
  std::mutex mutex_;
  std::map<Sha256, Session> by_digest_;  // under mutex_
};

}  // namespace lockstep
