// The kernel's text files as numbers. Every parser takes any bytes: a line that it does not understand is skipped, a
// number that is missing stays absent, nothing is read outside of the text.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::host {

// Cut the next line, or the next word (blanks and tabs part them), off the front; empty at the end of `rest`.
std::string_view next_line(std::string_view& rest);
std::string_view next_word(std::string_view& rest);
// The next word as a number; nullopt where it is none.
std::optional<uint64_t> next_number(std::string_view& rest);

// "key: value", "key value": calls `each(key, rest of the line)` per line, the key without its colon.
template <typename Each>
void for_each_key(std::string_view text, Each each) {
  while (!text.empty()) {
    std::string_view line = next_line(text);
    std::string_view key = next_word(line);
    if (!key.empty() && key.back() == ':') key.remove_suffix(1);
    if (!key.empty()) each(key, line);
  }
}

inline constexpr int kCpusMax = 8192;
using CpuSet = std::bitset<kCpusMax>;
// "0-15,32-47". Numbers over kCpusMax and odd parts are left out.
CpuSet parse_cpulist(std::string_view text);

// user, nice, system, idle, iowait, interrupt, softirq, steal, in clock ticks.
inline constexpr size_t kCpuModes = 8;
inline constexpr const char* kCpuModeNames[kCpuModes] = {"user",   "nice",      "system",  "idle",
                                                         "iowait", "interrupt", "softirq", "steal"};
using CpuTicks = std::array<uint64_t, kCpuModes>;

struct ProcStat {
  std::optional<CpuTicks> all;
  struct Cpu {
    int32_t number = 0;
    CpuTicks ticks{};
  };
  std::vector<Cpu> cpus;
  std::optional<uint64_t> interrupts, softirqs, context_switches, running, blocked;
};
// /proc/stat. Fills `stat` anew, keeping its memory.
void parse_proc_stat(std::string_view text, ProcStat& stat);

struct PressureLine {
  double avg10 = 0;  // percent
  uint64_t total_us = 0;
};
struct Pressure {
  std::optional<PressureLine> some, full;
};
// /proc/pressure/*, cgroup *.pressure.
Pressure parse_pressure(std::string_view text);

// /proc/net/snmp and netstat: the column `name` of the table `table` ("Tcp", "RetransSegs").
std::optional<uint64_t> parse_net_table(std::string_view text, std::string_view table, std::string_view name);

struct Softnet {
  uint64_t dropped = 0;
  uint64_t squeezed = 0;
  size_t cpus = 0;
};
// /proc/net/softnet_stat, all CPUs together.
Softnet parse_softnet(std::string_view text);

struct TaskStat {
  std::string_view comm;
  char state = '?';
  int32_t parent = 0;
  bool kernel_thread = false;
  uint64_t start_ticks = 0;  // since boot: with the id, this names a task for good
  int32_t processor = -1;    // last ran here
};
// /proc/PID/stat, /proc/PID/task/TID/stat.
std::optional<TaskStat> parse_task_stat(std::string_view text);

struct SchedStat {
  uint64_t run_ns = 0;
  uint64_t wait_ns = 0;
};
std::optional<SchedStat> parse_schedstat(std::string_view text);

struct CgroupPaths {
  std::string_view v2;      // "0::/path"
  std::string_view cpu;     // v1
  std::string_view memory;  // v1
};
// /proc/PID/cgroup. Paths that climb ("/../x": another cgroup namespace) are left out.
CgroupPaths parse_cgroup(std::string_view text);

// The state of the kernel's clock, from adjtimex(2) or recorded.
struct ClockState {
  int64_t offset_ns = 0;
  int64_t maxerror_us = 0;
  int64_t esterror_us = 0;
  int64_t status = 0;
};
std::optional<ClockState> parse_adjtimex(std::string_view text);

}  // namespace lockstep::host
