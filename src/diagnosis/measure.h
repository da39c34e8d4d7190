// The numbers that claims are about, computed again from stored steps: what a claim says, its query returns.
//
// A claim's query names a measure, whose it is (ranks, a communicator, a flow, a stage) and in which steps. Detectors see
// the steps in their window; the endpoint /api/jobs/{job}/evidence reads the same steps from the store into a window of
// its own. Both compute with the rows of the table in measure.cc.
//
// Limits: kStepsMax steps and kRanksMax ranks of a query; beyond, it is refused with one line.
// Thread rule: Measure and its text Thread-safe (no state); Measurement Confined.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "diagnosis/window.h"
#include "model/ids.h"

namespace lockstep {

struct Measure {
  static constexpr size_t kStepsMax = 1024;
  static constexpr size_t kRanksMax = 1024;

  std::string of;  // a row of measure.cc: "own_ms"
  std::vector<Rank> ranks;
  std::vector<StepNumber> steps;  // in order
  CommId comm_id = {};            // 0: none
  int32_t peer = -1;              // of a flow: the receiver's rank in the communicator; -1: every one
  int32_t stage = -1;             // of a pipeline
  std::string name;               // of a scalar that ranks report

  std::string query() const;  // "/api/jobs/{job}/evidence?of=own_ms&ranks=5&steps=40-49"
};

struct MeasureRow;
struct MeasureInfo {
  std::string_view of;
  std::string_view unit;
  std::string_view help;
};
std::vector<MeasureInfo> measures();  // every one there is

// What a query of that text asks for; `parameter` gives the value of a name, empty where there is none.
Result<Measure> measure_from(const std::function<std::string(std::string_view)>& parameter);
// Its own ranks' rows are not enough: it compares ranks, or is about all of them.
bool needs_every_rank(const Measure& measure, bool communication_is_seen);

// Adds up a measure, step by step.
class Measurement {
 public:
  explicit Measurement(const Measure& measure);
  void add(const JobWindow& window, StepNumber step);  // one of the measure's; a step without its ranks adds nothing
  std::optional<double> value() const;                 // nothing: no step had it
  const std::vector<std::pair<StepNumber, double>>& by_step() const { return by_step_; }
  std::string_view unit() const;

 private:
  const Measure& measure_;
  const MeasureRow& row_;
  double sum_ = 0, count_ = 0, less_sum_ = 0, less_count_ = 0;
  std::vector<std::pair<StepNumber, double>> by_step_;
};

// Over the steps of the measure, as far as the window remembers them; 0 where it has none.
double measured(const JobWindow& window, const Measure& measure);

}  // namespace lockstep
