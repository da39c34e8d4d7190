// `lockstep top`: jobs worst first, live, and down from a job to its ranks and one rank. Plain escapes, so that it works
// over any ssh; without a terminal one frame is printed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "apps/cli/answer_json.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/screen.h"
#include "apps/cli/server_call.h"
#include "apps/cli/terminal.h"
#include "apps/cli/wrapped.h"
#include "base/characters.h"
#include "base/clock.h"
#include "base/flags.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::cli {
namespace {

constexpr const char* kProgram = "lockstep top";
constexpr size_t kRanksMax = 1000;

struct Row {
  std::string text;       // as shown
  std::string key;        // what is filtered by, and what Enter goes to
  std::string said = {};  // shown in full below, while it is selected
};

// What one level shows.
struct View {
  std::string title;
  std::vector<std::string> about;  // above the table, wrapped to the screen
  std::string header;              // of the table
  std::vector<Row> rows;
  std::string problem;  // one line, where the answer did not come
  int exit_code = kExitOk;
};

std::string ms_of(const Json& object, const char* key) {
  const double ms = number_of(object, key, std::numeric_limits<double>::quiet_NaN());
  return std::isfinite(ms) ? human_duration(ms * 1e6) : "-";
}

std::string whole_of(const Json& object, const char* key) {
  return with_thousands(static_cast<int64_t>(number_of(object, key)));
}

Paint paint_of(const std::string& health) {
  return health == "suspected" ? Paint::kWarn : Paint::kBad;
}

// Names may be long: the columns of numbers stay where they are.
std::string cell(const std::string& text, size_t columns) {
  return padded(clipped(text, columns), columns);
}

struct Source {
  ServerCalls calls;
  View ask(const std::string& path, const std::function<void(const Json&, View&)>& fill) {
    View view;
    const Response answer = calls.ask(path);
    if (answer.exit_code != kExitOk) {
      view.problem = answer.message;
      view.exit_code = answer.exit_code;
      return view;
    }
    simdjson::dom::parser parser;
    Json document;
    if (parser.parse(answer.body).get(document))
      view.problem = "the server's answer is not JSON";
    else
      fill(document, view);
    return view;
  }
};

View fleet_view(Source& source, size_t columns) {
  const size_t name = std::clamp<size_t>(columns / 4, 16, 48);
  return source.ask("/api/jobs?limit=1000", [&](const Json& document, View& view) {
    view.header =
        cell("JOB", name) + cell(" HEALTH", 11) + format("%7s %10s %10s  ", "RANKS", "STEP", "STEP TIME") + "WHY";
    size_t bad = 0;
    for (Json job : list_of(document, "jobs")) {
      const std::string id = text_of(job, "job_id"), health = text_of(job, "health");
      const bool is_well = health == "ok" || health == "unknown";
      bad += is_well ? 0 : 1;
      const std::string state = text_of(job, "state") == "running" ? "" : text_of(job, "state") + ". ";
      view.rows.push_back({cell(id, name) + " " + padded(is_well ? health : painted(paint_of(health), health), 10) +
                               format("%7s %10s %10s  ", whole_of(job, "world_size").c_str(),
                                      whole_of(job, "last_step").c_str(), ms_of(job, "step_ms").c_str()) +
                               state + text_of(job, "sentence"),
                           id, text_of(job, "sentence")});
    }
    view.title = format("%s jobs, %zu not well", whole_of(document, "total").c_str(), bad);
    if (view.rows.empty()) view.about = {"No jobs yet. Start one with lockstep run, or see lockstep demo."};
  });
}

View job_view(Source& source, const std::string& job) {
  View view = source.ask("/api/jobs/" + url_part(job) + "/why", [&](const Json& why, View& filled) {
    Json about;
    if (why["job"].get(about)) return;
    filled.title = format("%s · step %s · %s ranks · %s a step", job.c_str(), whole_of(about, "last_step").c_str(),
                          whole_of(about, "world_size").c_str(), ms_of(about, "step_ms").c_str());
    constexpr size_t kVerdicts = 3;
    size_t open = 0;
    for (Json verdict : list_of(why, "verdicts")) {
      const std::optional<VerdictState> state = term_in<VerdictState>(verdict, "state");
      if (state == VerdictState::kCleared || ++open > kVerdicts) continue;
      filled.about.push_back(
          painted(state == VerdictState::kConfirmed ? Paint::kBad : Paint::kWarn, text_of(verdict, "state")) + "  " +
          text_of(verdict, "sentence"));
    }
    if (open > kVerdicts) filled.about.push_back(format("%zu more: lockstep why", open - kVerdicts));
    if (open == 0) filled.about.push_back(text_of(why, "summary"));
  });
  if (!view.problem.empty()) return view;
  const View ranks = source.ask(
      "/api/jobs/" + url_part(job) + format("/ranks?last=20&limit=%zu", kRanksMax),
      [](const Json& document, View& filled) {
        filled.header = format("%8s  %-16s %10s %10s %10s %10s %10s", "RANK", "HOST", "OWN TIME", "BEYOND", "COMM",
                               "INPUT", "STEP TIME");
        for (Json rank : list_of(document, "ranks")) {
          const std::string number = format("%.0f", number_of(rank, "rank"));
          filled.rows.push_back(
              {format("%8s  %s %10s %10s %10s %10s %10s", number.c_str(), cell(text_of(rank, "host"), 16).c_str(),
                      ms_of(rank, "self_ms").c_str(), ms_of(rank, "excess_ms").c_str(), ms_of(rank, "comm_ms").c_str(),
                      ms_of(rank, "input_ms").c_str(), ms_of(rank, "duration_ms").c_str()),
               number});
        }
      });
  view.header = ranks.header;
  view.rows = ranks.rows;
  view.problem = ranks.problem;
  view.exit_code = ranks.exit_code;
  return view;
}

View rank_view(Source& source, const std::string& job, const std::string& rank) {
  return source.ask("/api/jobs/" + url_part(job) + "/ranks/" + url_part(rank) + "?last=50", [&](const Json& document,
                                                                                                View& view) {
    view.title = job + " · rank " + rank + " · " + text_of(document, "host");
    view.header = format("%10s %10s %10s %10s", "STEP", "STEP TIME", "OWN TIME", "COMM");
    std::vector<Row> rows;
    for (Json step : list_of(document, "steps"))
      rows.push_back({format("%10s %10s %10s %10s", whole_of(step, "step").c_str(), ms_of(step, "duration_ms").c_str(),
                             ms_of(step, "self_ms").c_str(), ms_of(step, "comm_ms").c_str()),
                      whole_of(step, "step")});
    view.rows.assign(rows.rbegin(), rows.rend());  // newest first
  });
}

// Where the reader is, and what is on the screen.
class Top {
 public:
  Top(const std::string& server, std::string job, int64_t seconds)
      : source_{ServerCalls(server, kProgram, 5'000)}, seconds_(seconds) {
    if (!job.empty()) path_.push_back(std::move(job));
  }

  void poll() {
    const size_t columns = terminal_size().value_or(TerminalSize{}).columns;
    View next = path_.empty()       ? fleet_view(source_, columns)
                : path_.size() == 1 ? job_view(source_, path_[0])
                                    : rank_view(source_, path_[0], path_[1]);
    // While the server is away, what was last seen stays, with a word about it.
    const bool is_new = next.problem.empty();
    if (!is_new && !view_.rows.empty())
      view_.problem = next.problem;
    else
      view_ = std::move(next);
    if (is_new) seen_ = utc_time(SystemClock().unix_ns() / 1'000'000, "%H:%M:%S") + " UTC";
    select();
  }

  // Every line of a screen of that size.
  std::string frame(TerminalSize size, bool with_keys);
  int run(Screen& screen);
  const std::string& problem() const { return view_.problem; }
  int exit_code() const { return view_.exit_code == kExitOk ? kExitFailed : view_.exit_code; }

 private:
  void select();
  void move(int64_t by);
  bool press(int key);  // false: the end
  void enter();
  bool leave();  // false: it is the uppermost
  bool edit_filter(int key);

  Source source_;
  const int64_t seconds_;
  std::vector<std::string> path_;  // job, rank
  View view_;
  std::vector<size_t> shown_;  // rows that the filter leaves
  std::vector<std::string> selected_keys_ = {""};
  size_t selected_ = 0, first_ = 0, page_ = 10;
  std::string filter_, seen_;
  bool editing_ = false, stale_ = false;
};

// The rows that the filter leaves; the selection stays on its row, wherever that is now.
void Top::select() {
  shown_.clear();
  const std::string wanted = lower_case(filter_);
  for (size_t i = 0; i < view_.rows.size(); ++i) {
    if (lower_case(view_.rows[i].text).find(wanted) != std::string::npos ||
        lower_case(view_.rows[i].key).find(wanted) != std::string::npos)
      shown_.push_back(i);
  }
  selected_ = std::min(selected_, shown_.empty() ? 0 : shown_.size() - 1);
  for (size_t i = 0; i < shown_.size(); ++i) {
    if (view_.rows[shown_[i]].key == selected_keys_.back() && selected_ != 0) selected_ = i;
  }
}

void Top::move(int64_t by) {
  const auto last = static_cast<int64_t>(shown_.size()) - 1;
  selected_ =
      static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(selected_) + by, 0, std::max<int64_t>(last, 0)));
  if (!shown_.empty()) selected_keys_.back() = view_.rows[shown_[selected_]].key;
}

