// `lockstep diff RUN RUN --gate 3%`: two runs' kernel traces side by side, for a person and for CI.
#include <cmath>
#include <cstdio>

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

std::string line_cut(std::string text, size_t columns) {
  text = as_one_line(text);
  return text.size() <= columns ? text : text.substr(0, columns - 3) + "...";
}

void print_parts(const ProfileComparison& comparison) {
  std::printf("\n%-28s %10s %10s %10s\n", "A STEP", "BEFORE", "AFTER", "CHANGE");
  const auto row = [](const char* name, double before, double after) {
    std::printf("%-28s %10s %10s %c%9s\n", name, human_duration(before).c_str(), human_duration(after).c_str(),
                after < before ? '-' : '+', human_duration(std::fabs(after - before)).c_str());
  };
  row("whole", comparison.before_ns, comparison.after_ns);
  row("something runs", comparison.busy_before_ns, comparison.busy_after_ns);
  row("nothing runs", comparison.idle_before_ns, comparison.idle_after_ns);
  row("communication, not hidden", comparison.exposed_before_ns, comparison.exposed_after_ns);
}

}  // namespace

void print_comparison(const ProfileComparison& comparison, size_t most) {
  print_wrapped(comparison.sentence);
  for (const std::string& line : comparison.not_comparable) print_wrapped(line, 4, "  - ");
  for (const std::string& line : comparison.notes) print_wrapped(line, 6, "note: ");
  print_parts(comparison);
  std::printf("\n%10s %10s %10s %13s  %s\n", "BEFORE", "AFTER", "CHANGE", "CALLS", "KERNEL");
  for (size_t i = 0; i < std::min(most, comparison.kernels.size()); ++i) {
    const KernelDifference& one = comparison.kernels[i];
    std::printf("%10s %10s %c%9s %6.0f>%-6.0f  %s\n", human_duration(one.peers_ns).c_str(),
                human_duration(one.own_ns).c_str(), one.extra_ns() < 0 ? '-' : '+',
                human_duration(std::fabs(one.extra_ns())).c_str(), one.peers_count, one.own_count,
                line_cut(short_kernel_name(one.name), 30).c_str());
  }
  if (comparison.gaps.empty()) return;
  std::printf("\n%10s %10s %10s  %s\n", "BEFORE", "AFTER", "CHANGE", "IDLE WHILE THE HOST IS IN");
  for (size_t i = 0; i < std::min<size_t>(5, comparison.gaps.size()); ++i) {
    const GapDifference& gap = comparison.gaps[i];
    std::printf("%10s %10s %c%9s  %s\n", human_duration(gap.before_ns).c_str(), human_duration(gap.after_ns).c_str(),
                gap.after_ns < gap.before_ns ? '-' : '+',
                human_duration(std::fabs(gap.after_ns - gap.before_ns)).c_str(), line_cut(gap.what, 44).c_str());
  }
}

int run_diff(const Arguments& arguments) {
  bool json = false;
  std::string gate_text, server = default_server();
  int64_t kernels = 10;
  Flags flags("lockstep diff", "two runs' kernel traces side by side: by how much a step differs, in which kernels",
              "RUN...");
  add_server_flags(flags, &server)
      .text(&gate_text, "--gate", "PERCENT", "exit with 1 where a step is slower by more, such as 3%")
      .toggle(&json, "--json", "the comparison as JSON")
      .number(&kernels, "--kernels", "N", "kernels to show (default 10)", 1, 100'000);
  if (std::optional<int> code =
          answered(flags, arguments,
                   "RUN is a trace, a folder with one trace per rank, or JOB/CAPTURE of lockstep profile; the first is "
                   "the baseline.\n"
                   "exit codes: 0 within the gate, 1 slower than it allows, 2 wrong usage, 4 no such "
                   "file, 5 not comparable or not readable\n"))
    return *code;
  if (flags.positional().size() != 2) {
    std::fprintf(stderr, "lockstep diff: takes two runs, the baseline first; %zu were given\n",
                 flags.positional().size());
    return kExitUsage;
  }
  std::optional<double> gate;
  if (!gate_text.empty()) {
    gate = parse_double(gate_text.ends_with('%') ? gate_text.substr(0, gate_text.size() - 1) : gate_text);
    if (!gate || *gate < 0) {
      std::fprintf(stderr, "lockstep diff: --gate is a percentage such as 3%%, not \"%s\"\n", gate_text.c_str());
      return kExitUsage;
    }
  }
  std::vector<ProfileAnalysis> sides;
  for (const std::string& run : flags.positional()) {
    Result<ProfileAnalysis> analysis = analyze_files("lockstep diff", {run}, server, {});
    if (!analysis.ok()) {
      std::fprintf(stderr, "lockstep diff: %s\n", analysis.error().c_str());
      return analysis.code() == ErrorCode::kNotFound ? kExitNotFound : kExitFailed;
    }
    sides.push_back(std::move(*analysis));
  }
  const ProfileComparison comparison = compare(sides[0], sides[1]);
  if (json) {
    std::printf("%s\n", comparison_json(comparison, static_cast<size_t>(kernels)).c_str());
  } else {
    print_comparison(comparison, static_cast<size_t>(kernels));
  }
  if (!comparison.is_comparable()) {
    std::fprintf(stderr, "lockstep diff: not comparable: %s\n", comparison.not_comparable.front().c_str());
    return kExitFailed;
  }
  if (!gate || 100 * comparison.change() <= *gate) return kExitOk;
  std::fprintf(stderr, "lockstep diff: a step is %.1f %% slower, the gate is %g %%\n", 100 * comparison.change(),
               *gate);
  return kExitNo;
}

}  // namespace lockstep::cli
