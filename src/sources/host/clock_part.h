// How far the host's clock can be trusted, and whether it jumped: the error bar of everything that is compared between
// hosts.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <optional>

#include "sources/host/host_files.h"
#include "sources/host/proc_text.h"

namespace lockstep::host {

// Half a second in one tick is no slewing: that takes a quarter of an hour at the kernel's most.
inline constexpr int64_t kClockStepNs = 500'000'000;

class ClockPart {
 public:
  explicit ClockPart(HostFiles& files);
  // Compares the two clocks of the tick; a step becomes an event "clock.step".
  void read_fast(const Tick& tick, NodeReadings& out);
  void read_slow(NodeReadings& out);
  std::optional<ClockState> state();

 private:
  HostFiles& files_;
  bool known_ = false;
  int64_t difference_ns_ = 0;  // realtime minus monotonic
  int64_t steps_ = 0;
  LabelSet none_, estimated_, most_;
};

}  // namespace lockstep::host
