#include "agent/ranks/recorder_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/evidence/evidence_taker.h"
#include "agent/evidence/evidence_uploads.h"
#include "agent/ranks/kept_recorders.h"
#include "agent/ranks/step_rounding.h"
#include "agent/ranks/user_limits.h"
#include "agent/ranks/watched_rank.h"
#include "base/log.h"
#include "base/text.h"
#include "model/events.h"
#include "recorder/folder_reader.h"
#include "recorder/identity_variables.h"
#include "sources/ownership/process_handle.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kTryAgainNs = 10 * kSecondNs;
constexpr int64_t kStoppedMostNs = 3'600 * kSecondNs;  // a step that says more would not be believed
constexpr int64_t kDrainsAfterDeathMax = 1024;         // of a file that somebody else goes on writing

// Of "lockstep-1000", where it is a folder of user 1000: nobody else's files are read or removed through it.
std::shared_ptr<const UserFolder> open_users_folder(const std::string& parent, const std::string& name) {
  constexpr std::string_view kPrefix = "lockstep-";
  if (!name.starts_with(kPrefix)) return nullptr;
  const std::optional<uint64_t> user = parse_uint(std::string_view(name).substr(kPrefix.size()));
  if (!user) return nullptr;
  Result<std::shared_ptr<const UserFolder>> opened = UserFolder::open(parent + "/" + name);
  return opened.ok() && (*opened)->owner() == *user ? *opened : nullptr;
}

}  // namespace

RecorderWatch::RecorderWatch(WatchOptions options, const Clock& clock, Counters& counters, CallbackCost* cost,
                             RasWatch* ras, StepTraces* traces)
    : options_(std::move(options)), clock_(clock), counters_(counters), cost_(cost), ras_(ras), traces_(traces) {
  inotify_ = UniqueFd(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!options_.kept_folder.empty())
    kept_ = std::make_unique<KeptRecorders>(options_.kept_folder, counters_, options_.keeper);
  find_folders();
}

RecorderWatch::~RecorderWatch() = default;

