// A user who changes his folder under the agent's hands, all the time: links, pipes, terminals, folders and other
// people's pids in the place of recorders, hooks, answers and dumps, and the folder itself replaced. A process of
// another user does that (as root: "nobody"; else our own user, and then whose file is whose is not tried, which is
// said aloud), while this process reads the folder as the agent does: recorder watch, evidence, keeping of dead
// recorders.
//
// What must hold, whatever is done:
//   1. no file that is not the user's (a recorder, a hook, a dump of root's, each with a mark in it) is opened, nor is
//      anything of it in what is sent or kept;
//   2. no pipe in the place of a file is opened, and no terminal is opened at all;
//   3. no round takes longer than kRoundMs: nothing is waited for;
//   4. the process of another user that the files name is never described nor sent a signal, and lives;
//   5. another user's recorder is read meanwhile, all of its steps;
//   6. what is kept is its user's alone (0600 in 0700), and nothing outside the folder is changed or removed.
//
//   hostile_folder [--seconds N] [--seed N]      exit status 1: one of them did not hold; the line says which
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "agent/counters_table.h"
#include "agent/evidence/evidence_taker.h"
#include "agent/ranks/recorder_watch.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "model/events.h"
#include "recorder/layout.h"
#include "recorder/writer.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr uid_t kNobody = 65534;
constexpr const char* kMark = "MARK-OF-SOMEBODY-ELSES-FILE";
constexpr int64_t kRoundMs = 10'000;  // a machine that is busy with seven other tests, and a sanitizer

// What both processes see.
struct Shared {
  std::atomic<uint64_t> attacks{0};
  std::atomic<uint64_t> pipes_opened{0};
  std::atomic<uint64_t> terminals_opened{0};
  std::atomic<uint64_t> signals{0};  // that the other user's process got
};

struct World {
  std::string root;      // ours
  std::string users;     // as /dev/shm: everybody may make something there
  std::string folder;    // the hostile user's
  std::string secrets;   // ours; recorders, hooks and dumps with a mark
  std::string recorder;  // bytes of a whole one
  pid_t victim = -1;
  uint64_t victim_ticks = 0;
  Shared* shared = nullptr;
};

[[noreturn]] void give_up(const std::string& line) {
  std::fprintf(stderr, "hostile_folder: %s\n", line.c_str());
  std::_Exit(1);
}

void write_plain(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return;
  (void)!::write(fd, bytes.data(), bytes.size());
  ::close(fd);
}

std::string dump_with(std::string_view text) {
  // {"entries": [], "note": text}
  std::string dump("\x80\x02}(X\x07\x00\x00\x00", 9);
  dump += "entries]X";
  dump += std::string("\x04\x00\x00\x00", 4) + "noteX";
  const auto bytes = static_cast<uint32_t>(text.size());
  dump.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(text);
  return dump + "u.";
}

// How often something that is watched was opened since; folders do not count.
uint64_t openings(int watch, uint32_t kind) {
  uint64_t count = 0;
  alignas(inotify_event) char events[16'384];
  for (ssize_t got; (got = ::read(watch, events, sizeof events)) > 0;) {
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events + at);
      count += (event->mask & kind) != 0 && (event->mask & IN_ISDIR) == 0;
      at += static_cast<ssize_t>(sizeof *event + event->len);
    }
  }
  return count;
}

void cut(const std::string& path, off_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  (void)!::ftruncate(fd, bytes);
  ::close(fd);
}

// The hostile user.
class Hostile {
 public:
  Hostile(const World& world, uint64_t seed) : world_(world), random_(seed) {}

