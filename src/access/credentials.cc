#include "access/credentials.h"

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

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
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

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  uint32_t held = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const int digit = at + padding >= text.size() ? 0 : digit_of(text[at]);
    if (digit < 0) return std::nullopt;
    held = held << 6 | static_cast<uint32_t>(digit);
    if (at % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(held >> shift);
    held = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

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
