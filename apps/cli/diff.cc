// `lockstep diff RUN RUN --gate 3%`: two runs' kernel traces side by side, for a person and for CI.
#include <cmath>
#include <cstdio>

#include "apps/cli/baselines.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/trace_comparison.h"
#include "apps/cli/trace_files.h"
#include "apps/cli/wrapped.h"
#include "base/flags.h"
#include "base/text.h"
#include "profile/ranks/compare.h"

namespace lockstep::cli {
namespace {

using namespace profile;

constexpr size_t kShapesShown = 3;
constexpr double kShapeLeast = 0.1;  // of its kernel's change: less is not shown

std::string line_cut(std::string text, size_t columns) {
  text = as_one_line(text);
  return text.size() <= columns ? text : text.substr(0, columns - 3) + "...";
}

void print_change(const Difference& one, int width) {
  std::printf("%*s %10s %c%9s", width, human_duration(one.before_ns).c_str(), human_duration(one.after_ns).c_str(),
              one.extra_ns() < 0 ? '-' : '+', human_duration(std::fabs(one.extra_ns())).c_str());
}

void print_part(const char* name, const Difference& one) {
  std::printf("%-28s ", name);
  print_change(one, 10);
  std::printf("\n");
}

void print_parts(const ProfileComparison& comparison) {
  std::printf("\n%-28s %10s %10s %10s\n", "A STEP", "BEFORE", "AFTER", "CHANGE");
  print_part("whole", {comparison.before_ns, comparison.after_ns});
  print_part("something runs", {comparison.busy_before_ns, comparison.busy_after_ns});
  print_part("nothing runs", {comparison.idle_before_ns, comparison.idle_after_ns});
  constexpr const char* kCauses[kGapCauses] = {"  between launched kernels", "  the host loads data",
                                               "  the host does other work"};
  for (size_t i = 0; i < kGapCauses; ++i) {
    const Difference& one = comparison.gap_causes[i];
    if (one.before_ns > 0 || one.after_ns > 0) print_part(kCauses[i], one);
  }
  print_part("communication, not hidden", {comparison.exposed_before_ns, comparison.exposed_after_ns});
}

// Shapes that a kernel takes longer or shorter on; of one that is always called with the same there is nothing to tell.
void print_shapes(const KernelDelta& kernel) {
  if (kernel.shapes.size() < 2) return;
  for (size_t i = 0; i < std::min(kShapesShown, kernel.shapes.size()); ++i) {
    const ShapeDifference& one = kernel.shapes[i];
    if (std::fabs(one.extra_ns()) < kShapeLeast * std::fabs(kernel.extra_ns())) break;
    print_change(one, 10);
    std::printf(" %6.0f>%-6.0f    %s\n", one.before_count, one.after_count,
                line_cut(one.shape.empty() ? "shape not recorded" : one.shape, 28).c_str());
  }
}

void print_kernels(const ProfileComparison& comparison, size_t most) {
  std::printf("\n%10s %10s %10s %13s  %s\n", "BEFORE", "AFTER", "CHANGE", "CALLS", "KERNEL");
  for (size_t i = 0; i < std::min(most, comparison.kernels.size()); ++i) {
    const KernelDelta& one = comparison.kernels[i];
    print_change(one, 10);
    std::printf(" %6.0f>%-6.0f  %s\n", one.before_count, one.after_count,
                line_cut(short_kernel_name(one.name), 30).c_str());
    print_shapes(one);
  }
}

void print_gaps(const ProfileComparison& comparison) {
  if (comparison.gaps.empty()) return;
  std::printf("\n%10s %10s %10s %13s  %s\n", "BEFORE", "AFTER", "CHANGE", "GAPS", "IDLE WHILE THE HOST IS IN");
  for (size_t i = 0; i < std::min<size_t>(5, comparison.gaps.size()); ++i) {
    const GapDifference& gap = comparison.gaps[i];
    print_change(gap, 10);
    std::printf(" %6.0f>%-6.0f  %s\n", gap.before_count, gap.after_count, line_cut(gap.what, 30).c_str());
  }
}

constexpr const char* kNoGate = "none";  // not an empty word, which is a variable of a CI job that was not set

// A percentage: "3%" or "3".
std::optional<double> gate_of(const std::string& text) {
  const std::optional<double> gate = parse_double(text.ends_with('%') ? text.substr(0, text.size() - 1) : text);
  return gate && *gate >= 0 ? gate : std::nullopt;
}

int failed(const Error& error) {
  std::fprintf(stderr, "lockstep diff: %s\n", error.message.c_str());
  return error.code == ErrorCode::kNotFound ? kExitNotFound : kExitFailed;
}

// Of a run in which nothing ran nothing can be said, whatever is asked for.
int judge(const ProfileComparison& comparison, std::optional<double> gate, Unlike unlike) {
  if (comparison.before_ns <= 0 || comparison.after_ns <= 0) unlike = Unlike::kRefused;
  for (const std::string& line : comparison.not_comparable) {
    std::fprintf(stderr, "lockstep diff: not comparable: %s%s\n", line.c_str(),
                 unlike == Unlike::kRefused ? "" : "; compared all the same (--force)");
    if (unlike == Unlike::kRefused) return kExitNotComparable;
  }
  if (!gate || 100 * comparison.change() <= *gate) return kExitOk;
  const bool may_be_chance = comparison.is_within_noise();
  std::fprintf(stderr, "lockstep diff: a step is %.1f %% slower, the gate is %g %%%s\n", 100 * comparison.change(),
               *gate, may_be_chance ? "; that is within the noise of its steps: profile more of them" : "");
  return kExitNo;
}

}  // namespace

void print_comparison(const ProfileComparison& comparison, size_t most) {
  print_wrapped(comparison.sentence);
  for (const std::string& line : comparison.not_comparable) print_wrapped(line, 4, "  - ");
  for (const std::string& line : comparison.notes) print_wrapped(line, 6, "note: ");
  print_parts(comparison);
  print_kernels(comparison, most);
  print_gaps(comparison);
}

int run_diff(const Arguments& arguments) {
  bool json = false, force = false;
  std::string gate_text = kNoGate, server = default_server(), baselines = default_baselines();
  int64_t kernels = 10;
  Flags flags("lockstep diff", "two runs' kernel traces side by side: by how much a step differs, in which kernels",
              "RUN...");
  add_server_flags(flags, &server)
      .text(&gate_text, "--gate", "PERCENT", "exit with 1 where a step is slower by more, such as 3% (default none)")
      .text(&baselines, "--baselines", "DIR", kBaselinesHelp)
      .toggle(&force, "--force", "compare runs that cannot be compared, too; says what speaks against it")
      .toggle(&json, "--json", "the comparison as JSON")
      .number(&kernels, "--kernels", "N", "kernels to show (default 10)", 1, 100'000);
  if (std::optional<int> code = answered(
          flags, arguments,
          "RUN is a trace, a folder with one trace per rank, JOB/CAPTURE of lockstep profile, or baseline:NAME of "
          "lockstep baseline; the first is the baseline.\n"
          "exit codes: 0 within the gate, 1 slower than it allows, 2 wrong usage, 4 no such "
          "file or baseline, 5 not readable, 6 not comparable\n"))
    return *code;
  if (flags.positional().size() != 2) {
    std::fprintf(stderr, "lockstep diff: takes two runs, the baseline first; %zu were given\n",
                 flags.positional().size());
    return kExitUsage;
  }
  const std::optional<double> gate = gate_of(gate_text);
  if (gate_text != kNoGate && !gate) {
    std::fprintf(stderr, "lockstep diff: --gate is a percentage such as 3%%, not \"%s\"\n", gate_text.c_str());
    return kExitUsage;
  }
  for (const std::string& run : flags.positional()) {
    const Result<void> checked = check_run_name(run);
    if (checked.ok()) continue;
    std::fprintf(stderr, "lockstep diff: %s\n", checked.error().c_str());
    return kExitUsage;
  }
  std::vector<RunSummary> sides;
  for (const std::string& run : flags.positional()) {
    Result<RunSummary> side = summary_of("lockstep diff", run, server, baselines);
    if (!side.ok()) return failed(side.failure());
    sides.push_back(std::move(*side));
  }
  const Unlike unlike = force ? Unlike::kCompared : Unlike::kRefused;
  const ProfileComparison comparison = compare(sides[0], sides[1], unlike);
  if (json) {
    std::printf("%s\n", comparison_json(comparison, static_cast<size_t>(kernels)).c_str());
  } else {
    print_comparison(comparison, static_cast<size_t>(kernels));
  }
  return judge(comparison, gate, unlike);
}

}  // namespace lockstep::cli