std::string Top::frame(TerminalSize size, bool with_keys) {
  std::string out = painted(Paint::kStrong, "lockstep top") + "  " + view_.title;
  size_t lines = 1;
  const auto add = [&](const std::string& line) {
    out += "\n" + line;
    ++lines;
  };
  if (!view_.problem.empty()) add(painted(Paint::kBad, as_one_line(view_.problem)));
  for (const std::string& text : view_.about) {
    const std::string lines_of_text = wrapped(text, 0, "", size.columns);
    for (std::string_view line : split(trim(lines_of_text), '\n')) add(std::string(line));
  }
  add("");
  if (!view_.header.empty()) add(painted(Paint::kDim, view_.header));
  std::string said;
  if (with_keys && !shown_.empty()) said = trim(wrapped(view_.rows[shown_[selected_]].said, 0, "", size.columns));
  const size_t said_lines = said.empty() ? 0 : split(said, '\n').size() + 1;
  const size_t room = size.rows > lines + 1 + said_lines ? size.rows - lines - 1 - said_lines : 1;
  page_ = room;
  if (selected_ < first_) first_ = selected_;
  if (selected_ >= first_ + room) first_ = selected_ - room + 1;
  if (!with_keys) first_ = 0;
  const size_t end = std::min(shown_.size(), first_ + room);
  for (size_t i = first_; i < end; ++i) {
    const std::string line = clipped(view_.rows[shown_[i]].text, size.columns);
    add(with_keys && i == selected_ ? "\x1b[7m" + padded(without_escapes(line), size.columns) + "\x1b[0m" : line);
  }
  if (!with_keys) return out + (end < shown_.size() ? format("\n%zu of %zu, worst first", end, shown_.size()) : "");
  while (lines + 1 + said_lines < size.rows) add("");
  if (!said.empty()) {
    add("");
    for (std::string_view line : split(said, '\n')) add(std::string(line));
  }
  const std::string what = editing_           ? "/" + filter_ + "_   Enter keeps the filter, Esc drops it"
                           : path_.size() < 2 ? "Enter down  Esc up  / filter  q end"
                                              : "Esc up  / filter  q end";
  const std::string kept = !editing_ && !filter_.empty() ? "   filter: " + filter_ : "";
  add(painted(Paint::kDim,
              clipped(format("%s%s   %zu of %zu   every %lld s, %s", what.c_str(), kept.c_str(), shown_.size(),
                             view_.rows.size(), static_cast<long long>(seconds_), seen_.c_str()),
                      size.columns)));
  return out;
}

