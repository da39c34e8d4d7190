// One step of a job, rank against rank: who waited for whom and why, and which way the time went that nobody could have
// done without.
//
// Waits. Nobody leaves a collective before the last has come, so who comes last spends the least time in it; what the
// others spend beyond that is waiting, and no clock is needed to say so. Of several that spent nearly the same the one
// that started last on the common axis is taken, if clocks can tell them apart. A send and its receive are such a pair.
// Broadcasts, reductions to one root and the like have no such rule: there only starts on the common axis count, and
// starts nearer to each other than the clocks' error are not put in order.
//
// Causes. Rank A waits for rank B because B came later, and B may have come later because it had waited for C. So the
// ways on which A and B came there are followed back to where they part (their last common operation, or the step's
// begin), and own work on the one is held against own work on the other: who worked longer is charged with the wait
// (`caused`). A straggler two groups away is charged with the waits of all who wait for those who wait for it. Waiting
// is not guilt.
//
// Critical path. Back from the last end: own work of a rank until its last operation, that operation from the moment
// its last member came, then on with that member. The pieces follow each other without holes from the first start to
// the last end, so they add up to the length of the step.
//
// With detail of some ranks only, the others are named (ranks_missing) and whom to charge is taken from the summaries
// that every rank sends. With no detail at all waits come from these alone: of each communicator the rank with the
// least time in it is taken for the one that the others waited for, and charged is the rank whose own work took clearly
// longer than the others'.
//
// Cost: 4,096 ranks with 100 operations each take about 0.4 s.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/clocks/clock_alignment.h"
#include "analysis/step/comm_roles.h"

namespace lockstep {

struct StepAnalysis {
  // Times of the step count from here, on the job's axis.
  StepNumber step;
  int64_t begin_unix_ns = 0;  // first start of any rank
  int64_t length_ns = 0;      // until the last end
  int64_t median_ns = 0;      // median of the ranks' own durations
  bool detail = false;        // false: from summaries alone
  bool inferred = false;      // where steps begin and end is a guess
  int64_t left_out = 0;       // operations that are not in the detail
  int64_t untimed = 0;        // operations whose time on the GPU is not known

  size_t ranks_total = 0;           // of the job
  size_t ranks_detailed = 0;        // with detail
  size_t ranks_summarized = 0;      // with a summary
  std::vector<Rank> ranks_missing;  // without detail, of those ever heard of
  double clock_error_ns = 0;        // largest of the ranks with a known clock
  size_t clocks_unknown = 0;        // of ranks_detailed

  struct RankTimes {
    Rank rank;
    std::string host;
    bool detail = false;
    int64_t start_ns = 0;
    int64_t duration_ns = 0;
    int64_t own_ns = 0;       // not in any communication
    int64_t wait_ns = 0;      // in communication, before the last had come
    int64_t transfer_ns = 0;  // the rest of the communication
    int64_t caused_ns = 0;    // waits of others that came from this rank's own work, summed
    int64_t last = 0;         // operations to which it clearly came last
    int64_t path_ns = 0;      // on the critical path
  };
  std::vector<RankTimes> ranks;  // by what they caused, then by own time

  // Of all waiting of one rank for another.
  struct Wait {
    Rank waiter;
    Rank awaited;
    int64_t wait_ns = 0;
    int64_t operations = 0;
    int64_t longest_ns = 0;  // and which that was:
    CommId comm_id;
    std::string function;
    uint64_t number = 0;        // ordinal; of messages the sequence
    bool from_summary = false;  // which operations is not known
  };
  std::vector<Wait> waits;  // longest first
  size_t waits_total = 0;   // pairs; `waits` holds the longest kWaitsMax

  struct Comm {
    CommId comm_id;
    int64_t operations = 0;  // of all ranks together
    int64_t bytes = 0;
    int64_t gpu_ns = 0;
    int64_t wait_ns = 0;
    int64_t transfer_ns = 0;
    double bus_gb_s = 0;       // 0: not known
    Rank last_rank = kNoRank;  // who came last most often; kNoRank: nobody clearly
    int64_t last = 0;
    std::string functions;  // "AllReduce x 24, AllGather x 2", of the rank that has most
  };
  std::vector<Comm> comms;  // most waiting first

  struct PhasePart {
    std::string name;
    int64_t mean_ns = 0;  // over the ranks that have it
    int64_t longest_ns = 0;
    Rank longest_rank = kNoRank;
    int64_t own_ns = 0;  // mean of what of it was not in communication
    size_t ranks = 0;
  };
  std::vector<PhasePart> phases;  // as they begin

  enum class Kind : uint8_t {
    kOwn = 0,            // a rank's own work
    kCommunication = 1,  // an operation, all members there
    kWaiting = 2,        // for a rank of which there is no detail
    kBefore = 3,         // the rank had not begun the step yet
  };
  struct Piece {
    Kind kind = Kind::kOwn;
    Rank rank;
    int64_t from_ns = 0;
    int64_t to_ns = 0;
    std::string what;          // phase of own work; function
    CommId comm_id;            // of communication and waiting
    uint64_t number = 0;       // ordinal; of messages the sequence
    Rank waited_by = kNoRank;  // whom the path goes on with: it waited for this one; kNoRank: the same rank goes on
    int64_t waited_ns = 0;     // and so long
    Rank waits_for = kNoRank;  // kWaiting: for whom, where that is known
  };
  std::vector<Piece> path;  // in time; at most kPathMax, the shortest are joined to their neighbours
  size_t path_total = 0;
  std::array<int64_t, 4> path_ns{};  // by kind

  // How long the first had to wait for the last, over all operations with two members or more: below 10 us, 100 us, 1
  // ms, 10 ms, 100 ms, 1 s, above.
  std::array<int64_t, 7> late{};
  int64_t undecided = 0;  // of these: who came last cannot be told

  // The rank that caused most waiting, where that is worth a word.
  struct Culprit {
    static constexpr const char* kLateStart = "late start";  // the step before may tell why
    Rank rank = kNoRank;                                     // kNoRank: nobody stands out
    int64_t caused_ns = 0;
    int64_t most_ns = 0;     // that one rank waited because of it
    size_t ranks = 0;        // that waited for more than a hundredth of the step because of it
    int64_t typical_ns = 0;  // median of these
    std::string doing;       // the phase in which it worked longer, or kLateStart; empty: not known
  };
  Culprit culprit;
  bool by_shape = false;  // ranks waited, and whom for worked no longer than its equals: a pipeline's own waits

  static constexpr size_t kWaitsMax = 1000;
  static constexpr size_t kPathMax = 2000;
};
const char* to_text(StepAnalysis::Kind kind);  // "own", "communication", "waiting", "before"

// details: by rank, of one step; rows: the summaries of the same step. Either may be empty.
StepAnalysis analyze_step(const JobInfo& job, StepNumber step, std::span<const RankDetail> details,
                          std::span<const StepRow> rows, const CommRoles& roles, const ClockAlignment& clocks);

// The same path with at most so many pieces: the shortest are joined to the piece before them, and the sum stays.
std::vector<StepAnalysis::Piece> shortened(std::vector<StepAnalysis::Piece> path, size_t most);

// "Rank 5 (node-17) made 7 ranks wait 118 ms in forward: 31 % of the step." or that nobody did.
std::string sentence_of(const StepAnalysis& analysis);

}  // namespace lockstep
