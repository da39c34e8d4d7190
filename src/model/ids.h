// The numbers that telemetry is joined by, each with a type of its own (base/strong_id.h).
//
// Formats (the recorder's records, the plugin's C interface, the wire, files, JSON) have plain numbers; they become ids
// where they are read.
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/strong_id.h"

namespace lockstep {

// A communicator as its members call it: NCCL's commHash. 0: none.
using CommId = StrongId<struct CommIdTag, uint64_t>;
inline constexpr CommId kNoCommId{};

// A step as the job numbers it: neither a count of steps nor a place among those that are held. Two of them are so many
// steps apart.
using StepNumber = StrongId<struct StepNumberTag, int64_t, IdArithmetic::kDistance>;
inline constexpr StepNumber kNoStep{-1};
inline constexpr StepNumber kLastStep{INT64_MAX};  // no step comes after it: the end of a range without one

// A process of the job as the job numbers them, from 0: not its number within a communicator, which is a plain int32_t
// called rank_in_comm, nor that on its host, local_rank.
using Rank = StrongId<struct RankTag, int32_t, IdArithmetic::kDistance>;
inline constexpr Rank kNoRank{-1};
inline constexpr int64_t kRanksMost = 10'000'000;  // no job has more: formats that name one are wrong

// Where a rank is in a table that has an entry for each rank of the job, and back.
constexpr size_t index_of(Rank rank) {
  return static_cast<size_t>(rank.value());
}
constexpr Rank rank_at(size_t index) {
  return Rank{static_cast<int32_t>(index)};
}

// All ranks of a job that has so many: for (Rank rank : all_ranks(world_size)).
class RankRange {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(Rank rank) : rank_(rank) {}
    constexpr Rank operator*() const { return rank_; }
    constexpr Iterator& operator++() {
      ++rank_;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    Rank rank_;
  };
  constexpr explicit RankRange(int32_t count) : end_(count < 0 ? 0 : count) {}
  constexpr Iterator begin() const { return Iterator(Rank{0}); }
  constexpr Iterator end() const { return Iterator(end_); }

 private:
  Rank end_;
};
constexpr RankRange all_ranks(int32_t count) {
  return RankRange(count);
}

inline namespace id_literals {
constexpr Rank operator""_rank(unsigned long long number) {
  return Rank{static_cast<int32_t>(number)};
}
constexpr StepNumber operator""_step(unsigned long long number) {
  return StepNumber{static_cast<int64_t>(number)};
}
}  // namespace id_literals

}  // namespace lockstep
