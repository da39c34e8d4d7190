#include "alert/actions/action_runner.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <tuple>

#include "alert/actions/command_run.h"
#include "alert/notify_messages.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr const char* kStates[] = {"waiting",     "dry-run", "running",  "done",   "failed",
                                   "interrupted", "limited", "silenced", "refused"};
constexpr size_t kLineBytes = 300;

std::optional<ActionState> state_of(std::string_view text) {
  for (size_t i = 0; i < std::size(kStates); ++i) {
    if (text == kStates[i]) return static_cast<ActionState>(i);
  }
  return std::nullopt;
}

bool was_run(ActionState state) {
  return state == ActionState::kRunning || state == ActionState::kDone || state == ActionState::kFailed ||
         state == ActionState::kInterrupted;
}

std::string to_json(const ActionRun& run) {
  JsonWriter json;
  json.begin_object()
      .field("id", run.id)
      .field("action", run.action)
      .field("verdict_id", run.verdict_id)
      .field("job_id", run.job_id)
      .field("cause", run.cause)
      .field("host", run.host)
      .field("sentence", run.sentence)
      .field("state", to_text(run.state))
      .field("line", run.line)
      .field("at_unix_ns", run.at_unix_ns)
      .end_object();
  return json.take();
}

// As it stands after a start. What cannot be read was run, as far as anybody knows: else it might be once more.
ActionRun run_of(const StoredAlertRow& row, int64_t now_unix_ns) {
  const Result<JsonDocument> document = JsonDocument::parse(row.json);
  const std::optional<ActionState> state =
      document.ok() ? state_of(document->root()["state"].string().value_or("")) : std::nullopt;
  if (!state) {
    const size_t slash = std::min(row.id.find('/'), row.id.size());
    return {.id = row.id,
            .action = row.id.substr(0, slash),
            .verdict_id = row.id.substr(std::min(slash + 1, row.id.size())),
            .state = ActionState::kInterrupted,
            .line = "what is kept of it cannot be read",
            .at_unix_ns = now_unix_ns};
  }
  const JsonValue json = document->root();
  const auto text = [&](const char* key) { return json[key].string().value_or(""); };
  ActionRun run{.id = row.id,  // not that of the JSON, which has only UTF-8
                .action = text("action"),
                .verdict_id = text("verdict_id"),
                .job_id = text("job_id"),
                .cause = text("cause"),
                .host = text("host"),
                .sentence = text("sentence"),
                .state = *state,
                .line = text("line"),
                .at_unix_ns = json["at_unix_ns"].integer().value_or(0)};
  if (run.state == ActionState::kRunning) {
    run.state = ActionState::kInterrupted;
    run.line = "the server ended while it ran; it is not run again";
  }
  return run;
}

// It goes to a program that may hand it on to others.
bool is_plain_host(std::string_view host) {
  return host.size() <= 253 && !host.starts_with('-') &&
         host.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:") ==
             std::string_view::npos;
}

std::string shown_text(std::string_view text) {
  return as_one_line(utf8_prefix(trim(text), kLineBytes));
}

}  // namespace

const char* to_text(ActionState state) {
  return kStates[static_cast<size_t>(state)];
}

ActionRunner::ActionRunner(std::vector<ActionConfig> actions, std::string external_url, StateStore& state,
                           const AlertRegistry& alerts, const Clock& clock, Counters& counters)
    : external_url_(std::move(external_url)),
      state_(state),
      alerts_(alerts),
      clock_(clock),
      counters_(counters),
      actions_(std::move(actions)) {
  read_back();
}

