// The load that the engine's figures are for: what a fleet of eight-GPU nodes sends, 98 series per GPU. Stateless
// noise (splitmix64 of seed, series and tick), so that any value can be made alone and runs can be repeated.
//
// Thread rule: Immutable. For tests and benchmarks.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"
#include "model/metric_descriptor.h"

namespace lockstep::metrics {

class ReferenceLoad {
 public:
  static constexpr size_t kPerGpu = 98;
  static constexpr size_t kGpus = 8;
  static constexpr size_t kPerNode = kPerGpu * kGpus;
  static constexpr int64_t kTickMs = 10'000;

  explicit ReferenceLoad(uint64_t seed = 20260801) : seed_(seed) {}

  // Values of one series for ticks 0..count-1; walks and counters need their past.
  std::vector<double> column(uint64_t node, size_t k, size_t count) const {
    const size_t kind = k % kPerGpu;
    const uint64_t series = node * kPerNode + k;
    std::vector<double> values;
    double state = start(kind, series);
    for (size_t tick = 0; tick < count; ++tick) {
      state = next(kind, series, tick, state);
      values.push_back(shown(kind, series, tick, state));
    }
    return values;
  }
  // The state that column() carries along, for who makes row after row.
  double start(size_t kind, uint64_t series) const {
    if (kind == 0 || kind == 1) return 55 + std::floor(uniform(series, 1) * 10);
    if (kind == 4) return 1980;
    if (kind == 12 || kind == 13) return 61234 + static_cast<double>(series % 977);
    if (kind == 3) return std::floor(uniform(series, 2) * 1e9);
    if ((kind >= 14 && kind < 18) || (kind >= 40 && kind < 80)) return std::floor(uniform(series, 3) * 1e12);
    return 0;
  }
  double next(size_t kind, uint64_t series, uint64_t tick, double state) const {
    const double u = uniform(series, tick * 2 + 10);
    const double z = normal(series, tick);
    if (kind < 2) return state + (u < 0.15 ? -1 : u < 0.3 ? 1 : 0);
    if (kind == 3) return state + std::floor(6.4e6 + 1e5 * z);                          // energy, mJ
    if (kind == 4) return u < 0.04 ? state - 15 : u < 0.08 ? state + 15 : state;        // SM clock
    if (kind == 12 || kind == 13) return state + (u < 0.01 ? -64 : u < 0.02 ? 64 : 0);  // FB used and free
    if (kind >= 14 && kind < 18) return state + std::floor(5e10 * (1 + 0.02 * z));      // PCIe, NVLink bytes
    if (kind == 35 || kind == 36) return state + (u < 0.003 ? 1 : 0);
    if (kind == 37) return state + (u < 0.35 ? std::floor(1e6 * u) : 0);              // throttle time
    if (kind >= 40 && kind < 76) return state + std::floor(3.4e7 * (1 + 0.02 * z));   // NVLink KiB per link
    if (kind >= 76 && kind < 78) return state + std::floor(3.7e11 * (1 + 0.02 * z));  // RDMA bytes
    if (kind >= 78 && kind < 80) return state + std::floor(9e7 * (1 + 0.05 * z));
    if (kind >= 80 && kind < 82) return state + std::floor(8000 * (1 + 0.1 * z));
    if (kind >= 82 && kind < 84) return state + (u < 0.01 ? 1 : 0);
    if (kind == 96) return state + (tick % 5 < 2 ? 2 : 3);  // step counter
    if (kind == 97) return state + 4194304 * (tick % 5 < 2 ? 2 : 3);
    return state;
  }
  double shown(size_t kind, uint64_t series, uint64_t tick, double state) const {
    const double z = normal(series, tick);
    auto decimals = [](double value, double power) { return std::round(value * power) / power; };
    if (kind == 2) return decimals(640 + 25 * z, 1e3);                       // power, W
    if (kind >= 5 && kind < 7) return std::round(97 + z);                    // utilisation
    if (kind >= 7 && kind < 12) return decimals(0.6 * (1 + 0.05 * z), 1e6);  // profiling fractions
    if (kind == 38 || kind == 39) return decimals(0.3 * (1 + 0.05 * z), 1e6);
    if (kind == 88) return decimals(4.1 * (1 + 0.015 * z), 1e6);  // step time, s
    if (kind >= 89 && kind < 94) return decimals(0.8 * (1 + 0.03 * z), 1e6);
    if (kind == 94) return decimals(2.5 - 1e-5 * static_cast<double>(tick) + 0.01 * z, 1e4);  // loss
    if (kind == 95) return decimals(1.0 + 0.05 * z, 1e4);
    return state;
  }
  int64_t time_ms(uint64_t node, uint64_t tick) const {
    return 1'785'542'400'000 + static_cast<int64_t>(tick) * kTickMs + static_cast<int64_t>(mix(seed_ ^ node) % kTickMs);
  }

  // Sorted by name.
  static Labels labels(uint64_t node, size_t k) {
    const size_t kind = k % kPerGpu;
    const uint64_t gpu = k / kPerGpu;
    Labels labels{{"__name__", format("lockstep_reference_metric_%zu", kind >= 40 && kind < 76 ? 40 : kind)},
                  {"cluster", "reference-a"},
                  {"gpu", std::to_string(gpu)},
                  {"host", format("gpu-node-%05d", static_cast<int>(node))},
                  {"job_id", node < 1024 ? "train-0000" : format("train-%04d", static_cast<int>(node / 8 - 127))}};
    if (kind >= 40 && kind < 76) labels.emplace_back("link", std::to_string(kind - 40));
    labels.emplace_back("model", "NVIDIA H100 80GB HBM3");
    if (kind >= 76 && kind < 88) labels.emplace_back("port", "mlx5_" + std::to_string(gpu));
    labels.emplace_back("rank", std::to_string(node * kGpus + gpu));
    labels.emplace_back("uuid", format("GPU-%08x-1b2c-4d5e-8f90-%012llx", static_cast<unsigned>(mix(node * 8 + gpu)),
                                       static_cast<unsigned long long>(mix(node * 8 + gpu + 77) & 0xFFFFFFFFFFFF)));
    return labels;
  }

  static uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

 private:
  double uniform(uint64_t series, uint64_t what) const {
    return static_cast<double>(mix(mix(seed_ ^ series * 0x9E3779B1) + what) >> 11) * 0x1p-53;
  }
  double normal(uint64_t series, uint64_t tick) const {
    const uint64_t bits = mix(mix(seed_ ^ series * 0x9E3779B1) + tick * 7 + 3);
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>((bits >> (16 * i)) & 0xFFFF) / 65536;
    return (sum - 2) * 1.7320508;
  }
  uint64_t seed_;
};

}  // namespace lockstep::metrics
