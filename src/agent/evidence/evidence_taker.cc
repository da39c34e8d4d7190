#include "agent/evidence/evidence_taker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>

#include "agent/evidence/evidence_uploads.h"
#include "agent/ranks/user_limits.h"
#include "agent/ranks/watched_rank.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "model/events.h"
#include "recorder/reader.h"
#include "sources/nccl/flight_dump_reader.h"
#include "sources/ownership/process_handle.h"
#include "sources/ownership/process_text.h"
#include "sources/ownership/recorder_process.h"
#include "sources/ownership/variables.h"
#include "sources/stacks/faulthandler_text.h"
#include "sources/stacks/rank_sampler.h"
#include "sources/stacks/thread_stacks.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr size_t kHookConfigBytesMax = 16u << 10;
constexpr size_t kPathMax = 4096;
constexpr int64_t kKinetoEachMax = 1'000;
constexpr size_t kOrderWordMax = 64, kOrderReasonMax = 200;

// The variables that say where PyTorch writes its dumps, the first that is set counts, and where they take orders.
constexpr const char* kDumpPrefixes[] = {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"};
constexpr const char* kPipeStems[] = {"TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"};
constexpr const char* kStacksSwitch = "LOCKSTEP_STACKS";
constexpr size_t kVersionBytesMax = 128;

std::string beside(const std::string& recorder, const char* suffix) {
  std::string_view stem = recorder;
  if (stem.ends_with(kRecorderSuffix)) stem.remove_suffix(std::strlen(kRecorderSuffix));
  return std::string(stem) + suffix;
}

// When a process that started so many ticks after the machine did was born; the machine may have slept meanwhile.
int64_t born_unix_ns(uint64_t start_ticks, int64_t now_unix_ns) {
  timespec up{};
  clock_gettime(CLOCK_BOOTTIME, &up);
  const int64_t up_ns = up.tv_sec * kSecondNs + up.tv_nsec;
  const auto ticks_a_second = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  return now_unix_ns - (up_ns - static_cast<int64_t>(start_ticks) * (kSecondNs / ticks_a_second));
}

std::string variable(std::string_view environment, std::string_view name) {
  for (std::string_view entry : split(environment, '\0')) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string(entry.substr(name.size() + 1, kPathMax));
  }
  return {};
}

template <size_t N>
std::string first_variable(std::string_view environment, const char* const (&names)[N]) {
  for (const char* name : names) {
    if (std::string value = variable(environment, name); !value.empty()) return value;
  }
  return {};
}

// The user's own word, so it is cut and has no control characters.
std::string code_version_of(std::string_view environment) {
  const Environment known = parse_environment(environment);
  const auto found = known.find(kCodeVersion);
  return found == known.end() ? std::string() : std::string(utf8_prefix(found->second, kVersionBytesMax));
}

std::string read_from(int fd, off_t offset, size_t most) {
  std::string bytes(most, '\0');
  size_t got = 0;
  while (got < most) {
    const ssize_t count = ::pread(fd, bytes.data() + got, most - got, offset + static_cast<off_t>(got));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    got += static_cast<size_t>(count);
  }
  bytes.resize(got);
  return bytes;
}

int64_t changed_ns(const struct stat& info) {
  return info.st_mtim.tv_sec * kSecondNs + info.st_mtim.tv_nsec;
}

// To this very process, not to one that has its number by now. 0, or errno.
int send_signal(const ProcessHandle& process, int number) {
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid(), 0)));
  if (!handle.valid() && errno != ENOSYS) return errno;
  if (!process.holds()) return ESRCH;  // whoever holds a number keeps it as long as he lives
  const long sent = handle.valid() ? ::syscall(SYS_pidfd_send_signal, handle.get(), number, nullptr, 0)
                                   : ::kill(process.pid(), number);
  return sent == 0 ? 0 : errno;
}

std::string name_of(const std::string& recorder) {
  return recorder.substr(recorder.rfind('/') + 1);
}

}  // namespace

std::string hook_word_path(const std::string& recorder) {
  return beside(recorder, ".hook");
}
std::string hook_stacks_path(const std::string& recorder) {
  return beside(recorder, ".stacks");
}

std::string hook_failed_path(const std::string& recorder) {
  return beside(recorder, ".failed");
}

