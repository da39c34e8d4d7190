// State that must outlive everything else: verdicts, what people said of them, and who may do what
// (store/access_state.h; incidents and silences join it later).
//
// Contract (store/state_store_contract_test.cc): what save_verdict() and save_feedback() returned ok for survives a
// crash; the same id saved again replaces; listings are newest first.
// Thread rule: Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/feedback.h"
#include "model/verdict.h"
#include "store/access_state.h"

namespace lockstep {

inline constexpr size_t kFeedbackMax = 20'000;  // answers of people; the newest are kept

struct StoredVerdict {
  std::string id;
  std::string job_id;
  std::string state;
  int64_t found_unix_ns = 0;
  std::string json;  // as to_json(Verdict) wrote it
};

class StateStore : public AccessState {
 public:
  virtual Result<void> save_verdict(const Verdict& verdict) = 0;
  virtual std::vector<StoredVerdict> verdicts(std::string_view job_id) const = 0;  // empty: of all jobs

  virtual Result<void> save_feedback(const VerdictFeedback& feedback) = 0;
  virtual Result<void> drop_feedback(std::string_view verdict_id) = 0;  // nothing where there is none
  virtual std::vector<VerdictFeedback> feedback() const = 0;
};

}  // namespace lockstep
