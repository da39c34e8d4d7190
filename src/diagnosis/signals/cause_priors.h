// How often each cause was the right one at this site: what the studies found to begin with, then what people here said
// of verdicts (right, wrong).
//
// weight(cause) = (kStrength x share in the signature table + times right) / (kStrength + all that was right), minus
// what was said to be wrong: each wrong takes half a right. So forty answers outweigh the literature, and one angry
// click does not.
// Thread rule: Thread-safe (one lock).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"
#include "model/feedback.h"

namespace lockstep {

class CausePriors {
 public:
  static constexpr double kStrength = 40;

  CausePriors() = default;
  CausePriors(const CausePriors& other);
  CausePriors& operator=(const CausePriors& other);

  // Share of this cause among all, greater than 0. table_share: what the signature's row says.
  double weight(Cause cause, double table_share) const;
  // A person said of a verdict with this cause that it was right or wrong. Nothing where no cause was named.
  void feedback(Cause cause, bool right);
  // What all this feedback together teaches. "Wrong, it was X" is a wrong for what was said and a right for X.
  static CausePriors of(std::span<const VerdictFeedback> all);
  // {"ecc":{"right":3,"wrong":1},...}
  std::string to_json() const;
  // A cause that this version does not know is left out. On error one line says what was wrong.
  static Result<CausePriors> from_json(std::string_view text);

 private:
  struct Counts {
    int64_t right = 0;
    int64_t wrong = 0;
  };
  mutable Mutex mutex_;
  std::array<Counts, kTerms<Cause>.size()> counts_ LOCKSTEP_GUARDED_BY(mutex_){};  // in the order of Cause
};

}  // namespace lockstep
