#include "bench/metrics/fleet.h"

#include <cmath>

#include "base/protobuf_wire.h"
#include "base/text.h"
#include "wire/remote_write.h"

namespace lockstep::bench {
namespace {

uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
uint64_t draw(uint64_t series, uint64_t step, uint64_t which) {
  return mix(mix(mix(kSeed + which) ^ series) ^ step);
}
double uniform(uint64_t series, uint64_t step, uint64_t which) {
  return static_cast<double>(draw(series, step, which) >> 11) * 0x1.0p-53;
}
// Four uniforms, scaled to a deviation of one.
double normal(uint64_t series, uint64_t step) {
  double sum = 0;
  for (uint64_t i = 0; i < 4; ++i) sum += uniform(series, step, 10 + i);
  return (sum - 2) * std::sqrt(3.0);
}
double rounded(double value, double per_unit) {
  return std::round(value * per_unit) / per_unit;
}

enum class Kind {
  kWalk,      // integer that goes up or down by one with probability b, around a
  kNoise,     // a with a deviation of b, c steps per unit (1000: three decimals)
  kLevel,     // stays; with probability b jumps within a +- c
  kCounter,   // grows by a per second with a share of noise b
  kRare,      // grows by one with probability a
  kConstant,  // a
  kStep,      // step time of a seconds with a share of noise b, slower on some ranks
  kLoss,      // falls slowly
};

struct Row {
  const char* name;
  Kind kind;
  double a = 0, b = 0, c = 0;
};

constexpr Row kDevice[] = {
    {"gpu_temp_celsius", Kind::kWalk, 62, 0.3},
    {"gpu_memory_temp_celsius", Kind::kWalk, 74, 0.3},
    {"gpu_power_watts", Kind::kNoise, 640, 25, 1000},
    {"gpu_energy_millijoules_total", Kind::kCounter, 640'000, 0.02},
    {"gpu_sm_clock_megahertz", Kind::kLevel, 1755, 0.08, 45},
    {"gpu_memory_clock_megahertz", Kind::kConstant, 2619},
    {"gpu_utilization_percent", Kind::kWalk, 97, 0.3},
    {"gpu_memory_utilization_percent", Kind::kWalk, 58, 0.3},
    {"gpu_encoder_utilization_percent", Kind::kConstant, 0},
    {"gpu_decoder_utilization_percent", Kind::kConstant, 0},
    {"gpu_engine_active_ratio", Kind::kNoise, 0.96, 0.02, 1'000'000},
    {"gpu_sm_active_ratio", Kind::kNoise, 0.82, 0.041, 1'000'000},
    {"gpu_sm_occupancy_ratio", Kind::kNoise, 0.38, 0.019, 1'000'000},
    {"gpu_tensor_active_ratio", Kind::kNoise, 0.47, 0.0235, 1'000'000},
    {"gpu_dram_active_ratio", Kind::kNoise, 0.51, 0.0255, 1'000'000},
    {"gpu_fp16_active_ratio", Kind::kNoise, 0.12, 0.006, 1'000'000},
    {"gpu_fp32_active_ratio", Kind::kNoise, 0.09, 0.0045, 1'000'000},
    {"gpu_memory_used_mebibytes", Kind::kLevel, 71'000, 0.02, 900},
    {"gpu_memory_free_mebibytes", Kind::kLevel, 9'500, 0.02, 900},
    {"gpu_memory_reserved_mebibytes", Kind::kConstant, 586},
    {"gpu_pcie_tx_bytes_total", Kind::kCounter, 1.3e9, 0.02},
    {"gpu_pcie_rx_bytes_total", Kind::kCounter, 2.1e9, 0.02},
    {"gpu_nvlink_tx_bytes_total", Kind::kCounter, 6.2e10, 0.02},
    {"gpu_nvlink_rx_bytes_total", Kind::kCounter, 6.2e10, 0.02},
    {"gpu_pcie_replays_total", Kind::kRare, 0.003},
    {"gpu_nvlink_crc_errors_total", Kind::kRare, 0.003},
    {"gpu_throttle_nanoseconds_total", Kind::kRare, 0.35},
    {"gpu_xid_last", Kind::kConstant, 0},
    {"gpu_ecc_corrected_total", Kind::kConstant, 0},
    {"gpu_ecc_uncorrected_total", Kind::kConstant, 0},
    {"gpu_retired_pages_corrected", Kind::kConstant, 0},
    {"gpu_retired_pages_uncorrected", Kind::kConstant, 0},
    {"gpu_rows_remapped_pending", Kind::kConstant, 0},
    {"gpu_rows_remapped_failed", Kind::kConstant, 0},
    {"gpu_power_violation_nanoseconds_total", Kind::kConstant, 0},
    {"gpu_thermal_violation_nanoseconds_total", Kind::kConstant, 0},
    {"gpu_sync_violation_nanoseconds_total", Kind::kConstant, 0},
    {"gpu_board_limit_violation_nanoseconds_total", Kind::kConstant, 0},
    {"gpu_low_utilization_violation_nanoseconds_total", Kind::kConstant, 0},
    {"gpu_reliability_violation_nanoseconds_total", Kind::kConstant, 0},
};
static_assert(std::size(kDevice) == 40);
constexpr Row kLinks[] = {{"nvlink_tx_kibibytes_total", Kind::kCounter, 3.4e6, 0.02},
                          {"nvlink_rx_kibibytes_total", Kind::kCounter, 3.4e6, 0.02}};
constexpr int kLinksPerGpu = 18;
constexpr Row kPort[] = {
    {"rdma_tx_bytes_total", Kind::kCounter, 3.7e10, 0.02}, {"rdma_rx_bytes_total", Kind::kCounter, 3.7e10, 0.02},
    {"rdma_tx_packets_total", Kind::kCounter, 9e6, 0.05},  {"rdma_rx_packets_total", Kind::kCounter, 9e6, 0.05},
    {"rdma_cnp_sent_total", Kind::kCounter, 800, 0.2},     {"rdma_cnp_handled_total", Kind::kCounter, 800, 0.2},
    {"rdma_ecn_marked_total", Kind::kCounter, 800, 0.2},   {"rdma_out_of_sequence_total", Kind::kRare, 0.01},
    {"rdma_packet_seq_err_total", Kind::kRare, 0.003},     {"rdma_local_ack_timeout_total", Kind::kConstant, 0},
    {"rdma_symbol_errors_total", Kind::kConstant, 0},      {"rdma_link_downed_total", Kind::kConstant, 0},
};
static_assert(std::size(kPort) == 12);
constexpr Row kTraining[] = {
    {"train_step_seconds", Kind::kStep, 4.1, 0.015},
    {"train_forward_seconds", Kind::kStep, 1.2, 0.015},
    {"train_backward_seconds", Kind::kStep, 2.3, 0.015},
    {"train_optimizer_seconds", Kind::kNoise, 0.21, 0.004, 1'000'000},
    {"train_data_seconds", Kind::kNoise, 0.03, 0.004, 1'000'000},
    {"train_comm_exposed_seconds", Kind::kNoise, 0.37, 0.02, 1'000'000},
    {"train_loss", Kind::kLoss, 2.4, 0.01},
    {"train_grad_norm", Kind::kNoise, 0.8, 0.05, 1'000'000},
    {"train_steps_total", Kind::kCounter, 0.25, 0},
    {"train_tokens_total", Kind::kCounter, 8192, 0},
};
static_assert(std::size(kTraining) == 10);
static_assert(std::size(kDevice) + kLinksPerGpu * std::size(kLinks) + std::size(kPort) + std::size(kTraining) ==
              kSeriesPerGpu);

// The k-th series of a GPU, and its link where it has one.
const Row& row_of(int k, int* link) {
  *link = -1;
  if (k < 40) return kDevice[k];
  k -= 40;
  if (k < 36) {
    *link = k / 2;
    return kLinks[k % 2];
  }
  k -= 36;
  return k < 12 ? kPort[k] : kTraining[k - 12];
}

constexpr const char* kLargeJob = "train-0000";

double slowness(int rank, bool is_large_job) {
  if (!is_large_job) return 1;
  return rank == 4242 ? 1.28 : rank == 77 || rank == 6001 ? 1.09 : 1;
}

double next_value(const Row& row, double before, bool is_first, uint64_t series, uint64_t step, double seconds,
                  double slow) {
  switch (row.kind) {
    case Kind::kWalk: {
      if (is_first) return row.a + std::round(3 * normal(series, step));
      if (uniform(series, step, 1) >= row.b) return before;
      const bool up = before < row.a ? uniform(series, step, 2) < 0.6 : uniform(series, step, 2) < 0.4;
      return before + (up ? 1 : -1);
    }
    case Kind::kNoise:
      return rounded(row.a + row.b * normal(series, step), row.c);
    case Kind::kLevel:
      if (!is_first && uniform(series, step, 1) >= row.b) return before;
      return std::round(row.a + row.c * (2 * uniform(series, step, 2) - 1));
    case Kind::kCounter: {
      const double begin = is_first ? std::round(row.a * 3600 * (1 + uniform(series, 0, 3))) : before;
      return std::round(begin + row.a * seconds * (1 + row.b * normal(series, step)));
    }
    case Kind::kRare:
      return (is_first ? 0 : before) + (uniform(series, step, 1) < row.a ? 1 : 0);
    case Kind::kConstant:
      return row.a;
    case Kind::kStep:
      return rounded(row.a * slow * (1 + row.b * normal(series, step)), 1'000'000);
    case Kind::kLoss:
      return rounded(row.a - 0.0001 * static_cast<double>(step) + row.b * normal(series / 1000, step), 1'000'000);
  }
  return 0;
}

}  // namespace

Fleet::Fleet(FleetOptions options) : options_(options), nodes_(static_cast<size_t>(options.nodes)) {}

uint64_t Fleet::series() const {
  return static_cast<uint64_t>(options_.nodes) * kGpusPerNode * kSeriesPerGpu;
}

std::string Fleet::job_of(int node, int generation, int* rank) const {
  if (!options_.job.empty()) {
    *rank = node * kGpusPerNode;
    return options_.job;
  }
  const int large = options_.nodes >= 1280 ? options_.nodes * 4 / 5 : options_.nodes / 2;  // of 1280: 1024, of 64: 32
  if (node < large) {
    *rank = node * kGpusPerNode;
    return kLargeJob;
  }
  *rank = (node - large) % 8 * kGpusPerNode;
  const std::string name = format("train-%04d", 1 + (node - large) / 8);
  return generation == 0 ? name : name + format("-%d", generation);
}

int Fleet::generation_of(int node, int step) const {
  if (options_.churn <= 0 || uniform(static_cast<uint64_t>(node) / 8, 0, 7) >= options_.churn) return 0;
  int rank = 0;
  if (job_of(node, 0, &rank) == kLargeJob) return 0;
  return step / options_.churn_steps;
}

Fleet::Identity Fleet::identity(int node, int step) const {
  Identity identity;
  identity.host = format(options_.job.empty() ? "gpu-node-%05d" : "node-%02d", node);
  identity.job = job_of(node, generation_of(node, step), &identity.first_rank);
  for (int gpu = 0; gpu < kGpusPerNode; ++gpu) {
    const uint64_t id = mix(static_cast<uint64_t>(node) * kGpusPerNode + static_cast<uint64_t>(gpu));
    identity.uuids[gpu] = format("GPU-%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(id >> 32),
                                 static_cast<unsigned>(id >> 16 & 0xFFFF), static_cast<unsigned>(id & 0xFFFF), 0xA15u,
                                 static_cast<unsigned long long>(mix(id) & 0xFFFFFFFFFFFF));
  }
  return identity;
}

std::vector<Labels> Fleet::labels_of(const Identity& identity) {
  std::vector<Labels> all;
  for (int gpu = 0; gpu < kGpusPerNode; ++gpu) {
    for (int k = 0; k < kSeriesPerGpu; ++k) {
      int link = -1;
      const Row& row = row_of(k, &link);
      Labels& labels = all.emplace_back(Labels{{"__name__", row.name},
                                               {"cluster", "eu-north-1a"},
                                               {"gpu", std::to_string(gpu)},
                                               {"host", identity.host},
                                               {"job_id", identity.job}});
      if (link >= 0) labels.emplace_back("link", std::to_string(link));
      labels.emplace_back("model", "NVIDIA H100 80GB HBM3");
      if (k >= 76 && k < 88) labels.emplace_back("port", "mlx5_" + std::to_string(gpu) + ":1");
      labels.emplace_back("rank", std::to_string(identity.first_rank + gpu));
      labels.emplace_back("uuid", identity.uuids[gpu]);
    }
  }
  return all;
}

int64_t Fleet::time_ms(int node, int step, int64_t start_ms) const {
  const uint64_t id = static_cast<uint64_t>(node);
  const int64_t phase_ms = static_cast<int64_t>(mix(kSeed ^ id) % static_cast<uint64_t>(options_.interval_ms));
  const int64_t time_ms = start_ms + step * options_.interval_ms + phase_ms;
  if (options_.jitter_ms <= 0) return time_ms;
  return time_ms +
         static_cast<int64_t>(draw(id, static_cast<uint64_t>(step), 9) % static_cast<uint64_t>(options_.jitter_ms));
}

std::span<const double> Fleet::values(int node, int step) {
  Node& one = nodes_[static_cast<size_t>(node)];
  const bool is_first = one.values.empty();
  if (is_first) one.values.resize(kGpusPerNode * kSeriesPerGpu);
  int first_rank = 0;
  const bool is_large_job = job_of(node, 0, &first_rank) == kLargeJob;
  const double seconds = static_cast<double>(options_.interval_ms) / 1000;
  uint64_t series = static_cast<uint64_t>(node) * kGpusPerNode * kSeriesPerGpu;
  double* value = one.values.data();
  for (int gpu = 0; gpu < kGpusPerNode; ++gpu) {
    const double slow = slowness(first_rank + gpu, is_large_job);
    for (int k = 0; k < kSeriesPerGpu; ++k, ++value, ++series) {
      int link = -1;
      *value = next_value(row_of(k, &link), *value, is_first, series, static_cast<uint64_t>(step), seconds, slow);
    }
  }
  return one.values;
}

void Fleet::append_node(std::string& request, int node, int step, int64_t start_ms) {
  Node& one = nodes_[static_cast<size_t>(node)];
  if (const int generation = generation_of(node, step); generation != one.generation) {
    one.labels.clear();
    one.ends.clear();
    for (const Labels& labels : labels_of(identity(node, step))) {
      one.labels += remote_write::raw_labels_of(labels);
      one.ends.push_back(static_cast<uint32_t>(one.labels.size()));
    }
    one.generation = generation;
    series_made_ += one.ends.size();
  }
  const int64_t time = time_ms(node, step, start_ms);
  const std::span<const double> all = values(node, step);
  size_t began = 0;
  for (size_t at = 0; at < all.size(); ++at) {
    const size_t end = one.ends[at];
    remote_write::append_series(request, {.raw_labels = std::string_view(one.labels).substr(began, end - began),
                                          .times_ms = {&time, 1},
                                          .values = all.subspan(at, 1)});
    began = end;
  }
}

}  // namespace lockstep::bench