void ActionRunner::read_back() {
  const int64_t unix_ns = clock_.unix_ns(), monotonic_ns = clock_.monotonic_ns();
  {
    MutexLock lock(mutex_);
    if (knows_ || (tried_ns_ != 0 && monotonic_ns - tried_ns_ < kReadAgainNs)) return;
    tried_ns_ = monotonic_ns;
  }
  const Result<std::vector<StoredAlertRow>> rows = state_.alert_rows();
  if (!rows.ok()) return LOCKSTEP_LOG_ERROR("actions", "%s; nothing is done until that is read", rows.error().c_str());
  std::vector<StoredAlertRow> changed;
  {
    MutexLock lock(mutex_);
    knows_ = true;
    for (const StoredAlertRow& row : *rows) {
      if (row.kind != AlertRowKind::kAction) continue;
      ActionRun run = run_of(row, unix_ns);
      if (std::string json = to_json(run); json != row.json)
        changed.push_back({AlertRowKind::kAction, row.id, std::move(json)});
      if (was_run(run.state))
        began_ns_[run.action].push_back(monotonic_ns - std::max<int64_t>(0, unix_ns - run.at_unix_ns));
      runs_[row.id] = std::move(run);
    }
    for (auto& [action, began] : began_ns_) std::sort(began.begin(), began.end());
  }
  if (!changed.empty()) (void)state_.save_alert_rows(changed);
}

void ActionRunner::take_over(std::span<const StoredAlertRow> rows) {
  const int64_t unix_ns = clock_.unix_ns();
  MutexLock lock(mutex_);
  for (const StoredAlertRow& row : rows) {
    if (row.kind != AlertRowKind::kAction || runs_.contains(row.id) || !make_room(unix_ns)) continue;
    runs_[row.id] = run_of(row, unix_ns);
  }
}

void ActionRunner::reload(std::vector<ActionConfig> actions) {
  MutexLock lock(mutex_);
  actions_ = std::move(actions);
}

std::vector<ActionConfig> ActionRunner::actions() const {
  MutexLock lock(mutex_);
  return actions_;
}

std::vector<ActionRun> ActionRunner::runs() const {
  std::vector<ActionRun> list;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, run] : runs_) list.push_back(run);
  }
  std::sort(list.begin(), list.end(), [](const ActionRun& a, const ActionRun& b) {
    return std::tie(b.at_unix_ns, a.id) < std::tie(a.at_unix_ns, b.id);
  });
  return list;
}

