#include "control/captures.h"

#include <algorithm>

#include "base/json_reader.h"
#include "base/log.h"
#include "base/median.h"
#include "base/random_id.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kHourNs = 3'600 * kSecondNs;
constexpr int64_t kLimitAddedS = 60;
constexpr int64_t kStepsLooked = 8;  // to know how long a step takes
constexpr size_t kVerdictsMax = 10'000;
constexpr size_t kJobsChosenMax = 10'000;

// 0: not known.
int64_t typical_step_ns(const StepStore& steps, const JobInfo& job) {
  if (job.last_step == kNoStep) return 0;
  std::vector<int64_t> durations;
  const StepNumber from{std::max<int64_t>(0, job.last_step.value() - kStepsLooked)};
  steps.visit_steps(job.job_id, from, job.last_step,
                    [&](const Identity&, const StepSummary& step) { durations.push_back(step.duration_ns); });
  return upper_median_in_place(durations);
}

std::optional<ProfileState> state_of(std::string_view text) {
  for (const ProfileState state : {ProfileState::kArmed, ProfileState::kWaiting, ProfileState::kTracing,
                                   ProfileState::kUploading, ProfileState::kDone, ProfileState::kFailed}) {
    if (text == to_text(state)) return state;
  }
  return std::nullopt;
}

}  // namespace

const char* to_text(SummaryState state) {
  constexpr const char* kNames[] = {"none", "analysing", "ready", "failed"};
  return kNames[static_cast<size_t>(state)];
}

size_t Capture::traces() const {
  return static_cast<size_t>(
      std::count_if(ranks.begin(), ranks.end(), [](const CaptureRank& rank) { return !rank.key.empty(); }));
}

bool Capture::ended() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const CaptureRank& rank) { return is_end(rank.state); });
}

void write_capture(JsonWriter& json, const Capture& capture) {
  const ProfileRequest& order = capture.order;
  json.begin_object()
      .field("capture", order.capture)
      .field("job_id", order.job_id)
      .field("attempt", order.attempt)
      .field("begun_unix_ns", capture.begun_unix_ns)
      .field("by", capture.by)
      .field("start_step", order.start_step.value())
      .field("steps", order.steps)
      .field("start_unix_ms", order.start_unix_ms)
      .field("duration_ms", order.duration_ms)
      .field("limit_s", order.limit_s)
      .field("bytes_max", order.bytes_max)
      .field("shapes", order.shapes)
      .field("stacks", order.stacks)
      .field("ended", capture.ended())
      .field("analysis", to_text(capture.summary.state))
      .field("analysis_error", capture.summary.error)
      .field("analysed_traces", capture.summary.traces)
      .key("ranks")
      .begin_array();
  for (const CaptureRank& rank : capture.ranks) {
    json.begin_object()
        .field("rank", rank.rank.value())
        .field("host", rank.host)
        .field("reported", rank.is_reported)
        .field("state", to_text(rank.state))
        .field("reason", rank.reason)
        .field("at_unix_ns", rank.at_unix_ns);
    if (!rank.key.empty()) {
      json.field("file", profile_file_name(rank.rank))
          .field("key", rank.key)
          .field("bytes", rank.bytes)
          .field("sha256", rank.sha256)
          .field("first_step", rank.first_step.value())
          .field("steps", rank.steps);
    }
    json.end_object();
  }
  json.end_array().end_object();
}

