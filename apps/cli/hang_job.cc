// `lockstep hang JOB [--stacks RANKS]`: the hang as the server has it, and what its ranks' stacks say.
#include <unistd.h>

#include <cstdio>
#include <map>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/hang_more.h"
#include "apps/cli/server_call.h"
#include "apps/cli/why.h"
#include "apps/cli/wrapped.h"
#include "base/clock.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr const char* kCommand = "lockstep hang";
constexpr int kWaitMs = 10'000;  // the agent hears of it at once, gives Python 2 s, and sends
constexpr int kLookMs = 100;
constexpr int kFramesShown = 12;

using Times = std::map<int64_t, double>;  // rank -> when its newest stack was taken
Times times_of(const std::string& body) {
  Times times;
  simdjson::dom::parser parser;
  Json document;
  if (parser.parse(body).get(document)) return times;
  for (Json stack : list_of(document, "stacks"))
    times[static_cast<int64_t>(number_of(stack, "rank"))] = number_of(stack, "time_unix_ns");
  return times;
}

std::string frame_text(const Json& frame) {
  const std::string file = text_of(frame, "file");
  const size_t slash = file.rfind('/');
  return format("%s  %s:%.0f", text_of(frame, "function").c_str(),
                file.substr(slash == std::string::npos ? 0 : slash + 1).c_str(), number_of(frame, "line"));
}

void print_stack(const Json& stack, int64_t now_unix_ns) {
  const double age_ns = static_cast<double>(now_unix_ns) - number_of(stack, "time_unix_ns");
  std::printf("rank %.0f · %s · pid %.0f · %s ago\n", number_of(stack, "rank"), text_of(stack, "host").c_str(),
              number_of(stack, "pid"), human_duration(age_ns > 0 ? age_ns : 0).c_str());
  print_wrapped(text_of(stack, "where"), 2);
  if (const std::string note = text_of(stack, "note"); !note.empty()) print_wrapped(note, 2);
  for (Json thread : list_of(stack, "python")) {
    bool main = false;
    if (thread["main"].get_bool().get(main)) main = false;
    const std::string name = text_of(thread, "name");
    std::printf("  Python, %s\n", main ? "main thread" : name.empty() ? "another thread" : name.c_str());
    int shown = 0;
    for (Json frame : list_of(thread, "frames")) {
      if (++shown <= kFramesShown) std::printf("    %s\n", frame_text(frame).c_str());
    }
    if (shown > kFramesShown) std::printf("    (%d more with --json)\n", shown - kFramesShown);
  }
  // Threads that do the same are one line.
  std::map<std::string, int> alike;
  for (Json thread : list_of(stack, "threads")) {
    const std::string call = text_of(thread, "syscall"), channel = text_of(thread, "wchan");
    ++alike[format("%s  %s  %s", text_of(thread, "state").c_str(), text_of(thread, "name").c_str(),
                   call.empty() ? channel.c_str() : call.c_str())];
  }
  if (!alike.empty()) std::printf("  %.0f threads\n", number_of(stack, "threads_count"));
  for (const auto& [text, count] : alike)
    std::printf("    %s%s\n", text.c_str(), count > 1 ? format("  x%d", count).c_str() : "");
  std::printf("\n");
}

// Ranks that stand at the same place, where there are more of them than places.
void print_groups(const Json& document) {
  const simdjson::dom::array groups = list_of(document, "groups");
  if (groups.size() == 0 || groups.size() == list_of(document, "stacks").size()) return;
  std::printf("who stands where\n");
  for (Json group : groups)
    std::printf("  %.0f %s (%s) %s\n", number_of(group, "ranks_count"),
                number_of(group, "ranks_count") == 1 ? "rank" : "ranks", text_of(group, "ranks").c_str(),
                text_of(group, "where").c_str());
  std::printf("\n");
}

void print_dumps(const Json& document) {
  bool any = false;
  for (Json dump : list_of(document, "dumps")) {
    Json last;
    if (dump["last"].get(last)) continue;
    if (!any) std::printf("PyTorch's Flight Recorder: the last call of each rank\n");
    any = true;
    std::printf("  rank %.0f  %s %.0f %s  %s, %s\n", number_of(dump, "rank"), text_of(last, "operation").c_str(),
                number_of(last, "seq"), text_of(last, "sizes").c_str(), text_of(last, "state").c_str(),
                text_of(last, "caller").c_str());
  }
  if (any) std::printf("\n");
}

