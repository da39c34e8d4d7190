// The host beside its GPUs and NICs: CPU, memory, pressure, disks, shared storage, clock, and how long training threads
// wait for a CPU. What node_exporter would read, and what explains a straggler that has no fault of its own.
//
// A fast tick reads pressure and the key threads of training processes; a slow tick reads the rest. Nothing here asks a
// file server, a disk or a driver: /proc, /sys and one adjtimex(2). Where the root is not "", the clock's state comes
// from ROOT/run/lockstep-recorded/adjtimex ("key: value" lines: offset_ns, maxerror_us, esterror_us, status).
//
// Thread rule: Confined.
// Limits:      threads_max threads a tick, the rest in turn; 32 disks, 8 mounts, 16 NUMA nodes; the walk over all
//              processes takes at most walk_budget_ns of a tick and goes on in the next.
// On error:    a file that is not there is a feature that this kernel has not, told by check(); one that cannot be read
//              is a failure, said once. An odd line loses that line alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sources/node_source.h"

namespace lockstep {

struct HostSourceOptions {
  std::string root;
  size_t threads_max = 4096;     // read in one tick
  size_t kept_files_max = 1024;  // files of threads that are kept open; at most a quarter of the process's limit
  int64_t walk_budget_ns = 20'000'000;
  // Threads of a process that are known to drive NCCL's network (its flight recorder has their ids), asked at slow
  // ticks. NCCL names its threads only where NCCL_SET_THREAD_NAME=1 is set. Empty: by name alone.
  std::function<std::vector<int32_t>(int32_t pid)> proxy_threads;
};

std::unique_ptr<NodeSource> open_host_source(HostSourceOptions options);

}  // namespace lockstep
