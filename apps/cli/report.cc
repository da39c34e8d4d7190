// `lockstep report JOB`: verdicts, pictures and numbers of a job as one HTML file, to send to somebody who has no access to
// the server. It loads nothing and runs no script; whatever a job has sent is shown as text.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/gpu_cost.h"
#include "apps/cli/options.h"
#include "apps/cli/report_pictures.h"
#include "apps/cli/server_call.h"
#include "apps/cli/why.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

constexpr const char* kProgram = "lockstep report";
// So many of each are shown; the report says what it leaves out.
constexpr size_t kVerdicts = 40, kClaims = 40, kRanks = 20, kHeatRanksMax = 1u << 20;
constexpr size_t kTextBytes = 4096;

// From both themes' tokens of the page; a printer gets the light one.
constexpr const char* kHead = R"(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root{--page:#f6f7f8;--card:#fff;--text:#16191d;--dim:#59616b;--line:#d9dde2;--accent:#1d5fbf;--bad:#b3261e;--warn:#8a5a00}
@media (prefers-color-scheme:dark){:root{--page:#101317;--card:#181c21;--text:#e7eaee;--dim:#9aa4af;--line:#2d343c;--accent:#7fb0f5;--bad:#ff8a80;--warn:#f0b95a}}
@media print{:root{--page:#fff;--card:#fff;--text:#000;--dim:#444;--line:#bbb;--accent:#000;--bad:#8c1710;--warn:#6b4500}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1040px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:22px;line-height:1.3;margin:0;overflow-wrap:anywhere}
h2{font-size:15px;margin:32px 0 8px}
p{margin:4px 0}.dim{color:var(--dim)}
section.card{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--line);border-radius:6px;padding:14px 16px;margin:12px 0;break-inside:avoid}
section.bad{border-left-color:var(--bad)}section.warn{border-left-color:var(--warn)}
.state{font-weight:600;font-size:13px;text-transform:uppercase;letter-spacing:.04em;color:var(--dim)}
.bad .state{color:var(--bad)}.warn .state{color:var(--warn)}
.say{font-size:18px;line-height:1.4;font-weight:600;margin:4px 0 10px;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 16px;margin:0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}dd p{margin:0 0 2px}
code{font:13px/1.5 ui-monospace,"Cascadia Mono",Menlo,monospace;background:var(--page);border:1px solid var(--line);border-radius:4px;padding:1px 5px;overflow-wrap:anywhere}
figure{background:var(--card);border:1px solid var(--line);border-radius:6px;margin:8px 0;padding:12px;break-inside:avoid;overflow-x:auto}
figcaption{color:var(--dim);font-size:13px;margin-top:4px}
svg{display:block;width:100%;min-width:560px;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--dim)}svg text.mark{fill:var(--bad)}
.grid{stroke:var(--line);fill:none}.line{stroke:var(--accent);stroke-width:1.5;fill:none}
path.mark{stroke:var(--bad);stroke-dasharray:3 3}.row{fill:transparent}
.hatch0{fill:var(--page)}.hatch1{fill:var(--line)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;background:var(--card);border:1px solid var(--line)}
th,td{padding:5px 10px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--dim);font-weight:500}th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}
footer{margin-top:32px;color:var(--dim);font-size:13px;overflow-wrap:anywhere}
@media print{main{max-width:none;padding:0}svg *,section.card{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
@media (max-width:600px){dl{grid-template-columns:1fr}dt{margin-top:6px}}
</style>
)";

// A text of the answer, as HTML. Long ones are cut: the file has a bounded size.
std::string shown(const Json& object, const char* key) {
  const std::string text = text_of(object, key);
  const std::string_view prefix = utf8_prefix(text, kTextBytes);
  return escaped(prefix) + (prefix.size() < text.size() ? "…" : "");
}

std::string whole(const Json& object, const char* key) {
  return with_thousands(static_cast<int64_t>(number_of(object, key)));
}

std::string ms_text(const Json& object, const char* key) {
  const double ms = number_of(object, key, std::numeric_limits<double>::quiet_NaN());
  return std::isfinite(ms) ? human_duration(ms * 1e6) : "unknown";
}

std::string when(double unix_ns) {
  return unix_ns <= 0 ? "unknown" : utc_time(static_cast<int64_t>(unix_ns / 1e6), "%Y-%m-%d %H:%M:%S") + " UTC";
}

void add_row(std::string& out, const char* label, const std::string& html) {
  if (!html.empty()) out += format("<dt>%s</dt><dd>%s</dd>", label, html.c_str());
}

// The claims of a kind, one paragraph each.
std::string claims(const Json& verdict, std::initializer_list<ClaimKind> kinds) {
  std::string out;
  size_t count = 0;
  for (Json claim : list_of(verdict, "chain")) {
    const std::optional<ClaimKind> kind = term_in<ClaimKind>(claim, "kind");
    if (!kind || std::find(kinds.begin(), kinds.end(), *kind) == kinds.end() || ++count > kClaims) continue;
    out += "<p>" + shown(claim, "claim") + "</p>";
  }
  if (count > kClaims) out += format("<p class=\"dim\">%zu more</p>", count - kClaims);
  return out;
}

std::string next_steps(const Json& verdict) {
  std::string out;
  size_t count = 0;
  for (Json next : list_of(verdict, "next")) {
    if (++count > kClaims) break;
    out += "<p>" + shown(next, "action");
    if (const std::string command = shown(next, "command"); !command.empty()) out += " <code>" + command + "</code>";
    out += "</p>";
  }
  return out;
}

std::string verdict_card(const Json& verdict) {
  const std::optional<VerdictState> state = term_in<VerdictState>(verdict, "state");
  const char* paint = state == VerdictState::kConfirmed ? " bad" : state == VerdictState::kSuspected ? " warn" : "";
  std::string out =
      format("<section class=\"card%s\"><p class=\"state\">%s · %s</p><p class=\"say\">%s</p><dl>", paint,
             shown(verdict, "kind").c_str(), shown(verdict, "state").c_str(), shown(verdict, "sentence").c_str());
  add_row(out, "since", "step " + whole(verdict, "since_step") + ", " + when(number_of(verdict, "since_unix_ns")));
  add_row(out, "cost",
          format("%.0f %% of the job, %s so far", number_of(verdict, "lost_share") * 100,
                 gpu_time(number_of(verdict, "lost_gpu_seconds")).c_str()) +
              escaped(money_of(verdict)));
  Json culprit;
  if (!verdict["culprit"].get(culprit))
    add_row(out, "culprit",
            format("%s (layer %s, cause %s)", shown(culprit, "component").c_str(), shown(culprit, "layer").c_str(),
                   shown(culprit, "cause").c_str()));
  add_row(out, "because",
          claims(verdict, {ClaimKind::kSelfTime, ClaimKind::kPath, ClaimKind::kCounter, ClaimKind::kEvent}));
  add_row(out, "who waits", claims(verdict, {ClaimKind::kWaitsFor}));
  add_row(out, "without it", claims(verdict, {ClaimKind::kCounterfactual}));
  add_row(out, "ruled out", claims(verdict, {ClaimKind::kExclusion}));
  add_row(out, "next", next_steps(verdict));
  return out + "</dl></section>\n";
}

std::string verdicts_part(const Json& why) {
  std::string open, over;
  size_t count = 0, open_count = 0;
  for (Json verdict : list_of(why, "verdicts")) {
    const bool is_over = term_in<VerdictState>(verdict, "state") == VerdictState::kCleared;
    open_count += is_over ? 0 : 1;
    if (++count > kVerdicts) continue;
    (is_over ? over : open) += verdict_card(verdict);
  }
  std::string out = "<h2>What is wrong</h2>\n";
  if (open_count == 0) out += "<section class=\"card\"><p class=\"say\">" + shown(why, "summary") + "</p></section>\n";
  out += open;
  if (!over.empty()) out += "<h2>What was wrong, and is over</h2>\n" + over;
  if (count > kVerdicts) out += format("<p class=\"dim\">%zu more verdicts are not shown</p>\n", count - kVerdicts);
  return out;
}

std::string where_time_goes(const Json& why) {
  std::string row;
  for (const std::string& part : time_parts(why)) row += (row.empty() ? "" : " · ") + part;
  return row.empty() ? "" : "<h2>Where the time of a step goes</h2>\n<p>" + row + "</p>\n";
}

std::string ranks_part(const std::string& slowest_json) {
  simdjson::dom::parser parser;
  Json slowest;
  if (slowest_json.empty() || parser.parse(slowest_json).get(slowest)) return {};
  const simdjson::dom::array ranks = list_of(slowest, "ranks");
  if (ranks.size() == 0) return {};
  std::string out = format(
      "<h2>Slowest ranks, steps %s to %s</h2>\n<div class=\"wide\"><table><tr><th>rank<th>host<th>own time<th>beyond "
      "peers<th>at worst<th>made others wait</tr>\n",
      whole(slowest, "from_step").c_str(), whole(slowest, "to_step").c_str());
  for (Json rank : ranks)
    out += format("<tr><td>%.0f<td>%s<td>%s<td>%s<td>%s<td>%s</tr>\n", number_of(rank, "rank"),
                  shown(rank, "host").c_str(), ms_text(rank, "own_ms").c_str(), ms_text(rank, "excess_ms").c_str(),
                  ms_text(rank, "worst_excess_ms").c_str(), ms_text(rank, "made_wait_ms").c_str());
  out += "</table></div>\n";
  const double total = number_of(slowest, "total");
  return out + format("<p class=\"dim\">%zu of %s ranks, worst first; means a step</p>\n", ranks.size(),
                      with_thousands(static_cast<int64_t>(total)).c_str());
}

std::vector<double> numbers_in(const simdjson::dom::array& list) {
  std::vector<double> numbers;
  for (Json one : list) {
    double value = std::numeric_limits<double>::quiet_NaN();
    if (one.get_double().get(value)) value = std::numeric_limits<double>::quiet_NaN();
    numbers.push_back(value);
  }
  return numbers;
}

// What the pictures show, asked for in as many parts as the ranks need.
struct Pictures {
  std::string step_time, heat;
  size_t ranks = 0, steps = 0;
};

Result<Pictures> draw_pictures(ServerCalls& calls, const std::string& job_path, const std::vector<StepMark>& marks) {
  Pictures pictures;
  std::optional<HeatMap> heat;
  std::string window = "last=200";  // of the first part; the others ask for the same steps
  int64_t rank_from = 0;
  for (size_t index = 0; index < kHeatRanksMax;) {
    const Response answer = calls.ask(
        format("%s/steps?%s&rank_from=%lld", job_path.c_str(), window.c_str(), static_cast<long long>(rank_from)));
    if (answer.exit_code != kExitOk) return Error{answer.message};
    simdjson::dom::parser parser;
    Json matrix;
    if (parser.parse(answer.body).get(matrix))
      return Error{std::string(kProgram) + ": the server's answer is not JSON"};
    std::vector<int64_t> steps;
    for (double step : numbers_in(list_of(matrix, "steps"))) steps.push_back(static_cast<int64_t>(step));
    if (!heat) {
      if (steps.empty()) return pictures;
      window = format("from=%lld&to=%lld", static_cast<long long>(steps.front()), static_cast<long long>(steps.back()));
      pictures.steps = steps.size();
      pictures.ranks = std::min(kHeatRanksMax, static_cast<size_t>(number_of(matrix, "ranks_total")));
      pictures.step_time = step_time_picture(steps, numbers_in(list_of(matrix, "step_ms")), marks);
      heat.emplace(pictures.ranks, steps);
    }
    const std::vector<double> ranks = numbers_in(list_of(matrix, "ranks"));
    size_t at = 0;
    for (Json row : list_of(matrix, "excess_ms")) {
      simdjson::dom::array values;
      if (at < ranks.size() && !row.get_array().get(values))
        heat->add(index + at, static_cast<int64_t>(ranks[at]), numbers_in(values));
      ++at;
    }
    if (ranks.empty()) break;
    index += ranks.size();
    rank_from = static_cast<int64_t>(ranks.back()) + 1;
    if (index >= pictures.ranks) break;
  }
  if (heat && heat->worst_ms() > 0) pictures.heat = heat->picture();
  return pictures;
}

std::string pictures_part(const Pictures& pictures) {
  std::string out;
  if (!pictures.step_time.empty())
    out +=
        "<h2>How long does a step take?</h2>\n<figure>" + pictures.step_time +
        "<figcaption>Step time over the last steps; a dashed line is where a verdict begins.</figcaption></figure>\n";
  if (!pictures.heat.empty()) {
    const size_t shared = (pictures.ranks + kHeatRows - 1) / kHeatRows;
    out += "<h2>Who is slower than its peers, and when?</h2>\n<figure>" + pictures.heat +
           "<figcaption>Own time beyond the peers' median, by rank and step." +
           (shared > 1 ? format(" %zu ranks share a row; the slowest of them is what is seen.", shared) : "") +
           "</figcaption></figure>\n";
  }
  return out;
}

std::vector<StepMark> marks_of(const Json& why) {
  std::vector<StepMark> marks;
  for (Json verdict : list_of(why, "verdicts")) {
    if (term_in<VerdictState>(verdict, "state") == VerdictState::kCleared) continue;
    Json culprit;
    const std::string who = verdict["culprit"].get(culprit) ? "" : text_of(culprit, "component");
    marks.push_back({static_cast<int64_t>(number_of(verdict, "since_step")), text_of(verdict, "kind") + ": " + who});
  }
  return marks;
}

std::string heading(const Json& job, const std::string& cost_json) {
  std::string out = "<title>" + shown(job, "job_id") + " · Lockstep report</title>\n<main>\n<h1>" +
                    shown(job, "job_id") + "</h1>\n<p class=\"dim\">" +
                    format("step %s · %s ranks · %s a step · %s · last heard of %s", whole(job, "last_step").c_str(),
                           whole(job, "world_size").c_str(), ms_text(job, "step_ms").c_str(),
                           shown(job, "state").c_str(), when(number_of(job, "last_seen_unix_ns")).c_str()) +
                    "</p>\n";
  simdjson::dom::parser parser;
  Json cost;
  if (!cost_json.empty() && !parser.parse(cost_json).get(cost) && number_of(cost, "lost_share") >= 0.01)
    out += "<p>" + shown(cost, "sentence") + "</p>\n";
  return out;
}

// The exit code, where there is no report.
std::optional<int> make_report(const std::string& server, const std::string& job, std::string& html) {
  constexpr int64_t kTimeoutMs = 30'000;
  ServerCalls calls(server, kProgram, kTimeoutMs);
  const std::string job_path = "/api/jobs/" + url_part(job);
  const Response why_answer = calls.ask(job_path + "/why");
  if (why_answer.exit_code != kExitOk) return print_failure(why_answer);
  simdjson::dom::parser parser;
  Json why, about;
  if (parser.parse(why_answer.body).get(why) || why["job"].get(about)) return not_understood(kProgram);
  const Response cost = calls.ask(job_path + "/cost");  // what an older server has not is left out
  const Response slowest = calls.ask(job_path + format("/slowest?last=50&limit=%zu", kRanks));
  const Result<Pictures> pictures = draw_pictures(calls, job_path, marks_of(why));
  if (!pictures.ok()) {
    std::fprintf(stderr, "%s\n", pictures.error().c_str());
    return kExitFailed;
  }
  html = kHead + heading(about, cost.exit_code == kExitOk ? cost.body : "") + verdicts_part(why) +
         pictures_part(*pictures) + where_time_goes(why) + ranks_part(slowest.exit_code == kExitOk ? slowest.body : "");
  html += format("<footer><p>Made by lockstep report on %s, from %s/jobs/%s</p></footer>\n</main>\n</html>\n",
                 when(static_cast<double>(SystemClock().unix_ns())).c_str(), escaped(page_of(server)).c_str(),
                 escaped(url_part(job)).c_str());
  return std::nullopt;
}

// "lockstep-llama-70b.html", whatever the job is called.
std::string file_name(const std::string& job) {
  std::string name;
  for (char c : job.substr(0, 80)) {
    const bool tame =
        std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || (c == '.' && !name.empty());
    name += tame ? c : '-';
  }
  return "lockstep-" + name + ".html";
}

}  // namespace

int run_report(const Arguments& arguments) {
  std::string server = default_server(), out;
  Flags flags(kProgram, "a job as one HTML file to send to somebody: verdicts, evidence, pictures, numbers", "JOB");
  add_server_flags(flags, &server)
      .text(&out, "--out", "FILE", "where to (default lockstep-JOB.html in this folder; -: standard output)");
  if (std::optional<int> code =
          answered(flags, arguments, "The file loads nothing and runs no script; it can be printed.\n"))
    return *code;
  const std::string& job = flags.positional()[0];
  std::string html;
  if (std::optional<int> code = make_report(server, job, html)) return *code;
  if (out == "-") {
    std::fwrite(html.data(), 1, html.size(), stdout);
    return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
  }
  if (out.empty()) out = file_name(job);
  if (Result<void> written = write_file_atomically(out, html); !written.ok()) {
    std::fprintf(stderr, "%s: --out: %s\n", kProgram, written.error().c_str());
    return kExitFailed;
  }
  std::printf("%s (%s)\n", out.c_str(), human_bytes(static_cast<double>(html.size())).c_str());
  return kExitOk;
}

}  // namespace lockstep::cli
