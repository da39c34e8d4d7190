#include "server/access_parts.h"

#include "api/routes.h"

namespace lockstep {

Result<std::unique_ptr<AccessParts>> AccessParts::open(AccessState& state, const std::string& admin_token_file,
                                                       const Clock& clock, Counters& counters) {
  std::unique_ptr<TokenStore> tokens = LOCKSTEP_TRY(TokenStore::open(state, admin_token_file, clock, counters));
  std::unique_ptr<NameOwners> owners = LOCKSTEP_TRY(NameOwners::open(state, clock, counters));
  return std::unique_ptr<AccessParts>(new AccessParts(std::move(tokens), std::move(owners), state, clock, counters));
}

AccessParts::AccessParts(std::unique_ptr<TokenStore> tokens, std::unique_ptr<NameOwners> owners, AccessState& state,
                         const Clock& clock, Counters& counters)
    : tokens_(std::move(tokens)),
      owners_(std::move(owners)),
      sessions_(clock, counters),
      audit_(state, clock, counters),
      gatekeeper_(*tokens_, sessions_, role_of, clock, counters) {}

void AccessParts::put_into(ApiContext& context) {
  context.tokens = tokens_.get();
  context.gatekeeper = &gatekeeper_;
  context.audit = &audit_;
  context.owners = owners_.get();
}

void AccessParts::tick() {
  tokens_->tick();
  owners_->tick();
}

}  // namespace lockstep
