// Asks NCCL RAS, the service inside every job of NCCL 2.24 and newer (unless NCCL_RAS_ENABLE=0), for the job's state.
// It listens on localhost:28028 (NCCL_RAS_ADDR) on every node; the answer covers the whole job, not the node alone. All
// processes of a node share that port and the kernel picks who answers: where jobs share a node the report may be about
// another job (compare communicator hashes), and after a time-out a second try may reach a livelier process.
//
// Careful with whom to ask, and how often: the answer is made inside the job.
// - NCCL 2.26.2 to 2.28.9 lose their place in their own data while they make a status, in either format, if a
//   communicator other than the last has missing ranks: what they then read as sizes are bytes of addresses, which may
//   end the process. ras_status_is_safe() says no to those.
// - Each query gathers from all processes. One that is given up early keeps the answering process's RAS thread busy
//   until the query ends there: with all processes alive that is milliseconds; with some unreachable, up to 6 s (times
//   NCCL_RAS_TIMEOUT_FACTOR). A timeout_ms of 7000 or more leaves room for that.
//
// Limits: timeout_ms for the whole exchange (looking up a name other than an address is the C library's business);
//         kRasBytesMax of answer.
// On error: one clear line that begins with "RAS at ADDRESS"; nobody listening is ErrorCode::kNotFound.
// Thread rule: Thread-safe (no state). Blocks up to timeout_ms.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "sources/nccl/ras_report.h"

namespace lockstep {

// Not worth a log line: no job, an older NCCL, or RAS switched off.
inline constexpr const char* kRasAbsent = "no NCCL RAS here";

// NCCL_RAS_ADDR of this process, or localhost:28028.
std::string ras_default_address();

struct RasOptions {
  std::string address = ras_default_address();  // "host:port", "[::1]:28028"
  int timeout_ms = 2000;
};

// `nccl_version` as NCCL numbers itself: 22809 is 2.28.9.
constexpr bool ras_status_is_safe(int nccl_version) {
  return nccl_version < 22602 || nccl_version > 22809;
}

Result<RasReport> ras_status(const RasOptions& options);

// Sets which events the profiler plugins of the whole job get (NCCL 2.31 and newer), also after a plugin's later init.
Result<void> ras_set_profiler_mask(const RasOptions& options, uint32_t mask);

}  // namespace lockstep
