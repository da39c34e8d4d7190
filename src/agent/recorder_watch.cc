#include "agent/recorder_watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "agent/evidence_taker.h"
#include "agent/kept_recorders.h"
#include "agent/step_rounding.h"
#include "agent/watched_rank.h"
#include "base/log.h"
#include "base/text.h"
#include "model/events.h"
#include "recorder/folder_reader.h"
#include "recorder/identity_variables.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// "lockstep-1000", a folder and no link, of user 1000: nobody else's files are read or removed through it.
bool is_users_folder(const std::string& parent, const std::string& name) {
  constexpr std::string_view kPrefix = "lockstep-";
  if (!name.starts_with(kPrefix)) return false;
  const std::optional<uint64_t> user = parse_uint(std::string_view(name).substr(kPrefix.size()));
  struct stat info {};
  return user && lstat((parent + "/" + name).c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == *user;
}

}  // namespace

RecorderWatch::RecorderWatch(WatchOptions options, const Clock& clock, Counters& counters, CallbackCost* cost,
                             RasWatch* ras, StepTraces* traces)
    : options_(std::move(options)), clock_(clock), counters_(counters), cost_(cost), ras_(ras), traces_(traces) {
  inotify_ = UniqueFd(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  find_folders();
}

RecorderWatch::~RecorderWatch() = default;

void RecorderWatch::wait() {
  pollfd wait_for{inotify_.get(), POLLIN, 0};
  const int64_t timeout_ms = std::max<int64_t>(0, next_look_ns()) / 1'000'000 + 1;
  if (poll(&wait_for, 1, static_cast<int>(timeout_ms)) > 0) {
    char events[4096];
    while (read(inotify_.get(), events, sizeof events) > 0) {
    }
  }
}

void RecorderWatch::find_folders() {
  std::vector<std::string> found{options_.folder};
  if (!options_.users_folder.empty()) {
    Result<std::vector<std::string>> names = list_directory(options_.users_folder);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>{}) {
      if (is_users_folder(options_.users_folder, name)) found.push_back(options_.users_folder + "/" + name);
    }
  }
  for (const std::string& folder : found) {
    if (folders_.contains(folder)) continue;
    folders_[folder] =
        inotify_.valid() ? inotify_add_watch(inotify_.get(), folder.c_str(), IN_MOVED_TO | IN_CREATE) : -1;
    shown_.push_back(show_that_folder_is_read(folder));
  }
}

void RecorderWatch::find_new() {
  if (!options_.users_folder.empty() && clock_.monotonic_ns() >= folders_at_ns_) {
    folders_at_ns_ = clock_.monotonic_ns() + kSecondNs;
    find_folders();
  }
  for (const auto& [folder, watch] : folders_) find_new_in(folder);
}

void RecorderWatch::find_new_in(const std::string& folder) {
  Result<std::vector<std::string>> names = list_directory(folder);
  if (!names.ok()) return;
  int64_t now = clock_.monotonic_ns();
  for (const std::string& name : *names) {
    if (!name.ends_with(kRecorderSuffix)) continue;
    const std::string path = folder + "/" + name;
    if (ranks_.contains(path)) continue;
    if (auto refused = refused_.find(path); refused != refused_.end() && now < refused->second) continue;
    Result<std::unique_ptr<RecorderReader>> reader = RecorderReader::open(path);
    if (!reader.ok()) {
      if (refused_.emplace(path, 0).second) {
        counters_.add("lockstep_agent_recorder_refused_total");
        LOCKSTEP_LOG_WARN("agent", "%s; not read", reader.error().c_str());
      }
      refused_[path] = now + 10 * kSecondNs;
      continue;
    }
    refused_.erase(path);
    auto rank = std::make_unique<Rank>();
    rank->path = path;
    rank->reader = std::move(reader).value();
    rank->header = rank->reader->header();
    rank->assembler = std::make_unique<RankAssembler>(rank->header.anchor_unix_ns - rank->header.anchor_monotonic_ns);
    rank->moved_ns = now;
    rank->found_ns = now;
    // Of all ranks at the same moment: one request, which compresses better than one of each.
    rank->metrics_at_ns = (now / options_.metrics_every_ns + 1) * options_.metrics_every_ns;
    ranks_[path] = std::move(rank);
  }
}

void RecorderWatch::count_refused(Rank& rank) {
  for (size_t i = 0; i < kRefusedReasons; ++i) {
    const uint64_t refused = rank.header.refused[i];
    if (refused <= rank.refused_seen[i]) continue;
    counters_.add("lockstep_plugin_refused_total", format("reason=\"%s\"", to_text(static_cast<Refused>(i))),
                  static_cast<int64_t>(refused - rank.refused_seen[i]));
    rank.refused_seen[i] = refused;
  }
}

