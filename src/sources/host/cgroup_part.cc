#include "sources/host/cgroup_part.h"

#include <algorithm>

#include "base/text.h"
#include "sources/host/host_metrics.h"
#include "sources/host/proc_text.h"

namespace lockstep::host {
namespace {

constexpr size_t kGpusMax = 128;
constexpr int kLevelsMax = 16;
// What v1 says where there is no limit is near 2^63.
constexpr uint64_t kNoLimit = 1ull << 60;

struct PressureName {
  const char* resource;
  const char* scope;
};
constexpr PressureName kPressureNames[] = {
    {"cpu", "some"}, {"memory", "some"}, {"memory", "full"}, {"io", "some"}, {"io", "full"}};

bool to_parent(std::string& folder, size_t mount_length) {
  size_t slash = folder.rfind('/');
  if (slash == std::string::npos || slash < mount_length || folder.size() <= mount_length) return false;
  folder.resize(slash);
  return true;
}

}  // namespace

CgroupPart::CgroupPart(HostFiles& files) : files_(files) {}

void CgroupPart::read_slow(const std::map<int32_t, std::string>& gpu_of, NodeReadings& out) {
  if (v2_mount_.empty())
    v2_mount_ = files_.readable("/sys/fs/cgroup/unified/cgroup.procs") ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup";
  if (gpus_.size() > kGpusMax) std::erase_if(gpus_, [](auto& entry) { return !entry.second.used; });
  for (auto& [uuid, gpu] : gpus_) gpu.used = false;
  // Ranks of one pod share a cgroup: it is read once.
  std::map<std::string, Numbers> read;
  for (auto& [pid, uuid] : gpu_of) {
    if (uuid.empty() || gpus_[uuid].used) continue;
    Folders folders = folders_of(pid);
    std::string key = folders.v2 + '\n' + folders.cpu + '\n' + folders.memory;
    if (key.size() == 2) continue;
    auto numbers = read.find(key);
    if (numbers == read.end()) numbers = read.emplace(key, read_numbers(folders)).first;
    Gpu& gpu = gpus_[uuid];
    gpu.used = true;
    if (gpu.folder != key) {
      gpu.folder = key;
      for (Growth& growth : gpu.growth) growth.forget();
    }
    if (!gpu.gpu) {
      gpu.gpu = labels({{"gpu_uuid", uuid}});
      for (size_t i = 0; i < kPressures; ++i)
        gpu.pressure_labels[i] =
            labels({{"gpu_uuid", uuid}, {"resource", kPressureNames[i].resource}, {"scope", kPressureNames[i].scope}});
    }
    publish(gpu, numbers->second, out);
  }
}

CgroupPart::Folders CgroupPart::folders_of(int32_t pid) {
  Folders folders;
  auto text = files_.read(format("/proc/%d/cgroup", pid));
  if (!text) return folders;
  CgroupPaths paths = parse_cgroup(*text);
  if (!paths.v2.empty()) folders.v2 = v2_mount_ + std::string(paths.v2);
  if (!paths.cpu.empty()) folders.cpu = "/sys/fs/cgroup/cpu" + std::string(paths.cpu);
  if (!paths.memory.empty()) folders.memory = "/sys/fs/cgroup/memory" + std::string(paths.memory);
  for (std::string* folder : {&folders.v2, &folders.cpu, &folders.memory}) {
    while (folder->ends_with('/')) folder->pop_back();
  }
  return folders;
}

CgroupPart::Numbers CgroupPart::read_numbers(const Folders& folders) {
  Numbers numbers;
  if (!folders.v2.empty()) {
    const char* files[] = {"/cpu.pressure", "/memory.pressure", "/io.pressure"};
    for (size_t i = 0; i < 3; ++i) {
      auto text = files_.read(folders.v2 + files[i]);
      if (!text) continue;
      Pressure pressure = parse_pressure(*text);
      size_t some = i == 0 ? 0 : 2 * i - 1;
      if (pressure.some) numbers.counters[some] = pressure.some->total_us;
      if (i > 0 && pressure.full) numbers.counters[some + 1] = pressure.full->total_us;
    }
    if (auto text = files_.read(folders.v2 + "/cpu.stat")) {
      for_each_key(*text, [&](std::string_view key, std::string_view rest) {
        if (key == "throttled_usec") numbers.counters[kThrottledUs] = next_number(rest);
        if (key == "nr_throttled") numbers.counters[kThrottledPeriods] = next_number(rest);
      });
    }
    // Slurm's and systemd's leaves may leave memory to a cgroup above them, and limits hold all the way down.
    std::string folder = folders.v2;
    for (int level = 0; level < kLevelsMax; ++level) {
      if (!numbers.memory) {
        numbers.memory = files_.read_number(folder + "/memory.current");
        auto events = numbers.memory ? files_.read(folder + "/memory.events") : std::nullopt;
        if (events) {
          for_each_key(*events, [&](std::string_view key, std::string_view rest) {
            if (key == "oom_kill") numbers.counters[kOomKills] = next_number(rest);
          });
        }
      }
      if (auto limit = files_.read_number(folder + "/memory.max"))
        numbers.memory_limit = std::min(numbers.memory_limit.value_or(UINT64_MAX), *limit);
      if (!to_parent(folder, v2_mount_.size())) break;
    }
  }
  read_v1(folders, numbers);
  return numbers;
}

void CgroupPart::read_v1(const Folders& folders, Numbers& numbers) {
  auto text = folders.cpu.empty() ? std::nullopt : files_.read(folders.cpu + "/cpu.stat");
  if (text) {
    for_each_key(*text, [&](std::string_view key, std::string_view rest) {
      if (key == "throttled_time") {
        if (auto ns = next_number(rest)) numbers.counters[kThrottledUs] = *ns / 1000;
      }
      if (key == "nr_throttled") numbers.counters[kThrottledPeriods] = next_number(rest);
    });
  }
  if (folders.memory.empty()) return;
  if (!numbers.memory) numbers.memory = files_.read_number(folders.memory + "/memory.usage_in_bytes");
  auto limit = files_.read_number(folders.memory + "/memory.limit_in_bytes");
  if (limit && *limit < kNoLimit) numbers.memory_limit = std::min(numbers.memory_limit.value_or(UINT64_MAX), *limit);
  if (auto control = files_.read(folders.memory + "/memory.oom_control")) {
    for_each_key(*control, [&](std::string_view key, std::string_view rest) {
      if (key == "oom_kill") numbers.counters[kOomKills] = next_number(rest);
    });
  }
}

void CgroupPart::publish(Gpu& gpu, const Numbers& numbers, NodeReadings& out) {
  auto sum = [&](size_t counter, HostMetric metric, const LabelSet& set, double unit) {
    if (!numbers.counters[counter]) return;
    gpu.sums[counter] += gpu.growth[counter].since_last(*numbers.counters[counter]);
    out.add(row(metric), set, static_cast<double>(gpu.sums[counter]) * unit);
  };
  for (size_t i = 0; i < kPressures; ++i)
    sum(kFirstPressure + i, HostMetric::kCgroupPressure, gpu.pressure_labels[i], 1e-6);
  sum(kThrottledUs, HostMetric::kCgroupThrottled, gpu.gpu, 1e-6);
  sum(kThrottledPeriods, HostMetric::kCgroupThrottledPeriods, gpu.gpu, 1);
  sum(kOomKills, HostMetric::kCgroupOomKills, gpu.gpu, 1);
  if (numbers.memory) out.add(row(HostMetric::kCgroupMemory), gpu.gpu, static_cast<double>(*numbers.memory));
  if (numbers.memory_limit)
    out.add(row(HostMetric::kCgroupMemoryLimit), gpu.gpu, static_cast<double>(*numbers.memory_limit));
}

}  // namespace lockstep::host
