// The names of what the server makes of a capture's traces and keeps beside them (docs/formats/blobs.md). No agent may
// send files of such names.
//
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kResultPrefix = "analysis-";
inline constexpr std::string_view kSummaryFile = "analysis-summary.json";
inline constexpr std::string_view kTimelineFile = "analysis-timeline.bin";
inline constexpr std::string_view kPerfettoFile = "analysis-perfetto.pftrace.gz";

inline constexpr uint64_t kSummaryBytesMax = 64ull << 20;

}  // namespace lockstep
