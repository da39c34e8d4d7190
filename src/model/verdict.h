// The answer: who makes the job slow or stuck, since when, what it costs, and the evidence for it (design section 7).
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/ids.h"
#include "model/verdict_terms.h"

namespace lockstep {

struct Culprit {
  std::vector<Rank> ranks;
  std::string host;
  std::string gpu_uuid;
  Layer layer = Layer::kUnknown;
  std::string component;  // "GPU of rank 5", "link rank 1 -> rank 2"
  Cause cause = Cause::kNone;
  // Where in the network, as `lockstep fabric --affected` takes it: "link:leaf-3:up1". Empty, and then not in the JSON:
  // not in the network, or not told which.
  std::string place;
};

struct Claim {
  std::string claim;  // a sentence
  ClaimKind kind = ClaimKind::kWaitsFor;
  std::string subject;  // "rank 5"
  double value = 0;
  std::string unit;
  double baseline = 0;
  double peers = 0;
  StepNumber from_step;
  StepNumber to_step;
  std::string query;  // API path that shows the numbers again
};

struct Alternative {
  std::string culprit;  // for people: "ecc (gpu)", "another member of all 8 ranks"
  double score = 0;
  std::string why_lower;
  std::string decided_by;
  Cause cause = Cause::kNone;  // where it is another cause; else it is a thing
  bool checked = true;         // false: nobody reports what would show it, so it is neither likely nor excluded
};

struct NextAction {
  std::string action;
  std::string command;
};

struct Verdict {
  std::string id;  // stable: the same finding keeps its id while it is updated
  std::string job_id;
  int64_t attempt = 0;
  VerdictState state = VerdictState::kSuspected;
  VerdictKind kind = VerdictKind::kSlow;
  Pattern pattern = Pattern::kPersistent;  // how it comes back, by the steps in which the culprit was late
  int64_t period_steps = 0;                // periodic: from one time to the next; 0: it is not
  double period_s = 0;                     // the same in time, by what a step takes now
  StepNumber since_step = kNoStep;
  StepNumber through_step = kNoStep;
  int64_t since_unix_ns = 0;
  int64_t found_unix_ns = 0;  // when the verdict was first given
  double lost_gpu_seconds = 0;
  double lost_share = 0;        // 0..1 of the job's time
  double lost_share_alone = 0;  // the same were nobody else late beside it; 0: not known. Not in the JSON
  double confidence = 0;        // 0..1
  double coverage = 0;          // 0..1: ranks heard of in the window
  double clock_error_us = 0;
  std::string sentence;
  Culprit culprit;
  std::vector<Claim> chain;
  std::vector<Rank> victim_ranks;
  std::vector<std::string> victim_groups;
  double victim_gpu_minutes = 0;
  std::vector<Alternative> alternatives;
  std::vector<NextAction> next;
};

// The JSON object of design section 7, fields in that order. Of the victims, which may be a hundred thousand, the
// number and so many.
inline constexpr size_t kVictimsReportedMax = 64;
std::string to_json(const Verdict& verdict);
// Reads what to_json wrote is the state store's business: it keeps the JSON.

}  // namespace lockstep
