// `lockstep profile JOB [--ranks worst,median,0,17] [--steps 5]`: kernel profiles of some ranks, all from the same step
// on, and where each rank stands meanwhile. JOB alone lists them, --show CAPTURE says what one of them shows.
#include <unistd.h>

#include <cstdio>
#include <map>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "base/flags.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCommand = "lockstep profile";
constexpr int kLookMs = 500;
constexpr int kSummaryMs = 10'000;  // that --wait waits for what the server finds in the traces

std::string rank_line(const Json& rank) {
  const std::string reason = text_of(rank, "reason"), file = text_of(rank, "file");
  std::string line = format("  rank %-6.0f %-9s", number_of(rank, "rank"), text_of(rank, "state").c_str());
  if (!file.empty())
    line += format(" %s, %s", human_bytes(number_of(rank, "bytes")).c_str(), text_of(rank, "key").c_str());
  if (!reason.empty()) line += (file.empty() ? " " : "; ") + reason;
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

bool is_over(const Json& capture) {
  bool ended = false;
  return !capture["ended"].get_bool().get(ended) && ended;
}

void print_capture(const Json& capture) {
  const double first = number_of(capture, "start_step", -1), steps = number_of(capture, "steps");
  const std::string by = text_of(capture, "by");
  std::printf("%s  %s%s%s\n", text_of(capture, "capture").c_str(),
              first >= 0 ? format("steps %.0f-%.0f", first, first + steps - 1).c_str() : "by time",
              by == "person" ? "" : ("  by " + by).c_str(), is_over(capture) ? "" : "  under way");
  for (const Json rank : list_of(capture, "ranks")) std::printf("%s\n", rank_line(rank).c_str());
}

int list(const std::string& server, const std::string& path, bool json) {
  return show_list({server, path, kCommand, json}, "profiles", [](const Json&, const simdjson::dom::array& captures) {
    for (const Json capture : captures) print_capture(capture);
    if (captures.size() == 0)
      std::printf("No profile of this job yet: lockstep profile JOB --ranks worst,median --steps 5\n");
  });
}

std::string path_of(const std::string& job, const std::string& capture) {
  return "/api/jobs/" + url_part(job) + "/profiles/" + url_part(capture);
}

// The sentence of the server's analysis, or why there is none. waits_ms: for one that is under way.
int show_summary(const std::string& server, const std::string& job, const std::string& id, int waits_ms, bool json) {
  while (true) {
    const Response answer = ask(server, path_of(job, id) + "/summary", kCommand);
    if (answer.exit_code != kExitOk) return print_failure(answer);
    simdjson::dom::parser parser;
    Json document;
    if (parser.parse(answer.body).get(document)) return not_understood(kCommand);
    const std::string state = text_of(document, "state");
    if (waits_ms > 0 && (state == "waiting" || state == "analysing")) {
      ::usleep(kLookMs * 1'000);
      waits_ms -= kLookMs;
      continue;
    }
    if (json) {
      std::printf("%s\n", answer.body.c_str());
    } else if (state == "ready") {
      Json summary, verdict;
      if (document["summary"].get(summary) || summary["verdict"].get(verdict)) return not_understood(kCommand);
      std::printf("%s\n", text_of(verdict, "sentence").c_str());
      for (const Json note : list_of(summary, "notes")) {
        std::string_view line;
        if (!note.get_string().get(line)) std::printf("  %s\n", std::string(line).c_str());
      }
    } else if (state == "failed") {
      std::printf("not analysed: %s\n", text_of(document, "error").c_str());
    } else {
      std::printf("not analysed %s: lockstep analyze %s does it here\n", state == "none" ? "by the server" : "yet",
                  shell_word(job + "/" + id).c_str());
    }
    return state == "ready" ? kExitOk : kExitFailed;
  }
}

// Prints each rank's line when it has changed. The exit code: whether any rank's file is there.
int follow(const std::string& server, const std::string& job, const std::string& id) {
  const std::string path = path_of(job, id);
  std::map<double, std::string> before;
  while (true) {
    const Response answer = ask(server, path, kCommand);
    if (answer.exit_code != kExitOk) return print_failure(answer);
    simdjson::dom::parser parser;
    Json capture;
    if (parser.parse(answer.body).get(capture)) return not_understood(kCommand);
    size_t done = 0, all = 0;
    for (const Json rank : list_of(capture, "ranks")) {
      const std::string line = rank_line(rank);
      ++all;
      done += text_of(rank, "state") == "done";
      if (std::string& last = before[number_of(rank, "rank")]; last != line) {
        std::printf("%s\n", line.c_str());
        last = line;
      }
    }
    std::fflush(stdout);
    if (is_over(capture)) {
      std::printf("%zu of %zu ranks profiled\n", done, all);
      if (done > 0) {
        std::fflush(stdout);
        (void)show_summary(server, job, id, kSummaryMs, false);
        std::printf("more: lockstep analyze %s\n", shell_word(job + "/" + id).c_str());
      }
      return done > 0 ? kExitOk : kExitFailed;
    }
    ::usleep(kLookMs * 1'000);
  }
}

}  // namespace

int run_profile(const Arguments& arguments) {
  std::string server = default_server(), ranks, shown;
  int64_t steps = 0, limit_s = 0, megabytes = 0;
  bool wait = false, shapes = false, stacks = false, json = false;
  Flags flags("lockstep profile", "kernel profiles of some ranks of a running job, all from the same step on", "JOB");
  add_server_flags(flags, &server);
  flags.text(&ranks, "--ranks", "LIST", "which: numbers, worst, median, all, joined by commas, e.g. worst,median,0,17")
      .number(&steps, "--steps", "N", "how many steps (default 5)", 1, 100)
      .toggle(&wait, "--wait", "show where each rank stands until all have ended")
      .text(&shown, "--show", "CAPTURE", "what the server has found in this one")
      .toggle(&shapes, "--shapes", "with the shapes of inputs")
      .toggle(&stacks, "--stacks", "with Python's stacks; slower")
      .number(&limit_s, "--limit", "SECONDS", "give up what has not been traced by then", 1, 3'600)
      .number(&megabytes, "--mb", "N", "largest trace of a rank in MiB (default 1024)", 1, 16'384)
      .toggle(&json, "--json", "the server's answer as it is");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "JOB alone lists its profiles. The job has to run under lockstep run, or with KINETO_USE_DAEMON=1.\n"
                   "exit codes: 0 ordered (with --wait: some rank's profile is there), 2 wrong usage, 4 no such job, 5 "
                   "refused\n"))
    return *code;
  if (!shown.empty()) return show_summary(server, flags.positional()[0], shown, wait ? kSummaryMs : 0, json);
  const std::string path = "/api/jobs/" + url_part(flags.positional()[0]) + "/profiles";
  if (ranks.empty() && steps == 0 && !wait && !shapes && !stacks) return list(server, path, json);
  std::string query = "?ranks=" + url_part(ranks.empty() ? "worst,median" : ranks);
  if (steps > 0) query += format("&steps=%lld", static_cast<long long>(steps));
  if (limit_s > 0) query += format("&limit_s=%lld", static_cast<long long>(limit_s));
  if (megabytes > 0) query += format("&mb=%lld", static_cast<long long>(megabytes));
  if (shapes) query += "&shapes=1";
  if (stacks) query += "&stacks=1";
  const Response begun = post(server, path + query, "", kCommand);
  if (begun.exit_code != kExitOk) return print_failure(begun);
  simdjson::dom::parser parser;
  Json capture;
  if (parser.parse(begun.body).get(capture)) return not_understood(kCommand);
  const std::string id = text_of(capture, "capture");
  if (json && !wait) {
    std::printf("%s\n", begun.body.c_str());
    return kExitOk;
  }
  if (!wait) {
    print_capture(capture);
    return kExitOk;
  }
  const double first = number_of(capture, "start_step", -1);
  std::printf("%s: %.0f steps%s\n", id.c_str(), number_of(capture, "steps"),
              first >= 0 ? format(" from step %.0f on", first).c_str() : ", by time");
  return follow(server, flags.positional()[0], id);
}

}  // namespace lockstep::cli