std::string hook_orders_path(const std::string& recorder) {
  return beside(recorder, ".orders");
}

HookConfig parse_hook_word_untrusted(std::string_view text) {
  HookConfig word;
  for (std::string_view line : split(text.substr(0, kHookConfigBytesMax), '\n')) {
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, blank), value = line.substr(blank + 1);
    if (name == "signal") {
      // Real-time signals alone: what else a process does with a number of its own is not for us to stir.
      const int64_t number = parse_int(value).value_or(0);
      if (number >= SIGRTMIN && number <= SIGRTMAX) word.signal = static_cast<int>(number);
    } else if (name == "main" && value.starts_with("0x")) {
      std::from_chars(value.data() + 2, value.data() + value.size(), word.main_ident, 16);
    } else if (name == "stacks") {
      word.off = value == "off";
    } else if (name == "dump") {
      word.dump_prefix = value.substr(0, kPathMax);
    } else if (name == "pipe") {
      word.pipe_stem = value.substr(0, kPathMax);
    } else if (name == "kineto") {
      const size_t second = std::min(value.find(' '), value.size() - 1);
      const std::optional<int64_t> offset = parse_int(value.substr(0, second)),
                                   each = parse_int(value.substr(second + 1));
      constexpr int64_t kMost = int64_t{1} << 53;
      if (offset && each && *offset > -kMost && *offset < kMost && *each >= 1 && *each <= kKinetoEachMax) {
        word.kineto_offset = *offset;
        word.kineto_each = *each;
      }
    } else if (name == "profiler") {
      word.takes_orders = value == "torch";
    } else if (name == "profile") {
      const size_t first = std::min(value.find(' '), value.size());
      const std::string_view rest = value.substr(std::min(first + 1, value.size()));
      const size_t second = std::min(rest.find(' '), rest.size());
      word.ordered = value.substr(0, std::min(first, kOrderWordMax));
      word.order_state = rest.substr(0, std::min(second, kOrderWordMax));
      word.order_reason = as_one_line(rest.substr(std::min(second + 1, rest.size())).substr(0, kOrderReasonMax));
    }
  }
  return word;
}

struct EvidenceTaker::FileSeen {
  int64_t bytes = -1;
  int64_t changed_unix_ns = 0;
  int64_t since_ns = 0;  // unchanged
  bool done = false;     // told, or refused
};

struct EvidenceTaker::Process {
  RecorderOwner owner;
  uint64_t start_ticks = 0;
  int64_t born_unix_ns = 0;
  int64_t seen_ns = 0;                  // among the recorders that are read
  std::optional<ProcessHandle> handle;  // none: nobody here is known to be it
  bool apart = false;                   // it has a file system of its own
  std::set<std::string> refused;        // files that were counted as such
  bool environment_read = false;
  bool off = false, variable_off = false;
  std::string dump_prefix, pipe_stem;   // as its environment says
  std::string code_version;             // likewise
  std::vector<std::string> unreported;  // prefixes where PyTorch puts dumps without being told
  HookConfig word;
  int64_t asked_ns = 0;          // for stacks; 0: never
  int64_t samples_again_ns = 0;  // not before
  std::map<std::string, FileSeen> dumps;

  // A stack that is being taken.
  std::optional<RankStack> stack;
  UniqueFd answer;          // <recorder>.stacks; none: Python is not asked
  int64_t deadline_ns = 0;  // for Python
  off_t answer_from = 0, answer_bytes = 0;
  int64_t answer_since_ns = 0;
};

EvidenceTaker::EvidenceTaker(EvidenceOptions options, const Clock& clock, Counters& counters)
    : options_(options), clock_(clock), counters_(counters), known_("", false) {}
EvidenceTaker::~EvidenceTaker() = default;

void EvidenceTaker::set_ranks(const std::vector<RecorderOwner>& owners) {
  const int64_t now_ns = clock_.monotonic_ns();
  for (const RecorderOwner& owner : owners) {
    const bool is_new = !processes_.contains(owner.path);
    if (is_new) {
      make_room(owner.user);
      auto process = std::make_unique<Process>();
      process->start_ticks = start_ticks_of_recorder(owner.path);
      process->born_unix_ns = born_unix_ns(process->start_ticks, clock_.unix_ns());
      processes_[owner.path] = std::move(process);
    }
    Process& process = *processes_[owner.path];
    process.owner = owner;
    process.seen_ns = now_ns;
    if (is_new) read_environment(process);
  }
  std::erase_if(processes_, [&](const auto& entry) { return now_ns - entry.second->seen_ns > options_.linger_ns; });
}

