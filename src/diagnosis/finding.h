// What a detector says: one suspicion with its evidence, before the engine words it, follows it over time and prices
// it.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/verdict.h"

namespace lockstep {

// The subject of what is slow between the hosts, whichever ranks meet it.
inline constexpr const char* kInTheFabric = "fabric";

struct Finding {
  VerdictKind kind = VerdictKind::kSlow;
  std::vector<Rank> ranks;
  std::string subject;  // what the finding is about where that is not its ranks; keeps it one verdict while they change
  // "own" time or "net": what it is followed by while layer and cause become clearer; the engine's.
  std::string fault_class;
  Layer layer = Layer::kUnknown;
  std::string component;
  std::string place;  // in the network, as Culprit has it
  Cause cause = Cause::kNone;
  bool sure = false;        // enough evidence for "confirmed"
  bool by_signals = false;  // a node's signals name its layer and cause; the engine's
  // Steps alone say too little yet; with a node's signals that explain it there are two witnesses.
  bool sure_with_signals = false;
  bool only_with_signals = false;  // without them it is not even suspected
  // The same numbers fit something else, which only a node's signals can show: then it is that.
  std::shared_ptr<const Finding> fallback;
  StepNumber since_step = kNoStep;
  StepNumber through_step = kNoStep;
  int64_t lost_ns_per_step = 0;  // averaged over all steps since then, slow or not
  int64_t lost_alone_ns = 0;     // a step, were nobody else late beside it; 0: the same as above
  int64_t step_ns = 0;           // a step as it is
  int64_t step_without_ns = 0;   // a step as it would be
  double steps_hit = 1;          // share of steps that are hit (1: every step)
  std::string sentence;          // who, what, when, what it costs: a template (verdicts/verdict_sentence.h)
  std::vector<Claim> chain;
  std::vector<Alternative> alternatives;
  std::vector<NextAction> next;
  std::vector<Rank> victims;
  std::vector<std::string> victim_groups;
  double confidence = 0;
  double coverage = 0;
  // Healthy steps in a row after which the finding counts as over.
  int64_t clear_after_steps = 8;
};

// A stretch of steps in which a rank's slowness already has a verdict of its own.
struct AttributedRange {
  Rank rank = kNoRank;
  StepNumber from_step;
  StepNumber to_step;
  bool sure = true;  // confirmed, not only suspected
};

}  // namespace lockstep
