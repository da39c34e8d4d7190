#include "server/shared_tokens.h"

#include <algorithm>
#include <optional>

#include "base/characters.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/secret_file.h"
#include "base/sha256.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kToken = "token/";
constexpr size_t kSignatureDigits = 64;

bool is_signed(std::string_view signature, std::string_view text, std::string_view secret) {
  const std::optional<std::string> shown = from_lower_hex(signature);
  Sha256 digest{};
  if (!shown || shown->size() != digest.size()) return false;
  std::copy(shown->begin(), shown->end(), digest.begin());
  return equal_in_constant_time(digest, hmac_sha256(secret, text));
}

std::optional<StoredToken> parse_untrusted(std::string_view row, std::string_view secret) {
  if (row.size() <= kSignatureDigits + 1 || row[kSignatureDigits] != ' ') return std::nullopt;
  const std::string_view text = row.substr(kSignatureDigits + 1);
  if (!is_signed(row.substr(0, kSignatureDigits), text, secret)) return std::nullopt;
  const Result<JsonDocument> document = JsonDocument::parse(text);
  if (!document.ok()) return std::nullopt;
  const JsonValue json = document->root();
  const auto word = [&](const char* key) { return std::string(json[key].string().value_or("")); };
  const auto number = [&](const char* key) { return parse_int(word(key)).value_or(0); };
  std::optional<std::string> digest = from_lower_hex(word("digest"));
  if (!digest) return std::nullopt;
  return StoredToken{.id = word("id"),
                     .name = word("name"),
                     .digest = std::move(*digest),
                     .roles = word("roles"),
                     .tenants = word("tenants"),
                     .owner = word("owner"),
                     .created_unix_ns = number("created_unix_ns"),
                     .expires_unix_ns = number("expires_unix_ns"),
                     .revoked_unix_ns = number("revoked_unix_ns")};
}

}  // namespace

Result<std::string> token_secret(const ServerOptions& options) {
  if (options.admin_token_file.empty()) return std::string();
  Result<std::string> secret = read_private_file(options.admin_token_file);
  if (!secret.ok()) return prefixed(secret.failure(), "--admin-token-file: ");
  return secret;
}

SharedRow token_row(const StoredToken& token, std::string_view secret) {
  Sha256 digest{};
  std::copy_n(token.digest.begin(), std::min(token.digest.size(), digest.size()), digest.begin());
  JsonWriter json;
  json.begin_object()
      .field("id", token.id)
      .field("name", token.name)
      .field("digest", to_text(digest))
      .field("roles", token.roles)
      .field("tenants", token.tenants)
      .field("owner", token.owner)
      .field("created_unix_ns", std::to_string(token.created_unix_ns))
      .field("expires_unix_ns", std::to_string(token.expires_unix_ns))
      .field("revoked_unix_ns", std::to_string(token.revoked_unix_ns))
      .end_object();
  const std::string text = json.text();
  return {std::string(kToken) + token.id, to_text(hmac_sha256(secret, text)) + " " + text};
}

std::vector<StoredToken> shared_tokens(const SharedRows& rows, std::string_view secret) {
  std::vector<StoredToken> tokens;
  for (const SharedRow& row : rows.rows("")) {
    if (!row.id.starts_with(kToken)) continue;
    std::optional<StoredToken> token = parse_untrusted(row.value, secret);
    if (token && row.id.substr(kToken.size()) == token->id) tokens.push_back(std::move(*token));
  }
  return tokens;
}

}  // namespace lockstep
