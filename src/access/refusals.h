// Who was refused at the gate, on the way to the audit log: for each token and each address at most one row a minute,
// which says how often. The first refusal is a row within a moment; what follows within the minute is the next row.
//
// A row has the endpoint that was asked for as the tables name it (or that there is none), never its path, query or
// headers, nor what was shown: nobody writes into the log from outside. Whoever is not known is of no tenant, and so
// the operator's to see (kTenantOfNobody).
// Limits: kSourcesMax tokens and as many addresses at a time, further ones share a row; so there are at most
//   2 * (kSourcesMax + 1) rows a minute. In the store they have room of their own (kAuditRefusalsMax).
// Thread rule: Thread-safe; note() touches no disk.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "net/caller.h"
#include "store/access_state.h"

namespace lockstep {

class Refusals {
 public:
  static constexpr size_t kSourcesMax = 64;
  static constexpr int64_t kEveryNs = 60'000'000'000;
  static constexpr const char* kTenantOfNobody = "*";  // no tenant is called so

  // caller: who it was; nullptr: nobody knows. peer: "203.0.113.9:5123". endpoint: "GET /api/jobs/{job}".
  void note(const Caller* caller, std::string_view peer, std::string_view endpoint, int status, int64_t now_unix_ns);
  // What is a row now. Somebody asks a few times a second.
  std::vector<AuditRow> take_due(int64_t now_ns);

 private:
  struct Source {
    AuditRow newest;
    int64_t first_unix_ns = 0;  // of those that are in no row yet
    int64_t waiting = 0;
    int64_t written_ns = 0;  // when it last was a row; monotonic
    bool was_written = false;
  };
  using Sources = std::map<std::string, Source, std::less<>>;
  static void take_due(Sources& sources, int64_t now_ns, std::vector<AuditRow>& rows);

  Mutex mutex_;
  Sources known_ LOCKSTEP_GUARDED_BY(mutex_);    // by tenant and name
  Sources unknown_ LOCKSTEP_GUARDED_BY(mutex_);  // by address
};

}  // namespace lockstep
