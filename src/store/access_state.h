// What must be kept of who may do what: tokens (as digests), the audit log, and who owns which name. For the whole
// server, so it is in the default tenant's state; every row says whose it is.
//
// Contract (store/state_store_contract_test.cc): what was returned ok for survives a crash; the same id saved again
// replaces. A listing that fails is an error and never empty: no tokens would mean that nobody needs one.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

inline constexpr size_t kAuditRowsMax = 100'000;  // the oldest go
// How the action of a row begins that says who was refused at the gate. Of these there are kAuditRefusalsMax besides:
// who is refused often pushes out nobody's deeds.
inline constexpr std::string_view kAuditRefused = "refused ";
inline constexpr size_t kAuditRefusalsMax = 20'000;

struct StoredToken {
  std::string id;       // short, public
  std::string name;     // what people call it
  std::string digest;   // SHA-256 of the secret, 32 bytes
  std::string roles;    // names of access/role.h, separated by blanks
  std::string tenants;  // names separated by blanks, or "*"
  std::string owner;
  int64_t created_unix_ns = 0;
  int64_t expires_unix_ns = 0;    // 0: never
  int64_t revoked_unix_ns = 0;    // 0: it is not
  int64_t last_used_unix_ns = 0;  // to the minute; 0: never
  bool operator==(const StoredToken&) const = default;
};

struct AuditRow {
  int64_t number = 0;  // counts up; given by the store
  int64_t at_unix_ns = 0;
  std::string tenant;
  std::string who;     // Caller::name
  std::string peer;    // address
  std::string action;  // "POST /api/tokens", "refused GET /api/jobs"
  std::string object;  // job, verdict, token id; never a secret
  int status = 0;      // of the answer; 0: there was none, the server ended before
  bool operator==(const AuditRow&) const = default;
};

struct AuditFilter {
  std::string tenant;  // exactly; all_tenants: of all
  bool all_tenants = false;
  std::string who;     // part of it; empty: anybody
  std::string action;  // part of it; empty: any
  int64_t since_unix_ns = 0;
  size_t limit = 100;  // the newest
};

struct StoredOwner {
  std::string tenant;
  std::string kind;  // "host", "job"
  std::string name;
  std::string owner;
  int64_t used_unix_ns = 0;  // to the day
  bool operator==(const StoredOwner&) const = default;
};

class AccessState {
 public:
  virtual ~AccessState() = default;

  virtual Result<void> save_token(const StoredToken& token) = 0;
  virtual Result<void> note_token_use(std::string_view id,
                                      int64_t last_used_unix_ns) = 0;  // nothing else of it changes
  virtual Result<std::vector<StoredToken>> tokens() const = 0;         // by time of creation

  // Returns the row's number.
  virtual Result<int64_t> add_audit(const AuditRow& row) = 0;
  virtual Result<void> finish_audit(int64_t number, std::string_view object, int status) = 0;
  virtual Result<std::vector<AuditRow>> audit(const AuditFilter& filter) const = 0;  // newest first

  // All or none.
  virtual Result<void> save_owners(std::span<const StoredOwner> owners) = 0;
  virtual Result<void> drop_owners(std::span<const StoredOwner> owners) = 0;
  virtual Result<std::vector<StoredOwner>> owners() const = 0;
};

}  // namespace lockstep
