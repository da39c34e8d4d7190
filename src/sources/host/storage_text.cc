#include "sources/host/storage_text.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "sources/host/proc_text.h"

namespace lockstep::host {
namespace {

constexpr size_t kDeviceBytesMax = 255;

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

bool all_letters(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::islower(c); });
}

// "device SERVER:/EXPORT mounted on /MOUNT with fstype nfs4 statvers=1.1": the export; empty for other file systems.
std::string_view nfs_device(std::string_view line) {
  next_word(line);
  std::string_view device = next_word(line);
  size_t type_at = line.rfind(" with fstype ");
  if (type_at == std::string_view::npos) return {};
  line.remove_prefix(type_at + 13);
  std::string_view type = next_word(line);
  if (type != "nfs" && type != "nfs4") return {};
  return device.substr(0, kDeviceBytesMax);
}

StorageOp storage_op(std::string_view name) {
  if (name == "READ" || name == "READ_PLUS") return StorageOp::kRead;
  if (name == "WRITE") return StorageOp::kWrite;
  return StorageOp::kMetadata;
}

// "READ: ops transmissions timeouts bytes-sent bytes-received queue-ms rtt-ms execute-ms [errors]"
void add_nfs_op(std::string_view name, std::string_view line, StorageStat& stat) {
  uint64_t values[8];
  for (uint64_t& value : values) {
    auto number = next_number(line);
    if (!number) return;
    value = *number;
  }
  StorageOp kind = storage_op(name);
  StorageOpStat& op = stat.ops[static_cast<size_t>(kind)];
  op.operations += values[0];
  if (values[1] > values[0]) stat.retransmissions += values[1] - values[0];
  stat.timeouts += values[2];
  if (kind != StorageOp::kMetadata) op.bytes += kind == StorageOp::kRead ? values[4] : values[3];
  op.queue_s += static_cast<double>(values[5]) / 1e3;
  op.rtt_s += static_cast<double>(values[6]) / 1e3;
  op.execute_s += static_cast<double>(values[7]) / 1e3;
}

}  // namespace

std::vector<DiskStat> parse_diskstats(std::string_view text, size_t count_max) {
  std::vector<DiskStat> disks;
  while (!text.empty() && disks.size() < count_max) {
    std::string_view line = next_line(text);
    next_word(line);
    next_word(line);
    DiskStat disk;
    disk.name = next_word(line);
    uint64_t merged = 0;
    bool whole = true;
    for (uint64_t* value : {&disk.reads, &merged, &disk.read_sectors, &disk.read_ms, &disk.writes, &merged,
                            &disk.write_sectors, &disk.write_ms, &disk.in_flight, &disk.io_ms}) {
      auto number = next_number(line);
      whole = whole && number.has_value();
      *value = number.value_or(0);
    }
    if (whole && !disk.name.empty()) disks.push_back(disk);
  }
  return disks;
}

bool is_whole_disk(std::string_view name) {
  if (name.starts_with("dm-")) return all_digits(name.substr(3));
  if (name.starts_with("md")) return all_digits(name.substr(2));
  for (std::string_view kind : {"sd", "vd", "xvd"}) {
    if (name.starts_with(kind)) return all_letters(name.substr(kind.size()));
  }
  // "nvme0n1", not its partition "nvme0n1p2", nor one path of a shared namespace, "nvme0c1n1".
  if (!name.starts_with("nvme")) return false;
  name.remove_prefix(4);
  size_t n = name.find('n');
  return n != std::string_view::npos && all_digits(name.substr(0, n)) && all_digits(name.substr(n + 1));
}

std::vector<StorageStat> parse_mountstats(std::string_view text, size_t count_max) {
  std::vector<StorageStat> mounts;
  StorageStat* open = nullptr;  // the mount whose lines follow
  bool in_ops = false;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (line.starts_with("device ")) {
      open = nullptr;
      in_ops = false;
      std::string_view device = nfs_device(line);
      bool known = std::any_of(mounts.begin(), mounts.end(), [&](const auto& mount) { return mount.device == device; });
      if (device.empty() || known || mounts.size() >= count_max) continue;
      open = &mounts.emplace_back();
      open->device = device;
      continue;
    }
    if (open == nullptr) continue;
    std::string_view key = next_word(line);
    if (key == "per-op") {
      in_ops = true;
    } else if (in_ops && key.size() > 1 && key.back() == ':') {
      add_nfs_op(key.substr(0, key.size() - 1), line, *open);
    }
  }
  return mounts;
}

void parse_llite_stats(std::string_view text, StorageStat& stat) {
  // "read_bytes 12 samples [bytes] least most sum", "read 12 samples [usecs] least most sum", "getattr 12 samples [..."
  for_each_key(text, [&](std::string_view key, std::string_view rest) {
    auto samples = next_number(rest);
    if (!samples || next_word(rest) != "samples") return;
    std::string_view unit = next_word(rest);
    next_word(rest);
    next_word(rest);
    uint64_t sum = next_number(rest).value_or(0);
    if (key == "read_bytes" || key == "write_bytes") {
      StorageOpStat& op = stat.ops[static_cast<size_t>(key[0] == 'r' ? StorageOp::kRead : StorageOp::kWrite)];
      op.operations += *samples;
      op.bytes += sum;
    } else if (key == "read" || key == "write") {
      StorageOpStat& op = stat.ops[static_cast<size_t>(key[0] == 'r' ? StorageOp::kRead : StorageOp::kWrite)];
      if (unit.starts_with("[usec")) op.execute_s += static_cast<double>(sum) / 1e6;
    } else if (key != "snapshot_time" && !key.starts_with("osc_")) {
      StorageOpStat& op = stat.ops[static_cast<size_t>(StorageOp::kMetadata)];
      op.operations += *samples;
      if (unit.starts_with("[usec")) op.execute_s += static_cast<double>(sum) / 1e6;
    }
  });
}

}  // namespace lockstep::host
