#include "sim/node/agent_model.h"

#include <algorithm>
#include <cmath>

#include "model/agent_own_metrics.h"

namespace lockstep::sim {
namespace {

// Of a core, with 8 GPUs, where nobody scrapes; for each rank what its recorder takes to be followed.
constexpr double kCores = 0.0113, kCoresPerRank = 0.001;
constexpr double kMemoryBytes = 20.2 * (1 << 20);
constexpr double kBytesPerSecond = 1'030, kBytesPerSecondPerRank = 300;

}  // namespace

AgentModel::AgentModel(uint64_t seed)
    : noise_(seed),
      cpu_seconds_(noise_.standing(10, 1e5)),
      memory_bytes_(kMemoryBytes * noise_.between(0.9, 1.2)),
      sent_bytes_(std::floor(cpu_seconds_ / kCores * kBytesPerSecond)) {}

void AgentModel::advance(double seconds, double ranks) {
  const double busy = std::max(0.2, 1 + 0.15 * noise_.gauss());
  cpu_seconds_ += seconds * busy * (kCores + kCoresPerRank * ranks);
  sent_bytes_ += std::round(seconds * busy * (kBytesPerSecond + kBytesPerSecondPerRank * ranks));
}

void AgentModel::put(NodeReadout& out) const {
  const auto put = [&](OwnMetric metric, double value) {
    out.put(descriptor_of(metric), {}, Pace::kSlow, Part::kCore, value);
  };
  put(OwnMetric::kCpuSeconds, cpu_seconds_);
  put(OwnMetric::kMemory, memory_bytes_);
  put(OwnMetric::kSentBytes, sent_bytes_);
}

}  // namespace lockstep::sim
