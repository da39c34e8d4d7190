// The metrics of a GPU fleet, repeatable: 98 series per GPU, values from hashes of (seed, series, step), so that two
// runs send the same numbers and only the times differ.
//
// Per GPU: 40 of the device (integer walks, noise of 3 to 6 decimals, byte counters, and 17 that are constant, as error
// counters are), 36 counters of NVLinks, 12 of the RDMA port, 10 of training. Eight GPUs a node. Up to 1,024 nodes are
// one job, the rest are jobs of eight nodes; a fleet of 64 nodes is a job of 32 and four of eight. Rank 4242 steps 1.28
// times as long as the others, ranks 77 and 6001 1.09 times.
//
// Thread rule: Confined; but values() of two nodes may be asked for by two threads at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/pushed_series.h"

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
  std::string job;  // all nodes are one job of this name, on hosts named as the simulator names them; empty: as above
};

class Fleet {
 public:
  // What a node's labels say of it.
  struct Identity {
    std::string host, job;
    int first_rank = 0;  // of the job
    std::string uuids[kGpusPerNode];
  };

  explicit Fleet(FleetOptions options);
  int nodes() const { return options_.nodes; }
  uint64_t series() const;                               // at a time
  uint64_t series_made() const { return series_made_; }  // by append_node(), so far
  // One node's series at a step, appended to a remote write 1.0 request. Steps go up.
  void append_node(std::string& request, int node, int step, int64_t start_ms);

  // The same in parts.
  Identity identity(int node, int step) const;
  static std::vector<Labels> labels_of(const Identity& identity);
  int64_t time_ms(int node, int step, int64_t start_ms) const;
  // Moves the node on to this step, which may not be asked for twice.
  std::span<const double> values(int node, int step);

 private:
  struct Node {
    std::vector<double> values;  // where a series has a state: 98 for each of 8 GPUs
    std::string labels;          // all of them, one after the other; kept for append_node() alone
    std::vector<uint32_t> ends;  // of each series' labels
    int generation = -1;
  };
  std::string job_of(int node, int generation, int* rank) const;
  int generation_of(int node, int step) const;

  FleetOptions options_;
  std::vector<Node> nodes_;
  uint64_t series_made_ = 0;
};

}  // namespace lockstep::bench
