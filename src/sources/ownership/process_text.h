// The kernel's texts about a process, read for one question: whose is it? Pure functions over bytes that other users
// can shape (a process writes its own environment, and names its own cgroups where it may make any).
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kEnvironmentBytesMax = 1u << 20;
inline constexpr size_t kEnvironmentValueMax = 1024;
inline constexpr size_t kCgroupBytesMax = 64u << 10;

// Where schedulers and container runtimes have put a process.
struct CgroupFacts {
  std::string slurm_job;     // digits; empty: not in a Slurm job
  std::string slurm_step;    // "0", "batch", "extern", ...
  std::string pod_uid;       // of Kubernetes: lower case, with its dashes
  std::string container_id;  // 64 hex digits
  bool operator==(const CgroupFacts&) const = default;
};
// The text of /proc/PID/cgroup, version 1 or 2, also as seen from inside a cgroup namespace ("/../../system.slice/…").
CgroupFacts parse_cgroup(std::string_view text);

// Those variables that say who a process is; the rest (passwords and all) is not kept. Of a name that is there twice
// the first counts, as for getenv(). Empty values count as not set. Control characters become '?'.
using Environment = std::map<std::string, std::string, std::less<>>;
Environment parse_environment(std::string_view text);

struct StatusFacts {
  std::string name;       // at most 15 bytes: the kernel cuts it
  int64_t uid = -1;       // real
  int64_t only_uid = -1;  // the real, effective and saved user where they are one; -1: it has, or had, another's rights
  int32_t inner_pid = -1;  // its number in its own pid namespace (last of NSpid); -1: an old kernel
};
StatusFacts parse_status(std::string_view text);  // of /proc/PID/status

// Names by number, of /etc/passwd. Never asks NSS: a directory service that does not answer must not stop the agent.
std::map<int64_t, std::string> parse_passwd(std::string_view text);

// Fit for a label: no control characters, at most `bytes_max`.
std::string clean_text(std::string_view text, size_t bytes_max);

}  // namespace lockstep