// That the job hangs, or has died.
bool is_open_standstill(const Json& verdict) {
  const std::optional<VerdictKind> kind = term_in<VerdictKind>(verdict, "kind");
  return kind && is_standstill(*kind) && term_in<VerdictState>(verdict, "state") != VerdictState::kCleared;
}

// True: an open verdict that says so.
bool print_verdicts(const Json& why) {
  bool open = false;
  for (Json verdict : list_of(why, "verdicts")) {
    if (!is_open_standstill(verdict)) continue;
    open = true;
    const std::string label = term_in<VerdictKind>(verdict, "kind") == VerdictKind::kFail ? "FAIL" : "HANG";
    const bool is_suspected = term_in<VerdictState>(verdict, "state") == VerdictState::kSuspected;
    print_wrapped(text_of(verdict, "sentence"), 7, label + (is_suspected ? "?" : ""));
    for (Json entry : list_of(verdict, "chain")) {
      if (term_in<ClaimKind>(entry, "kind") == ClaimKind::kEvent) print_wrapped(text_of(entry, "claim"), 7);
    }
    print_files(verdict, 7);
    std::printf("\n");
  }
  return open;
}

}  // namespace

int hang_of_job(const std::string& server, const std::string& job, const std::string& ranks, bool json) {
  const std::string path = "/api/jobs/" + url_part(job) + "/stacks";
  const std::string query = ranks.empty() ? path : path + "?ranks=" + url_part(ranks);
  Response stacks = ask(server, query, kCommand);
  if (stacks.exit_code != kExitOk) return print_failure(stacks);
  std::string late;
  if (!ranks.empty()) {
    const Times before = times_of(stacks.body);
    const Response asked = post(server, query, "", kCommand);
    if (asked.exit_code != kExitOk) return print_failure(asked);
    simdjson::dom::parser parser;
    Json document;
    if (parser.parse(asked.body).get(document)) return kExitFailed;
    const auto wanted = static_cast<size_t>(number_of(document, "ranks_asked"));
    if (wanted == 0) {
      std::fprintf(stderr, "%s: no rank %s is known in job %s\n", kCommand, ranks.c_str(), job.c_str());
      return kExitNotFound;
    }
    size_t fresh = 0;
    for (int waited = 0; waited < kWaitMs && fresh < wanted; waited += kLookMs) {
      usleep(kLookMs * 1000);
      stacks = ask(server, query, kCommand);
      if (stacks.exit_code != kExitOk) return print_failure(stacks);
      fresh = 0;
      for (const auto& [rank, time] : times_of(stacks.body)) {
        auto old = before.find(rank);
        fresh += old == before.end() || old->second != time;
      }
    }
    if (fresh < wanted)
      late = format(
          "%zu of %zu ranks have not answered within %d s: their agent is away or forbids it (--stacks off, "
          "LOCKSTEP_STACKS=0), or they were asked within the last minute.",
          wanted - fresh, wanted, kWaitMs / 1000);
  }
  const Response why = ask(server, "/api/jobs/" + url_part(job) + "/why", kCommand);
  if (why.exit_code != kExitOk) return print_failure(why);
  simdjson::dom::parser why_parser, stacks_parser;
  Json verdicts, document;
  if (why_parser.parse(why.body).get(verdicts) || stacks_parser.parse(stacks.body).get(document))
    return not_understood(kCommand);
  bool open = false;
  for (Json verdict : list_of(verdicts, "verdicts")) open |= is_open_standstill(verdict);
  if (json) {
    std::printf("%s\n", std::string(trim(stacks.body)).c_str());
  } else {
    if (!print_verdicts(verdicts)) std::printf("No hang is open in %s.\n\n", job.c_str());
    const int64_t now_unix_ns = SystemClock().unix_ns();
    print_groups(document);
    for (Json stack : list_of(document, "stacks")) print_stack(stack, now_unix_ns);
    print_dumps(document);
    if (times_of(stacks.body).empty() && ranks.empty())
      std::printf("No stacks were taken yet; lockstep hang %s --stacks RANK takes one.\n", shell_word(job).c_str());
  }
  if (!late.empty()) std::fprintf(stderr, "%s: %s\n", kCommand, late.c_str());
  if (!late.empty() && times_of(stacks.body).empty()) return kExitFailed;
  return open ? kExitNo : kExitOk;
}

}  // namespace lockstep::cli
