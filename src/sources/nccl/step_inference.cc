#include "sources/nccl/step_inference.h"

#include <algorithm>

namespace lockstep {
namespace {

// Sends and receives lead where so many came without a collective among them.
constexpr uint64_t kAloneMin = 64;

// What training repeats; a broadcast hands out beginnings.
bool is_pattern(Function function) {
  return function != Function::kBroadcast && function != Function::kReduce && function != Function::kGather &&
         function != Function::kScatter;
}

// The two before it, their order included.
uint64_t follow(std::array<uint64_t, 2>& before, uint64_t hash) {
  const uint64_t context = before[0] * 3 + before[1] * 5 + 1;
  before = {before[1], hash};
  return context;
}

}  // namespace

void StepInference::add(const PatternOp& op) {
  if (op.comm_id == kNoCommId || op.ordinal == 0) return;
  newest_ns_ = std::max(newest_ns_, op.enqueued_ns);
  if (searching_since_ns_ == 0 || leader() != nullptr) searching_since_ns_ = op.enqueued_ns;

  const PatternKey key{
      .comm_id = op.comm_id, .comm_size = op.comm_size, .function = op.function, .datatype = op.datatype};
  const bool weighs = op.p2p || (op.bytes >= kWeightBytesMin && is_pattern(op.function));
  const bool counts = !op.p2p && weighs;
  PatternSight sight{
      .key = key, .ordinal = op.p2p ? 0 : op.ordinal, .at_ns = op.enqueued_ns, .counts = counts, .ends = weighs};
  ways_[kUnsized].add(sight);
  sight.key.bytes = op.p2p ? 0 : op.bytes;
  ways_[kSized].add(sight);
  PatternSight any = sight;
  any.counts = !op.p2p;
  any.ends = true;
  ways_[kEvery].add(any);
  if (counts) sight.key.context = follow(context_, hash_of(sight.key));
  ways_[kContext].add(sight);

  p2p_alone_ = op.p2p ? p2p_alone_ + 1 : 0;
  PatternSight transfer{
      .key = key, .ordinal = op.p2p ? op.ordinal : 0, .at_ns = op.enqueued_ns, .counts = op.p2p, .ends = op.p2p};
  transfer.key.peer = op.peer;
  if (op.p2p) transfer.key.context = follow(p2p_context_, hash_of(transfer.key));
  ways_[kP2p].add(transfer);
  collect();
}

// After every operation, so that who leads never depends on when somebody asks.
void StepInference::collect() {
  const PatternTracker* lead = nullptr;
  for (PatternTracker& way : ways_) {
    if (!way.has_steps()) continue;
    if (lead == nullptr) lead = leader();
    for (const InferredStep& step : way.take()) {
      if (&way != lead || step.step <= last_step_ || step.start_ns < last_end_ns_) continue;
      steps_.push_back(step);
      last_step_ = step.step;
      last_end_ns_ = step.end_ns;
    }
  }
  if (lead == nullptr) return;
  for (PatternTracker& way : ways_) {
    if (&way != lead) way.number_after(last_step_);
  }
}

const PatternTracker* StepInference::leader() const {
  for (size_t way = 0; way < kWays; ++way) {
    if (ways_[way].following() && (way != kP2p || p2p_alone_ >= kAloneMin)) return &ways_[way];
  }
  return nullptr;
}

void StepInference::finish(int64_t at_ns) {
  for (PatternTracker& way : ways_) way.finish(at_ns);
  collect();
}

StepInference::State StepInference::state() const {
  if (leader() != nullptr) return State::kFollowing;
  if (searching_since_ns_ == 0) return State::kNothing;
  return newest_ns_ - searching_since_ns_ > kCannotTellNs ? State::kCannotTell : State::kSearching;
}

uint64_t StepInference::breaks() const {
  uint64_t sum = 0;
  for (const PatternTracker& way : ways_) sum += way.breaks();
  return sum;
}

int64_t StepInference::open_since_ns() const {
  const PatternTracker* lead = leader();
  return lead == nullptr ? 0 : lead->open_since_ns();
}

}  // namespace lockstep