std::map<std::string, std::string> EvidenceTaker::code_versions() const {
  std::map<std::string, std::string> all;
  for (const auto& [path, process] : processes_) all[path] = process->code_version;
  return all;
}

// Whoever starts processes without end has the oldest of them forgotten, not everybody's.
void EvidenceTaker::make_room(int64_t user) {
  size_t of_user = 0;
  auto oldest = processes_.end();
  for (auto at = processes_.begin(); at != processes_.end(); ++at) {
    if (at->second->owner.user != user) continue;
    ++of_user;
    if (oldest == processes_.end() || at->second->seen_ns < oldest->second->seen_ns) oldest = at;
  }
  if (of_user < 2 * user_limits::kRecordersPerUserMax) return;
  user_limits::count_over(counters_, "evidence", static_cast<uid_t>(user));
  processes_.erase(oldest);
}

bool EvidenceTaker::busy() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) { return entry.second->stack.has_value(); });
}

void EvidenceTaker::count_refused(Process& process, const std::string& file, UserFileRefused refused) {
  if (refused == UserFileRefused::kNo || refused == UserFileRefused::kAbsent) return;
  constexpr size_t kRemembered = 64;  // whoever names ever new ones is counted no further
  if (process.refused.size() >= kRemembered || !process.refused.insert(file).second) return;
  counters_.add("lockstep_agent_user_files_refused_total", format("reason=\"%s\"", to_text(refused)));
}

void EvidenceTaker::find_process(Process& process) {
  if (process.handle || process.owner.user < 0) return;
  known_.begin_look(false);
  const int32_t pid = process_of_recorder({.name = name_of(process.owner.path),
                                           .pid = process.owner.pid,
                                           .user = process.owner.user,
                                           .folder = process.owner.folder.get()},
                                          known_, {});
  known_.end_look();
  process.handle = ProcessHandle::open(pid, process.start_ticks, static_cast<uid_t>(process.owner.user));
}

// A hook may tell more later: a script that sets variables after its first mark.
void EvidenceTaker::read_hook(Process& process) {
  if (process.owner.folder == nullptr) return;
  const std::string name = hook_word_path(name_of(process.owner.path));
  const UserFile file = process.owner.folder->open_file(name, {.bytes_max = kHookConfigBytesMax});
  count_refused(process, name, file.refused);
  if (file.ok()) process.word = parse_hook_word_untrusted(file.read(kHookConfigBytesMax));
}

void EvidenceTaker::read_environment(Process& process) {
  find_process(process);
  read_hook(process);
  process.off = process.variable_off || process.word.off;
  if (!process.handle) return;
  if (const std::optional<bool> shares = process.handle->shares_our_files()) process.apart = !*shares;
  if (process.environment_read || !options_.read_environment) return;
  Result<std::string> environment = process.handle->read("environ", kEnvironmentBytesMax);
  if (!environment.ok()) return;  // another user's, and we may not; what its hook tells is known all the same
  process.environment_read = true;
  process.variable_off = variable(*environment, kStacksSwitch) == "0";
  process.off |= process.variable_off;
  process.dump_prefix = first_variable(*environment, kDumpPrefixes);
  process.pipe_stem = first_variable(*environment, kPipeStems);
  process.code_version = code_version_of(*environment);
  if (process.dump_prefix.empty()) {
    process.unreported = {"/tmp/nccl_trace_rank_"};
    std::string cache = variable(*environment, "XDG_CACHE_HOME");
    if (const std::string home = variable(*environment, "HOME"); cache.empty() && !home.empty())
      cache = home + "/.cache";
    if (!cache.empty()) process.unreported.push_back(cache + "/torch/comm_lib_trace_rank_");
  }
}

// A file that the process or its hook named, where its paths begin.
UserFile EvidenceTaker::open_for(Process& process, const std::string& path, UserFileWanted wanted) {
  if (!process.handle) return {};  // a path of nobody means nothing
  const UniqueFd root =
      process.apart ? process.handle->root_folder() : UniqueFd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return {};
  wanted.owner = static_cast<uid_t>(process.owner.user);
  UserFile file = open_user_file(root.get(), path, wanted);
  count_refused(process, path, file.refused);
  return file;
}

