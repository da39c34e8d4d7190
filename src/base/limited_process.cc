#include "base/limited_process.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/files.h"
#include "base/text.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define LOCKSTEP_SANITIZED 1
#endif
#endif
#ifndef LOCKSTEP_SANITIZED
#define LOCKSTEP_SANITIZED 0
#endif

namespace lockstep {
namespace {

constexpr int kLowestPriority = 19;
constexpr int kIoIdle = 3 << 13;  // IOPRIO_CLASS_IDLE, which the C library does not declare

Error failed(const char* what) {
  return Error{format("cannot %s: %s", what, std::strerror(errno))};
}

Result<void> limit(int what, const char* name, rlim_t soft, rlim_t hard) {
  const rlimit wanted{soft, hard};
  if (::setrlimit(static_cast<__rlimit_resource_t>(what), &wanted) != 0) return failed(name);
  return {};
}

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

// What memory, arithmetic, time and files that are open need. No name is opened, no socket made, no signal sent to others.
constexpr int kAllowed[] = {
    SYS_read,           SYS_readv,
    SYS_write,          SYS_writev,
    SYS_close,          SYS_lseek,
    SYS_fstat,          SYS_newfstatat,
    SYS_mmap,           SYS_munmap,
    SYS_mremap,         SYS_mprotect,
    SYS_madvise,        SYS_brk,
    SYS_futex,          SYS_rt_sigaction,
    SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_sigaltstack,    SYS_exit,
    SYS_exit_group,     SYS_getpid,
    SYS_gettid,         SYS_getrandom,
    SYS_clock_gettime,  SYS_gettimeofday,
    SYS_sched_yield,    SYS_sched_getaffinity,
    SYS_ppoll,          SYS_restart_syscall,
    SYS_sysinfo,
#ifdef SYS_poll
    SYS_poll,
#endif
};

sock_filter statement(uint16_t code, uint32_t value) {
  return {code, 0, 0, value};
}
sock_filter jump(uint16_t code, uint32_t value, uint8_t if_true, uint8_t if_false) {
  return {code, if_true, if_false, value};
}

std::vector<sock_filter> allow_list() {
  constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> program;
  // System calls have other numbers for programs of another architecture: none of those is allowed.
  program.push_back(statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
  program.push_back(jump(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  program.push_back(statement(BPF_RET | BPF_K, kRefuse));
  program.push_back(statement(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const int number : kAllowed) {
    program.push_back(jump(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    program.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  program.push_back(statement(BPF_RET | BPF_K, kRefuse));
  return program;
}

}  // namespace

const bool kLimitsMemoryAndCalls = LOCKSTEP_SANITIZED == 0;

Result<void> limit_process(const ProcessLimits& limits) {
  // Told of the failed write, rather than ended by it.
  ::signal(SIGXFSZ, SIG_IGN);
  if (kLimitsMemoryAndCalls) LOCKSTEP_TRY(limit(RLIMIT_AS, "limit memory", limits.memory_bytes, limits.memory_bytes));
  LOCKSTEP_TRY(limit(RLIMIT_CPU, "limit CPU time", limits.cpu_s, limits.cpu_s + 1));
  LOCKSTEP_TRY(limit(RLIMIT_FSIZE, "limit files", 0, 0));
  LOCKSTEP_TRY(limit(RLIMIT_CORE, "limit the core file", 0, 0));
  // What follows is for others' good, and nothing is lost where it cannot be had.
  (void)::setpriority(PRIO_PROCESS, 0, kLowestPriority);
  (void)::syscall(SYS_ioprio_set, 1, 0, kIoIdle);
  const UniqueFd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (score.valid()) (void)!::write(score.get(), "1000", 4);
  return {};
}

Result<void> confine_process() {
  if (!kLimitsMemoryAndCalls) return {};
  if (kArchitecture == 0) return Error{"cannot limit system calls on this kind of processor"};
  std::vector<sock_filter> filter = allow_list();
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("give up new privileges");
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return failed("limit system calls");
  return {};
}

}  // namespace lockstep
