// What the SMs, the matrix units and the memory of a GPU (or of a MIG instance) did between two readings, from the
// hardware's own counters (Hopper and newer). Two samples are kept and swapped; all metrics come from one call.
//
// Thread rule: Confined.
// Limits:      readings nearer than 100 ms to the one before are passed over: the counters are not refreshed faster.
#pragma once

#include <cstdint>
#include <vector>

#include "sources/gpu/gpu_metrics.h"
#include "sources/nvml/nvml_caller.h"

namespace lockstep::nvml {

struct GpmRow {
  uint32_t id;
  GpuMetric metric;
  double scale;
};
extern const std::vector<GpmRow> kGpmRows;

class Gpm {
 public:
  static constexpr int64_t kIntervalMinNs = 100'000'000;

  // gpu_instance: of a MIG instance; kNoInstance for a whole GPU.
  Gpm(const Api& api, uint32_t gpu_instance) : api_(&api), gpu_instance_(gpu_instance) {}
  ~Gpm();
  Gpm(const Gpm&) = delete;
  Gpm& operator=(const Gpm&) = delete;

  // gpu: the whole GPU, also for a MIG instance. The first reading gives nothing: there is no interval yet.
  void read(Caller& gpu, GpuState& out);

 private:
  bool open(Caller& gpu);
  bool sample(Caller& gpu, Handle into);

  const Api* api_;
  uint32_t gpu_instance_;
  bool opened_ = false;
  bool usable_ = false;
  Handle samples_[2] = {nullptr, nullptr};
  int newest_ = 0;
  bool have_one_ = false;
  int64_t sampled_ns_ = 0;
  std::vector<GpmRow> rows_;
};

}  // namespace lockstep::nvml
