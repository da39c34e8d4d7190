// `lockstep why JOB`: the answer a person can paste into a chat.
#include "apps/cli/why.h"

#include <algorithm>
#include <cstdio>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/gpu_cost.h"
#include "apps/cli/options.h"
#include "apps/cli/server_call.h"
#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "apps/cli/wrapped.h"
#include "base/flags.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

// Wrapped behind a label; further lines are indented under the first.
void print_row(const char* label, const std::string& text) {
  constexpr size_t kIndent = 16;
  print_wrapped(text, kIndent, "      " + painted(Paint::kDim, label));
}

// What of the loss each verdict explains, and what none does; nothing where next to nothing is lost.
void print_cost(std::string_view cost_json) {
  constexpr double kNothingShare = 0.01;
  constexpr size_t kRows = 6;
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(cost_json);
  Json cost;
  if (parser.parse(padded).get(cost) || number_of(cost, "lost_share") < kNothingShare) return;
  const auto money = [](const Json& of) {
    double value = 0;
    return of["lost_money"].get_double().get(value) ? std::string() : format(", %.2f", value);
  };
  print_wrapped(text_of(cost, "sentence"));
  print_wrapped(format("%s in these %s steps%s", gpu_time(number_of(cost, "lost_gpu_seconds")).c_str(),
                       with_thousands(static_cast<int64_t>(number_of(cost, "steps"))).c_str(), money_of(cost).c_str()),
                22, "what it costs");
  const simdjson::dom::array parts = list_of(cost, "parts");
  size_t printed = 0, left_out = 0;
  double left_share = 0;
  for (const Json part : parts) {
    const double share = number_of(part, "share");
    const bool unexplained = text_of(part, "kind") == "unexplained";
    if (share < 0.005 && !unexplained) continue;
    if (++printed > kRows && !unexplained) {
      ++left_out;
      left_share += share;
      continue;
    }
    if (unexplained && left_out > 0) std::printf("%19.0f %%  %zu more verdicts\n", 100 * left_share, left_out);
    print_wrapped(text_of(part, "name") + "  " + gpu_time(number_of(part, "lost_gpu_seconds")) + money(part), 23,
                  format("%19.0f %%", 100 * share));
  }
}

// A word and a sentence that wraps under itself.
void print_headed(const std::string& head, const std::string& sentence, Paint paint) {
  print_wrapped(sentence, 6, painted(paint, head));
}

// What a person said of it.
std::string feedback_text(const Json& feedback) {
  bool right = false;
  if (feedback["right"].get_bool().get(right)) return {};
  std::string text = right ? "right" : "wrong";
  if (const std::string cause = text_of(feedback, "cause"); !cause.empty()) text += ": it was " + cause;
  if (const std::string note = text_of(feedback, "note"); !note.empty()) text += " (" + as_one_line(note) + ")";
  return text;
}

}  // namespace

// "periodic: every 8 steps (4.0 s)"; nothing of what stands still.
std::string pattern_words(const Json& verdict) {
  const std::optional<VerdictKind> kind = term_in<VerdictKind>(verdict, "kind");
  if (kind && is_standstill(*kind)) return "";
  const std::string pattern = text_of(verdict, "pattern");
  const auto period = static_cast<int64_t>(number_of(verdict, "period_steps"));
  if (period <= 0) return pattern;
  return pattern + format(": every %s steps (%s)", with_thousands(period).c_str(),
                          human_duration(number_of(verdict, "period_s") * 1e9).c_str());
}

void print_files(const Json& verdict, size_t indent) {
  constexpr size_t kMost = 8;
  const simdjson::dom::array files = list_of(verdict, "files");
  if (files.size() == 0) return;
  const std::string before(indent, ' ');
  std::printf("%sfiles of the ranks, on the server:\n", before.c_str());
  size_t printed = 0;
  for (Json file : files) {
    if (++printed > kMost) break;
    std::printf("%s  rank %.0f  %s, %s  %s\n", before.c_str(), number_of(file, "rank"),
                text_of(file, "kind") == "dump" ? "Flight Recorder dump" : "recorder",
                human_bytes(number_of(file, "bytes")).c_str(), text_of(file, "query").c_str());
  }
  const auto total = std::max(files.size(), static_cast<size_t>(number_of(verdict, "files_total")));
  if (total > kMost) std::printf("%s  (%zu more; --json lists %zu)\n", before.c_str(), total - kMost, files.size());
}