void Top::enter() {
  if (path_.size() >= 2 || shown_.empty()) return;
  path_.push_back(view_.rows[shown_[selected_]].key);
  selected_keys_.emplace_back();
  filter_.clear();
  selected_ = first_ = 0;
  view_ = {};
  stale_ = true;
}

bool Top::leave() {
  if (!filter_.empty()) {
    filter_.clear();
    select();
    return true;
  }
  if (path_.empty()) return false;
  path_.pop_back();
  if (selected_keys_.size() > 1) selected_keys_.pop_back();
  selected_ = selected_keys_.back().empty() ? 0 : 1;  // select() finds its row
  first_ = 0;
  view_ = {};
  stale_ = true;
  return true;
}

// True: the key was for the filter.
bool Top::edit_filter(int key) {
  constexpr size_t kFilterMax = 200;
  if (!editing_) return false;
  if (key == Screen::kEscape) filter_.clear();
  if (key == Screen::kEscape || key == Screen::kEnter) editing_ = false;
  if ((key == 127 || key == 8) && !filter_.empty()) filter_.pop_back();
  if (key >= ' ' && key < 127 && filter_.size() < kFilterMax) filter_ += static_cast<char>(key);
  selected_ = 0;
  select();
  return true;
}

bool Top::press(int key) {
  if (edit_filter(key)) return true;
  const auto page = static_cast<int64_t>(page_);
  switch (key) {
    case 'q':
    case 3:
      return false;
    case Screen::kUp:
    case 'k':
      move(-1);
      break;
    case Screen::kDown:
    case 'j':
      move(1);
      break;
    case Screen::kPageUp:
      move(-page);
      break;
    case Screen::kPageDown:
    case ' ':
      move(page);
      break;
    case Screen::kHome:
    case 'g':
      move(INT32_MIN);
      break;
    case Screen::kEndKey:
    case 'G':
      move(INT32_MAX);
      break;
    case Screen::kEnter:
    case '\n':
      enter();
      break;
    case Screen::kEscape:
      leave();
      break;
    case '/':
      editing_ = true;
      break;
    default:
      break;
  }
  return true;
}

