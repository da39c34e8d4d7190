#include "access/gatekeeper.h"

#include <algorithm>
#include <utility>

#include "access/credentials.h"
#include "base/text.h"
#include "net/http_server.h"

namespace lockstep {
namespace {

constexpr const char* kRetryAfterS = "60";
constexpr const char* kSignInEndpoint = "POST /api/session";

Admission refusal(int status, std::string line) {
  Admission refused;
  refused.refused = status;
  refused.line = std::move(line);
  if (status == 401) refused.headers.emplace_back("www-authenticate", "Bearer realm=\"lockstep\"");
  if (status == 429) refused.headers.emplace_back("retry-after", kRetryAfterS);
  return refused;
}

// What X-Scope-OrgID chooses among the tenants of a caller. False: it may not speak for that one.
bool choose_tenant(const ServerRequest& head, Caller& caller) {
  const std::string_view wanted = trim(head.header("x-scope-orgid"));
  if (wanted.empty()) return true;
  if (!is_tenant_name(wanted)) return false;
  const bool may_speak = speaks_for(caller.tenants, wanted);
  if (may_speak) caller.tenant = wanted == kDefaultTenant ? std::string() : std::string(wanted);
  return may_speak;
}

}  // namespace

Caller caller_of(const Token& token) {
  Caller caller;
  caller.name = "token " + token.id;
  if (!token.name.empty()) caller.name += " (" + token.name + ")";
  caller.owner = token.owner;
  caller.roles = token.roles | bit_of(Role::kAnyone);
  caller.tenants = token.tenants;
  caller.expires_unix_ns = token.expires_unix_ns;
  const std::string& first = token.tenants.empty() ? std::string("*") : token.tenants[0];
  if (first != "*" && first != kDefaultTenant) caller.tenant = first;
  return caller;
}

Caller everybody() {
  Caller caller;
  caller.roles = kAllRoles;
  caller.tenants = {"*"};
  return caller;
}

TokenGatekeeper::TokenGatekeeper(TokenStore& tokens, Sessions& sessions,
                                 std::function<Role(const ServerRequest&)> role_of,
                                 std::function<std::string(const ServerRequest&)> endpoint_of, const Clock& clock,
                                 Counters& counters)
    : tokens_(tokens),
      sessions_(sessions),
      role_of_(std::move(role_of)),
      endpoint_of_(std::move(endpoint_of)),
      clock_(clock),
      open_(counters.at("lockstep_access_requests_total", "result=\"open\"")),
      anyone_(counters.at("lockstep_access_requests_total", "result=\"anyone\"")),
      token_(counters.at("lockstep_access_requests_total", "result=\"token\"")),
      session_(counters.at("lockstep_access_requests_total", "result=\"session\"")),
      no_token_(counters.at("lockstep_access_requests_total", "result=\"no_token\"")),
      bad_token_(counters.at("lockstep_access_requests_total", "result=\"bad_token\"")),
      role_(counters.at("lockstep_access_requests_total", "result=\"role\"")),
      tenant_(counters.at("lockstep_access_requests_total", "result=\"tenant\"")),
      limited_(counters.at("lockstep_access_requests_total", "result=\"limited\"")) {}

std::optional<Caller> TokenGatekeeper::known(const ServerRequest& head, bool& is_shown, bool& by_session) {
  const Credentials shown = read_credentials(head);
  is_shown = shown.kind != CredentialKind::kNone;
  by_session = shown.kind == CredentialKind::kSession;
  if (shown.kind == CredentialKind::kToken) {
    const std::optional<Token> token = tokens_.find(shown.secret);
    return token ? std::optional(caller_of(*token)) : std::nullopt;
  }
  if (!by_session) return std::nullopt;
  std::optional<Session> session = sessions_.find(shown.secret);
  if (!session) return std::nullopt;
  if (session->token.empty()) {
    session->caller.session = session->id;
    return std::move(session->caller);
  }
  // The token may have been revoked since.
  const std::optional<Token> token = tokens_.live(session->token);
  if (!token) return std::nullopt;
  Caller caller = caller_of(*token);
  caller.session = session->id;
  return caller;
}

Admission TokenGatekeeper::noted(Admission refused, const Caller* caller, const std::string& peer,
                                 const std::string& endpoint) {
  refusals_.note(caller, peer, endpoint, refused.refused, clock_.unix_ns());
  return refused;
}

Admission TokenGatekeeper::wrong_token(const std::string& peer, const std::string& endpoint) {
  if (failed_.note(peer, clock_.monotonic_ns())) {
    ++limited_;
    return noted(refusal(429, "too many wrong tokens from this address: try again in a minute"), nullptr, peer,
                 endpoint);
  }
  ++bad_token_;
  return noted(refusal(401, "this token is not valid: nobody has it here, or it was revoked or has expired"), nullptr,
               peer, endpoint);
}

SignedIn TokenGatekeeper::sign_in(std::string_view token, const std::string& peer) {
  const std::optional<Token> found = tokens_.find(token);
  if (!found) return {wrong_token(peer, kSignInEndpoint), {}};
  Caller caller = caller_of(*found);
  std::string secret = sessions_.begin(found->id, caller);
  if (const std::optional<Session> session = sessions_.find(secret)) caller.session = session->id;
  return {{.caller = std::move(caller)}, std::move(secret)};
}

std::string TokenGatekeeper::sign_in_person(const OidcPerson& person) {
  Caller caller;
  caller.name = person.name;
  caller.roles = person.roles;
  caller.tenants = person.tenants;
  if (!person.tenants.empty() && person.tenants[0] != "*" && person.tenants[0] != kDefaultTenant)
    caller.tenant = person.tenants[0];
  return sessions_.begin("", std::move(caller));
}

Admission GatekeeperToCome::admit(const ServerRequest& head, const PeerCertificate& peer) {
  if (Gatekeeper* arrived = arrived_) return arrived->admit(head, peer);
  if (role_of_(head) == Role::kAnyone) {
    Admission nobody;
    nobody.caller.roles = bit_of(Role::kAnyone);
    return nobody;
  }
  Admission later = refusal(503, "starting: what is stored is being opened; try again in a moment");
  later.headers.emplace_back("retry-after", "1");
  return later;
}

Admission TokenGatekeeper::admit(const ServerRequest& head, const PeerCertificate&) {
  if (!tokens_.in_use()) {
    ++open_;
    return {.caller = everybody()};
  }
  const Role needed = role_of_(head);
  bool is_shown = false, by_session = false;
  std::optional<Caller> caller = known(head, is_shown, by_session);
  if (needed == Role::kAnyone) {
    ++anyone_;
    if (!caller || !choose_tenant(head, *caller)) {
      Admission nobody;
      nobody.caller.roles = bit_of(Role::kAnyone);
      nobody.caller.sign_in = cookie_value(head.header("cookie"), kSignInCookie).value_or("");
      return nobody;
    }
    caller->sign_in = cookie_value(head.header("cookie"), kSignInCookie).value_or("");
    return {.caller = std::move(*caller)};
  }
  if (!caller) {
    // A session that has ended is no attempt at guessing.
    if (!is_shown || by_session) {
      ++no_token_;
      return noted(refusal(401, by_session ? "this session has ended: sign in again"
                                           : "this server wants a token: Authorization: Bearer ..."),
                   nullptr, head.peer, endpoint_of_(head));
    }
    return wrong_token(head.peer, endpoint_of_(head));
  }
  if (!choose_tenant(head, *caller)) {
    ++tenant_;
    return noted(refusal(403, "this token may not speak for the tenant that X-Scope-OrgID names"), &*caller, head.peer,
                 endpoint_of_(head));
  }
  if (!may(caller->roles, needed)) {
    ++role_;
    const RoleRow* row = find_role(needed);
    const std::string name(row == nullptr ? "any" : row->name);
    return noted(refusal(403, "this needs the role " + name + ", which this token does not have"), &*caller, head.peer,
                 endpoint_of_(head));
  }
  ++(by_session ? session_ : token_);
  return {.caller = std::move(*caller)};
}

}  // namespace lockstep
