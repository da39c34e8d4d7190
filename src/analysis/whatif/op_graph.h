// What a job did, as a graph that can be played again with other durations: operations, who waits for whom, and which
// operations meet (a collective, or a send and its receive).
//
// An operation starts when everything before it has ended. One that meets others ends its own `length_s` after the last
// of them has started; any other ends `length_s` after its own start. So `length_s` of communication is its transfer
// alone, without the waiting that somebody else caused; this is what makes the graph answer "what if".
//
// Time that nobody recorded (the host between two operations) is a gap before the operation. Replays leave gaps out,
// and how far that takes them from the recorded step is their error.
//
// Where graphs come from: pipeline_trace.h (published traces), rank_trace.h (steps of our own). Operations are numbered
// by the builder in the order in which they were added.
// Thread rule: OpGraph is Immutable once made; GraphBuilder is Confined.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace lockstep {

enum class OpRole : uint8_t { kOther, kForward, kBackward };

struct OpType {
  std::string name;
  std::string reported_as;  // types of one name are one line of the report: sends with their receives
  bool communication = false;
  OpRole role = OpRole::kOther;
};

struct Worker {
  Rank rank = kNoRank;  // in the job
  int32_t dp = -1;      // -1: not known, as in traces that say nothing about the parallelism
  int32_t stage = -1;
};

struct OpGraph {
  std::vector<OpType> types;
  std::vector<Worker> workers;
  std::vector<StepNumber> steps;  // their numbers
  std::vector<double> step_s;     // as recorded: from the first start to the last end
  int64_t gpus = 0;               // of the job; at least one per worker

  // Operations, one entry each.
  std::vector<uint16_t> type;
  std::vector<uint32_t> equals;  // operations of one number should take the same time
  std::vector<int32_t> worker;
  std::vector<int32_t> step;     // index into steps
  std::vector<int32_t> batch;    // micro-batch that it works on, within its step and worker; -1: none
  std::vector<int32_t> meeting;  // -1: none
  std::vector<double> length_s;
  std::vector<double> gap_s;

  // Of operation i: before[before_begin[i]] up to before[before_begin[i + 1]]. Members of meetings alike.
  std::vector<uint32_t> before_begin, before;
  std::vector<uint32_t> member_begin, member;
  std::vector<uint32_t> order;        // every operation behind all that it waits for
  std::vector<uint8_t> ends_meeting;  // by place in `order`: 1 where the last of a meeting comes
  uint32_t equals_count = 0;

  size_t size() const { return type.size(); }
};

struct RecordedOp {
  uint16_t type = 0;
  uint32_t equals = 0;
  int32_t worker = 0;
  int32_t step = 0;
  int32_t batch = -1;
  double start_s = 0;
  double end_s = 0;
};

class GraphBuilder {
 public:
  // What clocks and records may be off: a transfer or a gap shorter than minus this is taken for zero. Smaller ones
  // stay as they are, negative too, since cutting them on one side only would lengthen every replay.
  static constexpr double kSlackS = 0.01;
  static constexpr size_t kOpsMax = 64'000'000;

  std::vector<OpType> types;
  std::vector<Worker> workers;
  std::vector<StepNumber> steps;
  int64_t gpus = 0;

  void reserve(size_t ops, size_t edges);
  uint32_t add(const RecordedOp& op);
  void add_edge(uint32_t first, uint32_t then);
  void add_meeting(std::span<const uint32_t> members);  // an operation belongs to one at most

  // Lengths, gaps and the order. An error names an operation that waits for itself.
  Result<OpGraph> finish() &&;

 private:
  std::string name_of(uint32_t op) const;
  // The parts of finish(), in this order.
  std::vector<double> copy_ops(OpGraph& graph) const;  // gives when each step starts
  Result<void> time_meetings(OpGraph& graph);
  void sort_edges(OpGraph& graph);
  void measure_gaps(OpGraph& graph, const std::vector<double>& first_s) const;
  Result<void> put_in_order(OpGraph& graph) const;

  std::vector<RecordedOp> ops_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;
  std::vector<uint32_t> member_begin_{0}, member_;
};

}  // namespace lockstep
