// What NCCL's in-job service (RAS) says about a job: its communicators, which ranks answered and which did not, and how
// many collectives each rank has launched. Launches, not completions: a rank may have launched and be stuck. Work
// replayed from CUDA graphs, point-to-point and all-to-all are not counted by NCCL.
//
// JSON (NCCL 2.28.7 and newer) tells every rank. Text (since 2.24) names only communicators in trouble and, of those,
// only the ranks that stand out; `mismatches` is filled from both, so a caller need not know which it was.
//
// Limits: kRas...Max below; a report beyond them is refused, never cut.
// On error: one clear line. Unknown fields and lines are passed over; known ones of a wrong kind are refused.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recorder/records.h"

namespace lockstep {

inline constexpr size_t kRasBytesMax = 16u << 20;  // of JSON: some 30,000 ranks, counted once per communicator
inline constexpr size_t kRasCommsMax = 16'384;
inline constexpr size_t kRasRanksMax = 131'072;  // in all communicators together
inline constexpr int64_t kRasCommSizeMax = 1'048'576;
inline constexpr size_t kRasStringMax = 255;

// The functions that NCCL counts.
inline constexpr std::array<Function, 5> kRasFunctions = {Function::kBroadcast, Function::kReduce, Function::kAllGather,
                                                          Function::kReduceScatter, Function::kAllReduce};

struct RasCounts {
  std::array<uint64_t, kRasFunctions.size()> by_function{};  // in the order of kRasFunctions
  uint64_t other = 0;                                        // functions that a newer NCCL counts
  uint64_t launched() const;
};

struct RasPeer {
  int32_t rank_in_comm = -1;
  std::string host;  // an IP address; "unknown" or empty where NCCL has no address
  int32_t pid = -1;  // -1: not told
  int32_t cuda_dev = -1;
  int32_t nvml_dev = -1;
};

struct RasRank : RasPeer {
  int32_t init_state = 0;   // ncclResult_t: 0 success, 7 in progress
  int32_t async_error = 0;  // ncclResult_t
  bool finalize_called = false;
  bool destroy_flag = false;
  bool abort_flag = false;
  RasCounts counts;  // only where RasReport::counts_reported
};

struct RasMissingRank : RasPeer {
  bool unresponsive = false;  // its process did not answer; false: it answered, but has no such communicator (any more)
  bool considered_dead = false;  // RAS has given its process up
};

// Ranks that stand at the same number of launches.
struct RasCountGroup {
  uint64_t launched = 0;
  int64_t ranks_count = 0;
  std::vector<int32_t> ranks_in_comm;  // text leaves the majority unnamed: then fewer than ranks_count
};

// Ranks of one communicator that have not launched the same number of operations.
struct RasMismatch {
  Function function =
      Function::kUnknown;             // kUnknown: all functions together (text of NCCL 2.24 and 2.25), or a newer one
  std::vector<RasCountGroup> groups;  // fewest launches first: those ranks are the ones waited for
};

struct RasComm {
  uint64_t hash = 0;  // NCCL's commHash: what the profiler plugin calls comm_id
  int64_t size = 0;   // 0: not told
  std::vector<RasRank> ranks;
  std::vector<RasMissingRank> missing;
  std::vector<RasMismatch> mismatches;
};

struct RasReport {
  std::string nccl_version;
  std::string timestamp;  // "2026-03-01 12:00:00": the answering process's local time, its zone not told; empty in text
  int64_t collection_ms = 0;
  int64_t timeouts = 0;     // legs of the query that got no answer in time: what they would have told is missing
  int64_t comms_count = 0;  // of the job; text lists fewer in `comms`
  bool counts_reported = false;
  std::vector<RasComm> comms;
};

// Also takes what NCCL 2.28.7 and 2.28.9 write, which leaves out one comma in each missing rank.
Result<RasReport> parse_ras_json(std::string_view text);
Result<RasReport> parse_ras_text(std::string_view text);

}  // namespace lockstep
