#include "sources/host/thread_watch.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "sources/host/host_metrics.h"

namespace lockstep::host {
namespace {

constexpr size_t kProcessesMax = 1024;
constexpr size_t kThreadsOfProcessMax = 32768;
constexpr size_t kGpusMax = 128;
constexpr size_t kBusyCpusMax = 64;
constexpr size_t kOthersMax = 512;    // threads of class `other` in one slow tick
constexpr uint64_t kStatusTicks = 4;  // slow ticks between two looks at a thread's switches

bool is_key(ThreadClass kind) {
  return kind != ThreadClass::kOther;
}
bool counts_switches(ThreadClass kind) {
  return kind != ThreadClass::kOther && kind != ThreadClass::kUnnamed;
}

// The GPU of which a process holds most memory: every rank may hold a little of GPU 0 too.
std::map<int32_t, std::string> main_gpu_of(const OwnerTable& owners) {
  std::map<int32_t, const GpuProcess*> most;
  for (const GpuProcess& process : owners.gpu_processes) {
    const GpuProcess*& best = most[process.pid];
    if (best == nullptr || process.memory_bytes > best->memory_bytes) best = &process;
  }
  std::map<int32_t, std::string> gpu_of;
  for (auto& [pid, process] : most) gpu_of[pid] = process->gpu_uuid;
  return gpu_of;
}

std::string_view comm_of(const std::vector<WalkedProcess>& all, int32_t pid) {
  auto found = std::lower_bound(all.begin(), all.end(), pid,
                                [](const WalkedProcess& entry, int32_t wanted) { return entry.pid < wanted; });
  return found != all.end() && found->pid == pid ? std::string_view(found->comm) : std::string_view();
}

}  // namespace

bool is_loader_process(std::string_view comm, std::string_view trainer_comm) {
  return comm.starts_with("pt_data_") || comm.starts_with("python") || (!comm.empty() && comm == trainer_comm);
}

ThreadClass classify_thread(std::string_view comm, std::string_view process_comm, bool first_thread) {
  // "NCCL Progress 0", "NCCL Service  0", "NCCL UDS Servic", "NCCL GIN Progre", "NCCL SockS0 0 0", "NCCL IbAsync  0":
  // set only where NCCL_SET_THREAD_NAME=1 is. RCCL has the same names. PyTorch's own watchdogs (pt_nccl_watchdg,
  // pt_nccl_heartbt) move no data: they are `other`.
  if (comm.starts_with("NCCL ") || comm.starts_with("RCCL ")) return ThreadClass::kNccl;
  // PyTorch: worker processes are "pt_data_worker", the thread that pins memory is "pt_data_pin".
  if (comm.starts_with("pt_data_")) return ThreadClass::kDataloader;
  if (first_thread || comm.starts_with("pt_autograd")) return ThreadClass::kTrainer;
  return comm == process_comm ? ThreadClass::kUnnamed : ThreadClass::kOther;
}

ThreadWatch::ThreadWatch(HostFiles& files, const HostSourceOptions& options)
    : files_(files),
      threads_max_(std::max<size_t>(1, options.threads_max)),
      kept_files_max_(options.kept_files_max),
      proxy_threads_(options.proxy_threads) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    kept_files_max_ = std::min<size_t>(kept_files_max_, limit.rlim_cur / 4);
}

std::map<int32_t, std::string> ThreadWatch::gpu_of_trainers() const {
  std::map<int32_t, std::string> gpu_of;
  for (auto& [pid, process] : processes_) {
    if (!process.worker) gpu_of[pid] = process.gpu_uuid;
  }
  return gpu_of;
}

ThreadWatch::GpuSums& ThreadWatch::sums_of(const std::string& gpu_uuid) {
  GpuSums& sums = sums_[gpu_uuid];
  if (!sums.gpu) {
    sums.gpu = labels({{"gpu_uuid", gpu_uuid}});
    for (size_t i = 0; i < kThreadClasses; ++i)
      sums.classes[i].labels = labels({{"gpu_uuid", gpu_uuid}, {"thread_class", kThreadClassNames[i]}});
  }
  return sums;
}

