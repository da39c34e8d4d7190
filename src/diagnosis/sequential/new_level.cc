#include "diagnosis/sequential/new_level.h"

#include <algorithm>
#include <cmath>

#include "base/median.h"

namespace lockstep {
namespace {

// Beyond so many scales a value is of the tail, as in shift_monitor.cc.
constexpr double kTailFrom = 4;
// Standard errors of a scale that is estimated from few values, by which it is taken larger.
constexpr double kCareful = 1.75;
// So many of the steps of a slow one are odd, and tell nothing.
constexpr double kOdd = 0.1;
// Values that do not differ at all are the clock's resolution: a quarter of a percent.
constexpr double kScaleMin = 0.0025;
// Levels that are looked for: from one percent more to twenty times as much.
constexpr double kSizeMin = 0.01;
constexpr double kSizeMax = 3;

// A Student t of three degrees of freedom.
double body(double z) {
  const double base = 1 + z * z / 3;
  return 0.3676 / (base * base);
}

}  // namespace

Usual usual_of(std::vector<double> values) {
  Usual usual{.values = values.size()};
  if (values.empty()) return usual;
  const auto count = static_cast<double>(values.size());
  usual.middle = median_of(values);
  usual.scale = std::max(kScaleMin, spread_of(values, usual.middle) * (1 + kCareful / std::sqrt(count)));
  const auto far = std::count_if(values.begin(), values.end(),
                                 [&](double value) { return value - usual.middle > kTailFrom * usual.scale; });
  usual.tail_share = (static_cast<double>(far) + 1) / (count + 1);
  return usual;
}

double nats_of_level(const Usual& usual, std::span<const double> since) {
  if (usual.values == 0) return 0;
  double nats = 0, sum = 0, known = 0;
  for (double value : since) {
    const double above = value - usual.middle;
    const double z = above / usual.scale;
    const double null = body(z) + (z > kTailFrom ? usual.tail_share * kTailFrom / (z * z) : 0);
    double other = 0;
    if (known == 0) {
      if (above > kSizeMin) other = usual.scale / (std::min(above, kSizeMax) * std::log(kSizeMax / kSizeMin));
    } else {
      const double level = std::max(kSizeMin, sum / known);
      const double width = std::sqrt(1 + 1 / known);
      other = body((above - level) / (usual.scale * width)) / width;
    }
    const double even = (1 - kOdd) * other / null;
    nats += std::log(kOdd + even);
    // The level is that of the steps that are not odd.
    const double weight = known == 0 ? 1 : even / (kOdd + even);
    sum += weight * above;
    known += weight;
  }
  return nats;
}

}  // namespace lockstep
