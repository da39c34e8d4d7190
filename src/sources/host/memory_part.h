// Memory of the host and of its NUMA nodes, reclaim and swapping.
//
// Thread rule: Confined.
#pragma once

#include <map>
#include <string>

#include "sources/host/host_files.h"

namespace lockstep::host {

class MemoryPart {
 public:
  explicit MemoryPart(HostFiles& files);
  void read_slow(NodeReadings& out);

 private:
  struct Node {
    std::string folder;
    LabelSet free, miss, foreign, other;
  };
  void read_meminfo(NodeReadings& out);
  void read_vmstat(NodeReadings& out);
  void read_nodes(NodeReadings& out);

  HostFiles& files_;
  KeptFile meminfo_{"/proc/meminfo", {}};
  KeptFile vmstat_{"/proc/vmstat", {}};
  std::map<std::string, Node> nodes_;
  std::map<std::string, LabelSet, std::less<>> by_value_;  // label sets, by their one value
  LabelSet none_;
  LabelSet one(const char* name, const char* value);
};

}  // namespace lockstep::host