int Top::run(Screen& screen) {
  const SystemClock clock;
  int64_t next_ns = clock.monotonic_ns() + seconds_ * 1'000'000'000;
  for (;;) {
    screen.draw(frame(terminal_size().value_or(TerminalSize{}), true));
    const int64_t left_ms = (next_ns - clock.monotonic_ns()) / 1'000'000;
    const int key = stale_ ? 0 : screen.wait_key(std::max<int64_t>(left_ms, 0));
    if (key == Screen::kEnd) return kExitOk;
    if (key != 0 && key != Screen::kResized && !press(key)) return kExitOk;
    if (stale_ || clock.monotonic_ns() >= next_ns) {
      stale_ = false;
      poll();
      next_ns = clock.monotonic_ns() + seconds_ * 1'000'000'000;
    }
    if (screen.ended()) return kExitOk;
  }
}

}  // namespace

int run_top(const Arguments& arguments) {
  std::string server = default_server();
  int64_t seconds = 2;
  Flags flags(kProgram, "jobs worst first, live; Enter goes down to ranks and one rank", "[JOB]");
  add_server_flags(flags, &server).number(&seconds, "--every", "SECONDS", "how often to ask (default 2)", 1, 3600);
  if (std::optional<int> code = answered(flags, arguments,
                                         "keys: Enter down, Esc up, / filter, arrows or j k, PgUp PgDn, q ends\n"
                                         "without a terminal: one frame\n"))
    return *code;
  Top top(server, flags.positional().empty() ? "" : flags.positional()[0], seconds);
  top.poll();
  const bool live = Screen::possible(true);
  if (!top.problem().empty() || !live) {
    // One frame, all of it, as wide as the output.
    if (!top.problem().empty()) {
      std::fprintf(stderr, "%s\n", top.problem().c_str());
      return top.exit_code();
    }
    std::printf("%s\n", top.frame({.columns = row_columns().value_or(200), .rows = 50}, false).c_str());
    return kExitOk;
  }
  Screen screen(true);
  return top.run(screen);
}

}  // namespace lockstep::cli
