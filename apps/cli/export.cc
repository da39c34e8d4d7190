// `lockstep export`: what a query gives over a range, as a file for other programs.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <ctime>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/text.h"
#include "query/export/export_text.h"

namespace lockstep::cli {
namespace {

constexpr double kStepsPerRequest = 10'000;  // a server refuses more than 11,000
constexpr double kStepsMax = 10'000'000;

}  // namespace

int run_export(const Arguments& arguments) {
  std::string server = default_server(), from = "-1h", to = "now", step = "15s", as = "csv", out;
  Flags flags("lockstep export", "what a query gives over a range of time, for pandas, DuckDB or promtool", "QUERY");
  add_server_flags(flags, &server)
      .text(&from, "--from", "TIME", "first moment: -2h, unix seconds or 2026-11-15T22:00:00Z (default -1h)")
      .text(&to, "--to", "TIME", "last moment (default now)")
      .text(&step, "--step", "TIME", "one value every so often (default 15s)")
      .text(&as, "--format", "csv|openmetrics", "what to write (default csv)")
      .text(&out, "--out", "FILE", "into a file instead of standard output");
  if (std::optional<int> code = answered(flags, arguments,
                                         "exit codes: 0 written, 1 the query gave nothing, 2 wrong usage, 3 no server, "
                                         "5 anything else\n"))
    return *code;
  const std::string& query = flags.positional()[0];
  auto wrong = [](const std::string& line, int code) {
    std::fprintf(stderr, "lockstep export: %s\n", line.c_str());
    return code;
  };
  if (as != "csv" && as != "openmetrics") return wrong("--format is csv or openmetrics", kExitUsage);
  const double now_s = static_cast<double>(std::time(nullptr));
  Result<double> first = parse_moment(from, now_s), last = parse_moment(to, now_s), every = parse_step(step);
  if (!first.ok()) return wrong("--from: " + first.error(), kExitUsage);
  if (!last.ok()) return wrong("--to: " + last.error(), kExitUsage);
  if (!every.ok()) return wrong("--step: " + every.error(), kExitUsage);
  if (*last < *first) return wrong("--to is before --from", kExitUsage);
  const double steps = std::floor((*last - *first) / *every);
  if (steps > kStepsMax) {
    return wrong(format("%.0f steps (limit %.0f): take a longer --step", steps, kStepsMax), kExitUsage);
  }
  ExportedSeries series;
  for (double done = 0; done <= steps; done += kStepsPerRequest) {
    const double until = std::min(steps, done + kStepsPerRequest - 1);
    Response answer = ask(server,
                          format("/prometheus/api/v1/query_range?query=%s&start=%.3f&end=%.3f&step=%g",
                                 url_part(query).c_str(), *first + done * *every, *first + until * *every, *every),
                          "lockstep export");
    if (answer.exit_code != kExitOk) return print_failure(answer);
    if (Result<void> added = series.add(answer.body); !added.ok()) return wrong(added.error(), kExitFailed);
  }
  const std::string text = as == "csv" ? series.csv() : series.openmetrics();
  if (out.empty()) {
    if (Result<void> written = write_all(STDOUT_FILENO, text); !written.ok())
      return wrong(written.error(), kExitFailed);
  } else if (Result<void> written = write_file_atomically(out, text); !written.ok()) {
    return wrong(written.error(), kExitFailed);
  }
  if (series.histograms_left_out() > 0) {
    std::fprintf(stderr, "lockstep export: %llu native histograms left out: take histogram_quantile() or the like\n",
                 static_cast<unsigned long long>(series.histograms_left_out()));
  }
  return series.samples() > 0 ? kExitOk : kExitNo;
}

}  // namespace lockstep::cli
