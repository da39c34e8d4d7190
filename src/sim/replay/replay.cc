#include "sim/replay/replay.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/text.h"
#include "sim/replay/rank_player.h"

namespace lockstep::replay {
namespace {

constexpr int64_t kLoadNs = 60'000'000'000;
// From the word to start until the start: time for every rank to wake up and make its threads.
constexpr int64_t kHeadStartNs = 50'000'000;
constexpr int kLoadFailed = 3;

enum class Stage : uint32_t { kLoading, kReady, kLingering };

struct alignas(64) RankControl {
  std::atomic<Stage> stage{Stage::kLoading};
  RankCounters counters;
  char problem[512] = {};  // written before an exit with kLoadFailed
};

}  // namespace

struct alignas(64) Replay::Control {
  size_t bytes = 0;
  Pace pace;  // written before `go`
  std::atomic<bool> go{false};
  RankControl* ranks = nullptr;  // behind this object; the ranks are forked, so the address is good there too
};

std::string default_job_id(const Recording& recording) {
  const uint64_t hash = recording.content_hash;
  return format("replay-%08x", static_cast<uint32_t>(hash ^ (hash >> 32)));
}

namespace {

// Never returns. Runs in the forked process, whose only thread this is.
[[noreturn]] void be_rank(const RankRecording& rank, const ReplayOptions& options, const std::string& job_id,
                          const std::string& anchor, const Pace& pace, const std::atomic<bool>& go,
                          RankControl& control) {
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_IGN);             // Ctrl-C is for the parent, which ends its ranks
  dup2(STDERR_FILENO, STDOUT_FILENO);  // standard output belongs to the parent's answer
  const CallLine& who = rank.calls.who;
  setenv("LOCKSTEP_JOB_ID", job_id.c_str(), 1);
  setenv("LOCKSTEP_HOST", std::string(who.name).c_str(), 1);
  setenv("RANK", std::to_string(who.rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(who.world).c_str(), 1);
  setenv("LOCAL_RANK", "0", 1);
  setenv("LOCKSTEP_CLOCK_ANCHOR", anchor.c_str(), 1);
  if (!options.recorder_directory.empty()) setenv("LOCKSTEP_RECORDER_DIR", options.recorder_directory.c_str(), 1);

  Result<std::unique_ptr<RankPlayer>> player = RankPlayer::load(rank, options.plugin_path, options.capi_path);
  if (!player.ok()) {
    snprintf(control.problem, sizeof control.problem, "%s", player.error().c_str());
    _exit(kLoadFailed);
  }
  control.stage = Stage::kReady;
  while (!go) usleep(200);
  (*player)->play(pace, control.counters);
  if (rank.calls.all_finalized) {
    (*player)->finish();
    _exit(0);
  }
  control.stage = Stage::kLingering;
  while (true) pause();
}

}  // namespace

Result<Replay> Replay::start(const Recording& recording, const ReplayOptions& options) {
  static_assert(sizeof(Control) % alignof(RankControl) == 0);
  const size_t bytes = sizeof(Control) + recording.ranks.size() * sizeof(RankControl);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Error{format("replay: no shared memory: %s", strerror(errno))};
  Replay replay;
  replay.control_ = new (memory) Control;
  Control& control = *replay.control_;
  control.bytes = bytes;
  control.ranks = reinterpret_cast<RankControl*>(replay.control_ + 1);
  std::uninitialized_default_construct_n(control.ranks, recording.ranks.size());

  const SystemClock clock;
  const std::string anchor =
      format("%lld:%lld", static_cast<long long>(clock.unix_ns()), static_cast<long long>(clock.monotonic_ns()));
  const std::string job_id = options.job_id.empty() ? default_job_id(recording) : options.job_id;
  fflush(nullptr);  // what is buffered must not come out of every rank
  const pid_t parent = getpid();
  for (const RankRecording& rank : recording.ranks) {
    RankControl& rank_control = control.ranks[replay.ranks_.size()];
    const pid_t pid = fork();
    if (pid < 0) return Error{format("replay: cannot fork rank %d: %s", rank.calls.who.rank, strerror(errno))};
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      be_rank(rank, options, job_id, anchor, control.pace, control.go, rank_control);
    }
    replay.ranks_.push_back({rank.calls.who.rank, pid, false});
  }

  const int64_t deadline_ns = clock.monotonic_ns() + kLoadNs;
  for (size_t i = 0; i < replay.ranks_.size(); ++i) {
    while (control.ranks[i].stage == Stage::kLoading) {
      LOCKSTEP_TRY(replay.check_ranks());
      if (clock.monotonic_ns() > deadline_ns) {
        return Error{format("replay: rank %d has not loaded the plugin after 60 s", replay.ranks_[i].number)};
      }
      usleep(1'000);
    }
  }
  Pace& pace = control.pace;
  pace.speed = options.speed;
  pace.first_ns = recording.first_ns;
  pace.start_ns = clock.monotonic_ns() + kHeadStartNs;
  const double length_ns = static_cast<double>(recording.last_ns - recording.first_ns) / options.speed;
  replay.planned_end_ns_ = pace.start_ns + static_cast<int64_t>(length_ns);
  pace.offset_ns = static_cast<int64_t>(static_cast<uint64_t>(replay.planned_end_ns_) - recording.last_ns);
  control.go = true;
  return replay;
}

Replay::Replay(Replay&& other) noexcept
    : control_(std::exchange(other.control_, nullptr)),
      ranks_(std::move(other.ranks_)),
      planned_end_ns_(other.planned_end_ns_) {
  other.ranks_.clear();
}

Replay::~Replay() {
  stop();
  if (control_) munmap(control_, control_->bytes);
}

Result<void> Replay::check_ranks() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankProcess& rank = ranks_[i];
    int status = 0;
    if (rank.ended || waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
    rank.ended = true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kLoadFailed) return Error{control_->ranks[i].problem};
    if (WIFSIGNALED(status)) {
      return Error{format("replay: the process of rank %d was killed by signal %d (%s)", rank.number, WTERMSIG(status),
                          strsignal(WTERMSIG(status)))};
    }
    return Error{format("replay: the process of rank %d ended with status %d", rank.number, WEXITSTATUS(status))};
  }
  return {};
}

Result<Replay::Progress> Replay::progress() {
  LOCKSTEP_TRY(check_ranks());
  Progress progress;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankControl& control = control_->ranks[i];
    progress.calls_passed += control.counters.passed.load(std::memory_order_relaxed);
    progress.calls_made += control.counters.made.load(std::memory_order_relaxed);
    if (ranks_[i].ended) {
      ++progress.ranks_ended;
    } else if (control.stage == Stage::kLingering) {
      ++progress.ranks_lingering;
    }
  }
  progress.through = progress.ranks_ended + progress.ranks_lingering == ranks_.size();
  return progress;
}

void Replay::stop() {
  for (RankProcess& rank : ranks_) {
    if (!rank.ended) kill(rank.pid, SIGTERM);
  }
  for (RankProcess& rank : ranks_) {
    if (rank.ended) continue;
    while (waitpid(rank.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    rank.ended = true;
  }
}

}  // namespace lockstep::replay
