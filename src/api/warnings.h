// Early warnings as the API shows them: what diagnosis says, joined with who runs there.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "api/context.h"
#include "base/json_writer.h"

namespace lockstep {

inline constexpr size_t kWarningRanksMax = 64;

struct WarningView {
  EarlyWarning warning;
  // Whom it would hit: the rank on the GPU, or all on the host of an adapter. At most kWarningRanksMax, and how many.
  struct At {
    std::string job_id;
    Rank rank = kNoRank;
    int32_t local_rank = -1;
  };
  std::vector<At> ranks;
  size_t ranks_total = 0;
};
// job: those that would hit this job alone; empty: all. gone: also what is over.
std::vector<WarningView> warnings_of(const ApiContext& context, const std::string& job, bool gone);
void write_warning(JsonWriter& json, const WarningView& view);

}  // namespace lockstep
