#include "server/access_parts.h"

#include "api/routes.h"

namespace lockstep {

Result<std::unique_ptr<AccessParts>> AccessParts::open(AccessState& state, const std::string& admin_token_file,
                                                       std::optional<OidcConfig> oidc, const Clock& clock,
                                                       Counters& counters) {
  std::unique_ptr<TokenStore> tokens = LOCKSTEP_TRY(TokenStore::open(state, admin_token_file, clock, counters));
  std::unique_ptr<NameOwners> owners = LOCKSTEP_TRY(NameOwners::open(state, clock, counters));
  std::unique_ptr<AccessParts> parts(new AccessParts(std::move(tokens), std::move(owners), state, clock, counters));
  if (oidc) parts->oidc_.emplace(std::move(*oidc), clock);
  return parts;
}

AccessParts::AccessParts(std::unique_ptr<TokenStore> tokens, std::unique_ptr<NameOwners> owners, AccessState& state,
                         const Clock& clock, Counters& counters)
    : tokens_(std::move(tokens)),
      owners_(std::move(owners)),
      sessions_(clock, counters),
      audit_(state, clock, counters),
      gatekeeper_(*tokens_, sessions_, role_of, endpoint_of, clock, counters) {}

void AccessParts::put_into(ApiContext& context) {
  context.tokens = tokens_.get();
  context.gatekeeper = &gatekeeper_;
  context.oidc = oidc_ ? &*oidc_ : nullptr;
  context.audit = &audit_;
  context.owners = owners_.get();
}

void AccessParts::tick() {
  tokens_->tick();
  owners_->tick();
  for (AuditRow& row : gatekeeper_.take_refusals()) audit_.refused(std::move(row));
}

}  // namespace lockstep
