#include "plugin/nccl/soak_host.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "plugin/nccl/soak_servers.h"
#include "plugin/nccl/tracker.h"

namespace lockstep::nccl {
namespace {

template <typename V>
class SoakHost : protected SoakServers<V> {
 public:
  SoakHost(const SoakSettings& settings, SoakReported& reported) : SoakServers<V>(settings, reported) {}

  void run() {
    std::thread([] {}).join();  // the thread sanitizer makes one of its own with the first
    const size_t threads_before = count_threads();
    if (settings_.steady) {
      ask_for_all();
      fill_lanes();
    }
    if (settings_.many_comms) play_many_comms();
    std::vector<std::thread> callers;
    std::vector<std::thread> servers;
    const size_t proxies = 1 + Random(settings_.seed).below(3);
    for (size_t i = 0; i < proxies; ++i) {
      proxies_.push_back(std::make_unique<Inbox<Work>>());
      kernels_.push_back(std::make_unique<Inbox<Work>>());
    }
    for (size_t i = 0; i < proxies; ++i) {
      servers.emplace_back([this, i] { serve(*proxies_[i], stream(100 + i)); });
      servers.emplace_back([this, i] { serve(*kernels_[i], stream(200 + i)); });
    }
    servers.emplace_back([this] { serve_network(); });
    for (int i = 0; i < settings_.threads; ++i) {
      callers.emplace_back([this, i] { call_api(stream(static_cast<uint64_t>(i))); });
    }
    callers.emplace_back([this] { replay_graphs(stream(300)); });
    callers.emplace_back([this] { start_short_threads(stream(301)); });
    callers.emplace_back([this] { mark_steps(stream(302)); });
    callers.emplace_back([this] { disturb(stream(303)); });
    callers.emplace_back([this] { fork_now_and_then(stream(304)); });
    std::this_thread::sleep_for(std::chrono::duration<double>(settings_.seconds));
    ending_.store(true);
    for (auto& thread : callers) thread.join();
    for (auto& inbox : proxies_) inbox->close();
    for (auto& inbox : kernels_) inbox->close();
    for (size_t i = 0; i + 1 < servers.size(); ++i) servers[i].join();
    network_.close();
    servers.back().join();
    check_detail_is_followed();
    for (int i = 0; i < 500 && count_threads() > threads_before; ++i) ::usleep(1000);  // the kernel reaps them later
    expect(count_threads() <= threads_before, "threads are left", count_threads(), threads_before);
  }

 private:
  using Base = SoakServers<V>;
  using Base::kUnderProxyOp, Base::kUnderKernel, Base::kUnderOp, Base::kUnderCopyEngine, Base::kUnderGroup,
      Base::kUnderCollCall, Base::kUnderP2pCall, Base::kUnderGroupCall, Base::stream, Base::ending, Base::mask_now,
      Base::count_threads, Base::start, Base::stop, Base::stop_unless_null, Base::state, Base::bury, Base::dig_up,
      Base::init, Base::finalize, Base::open_reader, Base::ask, Base::coll, Base::p2p, Base::play_trap, Base::use_clock,
      Base::settings_, Base::reported_, Base::library_, Base::capi_, Base::mask_, Base::ending_, Base::proxies_,
      Base::kernels_, Base::network_, Base::put, Base::serve_all, Base::advance, Base::serve, Base::serve_network;
  using typename Base::Comm;
  using typename Base::CommPtr;
  using typename Base::Descriptor;
  using typename Base::Kind;
  using typename Base::Library;
  using typename Base::Op;
  using typename Base::Ops;
  using typename Base::Work;

  // Before the first operation: then the plugin never chooses another mask.
  void ask_for_all() {
    Random random = stream(401);
    const CommPtr comm = init(random);
    ask(static_cast<uint16_t>(kMaskDefault));
    finalize(random, *comm, nullptr);
  }

