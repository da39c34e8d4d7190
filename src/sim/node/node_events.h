// Node events of a simulated node as its agent would tell them. What comes from the kernel's log is made as a line and
// read by the agent's own parser, so that meaning, severity and advice are its words.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/node_event.h"
#include "model/step.h"
#include "sources/kernel/kernel_lines.h"

namespace lockstep::sim {

// A GPU as events name it.
struct NamedGpu {
  std::string uuid;
  std::string pci;
  Identity held_by;  // empty job: nobody
};

// Of the rank's process, on every call the same.
int32_t pid_of(const Identity& identity);

// The line is read as the agent does; one that it does not know is our mistake and gives an event without a name.
NodeEvent kernel_event(std::string_view line, int64_t at_unix_ns);
NodeEvent xid_event(const NamedGpu& gpu, int32_t code, int64_t at_unix_ns);
NodeEvent gpu_lost_event(const NamedGpu& gpu, int64_t at_unix_ns);
NodeEvent recovery_event(const NamedGpu& gpu, int32_t action, int64_t at_unix_ns);
NodeEvent foreign_process_event(const NamedGpu& gpu, int32_t pid, int64_t at_unix_ns);
NodeEvent oom_event(const NamedGpu& gpu, int64_t at_unix_ns);
// Of an interface; where: "leaf-3 port Ethernet1/7".
NodeEvent link_event(const std::string& interface, bool up, const std::string& where, const NamedGpu& gpu,
                     int64_t at_unix_ns);
NodeEvent slower_link_event(const std::string& interface, double before, double now, const std::string& where,
                            const NamedGpu& gpu, int64_t at_unix_ns);
NodeEvent fewer_lanes_event(const std::string& pci, int32_t before, int32_t now, const NamedGpu* gpu,
                            int64_t at_unix_ns);

// As an agent sends it: under the host's resource, with the GPU and the job that were hit.
ResourceGroup to_group(const NodeEvent& event, const std::string& host);

}  // namespace lockstep::sim
