// What is measured, in parts. A part runs in a process of its own (`plugin_bench --one PART`), so that a plugin that
// crashes takes only that part with it, and prints `name<TAB>value` lines for the report.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace lockstep::plugin_bench {

struct PartOptions {
  std::string part;    // calls, batched, memory, paced, flat, comms:COUNT, threads:COMMUNICATORS, recording:FOLDER
  std::string plugin;  // path, or kNullPlugin
  int64_t collectives = 20'000;
  int64_t seconds = 10;
  bool check_recorder = false;  // the plugin is ours: read what it recorded in $LOCKSTEP_RECORDER_DIR
};

using Emit = std::function<void(const std::string& name, double value)>;

// Names that a part emits (ROW: a call kind's name or "all"; ns unless the name says otherwise):
//   PART/ROW/{p50,p99,p999,worst,count,declined}, PART/allocations, check/refused, ...
Result<void> run_part(const PartOptions& options, const Emit& emit);

// Calls longer than this are counted: a training step notices them.
inline constexpr double kSlowNs = 20'000;
inline constexpr int kCommunicators = 4;
inline constexpr int kMemoryCommunicators = 64;
// What a call costs is the same with each of these.
inline constexpr int kCommunicatorCounts[] = {4, 64, 256};
inline constexpr int kPacedPerSecond = 500;

}  // namespace lockstep::plugin_bench
