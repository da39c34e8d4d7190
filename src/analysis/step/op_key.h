// What makes an operation the same one on all its ranks: a collective its place in the communicator, a message who
// sends, who receives and how many went before.
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/step_detail.h"

namespace lockstep {

struct OpKey {
  CommId comm_id;
  uint64_t number = 0;  // ordinal; of a message its sequence
  int32_t from = -1;    // in the communicator; -1: a collective
  int32_t to = -1;
  bool operator==(const OpKey&) const = default;
};

inline OpKey key_of(const OpSpan& op) {
  if (!op.p2p) return {op.comm_id, op.ordinal, -1, -1};
  const bool sends = op.function == "Send";
  return {op.comm_id, op.seq, sends ? op.rank_in_comm : op.peer, sends ? op.peer : op.rank_in_comm};
}

struct OpKeyHash {
  size_t operator()(const OpKey& key) const {
    uint64_t hash = key.comm_id.value() * 0x9E3779B97F4A7C15u ^ key.number;
    hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9u +
           (static_cast<uint64_t>(static_cast<uint32_t>(key.from)) << 32 | static_cast<uint32_t>(key.to));
    return static_cast<size_t>((hash ^ (hash >> 32)) * 0x94D049BB133111EBu);
  }
};

}  // namespace lockstep
