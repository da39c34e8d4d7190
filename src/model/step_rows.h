// The columns of the rows in a train.step event (docs/formats/events.md) and what each may hold, for whoever reads them:
// from values (events.cc) and from bytes (wire/step_walk.cc).
//
// A row is read in order by next(); a value that cannot be makes the row malformed, which ok() says at its end.
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/step.h"

namespace lockstep {

namespace step_bounds {
// Bounds that no job reaches, far enough from the end of the numbers that sums over a window cannot overflow.
inline constexpr int64_t kDayNs = 86'400'000'000'000;
inline constexpr int64_t kCountMost = 1'000'000'000'000'000;
inline constexpr int64_t kTimeMost = INT64_MAX / 4;  // any two differ by a number
}  // namespace step_bounds

// Row: has next(), which is 0 and remembers where there is no such column.
template <typename Row>
class BoundedRow {
 public:
  // A value outside makes the row malformed.
  int64_t next_in(int64_t least, int64_t most) {
    const int64_t value = row().next();
    if (value < least || value > most) {
      ok_ = false;
      return least;
    }
    return value;
  }
  int64_t next_ns() { return next_in(0, step_bounds::kDayNs); }
  int64_t next_time() { return next_in(-step_bounds::kTimeMost, step_bounds::kTimeMost); }
  int64_t next_count() { return next_in(0, step_bounds::kCountMost); }
  bool next_flag() { return row().next() != 0; }
  bool ok() const { return ok_; }

 protected:
  bool ok_ = true;

 private:
  Row& row() { return *static_cast<Row*>(this); }
};

inline constexpr size_t kCommStepColumns = 12;  // always sent

// Row besides: more(), whether there is a further column.
template <typename Row>
CommStep read_comm_step(Row& row) {
  CommStep comm;
  comm.comm_id = CommId{static_cast<uint64_t>(row.next())};
  comm.size = static_cast<int32_t>(row.next_in(0, kRanksMost));  // 0: not known yet
  comm.rank_in_comm = static_cast<int32_t>(row.next_in(0, std::max(comm.size, 1) - 1));
  comm.p2p = row.next_flag();
  comm.count = row.next_count();
  comm.bytes = row.next_count();
  comm.gpu_ns = row.next_count();  // a sum: operations of several streams may run together
  comm.shortest_ns = row.next_ns();
  comm.longest_ns = row.next_ns();
  comm.first_start_unix_ns = row.next_time();
  comm.last_end_unix_ns = row.next_time();
  comm.queue_ns = row.next_count();
  if (row.more()) comm.unseen = row.next_count();
  return comm;
}

template <typename Row>
FlowStep read_flow_step(Row& row) {
  FlowStep flow;
  flow.comm_id = CommId{static_cast<uint64_t>(row.next())};
  flow.peer = static_cast<int32_t>(row.next_in(-1, kRanksMost));
  flow.send = row.next_flag();
  flow.transfers = row.next_count();
  flow.bytes = row.next_count();
  flow.wire_ns = row.next_ns();
  flow.own_gpu_ns = row.next_count();
  flow.peer_ns = row.next_count();
  flow.wire_longest_ns = row.next_ns();
  flow.own_gpu_longest_ns = row.next_ns();
  return flow;
}

}  // namespace lockstep
