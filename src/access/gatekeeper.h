// Who is let in: by token (bearer, or the password of basic authentication) or by session, with the role that the
// endpoint names and for the tenant that is meant.
//
// Tokens not in use (access/token_store.h): everybody, all roles, the default tenant.
// Tenant: the token's own where it has one; X-Scope-OrgID names another of those it has, else 403. A token for all
//   tenants speaks for the default one until told otherwise.
// Refused: 401 without a token or with one that is none (and www-authenticate), 403 where it lacks the role or the
//   tenant, 429 with retry-after where one address shows too many that are none (access/failed_attempts.h). One line
//   each, without what was shown and without whether a tenant or path exists. Who was refused is in the audit log
//   (access/refusals.h).
// What needs no role is anybody's, but whoever shows a valid token is known there too.
// Thread rule: Thread-safe; touches no disk.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/failed_attempts.h"
#include "access/oidc.h"
#include "access/refusals.h"
#include "access/role.h"
#include "access/sessions.h"
#include "access/token_store.h"
#include "base/clock.h"
#include "base/counters.h"
#include "net/caller.h"

namespace lockstep {

struct SignedIn {
  Admission admission;
  std::string secret;  // the cookie's value
};

class TokenGatekeeper final : public Gatekeeper {
 public:
  // role_of: of both tables (api/routes.h); endpoint_of: what they call it. Everything is borrowed.
  TokenGatekeeper(TokenStore& tokens, Sessions& sessions, std::function<Role(const ServerRequest&)> role_of,
                  std::function<std::string(const ServerRequest&)> endpoint_of, const Clock& clock, Counters& counters);
  Admission admit(const ServerRequest& head, const PeerCertificate& peer) override;

  // A session for whoever has this token; wrong ones are refused as at the gate. peer: whose attempt it is.
  SignedIn sign_in(std::string_view token, const std::string& peer);
  // A session for somebody whom an issuer has vouched for: the cookie's value.
  std::string sign_in_person(const OidcPerson& person);
  // Rows for the audit log: who was refused since. Somebody asks a few times a second.
  std::vector<AuditRow> take_refusals() { return refusals_.take_due(clock_.monotonic_ns()); }
  void sign_out(std::string_view session) { sessions_.end(session); }

 private:
  // The same refusal, and noted as one. caller: nullptr where nobody knows who it was.
  Admission noted(Admission refused, const Caller* caller, const std::string& peer, const std::string& endpoint);
  Admission wrong_token(const std::string& peer, const std::string& endpoint);
  std::optional<Caller> known(const ServerRequest& head, bool& is_shown, bool& by_session);

  TokenStore& tokens_;
  Sessions& sessions_;
  const std::function<Role(const ServerRequest&)> role_of_;
  const std::function<std::string(const ServerRequest&)> endpoint_of_;
  const Clock& clock_;
  FailedAttempts failed_;
  Refusals refusals_;
  // By result.
  std::atomic<int64_t>&open_, &anyone_, &token_, &session_, &no_token_, &bad_token_, &role_, &tenant_, &limited_;
};

// Stands at the gate until there is a gatekeeper: what needs a role is told to come again (503). A listener is open
// before the tokens have been read.
class GatekeeperToCome final : public Gatekeeper {
 public:
  explicit GatekeeperToCome(std::function<Role(const ServerRequest&)> role_of) : role_of_(std::move(role_of)) {}
  void hand_over_to(Gatekeeper& gatekeeper) { arrived_ = &gatekeeper; }
  Admission admit(const ServerRequest& head, const PeerCertificate& peer) override;

 private:
  const std::function<Role(const ServerRequest&)> role_of_;
  std::atomic<Gatekeeper*> arrived_{nullptr};
};

// Of one who shows this token; the tenant is the first of its own.
Caller caller_of(const Token& token);
// Where tokens are not in use.
Caller everybody();

}  // namespace lockstep
