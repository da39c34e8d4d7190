#include "sources/stacks/thread_stacks.h"

#include <algorithm>
#include <charconv>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr uint64_t kSmallFile = 16 << 10;

struct Syscall {
  int x86_64;
  int arm64;
  const char* name;
};
// Those in which threads wait; -1: the machine has none of that name.
constexpr Syscall kSyscalls[] = {
    {0, 63, "read"},
    {1, 64, "write"},
    {7, -1, "poll"},
    {16, 29, "ioctl"},
    {17, 67, "pread64"},
    {18, 68, "pwrite64"},
    {19, 65, "readv"},
    {20, 66, "writev"},
    {22, -1, "pipe"},
    {23, -1, "select"},
    {24, 124, "sched_yield"},
    {28, 233, "madvise"},
    {34, -1, "pause"},
    {35, 101, "nanosleep"},
    {42, 203, "connect"},
    {43, 202, "accept"},
    {44, 206, "sendto"},
    {45, 207, "recvfrom"},
    {46, 211, "sendmsg"},
    {47, 212, "recvmsg"},
    {56, 220, "clone"},
    {59, 221, "execve"},
    {61, 260, "wait4"},
    {72, 25, "fcntl"},
    {73, 32, "flock"},
    {74, 82, "fsync"},
    {75, 83, "fdatasync"},
    {2, -1, "open"},
    {3, 57, "close"},
    {4, -1, "stat"},
    {5, 80, "fstat"},
    {6, -1, "lstat"},
    {8, 62, "lseek"},
    {9, 222, "mmap"},
    {11, 215, "munmap"},
    {78, -1, "getdents"},
    {82, -1, "rename"},
    {83, -1, "mkdir"},
    {87, -1, "unlink"},
    {128, 137, "rt_sigtimedwait"},
    {130, 133, "rt_sigsuspend"},
    {162, 81, "sync"},
    {165, 40, "mount"},
    {202, 98, "futex"},
    {217, 61, "getdents64"},
    {230, 115, "clock_nanosleep"},
    {232, -1, "epoll_wait"},
    {247, 95, "waitid"},
    {257, 56, "openat"},
    {262, 79, "newfstatat"},
    {270, 72, "pselect6"},
    {271, 73, "ppoll"},
    {281, 22, "epoll_pwait"},
    {288, 242, "accept4"},
    {299, 243, "recvmmsg"},
    {332, 291, "statx"},
    {426, 426, "io_uring_enter"},
    {449, 449, "futex_waitv"},
};

std::string read_text(const std::string& path) {
  Result<std::string> text = read_file(path, kSmallFile);
  return text.ok() ? *text : std::string();
}

// Field 3 of a stat line; the name before it may hold anything.
char state_of(std::string_view stat) {
  const size_t close = stat.rfind(')');
  return close != std::string_view::npos && close + 2 < stat.size() ? stat[close + 2] : '?';
}

int importance(const ThreadStack& thread, int32_t pid) {
  if (thread.tid == pid) return 0;
  if (thread.state == 'D') return 1;
  if (thread.state == 'R') return 2;
  return 3;
}

}  // namespace

std::string syscall_name_untrusted(std::string_view text) {
  const std::string_view word = trim(text.substr(0, std::min(text.find(' '), text.size())));
  if (word == "running" || word.empty()) return {};
  const std::optional<int64_t> number = parse_int(word);
  if (!number || *number < 0) return {};  // -1: in the kernel for another reason than a call
  for (const Syscall& call : kSyscalls) {
#if defined(__aarch64__)
    if (call.arm64 == *number) return call.name;
#else
    if (call.x86_64 == *number) return call.name;
#endif
  }
  return format("system call %lld", static_cast<long long>(*number));
}

std::vector<std::string> kernel_stack_untrusted(std::string_view text) {
  std::vector<std::string> functions;
  for (std::string_view line : split(text, '\n')) {  // "[<0>] futex_wait_queue+0x60/0x90"
    const size_t bracket = line.find("] ");
    if (bracket == std::string_view::npos || functions.size() == kKernelFramesMax) continue;
    std::string_view name = line.substr(bracket + 2);
    name = name.substr(0, std::min(name.find('+'), name.size()));
    if (!name.empty()) functions.push_back(as_one_line(utf8_prefix(name, kEvidenceTextMax)));
  }
  return functions;
}

SignalSets signal_sets_untrusted(std::string_view status_text) {
  SignalSets sets;
  for (std::string_view line : split(status_text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    uint64_t* target = line.starts_with("SigCgt:")   ? &sets.caught
                       : line.starts_with("SigIgn:") ? &sets.ignored
                       : line.starts_with("SigBlk:") ? &sets.blocked
                                                     : nullptr;
    if (target == nullptr) continue;
    const std::string_view digits = trim(line.substr(colon + 1));
    std::from_chars(digits.data(), digits.data() + digits.size(), *target, 16);
  }
  return sets;
}

Result<ThreadStacks> read_thread_stacks(int32_t pid, const std::string& root) {
  const std::string folder = format("%s/proc/%d/task", root.c_str(), pid);
  Result<std::vector<std::string>> names = list_directory(folder);
  if (!names.ok()) return Error{format("process %d is not there any more", pid)};
  ThreadStacks all;
  all.count = static_cast<int64_t>(names->size());
  for (const std::string& name : *names) {
    const std::optional<int64_t> tid = parse_int(name);
    if (!tid || (all.threads.size() >= kThreadsRead && *tid != pid)) continue;
    const std::string path = folder + "/" + name;
    ThreadStack thread;
    thread.tid = static_cast<int32_t>(*tid);
    const std::string stat = read_text(path + "/stat");
    if (stat.empty()) continue;  // it has ended meanwhile
    thread.state = state_of(stat);
    thread.name = as_one_line(trim(read_text(path + "/comm")));
    if (const std::string wchan(trim(read_text(path + "/wchan"))); wchan != "0") thread.wchan = as_one_line(wchan);
    const std::string call = read_text(path + "/syscall");
    all.syscalls_denied |= call.empty();
    thread.syscall = syscall_name_untrusted(call);
    all.threads.push_back(std::move(thread));
  }
  if (all.threads.empty()) return Error{format("process %d is not there any more", pid)};
  std::stable_sort(all.threads.begin(), all.threads.end(), [pid](const ThreadStack& a, const ThreadStack& b) {
    return importance(a, pid) < importance(b, pid);
  });
  if (all.threads.size() > kStackThreadsMax) all.threads.resize(kStackThreadsMax);
  for (ThreadStack& thread : all.threads)
    thread.kernel = kernel_stack_untrusted(read_text(format("%s/%d/stack", folder.c_str(), thread.tid)));
  return all;
}

}  // namespace lockstep