EvidenceTaker::Process* EvidenceTaker::find_rank(const std::string& job_id, int64_t attempt, Rank rank) {
  Process* found = nullptr;
  for (auto& [path, process] : processes_) {
    const Identity& who = process->owner.identity;
    if (who.rank != rank || who.job_id != job_id || who.attempt != attempt) continue;
    if (found == nullptr || process->start_ticks > found->start_ticks) found = process.get();
  }
  return found;
}

void EvidenceTaker::ask(const StackRequest& request) {
  auto counted = [&](const char* result) {
    counters_.add("lockstep_agent_stacks_total", format("result=\"%s\"", result));
  };
  const int64_t now_ns = clock_.monotonic_ns();
  for (Rank rank : request.ranks) {
    Process* found = find_rank(request.job_id, request.attempt, rank);
    if (found == nullptr) {
      counted("gone");
      continue;
    }
    if (found->stack || (found->asked_ns != 0 && now_ns - found->asked_ns < options_.per_process_ns)) {
      counted("again");
      continue;
    }
    read_environment(*found);
    if (!options_.stacks || found->off) {
      counted("off");
      continue;
    }
    found->asked_ns = now_ns;
    ask_for_dump(*found);
    begin(*found);
  }
}

std::vector<SampleTarget> EvidenceTaker::sample_targets(const SampleRequest& request) {
  std::vector<SampleTarget> targets;
  auto counted = [&](const char* result) {
    counters_.add("lockstep_agent_samples_total", format("result=\"%s\"", result));
  };
  const int64_t now_ns = clock_.monotonic_ns();
  for (Rank rank : request.ranks) {
    Process* found = find_rank(request.job_id, request.attempt, rank);
    if (found == nullptr) {
      counted("gone");
      continue;
    }
    if (now_ns < found->samples_again_ns) {
      counted("again");
      continue;
    }
    read_environment(*found);
    if (!options_.stacks || found->off) {
      counted("off");
      continue;
    }
    if (!found->handle || !found->handle->holds()) {
      counted("gone");
      continue;
    }
    found->samples_again_ns = now_ns + request.seconds * kSecondNs + options_.samples_per_process_ns;
    targets.push_back(
        {found->owner.identity, found->handle->pid(), found->start_ticks, static_cast<uid_t>(found->owner.user)});
  }
  return targets;
}

void EvidenceTaker::begin(Process& process) {
  RankStack& stack = process.stack.emplace();
  stack.time_unix_ns = clock_.unix_ns();
  stack.pid = process.owner.pid;
  process.answer.reset();
  process.deadline_ns = 0;
  if (!process.handle || !process.handle->holds()) {
    stack.note = process.handle ? "its process is gone" : "its process cannot be seen from here, or is not its owner's";
    return;
  }
  stack.pid = process.handle->pid();
  Result<ThreadStacks> threads = read_thread_stacks(process.handle->pid());
  // By its number: what was read is its own only where it still has that.
  if (threads.ok() && !process.handle->holds()) threads = Error{"its process is gone"};
  if (!threads.ok()) {
    stack.note = threads.error();
    return;
  }
  stack.threads_count = threads->count;
  stack.threads = std::move(threads->threads);
  ask_python(process);
  if (!process.answer.valid()) read_python(process);
}

// Where the process itself cannot be asked. Not of one that the kernel does not let go: its memory may be locked.
void EvidenceTaker::read_python(Process& process) {
  RankStack& stack = *process.stack;
  if (!process.handle || stack.threads.empty() || stack.threads.front().state == 'D') return;
  Result<std::vector<PythonStack>> python =
      read_python_stacks(process.handle->pid(), process.start_ticks, static_cast<uid_t>(process.owner.user));
  if (!python.ok() || python->empty()) {
    if (!stack.note.empty()) stack.note += "; ";
    stack.note += "from outside: " + (python.ok() ? std::string("no thread is in Python") : python.error());
    return;
  }
  stack.python = std::move(*python);
  const char state = stack.threads.front().state;
  if (state == 'T' || state == 't')
    stack.note += "; its stack was read from outside";
  else
    stack.note.clear();
}

