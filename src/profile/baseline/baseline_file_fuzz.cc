// Any bytes as a baseline, and a sound one with bytes changed: reading ends without a crash; a failure is one line; what
// was read is within the limits, is written and read again as the same text, and can be compared.
#include <cmath>
#include <cstdlib>

#include "profile/baseline/baseline_file.h"
#include "profile/ranks/compare.h"
#include "testing/damaged_file.h"

namespace {

using namespace lockstep;
using namespace lockstep::profile;

const std::string& sound() {
  static const std::string text = [] {
    Baseline baseline{.written_by = "lockstep", .saved_unix_ms = 1};
    RunSummary& run = baseline.run;
    run.ranks = 2;
    run.world_size = 2;
    run.devices = {"NVIDIA H200"};
    run.versions = {{"CUDA", "12.8"}};
    run.steps = 4;
    run.step_ns = 1e6;
    run.kernels = {{.name = "gemm", .op = "aten::mm", .ns = 5e5, .count = 2, .shapes = {{"[[8, 8]]", 5e5, 2}}},
                   {.name = "nccl", .kernel_class = KernelClass::kCommunication, .ns = 1e5, .count = 1}};
    run.gaps = {{.what = "host code", .ns = 3e5, .count = 1}};
    run.operators = {{.name = "aten::mm", .calls = 2, .flops = 1e9, .bytes = 1e6}};
    return *baseline_text(baseline);
  }();
  return text;
}

void check_rows(const RunSummary& run) {
  if (run.kernels.size() > kKernelsMax || run.gaps.size() > kGapsMax || run.operators.size() > kOperatorsMax)
    std::abort();
  for (const KernelTime& kernel : run.kernels) {
    if (kernel.shapes.size() > kShapesMax || !std::isfinite(kernel.ns) || kernel.ns < 0) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = testing::damaged_file(data, size, sound());
  const Result<Baseline> baseline = parse_baseline_untrusted(text);
  if (!baseline.ok()) {
    if (baseline.error().empty() || baseline.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  check_rows(baseline->run);
  const Result<std::string> written = baseline_text(*baseline);
  if (!written.ok()) return 0;  // larger than it was: escapes
  const Result<Baseline> again = parse_baseline_untrusted(*written);
  if (!again.ok() || *baseline_text(*again) != *written) std::abort();
  const ProfileComparison comparison = compare(parse_baseline_untrusted(sound())->run, baseline->run);
  if (comparison.sentence.empty() || comparison_json(comparison).empty()) std::abort();
  return 0;
}
