#include "sle/planned.h"

#include <vector>

namespace lockstep::sle {

RankSpans planned_ranks(std::span<const PlannedWindow> windows, int32_t minute, std::string_view job_id,
                        const Placement& placement) {
  const int64_t from_ns = minute * kMinuteNs, to_ns = from_ns + kMinuteNs;
  std::vector<Rank> ranks;
  for (const PlannedWindow& window : windows) {
    if (window.from_unix_ns >= to_ns || window.to_unix_ns <= from_ns) continue;
    if (!window.by_host && !window.by_gpu) {
      if (window.covers(job_id, "", "")) return every_rank();
      continue;
    }
    for (const Placement::HostRun& run : placement.hosts) {
      const bool whole = !window.by_gpu && window.covers(job_id, run.host, "");
      for (Rank rank = run.first; rank < run.end() && (whole || window.by_gpu); ++rank)
        if (whole || window.covers(job_id, run.host, placement.gpus[index_of(rank)])) ranks.push_back(rank);
    }
  }
  return spans_of(std::move(ranks));
}

}  // namespace lockstep::sle