void RecorderWatch::wait() {
  int64_t timeout_ms = std::max<int64_t>(0, next_poll_ns()) / 1'000'000 + 1;
  // Half the time at most, whatever there is to read.
  if (behind_) timeout_ms = std::min(timeout_ms, user_limits::kPollNs / 1'000'000);
  // Every other wait at least is as long as it should be, however many files somebody makes.
  pollfd wait_for{woken_ ? -1 : inotify_.get(), POLLIN, 0};
  woken_ = ::poll(&wait_for, 1, static_cast<int>(timeout_ms)) > 0;
  char events[16'384];
  for (int i = 0; i < 8 && read(inotify_.get(), events, sizeof events) > 0; ++i) {
  }
}

void RecorderWatch::add_folder(std::shared_ptr<const UserFolder> held) {
  if (folders_.size() >= user_limits::kUsersMax) {
    user_limits::count_over(counters_, "users", held->owner());
    return;
  }
  Folder& folder = folders_[held->path()];
  folder.scan = std::make_unique<FolderScan>(*held);
  folder.watch =
      inotify_.valid() ? inotify_add_watch(inotify_.get(), held->held_path().c_str(), IN_MOVED_TO | IN_CREATE) : -1;
  folder.shown = show_that_folder_is_read(held->fd());
  folder.held = std::move(held);
}

// Folders come, go, and are replaced by others of the same name.
void RecorderWatch::find_folders() {
  std::erase_if(folders_, [&](const auto& entry) {
    const Folder& folder = entry.second;
    if (folder.held->is_in_place()) return false;
    if (folder.watch >= 0) inotify_rm_watch(inotify_.get(), folder.watch);
    return true;
  });
  if (!options_.folder.empty() && !folders_.contains(options_.folder)) {
    Result<std::shared_ptr<const UserFolder>> opened = UserFolder::open(options_.folder);
    if (opened.ok()) add_folder(std::move(*opened));
  }
  if (options_.users_folder.empty()) return;
  if (!users_held_) {
    Result<std::shared_ptr<const UserFolder>> opened = UserFolder::open(options_.users_folder + "/.");
    if (!opened.ok()) return;
    users_held_ = std::move(*opened);
    users_scan_ = std::make_unique<FolderScan>(*users_held_);
  }
  // Everybody may write there: a part each second, until all is seen.
  const FolderScan::Part part = users_scan_->next(4 * user_limits::kNamesPerPollMax);
  for (const std::string& name : part.names) {
    if (folders_.contains(options_.users_folder + "/" + name)) continue;
    if (std::shared_ptr<const UserFolder> held = open_users_folder(options_.users_folder, name))
      add_folder(std::move(held));
  }
}

void RecorderWatch::find_new() {
  const int64_t now_ns = clock_.monotonic_ns();
  if (now_ns >= folders_at_ns_ || (!options_.folder.empty() && !folders_.contains(options_.folder))) {
    folders_at_ns_ = now_ns + kSecondNs;
    find_folders();
  }
  for (auto& [path, folder] : folders_) find_new_in(folder);
}

void RecorderWatch::find_new_in(Folder& folder) {
  const UserFolder& held = *folder.held;
  FolderScan::Part part = folder.scan->next(user_limits::kNamesPerPollMax);
  if (!part.last) user_limits::count_over(counters_, "names", held.owner());
  std::erase_if(part.names, [](const std::string& name) { return !name.ends_with(kRecorderSuffix); });
  std::sort(part.names.begin(), part.names.end());
  const int64_t now_ns = clock_.monotonic_ns();
  size_t tries = 0;
  for (const std::string& name : part.names) {
    if (ranks_.contains(held.path() + "/" + name)) continue;
    if (auto refused = folder.refused.find(name); refused != folder.refused.end() && now_ns < refused->second) continue;
    if (++tries > user_limits::kTriesPerPollMax) {
      user_limits::count_over(counters_, "tries", held.owner());
      break;
    }
    if (!try_recorder(folder, name, now_ns)) break;
  }
  // One that was not tried again is not there any more.
  if (folder.refused.size() > user_limits::kRefusedPerUserMax / 2)
    std::erase_if(folder.refused, [&](const auto& one) { return now_ns - one.second > kTryAgainNs; });
}

// False: this user may have no more of them.
bool RecorderWatch::try_recorder(Folder& folder, const std::string& name, int64_t now_ns) {
  const UserFolder& held = *folder.held;
  const auto of_user = static_cast<size_t>(std::count_if(
      ranks_.begin(), ranks_.end(), [&](const auto& one) { return one.second->folder->owner() == held.owner(); }));
  if (of_user >= user_limits::kRecordersPerUserMax || ranks_.size() >= user_limits::kRecordersMax) {
    user_limits::count_over(counters_, "recorders", held.owner());
    if (!folder.full_said)
      LOCKSTEP_LOG_WARN("agent", "%s: %zu recorders of user %u and %zu in all are read (limits %zu and %zu); no more",
                        held.path().c_str(), of_user, static_cast<unsigned>(held.owner()), ranks_.size(),
                        user_limits::kRecordersPerUserMax, user_limits::kRecordersMax);
    folder.full_said = true;
    return false;
  }
  folder.full_said = false;
  const std::string path = held.path() + "/" + name;
  UserFile file = held.open_file(name, {});
  if (file.refused == UserFileRefused::kAbsent) return true;  // gone since it was listed
  Result<std::unique_ptr<RecorderReader>> reader = file.ok()
                                                       ? RecorderReader::from(std::move(file.fd), path)
                                                       : Error{"recorder: " + as_one_line(path) + ": " + file.why};
  if (!reader.ok()) {
    if (!folder.refused.contains(name) && folder.refused.size() < user_limits::kRefusedPerUserMax) {
      counters_.add("lockstep_agent_recorder_refused_total");
      if (file.refused != UserFileRefused::kNo)
        counters_.add("lockstep_agent_user_files_refused_total", format("reason=\"%s\"", to_text(file.refused)));
      LOCKSTEP_LOG_WARN("agent", "%s; not read", as_one_line(reader.error()).c_str());
      folder.refused.emplace(name, 0);
    }
    if (auto refused = folder.refused.find(name); refused != folder.refused.end())
      refused->second = now_ns + kTryAgainNs;
    return true;
  }
  folder.refused.erase(name);
  auto rank = std::make_unique<WatchedRank>();
  rank->path = path;
  rank->name = name;
  rank->folder = folder.held;
  rank->reader = std::move(reader).value();
  rank->header = rank->reader->header();
  rank->assembler = std::make_unique<RankAssembler>(rank->header.anchor_unix_ns - rank->header.anchor_monotonic_ns);
  rank->moved_ns = now_ns;
  rank->found_ns = now_ns;
  // Of all ranks at the same moment: one request, which compresses better than one of each.
  rank->metrics_at_ns = (now_ns / options_.metrics_every_ns + 1) * options_.metrics_every_ns;
  ranks_[path] = std::move(rank);
  return true;
}

void RecorderWatch::count_refused(WatchedRank& rank) {
  for (size_t i = 0; i < kRefusedReasons; ++i) {
    const uint64_t refused = rank.header.refused[i];
    if (refused <= rank.refused_seen[i]) continue;
    counters_.add("lockstep_plugin_refused_total", format("reason=\"%s\"", to_text(static_cast<Refused>(i))),
                  static_cast<int64_t>(refused - rank.refused_seen[i]));
    rank.refused_seen[i] = refused;
  }
}

void RecorderWatch::drain(WatchedRank& rank, RankPoll& seen) {
  seen.in_flight = rank.reader->in_flight();
  rank.assembler->set_comms(seen.in_flight);
  RecordCounts before = rank.records;
  RecorderReader::Drained drained = rank.reader->drain(
      [&](uint32_t lane, const Record& record) {
        if (record.head.type == RecordType::kProxyStep || record.head.type == RecordType::kProxyOp) {
          if (lane >= rank.proxy_lanes.size()) rank.proxy_lanes.resize(lane + 1);
          rank.proxy_lanes[lane] = true;
        }
        ++rank.records.read[record_kind(record.head.type)];
        rank.assembler->add(record);
      },
      user_limits::kRecordsPerDrainMax);
  rank.unread = drained.more;
  if (drained.more) {
    behind_ = true;
    user_limits::count_over(counters_, "records", rank.folder->owner());
  }
  if (rank.assembler->lacks_comm()) rank.assembler->add_comms(rank.reader->in_flight());
  rank.assembler->end_drain(seen.now_ns, drained.overwritten + drained.torn);
  rank.records.overwritten += drained.overwritten;
  rank.records.torn += drained.torn;
  seen.overwritten = drained.overwritten > 0;
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
  if (seen.overwritten) {
    seen.records.push_back(
        to_record(Gap{"ring_overwritten", static_cast<int64_t>(drained.overwritten)}, clock_.unix_ns()));
  }
}

void RecorderWatch::look_at_process(WatchedRank& rank, RankPoll& seen) {
  // A pid with its start is one process for ever: whose it is needs asking once.
  if (!rank.pid_checked) {
    rank.pid_checked = true;
    const uid_t owner = rank.folder->owner();
    std::optional<ProcessHandle> writes =
        ProcessHandle::open_ended_too(rank.header.pid, rank.header.process_start_ticks, owner);
    rank.pid_counts = writes.has_value();
    if (writes) rank.process_exit = ProcessExit::watch(std::move(*writes), owner);
  }
  const std::optional<ProcessState> writer = rank.pid_counts       ? writer_state(*rank.reader, rank.header)
                                             : rank.reader->held() ? std::optional(ProcessState{})
                                                                   : std::nullopt;
  seen.alive = writer.has_value();
  seen.stopped = writer && writer->stopped();
  if (seen.stopped && rank.looked_ns != 0)
    rank.stopped_ns =
        std::min(rank.stopped_ns + std::min(seen.now_ns - rank.looked_ns, PollPlan::kUsualNs), kStoppedMostNs);
  rank.looked_ns = seen.now_ns;
}

void RecorderWatch::read_identity(WatchedRank& rank) {
  Identity identity{rank.header.job_id,     rank.header.attempt, Rank{rank.header.rank}, rank.header.world_size,
                    rank.header.local_rank, rank.header.host,    rank.header.gpu_uuid};
  if (identity.gpu_uuid.empty()) identity.gpu_uuid = rank.completion.gpu_uuid;
  const bool nameless = identity.job_id.starts_with(identity_variables::kUnknownJobPrefix);
  if (nameless && !rank.announced && !rank.completion.job_id.empty())
    identity.job_id = rank.completion.job_id;
  else if (rank.announced)
    identity.job_id = rank.identity.job_id;
  if (rank.announced) identity.rank = rank.identity.rank;  // no process becomes another rank
  if (identity == rank.identity && !rank.resource.empty()) return;
  rank.identity = std::move(identity);
  rank.resource = to_resource(rank.identity);
}

// A rank whose number is not known yet (no RANK in its environment, no world communicator so far) belongs to no job;
// nor, for a while, does one whose job may still get a name, or of whose code may still be known which it is.
bool RecorderWatch::belongs_to_job(const WatchedRank& rank, const RankPoll& seen) const {
  if (rank.identity.rank < 0_rank) return false;
  if (rank.announced || !seen.alive || seen.flush) return true;
  const bool is_nameless = rank.identity.job_id.starts_with(identity_variables::kUnknownJobPrefix);
  if (is_nameless && seen.now_ns - rank.found_ns < options_.completion_wait_ns) return false;
  return rank.code_version || seen.now_ns - rank.numbered_ns >= options_.code_version_wait_ns;
}

void RecorderWatch::report_steps(WatchedRank& rank, RankPoll& seen) {
  const std::vector<ClosedStep> steps =
      rank.assembler->take_steps(seen.now_ns, seen.over || seen.flush || rank.assembler->shut_down());
  if (steps.size() > user_limits::kStepsPerPollMax) {
    const auto over = static_cast<int64_t>(steps.size() - user_limits::kStepsPerPollMax);
    user_limits::count_over(counters_, "steps", rank.folder->owner(), over);
    seen.records.push_back(to_record(Gap{"steps_over_limit", over}, clock_.unix_ns()));
  }
  for (size_t i = 0; i < std::min(steps.size(), user_limits::kStepsPerPollMax); ++i) {
    const ClosedStep& step = steps[i];
    StepSummary summary = rounded_for_sending(step.summary);
    if (i == 0) summary.stopped_ns = std::exchange(rank.stopped_ns, 0);
    seen.records.push_back(to_record(summary));
    if (traces_ != nullptr) traces_->add(rank.identity, step.detail, seen.now_ns);
  }
}

// Of a rank that is profiled they come more often.
void RecorderWatch::plan_metrics(WatchedRank& rank, const RankPoll& seen) const {
  const bool is_sooner = !profiled_.empty() && profiled_.contains(rank.path) &&
                         rank.metrics_at_ns - seen.now_ns > options_.metrics_profiled_ns;
  if (is_sooner) rank.metrics_at_ns = (seen.now_ns / options_.metrics_profiled_ns + 1) * options_.metrics_profiled_ns;
}

void RecorderWatch::poll_rank(WatchedRank& rank, bool flush, CollectedBatch& batch) {
  if (rank.dead) return;
  RankPoll seen;
  seen.now_ns = clock_.monotonic_ns();
  seen.flush = flush;
  look_at_process(rank, seen);
  rank.header = rank.reader->header();
  count_refused(rank);
  read_identity(rank);
  if (rank.numbered_ns == 0 && rank.identity.rank >= 0_rank) rank.numbered_ns = seen.now_ns;

  uint64_t written = rank.reader->written_total();
  uint64_t activity = rank.reader->last_activity_ns();
  seen.moved = written != rank.written_seen || activity != rank.activity_seen;
  if (seen.moved || rank.unread || !rank.announced || flush || !seen.alive) drain(rank, seen);
  if (!belongs_to_job(rank, seen)) {
    if (rank.identity.rank < 0_rank && !seen.alive) rank.dead = true;
    return;
  }
  if (seen.moved) {
    rank.written_seen = written;
    rank.activity_seen = activity;
    rank.moved_ns = seen.now_ns;
  }
  // One drain more after death: the process may have written between our drain and our look at /proc.
  rank.drains_after_death = seen.alive ? 0 : rank.drains_after_death + 1;
  seen.over = !seen.alive && rank.death_noticed && (!rank.unread || rank.drains_after_death > kDrainsAfterDeathMax);
  rank.death_noticed = !seen.alive;

  announce(rank, seen);
  report_steps(rank, seen);
  report_progress(rank, seen);
  if (!seen.records.empty()) {
    rank.reported_ns = seen.now_ns;
    batch.logs.push_back({.resource = rank.resource, .scope_name = kAgentScope, .logs = std::move(seen.records)});
    rank.ticket_pending = true;
  }
  batch.urgent |= seen.urgent;
  plan_metrics(rank, seen);
  if (seen.now_ns >= rank.metrics_at_ns || seen.over || flush) report_metrics(rank, seen, batch);
  if (seen.alive) adjust_detail(rank, seen);
  if (!seen.over) return;
  rank.dead = true;
  // Nobody waits any more for the operations that these belong to.
  if (const size_t waiting = rank.assembler->waiting(); waiting > 0)
    counters_.add("lockstep_agent_recorder_lost_total", "reason=\"orphan\"", static_cast<int64_t>(waiting));
}

void RecorderWatch::adjust_detail(WatchedRank& rank, const RankPoll& seen) {
  const std::optional<DetailPolicy::Change> change =
      rank.detail.decide({.now_ns = seen.now_ns,
                          .overwritten = seen.overwritten,
                          .silence = seen.silence,
                          .mask = rank.header.mask,
                          .control = rank.header.control,
                          .crowded = crowded_,
                          .operations = rank.records.read[record_kind(RecordType::kColl)] +
                                        rank.records.read[record_kind(RecordType::kP2p)],
                          .transfers = rank.records.read[record_kind(RecordType::kProxyStep)],
                          .profiled = profiled_.contains(rank.path)});
  if (!change) return;
  const UniqueFd file = open_again(rank.reader->fd(), O_RDWR);
  if (Result<void> asked = ask_detail(file.get(), rank.path, change->request); !asked.ok()) {
    rank.detail.give_up();
    LOCKSTEP_LOG_WARN("agent", "rank %d: its detail stays as it is: %s", rank.identity.rank.value(),
                      asked.error().c_str());
    return;
  }
  counters_.add("lockstep_agent_detail_changes_total", change->up ? "direction=\"up\"" : "direction=\"down\"");
  LOCKSTEP_LOG_INFO("agent", "rank %d: asked for %s detail (0x%x): %s", rank.identity.rank.value(),
                    change->up ? "full" : "less", change->request.mask, change->why);
}

CollectedBatch RecorderWatch::poll_all(bool flush) {
  find_new();
  fullest_ = 0;
  CollectedBatch batch;
  std::map<uid_t, std::vector<WatchedRank*>> users;
  for (auto& [name, rank] : ranks_) {
    if (!rank->dead) users[rank->folder->owner()].push_back(rank.get());
  }
  behind_ = false;
  if (!poll_users(users, flush, batch)) behind_ = true;
  ask_ras();
  report_ras(batch);
  if (traces_ != nullptr) batch.spans = traces_->take(clock_.monotonic_ns());
  int64_t switched_off = 0;
  for (auto& [name, rank] : ranks_) switched_off += rank->header.switched_off != 0;
  counters_.set("lockstep_agent_recorders", "", static_cast<int64_t>(ranks_.size()));
  counters_.set("lockstep_agent_plugins_switched_off", "", switched_off);
  plan_.polled(clock_.monotonic_ns(), fullest_);
  const int64_t late_ms = plan_.late_ns() / 1'000'000;
  late_most_ms_ = std::max(late_most_ms_, late_ms);
  counters_.set("lockstep_agent_poll_late_ms", "which=\"last\"", late_ms);
  counters_.set("lockstep_agent_poll_late_ms", "which=\"most\"", late_most_ms_);
  return batch;
}

// False: somebody's turn was over before all of his ranks had theirs.
bool RecorderWatch::poll_users(std::map<uid_t, std::vector<WatchedRank*>>& users, bool flush, CollectedBatch& batch) {
  bool all = true;
  const int64_t share_ns = (flush ? user_limits::kLastPollNs : user_limits::kPollNs) /
                           static_cast<int64_t>(std::max<size_t>(1, users.size()));
  for (auto& [user, ranks] : users) {
    const auto resume = resume_.find(user);
    const std::string from = resume == resume_.end() ? "" : resume->second;
    const auto middle =
        std::find_if(ranks.begin(), ranks.end(), [&](const WatchedRank* rank) { return rank->path >= from; });
    std::rotate(ranks.begin(), middle, ranks.end());
    const int64_t begin_ns = clock_.monotonic_ns();
    size_t done = 0;
    while (done < ranks.size()) {
      poll_rank(*ranks[done++], flush, batch);
      if (clock_.monotonic_ns() - begin_ns >= share_ns) break;
    }
    share_memory(user, ranks);
    if (done < ranks.size()) {
      resume_[user] = ranks[done]->path;
      user_limits::count_over(counters_, "time", user);
      all = false;
    } else if (resume != resume_.end()) {
      resume_.erase(resume);
    }
  }
  return all;
}

// Where a user's ranks are remembered by more than one user may take, those with more than their share forget the rest.
void RecorderWatch::share_memory(uid_t user, const std::vector<WatchedRank*>& ranks) {
  size_t all = 0;
  for (const WatchedRank* rank : ranks) all += rank->assembler->memory_bytes();
  if (all <= options_.memory_per_user) return;
  user_limits::count_over(counters_, "memory", user);
  for (WatchedRank* rank : ranks) {
    const size_t share = options_.memory_per_user / ranks.size();
    if (rank->assembler->memory_bytes() > share) rank->assembler->shrink_to(share);
  }
}

CollectedBatch RecorderWatch::poll() {
  return poll_all(false);
}

CollectedBatch RecorderWatch::final_poll() {
  return poll_all(true);
}

void RecorderWatch::submitted(uint64_t ticket) {
  for (auto& [name, rank] : ranks_) {
    if (rank->ticket_pending) rank->ticket = ticket;
    rank->ticket_pending = false;
  }
}

// True once its files may go.
bool RecorderWatch::let_go(WatchedRank& rank) {
  if (!rank.unclean || !kept_) return true;
  if (!rank.keeping) {
    std::function<void(UniqueFd)> on_kept;
    if (EvidenceUploads* uploads = options_.uploads; uploads != nullptr) {
      on_kept = [uploads, who = rank.identity, user = rank.folder->owner(), at_s = clock_.unix_ns() / kSecondNs](
                    UniqueFd copy) { uploads->add(who, user, EvidenceFileKind::kRecorder, std::move(copy), at_s); };
    }
    rank.keeping = kept_->keep(rank.reader->fd(), rank.folder->owner(), rank.name, rank.identity.rank, on_kept);
  }
  return !rank.keeping || rank.keeping->done();
}

void RecorderWatch::release(const std::function<bool(uint64_t)>& settled) {
  for (auto at = ranks_.begin(); at != ranks_.end();) {
    WatchedRank& rank = *at->second;
    if (rank.dead && !rank.ticket_pending && settled(rank.ticket) && let_go(rank)) {
      for (const std::string& name : {rank.name, hook_word_path(rank.name), hook_stacks_path(rank.name),
                                      hook_failed_path(rank.name), hook_orders_path(rank.name)})
        rank.folder->remove(name);
      at = ranks_.erase(at);
    } else {
      ++at;
    }
  }
}

std::vector<RecorderOwner> RecorderWatch::owners() const {
  std::vector<RecorderOwner> all;
  for (const auto& [path, rank] : ranks_) {
    if (rank->identity.rank < 0_rank || rank->dead) continue;
    RecorderOwner& owner = all.emplace_back(RecorderOwner{.pid = rank->header.pid,
                                                          .path = path,
                                                          .identity = rank->identity,
                                                          .user = static_cast<int64_t>(rank->folder->owner()),
                                                          .folder = rank->folder});
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

bool RecorderWatch::awaits_code_versions() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& one) {
    const WatchedRank& rank = *one.second;
    return rank.numbered_ns != 0 && !rank.announced && !rank.dead && !rank.code_version;
  });
}

void RecorderWatch::set_code_version(const std::string& path, const std::string& version) {
  auto found = ranks_.find(path);
  if (found != ranks_.end()) found->second->code_version = version;
}

}  // namespace lockstep
