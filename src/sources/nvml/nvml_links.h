// The NVLinks of one GPU, one by one: state, bytes and errors, and their sums. All of it is one call at slow ticks.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <vector>

#include "sources/gpu/gpu_metrics.h"
#include "sources/nvml/nvml_fields.h"

namespace lockstep::nvml {

class Links {
 public:
  explicit Links(const Api& api) : api_(&api) {}

  // Sums that the GPU gives by itself (bytes over all links) are left to the caller who says so.
  void read(Caller& gpu, bool bytes_summed_elsewhere, GpuState& out);

 private:
  void open(Caller& gpu);
  void ask_for(int32_t link);
  void read_states_one_by_one(Caller& gpu);
  void set_state(int32_t link, bool up);
  void add_sums(bool bytes_summed_elsewhere, GpuState& out) const;

  const Api* api_;
  bool opened_ = false;
  int32_t count_ = 0;
  FieldBatch batch_;
  std::vector<int8_t> up_;                 // by link; -1: not known yet
  std::vector<std::vector<double>> last_;  // by field of the table, by link: the last counter; NaN: none yet
  int64_t downs_ = 0;
};

}  // namespace lockstep::nvml
