// A dump of PyTorch's Flight Recorder, <prefix><rank>, reduced to what tells ranks apart: per process group how far it
// came, the operations around the first that is not complete, and where in the job's code they were called.
//
// The file is a pickle of plain data (base/pickle_reader.h): version, pg_config by name, pg_status by number, entries
// in the order of their calls. Fields that are missing are not known; a file that is no such pickle is one line.
// Limits: kFlightDumpBytesMax, kFlightDumpValuesMax; those of FlightDump.
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/rank_evidence.h"

namespace lockstep {

inline constexpr size_t kFlightDumpBytesMax = 64u << 20;
inline constexpr size_t kFlightDumpValuesMax = 2'000'000;

// time_unix_ns and file are the caller's to fill in.
Result<FlightDump> read_flight_dump(std::string bytes_untrusted);
// The rank that a dump's name ends with; nullopt: it ends with no number.
std::optional<Rank> rank_of_dump(std::string_view file);

}  // namespace lockstep
