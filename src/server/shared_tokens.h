// Tokens that one process of a cluster has made or revoked, on their way to all others (bus/shared_rows.h).
//
// A row is 64 digits, a blank and JSON: the digits are HMAC-SHA256 of the JSON by the secret of --admin-token-file, which all
// processes of a cluster have. So nobody makes a token who may write to the brokers and does not have that secret. Of the
// token's own secret there is its digest alone, as in the state.
// Limits: what is malformed, or not signed so, is passed over.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bus/shared_rows.h"
#include "server/options.h"
#include "store/access_state.h"

namespace lockstep {

// By which they are signed: what is in --admin-token-file; empty where there is none.
Result<std::string> token_secret(const ServerOptions& options);

SharedRow token_row(const StoredToken& token, std::string_view secret);
std::vector<StoredToken> shared_tokens(const SharedRows& rows, std::string_view secret);

// What other processes make and revoke, as it is heard of.
// Thread rule: Confined.
class TokensHeard {
 public:
  TokensHeard(const SharedRows& rows, std::string secret) : rows_(rows), secret_(std::move(secret)) {}
  // take: called with all of them, where something may have changed.
  template <typename Take>
  void tick(const Take& take) {
    const uint64_t version = rows_.version();
    if (secret_.empty() || version == seen_) return;
    seen_ = version;
    take(shared_tokens(rows_, secret_));
  }

 private:
  const SharedRows& rows_;
  const std::string secret_;
  uint64_t seen_ = UINT64_MAX;
};

}  // namespace lockstep
