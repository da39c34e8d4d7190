// Any bytes go through every parser of the kernel's text. What they
// answer keeps to the limits that the headers promise, and points into the text.
#include <cstdlib>
#include <string_view>

#include "sources/host/proc_text.h"
#include "sources/host/storage_text.h"

namespace {

using namespace lockstep::host;

void check(bool holds) {
  if (!holds) std::abort();
}

bool is_inside(std::string_view part, std::string_view text) {
  return part.empty() || (part.data() >= text.data() && part.data() + part.size() <= text.data() + text.size());
}

void check_system_text(std::string_view text) {
  ProcStat stat;
  parse_proc_stat(text, stat);
  check(stat.cpus.size() <= static_cast<size_t>(kCpusMax));
  for (const ProcStat::Cpu& cpu : stat.cpus) check(cpu.number >= 0 && cpu.number < kCpusMax);
  parse_cpulist(text);
  Pressure pressure = parse_pressure(text);
  if (pressure.some) check(pressure.some->avg10 >= 0);
  parse_net_table(text, "Tcp", "RetransSegs");
  check(parse_softnet(text).cpus <= text.size());
  size_t lines = 0;
  for_each_key(text, [&](std::string_view key, std::string_view rest) {
    check(!key.empty() && is_inside(key, text) && is_inside(rest, text));
    ++lines;
  });
  check(lines <= text.size());
  parse_adjtimex(text);
}

void check_task_text(std::string_view text) {
  if (auto task = parse_task_stat(text)) {
    check(is_inside(task->comm, text));
    check(task->processor >= -1 && task->processor < kCpusMax);
  }
  parse_schedstat(text);
  CgroupPaths paths = parse_cgroup(text);
  for (std::string_view path : {paths.v2, paths.cpu, paths.memory}) {
    check(is_inside(path, text));
    check(path.empty() || (path[0] == '/' && path.find("/..") == std::string_view::npos));
  }
}

void check_storage_text(std::string_view text) {
  auto disks = parse_diskstats(text, 64);
  check(disks.size() <= 64);
  for (const DiskStat& disk : disks) {
    check(is_inside(disk.name, text) && !disk.name.empty());
    is_whole_disk(disk.name);
  }
  auto mounts = parse_mountstats(text, 8);
  check(mounts.size() <= 8);
  for (const StorageStat& mount : mounts) check(!mount.device.empty() && mount.device.size() <= 255);
  StorageStat stat;
  parse_llite_stats(text, stat);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  check_system_text(text);
  check_task_text(text);
  check_storage_text(text);
  return 0;
}
