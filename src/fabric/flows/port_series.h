// Ports of switches as series of the metrics store, so that PromQL, dashboards, alert rules and our own pages ask for
// them like any other (docs/guide/fabric.md has the table).
//
// Counters that a switch reports are written when they come, at the time of the server. Most of them have 32 bits on the
// wire and go around within minutes at 400 Gbit/s: they are added up here to numbers that only rise, until the switch or
// this server starts again. What is estimated from flows (ECN marks, bytes of flows, queue depth) is written every
// kEstimateEveryNs for ports that flows were seen at in the last kQuietNs.
// Where a switch reports packets as they come in and as they go out, each is counted at its own port; where at one of
// the two alone, or it does not say, at both ports.
// Limits: kPortsMax ports and SwitchDirectory::kPortsPerSwitchMax of one switch, kPendingMax samples that wait to be
//         written; beyond, they are dropped and counted. A port that was silent for kForgetNs is forgotten.
// Thread rule: Thread-safe (one lock; a push is made without it).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/counters.h"
#include "base/mutex.h"
#include "fabric/flows/switch_directory.h"
#include "store/metric_writer.h"

namespace lockstep {

struct PortMetricRow {
  const char* name;
  const char* direction;  // label: "in" is what comes into the switch, "out" what leaves it; "": none
  const char* type;
  const char*
      meaning;  // what a hop of a path shows it as: "load", "errors", "drops", "ecn", "queue", "up", "speed", "other"
  const char* help;
};
// The numbers of a port, in the order of port_metric_rows().
enum class PortMetric : uint8_t {
  kInBytes,
  kOutBytes,
  kInPackets,
  kOutPackets,
  kInErrors,
  kOutErrors,
  kInDiscards,
  kOutDiscards,
  kFcsErrors,
  kSymbolErrors,
  kUp,
  kSpeed,
  kInFlowBytes,
  kOutFlowBytes,
  kInMarked,
  kOutMarked,
  kOutCnp,
  kDropped,
  kQueueBytes,
  kTransitDelay,
  kInBufferPeak,
  kOutBufferPeak,
};
inline constexpr size_t kPortMetrics = 22;
std::span<const PortMetricRow, kPortMetrics> port_metric_rows();

class PortSeries {
 public:
  static constexpr int64_t kEstimateEveryNs = 10'000'000'000;
  static constexpr int64_t kQuietNs = 300'000'000'000;
  static constexpr int64_t kForgetNs = SwitchDirectory::kForgetNs;
  static constexpr size_t kPortsMax = 500'000;
  static constexpr size_t kPendingMax = 500'000;

  using Push = std::function<Result<PushOutcome>(std::string_view stream, std::span<const PushedSeries> series,
                                                 const std::function<Result<Labels>(size_t k)>& canonical)>;
  PortSeries(Push push, const SwitchDirectory& directory, Counters& counters);

  void add(SwitchNumber number, std::span<const PortCounters> ports, int64_t unix_ns);
  void add(SwitchNumber number, std::span<const FlowSample> samples, int64_t unix_ns);
  // Its counters begin at 0 again.
  void restarted(SwitchNumber number);

  // Writes what is due. Called a few times a second by one thread: a push may wait for a disk.
  void write(int64_t now_unix_ns);
  // Now and then.
  void forget_silent(int64_t now_unix_ns);
  size_t ports() const;

 private:
  // A counter of the switch, made one that only rises.
  struct Rising {
    uint32_t raw = 0;
    bool is_known = false;
    double total = 0;
    double next(uint32_t value, bool is_restarted);
  };
  struct Port {
    std::array<Rising, 3> in_packets, out_packets;
    Rising in_errors, out_errors, in_discards, out_discards, fcs_errors, symbol_errors;
    uint64_t start = 0;  // which one of its switch these count from
    // From flows.
    double in_flow_bytes = 0, out_flow_bytes = 0, in_marked = 0, out_marked = 0, cnp = 0, dropped = 0;
    int64_t queue_bytes = -1, transit_delay_ns = -1;  // most since the last sample; -1: not reported
    int64_t seen_unix_ns = 0;                         // last flow
    int64_t heard_unix_ns = 0;                        // that, or counters
  };
  struct Switch {
    size_t ports = 0;
    uint64_t starts = 0;
    bool reports_egress = false;
  };
  struct Sample {
    uint64_t port = 0;
    PortMetric metric = PortMetric::kInBytes;
    int64_t time_ms = 0;
    double value = 0;
  };
  static uint64_t key_of(SwitchNumber number, uint32_t port) { return static_cast<uint64_t>(number) << 32 | port; }
  Port* port_of(SwitchNumber number, uint32_t port, int64_t unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void add(SwitchNumber number, const PortCounters& port, int64_t unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void add(SwitchNumber number, const FlowSample& sample, int64_t unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void queue(uint64_t port, PortMetric metric, int64_t unix_ns, double value) LOCKSTEP_REQUIRES(mutex_);
  void estimate(int64_t now_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  void push_switch(SwitchNumber number, std::span<const Sample> samples);

  const Push push_;
  const SwitchDirectory& directory_;
  std::atomic<int64_t>& dropped_;
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, Port> ports_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<SwitchNumber, Switch> switches_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Sample> pending_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t estimated_unix_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
