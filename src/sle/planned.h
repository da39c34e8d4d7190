// Windows in which nothing is expected of some GPUs: maintenance, a job that is paused. Their minutes are idle, and nobody is
// charged.
//
// Thread rule: Immutable values, pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "sle/ledger.h"
#include "sle/rank_cells.h"

namespace lockstep::sle {

struct PlannedWindow {
  int64_t from_unix_ns = 0, to_unix_ns = 0;
  bool by_host = false, by_gpu = false;  // else covers() is asked with "" there: once for a job, or once for a host
  std::function<bool(std::string_view job_id, std::string_view host, std::string_view gpu_uuid)> covers;
};

// The ranks that a window covers in any part of that minute. By host and GPU, those whose place is known.
RankSpans planned_ranks(std::span<const PlannedWindow> windows, int32_t minute, std::string_view job_id,
                        const Placement& placement);

}  // namespace lockstep::sle
