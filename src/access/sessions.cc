#include "access/sessions.h"

#include <algorithm>

#include "access/token_store.h"

namespace lockstep {

std::string Sessions::begin(std::string token, Caller caller) {
  std::string secret = random_secret("");
  const int64_t now_ns = clock_.monotonic_ns();
  std::lock_guard lock(mutex_);
  std::erase_if(by_digest_, [&](const auto& one) {
    if (one.second.until_ns > now_ns) return false;
    counters_.add("lockstep_access_sessions_total", "what=\"expired\"");
    return true;
  });
  if (by_digest_.size() >= kSessionsMax) {
    by_digest_.erase(std::min_element(by_digest_.begin(), by_digest_.end(), [](const auto& a, const auto& b) {
      return a.second.until_ns < b.second.until_ns;
    }));
    counters_.add("lockstep_access_sessions_total", "what=\"gave_way\"");
  }
  std::string id = random_secret("").substr(0, 16);
  caller.session = id;
  by_digest_[sha256(secret)] = {std::move(id), std::move(token), std::move(caller), now_ns + kSessionNs};
  counters_.add("lockstep_access_sessions_total", "what=\"begun\"");
  count();
  return secret;
}

std::optional<Session> Sessions::find(std::string_view secret) {
  const Sha256 digest = sha256(secret);
  std::lock_guard lock(mutex_);
  const auto found = by_digest_.find(digest);
  if (found == by_digest_.end() || !equal_in_constant_time(found->first, digest)) return std::nullopt;
  if (found->second.until_ns <= clock_.monotonic_ns()) {
    by_digest_.erase(found);
    counters_.add("lockstep_access_sessions_total", "what=\"expired\"");
    count();
    return std::nullopt;
  }
  return found->second;
}

void Sessions::end(std::string_view id) {
  std::lock_guard lock(mutex_);
  if (std::erase_if(by_digest_, [&](const auto& one) { return one.second.id == id; }) > 0)
    counters_.add("lockstep_access_sessions_total", "what=\"ended\"");
  count();
}

void Sessions::count() {
  counters_.set("lockstep_access_sessions", "", static_cast<int64_t>(by_digest_.size()));
}

}  // namespace lockstep
