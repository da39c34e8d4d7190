// Tokens: who may do what, until when. The secret itself is nowhere: its SHA-256 is kept (there is nothing to guess in
// 256 random bits, so no slow hash), and it is shown once, by create().
//
// A copy in memory answers find(), so that letting a request in touches no disk.
// In use: once there is a token that was not revoked (an expired one counts: nobody's access opens by waiting), or an
//   admin token file was given; from then on until the process ends. Where tokens are not in use, nobody needs one.
// The admin token file (--admin-token-file) holds a token of one's own making that is admin everywhere: the first way
//   in, and the way back. Not for others' eyes (mode), at least kAdminTokenBytesMin long, read again when it changes; one
//   that is wrong then leaves the old in force, with one line.
// Limits: kTokensMax.
// On error: one line, never with a secret in it; nothing has changed.
// Thread rule: Thread-safe. Somebody calls tick() a few times a second.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "access/role.h"
#include "access/tenant_name.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/sha256.h"
#include "store/access_state.h"

namespace lockstep {

inline constexpr size_t kTokensMax = 10'000;  // revoked and expired ones are not counted
inline constexpr size_t kAdminTokenBytesMin = 32;
inline constexpr size_t kTokenNameBytesMax = 100;
inline constexpr std::string_view kTokenPrefix =
    "lst_";  // so that scanners of repositories find one that was left there

struct Token {
  std::string id;
  std::string name;
  std::string owner;
  uint32_t roles = 0;                // with everything that they include
  std::vector<std::string> tenants;  // at least one; {"*"}: all
  int64_t created_unix_ns = 0;
  int64_t expires_unix_ns = 0;  // 0: never
  int64_t revoked_unix_ns = 0;
  int64_t last_used_unix_ns = 0;  // to the minute

  bool is_live(int64_t now_unix_ns) const {
    return revoked_unix_ns == 0 && (expires_unix_ns == 0 || now_unix_ns < expires_unix_ns);
  }
  bool is_of(std::string_view tenant) const;
};

// "ingest,read" to bits; an error does not say the word: it may be a secret in the wrong place.
Result<uint32_t> parse_roles(std::string_view text);
// The words that a person would give: "admin" for what admin includes.
std::vector<std::string_view> role_names(uint32_t roles);
// As ids are made: eight digits of hexadecimal. Anything else in an id's place may be a secret.
bool is_token_id(std::string_view text);
// 256 random bits as text, behind a prefix.
std::string random_secret(std::string_view prefix);

struct TokenWanted {
  std::string name;
  uint32_t roles = 0;
  std::vector<std::string> tenants;
  std::string owner;            // empty: the token's id
  int64_t expires_unix_ns = 0;  // 0: never
};
struct TokenMade {
  Token token;
  std::string secret;  // the only time that it is seen
};

class TokenStore {
 public:
  static constexpr int64_t kNoteUseNs = 60'000'000'000;

  // admin_token_file: empty where there is none. state must outlive this.
  static Result<std::unique_ptr<TokenStore>> open(AccessState& state, const std::string& admin_token_file,
                                                  const Clock& clock, Counters& counters);

  bool in_use() const { return in_use_; }
  // Whose secret this is; nullopt: nobody's, or not any more. Does not block for long, and touches no disk.
  std::optional<Token> find(std::string_view secret);
  // The token of a session, if it still is one.
  std::optional<Token> live(std::string_view id) const;
  Result<TokenMade> create(TokenWanted wanted);
  // kNotFound where there is none. Revoking again changes nothing.
  Result<Token> revoke(std::string_view id);
  std::vector<Token> list() const;  // by time of creation; without the admin token file's
  // What other processes have made and revoked: known here too, and kept. What is revoked stays so, whoever says otherwise.
  void take_over(std::span<const StoredToken> rows);
  // Reads the admin token file again where it has changed, and writes down which tokens were used.
  void tick();

 private:
  struct Entry {
    Token token;
    Sha256 digest{};
    int64_t use_saved_unix_ns = 0;
  };
  TokenStore(AccessState& state, std::string admin_token_file, const Clock& clock, Counters& counters);
  Result<void> read_back();
  static Result<Entry> entry_of(const StoredToken& row);
  void take_over_one(const StoredToken& row);
  Result<void> read_admin_token() LOCKSTEP_REQUIRES(mutex_);
  void look_at_admin_token() LOCKSTEP_REQUIRES(mutex_);
  void save_uses();
  size_t live_tokens() const LOCKSTEP_REQUIRES(mutex_);
  void count();

  AccessState& state_;
  const std::string admin_token_file_;
  const Clock& clock_;
  Counters& counters_;
  std::atomic<bool> in_use_{false};

  Mutex change_mutex_;  // one change at a time; held while the disk is busy, before mutex_
  mutable Mutex mutex_;
  std::map<std::string, Entry, std::less<>> by_id_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<Sha256, std::string> id_of_digest_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<Sha256> admin_digest_ LOCKSTEP_GUARDED_BY(mutex_);
  bool admin_settled_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // it had not just been changed when it was read
  timespec admin_changed_ LOCKSTEP_GUARDED_BY(mutex_){};
  int64_t saved_uses_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool admin_failing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
