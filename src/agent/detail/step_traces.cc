#include "agent/detail/step_traces.h"

#include <algorithm>

#include "agent/ranks/watched_rank.h"
#include "base/text.h"
#include "model/events.h"

namespace lockstep {

StepTraces::StepTraces(StepTracesOptions options, Counters& counters)
    : counters_(counters), keeper_(options.kept, counters), sampler_(options.budget_bytes_s) {}

void StepTraces::answered(const char* result, int64_t steps) {
  if (steps > 0) counters_.add("lockstep_agent_detail_asked_total", format("result=\"%s\"", result), steps);
}

void StepTraces::add(const Identity& identity, const StepDetail& detail, int64_t now_ns) {
  keeper_.keep(identity, detail, now_ns);
  if (!sampler_.wants(identity, detail)) return;
  const RankKey rank{identity.job_id, identity.attempt, identity.rank};
  // Where more waits than can be sent, what is asked for goes before what is not.
  if (pending_.size() < kPendingMax && keeper_.state(rank, detail.step) == DetailKeeper::State::kHeld)
    pending_.push_back({rank, detail.step, SampledFor::kPeriodic});
}

void StepTraces::ask(const DetailRequest& request) {
  const int64_t steps = request.to_step - request.from_step + 1;
  int64_t ranks_known = 0;
  for (const RankKey& rank : keeper_.ranks_of(request.job_id, request.attempt)) {
    if (!request.ranks.empty() && !std::binary_search(request.ranks.begin(), request.ranks.end(), rank.rank)) continue;
    ++ranks_known;
    for (StepNumber step = request.from_step; step <= request.to_step; ++step) {
      switch (keeper_.state(rank, step)) {
        case DetailKeeper::State::kSent:
          answered("sent_before");
          break;
        case DetailKeeper::State::kNotHere:
          answered("gone");
          break;
        case DetailKeeper::State::kHeld:
          if (pending_.size() < kPendingMax) {
            pending_.push_back({rank, step, SampledFor::kAsked});
          } else {
            answered("busy");
          }
      }
    }
  }
  // Ranks that nobody here remembers; their number is told by the server and may be large.
  answered("gone", (static_cast<int64_t>(request.ranks.size()) - ranks_known) * steps);
}

bool StepTraces::begin_next() {
  while (!pending_.empty() && !current_) {
    const Pending next = std::move(pending_.front());
    pending_.pop_front();
    const bool asked = next.reason == SampledFor::kAsked;
    const bool sent_before = keeper_.state(next.rank, next.step) == DetailKeeper::State::kSent;
    current_ = keeper_.take(next.rank, next.step, next.reason);
    current_reason_ = next.reason;
    next_op_ = 0;
    if (asked) answered(current_ ? "sent" : sent_before ? "sent_before" : "gone");
  }
  return current_.has_value();
}

std::vector<ResourceGroup> StepTraces::take(int64_t now_ns) {
  keeper_.expire(now_ns);
  std::vector<ResourceGroup> groups;
  size_t spans = 0;
  while (spans < kSpansAtOnce && begin_next()) {
    ResourceGroup group{.resource = to_resource(current_->identity), .scope_name = kAgentScope};
    const size_t ops = kSpansAtOnce - spans;
    group.spans = to_spans(current_->identity, current_->detail, current_reason_, next_op_, ops);
    spans += group.spans.size();
    counters_.add("lockstep_agent_detail_spans_total", format("reason=\"%s\"", to_text(current_reason_)),
                  static_cast<int64_t>(group.spans.size()));
    groups.push_back(std::move(group));
    next_op_ += ops;
    if (next_op_ >= current_->detail.ops.size()) current_.reset();
  }
  return groups;
}

}  // namespace lockstep