namespace {

// One short word in front: the column is narrow, and the sentence says the rest.
std::string kind_word(const Json& verdict) {
  std::string kind = text_of(verdict, "kind");
  if (term_of<VerdictKind>(kind) == VerdictKind::kInefficient) kind = "waste";
  if (term_of<VerdictKind>(kind) == VerdictKind::kIncorrect) kind = "wrong";
  for (char& c : kind) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return kind;
}

void print_culprit(const Json& verdict) {
  Json culprit;
  if (verdict["culprit"].get(culprit)) return;
  print_row("culprit", format("%s  (layer %s, cause %s)", text_of(culprit, "component").c_str(),
                              text_of(culprit, "layer").c_str(), text_of(culprit, "cause").c_str()));
}

// The claims by kind, a few of each.
void print_chain(const Json& verdict) {
  // The label says it already: "not  Not the input" reads badly.
  struct Row {
    ClaimKind kind;
    const char* label;
    const char* said_by_label;
  };
  constexpr Row kRows[] = {
      {ClaimKind::kSelfTime, "because", ""}, {ClaimKind::kPath, "because", ""},
      {ClaimKind::kCounter, "because", ""},  {ClaimKind::kEvent, "because", ""},
      {ClaimKind::kWaitsFor, "waits", ""},   {ClaimKind::kCounterfactual, "without", "Without it "},
      {ClaimKind::kExclusion, "not", "Not "}};
  constexpr int kClaimsPerKind = 2;
  auto after = [](std::string text, std::string_view start) {
    return text.starts_with(start) ? text.substr(start.size()) : text;
  };
  simdjson::dom::array chain;
  if (verdict["chain"].get_array().get(chain)) return;
  std::string_view last_label;
  for (const Row& row : kRows) {
    const char* label = row.label == last_label ? "" : row.label;
    int printed = 0;
    for (Json entry : chain) {
      if (term_in<ClaimKind>(entry, "kind") != row.kind) continue;
      if (++printed > kClaimsPerKind) continue;
      print_row(label, after(text_of(entry, "claim"), row.said_by_label));
      label = "";
      last_label = row.label;
    }
    if (printed > kClaimsPerKind) print_row("", format("(%d more with --json)", printed - kClaimsPerKind));
  }
}

void print_next(const Json& verdict) {
  simdjson::dom::array next;
  if (verdict["next"].get_array().get(next)) return;
  const char* label = "next";
  for (Json entry : next) {
    print_row(label, text_of(entry, "action"));
    std::string command = text_of(entry, "command");
    if (!command.empty()) std::printf("                %s\n", command.c_str());
    label = "";
  }
}

// What a person said of it, or how to say it.
void print_judgement(const Json& verdict) {
  Json feedback;
  if (!verdict["feedback"].get(feedback) && feedback.is_object()) {
    print_row("judged", feedback_text(feedback));
    return;
  }
  const std::string id = text_of(verdict, "id");
  if (!id.empty() && term_in<VerdictState>(verdict, "state") != VerdictState::kSuspected)
    std::printf("      judge     lockstep verdict %s --right | --wrong\n", shell_word(id).c_str());
}

}  // namespace

void print_verdict(const Json& verdict, std::string_view server_url) {
  const std::optional<VerdictState> state = term_in<VerdictState>(verdict, "state");
  print_headed(kind_word(verdict), text_of(verdict, "sentence"),
               state == VerdictState::kConfirmed   ? Paint::kBad
               : state == VerdictState::kSuspected ? Paint::kWarn
                                                   : Paint::kDim);
  print_row("state", text_of(verdict, "state") + (state == VerdictState::kSuspected ? ": a few more steps will tell"
                                                  : state == VerdictState::kCleared ? ": it is over"
                                                                                    : ""));
  if (const std::string pattern = pattern_words(verdict); !pattern.empty()) print_row("pattern", pattern);
  print_row("cost", format("%.0f %% of the job, %s so far", number_of(verdict, "lost_share") * 100,
                           gpu_time(number_of(verdict, "lost_gpu_seconds")).c_str()) +
                        money_of(verdict));
  print_culprit(verdict);
  print_chain(verdict);
  print_next(verdict);
  if (const std::string runbook = text_of(verdict, "runbook"); !runbook.empty())
    std::printf("      runbook   %s%s\n", std::string(server_url).c_str(), runbook.c_str());
  print_files(verdict, 6);
  Json incident;
  if (!verdict["incident"].get(incident) && incident.is_object())
    std::printf("      incident  lockstep incidents show %s   (%s)\n", shell_word(text_of(incident, "id")).c_str(),
                text_of(incident, "state").c_str());
  print_judgement(verdict);
  std::printf("\n");
}

