// `lockstep analyze TRACE...`: what kernel traces of one or many ranks say, offline.
#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "apps/cli/baselines.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/trace_comparison.h"
#include "apps/cli/trace_files.h"
#include "apps/cli/wrapped.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/text.h"
#include "profile/analysis.h"
#include "profile/rank/roofline.h"
#include "profile/ranks/perfetto_export.h"

namespace lockstep::cli {
namespace {

using namespace profile;

constexpr size_t kRanksShown = 16;

std::string cut(std::string text, size_t columns) {
  text = as_one_line(text);
  if (text.size() <= columns) return text;
  return text.substr(0, columns - 3) + "...";
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// The ranks that are shown where there are too many: the slow ones first, then in order.
std::vector<size_t> shown_ranks(const ProfileAnalysis& analysis) {
  std::vector<size_t> shown;
  const std::vector<Rank>& slow = analysis.verdict.ranks;
  for (size_t i = 0; i < analysis.ranks.size(); ++i) {
    if (std::find(slow.begin(), slow.end(), analysis.ranks[i].rank) != slow.end()) shown.push_back(i);
  }
  for (size_t i = 0; i < analysis.ranks.size() && shown.size() < kRanksShown; ++i) {
    if (std::find(shown.begin(), shown.end(), i) == shown.end()) shown.push_back(i);
  }
  if (shown.size() > kRanksShown) shown.resize(kRanksShown);
  std::sort(shown.begin(), shown.end());
  return shown;
}

void print_ranks(const ProfileAnalysis& analysis) {
  std::printf("\n%6s %5s %10s %6s %6s %6s %6s %8s %9s\n", "RANK", "STEPS", "STEP", "BUSY", "COMP", "COMM", "IDLE",
              "OVERLAP", "WAITS");
  for (size_t i : shown_ranks(analysis)) {
    const RankProfile& rank = analysis.ranks[i];
    const TimeSplit& time = rank.breakdown.time;
    const double waits = static_cast<double>(analysis.collectives.waits[i].exposed_wait_ns) / rank.steps();
    std::printf("%6d %5zu %10s %5.1f%% %5.1f%% %5.1f%% %5.1f%% %7.1f%% %9s\n", rank.rank.value(),
                rank.index.steps.size(), human_duration(static_cast<double>(rank.step_ns())).c_str(),
                share(time.busy_ns(), time.total_ns), share(time.of(KernelClass::kCompute), time.total_ns),
                share(time.of(KernelClass::kCommunication), time.total_ns), share(time.idle_ns(), time.total_ns),
                100 * time.overlap(), analysis.ranks.size() < 2 ? "-" : human_duration(waits).c_str());
  }
  if (analysis.ranks.size() > kRanksShown)
    std::printf("%6s and %zu more (--json has all)\n", "", analysis.ranks.size() - kRanksShown);
}

void print_kernels(const RankProfile& rank, size_t most) {
  const std::vector<Roofline> roofs = rooflines(rank.index, rank.breakdown);
  const double steps = rank.steps();
  std::printf("\nrank %d, %s a step\n%9s %6s %8s %9s  %-10s %s\n", rank.rank.value(),
              rank.index.has_gpu ? "kernels" : "operators", "TIME", "SHARE", "CALLS", "MEAN", "BOUND", "KERNEL");
  for (size_t i = 0; i < std::min(most, rank.breakdown.kernels.size()); ++i) {
    const KernelRow& row = rank.breakdown.kernels[i];
    std::string bound = roofs[i].bound == Bound::kUnknown ? "?" : to_text(roofs[i].bound);
    if (roofs[i].bound == Bound::kCommunication) bound = "comm";
    if (roofs[i].share >= 0) bound += format(" %.0f", 100 * roofs[i].share);
    std::printf("%9s %5.1f%% %8.1f %9s  %-10s %s\n", human_duration(static_cast<double>(row.sum_ns) / steps).c_str(),
                share(row.sum_ns, rank.breakdown.time.total_ns), static_cast<double>(row.count) / steps,
                human_duration(row.mean_ns).c_str(), cut(bound, 11).c_str(),
                cut(short_kernel_name(rank.events->texts[row.name]), 32).c_str());
  }
  if (rank.breakdown.kernels.size() > most)
    std::printf("%9s and %zu more names (--kernels N)\n", "", rank.breakdown.kernels.size() - most);
}

void print_gaps(const RankProfile& rank) {
  if (rank.breakdown.gaps.empty()) return;
  std::printf("\nrank %d, the GPU idle while the host is in, a step\n", rank.rank.value());
  for (size_t i = 0; i < std::min<size_t>(5, rank.breakdown.gaps.size()); ++i) {
    const GapRow& gap = rank.breakdown.gaps[i];
    std::printf("%9s %5.1f%% %8.1f gaps  %s\n", human_duration(static_cast<double>(gap.sum_ns) / rank.steps()).c_str(),
                share(gap.sum_ns, rank.breakdown.time.total_ns), static_cast<double>(gap.count) / rank.steps(),
                cut(gap.what, 45).c_str());
  }
  const LaunchStats& launches = rank.breakdown.launches;
  print_wrapped(
      format("%s launches: call %s, work %s, delay %s (medians); %.0f %% of the work is shorter than its call",
             with_thousands(static_cast<int64_t>(launches.call_ns.count)).c_str(),
             human_duration(static_cast<double>(launches.call_ns.median)).c_str(),
             human_duration(static_cast<double>(launches.work_ns.median)).c_str(),
             human_duration(static_cast<double>(launches.delay_ns.median)).c_str(),
             share(static_cast<int64_t>(launches.short_work), static_cast<int64_t>(launches.call_ns.count))),
      2);
  if (rank.index.graph_launches > 0) {
    print_wrapped(format("%s of its kernels come from %s CUDA graph launches",
                         with_thousands(static_cast<int64_t>(rank.index.graph_activities)).c_str(),
                         with_thousands(static_cast<int64_t>(rank.index.graph_launches)).c_str()),
                  2);
  }
}

void print_clocks(const ProfileAnalysis& analysis) {
  const CollectiveAnalysis& all = analysis.collectives;
  if (analysis.ranks.size() < 2) return;
  if (!all.is_aligned) {
    print_wrapped("Clocks are not aligned: the ranks have no collective in common here.");
    return;
  }
  double offset = 0, drift = 0;
  for (const RankClock& clock : all.clocks.clocks()) {
    offset = std::max(offset, std::abs(clock.offset_ns));
    drift = std::max(drift, std::abs(clock.drift_ppm));
  }
  print_wrapped(
      format("%s collectives matched (%s by sequence number, %s by order); clocks were up to %s apart and drifted by "
             "up to %.1f "
             "us a second, now aligned to within %s.",
             with_thousands(static_cast<int64_t>(all.matched.size())).c_str(),
             with_thousands(static_cast<int64_t>(all.by_seq)).c_str(),
             with_thousands(static_cast<int64_t>(all.by_order)).c_str(), human_duration(offset).c_str(), drift,
             human_duration(all.clocks.error_ns()).c_str()));
}

void print_path(const ProfileAnalysis& analysis) {
  const CriticalPath& path = analysis.path;
  if (path.total_ns <= 0) return;
  std::string ranks;
  if (analysis.ranks.size() > 1) {
    const auto most = std::max_element(path.by_rank_ns.begin(), path.by_rank_ns.end());
    ranks = format(", %.0f %% of it on rank %d", share(*most, path.total_ns),
                   analysis.ranks[static_cast<size_t>(most - path.by_rank_ns.begin())].rank.value());
  }
  std::printf("\ncritical path, %s%s\n", human_duration(static_cast<double>(path.total_ns)).c_str(), ranks.c_str());
  const std::vector<CriticalPath::Row> rows = path.rows();
  for (size_t i = 0; i < std::min<size_t>(6, rows.size()); ++i) {
    std::printf("%9s %5.1f%% %8llu x  %-17s %s\n", human_duration(static_cast<double>(rows[i].sum_ns)).c_str(),
                share(rows[i].sum_ns, path.total_ns), static_cast<unsigned long long>(rows[i].count),
                to_text(rows[i].path_class), cut(short_kernel_name(rows[i].name), 32).c_str());
  }
}

void print_analysis(const ProfileAnalysis& analysis, size_t kernels) {
  print_wrapped(analysis.verdict.sentence);
  for (const std::string& line : analysis.verdict.evidence) print_wrapped(line, 4, "  - ");
  print_ranks(analysis);
  std::printf("\n");
  print_clocks(analysis);
  // The first slow rank and the first of the others; of ranks that are alike the first.
  const RankProfile* slow = nullptr;
  const RankProfile* other = nullptr;
  for (const RankProfile& rank : analysis.ranks) {
    const bool is_slow = std::find(analysis.verdict.ranks.begin(), analysis.verdict.ranks.end(), rank.rank) !=
                         analysis.verdict.ranks.end();
    const RankProfile*& place = is_slow ? slow : other;
    if (place == nullptr) place = &rank;
  }
  for (const RankProfile* rank : {slow, other}) {
    if (rank == nullptr) continue;
    print_kernels(*rank, kernels);
    print_gaps(*rank);
  }
  print_path(analysis);
  for (const std::string& note : analysis.notes) print_wrapped(note, 6, "note: ");
}

int failed(const Error& error) {
  std::fprintf(stderr, "lockstep analyze: %s\n", error.message.c_str());
  return error.code == ErrorCode::kNotFound ? kExitNotFound : kExitFailed;
}

Result<PerfettoCounts> export_perfetto(const ProfileAnalysis& analysis, const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Error{format("%s: %s", path.c_str(), std::strerror(errno))};
  const auto sink = [&](std::string_view piece) { return write_all(fd.get(), piece); };
  const PerfettoCounts counts = LOCKSTEP_TRY(write_perfetto(analysis, sink));
  std::fprintf(stderr, "%s: %zu ranks, %s slices, %s arrows, %s; open it with the Perfetto UI (Open trace file)\n",
               path.c_str(), analysis.ranks.size(), with_thousands(static_cast<int64_t>(counts.slices)).c_str(),
               with_thousands(static_cast<int64_t>(counts.arrows)).c_str(),
               human_bytes(static_cast<double>(counts.bytes)).c_str());
  return counts;
}

void print_json(const ProfileAnalysis& analysis, const std::optional<ProfileComparison>& comparison, size_t kernels) {
  std::string text = analysis_json(analysis, kernels);
  if (comparison) {
    text.pop_back();
    text += ",\"comparison\":" + comparison_json(*comparison, kernels) + "}";
  }
  std::printf("%s\n", text.c_str());
}

// The run to compare with: traces, read as those that are analysed, or a baseline by itself.
Result<RunSummary> run_before(const std::vector<std::string>& others, const std::string& server,
                              const std::string& baselines, const AnalyzeOptions& options) {
  if (is_baseline(others.front())) return summary_of("lockstep analyze", others.front(), server, baselines);
  const ProfileAnalysis analysis = LOCKSTEP_TRY(analyze_files("lockstep analyze", others, server, options));
  return summarize(analysis);
}

// The exit code where the others are no run.
std::optional<int> wrong_others(const std::vector<std::string>& others) {
  for (const std::string& other : others) {
    Result<void> checked = check_run_name(other);
    if (checked.ok() && is_baseline(other) && others.size() > 1)
      checked = Error{format("--compare: %s is a run by itself; there is more beside it", other.c_str())};
    if (checked.ok()) continue;
    std::fprintf(stderr, "lockstep analyze: %s\n", checked.error().c_str());
    return kExitUsage;
  }
  return std::nullopt;
}

}  // namespace

int run_analyze(const Arguments& arguments) {
  bool json = false;
  int64_t kernels = 10, threads = 0;
  std::vector<std::string> others;
  std::string perfetto_file, server = default_server(), baselines = default_baselines();
  AnalyzeOptions options;
  Flags flags("lockstep analyze",
              "what kernel traces say: which rank, which kernel, why (Kineto's Chrome JSON, gzip or not; an "
              "export of Nsight Systems, nsys export --type sqlite). JOB/CAPTURE: one that lockstep profile took",
              "TRACE...");
  add_server_flags(flags, &server)
      .toggle(&json, "--json", "everything, as JSON")
      .number(&kernels, "--kernels", "N", "kernels to show (default 10)", 1, 100'000)
      .list(&others, "--compare", "OTHER", "traces or folders of another run, or baseline:NAME, to compare these with")
      .text(&baselines, "--baselines", "DIR", kBaselinesHelp)
      .text(&perfetto_file, "--perfetto", "FILE",
            "also write all ranks on one time axis, for the Perfetto UI (.pftrace)")
      .toggle(&options.index.within_steps, "--within-steps",
              "only what was launched in the trace before its last marked step ended, as HTA")
      .number(&threads, "--threads", "N", "traces to read at once (default: one per core)", 1, 1024);
  if (std::optional<int> code = answered(flags, arguments,
                                         "exit codes: 0 analysed, 1 a rank holds the others up, 2 wrong usage, 4 no "
                                         "such file, 5 no trace can be read\n"))
    return *code;
  if (const std::optional<int> code = wrong_others(others)) return *code;
  options.threads = static_cast<size_t>(threads);
  Result<ProfileAnalysis> analysis = analyze_files("lockstep analyze", flags.positional(), server, options);
  if (!analysis.ok()) return failed(analysis.failure());
  std::optional<ProfileComparison> comparison;
  if (!others.empty()) {
    const Result<RunSummary> before = run_before(others, server, baselines, options);
    if (!before.ok()) return failed(before.failure());
    comparison = compare(*before, summarize(*analysis));
  }
  if (!perfetto_file.empty()) {
    if (Result<PerfettoCounts> written = export_perfetto(*analysis, perfetto_file); !written.ok()) {
      std::fprintf(stderr, "lockstep analyze: %s\n", written.error().c_str());
      return kExitFailed;
    }
  }
  if (json) {
    print_json(*analysis, comparison, static_cast<size_t>(kernels));
  } else {
    print_analysis(*analysis, static_cast<size_t>(kernels));
    if (comparison) {
      std::printf("\n");
      print_comparison(*comparison, static_cast<size_t>(kernels));
    }
  }
  return analysis->verdict.ranks.empty() ? kExitOk : kExitNo;
}

}  // namespace lockstep::cli
