#include "access/credentials.h"

#include "base/base64.h"
#include "base/characters.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "net/http_server.h"

namespace lockstep {
namespace {

bool is_secret(std::string_view text) {
  return !text.empty() && text.size() <= kTokenBytesMax && is_printable(text) &&
         text.find(' ') == std::string_view::npos;
}

Credentials of_authorization(std::string_view header) {
  const Credentials malformed{CredentialKind::kMalformed, {}};
  header = trim(header);
  const size_t blank = header.find(' ');
  if (blank == std::string_view::npos) return malformed;
  const std::string scheme = lower_case(header.substr(0, blank));
  const std::string_view value = trim(header.substr(blank));
  if (scheme == "bearer") {
    if (!is_secret(value)) return malformed;
    return {CredentialKind::kToken, std::string(value)};
  }
  if (scheme != "basic" || value.size() > 2 * kTokenBytesMax) return malformed;
  const std::optional<std::string> pair = decode_base64(value);
  const size_t colon = pair ? pair->find(':') : std::string::npos;
  if (colon == std::string::npos) return malformed;
  std::string secret = pair->substr(colon + 1);
  if (!is_secret(secret)) return malformed;
  return {CredentialKind::kToken, std::move(secret)};
}

}  // namespace

std::optional<std::string> cookie_value(std::string_view header, std::string_view name) {
  for (std::string_view pair : split(header, ';')) {
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || trim(pair.substr(0, equals)) != name) continue;
    return std::string(trim(pair.substr(equals + 1)));
  }
  return std::nullopt;
}

Credentials read_credentials(const ServerRequest& head) {
  int authorizations = 0;
  for (const auto& [name, value] : head.headers) authorizations += name == "authorization" ? 1 : 0;
  // Of two, a proxy may have looked at the other one.
  if (authorizations > 1) return {CredentialKind::kMalformed, {}};
  if (authorizations == 1) return of_authorization(head.header("authorization"));
  for (const auto& [name, value] : head.headers) {
    if (name != "cookie") continue;
    std::optional<std::string> secret = cookie_value(value, kSessionCookie);
    if (!secret) continue;
    if (!is_secret(*secret)) return {CredentialKind::kMalformed, {}};
    return {CredentialKind::kSession, std::move(*secret)};
  }
  return {};
}

}  // namespace lockstep
