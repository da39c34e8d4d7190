// What the switches of a simulated fleet report of their ports: the series that sFlow gives (docs/guide/fabric.md), under
// the same names, read every kReadEveryNs. Loads follow what the jobs send; some marks, pauses and errors come without
// any fault. A fault shows on the ports that it is about and on nobody else's; a switch that is down reports nothing.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/telemetry.h"
#include "sim/node/noise.h"
#include "sim/scenario/scenario.h"

namespace lockstep::sim {

// One adapter of the fleet.
struct AdapterPlace {
  int32_t host = 0;
  int32_t gpu = 0;
};

// A fault as it acts on the switches in this moment. adapter: of a fault of one rank, where it runs; host -1: none.
struct SwitchFault {
  const ScenarioFault* fault = nullptr;
  double amount = 0;
  AdapterPlace adapter{-1, -1};
};

class SwitchTelemetry {
 public:
  static constexpr int64_t kReadEveryNs = 10'000'000'000;

  // seed: that of the nodes.
  SwitchTelemetry(const Topology& topology, int32_t hosts, uint64_t seed);

  // So many bytes went from one adapter to another since the last reading; spine: between two leaves.
  void carry(AdapterPlace from, AdapterPlace to, int32_t spine, double bytes);
  // One reading of all of them: a metrics batch, ready to send.
  Batch read(int64_t at_unix_ns, double seconds, std::span<const SwitchFault> acting);

 private:
  struct Port {
    double bytes_in = 0, bytes_out = 0;      // counters
    double carried_in = 0, carried_out = 0;  // since the last reading
    double fcs = 0, symbols = 0, discards = 0, marked = 0, pauses_in = 0, pauses_out = 0;
    double queue_bytes = 0;
    double speed = 0;  // bytes a second, as it trained
    bool up = true;
    double stray = 0;  // errors a second of a healthy port: most have none
  };
  // What faults do to a port in this reading.
  struct Disturbed {
    double damaged_per_s = 0, marked_share = 0, discards_per_s = 0, paused_per_s = 0, filled = 0;
    double rate = 1;
    bool down = false;
  };
  struct Switch {
    std::string name;
    std::vector<std::string> port_names;
    std::vector<Port> ports;
    std::vector<Disturbed> disturbed;  // by port, of this reading
    bool down = false;
  };

  Switch& leaf(int32_t leaf) { return switches_[static_cast<size_t>(leaf)]; }
  Switch& spine(int32_t spine) { return switches_[static_cast<size_t>(leaves_ + spine)]; }
  size_t uplink(int32_t spine) const { return static_cast<size_t>(topology_.leaf_ports() + spine); }
  void disturb(const SwitchFault& fault);
  void each_link(const Target& target, void (*change)(Disturbed&, double), double amount);
  void advance(Port& port, const Disturbed& disturbed, double seconds);
  static void put(const Switch& of, int64_t at_unix_ns, ResourceGroup& out);

  Topology topology_;
  int32_t leaves_ = 0;
  uint64_t seed_ = 0;
  Noise noise_;
  std::vector<Switch> switches_;  // leaves, then spines
};

}  // namespace lockstep::sim