  [[noreturn]] void run() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
                             ::setresuid(kNobody, kNobody, kNobody) != 0))
      std::_Exit(2);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user forgets it
    ::prctl(PR_SET_DUMPABLE, 1);
    open_terminal();
    const uint64_t own_ticks = process_state(::getpid()).start_ticks;
    own_ticks_ = own_ticks;
    stems_.resize(kStems);
    for (std::string& stem : stems_) stem = new_stem();
    while (true) {
      attack();
      if (world_.shared->attacks.fetch_add(1) % 8 == 0) renew_stem();
      look_whether_opened();
    }
  }

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  template <typename T>
  const T& any(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  std::string new_stem() {
    const bool victims = below(3) == 0;
    return format("%llu-%d-%llu", static_cast<unsigned long long>(++stems_made_), victims ? world_.victim : ::getpid(),
                  static_cast<unsigned long long>(victims ? world_.victim_ticks : own_ticks_));
  }
  // Ever new names: one that was refused is not tried again for a while.
  void renew_stem() {
    std::string& stem = stems_[below(stems_.size())];
    for (const char* suffix : kSuffixes) {
      const std::string path = world_.folder + "/" + stem + suffix;
      if (::unlink(path.c_str()) != 0) (void)::rmdir(path.c_str());
    }
    stem = new_stem();
  }

  void open_terminal() {
    terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64];
    if (terminal_ < 0 || ::grantpt(terminal_) != 0 || ::unlockpt(terminal_) != 0 ||
        ::ptsname_r(terminal_, name, sizeof name) != 0)
      return;
    terminal_number_ = std::atoi(std::strrchr(name, '/') + 1);
  }

  std::string some_path() {
    return world_.folder + "/" + any(stems_) + kSuffixes[below(2) == 0 ? below(2) : below(std::size(kSuffixes))];
  }

  std::string recorder_bytes() {
    std::string bytes = world_.recorder;
    auto put = [&](size_t offset, auto value) { std::memcpy(bytes.data() + offset, &value, sizeof value); };
    const bool victims = below(2) == 0;
    put(offsetof(layout::FileHeader, pid), static_cast<int32_t>(victims ? world_.victim : ::getpid()));
    put(offsetof(layout::FileHeader, process_start_ticks),
        victims ? world_.victim_ticks : process_state(::getpid()).start_ticks);
    bytes[offsetof(layout::FileHeader, job_id)] = static_cast<char>('a' + below(26));
    // The rank is the number of the terminal half of the time: <prefix><rank> is a dump's name.
    const int32_t rank = below(2) == 0 && terminal_number_ >= 0 ? terminal_number_ : 3;
    put(offsetof(layout::FileHeader, rank_and_world), rank);
    if (below(4) == 0) {
      for (int i = 0; i < 8; ++i) put(below(bytes.size() - 8), random_());
    }
    return bytes;
  }

  std::string hook_text() {
    const std::vector<std::string> prefixes = {world_.secrets + "/dump_",
                                               world_.folder + "/link/dump_",
                                               world_.folder + "/" + any(stems_) + "_",
                                               "/dev/pts/",
                                               world_.folder + "/../../secrets/dump_",
                                               "/proc/self/fd/",
                                               "/dev/tty"};
    return format("signal %d\nmain 0x7f0000000001\ndump %s\npipe %s\n", SIGRTMIN + 3, any(prefixes).c_str(),
                  any(prefixes).c_str());
  }

  void put_in_place(const std::string& path) {
    // Made aside and moved, so that it appears whole; or in place, half made.
    const std::string aside = world_.folder + "/aside";
    const std::string& where = below(3) == 0 ? path : aside;
    ::unlink(where.c_str());
    ::rmdir(where.c_str());
    switch (below(9)) {
      case 0:
      case 1:
      case 2:
        write_plain(where, path.ends_with(".hook") ? hook_text() : recorder_bytes());
        break;
      case 3: {
        const std::vector<std::string> targets = {world_.secrets + "/recorder.lsfr",
                                                  world_.secrets + "/recorder.lsfr",
                                                  world_.secrets + "/recorder.lsfr",
                                                  world_.secrets + "/recorder.lsfr",
                                                  world_.secrets + "/secret.hook",
                                                  world_.secrets + "/dump_3",
                                                  "/dev/zero",
                                                  "/dev/tty",
                                                  "/etc/passwd",
                                                  world_.folder,
                                                  "/proc/self/environ"};
        (void)!::symlink(any(targets).c_str(), where.c_str());
        break;
      }
      case 4:
        // The kernel tells of every opening of this very pipe, whatever it is called by then.
        if (::mkfifo(where.c_str(), 0600) == 0)
          (void)::inotify_add_watch(opened_.get(), where.c_str(), IN_OPEN | IN_DONT_FOLLOW);
        break;
      case 5:
        (void)::mkdir(where.c_str(), 0700);
        break;
      case 6: {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (where.size() < sizeof address.sun_path) {
          std::memcpy(address.sun_path, where.c_str(), where.size());
          (void)::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
        }
        ::close(fd);
        break;
      }
      case 7:
        (void)::mknod(where.c_str(), S_IFCHR | 0600, makedev(1, 5));  // where he may: in a container, say
        break;
      default:
        write_plain(where, dump_with("own"));
    }
    if (where == path) return;
    if (below(2) == 0) {
      (void)!::syscall(SYS_renameat2, AT_FDCWD, aside.c_str(), AT_FDCWD, path.c_str(), 2u /* RENAME_EXCHANGE */);
    } else {
      (void)::rename(aside.c_str(), path.c_str());
    }
  }

  void attack() {
    const std::string path = some_path();
    switch (below(12)) {
      case 0:
        (void)::unlink(path.c_str());
        break;
      case 1:
        (void)::rename(path.c_str(), some_path().c_str());
        break;
      case 2:
        cut(path, static_cast<off_t>(below(world_.recorder.size())));
        break;
      case 3:
        cut(path, static_cast<off_t>(1) << (20 + below(20)));
        break;
      case 4:
        (void)::link(some_path().c_str(), path.c_str());
        break;
      case 5:
        (void)::unlink((world_.folder + "/link").c_str());
        (void)!::symlink(world_.secrets.c_str(), (world_.folder + "/link").c_str());
        break;
      case 6:
        if (below(8) == 0) replace_folder();  // a folder that is not in its place is looked for once a second
        break;
      case 7: {
        const int fd = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat info {};
        const uint64_t word = random_();
        if (fd >= 0 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
          (void)!::pwrite(fd, &word, sizeof word, static_cast<off_t>(below(world_.recorder.size())));
        if (fd >= 0) ::close(fd);
        break;
      }
      default:
        put_in_place(path);
    }
  }

  // The folder away, a link to what is not ours in its place, and back.
  void replace_folder() {
    const std::string away = world_.folder + ".away";
    if (::rename(world_.folder.c_str(), away.c_str()) != 0) return;
    (void)!::symlink(world_.secrets.c_str(), world_.folder.c_str());
    if (below(2) == 0) ::usleep(static_cast<useconds_t>(below(2'000)));  // the moment is random
    ::unlink(world_.folder.c_str());
    if (::rename(away.c_str(), world_.folder.c_str()) != 0) std::_Exit(3);
  }

  void look_whether_opened() {
    world_.shared->pipes_opened.fetch_add(openings(opened_.get(), IN_OPEN));
    pollfd state{terminal_, POLLIN, 0};
    if (terminal_ >= 0 && ::poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0)
      world_.shared->terminals_opened.fetch_add(1);
  }

  static constexpr size_t kStems = 48;
  static constexpr const char* kSuffixes[] = {".lsfr", ".hook", ".stacks", "_3", "_3.pipe"};

  const World& world_;
  std::mt19937_64 random_;
  std::vector<std::string> stems_;
  uint64_t stems_made_ = 0;
  uint64_t own_ticks_ = 0;
  const UniqueFd opened_{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
  int terminal_ = -1;
  int terminal_number_ = -1;
};

Record mark(RecordType type, int64_t number, uint64_t at_ns) {
  Record record{};
  record.head.type = type;
  record.head.time_ns = at_ns;
  record.mark.number = number;
  return record;
}

// Somebody else's process: catches the signal that hooks name, so that it would get it.
pid_t start_victim(Shared* shared) {
  static Shared* counted = nullptr;
  const pid_t child = ::fork();
  if (child != 0) return child;
  counted = shared;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct sigaction action {};
  action.sa_handler = [](int) { counted->signals.fetch_add(1); };
  ::sigaction(SIGRTMIN + 3, &action, nullptr);
  while (true) ::pause();
}

std::string a_recorder(const std::string& folder, const std::string& job) {
  const pid_t child = ::fork();
  if (child == 0) {
    RecorderWriter::Options options;
    options.directory = folder;
    options.geometry = {2, 64, 4};
    options.identity = {job, 0, 3, 8, 3, "node", ""};
    auto writer = RecorderWriter::open(options);
    if (!writer.ok()) std::_Exit(1);
    (*writer)->in_flight().claim({.comm_id = 7, .size = 8, .rank_in_comm = 3, .name = job.c_str()});
    (*writer)->write(mark(RecordType::kStepBegin, 1, recorder_now_ns()));
    std::_Exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const std::vector<std::string> names = *list_directory(folder);
  for (const std::string& name : names) {
    Result<std::string> bytes = read_file(folder + "/" + name, 64u << 20);
    ::unlink((folder + "/" + name).c_str());
    if (bytes.ok()) return *bytes;
  }
  give_up("cannot make a recorder");
}

bool has_mark(std::vector<ResourceGroup> groups, Signal signal) {
  return otlp::encode(Batch{.signal = signal, .groups = std::move(groups)}).find(kMark) != std::string::npos;
}

class Reader {
 public:
  explicit Reader(const World& world)
      : world_(world),
        watch_({.folder = format("%s/lockstep-%u", world.users.c_str(), static_cast<unsigned>(::geteuid())),
                .users_folder = world.users,
                .kept_folder = world.root + "/kept",
                .quiet_status_ns = 50'000'000,
                .metrics_every_ns = 200'000'000},
               clock_, counters_),
        evidence_({.python_wait_ns = 5'000'000,
                   .python_settled_ns = 1'000'000,
                   .per_process_ns = 1,
                   .dumps_every_ns = 1,
                   .settled_ns = 1},
                  clock_, counters_) {
    // Where one user plays both sides, a dump that his hook names is his own; what only links lead to is not.
    const char* const watched[] = {"", "/recorder.lsfr", "/secret.hook"};
    for (const char* name : watched) {
      if (*name == '\0' && ::geteuid() != 0) continue;
      if (::inotify_add_watch(secrets_.get(), (world.secrets + name).c_str(), IN_OPEN) < 0)
        give_up("cannot watch the secrets");
    }
  }

  void round() {
    CollectedBatch batch = watch_.poll();
    for (const ResourceGroup& group : batch.logs) {
      for (const LogRecord& record : group.logs) {
        if (record.event_name != kEventTrainStep) continue;
        for (const Attribute& attribute : group.resource) {
          if (attribute.key == "lockstep.job_id" && attribute.value == Value("honest")) ++honest_steps_;
        }
      }
    }
    const std::vector<RecorderOwner> owners = watch_.owners();
    evidence_.set_ranks(owners);
    for (const RecorderOwner& owner : owners)
      evidence_.ask({owner.identity.job_id, owner.identity.attempt, {owner.identity.rank}});
    std::vector<ResourceGroup> fetched = evidence_.poll();
    for (const ResourceGroup& group : fetched) {
      for (const LogRecord& record : group.logs) {
        if (record.event_name != kEventRankStack) continue;
        ++stacks_;
        const Result<RankStack> stack = rank_stack_from_record(record);
        if (::geteuid() == 0 && stack.ok() && stack->pid == world_.victim && !stack->threads.empty())
          give_up(format("4: the threads of process %d, which is another user's, were reported", world_.victim));
      }
    }
    if (has_mark(std::move(batch.logs), Signal::kLogs) || has_mark(std::move(batch.metrics), Signal::kMetrics) ||
        has_mark(std::move(fetched), Signal::kLogs))
      give_up("1: something of another user's file is in what is sent");
    watch_.submitted(1);
    watch_.release([](uint64_t) { return true; });
    if (openings(secrets_.get(), IN_OPEN) > 0) give_up("1: another user's file was opened");
  }

  void check_kept() const {
    const std::string folder = world_.root + "/kept";
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0) return;
    if ((info.st_mode & 07777) != 0700) give_up("6: the folder of kept recorders is open to others");
    const std::vector<std::string> names = *list_directory(folder);
    for (const std::string& name : names) {
      if (::stat((folder + "/" + name).c_str(), &info) != 0) continue;
      if ((info.st_mode & 07777) != 0600) give_up("6: " + name + " is open to others");
      // The head is enough: the files with a mark are small, and many of these are cut at 64 MB.
      std::string head(1u << 20, '\0');
      const UniqueFd file(::open((folder + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
      head.resize(static_cast<size_t>(std::max<ssize_t>(0, ::pread(file.get(), head.data(), head.size(), 0))));
      if (head.find(kMark) != std::string::npos) give_up("1: " + name + " holds another user's file");
    }
  }

  int64_t honest_steps() const { return honest_steps_; }
  int64_t stacks() const { return stacks_; }
  std::string page() const { return counters_.prometheus_text(); }
  int64_t refused() const {
    return counters_.sum("lockstep_agent_user_files_refused_total") +
           counters_.sum("lockstep_agent_recorder_refused_total");
  }

 private:
  const World& world_;
  SystemClock clock_;
  Counters counters_{kAgentCounters};
  RecorderWatch watch_;
  EvidenceTaker evidence_;
  const UniqueFd secrets_{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
  int64_t honest_steps_ = 0;
  int64_t stacks_ = 0;
};

// Ends the process where a round does not end.
class RoundGuard {
 public:
  RoundGuard() : thread_([this](std::stop_token stop) { run(std::move(stop)); }) {}
  void began() { since_ns_.store(SystemClock().monotonic_ns()); }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (SystemClock().monotonic_ns() - since_ns_.load() > kRoundMs * 1'000'000)
        give_up(format("3: a round has not ended for %lld s", static_cast<long long>(kRoundMs / 1000)));
      ::poll(nullptr, 0, 50);
    }
  }
  std::atomic<int64_t> since_ns_{SystemClock().monotonic_ns()};
  std::jthread thread_;
};

World make_world(const std::string& root) {
  World world;
  world.root = root;
  ::chmod(world.root.c_str(), 0755);
  world.users = world.root + "/users";
  world.secrets = world.root + "/secrets";
  for (const std::string& folder : {world.users, world.secrets}) ::mkdir(folder.c_str(), 0755);
  ::chmod(world.users.c_str(), 01777);
  world.recorder = a_recorder(world.secrets, "hostile");
  write_plain(world.secrets + "/recorder.lsfr", a_recorder(world.secrets, kMark));
  write_plain(world.secrets + "/secret.hook", format("dump /%s\n", kMark));
  write_plain(world.secrets + "/dump_3", dump_with(kMark));
  world.folder =
      format("%s/lockstep-%u", world.users.c_str(), static_cast<unsigned>(::geteuid() == 0 ? kNobody : ::geteuid()));
  ::mkdir(world.folder.c_str(), 0700);
  (void)!::chown(world.folder.c_str(), ::geteuid() == 0 ? kNobody : ::geteuid(), static_cast<gid_t>(-1));
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  world.shared = new (memory) Shared;
  world.victim = start_victim(world.shared);
  testing::eventually([&] { return (world.victim_ticks = process_state(world.victim).start_ticks) != 0; });
  return world;
}

std::string state_of_secrets(const World& world) {
  std::string all;
  const std::vector<std::string> names = *list_directory(world.secrets);
  for (const std::string& name : names) {
    struct stat info {};
    ::lstat((world.secrets + "/" + name).c_str(), &info);
    all += format("%s %o %u %lld; ", name.c_str(), info.st_mode, info.st_uid, static_cast<long long>(info.st_size));
  }
  return all;
}

// Another user, who means no harm. Without root there is none.
std::unique_ptr<RecorderWriter> open_honest(const World& world) {
  if (::geteuid() != 0) return nullptr;
  RecorderWriter::Options options;
  options.directory = world.users + "/lockstep-0";
  options.geometry = {2, 1024, 4};
  options.identity = {"honest", 0, 0, 1, 0, "node", ""};
  auto opened = RecorderWriter::open(options);
  if (!opened.ok()) give_up(opened.error());
  return std::move(*opened);
}

// What the reader did while it was attacked.
struct Rounds {
  int64_t rounds = 0, steps = 0, longest_ns = 0;
};

// Reads while the hostile process attacks, for so long; longer where the attacks have not reached the reader yet: the
// machine may be busy with others.
Rounds read_under_attack(pid_t hostile, int64_t seconds, Reader& reader, RoundGuard& guard, RecorderWriter* honest) {
  Rounds done;
  const SystemClock clock;
  const int64_t end_ns = clock.monotonic_ns() + seconds * 1'000'000'000;
  while (clock.monotonic_ns() < end_ns || (reader.refused() < 10 && clock.monotonic_ns() < end_ns + 60'000'000'000)) {
    guard.began();
    if (honest != nullptr) {
      ++done.steps;
      honest->write(mark(RecordType::kStepBegin, done.steps, recorder_now_ns()));
      honest->write(mark(RecordType::kStepEnd, done.steps, recorder_now_ns()));
    }
    const int64_t began_ns = clock.monotonic_ns();
    reader.round();
    done.longest_ns = std::max(done.longest_ns, clock.monotonic_ns() - began_ns);
    ++done.rounds;
    if (done.rounds % 64 == 0) reader.check_kept();
    if (::waitpid(hostile, nullptr, WNOHANG) != 0) give_up("the hostile process has ended; nothing is shown");
  }
  return done;
}

// The last step waits for what may still come of it, as steps do.
void read_last_steps(int64_t steps, Reader& reader, RoundGuard& guard) {
  for (int i = 0; i < 400 && reader.honest_steps() + 1 < steps; ++i) {
    guard.began();
    reader.round();
    ::poll(nullptr, 0, 20);
  }
  if (reader.honest_steps() + 1 < steps)
    give_up(format("5: of %lld steps of another user %lld were read", static_cast<long long>(steps),
                   static_cast<long long>(reader.honest_steps())));
}

void print_rounds(const Rounds& done, const World& world, const Reader& reader, uint64_t seed) {
  std::printf(
      "hostile_folder: %lld rounds, the longest %s, against %llu attacks (seed %llu): %lld files refused, %lld "
      "stacks, "
      "%lld steps of another user\n",
      static_cast<long long>(done.rounds), human_duration(static_cast<double>(done.longest_ns)).c_str(),
      static_cast<unsigned long long>(world.shared->attacks.load()), static_cast<unsigned long long>(seed),
      static_cast<long long>(reader.refused()), static_cast<long long>(reader.stacks()),
      static_cast<long long>(reader.honest_steps()));
}

// Nothing outside the folder was touched.
void check_outside(const World& world, const std::string& secrets_before) {
  if (world.shared->pipes_opened.load() != 0) give_up("2: a pipe was opened");
  if (world.shared->terminals_opened.load() != 0) give_up("2: a terminal was opened");
  if (::geteuid() == 0 && world.shared->signals.load() != 0) give_up("4: another user's process was sent a signal");
  if (::waitpid(world.victim, nullptr, WNOHANG) != 0) give_up("4: another user's process has ended");
  if (state_of_secrets(world) != secrets_before)
    give_up("6: outside the folder: " + secrets_before + "became " + state_of_secrets(world));
}

int run(int64_t seconds, uint64_t seed) {
  const testing::TemporaryFolder root;
  const World world = make_world(root.path());
  const std::string secrets_before = state_of_secrets(world);
  if (::geteuid() != 0)
    std::printf(
        "hostile_folder: NOT ROOT: one user plays both sides; whose file and whose process it is was not tried\n");
  const pid_t hostile = ::fork();
  if (hostile == 0) Hostile(world, seed).run();
  {
    const std::unique_ptr<RecorderWriter> honest = open_honest(world);
    Reader reader(world);
    RoundGuard guard;
    const Rounds done = read_under_attack(hostile, seconds, reader, guard, honest.get());
    read_last_steps(done.steps, reader, guard);
    ::kill(hostile, SIGKILL);
    ::waitpid(hostile, nullptr, 0);
    reader.check_kept();
    print_rounds(done, world, reader, seed);
    if (reader.refused() < 10) give_up("hardly anything was refused: the attacks do not reach the reader");
  }
  check_outside(world, secrets_before);
  ::kill(world.victim, SIGKILL);
  ::waitpid(world.victim, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  int64_t seconds = 3;
  auto seed = static_cast<uint64_t>(::getpid());
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::optional<uint64_t> value = lockstep::parse_uint(argv[i + 1]);
    if (!value || (name != "--seconds" && name != "--seed")) {
      std::fprintf(stderr, "hostile_folder [--seconds N] [--seed N]\n");
      return 2;
    }
    if (name == "--seconds") seconds = static_cast<int64_t>(*value);
    if (name == "--seed") seed = *value;
  }
  return lockstep::run(seconds, seed);
}
