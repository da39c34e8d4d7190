// `lockstep step JOB [N]`: one step, rank against rank: who made whom wait, the critical path, the longest waits.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/watch.h"
#include "apps/cli/wrapped.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr int kPathShown = 16;
constexpr int kRowsShown = 8;

int64_t whole_of(const Json& object, const char* key) {
  return static_cast<int64_t>(number_of(object, key, -1));
}
bool flag_of(const Json& object, const char* key) {
  bool value = false;
  return !object[key].get_bool().get(value) && value;
}
std::string ms(double value) {
  return value == 0 ? "0 ms" : human_duration(value * 1e6);
}

// "AllReduce #812 in dp"; what of it is known.
std::string where(const Json& entry) {
  std::string operation = text_of(entry, "operation"), comm = text_of(entry, "comm");
  if (comm.empty()) return operation;
  return operation.empty() ? "in " + comm : operation + " in " + comm;
}

void print_path(const Json& step) {
  const simdjson::dom::array path = list_of(step, "path");
  if (path.size() == 0) return;
  Json parts;
  std::printf("\ncritical path");
  if (!step["path_ms"].get(parts)) {
    const double length = std::max(1e-9, number_of(step, "length_ms"));
    for (const char* kind : {"own", "communication", "waiting", "before"}) {
      if (const double share = number_of(parts, kind) / length; share >= 0.005)
        std::printf("  %s %.0f %%", kind, share * 100);
    }
  }
  std::printf("\n%10s %10s  %-8s\n", "FROM", "FOR", "RANK");
  for (Json piece : path) {
    const double from = number_of(piece, "from_ms"), to = number_of(piece, "to_ms");
    const std::string kind = text_of(piece, "kind");
    std::string what;
    if (kind == "own") {
      const std::string phase = text_of(piece, "phase");
      what = phase.empty() ? "own work" : "own work, " + phase;
    } else if (kind == "before") {
      what = "had not begun the step";
    } else {
      what = where(piece);
      if (const int64_t waits_for = whole_of(piece, "waits_for"); kind == "waiting")
        what += waits_for >= 0 ? format(", waiting for rank %lld", static_cast<long long>(waits_for))
                               : std::string(", waiting for ranks without detail");
      if (const int64_t waiter = whole_of(piece, "waited_by"); waiter >= 0)
        what +=
            format("; rank %lld waited %s", static_cast<long long>(waiter), ms(number_of(piece, "waited_ms")).c_str());
    }
    std::printf("%10s %10s  %-8lld%s\n", ms(from).c_str(), ms(to - from).c_str(),
                static_cast<long long>(whole_of(piece, "rank")), what.c_str());
  }
  const double total = number_of(step, "path_total"), shown = number_of(step, "path_shown");
  if (shown < total) std::printf("%.0f pieces joined to %.0f; --json has up to 2,000\n", total, shown);
}

void print_waits(const Json& step) {
  const simdjson::dom::array waits = list_of(step, "waits");
  if (waits.size() == 0) return;
  std::printf("\n%-8s %-8s %10s  %s\n", "RANK", "FOR", "WAITED", "WHERE, LONGEST");
  int shown = 0;
  for (Json wait : waits) {
    if (++shown > kRowsShown) break;
    std::string longest = where(wait);
    const int64_t operations = whole_of(wait, "operations");
    if (!flag_of(wait, "from_summary") && operations > 1)
      longest = format("%s in %s (of %lld operations)", ms(number_of(wait, "longest_ms")).c_str(), longest.c_str(),
                       static_cast<long long>(operations));
    std::printf("%-8lld %-8lld %10s  %s\n", static_cast<long long>(whole_of(wait, "rank")),
                static_cast<long long>(whole_of(wait, "for")), ms(number_of(wait, "wait_ms")).c_str(), longest.c_str());
  }
  const double total = number_of(step, "waits_total");
  if (total > kRowsShown) std::printf("%d of %.0f pairs, longest first; --json has more\n", kRowsShown, total);
}