  // Every lane that a thread may get has its places before the play begins. The plugin makes a few with each
  // communicator, and on a busy machine more threads would begin between two of them.
  void fill_lanes() {
    static constexpr size_t kThreadsMost = 40;
    Random random = stream(402);
    for (size_t count = kSparePlaces; count <= kThreadsMost; count += kSparePlaces) {
      const CommPtr comm = init(random);
      std::barrier all_have_called(static_cast<ptrdiff_t>(count));
      std::vector<std::thread> threads;
      for (size_t i = 0; i < count; ++i) {
        threads.emplace_back([&, its = Random(random.next())]() mutable {
          play_alone(its, comm);
          all_have_called.arrive_and_wait();
        });
      }
      for (auto& thread : threads) thread.join();
      finalize(random, *comm, nullptr);
    }
  }
  // An operation of one channel, and its proxy operation, on this thread.
  void play_alone(Random& random, const CommPtr& comm) {
    Descriptor descriptor = coll(random, *comm, 1);
    void* group = start(comm->context, Library::of(kEventGroup));
    if constexpr (V::kApiEvents) {
      descriptor.coll.parentGroup = group;
    } else {
      descriptor.parentObj = group;
    }
    void* op = start(comm->context, descriptor);
    count_op(*comm, false);
    Work work{.comm = comm, .op = op, .latched = mask_now()};
    work.proxies.push_back({.channel = 0, .send = true, .steps = 1});
    if (V::kKernelEvents)
      work.kernels.push_back({.channel = 0, .gpu_start_ns = tag::gpu_start(comm->number, random.next())});
    while (!advance(random, work)) {
    }
    stop_unless_null(op);
    stop_unless_null(group);
  }

  // --- operations ---

  void plan(Random& random, const CommPtr& comm, Ops& ops) {
    if (comm->ranks == 1) return;  // NCCL copies, and tells nothing
    const auto add = [&](Kind kind, const Descriptor& descriptor, int channels) {
      ops.push_back({.comm = comm,
                     .kind = kind,
                     .descriptor = descriptor,
                     .channels = channels,
                     .first_channel = static_cast<uint8_t>(random.below(256 - static_cast<uint64_t>(channels) + 1))});
    };
    if (random.once_in(8)) {  // all to all
      for (int i = 1; i < comm->ranks; ++i) {
        const int peer = (comm->rank + i) % comm->ranks;
        const int channels = static_cast<int>(1 + random.below(2));
        add(Kind::kP2p, p2p(random, *comm, true, peer, channels), channels);
        add(Kind::kP2p, p2p(random, *comm, false, peer, channels), channels);
      }
      return;
    }
    if constexpr (V::kCopyEngine) {
      if (random.once_in(12)) {
        const uint64_t seq = tag::seq(comm->number, comm->seq.fetch_add(1) & 0xFFFFFF);
        Descriptor descriptor = Library::ce_coll(nullptr, "AllGather", seq, 1 << 20, "ncclInt8");
        return add(Kind::kCopyEngine, descriptor, 0);
      }
    }
    for (uint64_t i = random.below(4) + 1; i > 0; --i) {
      const int channels = static_cast<int>(1 + random.below(random.once_in(20) ? 32 : 4));
      add(Kind::kColl, coll(random, *comm, channels), channels);
    }
  }

  // What NCCL tells while its API is called, up to the end of the group; the group is left open.
  void* call(Random& random, Ops& ops, bool graph) {
    for (Op& op : ops) {
      op.latched = mask_now();
      op.captured = graph;
    }
    if constexpr (V::kApiEvents) {
      void* group = nullptr;
      if ((ops.front().latched & kUnderGroupCall) != 0) {
        group = start(ops.front().comm->context, Library::group_api(1, graph), dig_up(random));
        if (group != nullptr) state(group, kStateGroupStartApiStop);
      }
      for (Op& op : ops) {
        // The group's handle comes from the first communicator, whichever this call is for.
        op.latched = mask_now();
        if (op.kind == Kind::kP2p && (op.latched & kUnderP2pCall) != 0) {
          op.call = start(op.comm->context, Library::p2p_api(group, "Send", 1, "ncclInt8", graph));
        } else if (op.kind != Kind::kP2p && (op.latched & kUnderCollCall) != 0) {
          op.call = start(op.comm->context, Library::coll_api(group, "AllReduce", 1, "ncclInt8", graph));
        }
        stop_unless_null(op.call);
        bury(random, op.call);
      }
      if (group != nullptr) state(group, kStateGroupEndApiStart);
      return group;
    }
    return nullptr;
  }

