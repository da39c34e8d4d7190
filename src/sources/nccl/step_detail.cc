// RankAssembler: what was in a step, one by one.
#include <algorithm>

#include "sources/nccl/rank_assembler.h"

namespace lockstep {

OpSpan RankAssembler::span_of(const Op& op) const {
  OpSpan span;
  if (const InFlightComm* comm = comm_of(op.comm_index)) {
    span.comm_id = CommId{comm->comm_id};
    span.comm_size = comm->size;
    span.rank_in_comm = comm->rank_in_comm;
  }
  span.p2p = op.p2p;
  span.function = to_text(op.function);
  span.datatype = to_text(op.datatype);
  span.seq = op.seq;
  span.ordinal = op.ordinal;
  span.peer = op.peer;
  span.bytes = op.bytes;
  span.enqueued_unix_ns = span.start_unix_ns = op.enqueued_ns + unix_shift_ns_;
  span.timed = op.timed;
  if (op.timed) {
    Interval when = on_host(op);
    span.start_unix_ns = when.begin + unix_shift_ns_;
    span.duration_ns = std::max<int64_t>(0, when.end - when.begin);
  }
  return span;
}

StepDetail RankAssembler::detail_of(OpenStep& step) const {
  StepDetail detail;
  detail.step = step.step;
  detail.start_unix_ns = step.start_ns + unix_shift_ns_;
  detail.duration_ns = step.end_ns - step.start_ns;
  detail.inferred = step.inferred;
  detail.left_out = static_cast<int64_t>(step.records_lost) + step.unseen + step.phases_left_out;
  detail.phases = std::move(step.phases);
  detail.notes = std::move(step.notes);
  for (const auto& [arrival, op] : ops_) {
    if (op.to_itself || op.enqueued_ns < step.start_ns || op.enqueued_ns >= step.end_ns) continue;
    if (detail.ops.size() < kOpsPerDetailMax) {
      detail.ops.push_back(span_of(op));
    } else {
      ++detail.left_out;
    }
  }
  std::stable_sort(detail.ops.begin(), detail.ops.end(),
                   [](const OpSpan& a, const OpSpan& b) { return a.start_unix_ns < b.start_unix_ns; });
  return detail;
}

}  // namespace lockstep