ThreadWatch::Process* ThreadWatch::follow(int32_t pid, bool worker, const std::string& gpu_uuid) {
  auto found = processes_.find(pid);
  if (found == processes_.end()) {
    if (processes_.size() >= kProcessesMax) return nullptr;
    found = processes_.emplace(pid, Process{}).first;
    found->second.pid = pid;
  }
  Process& process = found->second;
  process.worker = worker;
  process.gpu_uuid = gpu_uuid;
  process.sums = &sums_of(gpu_uuid);
  process.sums->used = true;
  process.listed = true;
  return &process;
}

void ThreadWatch::list_processes(const OwnerTable& owners, const std::vector<WalkedProcess>& all) {
  for (auto& [pid, process] : processes_) process.listed = false;
  for (auto& [uuid, sums] : sums_) {
    sums.used = false;
    sums.threads = 0;
    sums.remote = -1;
  }
  std::map<int32_t, std::string> gpu_of = main_gpu_of(owners);
  std::vector<int32_t> trainers;
  for (auto& [pid, owner] : owners.processes) trainers.push_back(pid);
  for (int32_t pid : trainers) follow(pid, false, gpu_of[pid]);
  for (auto& [pid, trainer] : descendants(all, trainers)) {
    Process* process = follow(pid, true, gpu_of[trainer]);
    if (process != nullptr) process->loader = is_loader_process(comm_of(all, pid), comm_of(all, trainer));
  }

  std::erase_if(processes_, [this](auto& entry) {
    if (entry.second.listed) return false;
    for (auto& [tid, thread] : entry.second.threads) kept_files_ -= thread.schedstat.valid() ? 1 : 0;
    return true;
  });
  // GPU instances (MIG) are made anew with new ids, for ever.
  if (sums_.size() > kGpusMax) std::erase_if(sums_, [](auto& entry) { return !entry.second.used; });

  local_cpus_.clear();
  for (const GpuInfo& gpu : owners.gpus) {
    const GpuInfo* board = &gpu;
    for (const GpuInfo& other : owners.gpus) {
      if (!gpu.parent_uuid.empty() && other.uuid == gpu.parent_uuid) board = &other;
    }
    if (board->pci.empty() || board->pci.find('/') != std::string::npos) continue;
    auto text = files_.read("/sys/bus/pci/devices/" + board->pci + "/local_cpulist");
    if (text) local_cpus_[gpu.uuid] = parse_cpulist(*text);
  }
}