Result<Capture> capture_from_json(std::string_view text) {
  const JsonDocument document = LOCKSTEP_TRY(JsonDocument::parse(text));
  const JsonValue root = document.root();
  const auto number = [](const JsonValue& value, int64_t fallback = 0) { return value.integer().value_or(fallback); };
  const auto words = [](const JsonValue& value) { return value.string().value_or(""); };
  Capture capture;
  ProfileRequest& order = capture.order;
  order.capture = words(root["capture"]);
  order.job_id = words(root["job_id"]);
  order.attempt = number(root["attempt"]);
  capture.begun_unix_ns = number(root["begun_unix_ns"]);
  capture.by = words(root["by"]);
  order.start_step = StepNumber{number(root["start_step"], -1)};
  order.steps = number(root["steps"]);
  order.start_unix_ms = number(root["start_unix_ms"]);
  order.duration_ms = number(root["duration_ms"]);
  order.limit_s = number(root["limit_s"]);
  order.bytes_max = number(root["bytes_max"]);
  order.shapes = root["shapes"].boolean().value_or(false);
  order.stacks = root["stacks"].boolean().value_or(false);
  // One that was under way is done anew.
  for (const SummaryState state : {SummaryState::kReady, SummaryState::kFailed}) {
    if (words(root["analysis"]) == to_text(state))
      capture.summary = {state, words(root["analysis_error"]), number(root["analysed_traces"])};
  }
  for (const JsonValue& one : root["ranks"]) {
    CaptureRank rank;
    rank.rank = Rank{static_cast<int32_t>(number(one["rank"], -1))};
    const std::optional<ProfileState> state = state_of(words(one["state"]));
    if (!state) return Error{"a capture whose rank has no state"};
    rank.state = *state;
    rank.host = words(one["host"]);
    rank.is_reported = one["reported"].boolean().value_or(false);
    rank.reason = words(one["reason"]);
    rank.at_unix_ns = number(one["at_unix_ns"]);
    rank.key = words(one["key"]);
    rank.bytes = number(one["bytes"]);
    rank.sha256 = words(one["sha256"]);
    rank.first_step = StepNumber{number(one["first_step"], -1)};
    rank.steps = number(one["steps"]);
    order.ranks.push_back(rank.rank);
    capture.ranks.push_back(std::move(rank));
  }
  LOCKSTEP_TRY(check(order));
  return capture;
}

Captures::Captures(CaptureLimits limits, bool is_automatic, const StepStore& steps, StateStore& state,
                   ProfileRequestSender& agents, const Clock& clock, Counters& counters)
    : limits_(limits),
      automatic_everywhere_(is_automatic),
      steps_(steps),
      state_(state),
      agents_(agents),
      clock_(clock),
      counters_(counters) {
  MutexLock lock(mutex_);
  for (const StoredCapture& stored : state_.captures()) {
    Result<Capture> capture = capture_from_json(stored.json);
    if (!capture.ok()) {
      LOCKSTEP_LOG_ERROR("state", "capture %s cannot be read: %s", stored.id.c_str(), capture.error().c_str());
      continue;
    }
    by_id_[stored.id] = {std::move(*capture), true};
  }
  std::vector<Entry*> waiting;
  for (auto& [id, entry] : by_id_) {
    entry.wants_analysis = wants_analysis(entry.capture);
    if (entry.wants_analysis) waiting.push_back(&entry);
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const Entry* a, const Entry* b) { return a->capture.begun_unix_ns > b->capture.begun_unix_ns; });
  for (size_t i = kAnalyzedAtStart; i < waiting.size(); ++i) {
    Capture& capture = waiting[i]->capture;
    capture.summary = {SummaryState::kFailed,
                       format("not analysed: %zu captures waited for it when the server started (limit %zu)",
                              waiting.size(), kAnalyzedAtStart),
                       static_cast<int64_t>(capture.traces())};
    changed(*waiting[i]);
  }
}

bool Captures::wants_analysis(const Capture& capture) {
  const auto traces = static_cast<int64_t>(capture.traces());
  return capture.summary.state != SummaryState::kAnalysing && traces > 0 && traces != capture.summary.traces &&
         capture.ended();
}

void Captures::changed(Entry& entry) {
  entry.is_saved = false;
  entry.wants_analysis = wants_analysis(entry.capture);
}

bool Captures::has_for_analysis() const {
  MutexLock lock(mutex_);
  return std::any_of(by_id_.begin(), by_id_.end(), [](const auto& one) { return one.second.wants_analysis; });
}

std::optional<Capture> Captures::take_for_analysis() {
  MutexLock lock(mutex_);
  Entry* newest = nullptr;
  for (auto& [id, entry] : by_id_) {
    if (!entry.wants_analysis) continue;
    if (newest == nullptr || entry.capture.begun_unix_ns > newest->capture.begun_unix_ns) newest = &entry;
  }
  if (newest == nullptr) return std::nullopt;
  newest->capture.summary.state = SummaryState::kAnalysing;
  newest->wants_analysis = false;
  return newest->capture;
}

void Captures::set_summary(const std::string& id, CaptureSummary summary) {
  MutexLock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  found->second.capture.summary = std::move(summary);
  changed(found->second);
}

