// Plays a whole process of NCCL for plugin_soak: communicators that come and go, and NCCL's threads around them, all at
// random. What they do is what some NCCL release does (its own order of events within an operation), with the traps
// that real releases have: repeated stops, handles that have gone stale, callbacks after finalize, events that never
// end, proxy operations of other processes.
//
// Everything it sends carries the communicator's own number where a record keeps it, so that a reader can tell when a
// record was put together from two events.
//
// Thread rule: Confined; run() starts the threads and joins them all.
// On error:    fail() says one line and ends the process.
#pragma once

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plugin/nccl/soak_parts.h"
#include "plugin/nccl/test_host.h"
#include "plugin/nccl/tracker.h"
#include "recorder/control.h"
#include "recorder/reader.h"

namespace lockstep::nccl {

template <typename V>
class SoakHost {
 public:
  SoakHost(const SoakSettings& settings, SoakReported& reported) : settings_(settings), reported_(reported) {
    SoakClock::base = system_now_ns();
    SoakClock::rate = settings.fast_clock ? 16 : 1;
    capi_ = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so", RTLD_NOW | RTLD_LOCAL);
    expect(capi_ != nullptr, "liblockstep.so does not open");
    if (settings.fast_clock) use_clock();
    for (auto& handle : graveyard_) handle.store(kGarbage, std::memory_order_relaxed);
  }

  void run() {
    std::thread([] {}).join();  // the thread sanitizer makes one of its own with the first
    const size_t threads_before = count_threads();
    if (settings_.steady) ask_for_all();
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
  using Library = TestHost<V>;
  using Descriptor = typename V::Descriptor;

  struct Comm {
    uint64_t number = 0;
    uint64_t id = 0;
    std::string name;
    int ranks = 1;
    int rank = 0;
    int nodes = 1;
    void* context = nullptr;
    size_t proxy = 0;
    // Held shared by whoever enqueues, alone by whoever finalizes: that much NCCL promises.
    std::shared_mutex life;
    bool alive = true;
    std::atomic<int> pending{0};
    std::atomic<uint64_t> colls{0};
    std::atomic<uint64_t> copies{0};  // collectives by copy engines: their end is told by the next one alone
    std::atomic<uint64_t> p2ps{0};
    std::atomic<uint64_t> captured{0};  // of captured calls, answered with null: declined, or counted without a place
    std::atomic<uint64_t> seq{0};
  };
  using CommPtr = std::shared_ptr<Comm>;

  enum class Kind { kColl, kP2p, kCopyEngine };
  struct Op {
    CommPtr comm;
    Kind kind = Kind::kColl;
    Descriptor descriptor{};
    int channels = 1;
    uint8_t first_channel = 0;
    void* call = nullptr;
    uint64_t latched = 0;  // NCCL's mask when the API was called
    bool captured = false;
  };
  using Ops = std::vector<Op>;

  struct ProxyEvent {
    void* handle = nullptr;
    void* step = nullptr;
    uint8_t channel = 0;
    bool started = false;
    bool send = false;
    int steps = 0;
    int next_step = 0;
    int stage = 0;  // of the step
  };
  struct KernelEvent {
    void* handle = nullptr;
    uint8_t channel = 0;
    bool started = false;
    uint64_t gpu_start_ns = 0;
  };
  // What a proxy or profiler thread is told of an operation.
  struct Work {
    CommPtr comm;
    void* op = nullptr;
    uint64_t latched = 0;
    bool captured = false;
    std::vector<ProxyEvent> proxies;
    std::vector<KernelEvent> kernels;
  };

  // An event is sent when any of these is in the mask.
  static constexpr uint64_t kUnderStep = kEventProxyStep | kEventNetPlugin;
  static constexpr uint64_t kUnderProxyOp = kEventProxyOp | kUnderStep;
  static constexpr uint64_t kUnderKernel = kEventKernelCh | kEventKernelPhase;
  static constexpr uint64_t kUnderOp = kUnderProxyOp | kUnderKernel;
  static constexpr uint64_t kUnderCopyEngine = kEventCeColl | kEventCeSync | kEventCeBatch;
  static constexpr uint64_t kUnderGroup = kEventGroup | kEventColl | kEventP2p | kUnderOp;
  static constexpr uint64_t kUnderCollCall = kEventCollApi | kEventColl | kUnderOp | kUnderCopyEngine;
  static constexpr uint64_t kUnderP2pCall = kEventP2pApi | kEventP2p | kUnderOp;
  static constexpr uint64_t kUnderGroupCall =
      kEventGroupApi | kEventKernelLaunch | kUnderGroup | kUnderCollCall | kUnderP2pCall;

  Random stream(uint64_t number) const { return Random(settings_.seed << 20 ^ number << 4 ^ V::kNumber); }
  bool ending() const { return ending_.load(std::memory_order_relaxed); }
  uint64_t mask_now() const { return static_cast<uint64_t>(__atomic_load_n(&mask_, __ATOMIC_RELAXED)) & V::kEvents; }
  static size_t count_threads() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
    return count;
  }

