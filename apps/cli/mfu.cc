// `lockstep mfu JOB`: why MFU is what it is, from the GPU's peak down to what was achieved.
#include <cmath>
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/wrapped.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr double kBarColumns = 30;  // of the whole peak

// What is still there is drawn before what goes at this bar, so that the bars step down from left to right.
void print_bar(const std::string& name, double left, double points, const std::string& note) {
  const auto column = [](double share) { return static_cast<int>(std::lround(kBarColumns * std::max(0.0, share))); };
  const int begin = column(left - points), end = column(left);
  std::string bar(static_cast<size_t>(begin), ' ');
  bar.append(static_cast<size_t>(std::max(points > 0.002 ? 1 : 0, end - begin)), '#');
  std::printf("  %-34s %6.1f  %-31s%s\n", name.c_str(), 100 * points, bar.c_str(), note.c_str());
}

void print_mfu(const Json& mfu) {
  std::printf("%s · steps %s to %s · %lld of %lld ranks\n\n", text_of(mfu, "job_id").c_str(),
              with_thousands(static_cast<int64_t>(number_of(mfu, "from_step"))).c_str(),
              with_thousands(static_cast<int64_t>(number_of(mfu, "to_step"))).c_str(),
              static_cast<long long>(number_of(mfu, "ranks_counted")), static_cast<long long>(number_of(mfu, "ranks")));
  print_wrapped(text_of(mfu, "sentence"));
  Json change;
  if (!mfu["change"].get(change) && change.is_object()) {
    print_wrapped(text_of(change, "sentence"));
    for (const Json what : list_of(change, "what")) {
      std::string_view text;
      if (!what.get_string().get(text)) print_wrapped("  - " + std::string(text));
    }
  }
  if (const std::string next = text_of(mfu, "next"); !next.empty()) print_wrapped("Next: " + next + ".");
  const simdjson::dom::array bars = list_of(mfu, "bars");
  if (bars.size() == 0) return;

  Json peak, flops;
  if (mfu["peak"].get(peak) || mfu["flops"].get(flops)) return;
  const std::string from = text_of(peak, "from");
  const std::string gpu = text_of(peak, "gpu");
  std::string named;
  if (from == "unknown") {
    named = "not known" + (gpu.empty() ? "" : " for " + gpu);
  } else {
    named = format("%.1f TFLOP/s a GPU, %s", number_of(peak, "tflops"),
                   from == "job"      ? "as the job reports"
                   : from == "server" ? "as the server was told"
                                      : (gpu + " in " + text_of(peak, "precision")).c_str());
  }
  std::printf("\n  %-34s %6.1f  %s\n", "peak", 100.0, named.c_str());
  double left = 1;
  for (const Json bar : bars) {
    const double points = number_of(bar, "points");
    if (std::fabs(points) < 0.0005) continue;
    print_bar(text_of(bar, "words"), left, points, "");
    left -= points;
  }
  double achieved = 0;
  if (mfu["mfu"].get_double().get(achieved)) {
    std::printf("  %-34s      ?  %s\n", "achieved: MFU",
                text_of(flops, "from") == "unknown" ? "FLOPs are not reported" : "");
  } else {
    print_bar("achieved: MFU", achieved, achieved, text_of(flops, "from") == "6NT" ? "6 x parameters x tokens" : "");
  }
  std::printf("\n");
  for (const Json bar : bars) {
    const std::string note = text_of(bar, "note");
    const bool shown = std::fabs(number_of(bar, "points")) >= 0.0005 || text_of(bar, "key") == "clocks";
    if (shown && !note.empty()) print_wrapped("  " + text_of(bar, "key") + ": " + note);
  }
}

}  // namespace

int run_mfu(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  int64_t last = 50;
  Flags flags("lockstep mfu", "why MFU is what it is: from the GPU's peak down to what was achieved", "JOB");
  add_server_flags(flags, &server)
      .number(&last, "--last", "N", "steps to look at (default 50)", 1, 500)
      .toggle(&json, "--json", "the answer as JSON");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  const Response answer = ask(
      server, "/api/jobs/" + url_part(flags.positional()[0]) + format("/mfu?last=%lld", static_cast<long long>(last)),
      "lockstep mfu");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  if (json) {
    std::printf("%s\n", answer.body.c_str());
    return kExitOk;
  }
  simdjson::dom::parser parser;
  Json mfu;
  if (parser.parse(answer.body).get(mfu) || text_of(mfu, "sentence").empty()) return not_understood("lockstep mfu");
  print_mfu(mfu);
  return kExitOk;
}

}  // namespace lockstep::cli
