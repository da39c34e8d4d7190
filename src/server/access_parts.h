// Who may do what, put together: tokens, sessions, the gatekeeper, the audit log and the owners of names. One set for
// all tenants, in the default tenant's state.
//
// Thread rule: Confined (its parts are Thread-safe). Somebody calls tick() a few times a second.
#pragma once

#include <memory>

#include "access/audit_log.h"
#include "access/gatekeeper.h"
#include "access/name_owners.h"
#include "access/oidc.h"
#include "access/sessions.h"
#include "access/token_store.h"
#include "api/context.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/result.h"
#include "store/access_state.h"

namespace lockstep {

class AccessParts {
 public:
  // Everything is borrowed.
  // oidc: people may sign in there; empty: they cannot.
  static Result<std::unique_ptr<AccessParts>> open(AccessState& state, const std::string& admin_token_file,
                                                   std::optional<OidcConfig> oidc, const Clock& clock,
                                                   Counters& counters);

  Gatekeeper& gatekeeper() { return gatekeeper_; }
  NameOwners& owners() { return *owners_; }
  bool tokens_in_use() const { return tokens_->in_use(); }
  // As TokenStore::take_over().
  void take_over_tokens(std::span<const StoredToken> rows) { tokens_->take_over(rows); }
  void put_into(ApiContext& context);
  void tick();

 private:
  AccessParts(std::unique_ptr<TokenStore> tokens, std::unique_ptr<NameOwners> owners, AccessState& state,
              const Clock& clock, Counters& counters);

  const std::unique_ptr<TokenStore> tokens_;
  const std::unique_ptr<NameOwners> owners_;
  std::optional<OidcSignIn> oidc_;
  Sessions sessions_;
  AuditLog audit_;
  TokenGatekeeper gatekeeper_;
};

}  // namespace lockstep
