// Turns one process's flight-recorder records into what the fleet needs to know of it: a StepSummary per step, the
// collective metrics, and on request where the rank stands (RankStatus).
//
// The problem: records of one step come from several threads (lanes), children may be read before their parents, GPU
// times are on the GPU's clock, and the GPU may still be working on a step that the host has already ended.
// The method: operations are put together by op_id (orphans wait for the next drain), GPU times are mapped to host time
// by the smallest (callback time - GPU time) seen lately, and a step is closed once everything enqueued in it has
// completed, or two steps later, or after kCloseAfterNs, whichever comes first.
//
// Limits: kOpsMax operations and kStepsOpenMax open steps are remembered; older ones are given up and counted.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "model/events.h"
#include "model/step.h"
#include "recorder/records.h"

namespace lockstep {

// Totals of one function on communicators of one size, since the process started.
struct CollectiveTotals {
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t gpu_ns = 0;
  double bus_bytes = 0;  // bytes x NCCL's bus factor: bus bandwidth = bus_bytes / gpu time
};

class RankAssembler {
 public:
  static constexpr size_t kOpsMax = 65'536;
  static constexpr size_t kStepsOpenMax = 8;
  static constexpr int64_t kCloseAfterNs = 5'000'000'000;

  // monotonic + shift = Unix time, from the recorder's anchors.
  explicit RankAssembler(int64_t unix_minus_monotonic_ns) : unix_shift_ns_(unix_minus_monotonic_ns) {}

  // One drain: begin, any number of records, end. `now_ns` is the agent's monotonic clock.
  void add(const Record& record) { drained_.push_back(record); }
  void end_drain(int64_t now_ns, uint64_t records_lost);

  // Steps closed since the last call, in order. `flush` closes every ended step (the process is over).
  std::vector<StepSummary> take_steps(int64_t now_ns, bool flush);

  // The table of operations in flight, turned into the fleet's words.
  RankStatus status(const std::vector<InFlightComm>& in_flight, int64_t now_unix_ns, int64_t quiet_ns) const;

  const std::map<std::pair<Function, int32_t>, CollectiveTotals>& totals() const { return totals_; }
  bool shut_down() const { return shut_down_; }
  bool any_marks() const { return any_marks_; }
  uint64_t orphans() const { return orphans_; }
  // Newest communicator facts from the in-flight table: sizes and ranks by index.
  void set_comms(const std::vector<InFlightComm>& comms);

 private:
  struct Op {
    uint16_t comm_index = kNoComm;
    bool p2p = false;
    uint8_t channels = 0;
    uint8_t channels_stopped = 0;
    Function function = Function::kUnknown;
    int64_t bytes = 0;
    int64_t enqueued_ns = 0;
    int64_t gpu_start_ns = 0;  // GPU clock; 0: none yet
    int64_t gpu_stop_ns = 0;
    int64_t last_callback_ns = 0;
    bool complete = false;
    bool counted = false;
  };
  struct FlowKey {
    uint16_t comm_index;
    int32_t peer;
    bool send;
    auto operator<=>(const FlowKey&) const = default;
  };
  struct FlowEvent {
    int64_t stop_ns;
    FlowKey key;
    uint32_t bytes;
    uint32_t wait_gpu_ns;
    uint32_t wait_peer_ns;
    uint32_t wire_ns;
  };
  struct OpenStep {
    int64_t step = 0;
    int64_t start_ns = 0;
    int64_t end_ns = 0;  // 0: still running
    int64_t ended_seen_ns = 0;
    uint64_t records_lost = 0;
    std::array<int64_t, kPhaseCount> phase_ns{};
  };

  void apply(const Record& record, int64_t now_ns);
  bool apply_child(const Record& record);  // false: its operation is not known (yet)
  void apply_mark(const MarkRecord& mark, RecordType type, int64_t now_ns);
  void count(const Op& op);
  bool ready(const OpenStep& step, int64_t now_ns, bool flush) const;
  StepSummary close(const OpenStep& step);
  void forget_before(int64_t time_ns);
  int64_t gpu_to_host_ns() const;
  void note_gpu_offset(int64_t host_ns, int64_t gpu_ns);

  int64_t unix_shift_ns_;
  std::vector<Record> drained_;
  std::vector<std::pair<Record, int>> waiting_;  // orphans and how many drains they have waited
  std::map<uint64_t, Op> ops_;                   // by op_id, which grows with time
  std::deque<FlowEvent> flows_;                  // by stop time
  std::deque<int64_t> activity_;                 // callback times, sorted after each drain
  std::deque<OpenStep> steps_;
  std::map<uint16_t, InFlightComm> comms_;
  std::deque<int64_t> gpu_offsets_;  // monotone queue: the front is the smallest of the window
  std::deque<uint64_t> gpu_offset_ids_;
  uint64_t gpu_offset_next_ = 0;
  std::map<std::pair<Function, int32_t>, CollectiveTotals> totals_;
  Phase phase_ = Phase::kOther;
  int64_t phase_since_ns_ = 0;
  int64_t last_step_ = -1;
  uint64_t orphans_ = 0;
  bool shut_down_ = false;
  bool any_marks_ = false;
};

// NCCL's bus bandwidth factor for a payload of this rank on a communicator of `size` ranks (nccl-tests' definition).
double bus_factor(Function function, int32_t size);

}  // namespace lockstep
