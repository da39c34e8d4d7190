// Who writes into a place of S3, as the text of its object `lock`.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::backup {

inline constexpr int64_t kLockLeaseS = 900;  // longer than a server may take to answer, and a request to the store
inline constexpr int64_t kLockRenewS = 60;

struct LockHolder {
  std::string host;     // for people
  std::string machine;  // this boot of this machine, and whose processes are seen there
  int64_t pid = 0;
  std::string nonce;
  std::string text() const;
};
LockHolder this_process();
std::optional<LockHolder> read_lock(std::string_view text_untrusted);
// It was a process of this machine, and is none any more.
bool is_dead(const LockHolder& holder);

}  // namespace lockstep::backup
