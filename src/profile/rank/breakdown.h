// Where one rank's time went, with HTA's definitions: what ran, what overlapped, what was idle and why, kernel by kernel.
//
// Temporal breakdown: from the first start to the last end of what ran on the GPU; idle is that minus the union of
// everything; computation is the union of its kernels. Overlap is the time in which both computation and communication
// ran, over the union of communication. Idle per stream is the gap before each activity: host_wait where its launch
// began after the one before it had ended, else kernel_wait where the gap is short, else other. Queue length is what
// has been launched on a stream and has not begun.
//
// Other than HTA: times are nanoseconds; a stream's gap is measured from the latest end before it, so that overlapping
// kernels give no negative idle time; one launch may start many kernels (CUDA graphs); RCCL's and HIP's copies are not
// communication; statistics of a kernel's name are over its calls, however many names there are.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "profile/rank/rank_index.h"

namespace lockstep::profile {

struct BreakdownOptions {
  int64_t short_gap_ns = 30'000;    // below it an idle gap is the time between two kernels
  int64_t slow_launch_ns = 50'000;  // a launch call that takes longer on the host
  int64_t long_delay_ns = 100'000;  // from the end of a launch call to the kernel
  int64_t queue_limit = 1024;       // CUDA holds a launch back when so many are waiting
};

// Time by which classes ran at once: a bit per KernelClass.
struct TimeSplit {
  int64_t total_ns = 0;
  std::array<int64_t, 8> by_classes_ns = {};

  int64_t idle_ns() const { return by_classes_ns[0]; }
  int64_t busy_ns() const { return total_ns - by_classes_ns[0]; }
  int64_t of(KernelClass one) const;
  int64_t alone(KernelClass one) const { return by_classes_ns[1u << static_cast<unsigned>(one)]; }
  int64_t of_both(KernelClass one, KernelClass other) const;
  int64_t non_compute_ns() const { return busy_ns() - of(KernelClass::kCompute); }
  // Share of communication that computation hid; 0 where there is no communication.
  double overlap() const;
  int64_t exposed_communication_ns() const {
    return of(KernelClass::kCommunication) - of_both(KernelClass::kCompute, KernelClass::kCommunication);
  }
};

struct KernelRow {
  uint32_t name = 0;  // in the trace's texts
  KernelTraits traits;
  uint64_t count = 0;
  int64_t sum_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  double mean_ns = 0;
  double deviation_ns = 0;  // of the sample, as pandas has it; 0 for a single call
  int64_t launch_ns = 0;    // host time of the calls that launched it; a graph's call counts in parts
  uint32_t op = 0;          // name of the operator it mostly ran for; 0: not known
  uint64_t bytes = 0;       // of copies
  uint64_t from_graph = 0;  // of count
  uint32_t example = 0;     // its longest call, an Activity
};

struct IdleRow {
  int32_t device = 0;
  int64_t stream = 0;
  int64_t host_wait_ns = 0;
  int64_t kernel_wait_ns = 0;
  int64_t other_ns = 0;
  int64_t total_ns() const { return host_wait_ns + kernel_wait_ns + other_ns; }
};

struct Distribution {
  uint64_t count = 0;
  int64_t sum = 0;
  int64_t least = 0;
  int64_t median = 0;
  int64_t p95 = 0;
  int64_t most = 0;
  double mean() const { return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count); }
};

struct LaunchStats {
  Distribution call_ns;     // host time of the call
  Distribution work_ns;     // GPU time of what it started
  Distribution delay_ns;    // from the end of the call to the start of the work, at least 0
  uint64_t short_work = 0;  // work shorter than its call: launch bound
  uint64_t slow_calls = 0;
  uint64_t long_delays = 0;
};

struct QueueRow {
  int32_t device = 0;
  int64_t stream = 0;
  uint64_t changes = 0;
  int64_t most = 0;
  double mean = 0;          // over changes, as HTA describes it
  double mean_in_time = 0;  // over time
  int64_t at_limit_ns = 0;  // with the queue full
};

struct CopyRow {
  std::string kind;  // "Memcpy HtoD", "Memset"
  uint64_t count = 0;
  uint64_t bytes = 0;
  int64_t sum_ns = 0;
  double gigabytes_per_s = 0;       // bytes over time
  double most_gigabytes_per_s = 0;  // of those that ran at once, as the trace reports them
};

// Gaps in which nothing at all ran on the GPU, by what the host did instead.
struct GapRow {
  std::string what;  // an annotation, an operator, a runtime call; "host code outside operators"
  uint64_t count = 0;
  int64_t sum_ns = 0;
  int64_t most_ns = 0;
  bool is_data_loading = false;
};

struct Breakdown {
  TimeSplit time;
  std::vector<KernelRow> kernels;  // by time, most first
  std::vector<IdleRow> idle;       // per stream
  std::vector<GapRow> gaps;        // by time, most first
  int64_t gaps_waiting_for_host_ns = 0;
  LaunchStats launches;
  std::vector<QueueRow> queues;
  std::vector<CopyRow> copies;
};

Breakdown break_down(const RankIndex& index, const BreakdownOptions& options = {});

}  // namespace lockstep::profile
