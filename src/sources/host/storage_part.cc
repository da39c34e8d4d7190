#include "sources/host/storage_part.h"

#include "sources/host/host_metrics.h"

namespace lockstep::host {
namespace {

constexpr size_t kDisksMax = 32;
constexpr size_t kDiskLinesMax = 4096;
constexpr size_t kMountsMax = 8;

// Mean over what was added since the last reading; nothing where nothing was, or the counters began anew.
void add_mean(HostMetric metric, const LabelSet& set, double time_s, uint64_t count, uint64_t count_before,
              NodeReadings& out) {
  if (count > count_before && time_s >= 0)
    out.add(row(metric), set, time_s / static_cast<double>(count - count_before));
}

}  // namespace

StoragePart::StoragePart(HostFiles& files) : files_(files) {}

void StoragePart::read_slow(NodeReadings& out) {
  read_disks(out);
  read_nfs(out);
  read_lustre(out);
}

void StoragePart::read_disks(NodeReadings& out) {
  auto text = files_.read(diskstats_, kLargeFileMax);
  if (!text) return;
  for (const DiskStat& stat : parse_diskstats(*text, kDiskLinesMax)) {
    if (!is_whole_disk(stat.name)) continue;
    auto found = disks_.find(stat.name);
    if (found == disks_.end()) {
      // One that never did anything costs no series.
      if (disks_.size() >= kDisksMax || stat.reads + stat.writes == 0) continue;
      std::string name(stat.name);
      found = disks_.emplace(name, Disk{}).first;
      found->second.device = labels({{"system.device", name}});
      found->second.read = labels({{"system.device", name}, {"disk.io.direction", "read"}});
      found->second.write = labels({{"system.device", name}, {"disk.io.direction", "write"}});
    }
    Disk& disk = found->second;
    auto add = [&](HostMetric metric, const LabelSet& set, double value) { out.add(row(metric), set, value); };
    add(HostMetric::kDiskIo, disk.read, static_cast<double>(stat.read_sectors * kSectorBytes));
    add(HostMetric::kDiskIo, disk.write, static_cast<double>(stat.write_sectors * kSectorBytes));
    add(HostMetric::kDiskOperations, disk.read, static_cast<double>(stat.reads));
    add(HostMetric::kDiskOperations, disk.write, static_cast<double>(stat.writes));
    add(HostMetric::kDiskOperationTime, disk.read, static_cast<double>(stat.read_ms) / 1e3);
    add(HostMetric::kDiskOperationTime, disk.write, static_cast<double>(stat.write_ms) / 1e3);
    add(HostMetric::kDiskIoTime, disk.device, static_cast<double>(stat.io_ms) / 1e3);
    add(HostMetric::kDiskInFlight, disk.device, static_cast<double>(stat.in_flight));
    if (disk.known) {
      auto seconds = [](uint64_t now, uint64_t before) {
        return now >= before ? static_cast<double>(now - before) / 1e3 : -1;
      };
      add_mean(HostMetric::kDiskLatency, disk.read, seconds(stat.read_ms, disk.read_ms), stat.reads, disk.reads, out);
      add_mean(HostMetric::kDiskLatency, disk.write, seconds(stat.write_ms, disk.write_ms), stat.writes, disk.writes,
               out);
    }
    disk.known = true;
    disk.reads = stat.reads;
    disk.read_ms = stat.read_ms;
    disk.writes = stat.writes;
    disk.write_ms = stat.write_ms;
  }
}

void StoragePart::read_nfs(NodeReadings& out) {
  // The host's mounts, where we may look; else those of our own container. Either is written by this kernel alone.
  if (mountstats_.empty())
    mountstats_ = files_.readable("/proc/1/mountstats") ? "/proc/1/mountstats" : "/proc/self/mountstats";
  auto text = files_.read(mountstats_, kLargeFileMax);
  if (!text) return;
  for (const StorageStat& stat : parse_mountstats(*text, kMountsMax)) publish(stat, true, out);
}

void StoragePart::read_lustre(NodeReadings& out) {
  // Its client is loaded? Only then is debugfs, which few may read, worth a look.
  if (files_.names("/sys/fs/lustre", 1).empty() && files_.names("/proc/fs/lustre", 1).empty()) return;
  for (const char* folder : {"/proc/fs/lustre/llite", "/sys/kernel/debug/lustre/llite"}) {
    for (const std::string& name : files_.names(folder, kMountsMax)) {
      auto text = files_.read(std::string(folder) + "/" + name + "/stats");
      if (!text) continue;
      StorageStat stat;
      // "scratch-ffff9a3c41f2e800": the part after the last dash changes with every mount.
      stat.device = "lustre:" + name.substr(0, name.rfind('-'));
      parse_llite_stats(*text, stat);
      publish(stat, false, out);
    }
  }
}

void StoragePart::publish(const StorageStat& stat, bool has_rtt, NodeReadings& out) {
  // Exports that came and went are forgotten all at once; the others miss one mean.
  if (mounts_.count(stat.device) == 0 && mounts_.size() >= 4 * kMountsMax) mounts_.clear();
  Mount& mount = mounts_[stat.device];
  if (!mount.mount) {
    mount.mount = labels({{"mount", stat.device}});
    for (size_t i = 0; i < kStorageOps; ++i)
      mount.ops[i] = labels({{"mount", stat.device}, {"op", kStorageOpNames[i]}});
  }
  for (size_t i = 0; i < kStorageOps; ++i) {
    const StorageOpStat& op = stat.ops[i];
    const LabelSet& set = mount.ops[i];
    out.add(row(HostMetric::kStorageOperations), set, static_cast<double>(op.operations));
    if (i != static_cast<size_t>(StorageOp::kMetadata))
      out.add(row(HostMetric::kStorageBytes), set, static_cast<double>(op.bytes));
    out.add(row(HostMetric::kStorageExecute), set, op.execute_s);
    if (has_rtt) {
      out.add(row(HostMetric::kStorageQueue), set, op.queue_s);
      out.add(row(HostMetric::kStorageRtt), set, op.rtt_s);
      if (mount.known)
        add_mean(HostMetric::kStorageRttMean, set, op.rtt_s - mount.last[i].rtt_s, op.operations,
                 mount.last[i].operations, out);
    }
    mount.last[i] = op;
  }
  if (has_rtt) {
    out.add(row(HostMetric::kStorageRetransmissions), mount.mount, static_cast<double>(stat.retransmissions));
    out.add(row(HostMetric::kStorageTimeouts), mount.mount, static_cast<double>(stat.timeouts));
  }
  mount.known = true;
}

}  // namespace lockstep::host
