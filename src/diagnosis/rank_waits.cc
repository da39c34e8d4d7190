#include "diagnosis/rank_waits.h"

#include <algorithm>
#include <unordered_map>

#include "diagnosis/roles.h"

namespace lockstep {
namespace {

struct LastToCome {
  int64_t least_ns = 0;
  size_t slot = 0;
  size_t members = 0;
};

template <typename Each>
void each_collective(const StepFrame& frame, Each each) {
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    for (const CommStep& comm : frame.rows[slot].summary.comms)
      if (!comm.p2p && comm.gpu_ns > 0) each(slot, comm);
  }
}

}  // namespace

std::vector<fabric::RankWait> waits_in(const JobWindow& window, const StepFrame& frame) {
  std::unordered_map<CommId, LastToCome> last_of;
  each_collective(frame, [&](size_t slot, const CommStep& comm) {
    LastToCome& last = last_of[comm.comm_id];
    if (last.members++ == 0 || comm.gpu_ns < last.least_ns) {
      last.least_ns = comm.gpu_ns;
      last.slot = slot;
    }
  });
  const double noise_ns = kWaitShare * lateness(window, frame).duration_ns;
  std::vector<fabric::RankWait> waits;
  each_collective(frame, [&](size_t slot, const CommStep& comm) {
    const LastToCome& last = last_of[comm.comm_id];
    const int64_t beyond_ns = comm.gpu_ns - last.least_ns;
    const auto waited_ns = static_cast<double>(std::min(beyond_ns, frame.rows[slot].summary.comm_ns));
    if (slot == last.slot || last.members < 2 || waited_ns <= noise_ns) return;
    waits.push_back({window.rank_of(slot), window.rank_of(last.slot), waited_ns / 1e9});
  });
  return waits;
}

}  // namespace lockstep
