// The newest step of a job, from numbers that ranks tell. One that is far from where the job is (kFarSteps) is not
// taken at face value, so that a single wrong number does not move what everybody sees of the job; said again and again
// (kFarRowsMax in a row) it is believed: the job has jumped, or the number before was the wrong one.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/ids.h"

namespace lockstep {

class StepFollower {
 public:
  static constexpr int64_t kFarSteps = 100'000;
  static constexpr int kFarRowsMax = 64;
  // A rank is silent, and not waited for, once others went on, for so long and by so many steps, since it last sent one.
  // Agents look at ranks four times a second; on a node without a free core, or where a request has to be sent again, it
  // takes seconds.
  static constexpr int64_t kSilentNs = 5'000'000'000;
  static constexpr int64_t kSilentSteps = 3;

  enum class Taken { kNear, kFar, kJumped };
  Taken take(StepNumber step) {
    if (is_near(step)) {
      far_rows_ = 0;
      newest_ = std::max(newest_, step);
      return Taken::kNear;
    }
    if (++far_rows_ < kFarRowsMax) return Taken::kFar;
    far_rows_ = 0;
    newest_ = step;
    return Taken::kJumped;
  }
  // What is known from elsewhere: taken where it is near.
  void restore(StepNumber step) {
    if (is_near(step)) newest_ = std::max(newest_, step);
  }
  bool is_near(StepNumber step) const {
    return newest_ < 0_step || (step >= newest_ - kFarSteps && step <= newest_ + kFarSteps);
  }
  StepNumber newest() const { return newest_; }  // -1: none

 private:
  StepNumber newest_ = kNoStep;
  int far_rows_ = 0;
};

}  // namespace lockstep
