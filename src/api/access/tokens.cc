// GET /api/tokens: the tokens of the caller's tenants. POST /api/tokens makes one and shows its secret, once.
// POST /api/tokens/{id}/revoke ends one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "access/token_store.h"
#include "api/access/body.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep {
namespace {

constexpr int64_t kExpiresSMax = 100ll * 365 * 86'400;

// A token that also opens another tenant is that tenant's business too: its name would say that there is one.
bool may_see(const Caller& caller, const Token& token) {
  return std::all_of(token.tenants.begin(), token.tenants.end(),
                     [&](const std::string& tenant) { return speaks_for(caller.tenants, tenant); });
}

void write_fields(JsonWriter& json, const Token& token, int64_t now_ns) {
  json.field("id", token.id).field("name", token.name).key("roles").begin_array();
  for (std::string_view role : role_names(token.roles)) json.string(role);
  json.end_array().key("tenants").begin_array();
  for (const std::string& tenant : token.tenants) json.string(tenant);
  json.end_array()
      .field("owner", token.owner)
      .field("created_unix_ns", token.created_unix_ns)
      .field("expires_unix_ns", token.expires_unix_ns)
      .field("revoked_unix_ns", token.revoked_unix_ns)
      .field("last_used_unix_ns", token.last_used_unix_ns)
      .field("valid", token.is_live(now_ns));
}

HttpResponse no_tokens_here() {
  return error_answer(501, "this server has no tokens");
}

// A text, or a list of them, as one list.
Result<std::vector<std::string>> texts_of(const JsonValue& value, const char* field) {
  std::vector<std::string> texts;
  if (!value.present() || value.json() == "null") return texts;
  if (std::optional<std::string> one = value.string()) {
    texts.push_back(std::move(*one));
    return texts;
  }
  for (const JsonValue item : value) {
    std::optional<std::string> text = item.string();
    if (!value.is_array() || !text) return Error{format("%s must be a text or a list of texts", field)};
    texts.push_back(std::move(*text));
  }
  if (texts.empty()) return Error{format("%s must be a text or a list of texts", field)};
  return texts;
}

Result<TokenWanted> read_wish(const ServerRequest& request, const TokenStore& tokens, int64_t now_ns) {
  const JsonDocument document =
      LOCKSTEP_TRY(read_object(request.body, {"name", "roles", "tenants", "owner", "expires_s"}));
  const JsonValue root = document.root();
  TokenWanted wanted;
  for (const auto& [field, target] : {std::pair{"name", &wanted.name}, std::pair{"owner", &wanted.owner}}) {
    const JsonValue value = root[field];
    if (!value.present() || value.json() == "null") continue;
    std::optional<std::string> text = value.string();
    if (!text) return Error{format("%s must be a text", field)};
    *target = std::move(*text);
  }
  const std::vector<std::string> roles = LOCKSTEP_TRY(texts_of(root["roles"], "roles"));
  for (const std::string& role : roles) wanted.roles |= LOCKSTEP_TRY(parse_roles(role));
  wanted.tenants = LOCKSTEP_TRY(texts_of(root["tenants"], "tenants"));
  // Unasked, a token is for the tenant that its maker speaks for; the first of all is for all.
  if (wanted.tenants.empty()) {
    const std::string& own = request.caller.tenant;
    wanted.tenants = {!tokens.in_use() ? "*" : own.empty() ? std::string(kDefaultTenant) : own};
  }
  if (const JsonValue expires = root["expires_s"]; expires.present() && expires.json() != "null") {
    const std::optional<int64_t> seconds = expires.integer();
    if (!seconds || *seconds <= 0 || *seconds > kExpiresSMax)
      return Error{"expires_s must be a number of seconds from now, of at most 100 years"};
    wanted.expires_unix_ns = now_ns + *seconds * 1'000'000'000;
  }
  return wanted;
}

}  // namespace

HttpResponse get_tokens(const ApiContext& context, const ApiRequest& request) {
  if (context.tokens == nullptr) return no_tokens_here();
  JsonWriter json;
  json.begin_object().field("in_use", context.tokens->in_use()).key("tokens").begin_array();
  size_t shown = 0;
  for (const Token& token : context.tokens->list()) {
    if (!may_see(request.http.caller, token)) continue;
    json.begin_object();
    write_fields(json, token, context.clock.unix_ns());
    json.end_object();
    ++shown;
  }
  return list_answer(json, shown, shown);
}

HttpResponse post_tokens(const ApiContext& context, const ApiRequest& request) {
  if (context.tokens == nullptr) return no_tokens_here();
  const Caller& caller = request.http.caller;
  Result<TokenWanted> wanted = read_wish(request.http, *context.tokens, context.clock.unix_ns());
  if (!wanted.ok()) return error_answer(400, wanted.error());
  for (const std::string& tenant : wanted->tenants) {
    if (!speaks_for(caller.tenants, tenant))
      return error_answer(403, format("a token for tenant \"%s\" can be made by an admin of that tenant only",
                                      as_one_line(tenant.substr(0, 64)).c_str()));
  }
  // Otherwise an admin's end would mean nothing: one who is about to end could make another who is not.
  if (const int64_t end_ns = caller.expires_unix_ns; end_ns != 0) {
    if (wanted->expires_unix_ns == 0) wanted->expires_unix_ns = end_ns;
    if (wanted->expires_unix_ns > end_ns)
      return error_answer(403, format("a token ends no later than the one that makes it, which ends %s",
                                      utc_time(end_ns / 1'000'000).c_str()));
  }
  Result<TokenMade> made = context.tokens->create(std::move(*wanted));
  if (!made.ok()) return error_answer(400, made.error());
  request.object = made->token.id;
  JsonWriter json;
  json.begin_object();
  write_fields(json, made->token, context.clock.unix_ns());
  json.field("token", made->secret).end_object();
  return json_answer(json);
}

HttpResponse post_token_revoke(const ApiContext& context, const ApiRequest& request) {
  if (context.tokens == nullptr) return no_tokens_here();
  const std::vector<Token> all = context.tokens->list();
  const bool is_seen = std::any_of(all.begin(), all.end(), [&](const Token& token) {
    return token.id == request.name && may_see(request.http.caller, token);
  });
  // Without what was asked for: whoever takes the secret for the id shall not find it in a log.
  if (!is_seen) return error_answer(404, "there is no such token; lockstep token list shows their ids");
  const Result<Token> revoked = context.tokens->revoke(request.name);
  if (!revoked.ok()) return error_answer(503, revoked.error());
  JsonWriter json;
  json.begin_object();
  write_fields(json, *revoked, context.clock.unix_ns());
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