// Leaves either somebody to wait for or a note that says why there is nobody.
void EvidenceTaker::ask_python(Process& process) {
  RankStack& stack = *process.stack;
  const char state = stack.threads.front().state;
  if (state == 'T' || state == 't') {
    stack.note = "its process is stopped by a signal or a debugger: Python cannot answer";
    return;
  }
  if (process.word.signal == 0) {
    stack.note = "no Python stack: its process has no Lockstep hook that offers one";
    return;
  }
  const Result<std::string> status = process.handle->read("status", kEnvironmentBytesMax);
  const SignalSets sets = status.ok() ? signal_sets_untrusted(*status) : SignalSets{};
  if ((sets.caught >> (process.word.signal - 1) & 1) == 0) {
    stack.note = format("no Python stack: nobody catches signal %d, which its hook named", process.word.signal);
    return;
  }
  const std::string name = hook_stacks_path(name_of(process.owner.path));
  UserFile answer;
  if (process.owner.folder != nullptr) answer = process.owner.folder->open_file(name, {.access = O_RDWR});
  count_refused(process, name, answer.refused);
  if (!answer.ok()) {
    stack.note = "no Python stack: the file that its hook writes to is not there";
    return;
  }
  process.answer = std::move(answer.fd);
  process.answer_from = process.answer_bytes = answer.info.st_size;
  if (const int failed = send_signal(*process.handle, process.word.signal); failed != 0) {
    process.answer.reset();
    stack.note = format("no Python stack: it may not be asked: %s", std::strerror(failed));
    return;
  }
  process.answer_since_ns = clock_.monotonic_ns();
  process.deadline_ns = process.answer_since_ns + options_.python_wait_ns;
}

void EvidenceTaker::finish_python(Process& process, std::vector<ResourceGroup>& out) {
  const int64_t now_ns = clock_.monotonic_ns();
  if (process.answer.valid()) {
    struct stat info {};
    const bool there = ::fstat(process.answer.get(), &info) == 0;
    if (there && info.st_size != process.answer_bytes) {
      process.answer_bytes = info.st_size;
      process.answer_since_ns = now_ns;
    }
    const bool came = process.answer_bytes > process.answer_from;
    const bool settled = came && now_ns - process.answer_since_ns >= options_.python_settled_ns;
    if (!settled && now_ns < process.deadline_ns) return;
    process.stack->python = parse_faulthandler_untrusted(
        read_from(process.answer.get(), process.answer_from, kFaulthandlerBytesMax), process.word.main_ident);
    if (process.stack->python.empty())
      process.stack->note = format("no Python stack: asked, and no answer within %s",
                                   human_duration(static_cast<double>(options_.python_wait_ns)).c_str());
    if (process.stack->python.empty()) read_python(process);
    // Its writer appends: the next answer begins at the front again.
    if (came) (void)!::ftruncate(process.answer.get(), 0);
    process.answer.reset();
  }
  counters_.add("lockstep_agent_stacks_total", "result=\"told\"");
  out.push_back({.resource = to_resource(process.owner.identity),
                 .scope_name = kAgentScope,
                 .logs = {to_record(*process.stack)}});
  process.stack.reset();
}

void EvidenceTaker::ask_for_dump(Process& process) {
  const std::string& stem = process.word.pipe_stem.empty() ? process.pipe_stem : process.word.pipe_stem;
  if (!stem.starts_with('/')) return;
  const UserFile pipe = open_for(process, format("%s%d.pipe", stem.c_str(), process.owner.identity.rank.value()),
                                 {.access = O_WRONLY, .kind = UserFileKind::kPipe});
  if (!pipe.ok()) return;  // not there, or nobody reads it
  if (::write(pipe.fd.get(), "1", 1) == 1) counters_.add("lockstep_agent_dumps_total", "result=\"asked\"");
}

