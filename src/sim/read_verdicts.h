// Verdicts as any client of the API knows them: as JSON (docs/formats/api.md), and no other way.
//
// On error: one clear line; what a verdict lacks besides its id and culprit.rank is empty.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "model/verdict_terms.h"

namespace lockstep::sim {

struct ReadVerdict {
  std::string id, sentence;
  // None: not said, or a word that this version does not know.
  std::optional<VerdictState> state;
  std::optional<VerdictKind> kind;
  std::optional<Layer> layer;
  Cause cause = Cause::kNone;
  std::vector<Rank> ranks;
  std::string place;                      // in the network
  std::vector<std::string> alternatives;  // their culprits, best first
  std::vector<std::string> commands;      // that are offered next
  double lost_share = -1;                 // of a step, that it costs the job; -1: not said
  bool operator==(const ReadVerdict&) const = default;
};
// From a JSON array of verdicts, or from an answer of GET /api/jobs/{job}/why.
Result<std::vector<ReadVerdict>> read_verdicts(std::string_view json);

}  // namespace lockstep::sim
