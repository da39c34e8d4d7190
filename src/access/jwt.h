// Signed tokens of an OpenID Connect issuer (JWS compact form, RFC 7515) checked against its keys (JWK set, RFC 7517).
//
// Accepted algorithms are RS256, PS256 and ES256, by public keys alone: "none" and shared secrets are refused whatever
// the token says, and a key is used only for its own algorithm. Without OpenSSL every check fails with one line.
//
// Limits: 16 kB a token, 64 keys, RSA of 2048 to 8192 bits.
// On error: one line that never holds the token.
// Thread rule: Immutable once made.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

class JwkSet {
 public:
  // Keys of kinds that are not used here are passed over; an error where none is left.
  static Result<JwkSet> parse(std::string_view json);
  JwkSet(JwkSet&&) noexcept;
  JwkSet& operator=(JwkSet&&) noexcept;
  ~JwkSet();

  // The claims (JSON) of a token whose signature is good. kNotFound: no key here has its name, so the issuer may have
  // new ones.
  Result<std::string> verify(std::string_view token) const;

 private:
  struct Key;
  JwkSet();
  std::vector<Key> keys_;
};

// What must be true of the claims of an ID token, beside its signature.
struct IdTokenExpected {
  std::string issuer;
  std::string client_id;
  std::string nonce;
  int64_t now_unix_s = 0;
};
inline constexpr int64_t kClockLeewayS = 60;
Result<void> check_id_token(std::string_view claims, const IdTokenExpected& expected);

}  // namespace lockstep
