#include "sources/stacks/rank_sampler.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "sources/ownership/process_handle.h"
#include "sources/ownership/process_text.h"
#include "sources/stacks/python_frames.h"
#include "sources/stacks/thread_stacks.h"

namespace lockstep {
namespace {

constexpr uint64_t kMapsBytesMax = 16u << 20;
constexpr uint64_t kSmallFile = 16u << 10;
constexpr int kThreadsAgainLooks = 50;  // a thread that is not known: its process's threads are listed again this often
constexpr int kReadTries = 5;

struct Attached {
  ProcessHandle handle;
  ProcessMemory memory;
  PythonFrames frames;
};

Result<Attached> attach(int32_t pid, uint64_t start_ticks, uid_t owner) {
  std::optional<ProcessHandle> handle = ProcessHandle::open(pid, start_ticks, owner);
  if (!handle) return Error{"its process is gone, or is not its owner's"};
  const std::string maps = LOCKSTEP_TRY(handle->read("maps", kMapsBytesMax));
  ProcessMemory memory(pid);
  Result<PythonFrames> frames = PythonFrames::attach(memory, maps);
  if (!handle->holds()) return Error{"its process is gone"};
  if (!frames.ok()) return memory.error() == EPERM ? Error{memory.why()} : frames.failure();
  return Attached{std::move(*handle), memory, std::move(*frames)};
}

// Numbers of its threads: as the process has them, as we have them.
std::map<int64_t, int32_t> threads_of(int32_t pid) {
  std::map<int64_t, int32_t> threads;
  Result<std::vector<std::string>> names = list_directory(format("/proc/%d/task", pid));
  if (!names.ok()) return threads;
  for (const std::string& name : *names) {
    const std::optional<int64_t> tid = parse_int(name);
    if (!tid || threads.size() >= kThreadsRead) continue;
    Result<std::string> status = read_file(format("/proc/%d/task/%s/status", pid, name.c_str()), kSmallFile);
    if (!status.ok()) continue;
    const int32_t inner = parse_status(*status).inner_pid;
    threads[inner > 0 ? inner : *tid] = static_cast<int32_t>(*tid);
  }
  return threads;
}

struct ThreadTimes {
  char state = '?';
  int64_t cpu_ms = 0;
};

// Fields 3, 14 and 15 of a stat line; the name before them may hold anything.
ThreadTimes times_of(std::string_view stat) {
  ThreadTimes times;
  const size_t close = stat.rfind(')');
  if (close == std::string_view::npos || close + 2 >= stat.size()) return times;
  const std::vector<std::string_view> words = split(stat.substr(close + 2), ' ');
  times.state = words[0].empty() ? '?' : words[0][0];
  if (words.size() > 12) {
    const int64_t ticks = parse_int(words[11]).value_or(0) + parse_int(words[12]).value_or(0);
    times.cpu_ms = ticks * 1000 / std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  }
  return times;
}

std::string read_small(int fd) {
  char text[1024];
  const ssize_t got = ::pread(fd, text, sizeof text, 0);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : std::string();
}

}  // namespace

struct RankSampler::Process {
  explicit Process(Attached attached) : at(std::move(attached)) {}
  struct Thread {
    uint32_t id = 0;  // of the rank's
    UniqueFd stat;
    int64_t cpu_ms_before = 0;
  };
  Attached at;
  bool worker = false, gone = false;
  std::map<int64_t, int32_t> tids;
  int looks_until_tids = 0;
  std::map<uint64_t, Thread> threads;   // by ident
  std::map<uint32_t, uint32_t> frames;  // its numbers to the rank's
};

RankSampler::RankSampler() = default;
RankSampler::RankSampler(RankSampler&&) noexcept = default;
RankSampler& RankSampler::operator=(RankSampler&&) noexcept = default;
RankSampler::~RankSampler() = default;

Result<RankSampler> RankSampler::begin(int32_t pid, uint64_t start_ticks, uid_t owner) {
  RankSampler sampler;
  Attached own = LOCKSTEP_TRY(attach(pid, start_ticks, owner));
  sampler.samples_.pid = pid;
  sampler.samples_.version = own.frames.version();
  sampler.processes_.push_back(std::make_unique<Process>(std::move(own)));
  sampler.add_workers(pid, owner);
  return sampler;
}

// Children, and theirs: a fork server stands between.
void RankSampler::add_workers(int32_t pid, uid_t owner) {
  std::vector<int32_t> parents{pid};
  std::set<int32_t> seen{pid};
  for (size_t at = 0; at < parents.size() && parents.size() <= kWorkersMax; ++at) {
    for (const auto& [inner, tid] : threads_of(parents[at])) {
      Result<std::string> children = read_file(format("/proc/%d/task/%d/children", parents[at], tid), kSmallFile);
      if (!children.ok()) continue;
      for (std::string_view word : split(trim(*children), ' ')) {
        const auto child = static_cast<int32_t>(parse_int(word).value_or(0));
        if (child <= 0 || !seen.insert(child).second || parents.size() > kWorkersMax) continue;
        parents.push_back(child);
        Result<Attached> attached = attach(child, 0, owner);
        if (!attached.ok()) continue;  // a compiler, a shell: no Python of this user's
        processes_.push_back(std::make_unique<Process>(std::move(*attached)));
        processes_.back()->worker = true;
      }
    }
  }
}

uint32_t RankSampler::thread_of(Process& process, uint64_t ident, int64_t native_id) {
  if (const auto found = process.threads.find(ident); found != process.threads.end()) return found->second.id;
  const int32_t pid = process.at.handle.pid();
  auto tid = process.tids.find(native_id);
  if (tid == process.tids.end() && process.looks_until_tids <= 0) {
    process.tids = threads_of(pid);
    process.looks_until_tids = kThreadsAgainLooks;
    tid = process.tids.find(native_id);
  }
  SampledThread thread{.pid = pid};
  Process::Thread& known = process.threads[ident];
  known.id = static_cast<uint32_t>(samples_.threads.size());
  if (tid != process.tids.end()) {
    thread.tid = tid->second;
    const std::string folder = format("/proc/%d/task/%d", pid, thread.tid);
    if (Result<std::string> name = read_file(folder + "/comm", kSmallFile); name.ok())
      thread.name = as_one_line(trim(*name));
    known.stat = UniqueFd(::open((folder + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
    known.cpu_ms_before = times_of(read_small(known.stat.get())).cpu_ms;
  }
  thread.role = process.worker ? ThreadRole::kWorker : thread.tid == pid ? ThreadRole::kMain : ThreadRole::kThread;
  samples_.threads.push_back(std::move(thread));
  return known.id;
}

bool RankSampler::sample(Process& process) {
  const PythonReadCounts before = process.at.frames.counts();
  std::vector<PythonThreadFrames> threads = process.at.frames.sample(process.at.memory);
  if (!process.at.handle.holds()) return false;  // whatever that was, it is not to be believed
  --process.looks_until_tids;
  const PythonReadCounts& after = process.at.frames.counts();
  samples_.whole += after.whole - before.whole;
  samples_.cut += after.cut - before.cut;
  samples_.dropped += after.dropped - before.dropped;
  for (const PythonThreadFrames& seen : threads) {
    if (process.threads.size() >= PythonFrames::kThreadsMax && !process.threads.contains(seen.ident)) {
      ++samples_.left_out;
      continue;
    }
    const uint32_t id = thread_of(process, seen.ident, seen.native_id);
    SampledThread& thread = samples_.threads[id];
    const Process::Thread& known = process.threads[seen.ident];
    if (known.stat.valid()) {
      const ThreadTimes times = times_of(read_small(known.stat.get()));
      thread.state = times.state;
      thread.cpu_ms = std::max<int64_t>(0, times.cpu_ms - known.cpu_ms_before);
    }
    const bool running = thread.state == 'R';
    ++thread.looks;
    thread.running += running;
    thread.with_gil += seen.holds_gil;
    std::vector<uint32_t> frames;
    for (uint32_t local : seen.frames) {
      auto [entry, is_new] = process.frames.try_emplace(local, 0);
      if (is_new) {
        const StackFrame& frame = process.at.frames.frame(local);
        const auto [text, added] =
            frame_by_text_.try_emplace({frame.function, frame.file, frame.line}, samples_.frames.size());
        if (added) samples_.frames.push_back(frame);
        entry->second = text->second;
      }
      frames.push_back(entry->second);
    }
    auto stack = stack_by_frames_.find({id, frames});
    if (stack == stack_by_frames_.end()) {
      if (samples_.stacks.size() >= kStacksMax) {
        ++samples_.left_out;
        continue;
      }
      stack = stack_by_frames_.try_emplace({id, frames}, samples_.stacks.size()).first;
      samples_.stacks.push_back({.thread = id, .frames = std::move(frames)});
    }
    ++samples_.stacks[stack->second].count;
    samples_.stacks[stack->second].running += running;
  }
  return true;
}

bool RankSampler::sample() {
  if (!sample(*processes_.front())) return false;
  ++samples_.looks;
  for (size_t i = 1; i < processes_.size(); ++i) {
    if (!processes_[i]->gone) processes_[i]->gone = !sample(*processes_[i]);
  }
  return true;
}

RankSamples RankSampler::finish() {
  for (const std::unique_ptr<Process>& process : processes_) {
    for (const auto& [ident, known] : process->threads) {
      SampledThread& thread = samples_.threads[known.id];
      if (thread.tid < 0 || !process->at.handle.holds()) continue;
      Result<std::string> wchan = read_file(format("/proc/%d/task/%d/wchan", thread.pid, thread.tid), kSmallFile);
      if (wchan.ok() && trim(*wchan) != "0") thread.wchan = as_one_line(trim(*wchan).substr(0, kEvidenceTextMax));
    }
  }
  // Where nobody's number is known, the main thread is the one that was there first.
  if (std::none_of(samples_.threads.begin(), samples_.threads.end(),
                   [](const SampledThread& thread) { return thread.role == ThreadRole::kMain; })) {
    for (auto thread = samples_.threads.rbegin(); thread != samples_.threads.rend(); ++thread) {
      if (thread->pid != samples_.pid) continue;
      thread->role = ThreadRole::kMain;
      break;
    }
  }
  fit(samples_);
  return std::move(samples_);
}

Result<std::vector<PythonStack>> read_python_stacks(int32_t pid, uint64_t start_ticks, uid_t owner) {
  Attached at = LOCKSTEP_TRY(attach(pid, start_ticks, owner));
  std::vector<PythonThreadFrames> threads;
  for (int i = 0; i < kReadTries && threads.empty(); ++i) threads = at.frames.sample(at.memory);
  const std::map<int64_t, int32_t> tids = threads_of(pid);
  if (!at.handle.holds()) return Error{"its process is gone"};
  std::vector<PythonStack> stacks;
  for (const PythonThreadFrames& thread : threads) {
    const auto tid = tids.find(thread.native_id);
    PythonStack stack{.ident = thread.ident, .main = tid != tids.end() && tid->second == pid};
    for (uint32_t frame : thread.frames) {
      if (stack.frames.size() < kStackFramesMax) stack.frames.push_back(at.frames.frame(frame));
    }
    stacks.push_back(std::move(stack));
  }
  std::stable_sort(stacks.begin(), stacks.end(),
                   [](const PythonStack& a, const PythonStack& b) { return a.main && !b.main; });
  if (stacks.size() > kStackPythonThreadsMax) stacks.resize(kStackPythonThreadsMax);
  return stacks;
}

}  // namespace lockstep
