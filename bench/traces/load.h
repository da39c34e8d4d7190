// The load: steps of a training job as its agents send them, from a seed.
//
// The job has 8 ranks on each host; tensor parallel groups are hosts, data parallel groups go across them. A step takes
// 1 s with 2 % noise and has six phases and 100 operations: 64 on the tensor parallel communicator (AllReduce of 64
// MiB, AllGather, ReduceScatter), 32 buckets of the gradient on the data parallel one (ReduceScatter of 25 MiB and a
// last smaller one), and 4 sends and receives. Every rank does the same operations in the same order; start, duration
// and queueing have noise of their own, in nanoseconds. A request is one host's ranks of one step.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>

#include "model/ids.h"
#include "model/telemetry.h"

namespace lockstep::bench {

struct Load {
  uint64_t seed = 20260801;
  int32_t ranks = 64;
  int32_t ops = 100;
  int64_t first_unix_ns = 1'700'000'000'000'000'000;
  std::string job_id = "llm-70b-0042";
};
inline constexpr int32_t kRanksPerHost = 8;
inline constexpr int32_t kPhases = 6;

// Spans of one rank's step: 1 + kPhases + ops.
ResourceGroup rank_step(const Load& load, StepNumber step, Rank rank);
// The request of one host, as protobuf.
std::string host_request(const Load& load, StepNumber step, int32_t host);
// A request of a web service: `traces` traces of five spans with a dozen attributes each.
std::string service_request(const Load& load, int64_t number, int32_t traces);

}  // namespace lockstep::bench
