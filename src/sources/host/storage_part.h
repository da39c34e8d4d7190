// Disks, NFS mounts and Lustre file systems. Only counters of this kernel are read: no file server is asked, so a
// server that hangs does not hang us.
//
// A mount is named by what it mounts ("server:/export"), not by where: mount points of pods come and go.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sources/host/host_files.h"
#include "sources/host/storage_text.h"

namespace lockstep::host {

class StoragePart {
 public:
  explicit StoragePart(HostFiles& files);
  void read_slow(NodeReadings& out);

 private:
  struct Disk {
    LabelSet device, read, write;
    bool known = false;
    uint64_t reads = 0, read_ms = 0, writes = 0, write_ms = 0;  // as of the last reading
  };
  struct Mount {
    LabelSet mount;
    LabelSet ops[kStorageOps];
    bool known = false;
    StorageOpStat last[kStorageOps];
  };
  void read_disks(NodeReadings& out);
  void read_nfs(NodeReadings& out);
  void read_lustre(NodeReadings& out);
  // has_rtt: the client tells what the server took apart from what it took itself.
  void publish(const StorageStat& stat, bool has_rtt, NodeReadings& out);

  HostFiles& files_;
  KeptFile diskstats_{"/proc/diskstats", {}};
  std::string mountstats_;
  std::map<std::string, Disk, std::less<>> disks_;
  std::map<std::string, Mount> mounts_;
};

}  // namespace lockstep::host