  void launch(Random& random, const Ops& ops, void* group_call) {
    for (size_t from = 0; from < ops.size();) {
      size_t to = from;
      while (to < ops.size() && ops[to].comm == ops[from].comm) ++to;
      launch_on_comm(random, ops, from, to, group_call);
      from = to;
    }
  }
  void launch_on_comm(Random& random, const Ops& ops, size_t from, size_t to, void* group_call) {
    Comm& comm = *ops[from].comm;
    uint64_t latched = 0;
    for (size_t i = from; i < to; ++i) latched |= ops[i].latched;
    if constexpr (V::kCopyEngine) {
      if (ops[from].kind == Kind::kCopyEngine) return launch_copies(random, ops[from]);
    }
    if constexpr (V::kApiEvents) {
      if ((latched & kEventKernelLaunch) != 0)
        stop_unless_null(start(comm.context, Library::of(kEventKernelLaunch, group_call)));
    }
    void* group = (latched & kUnderGroup) != 0 ? start(comm.context, Library::of(kEventGroup)) : nullptr;
    std::vector<void*> open;
    for (size_t i = from; i < to; ++i) {
      const Op& op = ops[i];
      const uint64_t bit = op.kind == Kind::kP2p ? kEventP2p : kEventColl;
      if ((op.latched & (bit | kUnderOp)) == 0 || (!V::kApiEvents && group == nullptr)) continue;
      Descriptor descriptor = op.descriptor;
      if constexpr (V::kApiEvents) {
        descriptor.parentObj = op.call;
        (op.kind == Kind::kP2p ? descriptor.p2p.parentGroup : descriptor.coll.parentGroup) = group;
      } else {
        descriptor.parentObj = group;
      }
      void* handle = start(comm.context, descriptor, dig_up(random));
      count_op(comm, op, handle);
      post(random, op, handle);  // the proxy may be at it before the operation is stopped
      if (random.once_in(16)) std::this_thread::yield();
      open.push_back(handle);
    }
    for (void* handle : open) {
      stop_unless_null(handle);
      if (random.once_in(32)) stop_unless_null(handle);
      bury(random, handle);
    }
    stop_unless_null(group);
    bury(random, group);
  }
  void launch_copies(Random& random, const Op& op) requires(V::kCopyEngine) {
    if ((op.latched & kUnderCopyEngine) == 0) return;
    Comm& comm = *op.comm;
    Descriptor descriptor = op.descriptor;
    descriptor.parentObj = op.call;
    void* handle = start(comm.context, descriptor);
    count_op(comm, op, handle);
    comm.copies.fetch_add(1);
    if (handle == nullptr) return;
    if ((op.latched & kEventCeSync) != 0) stop_unless_null(start(comm.context, Library::ce_sync(handle, comm.ranks)));
    if ((op.latched & kEventCeBatch) != 0) stop_unless_null(start(comm.context, Library::ce_batch(handle, 3, 1024)));
    stop(handle);
    bury(random, handle);
  }
  // A captured one without kernel events is not followed: NCCL would tell of its replays on some ranks only.
  void count_op(Comm& comm, const Op& op, const void* handle) {
    if (comm.context == nullptr || !op.captured || handle != nullptr) return count_op(comm, op.kind == Kind::kP2p);
    reported_.captured_ops.add();
    comm.captured.fetch_add(1);
  }
  void count_op(Comm& comm, bool is_p2p) {
    if (comm.context == nullptr) return reported_.unfollowed.add();
    reported_.ops.add();
    (is_p2p ? comm.p2ps : comm.colls).fetch_add(1);
  }

  void post(Random& random, const Op& op, void* handle) {
    Work network{.comm = op.comm, .op = handle, .latched = op.latched, .captured = op.captured};
    Work kernels = network;
    for (int i = 0; i < op.channels; ++i) {
      const auto channel = static_cast<uint8_t>(op.first_channel + i);
      if (op.comm->nodes > 1 && (op.latched & kUnderProxyOp) != 0) {
        const int steps = static_cast<int>(random.below(5));
        network.proxies.push_back({.channel = channel, .send = true, .steps = steps});
        network.proxies.push_back({.channel = channel, .send = false, .steps = steps});
      }
      if (V::kKernelEvents && (op.latched & kUnderKernel) != 0) {
        kernels.kernels.push_back({.channel = channel, .gpu_start_ns = tag::gpu_start(op.comm->number, random.next())});
      }
    }
    if (!V::kKernelPhase) {  // before, one thread did both
      network.kernels = std::move(kernels.kernels);
      kernels.kernels.clear();
    }
    if (!network.proxies.empty() || !network.kernels.empty()) put(*proxies_[op.comm->proxy], std::move(network));
    if (!kernels.kernels.empty()) put(*kernels_[op.comm->proxy], std::move(kernels));
  }

