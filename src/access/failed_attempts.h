// How often an address has shown tokens that are none. Beyond kAttemptsMax in a minute it is told to wait instead of
// being told that the token is wrong; a token that is right is let in all the same, so that one agent with an old token
// shuts nobody out behind the same address. Of IPv6 the first 64 bits are an address: a host has that many.
//
// Limits: kAddressesMax; a further one takes the place of the one heard of longest ago.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

class FailedAttempts {
 public:
  static constexpr int kAttemptsMax = 30;
  static constexpr int64_t kWindowNs = 60'000'000'000;
  static constexpr size_t kAddressesMax = 4096;

  // One more. True: it is one too many. peer: "203.0.113.9:5123", "[2001:db8::1]:5123".
  bool note(std::string_view peer, int64_t now_ns);
  size_t addresses() const;

 private:
  struct Address {
    std::string address;
    int64_t window_began_ns;
    int attempts;
  };
  using List = std::list<Address>;  // heard of longest ago first
  mutable std::mutex mutex_;
  // Under mutex_.
  List list_;
  std::map<std::string, List::iterator, std::less<>> by_address_;
};

// "203.0.113.9"; of IPv6 the network's 64 bits.
std::string address_of_peer(std::string_view peer);

}  // namespace lockstep
