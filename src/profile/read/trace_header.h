// What a trace says of itself outside its events: rank, devices, process groups, the base of its times.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/read/trace_events.h"

namespace lockstep::profile {

// A member of the outermost object. What is not known, or is not as expected, leaves the trace as it was.
void read_header_value(std::string_view key, std::string_view raw, TraceEvents& out);

// The rank in a file's name: "rank-17.json.gz", "rank_3.pt.trace.json", "trace_rank0.json".
std::optional<Rank> rank_in_name(std::string_view path);

// "[0, 1, 2]"; empty where it is cut short ("...") or anything else.
std::vector<Rank> ranks_of_list(std::string_view text);

}  // namespace lockstep::profile