  // --- threads that call the API ---

  void play_group(Random& random, const std::vector<CommPtr>& comms) {
    // NCCL itself would stand still if the proxy did.
    for (const CommPtr& comm : comms) {
      while (comm->pending.load(std::memory_order_relaxed) > 200) std::this_thread::yield();
    }
    std::vector<std::shared_lock<SharedMutex>> locks;
    Ops ops;
    for (const CommPtr& comm : comms) {
      std::shared_lock lock(comm->life, std::try_to_lock);
      if (!lock.owns_lock() || !comm->alive) continue;
      locks.push_back(std::move(lock));
      plan(random, comm, ops);
    }
    if (ops.empty()) return;
    const bool graph = V::kApiEvents && random.once_in(40);
    void* group = call(random, ops, graph);
    if (!graph) launch(random, ops, group);
    stop_unless_null(group);
    bury(random, group);
    if (!graph) return;
    const MutexLock lock(graphs_mutex_);
    if (graphs_.size() < 8) {
      graphs_.push_back(std::move(ops));
    } else {
      graphs_[random.below(graphs_.size())] = std::move(ops);
    }
  }

  void share(Random& random, const CommPtr& comm) {
    const MutexLock lock(shared_mutex_);
    shared_[random.below(shared_.size())] = comm;
  }
  CommPtr shared_comm(Random& random) {
    const MutexLock lock(shared_mutex_);
    return shared_[random.below(shared_.size())];
  }

  void call_api(Random random) {
    std::vector<CommPtr> comms;
    std::unique_ptr<RecorderReader> reader;
    const uint64_t limit = 2 + settings_.rows / 2 / static_cast<uint64_t>(settings_.threads) % 8;
    while (!ending()) {
      if (comms.empty() || (comms.size() < limit && random.once_in(40))) {
        comms.push_back(init(random));
        share(random, comms.back());
        if (reader == nullptr) reader = open_reader();
      }
      if (random.once_in(80)) {
        std::swap(comms[random.below(comms.size())], comms.back());
        const bool look = settings_.rows <= 64 || random.once_in(8);
        finalize(random, *comms.back(), look ? reader.get() : nullptr);
        comms.pop_back();
        continue;
      }
      std::vector<CommPtr> group{comms[random.below(comms.size())]};
      while (random.once_in(4)) group.push_back(comms[random.below(comms.size())]);
      std::sort(group.begin(), group.end(), [](const auto& a, const auto& b) { return a->number < b->number; });
      group.erase(std::unique(group.begin(), group.end()), group.end());
      play_group(random, group);
    }
    for (const CommPtr& comm : comms) finalize(random, *comm, reader.get());
  }

  // Kernel callbacks of CUDA: no API call precedes them, and the handles of the call are from long ago.
  void replay_graphs(Random random) {
    while (!ending()) {
      Ops ops;
      {
        const MutexLock lock(graphs_mutex_);
        if (!graphs_.empty()) ops = graphs_[random.below(graphs_.size())];
      }
      std::vector<std::shared_lock<SharedMutex>> locks;
      bool alive = !ops.empty();
      for (size_t i = 0; alive && i < ops.size(); ++i) {
        if (i > 0 && ops[i].comm == ops[i - 1].comm) continue;
        locks.emplace_back(ops[i].comm->life, std::try_to_lock);
        alive = locks.back().owns_lock() && ops[i].comm->alive;
      }
      if (alive) launch(random, ops, nullptr);
      locks.clear();
      ::usleep(static_cast<useconds_t>(random.below(2000)));
    }
  }

  void start_short_threads(Random random) {
    while (!ending()) {
      const size_t most = settings_.steady ? 16 : settings_.lanes + 8;
      const size_t count = random.once_in(4) ? most : 1 + random.below(4);
      std::barrier all_have_called(static_cast<ptrdiff_t>(count));
      std::vector<std::thread> threads;
      for (size_t i = 0; i < count; ++i) {
        threads.emplace_back([&, its = Random(random.next())]() mutable {
          if (CommPtr comm = shared_comm(its)) play_group(its, {comm});
          all_have_called.arrive_and_wait();
        });
      }
      for (auto& thread : threads) thread.join();
      ::usleep(static_cast<useconds_t>(random.below(5000)));
    }
  }

