#include "recorder/in_flight.h"

#include <array>
#include <cstring>

namespace lockstep {

using layout::add;
using layout::load;
using layout::RowState;
using layout::store;
using layout::swap_if;

namespace {

RowState state_of(uint64_t word) {
  return static_cast<RowState>(word & 3);
}
// A communicator's name, word by word, because a reader may be looking.
void store_name(char (&target)[64], const char* name) {
  uint64_t words[8] = {};
  if (name != nullptr) std::memcpy(words, name, strnlen(name, sizeof words - 1));
  auto* target_words = reinterpret_cast<uint64_t*>(target);
  for (int i = 0; i < 8; ++i) store(target_words[i], words[i]);
}

// Index of a state's cell, by NCCL's number; 0xFF: none.
constexpr std::array<uint8_t, 32> kCellOfState = [] {
  std::array<uint8_t, 32> cells{};
  cells.fill(0xFF);
  for (uint8_t i = 0; i < layout::kProxyCells; ++i) cells[layout::kProxyStates[i]] = i;
  return cells;
}();
layout::ProxyCell* cell_of(layout::CommRow& row, int state) {
  if (state < 0 || state >= static_cast<int>(kCellOfState.size()) || kCellOfState[static_cast<size_t>(state)] == 0xFF)
    return nullptr;
  return &row.proxy[kCellOfState[static_cast<size_t>(state)]];
}

}  // namespace

InFlightTable::Claim InFlightTable::claim(const Comm& comm) {
  // Another thread may take the row that was found; every retry means that somebody else got one, so this ends.
  for (uint32_t attempt = 0; attempt <= row_count_; ++attempt) {
    int32_t found = -1;
    uint64_t found_word = ~0ULL;
    for (uint32_t i = 0; i < row_count_; ++i) {
      const uint64_t word = load(rows_[i].state);
      const bool usable = state_of(word) == RowState::kFree || state_of(word) == RowState::kFinalized;
      if (usable && word < found_word) {  // a free row's word is 0, an older epoch's is smaller
        found = static_cast<int32_t>(i);
        found_word = word;
      }
    }
    if (found < 0) return {};
    layout::CommRow& row = rows_[found];
    const uint64_t epoch = add(header_->comm_epochs) + 1;
    if (!swap_if(row.state, found_word, row_word(epoch, RowState::kFilling))) continue;

    layout::store_fence();
    store(row.comm_id, comm.comm_id);
    store(row.size, comm.size);
    store(row.rank_in_comm, comm.rank_in_comm);
    store(row.nodes, comm.nodes);
    store_name(row.name, comm.name);
    for (uint64_t* word : {&row.collectives_enqueued, &row.p2p_enqueued, &row.inserted, &row.collectives_completed,
                           &row.p2p_completed, &row.newest_completed, &row.collective_calls, &row.p2p_calls}) {
      store(*word, 0);
    }
    for (auto& cell : row.proxy) {
      store(cell.count, 0);
      store(cell.peer, -1);
      store(cell.since_ns, 0);
    }
    for (auto& entry : row.ops) store(entry.tag, 0);
    store(row.state, row_word(epoch, RowState::kLive), std::memory_order_release);

    const uint64_t used = static_cast<uint64_t>(found) + 1;
    for (uint64_t seen = load(header_->comm_rows_used); seen < used; seen = load(header_->comm_rows_used)) {
      if (swap_if(header_->comm_rows_used, seen, used)) break;
    }
    return {found, epoch};
  }
  return {};
}

void InFlightTable::finalize(uint32_t row, uint64_t epoch) {
  if (!swap_if(rows_[row].state, row_word(epoch, RowState::kLive), row_word(epoch, RowState::kFinalized))) return;
  for (auto& cell : rows_[row].proxy) store(cell.count, 0);
}

InFlightTable::Comm InFlightTable::comm(uint32_t row) const {
  return {.comm_id = load(rows_[row].comm_id),
          .size = load(rows_[row].size),
          .rank_in_comm = load(rows_[row].rank_in_comm),
          .nodes = load(rows_[row].nodes)};
}

void InFlightTable::identify(uint32_t row_index, const Comm& comm) {
  layout::CommRow& row = rows_[row_index];
  store(row.rank_in_comm, comm.rank_in_comm);
  store_name(row.name, comm.name);
  store(row.comm_id, comm.comm_id, std::memory_order_release);
}

void InFlightTable::started(uint32_t row, const Ticket& ticket, uint64_t now_ns) {
  layout::OpEntry& entry = rows_[row].ops[ticket.entry];
  // The time first: a reader that sees "started" then also sees since when.
  if (load(entry.tag) != tag_of(ticket.op_id, InFlightState::kEnqueued)) return;
  store(entry.started_ns, now_ns);
  swap_if(entry.tag, tag_of(ticket.op_id, InFlightState::kEnqueued), tag_of(ticket.op_id, InFlightState::kStarted));
}

void InFlightTable::completed(uint32_t row_index, const Ticket& ticket) {
  layout::CommRow& row = rows_[row_index];
  layout::OpEntry& entry = row.ops[ticket.entry];
  const uint64_t done = tag_of(ticket.op_id, InFlightState::kCompleted);
  if (!swap_if(entry.tag, tag_of(ticket.op_id, InFlightState::kStarted), done)) {
    swap_if(entry.tag, tag_of(ticket.op_id, InFlightState::kEnqueued), done);
  }
  if (!ticket.p2p) {
    // They run in order: those before it are over as well, whether their end was seen or not.
    for (uint64_t seen = load(row.collectives_completed); seen < ticket.ordinal;
         seen = load(row.collectives_completed)) {
      if (swap_if(row.collectives_completed, seen, ticket.ordinal)) break;
    }
  } else if (ticket.end_is_seen) {
    add(row.p2p_completed);
  }
  if (load(row.newest_completed) <= ticket.position) store(row.newest_completed, ticket.position + 1);
}

void InFlightTable::proxy_enter(uint32_t row, int state, int32_t peer, uint64_t now_ns) {
  layout::ProxyCell* cell = cell_of(rows_[row], state);
  if (cell == nullptr) return;
  store(cell->peer, peer);
  store(cell->since_ns, now_ns);
  store(cell->count, load(cell->count) + 1, std::memory_order_release);
}

void InFlightTable::proxy_leave(uint32_t row, int state, uint64_t now_ns) {
  layout::ProxyCell* cell = cell_of(rows_[row], state);
  if (cell == nullptr) return;
  store(cell->since_ns, now_ns);
  const uint32_t count = load(cell->count);
  if (count > 0) store(cell->count, count - 1);  // 0: finalizing has cleared it
}

}  // namespace lockstep
