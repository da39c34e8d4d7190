#include "sim/node/host_model.h"

#include <algorithm>
#include <cmath>

#include "sources/host/host_metrics.h"
#include "sources/nic/nic_metrics.h"

namespace lockstep::sim {
namespace {

using enum Pace;
using enum Part;

constexpr double kCores = 192;
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kMemory = 2048 * kGiB;
constexpr const char* kMount = "10.20.0.8:/datasets";
constexpr const char* kDisk = "nvme0n1";
constexpr const char* kClassNames[] = {"trainer", "nccl", "dataloader", "unnamed", "other"};
constexpr const char* kModes[] = {"user", "nice", "system", "idle", "iowait", "interrupt", "softirq", "steal"};
enum Mode { kUser, kNice, kSystem, kIdle, kIoWait, kInterrupt, kSoftirq, kSteal };
constexpr size_t kLoader = 2, kUnnamed = 3, kOther = 4;

double share(double value) {
  return std::clamp(value, 0.0, 1.0);
}

}  // namespace

RankModel::RankModel(uint64_t seed, int32_t index) : noise_(mixed(seed, static_cast<uint64_t>(index) + 500)) {
  Noise traits(mixed(seed, static_cast<uint64_t>(index) + 9500));
  quiet_ = std::exp(0.6 * traits.gauss());
  loader_cores_ = traits.between(1.2, 2.4);
  memory_bytes_ = traits.between(60, 130) * kGiB;
  quota_ = traits.uniform() < 0.05 ? 0.002 : 0;  // a quota that is touched now and then
}

void RankModel::advance(const Moment& moment, const GpuActivity& activity, bool held, const RankEffects& effects,
                        const HostEffects& host) {
  const double seconds = moment.seconds;
  held_ = held;
  const double runs = held ? 1 - effects.stopped : 0;
  if (effects.out_of_memory && !killed_) ++oom_kills_;
  killed_ |= effects.out_of_memory;

  const double busy = std::clamp(activity.busy + activity.communicating, 0.0, 1.0);
  const double input = std::clamp(activity.input, 0.0, 1.0);
  // Cores: the trainer's main thread spins, the proxies poll while there is something on the network.
  const double cpu[kClasses] = {0.98 + 0.25 * busy + effects.trainer_cpu,
                                0.15 + 0.7 * std::clamp(activity.communicating, 0.0, 1.0),
                                std::max(0.05, (loader_cores_ + effects.loader_cpu) * (1 - 0.8 * effects.loader_idle) *
                                                   (0.4 + 0.6 * busy + 0.6 * input)),
                                0.1, 0.2};
  const double wait[kClasses] = {0.0015, 0.001, 0.01, 0.001, 0.002};
  const double more[kClasses] = {effects.trainer_wait, effects.nccl_wait, effects.loader_wait,
                                 0.3 * effects.trainer_wait, 0.2 * effects.trainer_wait};
  cores_ = 0;
  for (size_t i = 0; i < kClasses; ++i) {
    const double used = cpu[i] * runs * (1 + 0.03 * noise_.gauss());
    const double usual = wait[i] * quiet_ * std::exp(0.4 * noise_.gauss());
    const double waited = share((usual + more[i]) * runs);
    cpu_[i] += used * seconds;
    cores_ += used;
    wait_[i] += waited * seconds * (i == kLoader ? 4 : 1);  // of several workers
    worst_[i] = share(waited * (1.3 + 0.5 * noise_.uniform()));
    switches_[i] += noise_.count((3 + 4000 * waited) * runs * seconds);
  }
  const double cpu_stall = 0.004 * quiet_ * std::exp(0.3 * noise_.gauss()) + 0.8 * effects.trainer_wait +
                           0.3 * effects.loader_wait + effects.throttled;
  cpu_some_ += share(cpu_stall) * runs * seconds;
  memory_some_ += share(effects.stalled_memory) * runs * seconds;
  memory_full_ += share(0.6 * effects.stalled_memory) * runs * seconds;
  const double io_usual = 0.001 * std::exp(0.5 * noise_.gauss());
  io_some_ += share(io_usual + effects.stalled_io) * runs * seconds;
  io_full_ += share(0.3 * io_usual + 0.7 * effects.stalled_io) * runs * seconds;
  const double throttled = noise_.count((quota_ + effects.throttled) * 10 * seconds) / 10 * (held ? 1 : 0);
  throttled_ += throttled;
  periods_ += std::round(throttled * 10);
  memory_ = memory_bytes_ * (1 + 0.002 * noise_.gauss()) * (held ? 1 : 0);
  if (host.memory_pressure > 0) memory_ *= 1.4;
  read_bytes_ =
      held ? 4e7 * seconds * (0.3 + 0.7 * busy) * (1 - 0.7 * effects.loader_idle) * (1 + 0.1 * noise_.gauss()) : 0;
  blocked_ = noise_.count(effects.blocked);
}

void RankModel::put(NodeReadout& out) const {
  const double there = held_ ? 0 : kNotRead;
  for (size_t i = 0; i < kClasses; ++i) {
    const Pace pace = i == kOther ? kSlow : kFast;
    const Part part = i <= kLoader ? kCore : kRest;
    const PutLabels labels = {{"thread_class", kClassNames[i]}};
    out.put(row(HostMetric::kThreadWait), labels, pace, part, wait_[i] + there);
    if (i != kOther) out.put(row(HostMetric::kThreadWaitWorst), labels, kFast, part, worst_[i] + there);
    out.put(row(HostMetric::kThreadCpu), labels, kSlow, part, cpu_[i] + there);
    if (i < kUnnamed) out.put(row(HostMetric::kThreadSwitches), labels, kSlow, kRest, switches_[i] + there);
  }
  out.put(row(HostMetric::kThreads), {}, kSlow, kRest, 212 + there);
  out.put(row(HostMetric::kNumaRemote), {}, kSlow, kRest, 0 + there);
  auto pressure = [&](const char* resource, const char* scope, double value) {
    out.put(row(HostMetric::kCgroupPressure), {{"resource", resource}, {"scope", scope}}, kSlow, kCore, value + there);
  };
  pressure("cpu", "some", cpu_some_);
  pressure("memory", "some", memory_some_);
  pressure("memory", "full", memory_full_);
  pressure("io", "some", io_some_);
  pressure("io", "full", io_full_);
  out.put(row(HostMetric::kCgroupThrottled), {}, kSlow, kCore, throttled_ + there);
  out.put(row(HostMetric::kCgroupThrottledPeriods), {}, kSlow, kRest, periods_ + there);
  out.put(row(HostMetric::kCgroupOomKills), {}, kSlow, kCore, oom_kills_ + there);
  out.put(row(HostMetric::kCgroupMemory), {}, kSlow, kRest, memory_ + there);
  out.put(row(HostMetric::kCgroupMemoryLimit), {}, kSlow, kRest, 240 * kGiB + there);
}

HostModel::HostModel(uint64_t seed) : noise_(mixed(seed, 700)) {
  Noise traits(mixed(seed, 9700));
  rtt_ = traits.between(0.5e-3, 1.1e-3);
  disk_latency_ = traits.between(70e-6, 130e-6);
  temperature_ = traits.between(52, 64);
  cached_ = traits.between(500, 1100) * kGiB;
  hertz_ = traits.between(3.05e9, 3.3e9);
  for (double& seconds : mode_) seconds = traits.standing(1e4, 1e5);
  mode_[kIdle] = traits.standing(1e7, 1e8);
  mode_[kUser] = traits.standing(1e6, 1e7);
  mode_[kSteal] = 0;
  switches_ = traits.standing(1e9, 1e11);
  interrupts_ = traits.standing(1e9, 1e11);
  softirqs_ = traits.standing(1e9, 1e11);
  for (Stall* stall : {&cpu_, &memory_, &io_, &irq_}) stall->some_s = stall->full_s = traits.between(10, 2000);
  major_faults_ = traits.standing(1e4, 1e6);
  refaults_ = traits.standing(1e5, 1e7);
  scans_ = traits.standing(0, 1e5);
  compact_stalls_ = traits.count(200);
  memory_errors_ = traits.uniform() < 0.04 ? traits.count(5) : 0;
  for (FileOp& op : files_) {
    op.operations = traits.standing(1e6, 1e8);
    op.bytes = op.operations * 5e5;
    op.rtt_s = op.operations * rtt_;
    op.queue_s = 0.05 * op.rtt_s;
    op.execute_s = op.rtt_s + op.queue_s;
  }
  retransmissions_ = traits.count(20);
  for (DiskOp& op : disk_) {
    op.operations = traits.standing(1e6, 1e7);
    op.bytes = op.operations * 6e4;
    op.time_s = op.operations * disk_latency_;
  }
  disk_busy_s_ = traits.standing(1e3, 1e4);
  tcp_retransmits_ = traits.standing(1e3, 1e5);
  eth_in_ = traits.standing(1e10, 1e12);
  eth_out_ = traits.standing(1e10, 1e12);
}

void HostModel::advance(const Moment& moment, const Ranks& ranks, const HostEffects& effects) {
  const double seconds = moment.seconds;
  const double cores = ranks.cores;
  const double tcp_cores = 4 * std::min(1.0, ranks.tcp_bytes / seconds / 2e10);
  const double system = 0.05 * cores + 0.6 + 6 * effects.memory_pressure + tcp_cores;
  const double others = effects.busy_cores;
  const double user = cores * 0.95 + 1.5 + 0.2 * noise_.gauss() + others;
  const double waiting = 0.05 + std::min(12.0, ranks.blocked) * 0.3 + 2 * effects.io_pressure;
  const double soft = 0.3 + 2 * tcp_cores;
  const double total = user + system + waiting + soft + effects.steal + 0.1;
  const double fit = total > kCores ? kCores / total : 1;
  auto grow = [&](Mode mode, double used) { mode_[mode] += std::max(0.0, used) * fit * seconds; };
  grow(kUser, user);
  grow(kSystem, system);
  grow(kIoWait, waiting);
  grow(kInterrupt, 0.1);
  grow(kSoftirq, soft);
  grow(kSteal, effects.steal);
  mode_[kIdle] += std::max(0.0, kCores - total) * seconds;
  running_ = std::max(1.0, std::round(user + system + 0.5 * noise_.gauss() + effects.steal * 0.5));
  blocked_ = std::round(ranks.blocked + noise_.count(0.15) + (effects.swaps ? 3 * effects.memory_pressure : 0));
  const double target = running_ + blocked_;
  load_ = load_ == 0 ? target : target + (load_ - target) * std::exp(-seconds / 60);
  switches_ += noise_.count((4e4 + 3e3 * (user + system)) * seconds);
  interrupts_ += noise_.count((6e4 + 2e3 * ranks.held) * seconds);
  softirqs_ += noise_.count((3e4 + 4e4 * tcp_cores) * seconds);
  energy_ += (260 + 2 * user) * seconds;
  package_ = temperature_ + 0.08 * (user + system) + 0.5 * noise_.gauss() + (moment.inlet - 26) * 0.5;

  advance_pressure(seconds, effects);
  advance_files(seconds, ranks, effects);

  tcp_retransmits_ += noise_.count((0.1 + ranks.tcp_bytes / seconds * 1e-8) * seconds);
  squeezed_ += noise_.count((0.02 + 20 * tcp_cores) * seconds);
  eth_in_ += std::round(2e5 * seconds * std::exp(0.3 * noise_.gauss()));
  eth_out_ += std::round(3e5 * seconds * std::exp(0.3 * noise_.gauss()));
  offset_ = 0.8 * offset_ + 4e-6 * noise_.gauss();
}

void HostModel::advance_pressure(double seconds, const HostEffects& effects) {
  auto stall = [&](Stall& of, double some, double full) {
    // As the kernel's mean over ten seconds sees it.
    const double keep = std::exp(-seconds / 10);
    of.some_s += share(some) * seconds;
    of.full_s += share(full) * seconds;
    of.some = of.some * keep + share(some) * (1 - keep);
    of.full = of.full * keep + share(full) * (1 - keep);
  };
  const double cpu = 0.008 * std::exp(0.4 * noise_.gauss()) + effects.cpu_pressure;
  stall(cpu_, cpu, 0);
  const double memory = noise_.count(0.01) * 0.002 + effects.memory_pressure;
  stall(memory_, memory, 0.6 * effects.memory_pressure);
  const double io = 0.002 * std::exp(0.7 * noise_.gauss()) + effects.io_pressure;
  stall(io_, io, 0.5 * io);
  stall(irq_, 0, 0.001 * std::exp(0.2 * noise_.gauss()));

  const double pressed = effects.memory_pressure;
  used_ = (pressed > 0 ? 1900 : 700) * kGiB * (1 + 0.002 * noise_.gauss());
  const double cached = pressed > 0 ? std::min(cached_, 60 * kGiB) : cached_;
  available_ = std::max(6 * kGiB, kMemory - used_ - 0.1 * cached);
  major_faults_ += noise_.count((0.5 + 4000 * pressed) * seconds);
  refaults_ += noise_.count((2 + 20000 * pressed) * seconds);
  scans_ += noise_.count((pressed > 0 ? 50000 * pressed : 0.2) * seconds);
  alloc_stalls_ += noise_.count(300 * pressed * seconds);
  compact_stalls_ += noise_.count((0.003 + 30 * pressed) * seconds);
  const double swapped = noise_.count((effects.swaps ? 8000 * pressed : 0) * seconds);
  swap_out_ += swapped;
  swap_in_ += std::round(0.6 * swapped);
  swap_used_ = std::min(30 * kGiB, swap_used_ + 0.4 * swapped * 4096);
}

void HostModel::advance_files(double seconds, const Ranks& ranks, const HostEffects& effects) {
  auto file = [&](FileOp& op, double bytes, double operations, double slower) {
    const double rtt = rtt_ * (1 + slower) * std::exp(0.15 * noise_.gauss());
    const double count = noise_.count(operations);
    op.operations += count;
    op.bytes += std::round(bytes);
    op.rtt_s += count * rtt;
    op.queue_s += count * rtt * (0.05 + 0.02 * slower);
    op.execute_s += count * rtt * (1.05 + 0.02 * slower);
    op.mean_rtt = count > 0 ? rtt : -1;
  };
  const double writes = effects.writes_local ? 0 : effects.write_bytes_per_s;
  file(files_[0], ranks.read_bytes, ranks.read_bytes / 5e5, effects.file_latency);
  file(files_[1], 2e4 * seconds + writes * seconds, 0.1 * seconds + writes * seconds / 1e6,
       effects.file_latency + (writes > 0 ? 2 : 0));
  file(files_[2], 0, (4 + 0.5 * ranks.held) * seconds, 0.7 * effects.file_latency + (writes > 0 ? 0.5 : 0));
  retransmissions_ += noise_.count((0.0005 + (effects.file_timeouts > 0 ? 1 : 0)) * seconds);
  timeouts_ += noise_.count(effects.file_timeouts * seconds);

  auto disk = [&](DiskOp& op, double bytes, double operation_bytes, double slower) {
    const double latency = disk_latency_ * (1 + slower) * std::exp(0.2 * noise_.gauss());
    const double count = noise_.count(bytes / operation_bytes);
    op.operations += count;
    op.bytes += std::round(bytes / 512) * 512;
    op.time_s += count * latency;
    op.mean_s = count > 0 ? latency : -1;
    disk_busy_s_ += std::min(seconds, count * latency * 0.5);
    return count * latency / seconds;
  };
  const double local = effects.writes_local ? effects.write_bytes_per_s * seconds : 0;
  const double swap = effects.swaps ? 3e7 * effects.memory_pressure * seconds : 0;
  const double reading = disk(disk_[0], 4e5 * seconds * (1 + 0.5 * noise_.uniform()) + swap, 3e4, effects.disk_latency);
  const double writing = disk(disk_[1], 2e6 * seconds * (1 + 0.5 * noise_.uniform()) + local + swap, 6e4,
                              effects.disk_latency + (local > 0 ? 3 : 0));
  in_flight_ = std::round(reading + writing);
  dirty_ = 60e6 * (1 + 0.3 * noise_.gauss()) + (effects.write_bytes_per_s > 0 ? 5e9 : 0);
  writeback_ = effects.write_bytes_per_s > 0 ? 8e8 : 0;
  stuck_training_ = ranks.blocked;
  stuck_seen_ = std::max(stuck_seen_, ranks.blocked);
  stuck_on_files_ = effects.file_latency > 0 || writes > 0;
}

void HostModel::put_cpus(NodeReadout& out) const {
  for (size_t i = 0; i < mode_.size(); ++i) {
    const Part part = i == kUser || i == kSystem || i == kIdle || i == kIoWait || i == kSteal ? kCore : kRest;
    out.put(row(HostMetric::kCpuTime), {{"cpu.mode", kModes[i]}}, kSlow, part, mode_[i]);
  }
  out.put(row(HostMetric::kCpuCount), {}, kSlow, kCore, kCores);
  out.put(row(HostMetric::kLoad), {}, kSlow, kCore, load_);
  out.put(row(HostMetric::kContextSwitches), {}, kSlow, kRest, switches_);
  out.put(row(HostMetric::kInterrupts), {}, kSlow, kRest, interrupts_);
  out.put(row(HostMetric::kSoftirqs), {}, kSlow, kRest, softirqs_);
  out.put(row(HostMetric::kTasksRunning), {}, kSlow, kCore, running_);
  out.put(row(HostMetric::kTasksBlocked), {}, kSlow, kCore, blocked_);
  out.put(row(HostMetric::kCpuFrequency), {{"of", "mean"}}, kSlow, kRest, hertz_);
  out.put(row(HostMetric::kCpuFrequency), {{"of", "slowest"}}, kSlow, kRest, hertz_ * 0.96);
  for (const char* package : {"0", "1"}) {
    out.put(row(HostMetric::kCpuThrottled), {{"package", package}}, kSlow, kRest, 0);
    out.put(row(HostMetric::kCpuTemperature), {{"package", package}}, kSlow, kRest, package_);
    out.put(row(HostMetric::kCpuEnergy), {{"package", package}}, kSlow, kRest, energy_ / 2);
  }
}

void HostModel::put(NodeReadout& out) const {
  put_cpus(out);
  auto pressure = [&](const char* resource, const char* scope, double seconds, double now) {
    out.put(row(HostMetric::kPressure), {{"resource", resource}, {"scope", scope}}, kFast, kRest, seconds);
    out.put(row(HostMetric::kPressureRatio), {{"resource", resource}, {"scope", scope}}, kFast, kCore, now);
  };
  pressure("cpu", "some", cpu_.some_s, cpu_.some);
  pressure("memory", "some", memory_.some_s, memory_.some);
  pressure("memory", "full", memory_.full_s, memory_.full);
  pressure("io", "some", io_.some_s, io_.some);
  pressure("io", "full", io_.full_s, io_.full);
  pressure("irq", "full", irq_.full_s, irq_.full);
  put_memory(out);
  put_files(out);
  for (const auto& [kind, count] :
       {std::pair("training", stuck_training_), std::pair("kernel", 0.0), std::pair("other", 0.0)}) {
    out.put(row(HostMetric::kTasksUninterruptible), {{"kind", kind}}, kSlow, kCore, count);
  }
  // Told once one was seen.
  const double seen = stuck_seen_ > 0 ? 0 : kNotRead;
  out.put(row(HostMetric::kTasksUninterruptibleWait), {{"wait", "nfs"}}, kSlow, kRest,
          (stuck_on_files_ ? stuck_training_ : 0) + seen);
  out.put(row(HostMetric::kTasksUninterruptibleWait), {{"wait", "block"}}, kSlow, kRest,
          (stuck_on_files_ ? 0 : stuck_training_) + seen);
  out.put(row(HostMetric::kHungTasks), {}, kSlow, kRest, 0);
  out.put(row(HostMetric::kSoftnet), {{"event", "dropped"}}, kSlow, kRest, 0);
  out.put(row(HostMetric::kSoftnet), {{"event", "squeezed"}}, kSlow, kRest, squeezed_);
  out.put(row(HostMetric::kTcp), {{"event", "retransmits"}}, kSlow, kCore, tcp_retransmits_);
  for (const char* event : {"listen_drops", "listen_overflows", "timeouts"}) {
    out.put(row(HostMetric::kTcp), {{"event", event}}, kSlow, kRest, 0);
  }
  out.put(row(HostMetric::kMemoryErrors), {{"kind", "corrected"}}, kSlow, kRest, memory_errors_);
  out.put(row(HostMetric::kMemoryErrors), {{"kind", "uncorrected"}}, kSlow, kRest, 0);
  out.put(row(HostMetric::kClockOffset), {}, kSlow, kRest, offset_);
  out.put(row(HostMetric::kClockError), {{"of", "estimated"}}, kSlow, kRest, 2e-5);
  out.put(row(HostMetric::kClockError), {{"of", "most"}}, kSlow, kRest, 8e-3);
  out.put(row(HostMetric::kClockSynchronized), {}, kSlow, kRest, 1);
  out.put(row(HostMetric::kClockSteps), {}, kSlow, kRest, 0);
  // The interface that the node is managed through.
  out.put(nic_metric("system.network.io"), {{"device", "eno1"}, {"direction", "receive"}}, kFast, kRest, eth_in_);
  out.put(nic_metric("system.network.io"), {{"device", "eno1"}, {"direction", "transmit"}}, kFast, kRest, eth_out_);
  out.put(nic_metric("lockstep_nic_carrier"), {{"device", "eno1"}}, kFast, kRest, 1);
  out.put(nic_metric("lockstep_nic_carrier_changes_total"), {{"device", "eno1"}}, kFast, kRest, 1);
}

void HostModel::put_memory(NodeReadout& out) const {
  const double cached = used_ > 1500 * kGiB ? std::min(cached_, 60 * kGiB) : cached_;
  auto state = [&](const char* name, double value) {
    out.put(row(HostMetric::kMemoryUsage), {{"system.memory.state", name}}, kSlow, kRest, value);
  };
  state("used", used_);
  state("free", std::max(2 * kGiB, kMemory - used_ - cached - 3 * kGiB));
  state("buffers", 3 * kGiB);
  state("cached", cached);
  out.put(row(HostMetric::kMemoryLimit), {}, kSlow, kRest, kMemory);
  out.put(row(HostMetric::kMemoryAvailable), {}, kSlow, kCore, available_);
  out.put(row(HostMetric::kMemoryShared), {}, kSlow, kRest, 90 * kGiB);
  auto kind = [&](const char* name, Part part, double value) {
    out.put(row(HostMetric::kMemoryKind), {{"kind", name}}, kSlow, part, value);
  };
  kind("dirty", kCore, dirty_);
  kind("writeback", kCore, writeback_);
  kind("mlocked", kRest, 40 * kGiB);
  kind("slab_unreclaimable", kRest, 9 * kGiB);
  kind("hugepages_free", kRest, 0);
  out.put(row(HostMetric::kSwap), {{"system.paging.state", "used"}}, kSlow, kRest, swap_used_);
  out.put(row(HostMetric::kSwap), {{"system.paging.state", "free"}}, kSlow, kRest, 32 * kGiB - swap_used_);
  out.put(row(HostMetric::kMajorFaults), {{"system.paging.fault.type", "major"}}, kSlow, kCore, major_faults_);
  out.put(row(HostMetric::kSwapPages), {{"system.paging.direction", "in"}}, kSlow, kRest, swap_in_);
  out.put(row(HostMetric::kSwapPages), {{"system.paging.direction", "out"}}, kSlow, kCore, swap_out_);
  auto event = [&](const char* name, Part part, double value) {
    out.put(row(HostMetric::kVmEvents), {{"event", name}}, kSlow, part, value);
  };
  event("pgscan_direct", kCore, scans_);
  event("allocstall", kCore, alloc_stalls_);
  event("compact_stall", kRest, compact_stalls_);
  event("thp_fault_fallback", kRest, 0);
  event("workingset_refault", kRest, refaults_);
  event("numa_miss", kRest, 0);
  event("numa_hint_faults", kRest, 0);
  event("oom_kill", kCore, oom_kills_);
  for (const char* node : {"0", "1"}) {
    out.put(row(HostMetric::kNumaFree), {{"node", node}}, kSlow, kRest, std::max(kGiB, available_ / 8));
  }
}

void HostModel::put_files(NodeReadout& out) const {
  constexpr const char* kDirections[] = {"read", "write"};
  for (size_t i = 0; i < 2; ++i) {
    const PutLabels labels = {{"system.device", kDisk}, {"disk.io.direction", kDirections[i]}};
    out.put(row(HostMetric::kDiskIo), labels, kSlow, i == 1 ? kCore : kRest, disk_[i].bytes);
    out.put(row(HostMetric::kDiskOperations), labels, kSlow, kRest, disk_[i].operations);
    out.put(row(HostMetric::kDiskOperationTime), labels, kSlow, kRest, disk_[i].time_s);
    out.put(row(HostMetric::kDiskLatency), labels, kSlow, kCore, disk_[i].mean_s < 0 ? kNotRead : disk_[i].mean_s);
  }
  out.put(row(HostMetric::kDiskIoTime), {{"system.device", kDisk}}, kSlow, kRest, disk_busy_s_);
  out.put(row(HostMetric::kDiskInFlight), {{"system.device", kDisk}}, kSlow, kRest, in_flight_);
  constexpr const char* kOps[] = {"read", "write", "metadata"};
  for (size_t i = 0; i < 3; ++i) {
    const PutLabels labels = {{"mount", kMount}, {"op", kOps[i]}};
    out.put(row(HostMetric::kStorageOperations), labels, kSlow, kRest, files_[i].operations);
    if (i < 2) out.put(row(HostMetric::kStorageBytes), labels, kSlow, kCore, files_[i].bytes);
    out.put(row(HostMetric::kStorageExecute), labels, kSlow, kRest, files_[i].execute_s);
    out.put(row(HostMetric::kStorageQueue), labels, kSlow, kRest, files_[i].queue_s);
    out.put(row(HostMetric::kStorageRtt), labels, kSlow, kRest, files_[i].rtt_s);
    out.put(row(HostMetric::kStorageRttMean), labels, kSlow, kCore,
            files_[i].mean_rtt < 0 ? kNotRead : files_[i].mean_rtt);
  }
  out.put(row(HostMetric::kStorageRetransmissions), {{"mount", kMount}}, kSlow, kCore, retransmissions_);
  out.put(row(HostMetric::kStorageTimeouts), {{"mount", kMount}}, kSlow, kCore, timeouts_);
}

}  // namespace lockstep::sim