  // --- the six calls ---

  void* start(void* context, Descriptor descriptor, void* old = kGarbage) {
    void* handle = old;
    reported_.callbacks.add();
    expect(library_.table().startEvent(context, &handle, &descriptor) == 0, "startEvent failed");
    expect(handle != kGarbage, "startEvent left the handle as it was");
    return handle;
  }
  void stop(void* handle) {
    reported_.callbacks.add();
    expect(library_.table().stopEvent(handle) == 0, "stopEvent failed");
  }
  void stop_unless_null(void* handle) {
    if (handle != nullptr) stop(handle);
  }
  void state(void* handle, int number, uint64_t value = 0, int steps = 0) {
    reported_.callbacks.add();
    library_.state(handle, number, value, steps);
  }

  void bury(Random& random, void* handle) {
    if (handle != nullptr) graveyard_[random.below(graveyard_.size())].store(handle, std::memory_order_relaxed);
  }
  void* dig_up(Random& random) { return graveyard_[random.below(graveyard_.size())].load(std::memory_order_relaxed); }

  CommPtr init(Random& random) {
    auto comm = std::make_shared<Comm>();
    comm->number = comms_made_.fetch_add(1) + 1;
    comm->id = comm->number * 0x9E3779B97F4A7C15ULL;
    comm->name = random.once_in(2) ? "" : "comm-" + std::to_string(comm->number);
    comm->ranks = random.once_in(10) ? 1 : static_cast<int>(2 + random.below(15));
    comm->rank = static_cast<int>(random.below(static_cast<uint64_t>(comm->ranks)));
    comm->nodes = comm->ranks > 1 && random.once_in(2) ? 2 : 1;
    comm->proxy = proxies_.empty() ? 0 : random.below(proxies_.size());
    const char* name = comm->name.empty() ? nullptr : comm->name.c_str();
    void* context = kGarbage;
    int result = 0;
    if constexpr (V::kApiEvents) {
      result = library_.table().init(&context, comm->id, &mask_, name, comm->nodes, comm->ranks, comm->rank, nullptr);
    } else if constexpr (V::kIdentityInInit) {
      result = library_.table().init(&context, &mask_, name, comm->id, comm->nodes, comm->ranks, comm->rank, nullptr);
    } else {
      result = library_.table().init(&context, &mask_);
    }
    expect(result == 0, "init failed");
    expect(context != kGarbage, "init left the context as it was");
    comm->context = context;
    reported_.comms.add();
    if (context == nullptr) reported_.unfollowed.add();
    return comm;
  }

