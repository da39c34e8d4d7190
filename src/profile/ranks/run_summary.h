// What the kernel traces of a run say, as far as two runs are compared by it: small enough to be kept (baseline/).
//
// Everything is per step. Kernels, their shapes and the parts of a step are the median over ranks, those without the
// kernel included; gaps are the mean, because a gap of one rank holds all others up.
// Limits:      kKernelsMax kernels, kShapesMax shapes of each, kGapsMax gaps: those that take longest. What is left out
//              is counted (kernels) or becomes one row kOtherShapes (shapes).
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "profile/analysis.h"

namespace lockstep::profile {

struct ShapeTime {
  std::string
      shape;  // what the operator was given: "[[4096, 1024], [1024, 4096]]"; of a collective "1048576 x BFloat16"
  double ns = 0;
  double count = 0;
};

struct KernelTime {
  std::string name;
  std::string op;  // operator that it mostly runs for; empty: not known
  KernelClass kernel_class = KernelClass::kCompute;
  double ns = 0;
  double count = 0;
  std::vector<ShapeTime> shapes;  // longest first; empty: none were recorded
};

// Why the GPU had nothing to do.
enum class GapCause : uint8_t { kBetweenKernels, kDataLoading, kHost };
inline constexpr size_t kGapCauses = 3;
const char* to_text(GapCause cause);  // "between_kernels", "data_loading", "host"

struct GapTime {
  std::string what;  // that the host did
  GapCause cause = GapCause::kHost;
  double ns = 0;
  double count = 0;
};

// The work of an operator by the shapes that it was given: what tells another batch or model from a slower kernel.
struct OperatorWork {
  std::string name;
  double calls = 0;
  double flops = 0;  // 0: not known
  double bytes = 0;
};

struct RunSummary {
  uint64_t ranks = 0;      // with a trace
  int64_t world_size = 0;  // 0: not said
  bool has_gpu = false;
  bool has_shapes = false;
  std::vector<std::string> devices;             // models, sorted
  std::map<std::string, std::string> versions;  // of what it ran with: "CUDA" is "12.8"
  StepMarks step_marks = StepMarks::kNone;
  double steps = 0;  // of a rank, marked; 0: whole traces

  double step_ns = 0;
  double noise_ns = 0;  // of step_ns, from how its steps differ from each other
  double busy_ns = 0;
  double idle_ns = 0;
  double exposed_ns = 0;  // communication that nothing hides
  double calls = 0;       // of kernels and copies

  std::vector<KernelTime> kernels;  // longest first
  uint64_t kernels_left_out = 0;
  std::vector<GapTime> gaps;  // longest first
  std::vector<OperatorWork> operators;
};

inline constexpr size_t kKernelsMax = 2000;
inline constexpr size_t kShapesMax = 50;
inline constexpr size_t kGapsMax = 200;
inline constexpr size_t kOperatorsMax = 1000;
inline constexpr double kWorkMax = 1e30;  // FLOPs and bytes of an operator in a step
inline constexpr size_t kShapeBytesMax = 300;
inline constexpr size_t kNameBytesMax = 4000;  // of a kernel, an operator or a gap
inline constexpr std::string_view kOtherShapes = "other shapes";

RunSummary summarize(const ProfileAnalysis& analysis);

}  // namespace lockstep::profile
