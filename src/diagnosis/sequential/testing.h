// Noise of known kinds for tests and measurements of the statistical core: healthy streams with a standard deviation
// (or, where that does not exist or says little, a comparable spread) of 0.8 %, from a seed.
//
// Thread rule: Confined.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

namespace lockstep {

struct NoiseKind {
  const char* name;
  enum class Shape { kNormal, kStudent3, kLognormal, kHiccups } shape = Shape::kNormal;
  double correlation = 0;  // AR(1)
  double drift = 0;        // of each stream's level, up and down by this in kDriftSteps
  double lasting = 0;      // standard deviation of what streams differ by for good
  double scales = 0;       // streams' own scales differ by a factor e^(this times a normal)
};

inline std::span<const NoiseKind> noise_kinds() {
  using Shape = NoiseKind::Shape;
  static constexpr NoiseKind kinds[] = {
      {"normal", Shape::kNormal},
      {"Student t, 3 degrees", Shape::kStudent3},
      {"lognormal", Shape::kLognormal},
      {"AR(1) 0.5", Shape::kNormal, 0.5},
      {"AR(1) 0.5 of t, 3 degrees", Shape::kStudent3, 0.5},
      {"1 % hiccups of 6 sigmas and more", Shape::kHiccups},
      {"drift of 1 % in 1,800 steps", Shape::kNormal, 0, 0.01},
      {"lasting differences of 1 %, own scales", Shape::kNormal, 0, 0, 0.01, 0.3},
  };
  return kinds;
}

class NoiseSource {
 public:
  static constexpr double kScale = 0.008;
  static constexpr double kDriftSteps = 1800;

  NoiseSource(const NoiseKind& kind, size_t streams, uint64_t seed, double scale = kScale)
      : kind_(kind), state_(seed * 2 + 1), scale_of_all_(scale), last_(streams) {
    for (size_t i = 0; i < streams; ++i) {
      last_[i] = one();
      level_.push_back(kind.lasting * normal());
      phase_.push_back(2 * std::numbers::pi * uniform());
      scale_.push_back(std::exp(kind.scales * normal()));
    }
  }

  void draw(std::span<float> values) {
    ++step_;
    const double r = kind_.correlation;
    for (size_t i = 0; i < values.size(); ++i) {
      last_[i] = r == 0 ? one() : r * last_[i] + std::sqrt(1 - r * r) * one();
      double value = scale_of_all_ * scale_[i] * last_[i] + level_[i];
      if (kind_.drift > 0) value += kind_.drift / 2 * std::sin(phase_[i] + std::numbers::pi * step_ / kDriftSteps);
      values[i] = static_cast<float>(value);
    }
  }

 private:
  double uniform() {  // splitmix64; never 0
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (static_cast<double>((z ^ (z >> 31)) >> 11) + 0.5) / 9007199254740992.0;
  }
  double normal() {
    if (spare_here_) {
      spare_here_ = false;
      return spare_;
    }
    double a = 0, b = 0, square = 0;
    do {
      a = 2 * uniform() - 1;
      b = 2 * uniform() - 1;
      square = a * a + b * b;
    } while (square >= 1);
    const double factor = std::sqrt(-2 * std::log(square) / square);
    spare_ = b * factor;
    spare_here_ = true;
    return a * factor;
  }
  double one() {
    switch (kind_.shape) {
      case NoiseKind::Shape::kStudent3: {
        const double a = normal(), b = normal(), c = normal();
        return normal() / std::sqrt(a * a + b * b + c * c);  // scaled to a standard deviation of one
      }
      case NoiseKind::Shape::kLognormal:  // of sigma 0.5, scaled to a standard deviation of one
        return (std::exp(0.5 * normal()) - 1) / 0.6039;
      case NoiseKind::Shape::kHiccups:
        return normal() + (uniform() < 0.01 ? 6 - 3 * std::log(uniform()) : 0.0);
      case NoiseKind::Shape::kNormal:
        break;
    }
    return normal();
  }

  NoiseKind kind_;
  uint64_t state_;
  double scale_of_all_;
  double spare_ = 0;
  bool spare_here_ = false;
  double step_ = 0;
  std::vector<double> last_, level_, phase_, scale_;
};

}  // namespace lockstep
