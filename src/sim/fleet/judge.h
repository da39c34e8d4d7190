// Compares what was injected with what was found. It knows verdicts as the API's JSON only (docs/formats/api.md), as
// any client does.
//
// A verdict is right when it names a fault that was injected before: same job, kind, rank and layer (slow-gpu: gpu;
// slow-input: input; slow-link: link or nic; missing-rank: a hang, whatever the layer). Every other verdict that was
// ever open is a mistake, and so is a fault that no confirmed verdict names. While a verdict is only suspected its
// layer may still be "unknown": not to know yet is no mistake.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "sim/fleet/fault.h"
#include "sim/read_verdicts.h"

namespace lockstep::sim {

// One injected fault and what became of it. Times on the caller's clock; 0: not yet, or never.
struct Trial {
  std::string job;
  Fault fault;
  StepNumber step;
  int64_t injected_ns = 0, cleared_ns = 0;
  int64_t suspected_ns = 0, confirmed_ns = 0, verdict_cleared_ns = 0;
  StepNumber named_step;  // the job's last step when the confirmed verdict was seen
  std::string sentence;
  Cause cause = Cause::kNone;  // as its verdict said last
  // A slow GPU is what steps show; why it is slow its node says, later.
  bool is_explained() const { return cause != Cause::kNone && cause != Cause::kSlowCompute; }
};

class Judge {
 public:
  static constexpr int64_t kLateNs = 8'000'000'000;
  static constexpr size_t kNone = static_cast<size_t>(-1);

  size_t injected(std::string job, Fault fault, StepNumber step, int64_t now_ns);
  void cleared(size_t trial, int64_t now_ns) { trials_[trial].cleared_ns = now_ns; }

  struct Sighting {
    ReadVerdict verdict;
    size_t trial = kNone;  // kNone: a mistake
  };
  // What a look at a job showed. Returns the verdicts that are new, in a new state or of another cause.
  std::vector<Sighting> saw(const std::string& job, const std::vector<ReadVerdict>& verdicts, StepNumber job_step,
                            int64_t now_ns);

  const std::vector<Trial>& trials() const { return trials_; }
  // One line each; a fault without a verdict counts from now on.
  std::vector<std::string> mistakes() const;

 private:
  std::vector<Trial> trials_;
  std::map<std::string, std::string> state_of_;  // job and verdict id -> what was told of it last
  std::set<std::string> wrong_ids_;              // job and verdict id: one mistake, however often it changes
  std::vector<std::string> wrong_verdicts_;
};

}  // namespace lockstep::sim
