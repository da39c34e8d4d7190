// Everything over the kernel traces of any number of ranks: each read and broken down, their collectives matched, their
// clocks aligned, and one sentence over all of them.
//
// Ranks are read side by side, as many at a time as there are threads; the text of a trace is never held, its columns
// are (about a fifth of the JSON).
// A trace that cannot be read is left out and named in `notes`; only where none can be read there is an error.
// Thread rule: Thread-safe (no state); open() and progress are called from several threads at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "profile/ranks/collectives.h"
#include "profile/ranks/critical_path.h"
#include "profile/ranks/rank_profile.h"
#include "profile/ranks/verdict.h"
#include "profile/read/byte_source.h"
#include "profile/read/trace_reader.h"

namespace lockstep::profile {

struct TraceInput {
  std::string label;         // the file, for messages
  std::optional<Rank> rank;  // where it is known from elsewhere; else what the trace says, else its name
  std::function<Result<std::unique_ptr<ByteSource>>()> open;
  std::function<Result<TraceEvents>(const ReadOptions&)> read = {};  // instead of open: one that is no stream of bytes
};

struct AnalyzeOptions {
  size_t threads = 0;  // 0: as many as there are cores
  ReadOptions read;
  IndexOptions index;
  BreakdownOptions breakdown;
};

struct ProfileAnalysis {
  std::vector<RankProfile> ranks;  // by rank
  CollectiveAnalysis collectives;
  CriticalPath path;
  ProfileVerdict verdict;
  std::vector<std::string> notes;  // what was bad in the traces, one line each
  uint64_t bytes = 0;              // of JSON
  uint64_t events = 0;
  int64_t world_size = 0;  // as traces say; 0: not said
};

Result<ProfileAnalysis> analyze(const std::vector<TraceInput>& inputs, const AnalyzeOptions& options = {});

// As JSON: `lockstep analyze --json` and the API. kernels_max rows per rank.
std::string analysis_json(const ProfileAnalysis& analysis, size_t kernels_max = 50);

}  // namespace lockstep::profile