void RecorderWatch::drain(Rank& rank, Look& look) {
  look.in_flight = rank.reader->in_flight();
  rank.assembler->set_comms(look.in_flight);
  RecordCounts before = rank.records;
  RecorderReader::Drained drained = rank.reader->drain([&](uint32_t lane, const Record& record) {
    if (record.head.type == RecordType::kProxyStep || record.head.type == RecordType::kProxyOp) {
      if (lane >= rank.proxy_lanes.size()) rank.proxy_lanes.resize(lane + 1);
      rank.proxy_lanes[lane] = true;
    }
    ++rank.records.read[record_kind(record.head.type)];
    rank.assembler->add(record);
  });
  if (rank.assembler->lacks_comm()) rank.assembler->add_comms(rank.reader->in_flight());
  rank.assembler->end_drain(look.now_ns, drained.overwritten + drained.torn);
  rank.records.overwritten += drained.overwritten;
  rank.records.torn += drained.torn;
  look.overwritten = drained.overwritten > 0;
  fullest_ = std::max(fullest_, drained.fullest);

  counters_.add("lockstep_agent_recorder_records_total", "", static_cast<int64_t>(drained.records));
  for (size_t kind = 0; kind < kRecordKinds.size(); ++kind) {
    if (rank.records.read[kind] == before.read[kind]) continue;
    counters_.add("lockstep_plugin_records_total", format("type=\"%s\"", kRecordKinds[kind]),
                  static_cast<int64_t>(rank.records.read[kind] - before.read[kind]));
  }
  auto lost = [&](const char* reason, uint64_t count) {
    if (count > 0) counters_.add("lockstep_agent_recorder_lost_total", reason, static_cast<int64_t>(count));
  };
  lost("reason=\"overwritten\"", drained.overwritten);
  lost("reason=\"torn\"", drained.torn);
  lost("reason=\"orphan\"", rank.assembler->orphans() - rank.orphans_seen);
  rank.orphans_seen = rank.assembler->orphans();
  lost("reason=\"malformed\"", rank.assembler->malformed() - rank.malformed_seen);
  rank.malformed_seen = rank.assembler->malformed();
  if (look.overwritten) {
    look.records.push_back(
        to_record(Gap{"ring_overwritten", static_cast<int64_t>(drained.overwritten)}, clock_.unix_ns()));
  }
}

void RecorderWatch::look_at(Rank& rank, bool flush, Harvest& harvest) {
  if (rank.dead) return;
  Look look;
  look.now_ns = clock_.monotonic_ns();
  look.flush = flush;
  const std::optional<ProcessState> writer = writer_state(*rank.reader, rank.header);
  look.alive = writer.has_value();
  look.stopped = writer && writer->stopped();

  rank.header = rank.reader->header();
  count_refused(rank);
  Identity identity{rank.header.job_id,     rank.header.attempt, rank.header.rank,    rank.header.world_size,
                    rank.header.local_rank, rank.header.host,    rank.header.gpu_uuid};
  if (identity.gpu_uuid.empty()) identity.gpu_uuid = rank.completion.gpu_uuid;
  const bool nameless = identity.job_id.starts_with(identity_variables::kUnknownJobPrefix);
  if (nameless && !rank.announced && !rank.completion.job_id.empty())
    identity.job_id = rank.completion.job_id;
  else if (rank.announced)
    identity.job_id = rank.identity.job_id;
  if (!(identity == rank.identity) || rank.resource.empty()) {
    rank.identity = std::move(identity);
    rank.resource = to_resource(rank.identity);
  }

  uint64_t written = rank.reader->written_total();
  uint64_t activity = rank.reader->last_activity_ns();
  look.moved = written != rank.written_seen || activity != rank.activity_seen;
  if (look.moved || !rank.announced || flush || !look.alive) drain(rank, look);
  // A rank whose number is not known yet (no RANK in its environment, no world communicator so far) belongs to no job.
  if (rank.identity.rank < 0) {
    if (!look.alive) rank.dead = true;
    return;
  }
  const bool may_be_named = rank.identity.job_id.starts_with(identity_variables::kUnknownJobPrefix) && !rank.announced;
  if (may_be_named && look.alive && !flush && look.now_ns - rank.found_ns < options_.completion_wait_ns) return;
  if (look.moved) {
    rank.written_seen = written;
    rank.activity_seen = activity;
    rank.moved_ns = look.now_ns;
  }
  // One drain more after death: the process may have written between our drain and our look at /proc.
  look.over = !look.alive && rank.death_noticed;
  rank.death_noticed = !look.alive;

  announce(rank, look);
  for (const ClosedStep& step :
       rank.assembler->take_steps(look.now_ns, look.over || flush || rank.assembler->shut_down())) {
    look.records.push_back(to_record(rounded_for_sending(step.summary)));
    if (traces_ != nullptr) traces_->add(rank.identity, step.detail, look.now_ns);
  }
  tell_progress(rank, look);
  if (!look.records.empty()) {
    rank.told_ns = look.now_ns;
    harvest.logs.push_back({.resource = rank.resource, .scope_name = kAgentScope, .logs = std::move(look.records)});
    rank.ticket_pending = true;
  }
  harvest.urgent |= look.urgent;
  if (look.now_ns >= rank.metrics_at_ns || look.over || flush) tell_metrics(rank, look, harvest);
  if (look.alive) adjust_detail(rank, look);
  if (look.over) rank.dead = true;
}

