// A state whose tokens, audit log and owners can be neither saved nor read, for tests of what happens then.
//
// Thread rule: Immutable.
#pragma once

#include "store/access_state.h"

namespace lockstep::testing {

// Base: AccessState, or what is one and more.
template <typename Base>
class WithFailingAccess : public Base {
 public:
  Result<void> save_token(const StoredToken&) override { return Error{"full"}; }
  Result<void> note_token_use(std::string_view, int64_t) override { return Error{"full"}; }
  Result<std::vector<StoredToken>> tokens() const override { return Error{"full"}; }
  Result<int64_t> add_audit(const AuditRow&) override { return Error{"full"}; }
  Result<void> finish_audit(int64_t, std::string_view, int) override { return Error{"full"}; }
  Result<std::vector<AuditRow>> audit(const AuditFilter&) const override { return Error{"full"}; }
  Result<void> save_owners(std::span<const StoredOwner>) override { return Error{"full"}; }
  Result<void> drop_owners(std::span<const StoredOwner>) override { return Error{"full"}; }
  Result<std::vector<StoredOwner>> owners() const override { return Error{"full"}; }
};

}  // namespace lockstep::testing
