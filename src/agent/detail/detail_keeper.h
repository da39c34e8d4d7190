// The last minutes of detail of every rank of this node, in memory, packed. What is taken out to be sent is not here
// any more, so nothing is sent twice; that it was sent is remembered as long as it would have been kept.
//
// Limits: bytes_max over all ranks (what is packed, and kEntryBytes for each step remembered), age_ns; beyond either
// the
//         oldest goes first, whichever rank it is of, and is counted.
// Counts: lockstep_agent_detail_steps_total = sent (by reason) + left_out (by reason) + held. Its unit is a step of one
//         rank.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/counters.h"
#include "model/step_detail.h"

namespace lockstep {

struct DetailLimits {
  size_t bytes_max = 8 << 20;
  int64_t age_ns = 300'000'000'000;
};

struct RankKey {
  std::string job_id;
  int64_t attempt = 0;
  Rank rank;
  auto operator<=>(const RankKey&) const = default;
};

class DetailKeeper {
 public:
  // What a step costs besides its bytes: this row, its place in the index, the allocator's share.
  static constexpr size_t kEntryBytes = 144;

  DetailKeeper(DetailLimits limits, Counters& counters);

  // The same step of a rank again (a job that went back to a checkpoint) takes the place of the first.
  void keep(const Identity& identity, const StepDetail& detail, int64_t now_ns);
  // Lets go of what is too old.
  void expire(int64_t now_ns);

  enum class State { kHeld, kSent, kNotHere };
  State state(const RankKey& rank, StepNumber step) const;
  struct Taken {
    Identity identity;
    StepDetail detail;
  };
  // Held until now; counted as sent for this reason.
  std::optional<Taken> take(const RankKey& rank, StepNumber step, SampledFor reason);

  // Ranks of this attempt of which anything is remembered, in order.
  std::vector<RankKey> ranks_of(const std::string& job_id, int64_t attempt) const;
  // Of the ranks remembered; sorted, each once.
  std::vector<std::string> hosts() const;
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    const RankKey* rank;
    StepNumber step;
    int64_t kept_ns;
    std::string packed;  // empty: it was sent, or another took its place
  };
  struct RankSteps {
    Identity identity;
    std::map<StepNumber, uint64_t> by_step;  // number of the entry
  };
  Entry& entry(uint64_t number) { return entries_[number - first_number_]; }
  void leave_out(const char* reason, int64_t steps = 1);
  void drop_oldest(const char* reason);
  void note_held();

  const DetailLimits limits_;
  Counters& counters_;
  std::map<RankKey, RankSteps> ranks_;  // entries point at its keys: a rank goes when its last entry does
  std::deque<Entry> entries_;           // oldest first
  uint64_t first_number_ = 0;
  size_t bytes_ = 0;
  int64_t held_ = 0;
};

}  // namespace lockstep
