// What Lockstep itself costs, as a share of the fleet it watches: the one place that computes it.
//
// All of it is read from stored series of the window: what agents report of themselves (model/agent_own_metrics.h), how many
// CPUs their hosts have, and what the server writes of itself (server/own_series.h). Where agents do not say that number, it is
// the sum over the modes of their CPUs of what they gained a second: ten times as much to read.
// Counters that fall began again and are counted from zero there.
//
// What is not known is NaN, and a row of `unknown` says of what and why; no host counts as 0. A host's values that come by two
// ways (label `job`) count once.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "store/metric_reader.h"

namespace lockstep {

inline constexpr double kUnknownCost = std::numeric_limits<double>::quiet_NaN();

struct AgentOverhead {
  size_t hosts = 0;                 // whose agent reported its processor time
  double cpu_cores = kUnknownCost;  // of all hosts where it is known, as a mean over the window
  size_t share_hosts = 0;           // of which cores are known too
  double share_cpu_cores = 0;       // what agents took there
  double share_of_cores = 0;        // of so many
  double cpu_share = kUnknownCost;
  std::string worst_host;  // by share
  double worst_cpu_cores = kUnknownCost, worst_share = kUnknownCost;
  double memory_bytes = kUnknownCost;  // of all hosts that reported it, the newest
  double sent_bytes_per_s = kUnknownCost;
  size_t gpus = 0;  // of hosts whose bytes are known
  double sent_bytes_per_s_per_gpu = kUnknownCost;
};

struct ServerOverhead {
  double cpu_cores = kUnknownCost;
  double memory_bytes = kUnknownCost;
  double disk_bytes = kUnknownCost;
  double disk_bytes_per_gpu = kUnknownCost;
  double disk_bytes_per_gpu_day = kUnknownCost;  // what was added and not removed, over a window of a day or longer
};

struct UnknownCost {
  std::string what;      // "cores", "agent_cpu", "sent_bytes", "gpus", "server_cpu", "server_disk_growth", ...
  size_t hosts = 0;      // 0: it is not about hosts
  std::string example;   // one of them
  std::string sentence;  // which hosts, what, why
};

struct Overhead {
  int64_t from_unix_ns = 0, to_unix_ns = 0;
  AgentOverhead agents;
  ServerOverhead server;
  std::vector<UnknownCost> unknown;
  std::string sentence;
};

// heard_hosts: whose agents were heard within the window, by whatever they sent. An error: the store cannot be read.
Result<Overhead> overhead_of(const MetricReader& metrics, std::span<const std::string> heard_hosts,
                             int64_t from_unix_ns, int64_t to_unix_ns);

}  // namespace lockstep
