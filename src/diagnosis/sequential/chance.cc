#include "diagnosis/sequential/chance.h"

#include <algorithm>
#include <cmath>

#include "diagnosis/sequential/shift_monitor.h"

namespace lockstep {

double witness_nats() {
  return std::log(kSuspectedPerJobHour / kConfirmedPerJobHour);
}

double nats_of(const Repetition& seen) {
  if (seen.hits == 0 || seen.steps == 0) return 0;
  constexpr double kRarest = 0.02;  // a tail is not followed further than that
  const double unseen = seen.size > 0 ? std::clamp(seen.others_largest / seen.size, kRarest, 1.0) : 1;
  const double rate = std::min(
      1.0, (static_cast<double>(seen.others_hits) + unseen) / std::max(1.0, static_cast<double>(seen.others_steps)));
  const auto n = static_cast<double>(seen.steps), k = static_cast<double>(std::min(seen.hits, seen.steps));
  if (k <= n * rate) return 0;
  // The first term of the binomial tail, and no more of the others than a geometric series has.
  const double ratio = (n - k) * rate / ((k + 1) * (1 - rate));
  const double term = std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(rate) +
                      (n - k) * std::log1p(-rate);
  return std::max(0.0, -term + std::log1p(-ratio));
}

}  // namespace lockstep
