// Who did what, when, from where, on what, with which result: a row for every request that needs operate or admin, and
// rows for those that were refused at the gate, which stand for many.
//
// The row is written before the handler runs, so that nothing is done that the log does not have, and gets its result
// afterwards; one without a result is of a server that ended in between. Where the log cannot be written, what needs
// admin is refused, and the rest goes on; both are counted.
// Never in a row: secrets, bodies, queries.
// Thread rule: Thread-safe; waits for the disk, so not for the thread of all connections.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/role.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/result.h"
#include "net/caller.h"
#include "store/access_state.h"

namespace lockstep {

class AuditLog {
 public:
  static constexpr size_t kTextBytesMax = 256;  // of each field; the rest is cut

  AuditLog(AccessState& state, const Clock& clock, Counters& counters)
      : state_(state), clock_(clock), counters_(counters) {}

  // The row's number; 0: it could not be written, which a request with the role operate survives. An error: refuse.
  Result<int64_t> begin(const Caller& caller, Role role, std::string_view peer, std::string_view action,
                        std::string_view object);
  void finish(int64_t number, std::string_view object, int status);
  // Who was refused at the gate (access/refusals.h).
  void refused(AuditRow row);
  Result<std::vector<AuditRow>> read(const AuditFilter& filter) const { return state_.audit(filter); }

 private:
  void failed(const std::string& line);

  AccessState& state_;
  const Clock& clock_;
  Counters& counters_;
};

}  // namespace lockstep