std::string Captures::refused_by_limits(const JobInfo& job, const CaptureOrder& order) const {
  size_t running = 0, running_ranks = 0, of_job = 0, recent = 0;
  int64_t bytes = 0;
  const int64_t now_unix_ns = clock_.unix_ns();
  for (const auto& [id, entry] : by_id_) {
    const Capture& other = entry.capture;
    const bool is_same_job = other.order.job_id == job.job_id;
    if (is_same_job && now_unix_ns - other.begun_unix_ns < kHourNs) ++recent;
    if (other.ended()) continue;
    ++running;
    of_job += is_same_job;
    running_ranks += other.ranks.size();
    bytes += other.order.bytes_max * static_cast<int64_t>(other.ranks.size());
  }
  const int64_t wanted = order.bytes_max * static_cast<int64_t>(order.ranks.size());
  if (of_job >= limits_.running_per_job) return "a capture of this job is under way";
  if (running >= limits_.running_max) return format("%zu captures are under way (limit)", running);
  if (running_ranks + order.ranks.size() > limits_.running_ranks_max)
    return format("%zu ranks are being profiled, and at most %zu may be", running_ranks, limits_.running_ranks_max);
  if (recent >= limits_.per_job_and_hour) return format("%zu captures of this job in the last hour (limit)", recent);
  if (wanted > limits_.running_bytes_max - bytes)
    return format("captures under way may write %s, and at most %s may be",
                  human_bytes(static_cast<double>(bytes)).c_str(),
                  human_bytes(static_cast<double>(limits_.running_bytes_max)).c_str());
  return {};
}

ProfileRequest Captures::plan(const JobInfo& job, const CaptureOrder& order) const {
  const int64_t step_ns = typical_step_ns(steps_, job);
  ProfileRequest request{.job_id = job.job_id,
                         .attempt = job.attempt,
                         .capture = random_id("p"),
                         .steps = order.steps,
                         .shapes = order.shapes,
                         .stacks = order.stacks,
                         .ranks = order.ranks};
  int64_t ahead_ns = kLeadNs;
  int64_t duration_ns = kSecondNs;
  if (step_ns > 0) {
    const int64_t ahead = std::max<int64_t>(2, (kLeadNs + step_ns - 1) / step_ns + 1);
    request.start_step = job.last_step + ahead;
    ahead_ns = ahead * step_ns;
    duration_ns = order.steps * step_ns;
  }
  request.start_unix_ms = (clock_.unix_ns() + kLeadNs) / 1'000'000;
  request.duration_ms = std::clamp<int64_t>(duration_ns / 1'000'000, 100, 60'000);
  request.limit_s = order.limit_s > 0 ? order.limit_s
                                      : std::clamp<int64_t>((ahead_ns + 2 * duration_ns) / kSecondNs + kLimitAddedS,
                                                            kLimitAddedS, kProfileLimitSMax);
  request.bytes_max = order.bytes_max;
  return request;
}

Result<Capture> Captures::begin(const JobInfo& job, const CaptureOrder& wanted) {
  CaptureOrder order = wanted;
  if (order.bytes_max == 0) order.bytes_max = limits_.bytes_per_rank;
  const auto refuse = [&](const char* reason, std::string line) {
    counters_.add("lockstep_captures_refused_total", format("reason=\"%s\"", reason));
    return Error{std::move(line)};
  };
  if (order.ranks.empty() || order.ranks.size() > limits_.ranks_per_capture)
    return refuse("ranks",
                  format("a capture is of 1 to %zu ranks, not %zu", limits_.ranks_per_capture, order.ranks.size()));
  Capture capture{.order = plan(job, order), .begun_unix_ns = clock_.unix_ns(), .by = order.by};
  if (const Result<void> good = check(capture.order); !good.ok())
    return refuse("malformed", "an order that " + good.error());
  for (const Rank rank : order.ranks) {
    const auto known = std::find_if(job.ranks.begin(), job.ranks.end(),
                                    [&](const RankInfo& one) { return one.identity.rank == rank; });
    if (known == job.ranks.end())
      return refuse("unknown_rank", format("nobody has heard of rank %d of this job", rank.value()));
    if (known->ended) return refuse("ended", format("rank %d has ended", rank.value()));
    capture.ranks.push_back({.rank = rank, .host = known->identity.host, .at_unix_ns = capture.begun_unix_ns});
  }
  {
    MutexLock lock(mutex_);
    if (std::string why = refused_by_limits(job, order); !why.empty()) return refuse("limit", std::move(why));
    make_room();
    by_id_[capture.order.capture] = {capture, false};  // before an agent can say a word of it
    save_changed();
  }
  counters_.add("lockstep_captures_total", format("reason=\"%s\"", order.by == "person" ? "person" : "verdict"));
  ask_agents(capture);
  MutexLock lock(mutex_);
  Entry& entry = by_id_[capture.order.capture];
  for (size_t i = 0; i < capture.ranks.size() && i < entry.capture.ranks.size(); ++i) {
    if (capture.ranks[i].state == ProfileState::kFailed && !entry.capture.ranks[i].is_reported)
      entry.capture.ranks[i] = capture.ranks[i];
  }
  changed(entry);
  return entry.capture;
}

void Captures::ask_agents(Capture& capture) {
  std::map<std::string, std::vector<Rank>> by_host;
  for (const CaptureRank& rank : capture.ranks) by_host[rank.host].push_back(rank.rank);
  for (const auto& [host, ranks] : by_host) {
    ProfileRequest part = capture.order;
    part.ranks = ranks;
    if (!host.empty() && agents_.ask(host, part)) continue;
    for (CaptureRank& rank : capture.ranks) {
      if (rank.host != host) continue;
      rank.state = ProfileState::kFailed;
      rank.reason = host.empty() ? "no agent: nobody knows its host" : "its host is asked for too much already";
    }
  }
}

void Captures::make_room() {
  while (true) {
    size_t ranks = 0;
    auto oldest = by_id_.end();
    for (auto at = by_id_.begin(); at != by_id_.end(); ++at) {
      ranks += at->second.capture.ranks.size();
      if (!at->second.capture.ended()) continue;
      if (oldest == by_id_.end() || at->second.capture.begun_unix_ns < oldest->second.capture.begun_unix_ns)
        oldest = at;
    }
    if (by_id_.size() < limits_.kept_max && ranks < limits_.kept_ranks_max) return;
    if (oldest == by_id_.end()) return;  // what runs is bounded by itself
    (void)state_.drop_capture(oldest->first);
    by_id_.erase(oldest);
  }
}

std::vector<Capture> Captures::of_job(std::string_view job_id) const {
  MutexLock lock(mutex_);
  std::vector<Capture> all;
  for (const auto& [id, entry] : by_id_) {
    if (entry.capture.order.job_id == job_id) all.push_back(entry.capture);
  }
  std::sort(all.begin(), all.end(),
            [](const Capture& a, const Capture& b) { return a.begun_unix_ns > b.begun_unix_ns; });
  return all;
}

std::optional<Capture> Captures::find(std::string_view job_id, std::string_view id) const {
  MutexLock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second.capture.order.job_id != job_id) return std::nullopt;
  return found->second.capture;
}