void print_ranks(const Json& step) {
  const bool detail = flag_of(step, "detail");
  std::printf("\n%-8s %-20s %9s %9s %9s %9s %6s\n", "RANK", "HOST", "OWN", "WAITED", "TRANSFER", detail ? "CAUSED" : "",
              "LAST");
  int shown = 0;
  for (Json rank : list_of(step, "ranks")) {
    if (++shown > kRowsShown) break;
    std::printf("%-8lld %-20.20s %9s %9s %9s %9s %6lld\n", static_cast<long long>(whole_of(rank, "rank")),
                text_of(rank, "host").c_str(), ms(number_of(rank, "own_ms")).c_str(),
                ms(number_of(rank, "wait_ms")).c_str(), ms(number_of(rank, "transfer_ms")).c_str(),
                detail ? ms(number_of(rank, "caused_ms")).c_str() : "", static_cast<long long>(whole_of(rank, "last")));
  }
  const double total = number_of(step, "ranks_total");
  if (total > kRowsShown) std::printf("%d of %.0f ranks, worst first; --json has more\n", kRowsShown, total);
}

void print_coverage(const Json& step) {
  Json coverage, clock;
  if (step["coverage"].get(coverage) || step["clock"].get(clock)) return;
  const double missing = number_of(coverage, "missing");
  if (!flag_of(step, "detail")) {
    print_wrapped("No detail of this step: waits are from summaries, and there is no critical path.");
  } else if (missing > 0) {
    print_wrapped(format("No detail of %.0f of %.0f ranks: %s.", missing, number_of(coverage, "ranks"),
                         text_of(coverage, "ranks_missing").c_str()));
  }
  if (number_of(coverage, "untimed") > 0)
    print_wrapped(format("Of %.0f operations the time on the GPU is not known.", number_of(coverage, "untimed")));
  if (flag_of(step, "inferred")) print_wrapped("Where the step begins and ends is inferred, not reported by the job.");
  if (flag_of(step, "detail")) {
    std::string line = format("Clocks are known to %s.", human_duration(number_of(clock, "error_us") * 1e3).c_str());
    if (number_of(clock, "unknown") > 0)
      line = format("Clocks of %.0f ranks are not known; the others to %s.", number_of(clock, "unknown"),
                    human_duration(number_of(clock, "error_us") * 1e3).c_str());
    print_wrapped(line);
  }
}

void print_step(const Json& step, const std::string& server) {
  const std::string job = text_of(step, "job_id");
  Json coverage;
  const bool covered = !step["coverage"].get(coverage);
  std::printf("%s · step %s · %.0f ranks · %s\n\n", job.c_str(), with_thousands(whole_of(step, "step")).c_str(),
              covered ? number_of(coverage, "ranks") : 0, ms(number_of(step, "length_ms")).c_str());
  print_wrapped(text_of(step, "sentence"));
  print_path(step);
  print_waits(step);
  print_ranks(step);
  std::printf("\n");
  print_coverage(step);
  std::printf("%s/jobs/%s?step=%lld\n", page_of(server).c_str(), url_part(job).c_str(),
              static_cast<long long>(whole_of(step, "step")));
}

}  // namespace

int run_step(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false;
  Flags flags("lockstep step", "one step, rank against rank: who made whom wait, the critical path", "JOB [STEP]...");
  add_server_flags(flags, &server).toggle(&json, "--json", "the answer as JSON");
  add_watch_flag(flags, run_step);
  if (std::optional<int> code =
          answered(flags, arguments, "without STEP: the newest of which there is detail, else the newest\n"))
    return *code;
  const std::vector<std::string>& positional = flags.positional();
  if (positional.size() > 2) {
    std::fprintf(stderr, "lockstep step: takes a job and a step, not \"%s\" besides\n", positional[2].c_str());
    return kExitUsage;
  }
  const std::string number = positional.size() > 1 ? positional[1] : "latest";
  const std::optional<int64_t> value = parse_shown_int(number);
  if (number != "latest" && (!value || *value < 0)) {
    std::fprintf(stderr, "lockstep step: \"%s\" is not a step; a step is a whole number\n", number.c_str());
    return kExitUsage;
  }
  const std::string query = json ? "?limit=1000&path=2000" : format("?limit=%d&path=%d", kRowsShown + 1, kPathShown);
  Response answer = ask(
      server, "/api/jobs/" + url_part(positional[0]) + "/steps/" + (value ? std::to_string(*value) : number) + query,
      "lockstep step");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  simdjson::dom::parser parser;
  Json step;
  if (parser.parse(answer.body).get(step)) return not_understood("lockstep step");
  if (json) {
    std::printf("%s\n", answer.body.c_str());
  } else {
    print_step(step, server);
  }
  return kExitOk;
}

}  // namespace lockstep::cli
