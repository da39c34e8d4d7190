// Which records of the bus between machines are in the durable log: those that come again are known by where they stood,
// and requests that were sent again by what they say.
//
// Limits: the digests of the last kDigestsMax requests; a sender that had no answer tries again within seconds.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <unordered_set>

#include "bus/log_origin.h"
#include "bus/telemetry_bus.h"

namespace lockstep {

class BusOrigins {
 public:
  static constexpr size_t kDigestsMax = 16'384;

  // In the log's order: of a place the last one counts, so that a bus that was made anew is read from its beginning.
  void note(RecordKind kind, const LogOrigin& origin) {
    last_[{{origin.partition, kind}, origin.cluster}] = origin.offset;
    if (!digests_.insert(origin.digest).second) return;
    in_order_.push_back(origin.digest);
    if (in_order_.size() <= kDigestsMax) return;
    digests_.erase(in_order_.front());
    in_order_.pop_front();
  }
  bool is_read_again(RecordKind kind, const LogOrigin& origin) const {
    auto found = last_.find({{origin.partition, kind}, origin.cluster});
    return found != last_.end() && origin.offset <= found->second;
  }
  bool is_sent_again(const LogOrigin& origin) const { return digests_.contains(origin.digest); }

 private:
  using Digest = std::array<uint8_t, 16>;
  struct DigestHash {
    size_t operator()(const Digest& digest) const {
      size_t value = 0;
      std::memcpy(&value, digest.data(), sizeof value);
      return value;
    }
  };
  std::map<std::pair<BusPlace, uint32_t>, int64_t> last_;
  std::unordered_set<Digest, DigestHash> digests_;
  std::deque<Digest> in_order_;
};

}  // namespace lockstep