  // More communicators than the table has rows, each used once.
  void play_many_comms() {
    Random random = stream(400);
    proxies_.push_back(std::make_unique<Inbox<Work>>());
    kernels_.push_back(std::make_unique<Inbox<Work>>());
    std::vector<CommPtr> comms;
    size_t unfollowed = 0;
    for (uint32_t i = 0; i < settings_.rows + 80; ++i) {
      comms.push_back(init(random));
      if (comms.back()->context == nullptr) ++unfollowed;
      play_group(random, {comms.back()});
      serve_all(random);
    }
    expect(unfollowed == 80, "communicators beyond the table", unfollowed, 80);
    const auto reader = open_reader();
    while (!comms.empty()) {
      std::swap(comms[random.below(comms.size())], comms.back());
      finalize(random, *comms.back(), comms.size() % 256 == 0 ? reader.get() : nullptr);
      comms.pop_back();
    }
    proxies_.clear();
    kernels_.clear();
    const MutexLock lock(graphs_mutex_);
    graphs_.clear();
  }

  // --- what goes on besides ---

  // Whoever else writes NCCL's mask (NCCL RAS), and old handles from a thread that has nothing else to do.
  void disturb(Random random) {
    while (!ending()) {
      if (settings_.ras && random.once_in(4)) {
        const auto mask = static_cast<int>(random.once_in(2) ? random.next() & 0xFFFF : kMaskDefault);
        __atomic_store_n(&mask_, mask, __ATOMIC_RELAXED);
      }
      for (uint64_t i = random.below(8); i > 0; --i) play_trap(random);
      ::usleep(static_cast<useconds_t>(random.below(3000)));
    }
  }

  template <typename Function>
  Function* capi(const char* name) {
    auto* function = reinterpret_cast<Function*>(::dlsym(capi_, name));
    expect(function != nullptr, "liblockstep.so lacks a function");
    return function;
  }
  void mark_steps(Random random) {
    auto* step_begin = capi<void(int64_t)>("lockstep_step_begin");
    auto* step_end = capi<void(int64_t)>("lockstep_step_end");
    auto* phase_begin = capi<void(int)>("lockstep_phase_begin");
    auto* phase_end = capi<void(int)>("lockstep_phase_end");
    auto* scalar = capi<void(const char*, double)>("lockstep_scalar");
    for (int64_t step = 0; !ending(); ++step) {
      step_begin(step);
      phase_begin(2);
      scalar("loss", 1.0 / static_cast<double>(step + 1));
      phase_end(2);
      step_end(step);
      reported_.marks.add(5);
      ::usleep(static_cast<useconds_t>(random.below(2000)));
    }
  }