void RecorderWatch::adjust_detail(Rank& rank, const Look& look) {
  const std::optional<DetailPolicy::Change> change = rank.detail.decide({.now_ns = look.now_ns,
                                                                         .overwritten = look.overwritten,
                                                                         .silence = look.silence,
                                                                         .mask = rank.header.mask,
                                                                         .control = rank.header.control});
  if (!change) return;
  if (Result<void> asked = ask_detail(rank.path, change->wish); !asked.ok()) {
    rank.detail.give_up();
    LOCKSTEP_LOG_WARN("agent", "rank %d: its detail stays as it is: %s", rank.identity.rank, asked.error().c_str());
    return;
  }
  counters_.add("lockstep_agent_detail_changes_total", change->up ? "direction=\"up\"" : "direction=\"down\"");
  LOCKSTEP_LOG_INFO("agent", "rank %d: asked for %s detail (0x%x): %s", rank.identity.rank,
                    change->up ? "full" : "less", change->wish.mask,
                    change->up ? "it was silent" : "its records come faster than they can be read");
}

Harvest RecorderWatch::look_all(bool flush) {
  find_new();
  fullest_ = 0;
  Harvest harvest;
  for (auto& [name, rank] : ranks_) look_at(*rank, flush, harvest);
  ask_ras();
  tell_ras(harvest);
  if (traces_ != nullptr) harvest.spans = traces_->take(clock_.monotonic_ns());
  int64_t switched_off = 0;
  for (auto& [name, rank] : ranks_) switched_off += rank->header.switched_off != 0;
  counters_.set("lockstep_agent_recorders", "", static_cast<int64_t>(ranks_.size()));
  counters_.set("lockstep_agent_plugins_switched_off", "", switched_off);
  plan_.polled(clock_.monotonic_ns(), fullest_);
  const int64_t late_ms = plan_.late_ns() / 1'000'000;
  late_most_ms_ = std::max(late_most_ms_, late_ms);
  counters_.set("lockstep_agent_poll_late_ms", "which=\"last\"", late_ms);
  counters_.set("lockstep_agent_poll_late_ms", "which=\"most\"", late_most_ms_);
  return harvest;
}

Harvest RecorderWatch::look() {
  return look_all(false);
}

Harvest RecorderWatch::final_look() {
  return look_all(true);
}

void RecorderWatch::submitted(uint64_t ticket) {
  for (auto& [name, rank] : ranks_) {
    if (rank->ticket_pending) rank->ticket = ticket;
    rank->ticket_pending = false;
  }
}

void RecorderWatch::release(const std::function<bool(uint64_t)>& settled) {
  for (auto at = ranks_.begin(); at != ranks_.end();) {
    Rank& rank = *at->second;
    if (rank.dead && !rank.ticket_pending && settled(rank.ticket)) {
      if (rank.unclean && !options_.kept_folder.empty()) {
        if (Result<void> kept = KeptRecorders(options_.kept_folder).keep(rank.path); kept.ok()) {
          LOCKSTEP_LOG_INFO("agent", "rank %d died; its recorder is kept: lockstep postmortem %s", rank.identity.rank,
                            options_.kept_folder.c_str());
        } else {
          LOCKSTEP_LOG_WARN("agent", "rank %d died; its recorder could not be kept: %s", rank.identity.rank,
                            kept.error().c_str());
        }
      }
      for (const std::string& file : {rank.path, hook_word_path(rank.path), hook_stacks_path(rank.path)})
        unlink(file.c_str());
      at = ranks_.erase(at);
    } else {
      ++at;
    }
  }
}

std::vector<RecorderOwner> RecorderWatch::owners() const {
  std::vector<RecorderOwner> all;
  for (const auto& [path, rank] : ranks_) {
    if (rank->identity.rank < 0 || rank->dead) continue;
    RecorderOwner& owner =
        all.emplace_back(RecorderOwner{.pid = rank->header.pid, .path = path, .identity = rank->identity});
    const std::vector<uint32_t> producers = rank->reader->producers();
    for (size_t lane = 0; lane < std::min(producers.size(), rank->proxy_lanes.size()); ++lane) {
      if (rank->proxy_lanes[lane] && producers[lane] != 0)
        owner.proxy_threads.push_back(static_cast<int32_t>(producers[lane]));
    }
  }
  return all;
}

void RecorderWatch::complete(const std::string& path, const Completion& completion) {
  auto found = ranks_.find(path);
  if (found != ranks_.end()) found->second->completion = completion;
}

}  // namespace lockstep