void EvidenceTaker::look_for_dumps(Process& process, std::vector<ResourceGroup>& out) {
  read_environment(process);
  std::vector<std::string> prefixes = process.unreported;
  for (const std::string& reported : {process.dump_prefix, process.word.dump_prefix}) {
    if (!reported.empty() && std::find(prefixes.begin(), prefixes.end(), reported) == prefixes.end())
      prefixes.push_back(reported);
  }
  std::set<std::string> files;
  for (const std::string& prefix : prefixes) {
    if (prefix.starts_with('/')) files.insert(prefix + std::to_string(process.owner.identity.rank.value()));
  }
  for (const std::string& file : files) look_at_dump(process, file, out);
  std::erase_if(process.dumps, [&](const auto& seen) { return !files.contains(seen.first); });
}

void EvidenceTaker::look_at_dump(Process& process, const std::string& file, std::vector<ResourceGroup>& out) {
  const UserFile opened = open_for(process, file, {});
  const struct stat& info = opened.info;
  if (!opened.ok() || changed_ns(info) < process.born_unix_ns) return;
  const int64_t now_ns = clock_.monotonic_ns();
  FileSeen& seen = process.dumps[file];
  if (seen.bytes != info.st_size || seen.changed_unix_ns != changed_ns(info))
    seen = {.bytes = info.st_size, .changed_unix_ns = changed_ns(info), .since_ns = now_ns};
  if (seen.done || now_ns - seen.since_ns < options_.settled_ns) return;
  auto refuse = [&](const std::string& why) {
    seen.done = true;
    counters_.add("lockstep_agent_dumps_total", "result=\"refused\"");
    LOCKSTEP_LOG_WARN("agent", "rank %d: %s is not read as a Flight Recorder dump: %s",
                      process.owner.identity.rank.value(), as_one_line(file).c_str(), why.c_str());
  };
  if (static_cast<uint64_t>(info.st_size) > kFlightDumpBytesMax)
    return refuse(format("%lld bytes (limit %zu)", static_cast<long long>(info.st_size), kFlightDumpBytesMax));
  Result<FlightDump> dump = read_flight_dump(opened.read(static_cast<size_t>(info.st_size)));
  if (!dump.ok()) {
    // Cut short: its writer may only be slow.
    if (now_ns - seen.since_ns >= 10 * options_.settled_ns) refuse(dump.error());
    return;
  }
  seen.done = true;
  dump->time_unix_ns = seen.changed_unix_ns;
  dump->file = file;
  counters_.add("lockstep_agent_dumps_total", "result=\"told\"");
  LOCKSTEP_LOG_INFO("agent", "rank %d: Flight Recorder dump %s, %lld operations", process.owner.identity.rank.value(),
                    as_one_line(file).c_str(), static_cast<long long>(dump->entries));
  if (options_.uploads != nullptr)
    options_.uploads->add(process.owner.identity, opened.info.st_uid, EvidenceFileKind::kDump,
                          open_again(opened.fd.get(), O_RDONLY), seen.changed_unix_ns / kSecondNs);
  out.push_back(
      {.resource = to_resource(process.owner.identity), .scope_name = kAgentScope, .logs = {to_record(*dump)}});
}

std::vector<ResourceGroup> EvidenceTaker::poll() {
  std::vector<ResourceGroup> out;
  for (auto& [path, process] : processes_) {
    if (process->stack) finish_python(*process, out);
  }
  if (const int64_t now_ns = clock_.monotonic_ns(); now_ns >= next_dumps_ns_) {
    next_dumps_ns_ = now_ns + options_.dumps_every_ns;
    std::set<int64_t> behind;  // who has not been through since: first that
    for (const auto& [user, due] : dumps_due_) behind.insert(user);
    for (auto& [path, process] : processes_) {
      if (!behind.contains(process->owner.user)) dumps_due_[process->owner.user].push_back(path);
    }
  }
  for (auto user = dumps_due_.begin(); user != dumps_due_.end();) {
    const int64_t begin_ns = clock_.monotonic_ns();
    std::deque<std::string>& due = user->second;
    while (!due.empty() && clock_.monotonic_ns() - begin_ns < user_limits::kDumpsNs) {
      if (const auto found = processes_.find(due.front()); found != processes_.end())
        look_for_dumps(*found->second, out);
      due.pop_front();
      if (options_.heartbeat != nullptr) options_.heartbeat->beat();
    }
    if (!due.empty() && user->first >= 0) user_limits::count_over(counters_, "time", static_cast<uid_t>(user->first));
    user = due.empty() ? dumps_due_.erase(user) : std::next(user);
  }
  return out;
}

}  // namespace lockstep