  // As a data loader is made: the child has the memory of all this, none of the threads, and goes on calling.
  void fork_now_and_then(Random random) {
    // A child that is made before the recorder is makes its own.
    while (!ending() && (reported_.comms == 0 || capi<int()>("lockstep_enabled")() == 0)) ::usleep(1000);
    while (!ending()) {
      ::usleep(static_cast<useconds_t>(random.below(200'000)));
      if (ending()) return;
      const CommPtr comm = shared_comm(random);
      const pid_t child = ::fork();
      expect(child >= 0, "fork failed");
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        call_in_forked_child(random, comm.get());
        ::_exit(0);
      }
      reported_.forks.add();
      int status = 0;
      for (int i = 0; ::waitpid(child, &status, WNOHANG) == 0; ++i) {
        if (i > 30'000) {
          ::kill(child, SIGKILL);
          fail("a forked child does not come back");
        }
        ::usleep(1000);
      }
      expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child died", static_cast<uint64_t>(status));
    }
  }
  void call_in_forked_child(Random& random, Comm* comm) {
    void* context = comm != nullptr ? comm->context : nullptr;
    for (int i = 0; i < 50; ++i) {
      void* op = start(context, Library::all_reduce(1, 1, 1));
      expect(op == nullptr, "a forked child records");
      stop(dig_up(random));
      state(dig_up(random), kStateStepSendWait, 1);
      start(context, Library::proxy_op(dig_up(random), 0, 1, true, 1));
    }
    capi<void(int64_t)>("lockstep_step_begin")(1);
    expect(capi<int()>("lockstep_enabled")() == 0, "a forked child marks");
    // Address sanitizer's own allocator does not survive a fork among threads that allocate.
    if constexpr (!kAddressSanitizer) {
      void* again = kGarbage;
      int mask = 1;
      if constexpr (V::kApiEvents) {
        library_.table().init(&again, 1, &mask, nullptr, 1, 2, 0, nullptr);
      } else if constexpr (V::kIdentityInInit) {
        library_.table().init(&again, &mask, nullptr, 1, 1, 2, 0, nullptr);
      } else {
        library_.table().init(&again, &mask);
      }
      expect(again == nullptr && mask == 0, "a forked child is followed", static_cast<uint64_t>(mask));
    }
    library_.table().finalize(context);
  }

  // --- at the end ---

  // After all that, the plugin still does what it is asked for.
  void check_detail_is_followed() {
    const auto reader = open_reader();
    if (reader->header().switched_off != 0) return;
    reported_.no_more_requests.store(true);
    while (!reported_.requests_ended.load()) ::usleep(1000);
    use_clock();
    Random random = stream(500);
    proxies_.front() = std::make_unique<Inbox<Work>>();
    kernels_.front() = std::make_unique<Inbox<Work>>();
    const CommPtr comm = init(random);
    expect(comm->context != nullptr, "no row for the last communicator");
    const auto reviewed = [&] {
      for (int i = 0; i < 2; ++i) {
        SoakClock::leaps.fetch_add(2 * Detail::kReviewNs);
        if constexpr (V::kApiEvents) {  // one that is not captured: the end of a capture
          stop_unless_null(start(comm->context, Library::coll_api(nullptr, "AllReduce", 1, "ncclInt8", false)));
        }
        count_op(*comm, false);
        stop(start(comm->context, coll(random, *comm, 1)));
      }
      expect(reader->header().mask == mask_now(), "the mask that is shown", reader->header().mask, mask_now());
      return mask_now();
    };
    for (const uint16_t request : {uint16_t{0x06}, uint16_t{0x1e}}) {
      ask(request);
      const uint32_t expected = request | (V::kCopyEngine ? uint32_t{kEventCeColl} : 0);  // operations always
      expect(reviewed() == expected, "a request was not followed", mask_now(), expected);
    }
    // A graph keeps the mask of its capture: without kernel events then, without an end that could be waited for.
    Ops graph;
    for (int i = 0; i < 8; ++i) plan(random, comm, graph);
    if (!graph.empty()) call(random, graph, true);
    ask(std::nullopt);
    const uint64_t all = kMaskDefault & V::kEvents;
    // Where kernel events are dear this may be a stretch of time without them.
    const uint64_t least = V::kNumber >= 7 ? all & ~uint64_t{kEventKernelCh | kEventProxyStep} : all;
    const uint64_t after = reviewed();
    expect(after == all || after == least, "the mask after the last request", after, all);
    const uint64_t before = comm->colls + comm->p2ps;
    if (V::kApiEvents) launch(random, graph, nullptr);
    for (const InFlightComm& row : reader->in_flight()) {
      if (row.comm_id != comm->id || comm->colls + comm->p2ps == before) continue;
      expect(!row.recent.empty() && !row.recent.back().end_is_seen, "an end that NCCL will not report is waited for");
    }
    expect(library_.table().finalize(comm->context) == 0, "finalize failed");
  }

  Mutex graphs_mutex_;
  std::vector<Ops> graphs_ LOCKSTEP_GUARDED_BY(graphs_mutex_);
  Mutex shared_mutex_;
  std::array<CommPtr, 16> shared_ LOCKSTEP_GUARDED_BY(shared_mutex_);
};

}  // namespace

void run_soak_host(const SoakSettings& settings, SoakReported& reported) {
  const auto run = [&]<typename V>(V) { std::make_unique<SoakHost<V>>(settings, reported)->run(); };
  switch (settings.version) {
    case 1:
      return run(V1{});
    case 2:
      return run(V2{});
    case 3:
      return run(V3{});
    case 4:
      return run(V4{});
    case 5:
      return run(V5{});
    case 6:
      return run(V6{});
    default:
      return run(V7{});
  }
}

}  // namespace lockstep::nccl
