// What a request shows of who sends it: a bearer token, the password of basic authentication, or a session's cookie.
// The name of basic authentication is anybody's choice and not looked at.
//
// What is malformed is no credential: it is told apart from none, because whoever shows something wants to be known by
// it. Authorization comes before the cookie.
// Limits: kTokenBytesMax per secret; longer ones are malformed.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct ServerRequest;

inline constexpr size_t kTokenBytesMax = 1024;
inline constexpr std::string_view kSessionCookie = "lockstep_session";

enum class CredentialKind : uint8_t { kNone, kToken, kSession, kMalformed };
struct Credentials {
  CredentialKind kind = CredentialKind::kNone;
  std::string secret;
};
Credentials read_credentials(const ServerRequest& head);

// The value of a cookie in a Cookie header; nullopt where it is not there. Of several, the first.
std::optional<std::string> cookie_value(std::string_view header, std::string_view name);

}  // namespace lockstep
