// Whose host and whose job a name is. The first owner (Caller::owner) that feeds a name within its tenant has it from
// then on; another's data for it, and its poll for commands, are refused. Taking it over is an operate action.
//
// In memory, and in the state within a moment (tick()): a crash may forget the names of its last second, which are then
// free again. A caller without an owner (no tokens are in use) is not checked, and binds nothing.
// Limits: kNamesPerOwnerMax for one owner. Beyond, a new one takes the place of the owner's name that was used longest
//   ago, if that is kIdleNs ago (job ids come and go), else it is refused.
// On error: one line that names the host or job, never its owner.
// Thread rule: Thread-safe; check() touches no disk. Somebody calls tick() a few times a second.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/result.h"
#include "net/caller.h"
#include "store/access_state.h"

namespace lockstep {

enum class OwnedKind : uint8_t { kHost, kJob };
const char* to_text(OwnedKind kind);

struct NameOwner {
  OwnedKind kind = OwnedKind::kHost;
  std::string name;
  std::string owner;
  int64_t used_unix_ns = 0;  // to the day
};

class NameOwners {
 public:
  static constexpr size_t kNamesPerOwnerMax = 20'000;
  static constexpr size_t kNameBytesMax = 256;
  static constexpr int64_t kIdleNs = 7ll * 86'400'000'000'000;
  static constexpr int64_t kNoteUseNs = 86'400'000'000'000;

  static Result<std::unique_ptr<NameOwners>> open(AccessState& state, const Clock& clock, Counters& counters);

  // An empty name belongs to nobody and is let through.
  Result<void> check(const Caller& caller, OwnedKind kind, std::string_view name);
  // kNotFound where nobody has it. On disk when it returns ok.
  Result<void> take_over(const std::string& tenant, OwnedKind kind, const std::string& name, const std::string& owner);
  std::vector<NameOwner> list(std::string_view tenant, size_t limit) const;
  void tick();

 private:
  struct Bound {
    std::string owner;
    int64_t used_unix_ns = 0;
  };
  using Key = std::tuple<std::string, OwnedKind, std::string>;  // tenant, kind, name
  using OwnerKey = std::pair<std::string, std::string>;         // tenant, owner

  NameOwners(AccessState& state, const Clock& clock, Counters& counters)
      : state_(state), clock_(clock), counters_(counters) {}
  bool make_room(const OwnerKey& owner, int64_t now_ns);

  AccessState& state_;
  const Clock& clock_;
  Counters& counters_;

  std::mutex save_mutex_;  // one save at a time; held while the disk is busy, before mutex_
  bool failing_ = false;   // under save_mutex_
  mutable std::mutex mutex_;
  // Under mutex_.
  std::map<Key, Bound> bound_;
  std::map<OwnerKey, size_t> names_of_;
  std::map<Key, bool> changed_;  // to be saved (true) or dropped
};

}  // namespace lockstep
