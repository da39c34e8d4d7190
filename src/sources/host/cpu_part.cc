#include "sources/host/cpu_part.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "sources/host/host_metrics.h"

namespace lockstep::host {
namespace {

constexpr size_t kNodesMax = 16;
constexpr size_t kFrequencySamples = 16;
// Some kernels sleep 20 ms to measure the frequency of one CPU: then one sample has to do.
constexpr int64_t kFrequencyBudgetNs = 10'000'000;
constexpr const char* kNodeModeNames[] = {"user", "system", "idle", "iowait"};

}  // namespace

CpuPart::CpuPart(HostFiles& files)
    : files_(files),
      ticks_per_second_(static_cast<double>(std::max(1L, sysconf(_SC_CLK_TCK)))),
      none_(labels({})),
      mean_(labels({{"of", "mean"}})),
      slowest_(labels({{"of", "slowest"}})) {
  modes_.fill(Unfalling(static_cast<uint64_t>(ticks_per_second_) * 600));
  for (size_t i = 0; i < kCpuModes; ++i) mode_labels_[i] = labels({{"cpu.mode", kCpuModeNames[i]}});
}

void CpuPart::read_slow(const std::vector<int32_t>& busy_cpus, NodeReadings& out) {
  read_nodes();
  read_times(out);
  read_load(out);
  read_frequency(busy_cpus, out);
  read_throttling(out);
}

void CpuPart::read_nodes() {
  std::fill(node_of_cpu_.begin(), node_of_cpu_.end(), static_cast<int16_t>(-1));
  for (const std::string& name : files_.names("/sys/devices/system/node", 4096)) {
    if (!name.starts_with("node")) continue;
    auto number = parse_uint(std::string_view(name).substr(4));
    if (!number || *number >= INT16_MAX) continue;
    auto text = files_.read("/sys/devices/system/node/" + name + "/cpulist");
    if (!text) continue;
    CpuSet cpus = parse_cpulist(*text);
    // A node of memory alone (CXL, HBM) has no CPUs and no time.
    size_t first = cpus._Find_first();
    int32_t node_number = static_cast<int32_t>(*number);
    if (first >= cpus.size() || (nodes_.count(node_number) == 0 && nodes_.size() >= kNodesMax)) continue;
    Node& node = nodes_[node_number];
    node.first_cpu = static_cast<int32_t>(first);
    for (size_t i = 0; i < kNodeModes && !node.labels[i]; ++i)
      node.labels[i] = labels({{"node", std::to_string(*number)}, {"mode", kNodeModeNames[i]}});
    for (size_t cpu = first; cpu < cpus.size(); cpu = cpus._Find_next(cpu)) {
      if (cpu >= node_of_cpu_.size()) node_of_cpu_.resize(cpu + 1, -1);
      node_of_cpu_[cpu] = static_cast<int16_t>(*number);
    }
  }
}

void CpuPart::read_times(NodeReadings& out) {
  auto text = files_.read(stat_file_, kLargeFileMax);
  if (!text) return;
  parse_proc_stat(*text, stat_);
  if (stat_.all) {
    for (size_t i = 0; i < kCpuModes; ++i)
      out.add(row(HostMetric::kCpuTime), mode_labels_[i],
              static_cast<double>(modes_[i].value((*stat_.all)[i])) / ticks_per_second_);
  }
  auto add = [&](HostMetric metric, const std::optional<uint64_t>& value) {
    if (value) out.add(row(metric), none_, static_cast<double>(*value));
  };
  if (!stat_.cpus.empty()) add(HostMetric::kCpuCount, stat_.cpus.size());
  add(HostMetric::kInterrupts, stat_.interrupts);
  add(HostMetric::kSoftirqs, stat_.softirqs);
  add(HostMetric::kContextSwitches, stat_.context_switches);
  add(HostMetric::kTasksRunning, stat_.running);
  add(HostMetric::kTasksBlocked, stat_.blocked);

  for (const ProcStat::Cpu& cpu : stat_.cpus) {
    size_t number = static_cast<size_t>(cpu.number);
    int16_t node_number = number < node_of_cpu_.size() ? node_of_cpu_[number] : static_cast<int16_t>(-1);
    auto node = nodes_.find(node_number);
    if (node == nodes_.end()) continue;
    if (number >= cpu_growth_.size()) cpu_growth_.resize(number + 1);
    const CpuTicks& ticks = cpu.ticks;
    const uint64_t values[kNodeModes] = {ticks[0] + ticks[1], ticks[2] + ticks[5] + ticks[6], ticks[3], ticks[4]};
    for (size_t i = 0; i < kNodeModes; ++i) node->second.ticks[i] += cpu_growth_[number][i].since_last(values[i]);
  }
  for (auto& [number, node] : nodes_) {
    for (size_t i = 0; i < kNodeModes; ++i)
      out.add(row(HostMetric::kNumaCpuTime), node.labels[i], static_cast<double>(node.ticks[i]) / ticks_per_second_);
  }
}

void CpuPart::read_load(NodeReadings& out) {
  auto text = files_.read("/proc/loadavg");
  if (!text) return;
  std::string_view rest = *text;
  if (auto load = parse_double(next_word(rest))) out.add(row(HostMetric::kLoad), none_, *load);
}

void CpuPart::read_frequency(const std::vector<int32_t>& busy_cpus, NodeReadings& out) {
  // An idle CPU runs slowly and that is well, so the CPUs of training threads are asked where there are any.
  std::vector<int32_t> cpus = busy_cpus;
  if (cpus.empty()) {
    for (size_t i = 0; i < std::min(kFrequencySamples, stat_.cpus.size()); ++i)
      cpus.push_back(stat_.cpus[(sample_at_ + i) % stat_.cpus.size()].number);
    sample_at_ += cpus.size();
  }
  if (cpus.size() > kFrequencySamples) cpus.resize(kFrequencySamples);
  int64_t until_ns = SystemClock().monotonic_ns() + kFrequencyBudgetNs;
  double sum = 0, slowest = 0;
  size_t count = 0;
  for (int32_t cpu : cpus) {
    auto khz = files_.read_number(format("/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", cpu));
    if (!khz) continue;  // no frequency scaling here, as in most virtual machines
    double hertz = static_cast<double>(*khz) * 1e3;
    slowest = count == 0 ? hertz : std::min(slowest, hertz);
    sum += hertz;
    ++count;
    if (SystemClock().monotonic_ns() > until_ns) break;
  }
  if (count == 0) return;
  out.add(row(HostMetric::kCpuFrequency), mean_, sum / static_cast<double>(count));
  out.add(row(HostMetric::kCpuFrequency), slowest_, slowest);
}

void CpuPart::read_throttling(NodeReadings& out) {
  std::map<uint64_t, uint64_t> by_package;
  for (auto& [number, node] : nodes_) {
    std::string cpu = format("/sys/devices/system/cpu/cpu%d", node.first_cpu);
    auto package = files_.read_number(cpu + "/topology/physical_package_id");
    auto count = files_.read_number(cpu + "/thermal_throttle/package_throttle_count");
    if (package && count) by_package[*package] = std::max(by_package[*package], *count);
  }
  for (auto& [package, count] : by_package) {
    LabelSet& set = package_labels_[package];
    if (!set) set = labels({{"package", std::to_string(package)}});
    out.add(row(HostMetric::kCpuThrottled), set, static_cast<double>(count));
  }
}

}  // namespace lockstep::host
