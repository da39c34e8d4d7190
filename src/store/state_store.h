// State that must outlive everything else: verdicts (jobs, incidents, silences and tokens join it later).
//
// Contract (store/state_store_contract_test.cc): what save_verdict() returned ok for survives a crash; the same id
// saved again replaces; listing is newest found first. Thread rule: Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/verdict.h"

namespace lockstep {

struct StoredVerdict {
  std::string id;
  std::string job_id;
  std::string state;
  int64_t found_unix_ns = 0;
  std::string json;  // as to_json(Verdict) wrote it
};

class StateStore {
 public:
  virtual ~StateStore() = default;
  virtual Result<void> save_verdict(const Verdict& verdict) = 0;
  virtual std::vector<StoredVerdict> verdicts(std::string_view job_id) const = 0;  // empty: of all jobs
};

}  // namespace lockstep
