// Which steps of which ranks are sent as spans without anybody asking: a little of everything, so that there is always
// a healthy step to compare with. Every agent decides alone and all decide alike.
//
// Steps: those whose number is a multiple of N, a power of two. Agents that came to different N still meet, because the
// steps of a larger N are among those of a smaller one.
// Ranks: the job's ranks in blocks of kBlockRanks in a row (a node's worth: tensor-parallel peers are seen together).
// Block b has its turn at the sampled steps s with (s + b) mod T = 0, where T, from the world size alone, is the
// smallest odd number that leaves about kRanksAtOnce ranks a step. T is odd and N a power of two, so in any T sampled
// steps in a row every block has exactly one turn, whatever N is. Jobs of up to kRanksAtOnce ranks are seen whole (T =
// 1). N follows the budget: the smallest power of two at which a rank's share, spans of a step * kWireBytesPerSpan over
// (step time * N * T), is within it; it falls again only when there is room to spare. A new N holds from the next step
// on that no rank here has ended yet, so that ranks of one node never part over one step.
//
// Limits: kJobsMax jobs are remembered, the one heard of longest ago is forgotten first.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "model/step_detail.h"

namespace lockstep {

class TraceSampler {
 public:
  static constexpr int32_t kBlockRanks = 8;
  static constexpr int32_t kRanksAtOnce = 64;
  static constexpr int64_t kEveryMax = int64_t{1} << 20;
  static constexpr size_t kJobsMax = 64;
  static constexpr size_t kRatesMax = 8;
  // What a span of an operation takes on the wire (OTLP, zstd), its id of eight random bytes included: measured,
  // docs/guide/sampling.md; a test holds it against real spans.
  static constexpr double kWireBytesPerSpan = 40;

  // budget: bytes a second and rank, over time. 0: nothing is sampled.
  explicit TraceSampler(double budget_bytes_s) : budget_bytes_s_(budget_bytes_s) {}

  // A step of a rank is over: is it to be sent? Learns from every step what steps cost.
  bool wants(const Identity& identity, const StepDetail& detail);
  // N of a job now; 0: it is not known, or nothing is sampled.
  int64_t every(const std::string& job_id, int64_t attempt) const;

  static int64_t turns(int32_t world_size);
  static bool has_turn(StepNumber step, Rank rank, int32_t world_size);

 private:
  struct Job {
    double spans = 0;  // of a step of a rank, moving average
    double seconds = 0;
    struct Rate {
      StepNumber from_step;
      int64_t every;
    };
    std::deque<Rate> rates;  // the last kRatesMax, oldest first
    StepNumber newest_step;
    uint64_t heard = 0;
    int64_t every(StepNumber step) const;
  };
  const double budget_bytes_s_;
  std::map<std::pair<std::string, int64_t>, Job> jobs_;
  uint64_t heard_ = 0;
};

}  // namespace lockstep
