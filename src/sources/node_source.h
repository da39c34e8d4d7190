// What every source of node telemetry promises: asked once a tick, it adds what it has read.
//
// A source never harms its host: it opens files read-only, keeps what it may keep open, bounds what it reads, and
// never touches a network mount or a driver that may hang (those are behind a process of their own:
// agent/node/gpu_process.h). One bad file, port or process costs that reading alone, is counted in `failures`, and is
// said once.
//
// Files are found under a root directory ("" is the machine itself), so that a recorded tree drives the same code.
// Thread rule: Confined. All sources are read by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/metric_descriptor.h"
#include "model/node_event.h"
#include "model/owner_table.h"

namespace lockstep {

struct Tick {
  int64_t monotonic_ns = 0;
  int64_t unix_ns = 0;
  bool slow = false;  // true on every tenth second or so: what changes rarely, or costs more, is read now
  const OwnerTable* owners = nullptr;                 // who owns what, as of the tick before; never null in the agent
  const std::vector<GpuEvent>* gpu_events = nullptr;  // what the driver told since the last tick; may be null
};

// Shared, because the readings of a port or a GPU have the same labels tick after tick: make them once.
using LabelSet = std::shared_ptr<const Labels>;

struct Reading {
  const MetricDescriptor* metric = nullptr;
  LabelSet labels;  // never null; may be empty
  double value = 0;
};

struct NodeReadings {
  std::vector<Reading> readings;
  std::vector<NodeEvent> events;
  // One line each, ready for the log; a source says a thing once, not every tick.
  std::vector<std::string> notes;
  int64_t failures = 0;  // files or answers that could not be read this tick

  void add(const MetricDescriptor& metric, LabelSet labels, double value) {
    readings.push_back({&metric, std::move(labels), value});
  }
};

// For `lockstep doctor` and the agent's start: what of a source works here, and how to switch on what does not.
struct SourceCheck {
  std::string what;  // "kernel log"
  bool works = false;
  std::string found;  // "/dev/kmsg: permission denied"
  std::string todo;   // "run the agent with CAP_SYSLOG, or sysctl kernel.dmesg_restrict=0"; empty when it works
};

class NodeSource {
 public:
  virtual ~NodeSource() = default;
  virtual const char* name() const = 0;  // "host"
  virtual void read(const Tick& tick, NodeReadings& out) = 0;
  virtual std::vector<SourceCheck> check() = 0;
};

}  // namespace lockstep