void print_warnings(const Json& answer, size_t most) {
  const simdjson::dom::array warnings = list_of(answer, "warnings");
  size_t printed = 0;
  for (Json warning : warnings) {
    if (++printed > most) {
      std::printf("(%zu more: lockstep warnings)\n\n", warnings.size() - most);
      break;
    }
    const bool gone = text_of(warning, "state") == "gone";
    print_headed(gone ? "GONE" : "SOON", text_of(warning, "sentence"), gone ? Paint::kDim : Paint::kWarn);
    for (Json claim : list_of(warning, "claims")) print_row("because", text_of(claim, "claim"));
    Json record;
    if (!warning["record"].get(record) && record.is_object())
      print_row("record", format("of %.0f such warnings in simulation %.0f came true in time",
                                 number_of(record, "raised"), number_of(record, "came_true")));
    Json next;
    if (gone || warning["next"].get(next)) {
      std::printf("\n");
      continue;
    }
    print_row("next", text_of(next, "action"));
    if (const std::string command = text_of(next, "command"); !command.empty())
      std::printf("                %s\n", command.c_str());
    std::printf("\n");
  }
}

namespace {

// What is over, newest first: one line each.
void print_history(const std::vector<Json>& cleared, const std::string& job) {
  constexpr size_t kMost = 8;
  if (cleared.empty()) return;
  std::printf("Over, by when it began (UTC)\n");
  for (size_t i = 0; i < std::min(cleared.size(), kMost); ++i) {
    const auto began_ms = static_cast<int64_t>(number_of(cleared[i], "since_unix_ns") / 1e6);
    print_wrapped(text_of(cleared[i], "sentence"), 10, utc_time(began_ms, "%H:%M:%S"));
  }
  if (cleared.size() > kMost) std::printf("          (%zu more)\n", cleared.size() - kMost);
  std::printf("          in full: lockstep why %s --history\n\n", shell_word(job).c_str());
}

}  // namespace

std::vector<std::string> time_parts(const Json& why) {
  Json breakdown;
  if (why["breakdown"].get(breakdown) || !breakdown.is_object()) return {};
  bool seen = true;
  const bool unseen = !why["communication_seen"].get_bool().get(seen) && !seen;
  struct Part {
    std::string_view name;
    bool always;      // else only where there is any to speak of
    bool needs_seen;  // it cannot be told from compute where communication is not seen
  };
  std::vector<std::string> parts;
  for (const Part& part : {Part{"compute", true, false}, Part{"waiting", true, true}, Part{"communication", true, true},
                           Part{"input", true, false}, Part{"host", false, false}, Part{"checkpoint", false, false},
                           Part{"idle", false, false}, Part{"other", false, false}}) {
    const std::string name(part.name);
    const double percent = number_of(breakdown, name.c_str()) * 100;
    if ((!part.always && percent < 0.5) || (unseen && part.needs_seen)) continue;
    parts.push_back(
        format("%s %.0f %%", unseen && name == "compute" ? "compute and unseen communication" : name.c_str(), percent));
  }
  return parts;
}

