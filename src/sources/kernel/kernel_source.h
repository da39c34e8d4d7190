// The kernel's log and the driver's events of a node, as events and counters. See kernel_lines.h for what is understood
// and event_fusion.h for what is told when.
//
// It also turns every GpuEvent of the tick into an event (XIDs, GPUs lost and back, recovery actions): nobody else
// need.
// Thread rule: Confined.
#pragma once

#include <memory>
#include <string>

#include "sources/node_source.h"

namespace lockstep {

struct KernelSourceOptions {
  std::string root;        // "" is the machine
  std::string state_file;  // where the place in the log is kept over a restart; empty: nowhere, old events come again
  std::string log;         // empty: /dev/kmsg below the root
};

// Opens the log at once: privileges may be dropped behind it. Where it cannot be read, the driver's events still work,
// and check() says what to do.
std::unique_ptr<NodeSource> open_kernel_source(const KernelSourceOptions& options);

}  // namespace lockstep
