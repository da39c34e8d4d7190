#include "sources/host/proc_text.h"

#include <charconv>

#include "base/text.h"

namespace lockstep::host {
namespace {

constexpr uint64_t kKernelThreadFlag = 0x0020'0000;  // PF_KTHREAD

bool cut_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<uint64_t> parse_hex(std::string_view word) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
  if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<CpuTicks> parse_ticks(std::string_view line) {
  CpuTicks ticks{};
  for (size_t i = 0; i < kCpuModes; ++i) {
    auto value = next_number(line);
    // Old kernels have fewer columns; a line without the first four is none of ours.
    if (!value && i < 4) return std::nullopt;
    if (!value) break;
    ticks[i] = *value;
  }
  return ticks;
}

// A cgroup's path is joined to the mount point: one that climbs would leave it.
std::string_view checked_path(std::string_view path) {
  if (!path.starts_with('/') || path.find("/..") != std::string_view::npos) return {};
  return path;
}

bool lists(std::string_view comma_list, std::string_view name) {
  for (std::string_view part : split(comma_list, ',')) {
    if (part == name) return true;
  }
  return false;
}

}  // namespace

std::string_view next_line(std::string_view& rest) {
  size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

std::string_view next_word(std::string_view& rest) {
  size_t start = rest.find_first_not_of(" \t");
  if (start == std::string_view::npos) {
    rest = {};
    return {};
  }
  size_t end = rest.find_first_of(" \t", start);
  std::string_view word = rest.substr(start, end == std::string_view::npos ? end : end - start);
  rest.remove_prefix(start + word.size());
  return word;
}

std::optional<uint64_t> next_number(std::string_view& rest) {
  std::string_view word = next_word(rest);
  uint64_t value = 0;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

CpuSet parse_cpulist(std::string_view text) {
  CpuSet cpus;
  std::string_view line = trim(next_line(text));
  while (!line.empty()) {
    size_t comma = line.find(',');
    std::string_view part = line.substr(0, comma);
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
    size_t dash = part.find('-');
    auto first = parse_uint(part.substr(0, dash));
    auto last = dash == std::string_view::npos ? first : parse_uint(part.substr(dash + 1));
    if (!first || !last || *last < *first) continue;
    for (uint64_t cpu = *first; cpu <= *last && cpu < kCpusMax; ++cpu) cpus.set(cpu);
  }
  return cpus;
}

void parse_proc_stat(std::string_view text, ProcStat& stat) {
  std::vector<ProcStat::Cpu> cpus = std::move(stat.cpus);
  cpus.clear();
  stat = ProcStat{};
  stat.cpus = std::move(cpus);
  while (!text.empty()) {
    std::string_view line = next_line(text);
    std::string_view key = next_word(line);
    if (key == "cpu") {
      stat.all = parse_ticks(line);
    } else if (cut_prefix(key, "cpu")) {
      auto number = parse_uint(key);
      auto ticks = parse_ticks(line);
      if (number && *number < kCpusMax && ticks && stat.cpus.size() < kCpusMax)
        stat.cpus.push_back({static_cast<int32_t>(*number), *ticks});
    } else if (key == "intr") {
      stat.interrupts = next_number(line);
    } else if (key == "softirq") {
      stat.softirqs = next_number(line);
    } else if (key == "ctxt") {
      stat.context_switches = next_number(line);
    } else if (key == "procs_running") {
      stat.running = next_number(line);
    } else if (key == "procs_blocked") {
      stat.blocked = next_number(line);
    }
  }
}

Pressure parse_pressure(std::string_view text) {
  Pressure pressure;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    std::string_view scope = next_word(line);
    std::optional<double> avg10;
    std::optional<uint64_t> total_us;
    while (!line.empty()) {
      std::string_view word = next_word(line);
      if (cut_prefix(word, "avg10=")) avg10 = parse_double(word);
      if (cut_prefix(word, "total=")) total_us = parse_uint(word);
    }
    if (!avg10 || !total_us || !(*avg10 >= 0 && *avg10 <= 1000)) continue;
    if (scope == "some") pressure.some = PressureLine{*avg10, *total_us};
    if (scope == "full") pressure.full = PressureLine{*avg10, *total_us};
  }
  return pressure;
}

std::optional<uint64_t> parse_net_table(std::string_view text, std::string_view table, std::string_view name) {
  std::string_view heads;  // of the table that is open
  while (!text.empty()) {
    std::string_view line = next_line(text);
    std::string_view key = next_word(line);
    if (key.empty() || key.back() != ':' || key.substr(0, key.size() - 1) != table) continue;
    if (heads.empty()) {
      heads = line;
      continue;
    }
    while (!heads.empty()) {
      std::string_view head = next_word(heads);
      std::string_view value = next_word(line);
      if (head == name) return parse_uint(value);
    }
  }
  return std::nullopt;
}

Softnet parse_softnet(std::string_view text) {
  Softnet all;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    next_word(line);
    auto dropped = parse_hex(next_word(line));
    auto squeezed = parse_hex(next_word(line));
    if (!dropped || !squeezed) continue;
    all.dropped += *dropped;
    all.squeezed += *squeezed;
    ++all.cpus;
  }
  return all;
}

std::optional<TaskStat> parse_task_stat(std::string_view text) {
  // The name is in brackets and may itself have brackets, blanks and line breaks: the last bracket ends it.
  size_t open = text.find('(');
  size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  TaskStat task;
  task.comm = text.substr(open + 1, close - open - 1);
  std::string_view rest = text.substr(close + 1);
  rest = next_line(rest);
  std::string_view state = next_word(rest);
  if (state.size() != 1) return std::nullopt;
  task.state = state[0];
  // proc(5) counts fields from 1; the state is the third.
  for (int field = 4; field <= 39; ++field) {
    std::string_view word = next_word(rest);
    if (word.empty()) break;
    if (field != 4 && field != 9 && field != 22 && field != 39) continue;
    auto value = parse_int(word);
    if (!value) return std::nullopt;
    if (field == 4) task.parent = static_cast<int32_t>(*value);
    if (field == 9) task.kernel_thread = (static_cast<uint64_t>(*value) & kKernelThreadFlag) != 0;
    if (field == 22) task.start_ticks = static_cast<uint64_t>(*value);
    if (field == 39 && *value >= 0 && *value < kCpusMax) task.processor = static_cast<int32_t>(*value);
  }
  return task;
}

std::optional<SchedStat> parse_schedstat(std::string_view text) {
  std::string_view line = next_line(text);
  auto run = next_number(line);
  auto wait = next_number(line);
  if (!run || !wait) return std::nullopt;
  return SchedStat{*run, *wait};
}

CgroupPaths parse_cgroup(std::string_view text) {
  CgroupPaths paths;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    size_t first = line.find(':');
    size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string_view path = checked_path(line.substr(second + 1));
    if (controllers.empty()) paths.v2 = path;
    if (lists(controllers, "cpu")) paths.cpu = path;
    if (lists(controllers, "memory")) paths.memory = path;
  }
  return paths;
}

std::optional<ClockState> parse_adjtimex(std::string_view text) {
  ClockState state;
  bool found = false;
  for_each_key(text, [&](std::string_view key, std::string_view rest) {
    auto value = parse_int(trim(rest));
    if (!value) return;
    found = true;
    if (key == "offset_ns") state.offset_ns = *value;
    if (key == "maxerror_us") state.maxerror_us = *value;
    if (key == "esterror_us") state.esterror_us = *value;
    if (key == "status") state.status = *value;
  });
  if (!found) return std::nullopt;
  return state;
}

}  // namespace lockstep::host
