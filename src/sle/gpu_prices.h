// What a GPU-hour costs, by the GPU's model: "2.5", or "H100=2.5,A100=1.8,1.2" (the one without a name is of all others).
// A name fits where the model as the driver gives it contains it ("NVIDIA H100 80GB HBM3"); the first that fits counts.
//
// Thread rule: Immutable.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep {

class GpuPrices {
 public:
  GpuPrices() = default;
  explicit GpuPrices(double of_all) : of_others_(of_all) {}
  static Result<GpuPrices> parse(std::string_view text);

  double of(std::string_view gpu_model) const;  // 0: not known
  double of_others() const { return of_others_; }
  bool has_models() const { return !by_model_.empty(); }
  bool known() const { return of_others_ > 0 || has_models(); }

 private:
  std::vector<std::pair<std::string, double>> by_model_;
  double of_others_ = 0;
};

}  // namespace lockstep
