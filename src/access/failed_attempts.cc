#include "access/failed_attempts.h"

#include <arpa/inet.h>

#include "base/characters.h"
#include "base/text.h"

namespace lockstep {

std::string address_of_peer(std::string_view peer) {
  std::string host(peer);
  if (host.starts_with("[")) {
    host = host.substr(1, host.find(']') - 1);
  } else if (const size_t colon = host.rfind(':'); colon != std::string::npos && host.find(':') == colon) {
    host.resize(colon);
  }
  in6_addr six{};
  if (inet_pton(AF_INET6, host.c_str(), &six) != 1) return host;
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    const uint8_t* four = six.s6_addr + 12;
    return format("%u.%u.%u.%u", four[0], four[1], four[2], four[3]);
  }
  return to_hex({six.s6_addr, 8}) + "/64";
}

bool FailedAttempts::note(std::string_view peer, int64_t now_ns) {
  const std::string address = address_of_peer(peer);
  MutexLock lock(mutex_);
  auto found = by_address_.find(address);
  if (found == by_address_.end()) {
    if (list_.size() >= kAddressesMax) {
      by_address_.erase(list_.front().address);
      list_.pop_front();
    }
    list_.push_back({address, now_ns, 0});
    found = by_address_.emplace(address, std::prev(list_.end())).first;
  } else {
    list_.splice(list_.end(), list_, found->second);
  }
  Address& known = *found->second;
  if (now_ns - known.window_began_ns >= kWindowNs) {
    known.window_began_ns = now_ns;
    known.attempts = 0;
  }
  if (known.attempts <= kAttemptsMax) ++known.attempts;
  return known.attempts > kAttemptsMax;
}

size_t FailedAttempts::addresses() const {
  MutexLock lock(mutex_);
  return list_.size();
}

}  // namespace lockstep