  void finalize(Random& random, Comm& comm, const RecorderReader* reader) {
    const std::unique_lock lock(comm.life);
    // Often, but not always, NCCL's threads have done with it.
    const bool quiet = !random.once_in(3) || settings_.steady;
    while (quiet && comm.pending.load() > 0) std::this_thread::yield();
    if (reader != nullptr) check_row(*reader, comm, quiet);
    comm.alive = false;
    expect(library_.table().finalize(comm.context) == 0, "finalize failed");
    if (random.once_in(8)) {  // once more, and an operation that comes too late
      if (comm.context != nullptr) reported_.unfollowed.add();
      library_.table().finalize(comm.context);
      reported_.unfollowed.add();
      expect(start(comm.context, coll(random, comm, 1)) == nullptr, "an operation of a finalized communicator");
    }
  }

  // What the table says of a communicator that nobody enqueues on now.
  void check_row(const RecorderReader& reader, const Comm& comm, bool quiet) {
    const uint64_t colls = comm.colls;
    const uint64_t p2ps = comm.p2ps;
    if (comm.context == nullptr || (!V::kIdentityInInit && (settings_.hide_identity || colls + p2ps == 0))) return;
    if (reader.header().switched_off != 0) return;  // the machine was too slow for it
    for (const InFlightComm& row : reader.in_flight()) {
      if (row.comm_id != comm.id) continue;
      expect(row.live, "a live communicator is shown as finalized");
      const uint64_t maybe = comm.captured;
      expect(row.collectives_enqueued >= colls && row.collectives_enqueued <= colls + maybe, "collectives enqueued",
             row.collectives_enqueued, colls);
      expect(row.p2p_enqueued >= p2ps && row.p2p_enqueued <= p2ps + maybe, "p2p enqueued", row.p2p_enqueued, p2ps);
      expect(row.rank_in_comm == comm.rank, "rank of a communicator");
      if (!settings_.steady || !quiet || !V::kKernelEvents) return;
      expect(row.collectives_completed + comm.copies >= colls, "collectives completed", row.collectives_completed,
             colls);
      expect(row.p2p_completed == row.p2p_enqueued, "p2p completed", row.p2p_completed, row.p2p_enqueued);
      expect(row.proxy.empty(), "a proxy state is left", row.proxy_state);
      return;
    }
    fail("a live communicator is not in the table", comm.number);
  }

  static std::string recorder_path() {
    for (const auto& entry : std::filesystem::directory_iterator(recorder_directory())) {
      if (entry.path().extension() == kRecorderSuffix) return entry.path();
    }
    fail("there is no recorder");
  }
  static std::unique_ptr<RecorderReader> open_reader() {
    auto reader = RecorderReader::open(recorder_path());
    if (!reader.ok()) fail(reader.error().c_str());
    return std::move(*reader);
  }
  void ask(std::optional<uint16_t> mask) {
    const auto until_s = static_cast<uint32_t>(SoakClock::now_ns() / 1'000'000'000 + 100'000);
    const auto request = mask ? std::optional(DetailControl{*mask, until_s}) : std::nullopt;
    expect(ask_detail(recorder_path(), request).ok(), "ask_detail failed");
  }
  // Before the first operation: then the plugin never chooses another mask.
  void ask_for_all() {
    Random random = stream(401);
    const CommPtr comm = init(random);
    ask(static_cast<uint16_t>(kMaskDefault));
    finalize(random, *comm, nullptr);
  }

  // --- operations ---

