#include "sources/host/process_walk.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "sources/host/proc_text.h"

namespace lockstep::host {
namespace {

constexpr size_t kProcessesMax = 65536;
constexpr size_t kWaitsMax = 64;  // of one round
constexpr int kGenerationsMax = 5;
constexpr uint64_t kKernelThreadRounds = 3;

struct WaitName {
  const char* start;
  WaitKind kind;
};
constexpr WaitName kWaitNames[] = {
    {"nfs", WaitKind::kNfs},
    {"rpc_", WaitKind::kNfs},
    {"__rpc_", WaitKind::kNfs},
    {"ll_", WaitKind::kLustre},
    {"osc_", WaitKind::kLustre},
    {"ptlrpc", WaitKind::kLustre},
    {"cl_", WaitKind::kLustre},
    {"ldlm", WaitKind::kLustre},
    {"io_schedule", WaitKind::kBlock},
    {"blk_", WaitKind::kBlock},
    {"bio_", WaitKind::kBlock},
    {"submit_bio", WaitKind::kBlock},
    {"jbd2", WaitKind::kBlock},
    {"xfs_", WaitKind::kBlock},
    {"xlog_", WaitKind::kBlock},
    {"ext4_", WaitKind::kBlock},
    {"folio_wait", WaitKind::kBlock},
    {"wait_on_page", WaitKind::kBlock},
    {"wait_on_buffer", WaitKind::kBlock},
    {"__wait_on_buffer", WaitKind::kBlock},
    {"nvme_", WaitKind::kBlock},
    {"nv_", WaitKind::kGpu},
    {"nvidia", WaitKind::kGpu},
    {"uvm_", WaitKind::kGpu},
    {"os_acquire", WaitKind::kGpu},
    {"amdgpu", WaitKind::kGpu},
    {"kfd_", WaitKind::kGpu},
    {"dma_fence", WaitKind::kGpu},
    {"balance_dirty", WaitKind::kMemory},
    {"mem_cgroup", WaitKind::kMemory},
    {"shrink_", WaitKind::kMemory},
    {"reclaim", WaitKind::kMemory},
    {"do_swap_page", WaitKind::kMemory},
    {"rwsem_", WaitKind::kLock},
    {"__mutex", WaitKind::kLock},
    {"mutex_", WaitKind::kLock},
    {"down_", WaitKind::kLock},
    {"__down", WaitKind::kLock},
    {"percpu_", WaitKind::kLock},
};

}  // namespace

WaitKind wait_kind(std::string_view kernel_function) {
  for (const WaitName& name : kWaitNames) {
    if (kernel_function.starts_with(name.start)) return name.kind;
  }
  return WaitKind::kUnknown;
}

ProcessWalk::ProcessWalk(HostFiles& files) : files_(files) {}

void ProcessWalk::start() {
  if (walking_) return;
  if (!proc_.valid()) proc_ = UniqueFd(open((files_.root() + "/proc").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc_.valid()) return;
  number_names(proc_.get(), kProcessesMax, pids_);
  std::sort(pids_.begin(), pids_.end());
  found_.clear();
  at_ = 0;
  waits_asked_ = 0;
  walking_ = true;
  if (rounds_++ % kKernelThreadRounds != 0) keep_kernel_threads();
}

void ProcessWalk::keep_kernel_threads() {
  std::vector<int32_t> kept;
  for (const WalkedProcess& process : processes_) {
    if (!process.kernel_thread || !std::binary_search(pids_.begin(), pids_.end(), process.pid)) continue;
    found_.push_back(process);
    kept.push_back(process.pid);
  }
  std::erase_if(pids_, [&](int32_t pid) { return std::binary_search(kept.begin(), kept.end(), pid); });
}

void ProcessWalk::read(int32_t pid) {
  char path[40];
  snprintf(path, sizeof path, "%d/stat", pid);
  UniqueFd fd(openat(proc_.get(), path, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return;
  auto text = read_fd(fd.get(), buffer_, kSmallFileMax);
  auto stat = text ? parse_task_stat(*text) : std::nullopt;
  if (!stat) return;
  WalkedProcess process{pid,
                        stat->parent,
                        stat->kernel_thread,
                        stat->state == 'D',
                        WaitKind::kUnknown,
                        std::string(stat->comm.substr(0, 15))};
  if (process.stuck && waits_asked_ < kWaitsMax) {
    ++waits_asked_;
    snprintf(path, sizeof path, "%d/wchan", pid);
    UniqueFd wchan(openat(proc_.get(), path, O_RDONLY | O_CLOEXEC));
    auto name = wchan.valid() ? read_fd(wchan.get(), buffer_, 256) : std::nullopt;
    if (name) process.wait = wait_kind(*name);
  }
  found_.push_back(std::move(process));
}

bool ProcessWalk::go(int64_t budget_ns) {
  if (!walking_) return false;
  SystemClock clock;
  int64_t until_ns = clock.monotonic_ns() + budget_ns;
  while (at_ < pids_.size()) {
    read(pids_[at_++]);
    if (at_ % 16 == 0 && clock.monotonic_ns() > until_ns) return false;
  }
  walking_ = false;
  std::sort(found_.begin(), found_.end(), [](const auto& left, const auto& right) { return left.pid < right.pid; });
  processes_.swap(found_);
  return true;
}

std::map<int32_t, int32_t> descendants(const std::vector<WalkedProcess>& processes, const std::vector<int32_t>& roots) {
  std::map<int32_t, int32_t> root_of;
  auto is_root = [&](int32_t pid) { return std::binary_search(roots.begin(), roots.end(), pid); };
  for (const WalkedProcess& process : processes) {
    if (process.kernel_thread || is_root(process.pid)) continue;
    int32_t parent = process.parent;
    for (int generation = 0; generation < kGenerationsMax && parent > 1; ++generation) {
      if (is_root(parent)) {
        root_of[process.pid] = parent;
        break;
      }
      auto found = std::lower_bound(processes.begin(), processes.end(), parent,
                                    [](const WalkedProcess& entry, int32_t pid) { return entry.pid < pid; });
      if (found == processes.end() || found->pid != parent) break;
      parent = found->parent;
    }
  }
  return root_of;
}

}  // namespace lockstep::host
