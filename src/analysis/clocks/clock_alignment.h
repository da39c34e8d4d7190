// One time axis for all ranks of a job, from what they did together.
//
// The problem: each rank's times are on its host's clock, which is off by milliseconds and drifts. The method: all
// ranks of a barrier-like collective (AllReduce, AllGather, ReduceScatter) leave it nearly at the same moment, so the
// differences of their ends are differences of their clocks plus noise; over many collectives and communicators these
// give every rank's offset and drift against the job, with an error bar from what does not fit. A receive cannot end
// before its send began: where messages go both ways between ranks that share no collective, that gives their offset
// to within the time of the messages. Ranks that nothing connects are said to be unknown, not guessed. Clocks that are
// stepped (NTP) do not matter: recorders count monotonic time from one anchor, and every process has its own clock here
// even where two share a host.
//
// What cannot be told from such data: a member that always leaves the same communicator later than the others (rings
// end asymmetrically) looks like a clock that is behind. What overlapping communicators contradict each other in, the
// noise of single ends and a part of the operation's own time stand for it in the error bar.
//
// Cost: about 1 us of CPU time per end, messages included (bench/results/alignment.md).
// Thread rule: Immutable once made.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/step_detail.h"
#include "store/span_store.h"
#include "store/step_store.h"

namespace lockstep {

// One rank's end of an operation that all its members leave together. Ends with the same key belong together.
struct BarrierEnd {
  CommId comm_id;
  uint64_t key = 0;  // which operation of the communicator: its ordinal; or with kStepKey the last one of a step
  Rank rank;
  int64_t end_unix_ns = 0;
  int64_t spent_ns = 0;  // by this rank in the operation; the least of its members says how far ends may truly lie
                         // apart; 0: not known
};
inline constexpr uint64_t kStepKey = uint64_t{1} << 63;  // plus the step

// A message: it cannot have arrived before it was sent.
struct MessagePair {
  Rank from_rank;
  Rank to_rank;
  int64_t sent_unix_ns = 0;      // start of the send, on the sender's clock
  int64_t received_unix_ns = 0;  // end of the receive, on the receiver's clock
};

struct RankClock {
  Rank rank;
  bool known = false;    // false: nothing connects it with any other; it is taken as it is
  int32_t group = -1;    // only times of ranks of one group can be compared; 0 is the largest, -1: not known
  double offset_ns = 0;  // its clock minus the job's, at the alignment's reference time
  double drift_ppm = 0;  // microseconds that its clock gains on the job's per second
  double error_ns = 0;   // of a time on the job's axis, anywhere within the steps that were looked at: made for 95 of
                         // 100 ranks; bench/results says where that does not hold
  size_t barriers = 0;   // that it was estimated from
};

class ClockAlignment {
 public:
  ClockAlignment() = default;  // knows nobody: every clock is taken as it is
  // The axis of a group is the median of its clocks.
  static ClockAlignment estimate(std::span<const BarrierEnd> ends, std::span<const MessagePair> messages);

  // The moment on the job's axis.
  int64_t job_time(Rank rank, int64_t unix_ns) const;
  const RankClock* clock(Rank rank) const;                          // nullptr: never heard of
  const std::vector<RankClock>& clocks() const { return clocks_; }  // by rank
  double error_ns() const;  // the largest of the known ranks; 0 where there are none
  // Two moments of these ranks that lie nearer to each other cannot be put in order; infinite: none can.
  double error_between_ns(Rank a, Rank b) const;
  int64_t reference_unix_ns() const { return reference_unix_ns_; }

 private:
  int64_t reference_unix_ns_ = 0;
  std::vector<RankClock> clocks_;
};

// Last ends of every communicator in these steps, from the summaries that every rank sends for every step.
std::vector<BarrierEnd> barrier_ends(const StepStore& steps, std::string_view job_id, StepNumber from_step,
                                     StepNumber to_step);
// And from detail: every collective; sends and receives of one pair by their sequence.
std::vector<BarrierEnd> barrier_ends(std::span<const RankDetail> details);
std::vector<MessagePair> message_pairs(std::span<const RankDetail> details);

// For times around one step: from its detail where there is some, and from the summaries of the steps around it, at
// most `ends_max` ends in all.
ClockAlignment align_step(const StepStore& steps, std::span<const RankDetail> details, std::string_view job_id,
                          StepNumber step, size_t ends_max = 1'000'000);

}  // namespace lockstep
