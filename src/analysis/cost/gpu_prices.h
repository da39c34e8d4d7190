// What GPU time costs, by the model of the GPUs: "2.5", or "H100=2.5,A100=1.8,1.2" (the one without a name is of all others).
// A name fits where the model as the driver gives it contains it ("NVIDIA H100 80GB HBM3"); the first that fits counts.
//
// GPUs of one job may be of several models. Time on GPUs without a price is kept apart and their models are named: it is
// never counted as 0.
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep {

// How many GPUs there are of each model; "": of models that are not known.
using GpusByModel = std::map<std::string, int64_t>;

// GPU time, and what of it costs how much. Costs add up.
struct GpuCost {
  double gpu_seconds = 0;
  double priced_gpu_seconds = 0;           // of these, on GPUs that have a price
  double money = 0;                        // what those cost
  double price_least = 0, price_most = 0;  // of a GPU-hour; 0: nothing has a price
  std::set<std::string> unpriced;  // models without a price; "": not known which. Empty where no price is known at all
  bool has_price() const { return price_most > 0; }
  double price() const {
    return priced_gpu_seconds > 0 ? 3600 * money / priced_gpu_seconds : price_least;
  }  // on average
  GpuCost& operator+=(const GpuCost& other);
};
// "0.6 GPU-minutes", "3.2 GPU-hours"
std::string gpu_time_text(double gpu_seconds);
// "6.40 at 2.00 a GPU-hour", "4.80 at 2.00 a GPU-hour, and 0.8 GPU-hours without a price (NVIDIA L4)", "no price for NVIDIA
// L4"; empty: no price is known at all.
std::string money_text(const GpuCost& cost);

class GpuPrices {
 public:
  GpuPrices() = default;
  explicit GpuPrices(double of_all) : of_others_(of_all) {}
  static Result<GpuPrices> parse(std::string_view text);

  double of(std::string_view gpu_model) const;  // 0: not known
  bool known() const { return of_others_ > 0 || by_model(); }
  bool by_model() const { return !by_model_.empty(); }
  // Of time in which all these GPUs are equally long. No GPUs: one of a model that is not known.
  GpuCost cost(double gpu_seconds, const GpusByModel& gpus) const;

 private:
  std::vector<std::pair<std::string, double>> by_model_;
  double of_others_ = 0;
};

}  // namespace lockstep
