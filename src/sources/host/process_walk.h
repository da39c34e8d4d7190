// Walks over all processes of the host, for two questions: who is stuck in state D, and whose children are whose.
//
// A host may have tens of thousands of processes, so a walk has a time budget per tick and goes on in the next one;
// what it found is there when it has gone round. Kernel threads, most of a large machine's processes, are looked at in
// every third round.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sources/host/host_files.h"

namespace lockstep::host {

// What a task in state D waits for, by the kernel function that it sleeps in.
enum class WaitKind : uint8_t { kNfs, kLustre, kBlock, kGpu, kMemory, kLock, kUnknown };
inline constexpr size_t kWaitKinds = 7;
inline constexpr const char* kWaitKindNames[kWaitKinds] = {"nfs",    "lustre", "block",  "gpu",
                                                           "memory", "lock",   "unknown"};
WaitKind wait_kind(std::string_view kernel_function);

struct WalkedProcess {
  int32_t pid = 0;
  int32_t parent = 0;
  bool kernel_thread = false;
  bool stuck = false;  // state D
  WaitKind wait = WaitKind::kUnknown;
  std::string comm;
};

class ProcessWalk {
 public:
  explicit ProcessWalk(HostFiles& files);
  // Begins a new round if the last one is over.
  void start();
  // Goes on for about budget_ns; true when the round is over, now.
  bool go(int64_t budget_ns);
  // Of the last whole round, by pid, ascending.
  const std::vector<WalkedProcess>& processes() const { return processes_; }

 private:
  void read(int32_t pid);
  // Takes over what is known of kernel threads, and leaves them out of this round.
  void keep_kernel_threads();

  HostFiles& files_;
  UniqueFd proc_;
  std::string buffer_;
  std::vector<int32_t> pids_;
  size_t at_ = 0;
  bool walking_ = false;
  uint64_t rounds_ = 0;
  size_t waits_asked_ = 0;
  std::vector<WalkedProcess> found_;
  std::vector<WalkedProcess> processes_;
};

// Which process of `roots` each other process descends from (five generations at most); those of `roots` are not in it.
std::map<int32_t, int32_t> descendants(const std::vector<WalkedProcess>& processes, const std::vector<int32_t>& roots);

}  // namespace lockstep::host