void print_why(std::string_view why_json, const WhyView& view) {
  simdjson::dom::parser parser;
  simdjson::padded_string padded(why_json);
  Json why;
  Json job;
  if (parser.parse(padded).get(why) || why["job"].get(job)) {
    not_understood("lockstep why");
    return;
  }
  std::string id = text_of(job, "job_id");
  std::printf("%s · step %s · %lld ranks · %s a step\n\n", painted(Paint::kStrong, id).c_str(),
              with_thousands(static_cast<int64_t>(number_of(job, "last_step"))).c_str(),
              static_cast<long long>(number_of(job, "world_size")),
              human_duration(number_of(job, "step_ms") * 1e6).c_str());
  size_t open = 0;
  std::vector<Json> over;
  for (Json verdict : list_of(why, "verdicts")) {
    const bool is_over = term_in<VerdictState>(verdict, "state") == VerdictState::kCleared;
    open += is_over ? 0 : 1;
    if (is_over && !view.history)
      over.push_back(verdict);
    else
      print_verdict(verdict, view.server_url);
  }
  if (open == 0) {
    print_wrapped(text_of(why, "summary"));
    std::printf("\n");
  }
  print_history(over, id);
  if (list_of(why, "warnings").size() > 0) {
    std::printf("Early warnings\n\n");
    constexpr size_t kMost = 3;
    print_warnings(why, kMost);
  }
  if (const std::vector<std::string> parts = time_parts(why); !parts.empty()) {
    const size_t columns = prose_columns();
    std::string line = "where the time goes ";
    const std::string indent(line.size(), ' ');
    for (const std::string& part : parts) {
      const std::string text = "  " + part;
      if (line.size() + text.size() > columns) {
        std::printf("%s\n", line.c_str());
        line = indent;
      }
      line += text;
    }
    std::printf("%s\n", line.c_str());
  }
  if (!view.cost_json.empty()) print_cost(view.cost_json);
  if (!view.server_url.empty()) std::printf("%s/jobs/%s\n", std::string(view.server_url).c_str(), url_part(id).c_str());
}

namespace {

// The job that is asked for, or the worst that the server knows; nothing, and told why, where there is none.
std::optional<std::string> job_or_worst(const Flags& flags, const std::string& server, int& exit_code) {
  if (!flags.positional().empty()) return flags.positional()[0];
  const Response answer = ask(server, "/api/jobs", "lockstep why");
  if (answer.exit_code != kExitOk) {
    exit_code = print_failure(answer);
    return std::nullopt;
  }
  simdjson::dom::parser parser;
  Json document;
  if (!parser.parse(answer.body).get(document)) {
    for (Json job : list_of(document, "jobs")) return text_of(job, "job_id");  // worst first
  }
  std::fprintf(stderr, "lockstep why: the server knows no job yet; start one with lockstep run\n");
  exit_code = kExitNotFound;
  return std::nullopt;
}

}  // namespace

int run_why(const Arguments& arguments) {
  std::string server = default_server();
  bool json = false, history = false;
  Flags flags("lockstep why",
              "why a job is slow or stuck: the culprit, what it costs, the evidence; without JOB the worst", "[JOB]");
  add_server_flags(flags, &server)
      .toggle(&json, "--json", "the answer as JSON")
      .toggle(&history, "--history", "what is over in full too, not one line each");
  add_watch_flag(flags, run_why);
  if (std::optional<int> code = answered(flags, arguments,
                                         "exit codes: 0 no open verdict, 1 an open verdict, 2 wrong usage, 3 no "
                                         "server, 4 no such job, 5 anything else\n"))
    return *code;
  int exit_code = kExitOk;
  const std::optional<std::string> job = job_or_worst(flags, server, exit_code);
  if (!job) return exit_code;
  Response answer = ask(server, "/api/jobs/" + url_part(*job) + "/why", "lockstep why");
  if (answer.exit_code != kExitOk) return print_failure(answer);
  simdjson::dom::parser parser;
  Json why;
  if (parser.parse(answer.body).get(why)) {
    std::fprintf(stderr, "lockstep why: the server's answer is not JSON\n");
    return kExitFailed;
  }
  if (json) {
    std::printf("%s\n", answer.body.c_str());
  } else {
    const Response cost = ask(server, "/api/jobs/" + url_part(*job) + "/cost", "lockstep why");
    const bool has_cost = cost.exit_code == kExitOk;  // an older server has none
    const std::string page = page_of(server);
    print_why(answer.body, {page, has_cost ? std::string_view(cost.body) : "", history});
  }
  bool open = false;
  for (Json verdict : list_of(why, "verdicts"))
    open |= term_in<VerdictState>(verdict, "state") != VerdictState::kCleared;
  return open ? kExitNo : kExitOk;
}

}  // namespace lockstep::cli