  void identify(const Comm& comm, Descriptor& descriptor) {
    descriptor.rank = comm.rank;
    if constexpr (!V::kIdentityInInit) {
      if (settings_.hide_identity) return;
      const char* name = comm.name.empty() ? nullptr : comm.name.c_str();
      if (descriptor.type == kEventColl) {
        descriptor.coll.name = name;
        descriptor.coll.commHash = comm.id;
      } else {
        descriptor.p2p.name = name;
        descriptor.p2p.commHash = comm.id;
      }
    }
  }
  Descriptor coll(Random& random, Comm& comm, int channels) {
    static constexpr const char* kFunctions[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"};
    Descriptor descriptor =
        Library::coll(random.one_of(kFunctions), tag::seq(comm.number, comm.seq.fetch_add(1) & 0xFFFFFF),
                      random.once_in(50) ? SIZE_MAX / 2 : 1 + random.below(1 << 24), random.one_of(kDatatypeNames),
                      static_cast<uint8_t>(channels));
    identify(comm, descriptor);
    if constexpr (V::kKernelPhase) {
      descriptor.coll.isSymColl = random.once_in(8);
      descriptor.coll.userTag = random.below(2);
    }
    return descriptor;
  }
  Descriptor p2p(Random& random, const Comm& comm, bool send, int peer, int channels) {
    Descriptor descriptor = Library::p2p(send ? "Send" : "Recv", peer, comm.number + (random.below(64) << tag::kBits),
                                         static_cast<uint8_t>(channels));
    identify(comm, descriptor);
    // NCCL forgets this one for an old plugin.
    if constexpr (V::kNumber == 4) descriptor.p2p.nChannels = static_cast<uint8_t>(random.next());
    return descriptor;
  }

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
  void count_op(Comm& comm, bool p2p) {
    if (comm.context == nullptr) return reported_.unfollowed.add();
    reported_.ops.add();
    (p2p ? comm.p2ps : comm.colls).fetch_add(1);
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
  static void put(Inbox<Work>& inbox, Work work) {
    work.comm->pending.fetch_add(1);
    inbox.put(std::move(work));
  }

  // --- threads that call the API ---

  void play_group(Random& random, const std::vector<CommPtr>& comms) {
    // NCCL itself would stand still if the proxy did.
    for (const CommPtr& comm : comms) {
      while (comm->pending.load(std::memory_order_relaxed) > 200) std::this_thread::yield();
    }
    std::vector<std::shared_lock<std::shared_mutex>> locks;
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
    const std::lock_guard lock(graphs_mutex_);
    if (graphs_.size() < 8) {
      graphs_.push_back(std::move(ops));
    } else {
      graphs_[random.below(graphs_.size())] = std::move(ops);
    }
  }

  void share(Random& random, const CommPtr& comm) {
    const std::lock_guard lock(shared_mutex_);
    shared_[random.below(shared_.size())] = comm;
  }
  CommPtr shared_comm(Random& random) {
    const std::lock_guard lock(shared_mutex_);
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
        const std::lock_guard lock(graphs_mutex_);
        if (!graphs_.empty()) ops = graphs_[random.below(graphs_.size())];
      }
      std::vector<std::shared_lock<std::shared_mutex>> locks;
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
    const std::lock_guard lock(graphs_mutex_);
    graphs_.clear();
  }
  void serve_all(Random& random) {
    for (auto* inboxes : {&proxies_, &kernels_}) {
      std::vector<Work> works;
      inboxes->front()->take(works, false);
      for (Work& work : works) {
        while (!advance(random, work)) {
        }
        work.comm->pending.fetch_sub(1);
      }
    }
  }

  // --- proxy and profiler threads ---

  void serve(Inbox<Work>& inbox, Random random) {
    std::vector<Work> works;
    for (;;) {
      if (!inbox.take(works, works.empty()) && works.empty()) return;
      for (int i = 0; i < 64 && !works.empty(); ++i) {
        Work& work = works[random.below(std::min<size_t>(works.size(), 24))];
        if (!advance(random, work)) continue;
        work.comm->pending.fetch_sub(1);
        std::swap(work, works.back());
        works.pop_back();
      }
      if (V::kNumber >= 4 && random.once_in(64)) play_trap(random);
    }
  }

  // One thing of one of the events. True: all of it is over.
  bool advance(Random& random, Work& work) {
    const size_t count = work.proxies.size() + work.kernels.size();
    if (count == 0) return true;
    const size_t i = random.below(count);
    if (i < work.proxies.size()) {
      if (advance_proxy(random, work, work.proxies[i])) {
        std::swap(work.proxies[i], work.proxies.back());
        work.proxies.pop_back();
      }
    } else if constexpr (V::kKernelEvents) {
      auto& kernel = work.kernels[i - work.proxies.size()];
      if (advance_kernel(random, work, kernel)) {
        std::swap(kernel, work.kernels.back());
        work.kernels.pop_back();
      }
    }
    return work.proxies.empty() && work.kernels.empty();
  }

  bool leave_open(Random& random, uint64_t times) {
    if (settings_.steady || !random.once_in(times)) return false;
    reported_.left_open.add();
    return true;
  }

  bool advance_proxy(Random& random, Work& work, ProxyEvent& proxy) {
    Comm& comm = *work.comm;
    if (!proxy.started) {
      proxy.started = true;
      if (random.once_in(64)) play_foreign(random);
      // Without a parent it is the context that counts, and that may be on its way out.
      if (work.op == nullptr) (comm.context == nullptr ? reported_.unfollowed : reported_.unfollowed_maybe).add();
      Descriptor descriptor = Library::proxy_op(work.op, proxy.channel, comm.rank + 1, proxy.send, proxy.steps);
      descriptor.proxyOp.chunkSize = static_cast<int>(comm.number);
      proxy.handle = start(comm.context, descriptor, dig_up(random));
      if (V::kIdentityInInit && proxy.handle != nullptr) state(proxy.handle, kStateProxyOpInProgress);
      return false;
    }
    if (proxy.step != nullptr) {
      advance_step(random, comm, proxy);
      return false;
    }
    const bool steps_reported = (work.latched & kUnderStep) != 0 && (V::kApiEvents || proxy.handle != nullptr);
    if (steps_reported && proxy.next_step < proxy.steps) {
      void* parent = random.once_in(64) ? nullptr : proxy.handle;
      proxy.step = start(comm.context, Library::proxy_step(parent, proxy.next_step++));
      proxy.stage = 0;
      return false;
    }
    if (proxy.handle == nullptr || leave_open(random, 500)) return true;
    stop(proxy.handle);
    reported_.proxy_ops.add();
    if (random.once_in(32)) stop(proxy.handle);
    if (random.once_in(32)) state(proxy.handle, kStateProxyOpInProgress);
    bury(random, proxy.handle);
    return true;
  }

  void advance_step(Random& random, const Comm& comm, ProxyEvent& proxy) {
    static constexpr int kSend[] = {kStateStepSendGpuWait, kStateStepSendPeerWait, kStateStepSendWait};
    static constexpr int kReceive[] = {kStateStepRecvWait, kStateStepRecvFlushWait, kStateStepRecvGpuWait};
    if (proxy.stage < 3) {
      const int number = (proxy.send ? kSend : kReceive)[proxy.stage];
      state(proxy.step, number, comm.number);
      if (number != kStateStepSendPeerWait || random.once_in(3)) ++proxy.stage;  // this one NCCL repeats
      if (V::kKernelEvents && random.once_in(16)) network_.put(proxy.step);
      return;
    }
    void* step = std::exchange(proxy.step, nullptr);
    if (leave_open(random, 300)) return;
    stop(step);
    reported_.proxy_steps.add();
    if (random.once_in(32)) stop(step);
    if (random.once_in(32)) state(step, kStateStepSendWait, 1);
    bury(random, step);
  }

  bool advance_kernel(Random& random, Work& work, KernelEvent& kernel) requires(V::kKernelEvents) {
    void* context = work.comm->context;
    if (!kernel.started) {
      kernel.started = true;
      kernel.handle = start(context, Library::kernel(work.op, kernel.channel, kernel.gpu_start_ns), dig_up(random));
      return kernel.handle == nullptr;
    }
    const uint64_t gpu_stop_ns = kernel.gpu_start_ns + tag::gpu_length(kernel.channel);
    if constexpr (V::kKernelPhase) {
      for (uint8_t phase = 0; (work.latched & kEventKernelPhase) != 0 && phase < 3; ++phase) {
        void* handle = start(context, Library::kernel_phase(kernel.handle, kernel.channel, phase, gpu_stop_ns));
        if (handle != nullptr) state(handle, kStateKernelPhaseStop, gpu_stop_ns);
        stop_unless_null(handle);
      }
    }
    if (leave_open(random, 300)) return true;
    if constexpr (V::kGpuTimes) {
      if (!random.once_in(100)) state(kernel.handle, kStateKernelChStop, gpu_stop_ns);
    }
    stop(kernel.handle);
    reported_.kernels.add();
    if (work.captured) reported_.captured_kernels.add();
    if (random.once_in(32)) state(kernel.handle, kStateKernelChStop, 1);
    if (random.once_in(32)) stop(kernel.handle);
    bury(random, kernel.handle);
    return true;
  }

  void serve_network() {
    std::vector<void*> steps;
    while (network_.take(steps, true)) {
      for (void* step : steps) {
        if constexpr (V::kKernelEvents) {
          Descriptor descriptor = Library::of(kEventNetPlugin, step);
          descriptor.netPlugin.id = 1 << 16 | 1;
          descriptor.netPlugin.data = this;
          void* handle = start(nullptr, descriptor);
          if (handle != nullptr) state(handle, kStateNetPluginUpdate);
          stop_unless_null(handle);
        }
      }
      steps.clear();
    }
  }

  // --- what should not happen, and does ---

  // A proxy operation that another process asked for (PXN): nothing in it but the pid means anything here.
  void play_foreign(Random& random) {
    const auto anything = [&] { return reinterpret_cast<void*>(random.next() >> random.below(64)); };
    Descriptor descriptor = Library::proxy_op(anything(), 0, 1, true, 4, ::getpid() + 1);
    reported_.foreign.add();
    expect(start(anything(), descriptor) == nullptr, "a proxy operation of another process was followed");
  }

  // Old handles: stopped again, told states, taken as parents.
  void play_trap(Random& random) {
    void* old = dig_up(random);
    switch (random.below(4)) {
      case 0:
        return stop(old);
      case 1:
        return state(old, static_cast<int>(random.below(32)), random.next());
      case 2: {
        void* handle = start(old, Library::proxy_step(old, 1));
        if (handle != nullptr) fail("a step of a proxy operation that has ended was followed");
        return;
      }
      default:
        void* control = start(nullptr, Library::of(kEventProxyCtrl));
        if (control != nullptr) state(control, kStateProxyCtrlIdle);
        return stop_unless_null(control);
    }
  }

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

  void use_clock() {
    for (void* library : {library_.library(), capi_}) {
      auto* use = reinterpret_cast<void (*)(uint64_t(*)())>(::dlsym(library, "lockstep_use_clock"));
      expect(use != nullptr, "no lockstep_use_clock");
      use(&SoakClock::now_ns);
    }
  }

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
      expect(!row.recent.empty() && !row.recent.back().end_is_seen, "an end that NCCL will not tell is waited for");
    }
    expect(library_.table().finalize(comm->context) == 0, "finalize failed");
  }

  const SoakSettings& settings_;
  SoakReported& reported_;
  Library library_;
  void* capi_ = nullptr;
  alignas(64) int mask_ = 0;
  std::atomic<bool> ending_{false};
  std::atomic<uint64_t> comms_made_{0};
  std::vector<std::unique_ptr<Inbox<Work>>> proxies_;
  std::vector<std::unique_ptr<Inbox<Work>>> kernels_;
  Inbox<void*> network_;  // steps that the network tells more of
  std::mutex graphs_mutex_;
  std::vector<Ops> graphs_;
  std::mutex shared_mutex_;
  std::array<CommPtr, 16> shared_;
  std::array<std::atomic<void*>, 256> graveyard_;
};

}  // namespace lockstep::nccl
