// The state of a tenant of which a part follows its jobs: alerts, what is still to be sent of them, silences, what was done
// for verdicts, and incidents are saved here and given to all analyzers (bus/shared_rows.h), tokens to gateways as well. The
// rest is this process's.
//
// On error: what is saved here and could not be given to the others is an error: whoever saves tries again.
// Thread rule: Thread-safe, as what it stands for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bus/shared_rows.h"
#include "store/state_store.h"

namespace lockstep {

// rows: outlives it. tenant: empty: the default one. token_secret: by which tokens are signed (shared_tokens.h); empty: they
// are not shared.
std::unique_ptr<StateStore> share_state(std::unique_ptr<StateStore> state, std::string tenant, SharedRows& rows,
                                        std::string token_secret = {});

// What all analyzers have of a tenant.
struct SharedState {
  std::vector<StoredAlertRow> alerts;
  std::vector<StoredIncident> incidents;
};
SharedState shared_state(const SharedRows& rows, const std::string& tenant);
// One alert of it, as JSON; empty: none is there.
std::string shared_alert(const SharedRows& rows, const std::string& tenant, const std::string& fingerprint);

}  // namespace lockstep
