// One time axis for all ranks of a job, from what they did together.
//
// The problem: each rank's times are on its host's clock, which is off by milliseconds and drifts. The method: all
// ranks of a barrier-like collective (AllReduce, AllGather, ReduceScatter) leave it nearly at the same moment, so the
// differences of their ends are differences of their clocks plus noise; over many collectives and communicators these
// give every rank's offset and drift against the job, with an error bar from what does not fit. A receive cannot end
// before its send began: that bounds ranks which share no collective. Ranks that nothing connects are said to be
// unknown, not guessed. Clocks that are stepped (NTP) do not matter: recorders count monotonic time from one anchor.
//
// Thread rule: Immutable once made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/step_detail.h"
#include "store/span_store.h"
#include "store/step_store.h"

namespace lockstep {

// One rank's end of an operation that all its members leave together. Ends with the same key belong together.
struct BarrierEnd {
  uint64_t comm_id = 0;
  uint64_t key = 0;  // which operation of the communicator: its ordinal, or the step where it is the last of a step
  int32_t rank = 0;
  int64_t end_unix_ns = 0;
};

// A message: it cannot have arrived before it was sent.
struct MessagePair {
  int32_t from_rank = 0;
  int32_t to_rank = 0;
  int64_t sent_unix_ns = 0;      // start of the send, on the sender's clock
  int64_t received_unix_ns = 0;  // end of the receive, on the receiver's clock
};

struct RankClock {
  int32_t rank = 0;
  bool known = false;    // false: nothing connects it with the others; it is taken as it is
  double offset_ns = 0;  // its clock minus the job's, at the alignment's reference time
  double drift_ppm = 0;  // microseconds that its clock gains on the job's per second
  double error_ns = 0;   // of a time on the job's axis, within the steps that were looked at
  size_t barriers = 0;   // that it was estimated from
};

class ClockAlignment {
 public:
  ClockAlignment() = default;  // knows nobody: every clock is taken as it is
  static ClockAlignment estimate(std::span<const BarrierEnd> ends, std::span<const MessagePair> messages);

  // The moment on the job's axis.
  int64_t job_time(int32_t rank, int64_t unix_ns) const;
  const RankClock* clock(int32_t rank) const;                       // nullptr: never heard of
  const std::vector<RankClock>& clocks() const { return clocks_; }  // by rank
  double error_ns() const;  // the largest of the known ranks; 0 where there are none

 private:
  int64_t reference_unix_ns_ = 0;
  std::vector<RankClock> clocks_;
};

// Last ends of every communicator in these steps, from the summaries that every rank sends for every step.
std::vector<BarrierEnd> barrier_ends(const StepStore& steps, std::string_view job_id, int64_t from_step,
                                     int64_t to_step);
// And from detail: every collective; sends and receives of one pair by their sequence.
std::vector<BarrierEnd> barrier_ends(std::span<const RankDetail> details);
std::vector<MessagePair> message_pairs(std::span<const RankDetail> details);

}  // namespace lockstep
