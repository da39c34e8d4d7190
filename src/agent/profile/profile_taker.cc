#include "agent/profile/profile_taker.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "agent/profile/kineto_socket.h"
#include "agent/ranks/watched_rank.h"
#include "base/log.h"
#include "base/text.h"
#include "model/events.h"
#include "sources/ownership/recorder_process.h"

namespace lockstep {
namespace {

constexpr size_t kHookBytesMax = 16u << 10;
constexpr const char* kUsualFolder = "/tmp";
constexpr std::string_view kUsualRecorders = "/dev/shm/lockstep-";
// A process that gets its order later than this before the common moment starts as soon as it can.
constexpr int64_t kStartRoomMs = 3'000;
constexpr int64_t kOrderAgainNs = 1'000'000'000;
constexpr std::string_view kByHook = "by torch.profiler";

std::string_view variable(std::string_view environment, std::string_view name) {
  for (std::string_view entry : split(environment, '\0')) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  }
  return {};
}

std::string_view without_slash(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

struct ProfileTaker::Capture {
  uint64_t number = 0;
  std::shared_ptr<const ProfileRequest> request;
  Rank rank;
  RecorderOwner owner;
  std::optional<ProcessHandle> handle;
  bool apart = false;  // it has a file system of its own
  std::optional<ProfileState> state;
  std::string reason;
  int64_t arrived_ns = 0;
  int64_t handed_ns = 0;  // 0: not yet
  int64_t handed_unix_ns = 0;
  int64_t ended_ns = 0;   // of the trace, as its process says by taking orders again; 0: not yet
  bool was_busy = false;  // it asked, and would take no order
  bool by_step = false;
  bool by_hook = false;    // through torch.profiler
  int64_t ordered_ns = 0;  // when the hook was last sent its order; 0: not yet
  // Where its file will be: in the folder that is held, else in /tmp of its own files.
  std::shared_ptr<const UserFolder> folder;
  std::string folder_path;  // as the process calls it
  std::string file_name;    // in that folder
  int32_t inner_pid = -1;
  UserFile file;  // once it is whole
  bool is_uploading = false;
  int upload_tries = 0;
  int64_t next_upload_ns = 0;
  int64_t abandoned_ns = 0;
};

ProfileTaker::ProfileTaker(ProfileOptions options, const Clock& clock, Counters& counters)
    : options_(options), clock_(clock), counters_(counters), known_("", false) {}
ProfileTaker::~ProfileTaker() = default;

const RecorderOwner* ProfileTaker::find_owner(const ProfileRequest& request, Rank rank) const {
  const RecorderOwner* found = nullptr;
  for (const RecorderOwner& owner : owners_) {
    const Identity& who = owner.identity;
    if (who.rank != rank || who.job_id != request.job_id || who.attempt != request.attempt) continue;
    if (found == nullptr || start_ticks_of_recorder(owner.path) > start_ticks_of_recorder(found->path)) found = &owner;
  }
  return found;
}

void ProfileTaker::ask(const ProfileRequest& request) {
  const auto counted = [&](const char* result) {
    counters_.add("lockstep_agent_profiles_total", format("result=\"%s\"", result));
  };
  const auto shared = std::make_shared<const ProfileRequest>(request);
  for (const Rank rank : request.ranks) {
    const auto is_same = [&](const std::unique_ptr<Capture>& other) {
      return other->request->capture == request.capture && other->rank == rank;
    };
    if (std::any_of(active_.begin(), active_.end(), is_same) ||
        std::any_of(abandoned_.begin(), abandoned_.end(), is_same))
      continue;  // an order may arrive twice
    const RecorderOwner* owner = find_owner(request, rank);
    if (owner == nullptr) {
      counted("gone");
      continue;
    }
    auto capture = std::make_unique<Capture>();
    capture->number = ++last_number_;
    capture->request = shared;
    capture->rank = rank;
    capture->owner = *owner;
    capture->arrived_ns = clock_.monotonic_ns();
    Capture& added = *active_.emplace_back(std::move(capture));
    const bool has_other = std::any_of(active_.begin(), active_.end(), [&](const std::unique_ptr<Capture>& other) {
      return other.get() != &added && other->owner.path == owner->path;
    });
    if (!options_.can_upload)
      fail(added, "this agent has nowhere to upload to");
    else if (active_.size() > kActiveMax)
      fail(added, format("more than %zu ranks are being profiled on this node", kActiveMax));
    else if (has_other)
      fail(added, "another capture of this rank is under way");
    else if (!find_process(added))
      fail(added, owner->alive ? "its process cannot be seen from here" : "pid gone: its process has ended");
    else
      report(added, ProfileState::kArmed);
  }
}

bool ProfileTaker::find_process(Capture& capture) {
  const RecorderOwner& owner = capture.owner;
  if (owner.user < 0) return false;
  known_.begin_look(false);
  const int32_t pid = process_of_recorder(
      {.name = name_of(owner.path), .pid = owner.pid, .user = owner.user, .folder = owner.folder.get()}, known_, {});
  known_.end_look();
  capture.handle = ProcessHandle::open(pid, start_ticks_of_recorder(owner.path), static_cast<uid_t>(owner.user));
  if (!capture.handle) return false;
  capture.apart = !capture.handle->shares_our_files().value_or(true);
  return true;
}

// Only what the process was started with, and only its own folder of recorders: any other folder may be a file system
// that never answers.
void ProfileTaker::choose_folder(Capture& capture) const {
  capture.folder = nullptr;
  capture.folder_path = kUsualFolder;
  if (!options_.read_environment || capture.owner.folder == nullptr) return;
  const Result<std::string> environment = capture.handle->read("environ", kEnvironmentBytesMax);
  if (!environment.ok()) return;
  const std::string_view traces = without_slash(variable(*environment, "KINETO_ONDEMAND_TRACE_DIR"));
  const std::string_view recorders = without_slash(variable(*environment, "LOCKSTEP_RECORDER_DIR"));
  const bool is_recorders =
      recorders.empty() ? traces.starts_with(kUsualRecorders) && is_number(traces.substr(kUsualRecorders.size()))
                        : traces == recorders;
  if (!is_recorders) return;
  capture.folder = capture.owner.folder;
  capture.folder_path = traces;
}

std::string ProfileTaker::on_request(int32_t pid, uid_t user, const KinetoMessage& message) {
  const int64_t now_ns = clock_.monotonic_ns();
  if (pollers_.size() >= kPollersMax && !pollers_.contains(pid))
    std::erase_if(pollers_, [&](const auto& entry) { return now_ns - entry.second.at_ns > kPollerNs; });
  if (pollers_.size() < kPollersMax || pollers_.contains(pid)) pollers_[pid] = {user, message.type, now_ns};
  const auto found = std::find_if(active_.begin(), active_.end(), [&](const std::unique_ptr<Capture>& capture) {
    return capture->handle && capture->handle->pid() == pid && !is_end(*capture->state);
  });
  if (found == active_.end()) return {};
  Capture& capture = **found;
  if (capture.by_hook || static_cast<int64_t>(user) != capture.owner.user || !capture.handle->holds()) return {};
  const bool takes = (message.type & kKinetoTakesActivities) != 0;
  switch (*capture.state) {
    case ProfileState::kArmed:
      capture.was_busy = !takes;
      return takes ? hand_out(capture, message.pids.front()) : std::string();
    case ProfileState::kWaiting:
      if (!takes) report(capture, ProfileState::kTracing, capture.reason);
      break;
    case ProfileState::kTracing:
      if (takes && capture.ended_ns == 0) capture.ended_ns = now_ns;
      break;
    default:
      break;
  }
  return {};
}

std::string ProfileTaker::hand_out(Capture& capture, int32_t inner_pid) {
  const ProfileRequest& request = *capture.request;
  choose_folder(capture);
  if (!has_room(capture)) {
    fail(capture, format("no room for its trace in %s", capture.folder_path.c_str()));
    return {};
  }
  const HookConfig hook = read_hook(capture);
  KinetoOrder order{.file = format("%s/lockstep-%s.json", capture.folder_path.c_str(), request.capture.c_str()),
                    .trace_id = request.capture,
                    .shapes = request.shapes,
                    .stacks = request.stacks};
  std::string note;
  if (request.start_step != kNoStep && hook.kineto_each > 0) {
    const int64_t start = hook.kineto_offset + hook.kineto_each * request.start_step.value();
    if (start >= 0) order.start_iteration = start;
    order.iterations = hook.kineto_each * request.steps;
  }
  capture.by_step = order.start_iteration >= 0;
  if (!capture.by_step) {
    const int64_t now_ms = clock_.unix_ns() / 1'000'000;
    order.start_unix_ms = request.start_unix_ms - now_ms < kStartRoomMs ? 0 : request.start_unix_ms;
    order.duration_ms = request.duration_ms;
    note = "by time: no optimizer step of it is counted";
  }
  Result<std::string> config = kineto_config(order);
  if (!config.ok()) {
    fail(capture, "path refused: " + config.error());
    return {};
  }
  capture.inner_pid = inner_pid;
  capture.file_name = name_of(kineto_file_of(order.file, inner_pid));
  capture.handed_ns = clock_.monotonic_ns();
  capture.handed_unix_ns = clock_.unix_ns();
  // Of a process with this number before.
  remove(capture, capture.file_name);
  remove(capture, capture.file_name + ".tmp");
  report(capture, ProfileState::kWaiting, note);
  return std::move(*config);
}

HookConfig ProfileTaker::read_hook(const Capture& capture) const {
  if (capture.owner.folder == nullptr) return {};
  const Result<std::string> text =
      capture.owner.folder->read_file(hook_word_path(name_of(capture.owner.path)), kHookBytesMax);
  return text.ok() ? parse_hook_word_untrusted(*text) : HookConfig{};
}

bool ProfileTaker::has_room(const Capture& capture) const {
  struct statvfs room {};
  const bool known =
      capture.folder != nullptr ? ::fstatvfs(capture.folder->fd(), &room) == 0 : ::statvfs(kUsualFolder, &room) == 0;
  return !known || static_cast<uint64_t>(room.f_bavail) * room.f_frsize >= kRoomBytes;
}

// Whether Kineto of this process asks for orders by itself.
bool ProfileTaker::asks(const Capture& capture, int64_t now_ns) const {
  const auto found = pollers_.find(capture.handle->pid());
  return found != pollers_.end() && now_ns - found->second.at_ns < options_.asks_within_ns &&
         static_cast<int64_t>(found->second.user) == capture.owner.user;
}

void ProfileTaker::order_hook(Capture& capture, int64_t now_ns) {
  const ProfileRequest& request = *capture.request;
  if (!capture.by_hook) {
    capture.by_hook = true;
    capture.by_step = request.start_step != kNoStep;
    capture.folder = capture.owner.folder;
    capture.folder_path = capture.folder->path();
    capture.inner_pid = capture.owner.pid;
    capture.file_name = format("lockstep-%s_%d.json", request.capture.c_str(), capture.owner.pid);
    if (!has_room(capture)) return fail(capture, format("no room for its trace in %s", capture.folder_path.c_str()));
    remove(capture, capture.file_name);
    remove(capture, capture.file_name + ".tmp");
  }
  if (capture.ordered_ns != 0 && now_ns - capture.ordered_ns < kOrderAgainNs) return;
  capture.ordered_ns = now_ns;
  const std::string order = format(
      "file %s\nstart %lld\nsteps %lld\nstart_unix_ms %lld\nduration_ms %lld\nlimit_s %lld\nshapes %d\nstacks %d\n",
      capture.file_name.c_str(), static_cast<long long>(capture.by_step ? request.start_step.value() : -1),
      static_cast<long long>(request.steps), static_cast<long long>(request.start_unix_ms),
      static_cast<long long>(request.duration_ms), static_cast<long long>(request.limit_s), request.shapes ? 1 : 0,
      request.stacks ? 1 : 0);
  if (!send_datagram(*capture.folder, hook_orders_path(name_of(capture.owner.path)), order)) return;
  if (capture.handed_ns == 0) {
    capture.handed_ns = now_ns;
    capture.handed_unix_ns = clock_.unix_ns();
  }
}

// A process's word about itself: it can end its own capture, and nothing else.
void ProfileTaker::follow_hook(Capture& capture, const HookConfig& hook, int64_t now_ns) {
  if (hook.ordered != capture.request->capture) return;
  const std::string note = std::string(kByHook) + (capture.by_step ? "" : ", by time");
  if (hook.order_state == "failed")
    return fail(capture, hook.order_reason.empty() ? "torch.profiler failed" : hook.order_reason);
  if (hook.order_state == "waiting") {
    if (*capture.state == ProfileState::kArmed) report(capture, ProfileState::kWaiting, note);
  } else if (*capture.state != ProfileState::kTracing) {
    report(capture, ProfileState::kTracing, note);
  }
  const bool is_over = hook.order_state == "writing" || hook.order_state == "written";
  if (is_over && capture.ended_ns == 0) capture.ended_ns = now_ns;
}

void ProfileTaker::report(Capture& capture, ProfileState state, std::string reason) {
  if (capture.state == state && capture.reason == reason) return;
  capture.state = state;
  capture.reason = reason;
  ProfileProgress progress{.time_unix_ns = clock_.unix_ns(),
                           .capture = capture.request->capture,
                           .state = state,
                           .reason = std::move(reason),
                           .bytes = capture.file.ok() ? static_cast<int64_t>(capture.file.info.st_size) : 0};
  if (is_end(state)) counters_.add("lockstep_agent_profiles_total", format("result=\"%s\"", to_text(state)));
  if (state == ProfileState::kFailed)
    LOCKSTEP_LOG_INFO("agent", "rank %d: no profile %s: %s", capture.rank.value(), progress.capture.c_str(),
                      as_one_line(progress.reason).c_str());
  out_.push_back(
      {.resource = to_resource(capture.owner.identity), .scope_name = kAgentScope, .logs = {to_record(progress)}});
}

void ProfileTaker::fail(Capture& capture, const std::string& reason) {
  report(capture, ProfileState::kFailed, reason);
}

UserFile ProfileTaker::open_trace(const Capture& capture, const std::string& name, int access) const {
  const auto owner = static_cast<uid_t>(capture.owner.user);
  if (capture.folder != nullptr) return capture.folder->open_file(name, {.owner = owner, .access = access});
  const UniqueFd root =
      capture.apart ? capture.handle->root_folder() : UniqueFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  UserFile none;
  none.refused = UserFileRefused::kAbsent;
  if (!root.valid()) return none;
  return open_user_file(root.get(), capture.folder_path + "/" + name, {.owner = owner, .access = access});
}

void ProfileTaker::remove(const Capture& capture, const std::string& name) const {
  if (capture.folder != nullptr) return capture.folder->remove(name);
  const UniqueFd root =
      capture.apart ? capture.handle->root_folder() : UniqueFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return;
  const UniqueFd folder(
      ::openat(root.get(), capture.folder_path.substr(1).c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  // In a folder of everybody's: what another has put there by this name stays.
  struct stat info {};
  if (folder.valid() && ::fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(info.st_mode) && info.st_uid == static_cast<uid_t>(capture.owner.user))
    (void)::unlinkat(folder.get(), name.c_str(), 0);
}

// What is still being written keeps its name: without one it could grow unseen.
bool ProfileTaker::clean_up(const Capture& capture, int64_t now_ns) const {
  remove(capture, capture.file_name);
  const std::string part_name = capture.file_name + ".tmp";
  if (now_ns - capture.abandoned_ns >= kAbandonedNs || !capture.handle->holds()) {
    remove(capture, part_name);
    return true;
  }
  const UserFile part = open_trace(capture, part_name, O_RDWR);
  if (part.ok() && part.info.st_blocks > 0) (void)!::ftruncate(part.fd.get(), 0);
  return false;
}

// True: the file is whole, or the capture has failed.
bool ProfileTaker::look_for_file(Capture& capture) {
  const int64_t bytes_max = std::min(capture.request->bytes_max, options_.bytes_max);
  UserFile whole = open_trace(capture, capture.file_name, O_RDONLY);
  const auto too_large = [&](int64_t bytes) {
    fail(capture, format("too large: %s (limit %s)", human_bytes(static_cast<double>(bytes)).c_str(),
                         human_bytes(static_cast<double>(bytes_max)).c_str()));
    return true;
  };
  if (whole.ok()) {
    if (whole.info.st_size > bytes_max) return too_large(whole.info.st_size);
    capture.file = std::move(whole);
    report(capture, ProfileState::kUploading, capture.reason);
    return true;
  }
  if (whole.refused != UserFileRefused::kAbsent && whole.refused != UserFileRefused::kFailed) {
    fail(capture, format("path refused: its trace is %s", whole.why.c_str()));
    return true;
  }
  const UserFile part = open_trace(capture, capture.file_name + ".tmp", O_RDWR);
  if (!part.ok()) return false;
  if (*capture.state == ProfileState::kWaiting) report(capture, ProfileState::kTracing, capture.reason);
  struct statvfs room {};
  const bool is_full = ::fstatvfs(part.fd.get(), &room) == 0 &&
                       static_cast<uint64_t>(room.f_bavail) * room.f_frsize < kRoomBytes && part.info.st_size > 0;
  if (part.info.st_size <= bytes_max && !is_full) return false;
  (void)!::ftruncate(part.fd.get(), 0);  // its writer goes on; what it writes has a hole before it
  if (!is_full) return too_large(part.info.st_size);
  fail(capture, format("no room for its trace in %s", capture.folder_path.c_str()));
  return true;
}

std::string ProfileTaker::why_silent(const Capture& capture) const {
  if (capture.was_busy) return "foreign profiler running: it has taken no order for as long as it was asked";
  if (capture.by_hook) return "its Python hook takes no order: it is busy with another, or its steps are switched off";
  return "no Kineto: its process does not ask for orders (KINETO_USE_DAEMON=1 at its start and PyTorch 2.7 or newer, or"
         " our Python package)";
}

std::string ProfileTaker::why_no_file(const Capture& capture) const {
  if (capture.by_hook) return "no trace was written";
  const std::string usual = format("libkineto_activities_%d.json", capture.inner_pid);
  const UniqueFd root =
      capture.apart ? capture.handle->root_folder() : UniqueFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (root.valid()) {
    const UserFile other = open_user_file(root.get(), std::string(kUsualFolder) + "/" + usual,
                                          {.owner = static_cast<uid_t>(capture.owner.user)});
    if (other.ok() && other.info.st_mtim.tv_sec >= capture.handed_unix_ns / 1'000'000'000)
      return format("path refused: Kineto may not write to %s and wrote %s/%s", capture.folder_path.c_str(),
                    kUsualFolder, usual.c_str());
  }
  return "no trace was written: another profiler of the job has ended it";
}

void ProfileTaker::poll(Capture& capture, int64_t now_ns) {
  const int64_t deadline_ns = capture.arrived_ns + capture.request->limit_s * 1'000'000'000;
  switch (*capture.state) {
    case ProfileState::kArmed:
      if (!capture.handle->holds()) return fail(capture, "pid gone: its process has ended");
      if (const HookConfig hook = read_hook(capture);
          capture.by_hook || (hook.takes_orders && !asks(capture, now_ns))) {
        order_hook(capture, now_ns);
        if (!is_end(*capture.state)) follow_hook(capture, hook, now_ns);
        if (*capture.state != ProfileState::kArmed) return;
      }
      if (now_ns >= deadline_ns || (!capture.was_busy && now_ns - capture.arrived_ns >= options_.asks_within_ns))
        fail(capture, why_silent(capture));
      return;
    case ProfileState::kWaiting:
    case ProfileState::kTracing:
      if (look_for_file(capture)) return;
      if (capture.by_hook) {
        follow_hook(capture, read_hook(capture), now_ns);
        if (is_end(*capture.state)) return;
      }
      if (!capture.handle->holds()) return fail(capture, "pid gone: its process has ended");
      if (capture.ended_ns != 0 && now_ns - capture.ended_ns >= options_.written_within_ns)
        return fail(capture, why_no_file(capture));
      // Where it takes orders again and nothing is being written, nothing will come.
      if (capture.ended_ns != 0 && now_ns - capture.ended_ns >= options_.asks_within_ns &&
          !open_trace(capture, capture.file_name + ".tmp", O_RDONLY).ok())
        return fail(capture, why_no_file(capture));
      if (now_ns < deadline_ns) return;
      if (*capture.state == ProfileState::kTracing)
        return fail(capture, format("time limit: not traced and written within %lld s",
                                    static_cast<long long>(capture.request->limit_s)));
      return fail(capture, format("no optimizer step: step %lld did not begin within %lld s",
                                  static_cast<long long>(capture.request->start_step.value()),
                                  static_cast<long long>(capture.request->limit_s)));
    case ProfileState::kUploading:
    case ProfileState::kDone:
    case ProfileState::kFailed:
      return;
  }
}

std::vector<ResourceGroup> ProfileTaker::poll() {
  const int64_t now_ns = clock_.monotonic_ns();
  for (const std::unique_ptr<Capture>& capture : active_) poll(*capture, now_ns);
  for (auto at = active_.begin(); at != active_.end();) {
    auto next = std::next(at);
    Capture& capture = **at;
    if (is_end(*capture.state) && !capture.is_uploading) {
      if (*capture.state == ProfileState::kFailed && capture.handed_ns != 0) {
        capture.abandoned_ns = now_ns;
        capture.file.fd.reset();
        abandoned_.splice(abandoned_.end(), active_, at);
      } else {
        active_.erase(at);
      }
    }
    at = next;
  }
  std::erase_if(abandoned_, [&](const std::unique_ptr<Capture>& capture) { return clean_up(*capture, now_ns); });
  return std::exchange(out_, {});
}

std::optional<ProfileTaker::Upload> ProfileTaker::next_upload() {
  const int64_t now_ns = clock_.monotonic_ns();
  for (const std::unique_ptr<Capture>& capture : active_) {
    if (*capture->state != ProfileState::kUploading || capture->is_uploading || now_ns < capture->next_upload_ns)
      continue;
    capture->is_uploading = true;
    (void)::lseek(capture->file.fd.get(), 0, SEEK_SET);
    return Upload{capture->number,
                  capture->file.fd.get(),
                  {.job = capture->request->job_id,
                   .capture = capture->request->capture,
                   .file = profile_file_name(capture->rank),
                   .bytes_max = static_cast<uint64_t>(capture->file.info.st_size)}};
  }
  return std::nullopt;
}

void ProfileTaker::uploaded(uint64_t number, const Result<Uploaded>& result) {
  const auto found = std::find_if(active_.begin(), active_.end(),
                                  [&](const std::unique_ptr<Capture>& capture) { return capture->number == number; });
  if (found == active_.end()) return;
  Capture& capture = **found;
  capture.is_uploading = false;
  if (!result.ok()) {
    capture.next_upload_ns = clock_.monotonic_ns() + options_.upload_again_ns;
    if (++capture.upload_tries >= options_.upload_tries_max) return fail(capture, "not uploaded: " + result.error());
    return report(capture, ProfileState::kUploading, result.error());
  }
  const ProfileReady ready{.time_unix_ns = clock_.unix_ns(),
                           .capture = capture.request->capture,
                           .key = result->key,
                           .bytes = static_cast<int64_t>(result->bytes),
                           .sha256 = result->sha256,
                           .first_step = capture.by_step ? capture.request->start_step : kNoStep,
                           .steps = capture.by_step ? capture.request->steps : 0};
  out_.push_back(
      {.resource = to_resource(capture.owner.identity), .scope_name = kAgentScope, .logs = {to_record(ready)}});
  remove(capture, capture.file_name);
  report(capture, ProfileState::kDone,
         capture.by_hook   ? std::string(kByHook) + (capture.by_step ? "" : ", by time")
         : capture.by_step ? ""
                           : "by time");
}

std::vector<ProfileTaker::Profiled> ProfileTaker::profiled() const {
  std::vector<Profiled> all;
  for (const std::unique_ptr<Capture>& capture : active_) {
    if (is_end(*capture->state) || *capture->state == ProfileState::kUploading) continue;
    all.push_back({capture->owner.path, capture->request->job_id, capture->request->attempt, capture->rank,
                   capture->request->start_step, capture->request->steps});
  }
  return all;
}

}  // namespace lockstep
