// How long the threads of training processes were ready to run and had no CPU: the host's own reason for a straggler.
// A proxy thread of NCCL that waits 2 ms for a CPU delays every rank of the job by 2 ms.
//
// Threads come and go, and their ids are given out anew. So nothing is summed over what there is at a time: what each
// thread grew by since it was last read is added to the sums of its GPU and class, which therefore never fall. A thread
// is known by its id and the time at which it started; a file of a thread that is kept open can never show another one.
//
// A fast tick reads the key threads (all classes but `other`), a slow tick lists all threads anew and reads all of
// them.
// Thread rule: Confined.
// Limits:      threads_max read in a tick, the rest in turn; a thread that lives less than a tick is not seen.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sources/host/host_files.h"
#include "sources/host/host_source.h"
#include "sources/host/proc_text.h"
#include "sources/host/process_walk.h"
#include "sources/host/sums.h"

namespace lockstep::host {

enum class ThreadClass : uint8_t { kTrainer, kNccl, kDataloader, kUnnamed, kOther };
inline constexpr size_t kThreadClasses = 5;
inline constexpr const char* kThreadClassNames[kThreadClasses] = {"trainer", "nccl", "dataloader", "unnamed", "other"};

// Of a thread of a trainer. process_comm: the name of the process's first thread, which threads keep that nobody named.
ThreadClass classify_thread(std::string_view comm, std::string_view process_comm, bool first_thread);
// A child of a trainer, by name. Before PyTorch 2.6 a data loader's workers had their parent's name.
bool is_loader_process(std::string_view comm, std::string_view trainer_comm);

class ThreadWatch {
 public:
  ThreadWatch(HostFiles& files, const HostSourceOptions& options);
  void read_fast(const Tick& tick, NodeReadings& out);
  // `all`: the processes of the host, as last walked.
  void read_slow(const Tick& tick, const std::vector<WalkedProcess>& all, NodeReadings& out);

  // As of the last slow tick: CPUs that trainer and NCCL threads last ran on, each once.
  const std::vector<int32_t>& busy_cpus() const { return busy_cpus_; }
  // Threads of training processes in state D, by what they wait for.
  const std::array<int64_t, kWaitKinds>& stuck() const { return stuck_; }
  bool follows(int32_t pid) const { return processes_.count(pid) != 0; }
  // The GPU of each training process (not of its workers); "" where it is not known.
  std::map<int32_t, std::string> gpu_of_trainers() const;

 private:
  struct ClassSums {
    uint64_t run_ns = 0, wait_ns = 0, switches = 0;
    double worst = 0;  // of this tick
    bool seen = false;
    LabelSet labels;
  };
  struct GpuSums {
    std::array<ClassSums, kThreadClasses> classes;
    LabelSet gpu;
    int64_t threads = 0;  // of this slow tick
    double remote = -1;   // of this slow tick; -1: not known
    bool used = false;
  };
  struct Thread {
    int32_t tid = 0;
    uint64_t start_ticks = 0;  // 0: not read yet
    ThreadClass kind = ThreadClass::kOther;
    Growth run, wait, switches;
    int64_t read_ns = 0;
    UniqueFd schedstat;
    bool listed = false;
    bool new_since_last_list = false;
  };
  struct Process {
    int32_t pid = 0;
    bool worker = false;  // descends from a trainer
    bool loader = false;  // such a one that looks like a worker of a data loader
    uint64_t start_ticks = 0;
    std::string comm;
    std::string gpu_uuid;
    GpuSums* sums = nullptr;
    UniqueFd folder;  // /proc/PID/task
    std::unordered_map<int32_t, Thread> threads;
    std::vector<int32_t> proxies;  // sorted
    bool listed = false;
    bool fresh = true;  // its threads were never listed
  };
  using Followed = std::vector<std::pair<Process*, Thread*>>;
  // Calls visit(process, thread) for `count_max` of them, from `at` on and round; leaves `at` where it ended.
  template <typename Visit>
  static void in_turn(Followed& followed, size_t count_max, size_t& at, Visit visit) {
    if (followed.empty()) return;
    size_t count = std::min(followed.size(), count_max);
    if (count == followed.size()) at = 0;
    for (size_t i = 0; i < count; ++i) {
      auto& [process, thread] = followed[(at + i) % followed.size()];
      visit(*process, *thread);
    }
    at = (at + count) % followed.size();
  }

  void list_processes(const OwnerTable& owners, const std::vector<WalkedProcess>& all);
  Process* follow(int32_t pid, bool worker, const std::string& gpu_uuid);
  void list_threads(Process& process);
  // Who the thread is, and what only slow ticks ask; false: it is gone.
  bool identify(Process& process, Thread& thread);
  void read_slowly(Process& process, Thread& thread, int64_t now_ns);
  void read_status(Process& process, Thread& thread);
  void read_schedstat(Process& process, Thread& thread, int64_t now_ns);
  void publish(bool slow, NodeReadings& out);
  void note_unnamed(NodeReadings& out);
  GpuSums& sums_of(const std::string& gpu_uuid);
  // The file's text, in buffer_; nullopt: gone.
  std::optional<std::string_view> read_task_file(const Process& process, const Thread& thread, const char* name);

  HostFiles& files_;
  size_t threads_max_;
  size_t kept_files_max_;
  std::function<std::vector<int32_t>(int32_t)> proxy_threads_;
  std::string buffer_;
  std::vector<int32_t> numbers_;
  std::map<int32_t, Process> processes_;
  std::map<std::string, GpuSums> sums_;
  std::map<std::string, CpuSet> local_cpus_;  // by GPU uuid, of this slow tick
  // key_: also those that we do not know yet, while a slow tick goes on.
  Followed key_, others_;
  size_t slow_at_ = 0, fast_at_ = 0, others_at_ = 0;
  uint64_t slow_ticks_ = 0;
  size_t kept_files_ = 0;
  std::vector<int32_t> busy_cpus_;
  std::array<int64_t, kWaitKinds> stuck_{};
  bool uses_nccl_ = false;  // PyTorch's NCCL watchdogs were seen in this slow tick
  int unnamed_ticks_ = 0;   // slow ticks with NCCL in use and no thread of its name
};

}  // namespace lockstep::host
