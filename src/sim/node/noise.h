// Random numbers that every machine draws alike (the standard's distributions are each library's own). Each call takes
// exactly one step of the generator, whatever it is asked for: so what a fault changes never shifts the noise of
// anything else, and a faulty run differs from a healthy one of the same seed by the fault alone.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace lockstep::sim {

// Of two words a third that looks like neither (the finalizer of splitmix64).
constexpr uint64_t mixed(uint64_t a, uint64_t b = 0) {
  uint64_t z = a + 0x9E3779B97F4A7C15u * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
constexpr uint64_t mixed(uint64_t a, std::string_view text) {
  for (char c : text) a = mixed(a, static_cast<unsigned char>(c));
  return a;
}
// 0 to 1, without 1.
constexpr double unit_of(uint64_t word) {
  return static_cast<double>(word >> 11) * 0x1p-53;
}

class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}

  uint64_t word() { return mixed(state_++, 0x5eed); }
  double uniform() { return unit_of(word()); }
  double between(double least, double most) { return least + (most - least) * uniform(); }
  // A whole number that a counter might have stood at when the agent came.
  double standing(double least, double most) { return std::floor(between(least, most)); }
  // About normal, mean 0, deviation 1, never beyond 3.5: the sum of four uniform parts of one word.
  double gauss() { return gauss_of(word()); }
  // How often something happened that happens `mean` times on average (Poisson). Grows with the mean.
  double count(double mean) {
    const uint64_t drawn = word();
    if (!(mean > 0)) return 0;
    if (mean > 24) return std::max(0.0, std::round(mean + std::sqrt(mean) * gauss_of(drawn)));
    const double u = unit_of(drawn);
    double share = std::exp(-mean), below = share;
    double n = 0;
    while (u >= below && n < 100) {
      ++n;
      share *= mean / n;
      below += share;
    }
    return n;
  }

 private:
  static double gauss_of(uint64_t word) {
    double sum = 0;
    for (int part = 0; part < 4; ++part, word >>= 16) sum += static_cast<double>(word & 0xFFFF);
    return (sum / 65536 - 2) * 1.7320508;
  }

  uint64_t state_;
};

}  // namespace lockstep::sim
