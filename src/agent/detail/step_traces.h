// Steps in detail, from their end to the wire: every step is kept for a while, sampled ones and those that the server
// asks for are sent as spans, a piece at a time, each once.
//
// Counts: lockstep_agent_detail_steps_total = sent + left_out + held (detail_keeper.h). Of what was asked for:
//   lockstep_agent_detail_asked_total by result: sent, sent_before, gone (no longer or never here), busy (too much was
//   asked at once).
// Limits: kSpansAtOnce spans a take(); kPendingMax steps of ranks wait to be sent.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "agent/detail/detail_keeper.h"
#include "agent/detail/trace_sampler.h"
#include "base/counters.h"
#include "model/detail_request.h"
#include "model/step_detail.h"
#include "model/telemetry.h"

namespace lockstep {

struct StepTracesOptions {
  DetailLimits kept;
  double budget_bytes_s = 40;  // a second and rank, for what is sent unasked
};

class StepTraces {
 public:
  // As Span values they take some 1.2 kB each, and a few of these pieces gather before they are encoded.
  static constexpr size_t kSpansAtOnce = 500;
  static constexpr size_t kPendingMax = 16'384;

  StepTraces(StepTracesOptions options, Counters& counters);

  void add(const Identity& identity, const StepDetail& detail, int64_t now_ns);
  void ask(const DetailRequest& request);
  // The next spans to send, one group a rank; none: nothing waits.
  std::vector<ResourceGroup> take(int64_t now_ns);
  // Where the ranks remembered here say they run: in a container that need not be this node's name.
  std::vector<std::string> hosts() const { return keeper_.hosts(); }

 private:
  struct Pending {
    RankKey rank;
    StepNumber step;
    SampledFor reason;
  };
  void answered(const char* result, int64_t steps = 1);
  bool begin_next();

  Counters& counters_;
  DetailKeeper keeper_;
  TraceSampler sampler_;
  std::deque<Pending> pending_;
  std::optional<DetailKeeper::Taken> current_;  // being sent
  SampledFor current_reason_ = SampledFor::kPeriodic;
  size_t next_op_ = 0;
};

}  // namespace lockstep
