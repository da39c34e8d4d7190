// A step of many ranks as a Perfetto trace: one protobuf file on the job's time axis, or an archive with one file per
// rank, each on its own clock, and a manifest that holds the clocks' offsets (docs/guide/perfetto.md).
//
// What is drawn: a process per rank; below it a track for the step (with the job's notes), one for its phases, and one
// for the collectives and one for the sends and receives of each communicator. Slices of a track must not cut each
// other, so operations that overlap go to further tracks of the same name, which the Perfetto UI shows as one. Arrows
// join the same collective on different ranks, and a send with its receive.
//
// Written by hand over base/protobuf_wire.h: about 120 bytes per operation, no object per event.
// Limits: slices_max slices; whoever has more narrows the ranks.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "analysis/clocks/clock_alignment.h"
#include "base/result.h"
#include "store/span_store.h"

namespace lockstep {

inline constexpr size_t kPerfettoSlicesMax = 2'000'000;

struct PerfettoStep {
  std::string job_id;
  StepNumber step;
  // Of all ranks that have sent detail, by rank: what is written of one rank also says how it compares with the others.
  std::span<const RankDetail> details;
  std::vector<Rank> ranks;  // that are written; empty: all
  ClockAlignment alignment;
  std::map<CommId, std::string> comm_names;  // "tp", "dp", ...; the rest is called by its id
  size_t slices_max = kPerfettoSlicesMax;
};

struct PerfettoFile {
  std::string bytes;
  size_t ranks = 0;
  size_t slices = 0;
  size_t arrows = 0;               // collectives and messages that are drawn with one
  size_t ranks_unknown_clock = 0;  // of `ranks`: taken as they are
};

Result<PerfettoFile> perfetto_trace(const PerfettoStep& step);    // "pftrace"
Result<PerfettoFile> perfetto_archive(const PerfettoStep& step);  // "tar"

// "rank-0005.pftrace"
std::string perfetto_file_name(Rank rank);

}  // namespace lockstep