void Captures::set_automatic(const std::string& job_id, bool on) {
  MutexLock lock(mutex_);
  if (automatic_.size() >= kJobsChosenMax && !automatic_.contains(job_id)) automatic_.erase(automatic_.begin());
  automatic_[job_id] = on;
}

bool Captures::is_automatic(std::string_view job_id) const {
  MutexLock lock(mutex_);
  const auto found = automatic_.find(job_id);
  return found != automatic_.end() ? found->second : automatic_everywhere_;
}

void Captures::note(const std::vector<Verdict>& changed) {
  if (!live_) return;
  for (const Verdict& verdict : changed) {
    // Of what stands still there is no kernel to see.
    if (verdict.state != VerdictState::kConfirmed || verdict.kind == VerdictKind::kHang) continue;
    if (!is_automatic(verdict.job_id) || verdict.culprit.ranks.empty()) continue;
    const std::optional<JobInfo> job = steps_.job(verdict.job_id);
    if (!job || job->attempt != verdict.attempt) continue;
    {
      MutexLock lock(mutex_);
      if (verdicts_seen_.size() >= kVerdictsMax) verdicts_seen_.clear();
      if (!verdicts_seen_.insert(verdict.id).second) continue;
      size_t of_job = 0, in_all = 0;
      for (const auto& [id, entry] : by_id_) {
        if (entry.capture.by == "person" || clock_.unix_ns() - entry.capture.begun_unix_ns >= kHourNs) continue;
        ++in_all;
        of_job += entry.capture.order.job_id == verdict.job_id;
      }
      if (of_job >= kAutomaticPerJob || in_all >= kAutomaticPerHour) {
        counters_.add("lockstep_captures_refused_total", "reason=\"budget\"");
        continue;
      }
    }
    CaptureOrder order{.ranks = verdict.culprit.ranks, .by = "verdict " + verdict.id};
    if (order.ranks.size() > kAutomaticRanksMax - 1) order.ranks.resize(kAutomaticRanksMax - 1);
    for (const RankInfo& rank : job->ranks) {  // one to compare with
      const auto& culprits = verdict.culprit.ranks;
      if (std::find(culprits.begin(), culprits.end(), rank.identity.rank) != culprits.end() || rank.ended) continue;
      order.ranks.push_back(rank.identity.rank);
      break;
    }
    std::sort(order.ranks.begin(), order.ranks.end());
    if (const Result<Capture> begun = begin(*job, order); !begun.ok())
      LOCKSTEP_LOG_INFO("control", "verdict %s: no profile: %s", verdict.id.c_str(), begun.error().c_str());
  }
}

