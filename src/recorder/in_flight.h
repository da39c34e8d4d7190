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

  // For a communicator whose identity comes with its first operation (before NCCL 2.27).
  void identify(uint32_t row, const Comm& comm);
  // NCCL's API was called for this communicator.
  void count_call(uint32_t row, bool p2p) { layout::add(p2p ? rows_[row].p2p_calls : rows_[row].collective_calls); }
  // With many communicators a row is in no cache by the time its turn comes round. These two have it fetched while the
  // caller does something else: before a call is counted, and before an operation is enqueued.
  void fetch_counts(uint32_t row) const { __builtin_prefetch(&rows_[row].collectives_enqueued, 1); }
  void fetch_next_entry(uint32_t row) const {
    __builtin_prefetch(&rows_[row].ops[layout::load(rows_[row].inserted) % layout::kRecentOps], 1);
    __builtin_prefetch(&rows_[row].collectives_completed, 1);
  }
  // Another operation of this communicator, enqueued after this one, has completed: nobody waits for this one any more.
  bool overtaken(uint32_t row, uint64_t position) const { return layout::load(rows_[row].newest_completed) > position; }

  struct Op {
    uint64_t seq = 0;
    uint64_t bytes = 0;
    uint64_t now_ns = 0;
    uint64_t detail = 0;  // op_detail_word(); peer, function and type are kept
    uint64_t p2p = 0;     // 0 or 1
    // It will be completed(). Then it keeps its place against newer ones until that comes. Else the oldest always goes,
    // a collective counts as completed as soon as one after it is, and a point-to-point operation at once.
    uint64_t end_is_seen = 1;
  };
  struct Ticket {  // names the operation in the calls below
    uint64_t op_id = 0;
    uint64_t ordinal = 0;
    uint64_t position = 0;  // 0, 1, ... on this row
    uint32_t entry = 0;
    bool p2p = false;
    bool end_is_seen = true;
  };
  Ticket enqueue(uint32_t row, uint64_t epoch, const Op& op);
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
  static constexpr uint64_t kEndNotSeen = 1ULL << 49;  // in OpEntry::detail
  static constexpr uint64_t tag_of(uint64_t op_id, InFlightState state) {
    return op_id << 8 | static_cast<uint64_t>(state);
  }
  static bool unfinished(uint64_t tag) {
    const uint64_t state = tag & 0xFF;
    return state == static_cast<uint64_t>(InFlightState::kEnqueued) ||
           state == static_cast<uint64_t>(InFlightState::kStarted);
  }
  static void fill(layout::OpEntry& entry, uint64_t old_tag, const Op& op, const Ticket& ticket);

  layout::FileHeader* header_ = nullptr;
  layout::CommRow* rows_ = nullptr;
  uint32_t row_count_ = 0;
};

// Here, so that what it is given and what it gives back stays in registers: it is the dearest part of a callback.
inline InFlightTable::Ticket InFlightTable::enqueue(uint32_t row_index, uint64_t epoch, const Op& op) {
  layout::CommRow& row = rows_[row_index];
  Ticket ticket{.p2p = op.p2p != 0, .end_is_seen = op.end_is_seen != 0};
  ticket.position = layout::add(row.inserted);
  ticket.op_id = (epoch << layout::kOpIdPositionBits | (ticket.position + 1)) & ((1ULL << 56) - 1);
  ticket.entry = static_cast<uint32_t>(ticket.position % layout::kRecentOps);

  layout::OpEntry& oldest = row.ops[ticket.entry];
  uint64_t tag = layout::load(oldest.tag, std::memory_order_acquire);
  // An operation is waited for while nothing enqueued after it has completed. One that was overtaken has lost its
  // completion somewhere and must not hold its place for ever.
  if (op.end_is_seen != 0 && unfinished(tag) && (layout::load(oldest.detail) & kEndNotSeen) == 0 &&
      layout::load(row.newest_completed) <= layout::load(oldest.position)) {
    ticket.entry = layout::kNewestEntry;
    tag = layout::load(row.ops[ticket.entry].tag, std::memory_order_acquire);
  }
  ticket.ordinal = layout::add(op.p2p != 0 ? row.p2p_enqueued : row.collectives_enqueued) + 1;
  if (op.p2p != 0 && op.end_is_seen == 0) layout::add(row.p2p_completed);
  fill(row.ops[ticket.entry], tag, op, ticket);
  return ticket;
}

inline void InFlightTable::fill(layout::OpEntry& entry, uint64_t old_tag, const Op& op, const Ticket& ticket) {
  // Another thread is at this entry: the operation is not shown, only counted. (Two threads that both saw the old tag
  // must be a whole ring of operations apart and within nanoseconds of each other.)
  if ((old_tag & 0xFF) == layout::kEntryFilling) return;
  layout::store(entry.tag, ticket.op_id << 8 | layout::kEntryFilling);
  layout::store_fence();
  layout::store(entry.ordinal, ticket.ordinal);
  layout::store(entry.seq, op.seq);
  layout::store(entry.bytes, op.bytes);
  layout::store(entry.enqueued_ns, op.now_ns);
  layout::store(entry.started_ns, 0);
  layout::store(entry.detail, (op.detail & 0xFFFF'FFFFFFFF) | op.p2p << 48 | (op.end_is_seen != 0 ? 0 : kEndNotSeen));
  layout::store(entry.position, ticket.position);
  layout::store(entry.tag, tag_of(ticket.op_id, InFlightState::kEnqueued), std::memory_order_release);
}

}  // namespace lockstep
