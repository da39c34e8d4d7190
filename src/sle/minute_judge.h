// Judges one minute of a job: from what was measured, the verdicts that act in it and faults of hardware to a cell for
// each GPU and SLE.
//
// A value is held against its threshold; a baseline is learned from the job's own minutes (learn()). A degraded minute is
// charged to the heaviest verdict that acts in it and is about what the SLE is about; where there is none, to what was
// measured beside it (a reported checkpoint, steps done again, a restart); else it is unexplained.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/verdict.h"
#include "sle/ledger.h"
#include "sle/minute_measure.h"

namespace lockstep::sle {

// A fault that does not need a job to be seen: of a GPU, or of everything on a host.
struct HardwareFault {
  Sle sle = Sle::kGpu;
  std::string host;
  std::string gpu_uuid;  // "": of the whole host
  std::string what;      // sub-classifier: "ecc", "link-flap", "host.oom_kill"
  int64_t from_unix_ns = 0;
  int64_t to_unix_ns = INT64_MAX;
};

using FaultsByHost = std::unordered_map<std::string, std::vector<HardwareFault>>;

struct MinuteContext {
  const MeasuredMinute& measured;
  int32_t world_size = 0;
  std::shared_ptr<const Placement> placement;
  int32_t present_s = 60;                                           // of the minute in which the job was there
  bool is_starting = false;                                         // an attempt began in this minute or shortly before
  std::span<const Verdict> verdicts = {};                           // that act in it, confirmed
  const FaultsByHost& faults;                                       // also of other minutes
  std::function<bool(const std::string& host)> node_reported = {};  // in this minute
  std::function<bool(const std::string& host)> node_ever_reported = {};  // at all
  const Thresholds& thresholds;
};

// baselines: of the minutes before; learns from this one where `learning`.
JudgedMinute judge(const MinuteContext& context, Baselines baselines, bool learning);

inline constexpr uint16_t kLearnMinutes = 3;        // a baseline is known after so many
inline constexpr uint16_t kNewNormalMinutes = 240;  // degraded and unexplained for so long: that is what the job does
// A degraded minute that somebody explains moves nothing.
void learn(Baseline& baseline, const Threshold& threshold, double value, bool degraded, bool explained);

Owner owner_of(const Verdict& verdict);
// 0: the verdict is not about this; more: the more, the rather it is charged.
int relevance(Sle sle, const Verdict& verdict);

}  // namespace lockstep::sle