CaptureRank* Captures::find_rank(const Identity& identity, std::string_view id, Entry** entry) {
  const auto found = by_id_.find(id);
  // Whose rank speaks is the resource's word, which was checked on its way in.
  if (found == by_id_.end() || found->second.capture.order.job_id != identity.job_id ||
      found->second.capture.order.attempt != identity.attempt)
    return nullptr;
  *entry = &found->second;
  for (CaptureRank& rank : found->second.capture.ranks) {
    if (rank.rank == identity.rank) return &rank;
  }
  return nullptr;
}

void Captures::on_profile_state(const Identity& identity, const ProfileProgress& progress, int64_t) {
  MutexLock lock(mutex_);
  Entry* entry = nullptr;
  CaptureRank* rank = find_rank(identity, progress.capture, &entry);
  // Read back from the log, or delivered twice: what is older than what is known says nothing.
  if (rank == nullptr || (rank->is_reported && progress.time_unix_ns < rank->at_unix_ns)) return;
  if (rank->is_reported && rank->state == ProfileState::kDone) return;
  rank->is_reported = true;
  rank->state = progress.state;
  rank->reason = progress.reason;
  rank->at_unix_ns = progress.time_unix_ns;
  changed(*entry);
}

void Captures::on_profile_ready(const Identity& identity, const ProfileReady& ready, int64_t) {
  MutexLock lock(mutex_);
  Entry* entry = nullptr;
  CaptureRank* rank = find_rank(identity, ready.capture, &entry);
  if (rank == nullptr) return;
  rank->is_reported = true;
  rank->state = ProfileState::kDone;
  rank->at_unix_ns = ready.time_unix_ns;
  rank->key = ready.key;
  rank->bytes = ready.bytes;
  rank->sha256 = ready.sha256;
  rank->first_step = ready.first_step;
  rank->steps = ready.steps;
  changed(*entry);
}

void Captures::poll(Entry& entry, int64_t now_unix_ns) {
  Capture& capture = entry.capture;
  const int64_t age_ns = now_unix_ns - capture.begun_unix_ns;
  bool is_changed = false;
  for (CaptureRank& rank : capture.ranks) {
    if (is_end(rank.state)) continue;
    if (!rank.is_reported && age_ns >= kSilentNs) {
      rank.reason = "no agent: none of " + rank.host + " has taken the order (none runs there, or the rank is gone)";
    } else if (rank.is_reported && age_ns >= capture.order.limit_s * kSecondNs + kUploadNs) {
      rank.reason = format("its agent has said nothing more after %s", to_text(rank.state));
    } else {
      continue;
    }
    rank.state = ProfileState::kFailed;
    is_changed = true;
  }
  if (is_changed) changed(entry);
}

void Captures::save_changed() {
  for (auto& [id, entry] : by_id_) {
    if (entry.is_saved) continue;
    JsonWriter json;
    write_capture(json, entry.capture);
    const Result<void> saved = state_.save_capture({id, entry.capture.begun_unix_ns, json.text()});
    if (!saved.ok()) {
      if (!failing_) LOCKSTEP_LOG_ERROR("state", "%s; trying again", saved.error().c_str());
      failing_ = true;
      return;
    }
    failing_ = false;
    entry.is_saved = true;
  }
}

void Captures::tick() {
  MutexLock lock(mutex_);
  const int64_t now_unix_ns = clock_.unix_ns();
  size_t running = 0;
  for (auto& [id, entry] : by_id_) {
    if (entry.capture.ended()) continue;
    poll(entry, now_unix_ns);
    running += !entry.capture.ended();
  }
  if (const int64_t now_ns = clock_.monotonic_ns(); now_ns >= next_save_ns_) {
    next_save_ns_ = now_ns + kSecondNs;
    save_changed();
  }
  counters_.set("lockstep_captures_running", "", static_cast<int64_t>(running));
}

}  // namespace lockstep
