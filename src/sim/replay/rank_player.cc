#include "sim/replay/rank_player.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "plugin/capi/lockstep.h"
#include "plugin/nccl/profiler_abi.h"

namespace lockstep::replay {
namespace {

// Nearer than this a call is made at once: a sleep would take longer than the wait.
constexpr int64_t kEarlyNs = 100'000;
constexpr int kSpins = 200;
// Marks and calls have their times from two logs: where these contradict the order of calls, it is not kept.
constexpr int64_t kMarksWaitMaxNs = 2'000'000'000;

thread_local uint64_t stamp_ns = 0;  // 0: a thread that is not ours, or between calls

uint64_t replayed_clock() {
  return stamp_ns ? stamp_ns : static_cast<uint64_t>(SystemClock().monotonic_ns());
}

void log_warnings(int level, unsigned long, const char*, int, const char* pattern, ...) {
  if (level > nccl::kLogWarn) return;
  va_list arguments;
  va_start(arguments, pattern);
  char line[1024];
  vsnprintf(line, sizeof line, pattern, arguments);
  va_end(arguments);
  fprintf(stderr, "replay: plugin: %s\n", line);
}

void sleep_until(int64_t monotonic_ns) {
  const timespec when{static_cast<time_t>(monotonic_ns / 1'000'000'000),
                      static_cast<long>(monotonic_ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

template <typename Condition>
void await(Condition&& condition) {
  for (int spin = 0; !condition(); ++spin) {
    if (spin < kSpins) {
      std::this_thread::yield();
    } else {
      usleep(50);
    }
  }
}

// A mark of the step log, as a call of the C API.
struct Mark {
  enum class Kind { kStepBegin, kStepEnd, kPhaseBegin, kPhaseEnd, kScalar } kind;
  uint64_t time_ns;
  int64_t number;
  double value;
  const std::string* name;
  uint32_t calls_before = 0;  // of the job's own, by time
};

std::vector<Mark> marks_of(const std::vector<LoggedStep>& steps) {
  std::vector<Mark> marks;
  for (const LoggedStep& step : steps) {
    const uint64_t end_ns = step.begin_ns + step.length_ns;
    marks.push_back({Mark::Kind::kStepBegin, step.begin_ns, step.step.value(), 0, nullptr});
    uint64_t at_ns = step.begin_ns;
    for (const Phase& phase : step.phases) {
      // Lengths were measured apart from the total and may add up to a little more.
      const uint64_t phase_end_ns = std::min(end_ns, at_ns + phase.length_ns);
      marks.push_back({Mark::Kind::kPhaseBegin, at_ns, phase.phase, 0, nullptr});
      marks.push_back({Mark::Kind::kPhaseEnd, phase_end_ns, phase.phase, 0, nullptr});
      at_ns = phase_end_ns;
    }
    for (const auto& [name, value] : step.scalars) marks.push_back({Mark::Kind::kScalar, end_ns, 0, value, &name});
    marks.push_back({Mark::Kind::kStepEnd, end_ns, step.step.value(), 0, nullptr});
  }
  return marks;
}

struct CApi {
  void (*step_begin)(int64_t) = nullptr;
  void (*step_end)(int64_t) = nullptr;
  void (*phase_begin)(int) = nullptr;
  void (*phase_end)(int) = nullptr;
  void (*scalar)(const char*, double) = nullptr;
  void (*shutdown)() = nullptr;

  bool complete() const { return step_begin && step_end && phase_begin && phase_end && scalar && shutdown; }
};

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

void use_replayed_clock(void* library, const std::string& path) {
  void (*use_clock)(uint64_t(*)()) = nullptr;
  find(library, "lockstep_use_clock", use_clock);
  if (use_clock) {
    use_clock(replayed_clock);
  } else {
    fprintf(stderr, "replay: %s takes no clock: its times will be those of the replay, not of the recording\n",
            path.c_str());
  }
}

class Player final : public RankPlayer {
 public:
  explicit Player(const RankRecording& rank)
      : rank_(rank),
        contexts_(rank.calls.inits.size()),
        turns_(rank.calls.object_count),
        handles_(rank.calls.object_count),
        masks_(rank.calls.object_count),
        by_thread_(rank.calls.threads.size()),
        marks_(marks_of(rank.steps)) {}

  Result<void> prepare(const std::string& plugin_path, const std::string& capi_path) {
    // The C API first: it is loaded by the training script, before NCCL looks for its plugin.
    if (!capi_path.empty()) {
      void* const library = dlopen(capi_path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library) {
        find(library, "lockstep_step_begin", capi_.step_begin);
        find(library, "lockstep_step_end", capi_.step_end);
        find(library, "lockstep_phase_begin", capi_.phase_begin);
        find(library, "lockstep_phase_end", capi_.phase_end);
        find(library, "lockstep_scalar", capi_.scalar);
        find(library, "lockstep_shutdown", capi_.shutdown);
        use_replayed_clock(library, capi_path);
      }
      if (!library || !capi_.complete()) return Error{format("replay: %s: %s", capi_path.c_str(), dl_error())};
    }
    plugin_library_ = dlopen(plugin_path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!plugin_library_) return Error{format("replay: %s", dl_error())};
    plugin_ = static_cast<const nccl::ProfilerV5*>(dlsym(plugin_library_, nccl::kSymbolV5));
    if (!plugin_) {
      return Error{format("replay: %s has no %s: not a profiler plugin for NCCL 2.28 or later", plugin_path.c_str(),
                          nccl::kSymbolV5)};
    }
    use_replayed_clock(plugin_library_, plugin_path);

    descriptors_.reserve(rank_.calls.starts.size());
    for (const CallLine& start : rank_.calls.starts) descriptors_.push_back(descriptor(start));
    for (const CallLine& init : rank_.calls.inits) {
      comm_names_.push_back(init.name.empty() ? nullptr : literal(init.name));
    }
    for (uint32_t i = 0; i < rank_.calls.calls.size(); ++i) by_thread_[rank_.calls.calls[i].thread].push_back(i);
    for (const Call& call : rank_.calls.calls) last_ns_ = std::max(last_ns_, call.time_ns);
    if (!marks_.empty()) last_ns_ = std::max(last_ns_, marks_.back().time_ns);
    if (capi_.complete()) order_marks();
    return {};
  }

  void play(const Pace& pace, RankCounters& counters) override {
    pace_ = pace;
    counters_ = &counters;
    for (const std::vector<uint32_t>& calls : by_thread_) {
      threads_.emplace_back([this, &calls] {
        for (const uint32_t index : calls) make(rank_.calls.calls[index]);
        through();
      });
    }
    if (capi_.complete() && !marks_.empty()) {
      threads_.emplace_back([this] {
        for (const Mark& mark : marks_) make(mark);
        through();
      });
    }
    for (size_t through = 0; through != threads_.size(); through = threads_through_.load())
      threads_through_.wait(through);
  }

  void finish() override {
    released_ = true;
    released_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    dlclose(plugin_library_);
    if (!capi_.shutdown) return;
    stamp_ns = stamp(last_ns_);
    capi_.shutdown();
  }

 private:
  struct Context {
    void* pointer = nullptr;
    std::atomic<bool> ready{false};
    std::atomic<uint32_t> calls_done{0};
    bool refused = false;  // init failed: NCCL goes on without the plugin there
  };

  static const char* dl_error() {
    const char* const message = dlerror();
    return message ? message : "a function is missing";
  }

  // Made by the job's threads, not by NCCL's own.
  bool is_the_jobs(const Call& call) const {
    if (call.kind != CallKind::kStart) return false;
    const uint64_t type = descriptors_[call.start].type;
    return call.parent == kNone || type == nccl::kEventCollApi || type == nccl::kEventP2pApi ||
           type == nccl::kEventColl || type == nccl::kEventP2p;
  }

  void order_marks() {
    std::vector<uint64_t> calls;
    for (const Call& call : rank_.calls.calls)
      if (is_the_jobs(call)) calls.push_back(call.time_ns);
    std::sort(calls.begin(), calls.end());
    for (Mark& mark : marks_)
      mark.calls_before =
          static_cast<uint32_t>(std::lower_bound(calls.begin(), calls.end(), mark.time_ns) - calls.begin());
  }

  // Steps may overlap by a little: the marks that are certainly made before.
  uint32_t marks_before(uint64_t time_ns) const {
    const auto later = std::partition_point(marks_.begin(), marks_.end(),
                                            [&](const Mark& mark) { return mark.time_ns <= time_ns; });
    return static_cast<uint32_t>(later - marks_.begin());
  }

  void await_count(const std::atomic<uint32_t>& made, uint32_t count) const {
    if (made.load(std::memory_order_acquire) >= count) return;
    const int64_t limit_ns = SystemClock().monotonic_ns() + kMarksWaitMaxNs;
    await([&] { return made.load(std::memory_order_acquire) >= count || SystemClock().monotonic_ns() > limit_ns; });
  }

  // NCCL passes pointers to its own literals, and a plugin may compare and keep them: ours stay for the process's life.
  const char* literal(std::string_view text) { return literals_.emplace(text).first->c_str(); }

  nccl::EventDescrV5 descriptor(const CallLine& start) {
    nccl::EventDescrV5 event{};
    event.type = start.type;
    event.rank = start.rank;
    switch (start.type) {
      case nccl::kEventGroupApi:
        event.groupApi = {start.flag, start.number};
        break;
      case nccl::kEventCollApi:
        event.collApi = {literal(start.function),
                         start.count,
                         literal(start.datatype),
                         start.root_or_peer,
                         reinterpret_cast<void*>(start.stream),
                         start.flag};
        break;
      case nccl::kEventP2pApi:
        event.p2pApi = {literal(start.function), start.count, literal(start.datatype),
                        reinterpret_cast<void*>(start.stream), start.flag};
        break;
      case nccl::kEventKernelLaunch:
        event.kernelLaunch = {reinterpret_cast<void*>(start.stream)};
        break;
      case nccl::kEventColl:
        event.coll = {start.seq,
                      literal(start.function),
                      nullptr,
                      nullptr,
                      start.count,
                      start.root_or_peer,
                      literal(start.datatype),
                      start.channel,
                      start.warps,
                      literal(start.algorithm),
                      literal(start.protocol),
                      nullptr};
        break;
      case nccl::kEventP2p:
        event.p2p = {literal(start.function), nullptr, literal(start.datatype), start.count, start.root_or_peer,
                     start.channel,           nullptr};
        break;
      case nccl::kEventProxyOp:
        // A transfer made for another process stays one: our parent is never this process.
        event.proxyOp = {start.pid == rank_.calls.who.pid ? getpid() : getppid(),
                         start.channel,
                         start.root_or_peer,
                         start.step_count,
                         start.chunk_bytes,
                         start.flag};
        break;
      case nccl::kEventProxyStep:
        event.proxyStep = {start.number};
        break;
      case nccl::kEventKernelCh:
        event.kernelCh = {start.channel, start.gpu_time_ns};
        break;
      default:
        break;
    }
    return event;
  }

  uint64_t stamp(uint64_t recorded_ns) const {
    return recorded_ns + static_cast<uint64_t>(rank_.to_common_ns + pace_.offset_ns);
  }

  void wait_for_time(uint64_t recorded_ns) const {
    const uint64_t common_ns = recorded_ns + static_cast<uint64_t>(rank_.to_common_ns);
    const double since_first_ns = static_cast<double>(static_cast<int64_t>(common_ns - pace_.first_ns));
    const int64_t due_ns = pace_.start_ns + static_cast<int64_t>(since_first_ns / pace_.speed);
    if (due_ns - SystemClock().monotonic_ns() > kEarlyNs) sleep_until(due_ns);
  }

  void await_turn(uint32_t object, uint32_t turn) const {
    if (turn == kNone) return;
    await([&] { return turns_[object].load(std::memory_order_acquire) == turn; });
  }
  void give_turn(uint32_t object, uint32_t turn) {
    if (turn != kNone) turns_[object].store(turn + 1, std::memory_order_release);
  }

  void make(const Call& call) {
    wait_for_time(call.time_ns);
    await_turn(call.object, call.object_turn);
    await_turn(call.parent, call.parent_turn);
    await_turn(call.group, call.group_turn);
    const bool beside_marks = capi_.complete() && !marks_.empty() && is_the_jobs(call);
    if (beside_marks) await_count(marks_made_, marks_before(call.time_ns));
    stamp_ns = stamp(call.time_ns);
    bool made = false;
    switch (call.kind) {
      case CallKind::kWho:
        break;
      case CallKind::kInit:
        init(call.context);
        made = true;
        break;
      case CallKind::kStart:
        made = start(call);
        break;
      case CallKind::kState:
        made = handles_[call.object] != nullptr;
        if (made) record_state(call);
        break;
      case CallKind::kStop:
        made = handles_[call.object] != nullptr;
        if (made) plugin_->stopEvent(handles_[call.object]);
        break;
      case CallKind::kFinalize: {
        // What other threads still do on this communicator comes first, as in NCCL.
        Context& context = contexts_[call.context];
        await([&] { return context.ready && context.calls_done == call.calls_before; });
        made = !context.refused;
        if (made) plugin_->finalize(context.pointer);
        break;
      }
    }
    stamp_ns = 0;
    give_turn(call.object, call.object_turn);
    give_turn(call.parent, call.parent_turn);
    give_turn(call.group, call.group_turn);
    if (beside_marks) jobs_calls_made_.fetch_add(1, std::memory_order_release);
    if (call.object != kNone) contexts_[call.context].calls_done.fetch_add(1);
    counters_->passed.fetch_add(1, std::memory_order_relaxed);
    if (made) counters_->made.fetch_add(1, std::memory_order_relaxed);
  }

  void init(uint32_t index) {
    const CallLine& line = rank_.calls.inits[index];
    Context& context = contexts_[index];
    context.refused = plugin_->init(&context.pointer, line.comm_id, &mask_, comm_names_[index], line.nodes, line.world,
                                    line.rank, log_warnings) != nccl::kNcclSuccess;
    context.ready = true;
  }

  bool start(const Call& call) {
    Context& context = contexts_[call.context];
    await([&] { return context.ready.load(); });
    nccl::EventDescrV5& event = descriptors_[call.start];
    // The plugin may change it at any time; what belongs to a call goes by the mask that the call began under.
    const bool first = call.parent == kNone || event.type == nccl::kEventCollApi || event.type == nccl::kEventP2pApi;
    const int mask = first ? __atomic_load_n(&mask_, __ATOMIC_RELAXED) : masks_[call.parent];
    masks_[call.object] = mask;
    if (context.refused || !(with_ancestors(static_cast<uint64_t>(mask)) & event.type)) return false;
    event.parentObj = call.parent == kNone ? nullptr : handles_[call.parent];
    void* const group = call.group == kNone ? nullptr : handles_[call.group];
    if (event.type == nccl::kEventColl) event.coll.parentGroup = group;
    if (event.type == nccl::kEventP2p) event.p2p.parentGroup = group;
    plugin_->startEvent(context.pointer, &handles_[call.object], &event);
    return true;
  }

  void record_state(const Call& call) {
    nccl::EventStateArgs arguments{};
    switch (call.state) {
      case nccl::kStateKernelChStop:
        arguments.kernelCh.pTimer = call.value;
        break;
      case nccl::kStateProxyCtrlAppend:
      case nccl::kStateProxyCtrlAppendEnd:
        arguments.proxyCtrl.appendedProxyOps = static_cast<int>(call.value);
        break;
      default:
        arguments.proxyStep.transSize = call.value;
    }
    const bool without = call.state == nccl::kStateGroupStartApiStop || call.state == nccl::kStateGroupEndApiStart;
    plugin_->recordEventState(handles_[call.object], call.state, without ? nullptr : &arguments);
  }

  void make(const Mark& mark) {
    wait_for_time(mark.time_ns);
    await_count(jobs_calls_made_, mark.calls_before);
    stamp_ns = stamp(mark.time_ns);
    switch (mark.kind) {
      case Mark::Kind::kStepBegin:
        capi_.step_begin(mark.number);
        break;
      case Mark::Kind::kStepEnd:
        capi_.step_end(mark.number);
        break;
      case Mark::Kind::kPhaseBegin:
        capi_.phase_begin(static_cast<int>(mark.number));
        break;
      case Mark::Kind::kPhaseEnd:
        capi_.phase_end(static_cast<int>(mark.number));
        break;
      case Mark::Kind::kScalar:
        capi_.scalar(mark.name->c_str(), mark.value);
        break;
    }
    stamp_ns = 0;
    marks_made_.fetch_add(1, std::memory_order_release);
  }

  // A thread that has made its calls stays: threads of a hung process do not end either.
  void through() {
    threads_through_.fetch_add(1);
    threads_through_.notify_all();
    released_.wait(false);
  }

  const RankRecording& rank_;
  CApi capi_;
  void* plugin_library_ = nullptr;
  const nccl::ProfilerV5* plugin_ = nullptr;
  int mask_ = 0;  // one for the process, as in NCCL
  std::vector<Context> contexts_;
  std::vector<std::atomic<uint32_t>> turns_;
  std::vector<void*> handles_;  // [object] written by its start, read by later turns
  std::vector<int> masks_;      // [object] likewise: what NCCL went by when it began
  std::vector<nccl::EventDescrV5> descriptors_;
  std::set<std::string, std::less<>> literals_;
  std::vector<const char*> comm_names_;  // by context
  std::vector<std::vector<uint32_t>> by_thread_;
  std::vector<Mark> marks_;
  std::atomic<uint32_t> marks_made_{0}, jobs_calls_made_{0};
  Pace pace_;
  RankCounters* counters_ = nullptr;
  uint64_t last_ns_ = 0;
  std::vector<std::thread> threads_;
  std::atomic<size_t> threads_through_{0};
  std::atomic<bool> released_{false};
};

}  // namespace

uint64_t with_ancestors(uint64_t mask) {
  using namespace nccl;
  if (mask & kEventNetPlugin) mask |= kEventProxyStep;
  if (mask & kEventProxyStep) mask |= kEventProxyOp;
  if (mask & (kEventProxyOp | kEventKernelCh)) mask |= kEventColl | kEventP2p;
  if (mask & kEventColl) mask |= kEventGroup | kEventCollApi;
  if (mask & kEventP2p) mask |= kEventGroup | kEventP2pApi;
  if (mask & (kEventCollApi | kEventP2pApi | kEventKernelLaunch)) mask |= kEventGroupApi;
  return mask;
}

Result<std::unique_ptr<RankPlayer>> RankPlayer::load(const RankRecording& rank, const std::string& plugin_path,
                                                     const std::string& capi_path) {
  auto player = std::make_unique<Player>(rank);
  LOCKSTEP_TRY(player->prepare(plugin_path, capi_path));
  return std::unique_ptr<RankPlayer>(std::move(player));
}

}  // namespace lockstep::replay
