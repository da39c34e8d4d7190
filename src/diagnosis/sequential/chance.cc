#include "diagnosis/sequential/chance.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

double witness_nats() {
  return std::log(10.0);
}

double steps_of_the_start(double step_ns) {
  constexpr double kHourNs = 3.6e12;
  return std::max(1.0, kHourNs / std::max(1.0, step_ns));
}

double nats_of_the_start(double step_ns) {
  return std::log(steps_of_the_start(step_ns));
}

double nats_of(const Repetition& seen) {
  if (seen.hits == 0 || seen.steps == 0) return 0;
  constexpr double kRarest = 0.1;  // a tail is not followed further than that
  const double unseen = seen.size > 0 ? std::clamp(seen.others_largest / seen.size, kRarest, 1.0) : 1;
  // Hits that this one would have if it were as the others are.
  const double expected = (static_cast<double>(seen.others_hits) + unseen) * static_cast<double>(seen.steps) /
                          std::max(1.0, static_cast<double>(seen.others_steps));
  return static_cast<double>(seen.hits) * std::log1p(1 / expected);
}

double nats_of_share(size_t hits, size_t all, size_t alike) {
  if (hits == 0 || alike < 2) return 0;
  const double n = static_cast<double>(all), share = static_cast<double>(hits) / n;
  const double fair = 1 / static_cast<double>(alike);
  if (share <= fair) return 0;
  const double rest = 1 - share;
  return n * (share * std::log(share / fair) + (rest > 0 ? rest * std::log(rest / (1 - fair)) : 0));
}

double nats_of_windows(size_t steps) {
  return std::log(std::max<double>(1, static_cast<double>(steps)));
}

}  // namespace lockstep
