// The metrics of a GPU fleet, repeatable: 98 series per GPU, values from hashes of (seed, series, step), so that two
// runs send the same numbers and only the times differ.
//
// Per GPU: 40 of the device (integer walks, noise of 3 to 6 decimals, byte counters, and 17 that are constant, as error
// counters are), 36 counters of NVLinks, 12 of the RDMA port, 10 of training. Eight GPUs a node. Up to 1,024 nodes are
// one job, the rest are jobs of eight nodes; a fleet of 64 nodes is a job of 32 and four of eight. Rank 4242 steps 1.28
// times as long as the others, ranks 77 and 6001 1.09 times. Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench {

inline constexpr int kGpusPerNode = 8;
inline constexpr int kSeriesPerGpu = 98;
inline constexpr uint64_t kSeed = 20260801;

struct FleetOptions {
  int nodes = 1280;
  int64_t interval_ms = 10'000;
  int64_t jitter_ms = 0;  // of every push besides its node's fixed phase
  double churn = 0;       // share of the nodes outside the large job that change jobs every churn_steps
  int churn_steps = 60;
};

class Fleet {
 public:
  explicit Fleet(FleetOptions options);
  uint64_t series() const;
  // One node's series at a step, appended to a remote write 1.0 request. Steps go up by one.
  void append_node(std::string& request, int node, int step, int64_t start_ms);

 private:
  struct Node {
    std::vector<double> values;  // where a series has a state: 98 for each of 8 GPUs
    std::string labels;          // all of them, one after the other
    std::vector<uint32_t> ends;  // of each series' labels
    int generation = -1;
    int next_step = 0;
  };
  void label(Node& one, int node, int generation) const;
  std::string job_of(int node, int generation, int* rank) const;
  int generation_of(int node, int step) const;

  FleetOptions options_;
  std::vector<Node> nodes_;
};

}  // namespace lockstep::bench
