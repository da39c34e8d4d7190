// /proc/diskstats, /proc/PID/mountstats and Lustre's stats as numbers. The same promises as proc_text.h.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::host {

struct DiskStat {
  std::string_view name;
  uint64_t reads = 0, read_sectors = 0, read_ms = 0;
  uint64_t writes = 0, write_sectors = 0, write_ms = 0;
  uint64_t in_flight = 0, io_ms = 0;
};
inline constexpr uint64_t kSectorBytes = 512;  // in diskstats, whatever the disk's own are
// All lines, partitions too; at most `count_max`.
std::vector<DiskStat> parse_diskstats(std::string_view text, size_t count_max);
// A whole disk of a kind that training reads from or writes to: nvme0n1, sda, vda, xvda, md0, dm-0; never a partition.
bool is_whole_disk(std::string_view name);

enum class StorageOp : uint8_t { kRead, kWrite, kMetadata };
inline constexpr size_t kStorageOps = 3;
inline constexpr const char* kStorageOpNames[kStorageOps] = {"read", "write", "metadata"};

struct StorageOpStat {
  uint64_t operations = 0;
  uint64_t bytes = 0;
  double queue_s = 0;
  double rtt_s = 0;
  double execute_s = 0;
};
struct StorageStat {
  std::string device;  // "server:/export"
  StorageOpStat ops[kStorageOps];
  uint64_t retransmissions = 0;
  uint64_t timeouts = 0;
};
// NFS mounts only, each export once (containers mount the same again and again); at most `count_max`.
std::vector<StorageStat> parse_mountstats(std::string_view text, size_t count_max);
// One file system's llite stats into `stat`.
void parse_llite_stats(std::string_view text, StorageStat& stat);

}  // namespace lockstep::host
