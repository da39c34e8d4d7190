// Times of a step summary, rounded for the way to the server. A nanosecond of a step that takes a hundred million says
// nothing, but its digits are noise that no compression takes out: of a summary's bytes on the wire they are a quarter.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "model/step.h"

namespace lockstep {

// Moments are kept to about a microsecond, times to that or to one part in 4,096, whichever is coarser: powers of two,
// so that the bits below are zero. A time that was there stays there: 0 means none.
inline constexpr int64_t kMomentQuantumNs = 1024;
inline constexpr int kTimeBits = 12;

inline int64_t rounded_to(int64_t ns, int64_t quantum) {
  return (ns + quantum / 2) / quantum * quantum;
}
inline int64_t rounded_moment(int64_t unix_ns) {
  return rounded_to(unix_ns, kMomentQuantumNs);
}
inline int64_t rounded_time(int64_t ns) {
  if (ns <= 0) return ns;
  const int bits = std::bit_width(static_cast<uint64_t>(ns));
  const int64_t quantum = std::max(kMomentQuantumNs, int64_t{1} << std::max(0, bits - kTimeBits));
  return std::max(kMomentQuantumNs, rounded_to(ns, quantum));
}

inline StepSummary rounded_for_sending(StepSummary step) {
  // The end is what is sent beside the duration.
  const int64_t end_unix_ns = rounded_moment(step.start_unix_ns + step.duration_ns);
  step.duration_ns = rounded_time(step.duration_ns);
  step.start_unix_ns = end_unix_ns - step.duration_ns;
  for (int64_t& ns : step.phase_ns) ns = rounded_time(ns);
  for (int64_t& ns : step.split_ns) ns = rounded_time(ns);
  step.quiet_from_unix_ns = rounded_moment(step.quiet_from_unix_ns);
  for (int64_t* ns : {&step.self_ns, &step.comm_ns, &step.queue_ns, &step.quiet_ns}) *ns = rounded_time(*ns);
  for (CommStep& comm : step.comms) {
    comm.first_start_unix_ns = rounded_moment(comm.first_start_unix_ns);
    comm.last_end_unix_ns = rounded_moment(comm.last_end_unix_ns);
    for (int64_t* ns : {&comm.gpu_ns, &comm.shortest_ns, &comm.longest_ns, &comm.queue_ns}) *ns = rounded_time(*ns);
  }
  for (FlowStep& flow : step.flows) {
    for (int64_t* ns :
         {&flow.wire_ns, &flow.own_gpu_ns, &flow.peer_ns, &flow.wire_longest_ns, &flow.own_gpu_longest_ns})
      *ns = rounded_time(*ns);
  }
  return step;
}

}  // namespace lockstep