ActionRunner::Fields ActionRunner::fields_of(const Verdict& verdict, const std::string& action,
                                             const std::string& path) const {
  const Culprit& culprit = verdict.culprit;
  Fields fields = {{"action", action},
                   {"verdict", verdict.id},
                   {"job", verdict.job_id},
                   {"kind", to_text(verdict.kind)},
                   {"cause", to_text(culprit.cause)},
                   {"layer", to_text(culprit.layer)},
                   {"host", culprit.host},
                   {"gpu", culprit.gpu_uuid},
                   {"component", culprit.component},
                   {"ranks", human_ranks(culprit.ranks, 64)},
                   {"confidence", format("%.2f", verdict.confidence)},
                   {"sentence", verdict.sentence},
                   {"link", absolute_link(path, external_url_)}};
  for (auto& [name, value] : fields) value = as_one_line(utf8_prefix(value, 2'000));
  return fields;
}

// The oldest goes, unless it is of a verdict that might then be acted on once more.
bool ActionRunner::make_room(int64_t now_unix_ns) {
  if (runs_.size() < kRunsMax) return true;
  const auto oldest = std::min_element(runs_.begin(), runs_.end(), [](const auto& a, const auto& b) {
    return a.second.at_unix_ns < b.second.at_unix_ns;
  });
  if (now_unix_ns - oldest->second.at_unix_ns < kFreshNs) return false;
  gone_.push_back(oldest->first);
  runs_.erase(oldest);
  return true;
}

// Every look finds it again: it is counted once.
void ActionRunner::leave_out(const std::string& action, const std::string& id) {
  if (left_out_.size() >= kRunsMax) left_out_.clear();
  if (!left_out_.insert(id).second) return;
  counters_.add("lockstep_actions_total", format("action=\"%s\",result=\"left_out\"", action.c_str()));
}

// One that stays on disk because it could not be dropped is one more after a start, and goes then.
void ActionRunner::drop_rows() {
  std::vector<StoredAlertRow> rows;
  {
    MutexLock lock(mutex_);
    for (std::string& id : gone_) {
      if (!runs_.contains(id)) rows.push_back({AlertRowKind::kAction, std::move(id), ""});
    }
    gone_.clear();
  }
  if (!rows.empty()) (void)state_.save_alert_rows(rows);
}

void ActionRunner::note(const Verdict& verdict, const std::string& fingerprint, const std::string& path,
                        int64_t now_unix_ns) {
  if (now_unix_ns - verdict.found_unix_ns > kFreshNs) return;
  MutexLock lock(mutex_);
  for (const ActionConfig& action : actions_) {
    if (!action.causes.contains(verdict.culprit.cause)) continue;
    const std::string id = action.name + "/" + verdict.id;
    if (runs_.contains(id)) continue;
    if (!knows_ || pending_.size() + noted_.size() >= kPendingMax || !make_room(now_unix_ns)) {
      leave_out(action.name, id);
      continue;
    }
    left_out_.erase(id);
    ActionRun run{.id = id,
                  .action = action.name,
                  .verdict_id = verdict.id,
                  .job_id = verdict.job_id,
                  .cause = to_text(verdict.culprit.cause),
                  .host = verdict.culprit.host,
                  .sentence = as_one_line(utf8_prefix(verdict.sentence, 1'000)),
                  .at_unix_ns = clock_.unix_ns()};
    runs_[id] = run;
    noted_.push_back({std::move(run), verdict.culprit.cause, fingerprint, fields_of(verdict, action.name, path)});
  }
}

void ActionRunner::release() {
  MutexLock lock(mutex_);
  for (Pending& pending : noted_) pending_.push_back(std::move(pending));
  noted_.clear();
}

void ActionRunner::round() {
  read_back();
  drop_rows();
  while (!stopping()) {
    Pending next;
    {
      MutexLock lock(mutex_);
      if (pending_.empty()) return;
      next = std::move(pending_.front());
      pending_.pop_front();
    }
    decide(std::move(next));
  }
}

bool ActionRunner::within_limit(const ActionConfig& action) {
  const int64_t now_ns = clock_.monotonic_ns();
  MutexLock lock(mutex_);
  std::deque<int64_t>& began = began_ns_[action.name];
  while (!began.empty() && now_ns - began.front() >= action.every_ms * 1'000'000) began.pop_front();
  if (began.size() >= static_cast<size_t>(action.limit)) return false;
  began.push_back(now_ns);
  return true;
}

std::optional<ActionConfig> ActionRunner::action_for(const Pending& pending) const {
  MutexLock lock(mutex_);
  for (const ActionConfig& action : actions_) {
    if (action.name == pending.run.action && action.causes.contains(pending.cause)) return action;
  }
  return std::nullopt;
}

void ActionRunner::decide(Pending pending) {
  ActionRun& run = pending.run;
  const auto not_done = [&](ActionState state, std::string line) {
    run.state = state;
    run.line = std::move(line);
    record(run);
  };
  // It may have waited behind others for long.
  const std::optional<ActionConfig> action = action_for(pending);
  if (!action) return not_done(ActionState::kRefused, "it was switched off meanwhile");
  if (!alerts_.is_firing(AlertSource::kVerdict, pending.fingerprint))
    return not_done(ActionState::kRefused, "the verdict is over");
  if (alerts_.is_silenced(pending.fingerprint))
    return not_done(ActionState::kSilenced, "a silence matches its alert: somebody works there");
  if (!is_plain_host(run.host)) return not_done(ActionState::kRefused, "the name of the host is none");
  if (action->causes.at(pending.cause) == ActionMode::kDryRun)
    return not_done(ActionState::kDryRun,
                    action->command.empty() ? "would call its webhook" : "would run " + action->command);
  if (!within_limit(*action))
    return not_done(ActionState::kLimited,
                    format("it has run %lld times within its time already", static_cast<long long>(action->limit)));
  perform(pending, *action);
}

void ActionRunner::perform(Pending& pending, const ActionConfig& action) {
  ActionRun& run = pending.run;
  run.state = ActionState::kRunning;
  if (const Result<void> kept = keep(run); !kept.ok()) {
    run.state = ActionState::kFailed;
    run.line = "not run, because that could not be written down: " + kept.error();
    return record(run);
  }
  const Result<int64_t> audited = state_.add_audit({.at_unix_ns = clock_.unix_ns(),
                                                    .tenant = {},
                                                    .who = "lockstepd",
                                                    .peer = {},
                                                    .action = "run action " + run.action,
                                                    .object = shown_text(run.host + " " + run.verdict_id)});
  if (!audited.ok()) {
    run.state = ActionState::kFailed;
    run.line = "not run, because the audit log cannot be written: " + audited.error();
    return record(run);
  }
  if (action.command.empty()) {
    call_webhook(pending, action, run);
  } else {
    Fields environment;
    for (const auto& [name, value] : pending.fields) {
      std::string upper = name;
      std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char one) { return std::toupper(one); });
      environment.emplace_back("LOCKSTEP_" + upper, value);
    }
    const Result<CommandResult> done =
        run_command(action.command, std::move(environment), action.timeout_ms, stop_fd());
    run.state = done.ok() && done->in_time && done->exit_code == 0 ? ActionState::kDone : ActionState::kFailed;
    run.line = !done.ok() ? done.error()
                          : format("%s %d: %s", done->in_time ? "exit code" : "took too long and was ended, exit code",
                                   done->exit_code, shown_text(done->output).c_str());
    if (stopping() && run.state == ActionState::kFailed) run.state = ActionState::kInterrupted;
  }
  (void)state_.finish_audit(*audited, shown_text(run.host + " " + run.verdict_id),
                            run.state == ActionState::kDone ? 200 : 500);
  record(run);
}

void ActionRunner::call_webhook(const Pending& pending, const ActionConfig& action, ActionRun& run) {
  std::string url = action.url, token;
  run.state = ActionState::kFailed;
  for (const auto& [file, to] : {std::pair(&action.url_file, &url), std::pair(&action.bearer_token_file, &token)}) {
    if (file->empty()) continue;
    Result<std::string> text = read_private_file(*file);
    if (!text.ok()) {
      run.line = text.error();
      return;
    }
    *to = std::move(*text);
  }
  const Result<RequestUrl> parsed = parse_request_url(url);
  if (!parsed.ok()) {
    run.line = "its url is none";
    return;
  }
  JsonWriter json;
  json.begin_object();
  for (const auto& [name, value] : pending.fields) json.field(name, value);
  json.end_object();
  HttpRequest request{"POST",
                      parsed->target,
                      {{"content-type", "application/json"},
                       {"user-agent", "lockstepd"},
                       {"connection", "close"},
                       {"idempotency-key", fingerprint_of({{"id", run.id}})}},
                      json.take()};
  if (!token.empty()) request.headers.emplace_back("authorization", "Bearer " + token);
  HttpClient client(parsed->server, action.timeout_ms, kNotifyAnswerBytesMax, action.tls);
  client.interrupt_by(stop_fd());
  client.cut_long_answers();
  const Result<HttpResponse> answer = client.send(request);
  if (answer.ok() && answer->status / 100 == 2) run.state = ActionState::kDone;
  run.line = answer.ok()
                 ? format("answers %d: %s", answer->status, shown_answer(answer->body, {token, parsed->target}).c_str())
                 : answer.error();
}

Result<void> ActionRunner::keep(const ActionRun& run) {
  const StoredAlertRow row{AlertRowKind::kAction, run.id, to_json(run)};
  const Result<void> saved = state_.save_alert_rows({&row, 1});
  MutexLock lock(mutex_);
  runs_[run.id] = run;
  return saved;
}

void ActionRunner::record(ActionRun run) {
  run.line = shown_text(run.line);
  if (!was_run(run.state))
    (void)state_.add_audit({.at_unix_ns = clock_.unix_ns(),
                            .tenant = {},
                            .who = "lockstepd",
                            .peer = {},
                            .action = format("%s action %s", to_text(run.state), run.action.c_str()),
                            .object = shown_text(run.host + " " + run.verdict_id),
                            .status = run.state == ActionState::kDryRun ? 200 : 403});
  counters_.add("lockstep_actions_total",
                format("action=\"%s\",result=\"%s\"", run.action.c_str(), to_text(run.state)));
  LOCKSTEP_LOG_INFO("actions", "action %s for verdict %s (%s on %s): %s: %s", run.action.c_str(),
                    as_one_line(run.verdict_id).c_str(), run.cause.c_str(), as_one_line(run.host).c_str(),
                    to_text(run.state), run.line.c_str());
  if (const Result<void> kept = keep(run); !kept.ok()) LOCKSTEP_LOG_ERROR("actions", "%s", kept.error().c_str());
}

}  // namespace lockstep
