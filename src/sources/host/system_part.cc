#include "sources/host/system_part.h"

#include "base/text.h"
#include "sources/host/host_metrics.h"
#include "sources/host/proc_text.h"

namespace lockstep::host {
namespace {

constexpr size_t kPackagesMax = 16;
constexpr size_t kControllersMax = 64;

}  // namespace

SystemPart::SystemPart(HostFiles& files)
    : files_(files),
      none_(labels({})),
      dropped_labels_(labels({{"event", "dropped"}})),
      squeezed_labels_(labels({{"event", "squeezed"}})),
      corrected_(labels({{"kind", "corrected"}})),
      uncorrected_(labels({{"kind", "uncorrected"}})),
      training_(labels({{"kind", "training"}})),
      kernel_(labels({{"kind", "kernel"}})),
      other_(labels({{"kind", "other"}})) {
  for (size_t i = 0; i < kWaitKinds; ++i) wait_labels_[i] = labels({{"wait", kWaitKindNames[i]}});
}

void SystemPart::find_hardware() {
  found_ = true;
  // The host's network, where we are in a container of our own and may look.
  net_folder_ = files_.readable("/proc/1/net/snmp") ? "/proc/1/net" : "/proc/net";
  const std::string powercap = "/sys/class/powercap";
  for (const std::string& name : files_.names(powercap, 256)) {
    // "intel-rapl:0" is a package (AMD's too), "intel-rapl:0:0" a part of it.
    if (!name.starts_with("intel-rapl:") || name.find(':', 11) != std::string::npos) continue;
    Rapl rapl;
    rapl.folder = powercap + "/" + name;
    auto kind = files_.read(rapl.folder + "/name");
    if (!kind || !kind->starts_with("package-") || rapls_.size() >= kPackagesMax) continue;
    rapl.package = labels({{"package", std::string(trim(kind->substr(8)))}});
    // Only root may read it on most kernels; that is no failure.
    if (!files_.readable(rapl.folder + "/energy_uj")) continue;
    auto energy_uj = files_.read_number(rapl.folder + "/energy_uj");
    auto range_uj = files_.read_number(rapl.folder + "/max_energy_range_uj");
    if (!energy_uj || !range_uj) continue;
    rapl.last_uj = *energy_uj;
    rapl.range_uj = *range_uj;
    rapls_.push_back(std::move(rapl));
  }
  const std::string hwmon = "/sys/class/hwmon";
  for (const std::string& name : files_.names(hwmon, 256)) {
    auto kind = files_.read(hwmon + "/" + name + "/name");
    if (!kind || sensors_.size() >= kPackagesMax) continue;
    std::string_view chip = trim(*kind);
    if (chip != "coretemp" && chip != "k10temp" && chip != "zenpower") continue;
    sensors_.push_back({hwmon + "/" + name + "/temp1_input", labels({{"package", std::to_string(sensors_.size())}})});
  }
  const std::string edac = "/sys/devices/system/edac/mc";
  for (const std::string& name : files_.names(edac, 256)) {
    if (name.starts_with("mc") && parse_uint(std::string_view(name).substr(2)) &&
        memory_controllers_.size() < kControllersMax)
      memory_controllers_.push_back(edac + "/" + name);
  }
}

void SystemPart::read_slow(NodeReadings& out) {
  if (!found_) find_hardware();
  read_network(out);
  read_hardware(out);
  if (auto count = files_.read_number("/proc/sys/kernel/hung_task_detect_count"))
    out.add(row(HostMetric::kHungTasks), none_, static_cast<double>(*count));
}

void SystemPart::read_network(NodeReadings& out) {
  if (auto text = files_.read("/proc/net/softnet_stat", kLargeFileMax)) {
    Softnet all = parse_softnet(*text);
    // A CPU that is taken out takes its line with it.
    dropped_ += dropped_growth_.since_last(all.dropped);
    squeezed_ += squeezed_growth_.since_last(all.squeezed);
    if (all.cpus > 0) {
      out.add(row(HostMetric::kSoftnet), dropped_labels_, static_cast<double>(dropped_));
      out.add(row(HostMetric::kSoftnet), squeezed_labels_, static_cast<double>(squeezed_));
    }
  }
  struct Column {
    const char* event;
    const char* table;
    const char* name;
  };
  auto add = [&](const std::optional<std::string_view>& text, const Column& column) {
    if (!text) return;
    auto value = parse_net_table(*text, column.table, column.name);
    if (!value) return;
    LabelSet& set = tcp_labels_[column.event];
    if (!set) set = labels({{"event", column.event}});
    out.add(row(HostMetric::kTcp), set, static_cast<double>(*value));
  };
  auto snmp = files_.read(net_folder_ + "/snmp");
  add(snmp, {"retransmits", "Tcp", "RetransSegs"});
  auto netstat = files_.read(net_folder_ + "/netstat");
  add(netstat, {"listen_drops", "TcpExt", "ListenDrops"});
  add(netstat, {"listen_overflows", "TcpExt", "ListenOverflows"});
  add(netstat, {"timeouts", "TcpExt", "TCPTimeouts"});
}

void SystemPart::read_hardware(NodeReadings& out) {
  for (Rapl& rapl : rapls_) {
    auto now_uj = files_.read_number(rapl.folder + "/energy_uj");
    if (!now_uj) continue;
    // The counter goes round within minutes under load.
    uint64_t grown_uj = *now_uj >= rapl.last_uj ? *now_uj - rapl.last_uj : *now_uj + rapl.range_uj - rapl.last_uj;
    if (*now_uj <= rapl.range_uj && rapl.last_uj <= rapl.range_uj) rapl.joules += static_cast<double>(grown_uj) / 1e6;
    rapl.last_uj = *now_uj;
    out.add(row(HostMetric::kCpuEnergy), rapl.package, rapl.joules);
  }
  for (const Sensor& sensor : sensors_) {
    if (auto millidegrees = files_.read_number(sensor.file))
      out.add(row(HostMetric::kCpuTemperature), sensor.package, static_cast<double>(*millidegrees) / 1e3);
  }
  if (memory_controllers_.empty()) return;
  uint64_t corrected = 0, uncorrected = 0;
  for (const std::string& folder : memory_controllers_) {
    corrected += files_.read_number(folder + "/ce_count").value_or(0);
    uncorrected += files_.read_number(folder + "/ue_count").value_or(0);
  }
  out.add(row(HostMetric::kMemoryErrors), corrected_, static_cast<double>(corrected));
  out.add(row(HostMetric::kMemoryErrors), uncorrected_, static_cast<double>(uncorrected));
}

void SystemPart::publish_stuck(const std::vector<WalkedProcess>& all, const ThreadWatch& threads, NodeReadings& out) {
  int64_t training = 0, kernel = 0, other = 0;
  std::array<int64_t, kWaitKinds> waits = threads.stuck();
  for (int64_t count : waits) training += count;
  for (const WalkedProcess& process : all) {
    if (!process.stuck || threads.follows(process.pid)) continue;
    ++(process.kernel_thread ? kernel : other);
    ++waits[static_cast<size_t>(process.wait)];
  }
  out.add(row(HostMetric::kTasksUninterruptible), training_, static_cast<double>(training));
  out.add(row(HostMetric::kTasksUninterruptible), kernel_, static_cast<double>(kernel));
  out.add(row(HostMetric::kTasksUninterruptible), other_, static_cast<double>(other));
  for (size_t i = 0; i < kWaitKinds; ++i) {
    wait_seen_[i] = wait_seen_[i] || waits[i] > 0;
    if (wait_seen_[i])
      out.add(row(HostMetric::kTasksUninterruptibleWait), wait_labels_[i], static_cast<double>(waits[i]));
  }
}

}  // namespace lockstep::host
