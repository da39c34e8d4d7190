// The events of one rank, in the order analyses go through them: what ran on the GPU, on which stream, who launched it,
// for which operator, in which step.
//
// Thread rule: Immutable once made; the events must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profile/rank/kernel_traits.h"
#include "profile/read/trace_events.h"

namespace lockstep::profile {

inline constexpr uint32_t kNoEvent = UINT32_MAX;

// Something that occupied the GPU: a kernel, a copy, a memset. Of a trace without a GPU: outermost operators, and gloo's
// collectives.
struct Activity {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t event = 0;
  uint32_t launch = kNoEvent;  // runtime or driver call
  uint32_t op = kNoEvent;      // operator
  KernelTraits traits;
  bool from_graph = false;  // of a launch that started more than one

  int64_t duration_ns() const { return end_ns - start_ns; }
};

// A queue of a device, in order of start. Of a trace without a GPU: a thread.
struct StreamIndex {
  int32_t device = 0;
  int64_t stream = 0;
  std::vector<uint32_t> activities;  // numbers in RankIndex::activities
};

struct ProfileStep {
  int64_t number = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};
// Where the steps come from.
enum class StepMarks : uint8_t { kNone, kProfiler, kOptimizer };
const char* to_text(StepMarks marks);

struct IndexOptions {
  // Only what was launched in the trace before its last marked step ended, as HTA does where there are several.
  bool within_steps = false;
};

struct RankIndex {
  const TraceEvents* events = nullptr;
  std::vector<Activity> activities;  // by start
  std::vector<StreamIndex> streams;  // by device and stream
  std::vector<ProfileStep> steps;    // by start
  StepMarks step_marks = StepMarks::kNone;
  bool has_gpu = false;
  int64_t first_ns = 0;  // of everything in the trace
  int64_t last_ns = 0;

  size_t launches = 0;          // runtime and driver calls that started something
  size_t graph_launches = 0;    // cudaGraphLaunch
  size_t graph_activities = 0;  // started by those
  size_t without_launch = 0;    // GPU activities whose call is not in the trace
  size_t outside_steps = 0;     // left out by within_steps

  const std::string& name_of(const Activity& activity) const { return events->name_of(activity.event); }
  // As the trace has it; of several launched by one call each has its own.
  double steps_or_one() const { return steps.empty() ? 1.0 : static_cast<double>(steps.size()); }
};

RankIndex index_rank(const TraceEvents& events, const IndexOptions& options = {});

}  // namespace lockstep::profile