void ThreadWatch::list_threads(Process& process) {
  if (!process.folder.valid())
    process.folder = UniqueFd(open(format("%s/proc/%d/task", files_.root().c_str(), process.pid).c_str(),
                                   O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  numbers_.clear();
  if (process.folder.valid()) number_names(process.folder.get(), kThreadsOfProcessMax, numbers_);
  if (numbers_.empty()) process.folder.reset();  // the process ended; its id may come back as another's
  for (auto& [tid, thread] : process.threads) thread.listed = false;
  for (int32_t tid : numbers_) {
    auto [at, is_new] = process.threads.try_emplace(tid);
    at->second.tid = tid;
    at->second.listed = true;
    if (is_new) at->second.new_since_last_list = !process.fresh;
  }
  std::erase_if(process.threads, [this](auto& entry) {
    if (entry.second.listed) return false;
    kept_files_ -= entry.second.schedstat.valid() ? 1 : 0;
    return true;
  });
  process.fresh = process.threads.empty();
  process.proxies.clear();
  if (proxy_threads_ && !process.worker) process.proxies = proxy_threads_(process.pid);
  std::sort(process.proxies.begin(), process.proxies.end());
  process.sums->threads += static_cast<int64_t>(process.threads.size());
}

std::optional<std::string_view> ThreadWatch::read_task_file(const Process& process, const Thread& thread,
                                                            const char* name) {
  char path[40];
  snprintf(path, sizeof path, "%d/%s", thread.tid, name);
  UniqueFd fd(openat(process.folder.get(), path, O_RDONLY | O_CLOEXEC));
  return fd.valid() ? read_fd(fd.get(), buffer_, kSmallFileMax) : std::nullopt;
}

bool ThreadWatch::identify(Process& process, Thread& thread) {
  auto text = read_task_file(process, thread, "stat");
  auto stat = text ? parse_task_stat(*text) : std::nullopt;
  if (!stat) return false;
  bool first_thread = thread.tid == process.pid;
  if (first_thread) process.comm = stat->comm;
  if (thread.start_ticks != stat->start_ticks) {
    // Another thread than the one that had this id; it began after we last looked, so all of its time is new.
    if (thread.start_ticks != 0 || thread.new_since_last_list) {
      thread.run.start_from_zero();
      thread.wait.start_from_zero();
      thread.switches.start_from_zero();
    }
    if (thread.schedstat.valid()) {
      thread.schedstat.reset();
      --kept_files_;
    }
    thread.read_ns = 0;
    thread.start_ticks = stat->start_ticks;
  }
  if (!process.worker) {
    thread.kind = classify_thread(stat->comm, process.comm, first_thread);
    uses_nccl_ = uses_nccl_ || stat->comm.starts_with("pt_nccl_");
  } else {
    thread.kind = process.loader ? ThreadClass::kDataloader : ThreadClass::kOther;
  }
  if (std::binary_search(process.proxies.begin(), process.proxies.end(), thread.tid)) thread.kind = ThreadClass::kNccl;
  if (thread.kind == ThreadClass::kTrainer || thread.kind == ThreadClass::kNccl) {
    bool known = std::find(busy_cpus_.begin(), busy_cpus_.end(), stat->processor) != busy_cpus_.end();
    if (stat->processor >= 0 && !known && busy_cpus_.size() < kBusyCpusMax) busy_cpus_.push_back(stat->processor);
  }
  if (stat->state == 'D') {
    auto function = read_task_file(process, thread, "wchan");
    ++stuck_[static_cast<size_t>(function ? wait_kind(*function) : WaitKind::kUnknown)];
  }
  return true;
}

void ThreadWatch::read_status(Process& process, Thread& thread) {
  auto text = read_task_file(process, thread, "status");
  if (!text) return;
  auto local = local_cpus_.find(process.gpu_uuid);
  for_each_key(*text, [&](std::string_view key, std::string_view rest) {
    if (key == "nonvoluntary_ctxt_switches") {
      if (auto count = next_number(rest))
        process.sums->classes[static_cast<size_t>(thread.kind)].switches += thread.switches.since_last(*count);
    } else if (key == "Cpus_allowed_list" && thread.tid == process.pid && !process.worker &&
               local != local_cpus_.end() && local->second.any()) {
      CpuSet allowed = parse_cpulist(next_word(rest));
      if (allowed.none()) return;
      double remote = static_cast<double>((allowed & ~local->second).count()) / static_cast<double>(allowed.count());
      process.sums->remote = std::max(process.sums->remote, remote);
    }
  });
}

void ThreadWatch::read_schedstat(Process& process, Thread& thread, int64_t now_ns) {
  std::optional<std::string_view> text;
  if (thread.schedstat.valid()) {
    text = read_fd(thread.schedstat.get(), buffer_, 128);
  } else {
    char path[40];
    snprintf(path, sizeof path, "%d/schedstat", thread.tid);
    UniqueFd fd(openat(process.folder.get(), path, O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return;
    text = read_fd(fd.get(), buffer_, 128);
    if (text && is_key(thread.kind) && kept_files_ < kept_files_max_) {
      thread.schedstat = std::move(fd);
      ++kept_files_;
    }
  }
  auto stat = text ? parse_schedstat(*text) : std::nullopt;
  if (!stat) return;  // it ended
  ClassSums& sums = process.sums->classes[static_cast<size_t>(thread.kind)];
  sums.seen = true;
  sums.run_ns += thread.run.since_last(stat->run_ns);
  uint64_t waited_ns = thread.wait.since_last(stat->wait_ns);
  sums.wait_ns += waited_ns;
  if (thread.read_ns != 0 && now_ns > thread.read_ns) {
    // The kernel adds a wait when it is over, so that it may be longer than the tick in which it ended.
    double share = static_cast<double>(waited_ns) / static_cast<double>(now_ns - thread.read_ns);
    sums.worst = std::max(sums.worst, std::min(1.0, share));
  }
  thread.read_ns = now_ns;
}

void ThreadWatch::read_fast(const Tick& tick, NodeReadings& out) {
  in_turn(key_, threads_max_, fast_at_,
          [&](Process& process, Thread& thread) { read_schedstat(process, thread, tick.monotonic_ns); });
  publish(false, out);
}

void ThreadWatch::read_slowly(Process& process, Thread& thread, int64_t now_ns) {
  if (!identify(process, thread)) return;
  read_schedstat(process, thread, now_ns);
  bool its_turn = (static_cast<uint64_t>(thread.tid) + slow_ticks_) % kStatusTicks == 0;
  if (thread.tid == process.pid || (counts_switches(thread.kind) && its_turn)) read_status(process, thread);
}

void ThreadWatch::read_slow(const Tick& tick, const std::vector<WalkedProcess>& all, NodeReadings& out) {
  static const OwnerTable kNobody;
  list_processes(tick.owners != nullptr ? *tick.owners : kNobody, all);
  ++slow_ticks_;
  key_.clear();
  others_.clear();
  busy_cpus_.clear();
  stuck_.fill(0);
  uses_nccl_ = false;
  for (auto& [pid, process] : processes_) {
    list_threads(process);
    auto add = [&, owner = &process](Thread& thread) {
      bool key = thread.start_ticks == 0 || is_key(thread.kind);
      (key ? key_ : others_).push_back({owner, &thread});
    };
    // The first thread goes first: the others are told apart by its name.
    auto first = process.threads.find(pid);
    if (first != process.threads.end()) add(first->second);
    for (auto& [tid, thread] : process.threads) {
      if (tid != pid) add(thread);
    }
  }
  auto read = [&](Process& process, Thread& thread) { read_slowly(process, thread, tick.monotonic_ns); };
  in_turn(key_, threads_max_, slow_at_, read);
  in_turn(others_, std::min(threads_max_, kOthersMax), others_at_, read);
  std::erase_if(key_, [](auto& entry) { return entry.second->start_ticks == 0 || !is_key(entry.second->kind); });
  publish(true, out);
  note_unnamed(out);
}

void ThreadWatch::publish(bool slow, NodeReadings& out) {
  for (auto& [uuid, gpu] : sums_) {
    if (!gpu.used) continue;
    for (size_t i = 0; i < kThreadClasses; ++i) {
      ClassSums& sums = gpu.classes[i];
      ThreadClass kind = static_cast<ThreadClass>(i);
      if (!sums.seen || (!slow && !is_key(kind))) continue;
      out.add(row(HostMetric::kThreadWait), sums.labels, static_cast<double>(sums.wait_ns) / 1e9);
      if (is_key(kind)) out.add(row(HostMetric::kThreadWaitWorst), sums.labels, sums.worst);
      sums.worst = 0;
      if (!slow) continue;
      out.add(row(HostMetric::kThreadCpu), sums.labels, static_cast<double>(sums.run_ns) / 1e9);
      if (counts_switches(kind))
        out.add(row(HostMetric::kThreadSwitches), sums.labels, static_cast<double>(sums.switches));
    }
    if (!slow) continue;
    out.add(row(HostMetric::kThreads), gpu.gpu, static_cast<double>(gpu.threads));
    if (gpu.remote >= 0) out.add(row(HostMetric::kNumaRemote), gpu.gpu, gpu.remote);
  }
}

void ThreadWatch::note_unnamed(NodeReadings& out) {
  bool named = false;
  for (auto& [uuid, gpu] : sums_) named = named || gpu.classes[static_cast<size_t>(ThreadClass::kNccl)].seen;
  if (named || !uses_nccl_) return;
  // The watchdogs start before the first communicator's proxies do.
  if (++unnamed_ticks_ != 3) return;
  out.notes.push_back(
      "host: no thread of a training process has NCCL's name, so its proxies are counted as thread_class=unnamed; set "
      "NCCL_SET_THREAD_NAME=1 in the job to tell them apart");
}

}  // namespace lockstep::host
