// The operations-in-flight table of a recorder file, as its writer sees it: one row per communicator, updated in place,
// so that whoever looks at a frozen or dead process still sees what it was doing.
//
// Thread rule: Thread-safe, lock-free; every call is O(1) but claim().
// Limits:      layout::kRecentOps operations per row. Where more are in flight, the oldest ones and the very newest are
//              shown; the counts of enqueued and completed operations tell how many are not.
#pragma once

#include <cstdint>

#include "recorder/layout.h"

namespace lockstep {

class InFlightTable {
 public:
  InFlightTable() = default;
  InFlightTable(layout::FileHeader* header, layout::CommRow* rows, uint32_t row_count)
      : header_(header), rows_(rows), row_count_(row_count) {}

  struct Comm {
    uint64_t comm_id = 0;
    int32_t size = 0;
    int32_t rank_in_comm = 0;
    int32_t nodes = 0;
    const char* name = nullptr;  // the first 63 bytes are kept; may be null
  };
  struct Claim {
    int32_t row = -1;    // -1: every row holds a live communicator
    uint64_t epoch = 0;  // different for every communicator this process ever made
  };
  // Takes a row that was never used, else the finalized one that was made first. For communicator creation, not for a
  // hot path.
  Claim claim(const Comm& comm);
  void finalize(uint32_t row, uint64_t epoch);
  // Any row may be asked for. The calls below take a row that was live.
  bool live(uint32_t row, uint64_t epoch) const {
    return row < row_count_ &&
           layout::load(rows_[row].state, std::memory_order_acquire) == row_word(epoch, layout::RowState::kLive);
  }
  Comm comm(uint32_t row) const;  // of a live row; the name is not given

  struct Op {
    uint64_t op_id = 0;  // non-zero, below 2^56
    uint64_t seq = 0;
    uint64_t bytes = 0;
    uint64_t now_ns = 0;
    int32_t peer = -1;
    Function function = Function::kUnknown;
    Datatype datatype = Datatype::kUnknown;
    bool p2p = false;
  };
  struct Ticket {  // names the operation in the calls below
    uint64_t op_id = 0;
    uint64_t ordinal = 0;
    uint64_t position = 0;
    uint32_t entry = 0;
    bool p2p = false;
  };
  // completion_is_seen: operations of this row will be completed(). Then an old operation that has not completed keeps
  // its place against newer ones; without it the oldest always goes.
  Ticket enqueue(uint32_t row, const Op& op, bool completion_is_seen);
  void started(uint32_t row, const Ticket& ticket, uint64_t now_ns);
  void completed(uint32_t row, const Ticket& ticket);

  // state: NCCL's number of a proxy step state; others are ignored. The steps of a communicator are all on one thread,
  // the proxy thread of its GPU, so these count without an atomic addition, which would cost as much as all the rest.
  void proxy_enter(uint32_t row, int state, int32_t peer, uint64_t now_ns);
  void proxy_leave(uint32_t row, int state, uint64_t now_ns);

 private:
  static constexpr uint64_t row_word(uint64_t epoch, layout::RowState state) {
    return epoch << 2 | static_cast<uint64_t>(state);
  }
  void fill(layout::OpEntry& entry, uint64_t old_tag, const Op& op, const Ticket& ticket);

  layout::FileHeader* header_ = nullptr;
  layout::CommRow* rows_ = nullptr;
  uint32_t row_count_ = 0;
};

}  // namespace lockstep
