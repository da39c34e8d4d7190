// The events Lockstep sends as OTLP log records, and how they are laid out there (docs/formats/events.md).
// Numbers that repeat (communicators, flows) travel as arrays of integers in a fixed column order: compact, and any
// OpenTelemetry collector can pass them on.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "model/rank_end.h"
#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

inline constexpr std::string_view kEventTrainStep = "train.step";
inline constexpr std::string_view kEventRankStatus = "rank.status";
inline constexpr std::string_view kEventCommInit = "comm.init";
inline constexpr std::string_view kEventCommGroup = "comm.group";
inline constexpr std::string_view kEventJobStart = "job.start";  // one per rank, when its recorder is found
inline constexpr std::string_view kEventJobEnd = "job.end";      // one per rank, when it has ended and is drained
inline constexpr std::string_view kEventGap = "telemetry.gap";
inline constexpr std::string_view kEventCommRas = "comm.ras";

inline constexpr std::string_view kAgentService = "lockstep-agent";  // service.name of whatever an agent sends

struct CommInit {
  CommId comm_id;
  int32_t size = 0;
  int32_t rank_in_comm = 0;
  int32_t nodes = 0;
  std::string name;
  bool operator==(const CommInit&) const = default;
};

// A process group as the training framework told it: the communicator with the same members has this name.
struct CommGroup {
  std::string name;         // "tp", "dp_cp", ...: a mesh dimension, or a description
  std::vector<Rank> ranks;  // of the job, in the order of the group
  bool operator==(const CommGroup&) const = default;
};
inline constexpr size_t kGroupRanksMax = 131'072;

struct Gap {
  std::string reason;   // "ring_overwritten", "spool_full", "torn_record", ...
  int64_t records = 0;  // how many are missing
  bool operator==(const Gap&) const = default;
};

// A communicator in trouble, as NCCL's in-job service (RAS) tells it.
struct RasMissing {
  int32_t rank_in_comm = -1;
  std::string host;
  int64_t pid = -1;           // -1: not told
  bool unresponsive = false;  // its process did not answer; false: it answered, but has no such communicator
  bool considered_dead = false;
  bool operator==(const RasMissing&) const = default;
};
struct RasBehind {       // ranks that have launched fewest of one function: the others wait for them
  std::string function;  // "Unknown": all functions together
  int64_t launched = 0;
  int64_t launched_most = 0;           // by any rank
  int64_t ranks_count = 0;             // that stand at `launched`
  std::vector<int32_t> ranks_in_comm;  // the first kRasBehindRanksMax of them
  bool operator==(const RasBehind&) const = default;
};
struct CommRas {
  CommId comm_id;
  int32_t size = 0;  // 0: not told
  int64_t missing_count = 0;
  std::vector<RasMissing> missing;  // the first kRasMissingMax of them
  std::vector<RasBehind> behind;    // one per function on which ranks differ
  bool operator==(const CommRas&) const = default;
};
inline constexpr size_t kRasMissingMax = 256;
inline constexpr size_t kRasBehindMax = 16;
inline constexpr size_t kRasBehindRanksMax = 64;

// Identity as OTLP resource attributes (lockstep.job_id, lockstep.rank, host.name, ...), and back. An identity without
// a job id or with a negative rank is an error: such a record belongs to no job.
Attributes to_resource(const Identity& identity);
Result<Identity> identity_from_resource(const Attributes& resource);
// The rank of an identity that has all the rest, by the same rules.
Result<void> set_rank(Identity& identity, int64_t rank, int64_t world_size);

LogRecord to_record(const StepSummary& step);
LogRecord to_record(const RankStatus& status);
LogRecord to_record(const CommInit& comm, int64_t time_unix_ns);
LogRecord to_record(const CommGroup& group, int64_t time_unix_ns);
LogRecord to_record(const Gap& gap, int64_t time_unix_ns);
LogRecord to_record(const CommRas& ras, int64_t time_unix_ns);  // what is beyond the limits above is left out
LogRecord job_start_record(int64_t time_unix_ns);
LogRecord job_end_record(const RankEnd& end);

// From bytes we did not write: every field is checked, one clear line on error.
Result<StepSummary> step_from_record(const LogRecord& record);
Result<RankStatus> status_from_record(const LogRecord& record);
Result<CommInit> comm_init_from_record(const LogRecord& record);
RankEnd rank_end_from_record(const LogRecord& record);  // whatever it says: it ended
Result<CommGroup> comm_group_from_record(const LogRecord& record);

inline constexpr size_t kCommsPerStepMax = 4096;
inline constexpr size_t kFlowsPerStepMax = 65536;
inline constexpr size_t kScalarsPerStepMax = 64;
inline constexpr size_t kScalarNameMax = 64;

}  // namespace lockstep
