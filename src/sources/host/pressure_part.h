// Pressure stall information of the host: every tick, because a stall that hurts a step is shorter than ten seconds.
//
// Thread rule: Confined.
#pragma once

#include <string>
#include <vector>

#include "sources/host/host_files.h"

namespace lockstep::host {

class PressurePart {
 public:
  explicit PressurePart(HostFiles& files);
  void read(bool slow, NodeReadings& out);
  // Whether the kernel has it at all.
  bool works() const { return works_; }

 private:
  struct Resource {
    KeptFile file;
    bool some_only = false;  // "full" of the host's cpu is always zero
    LabelSet some, full;
    bool absent = false;  // looked for again at slow ticks
  };
  HostFiles& files_;
  std::vector<Resource> resources_;
  bool works_ = false;
};

}  // namespace lockstep::host
