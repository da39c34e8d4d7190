// The plugin as NCCL calls it, for plugin_soak: the six calls with what must hold of each, communicators, the events of
// operations, and calls that should not happen and do. What there is of threads is in soak_servers.h and soak_host.cc.
//
// Everything it sends carries the communicator's own number where a record keeps it, so that a reader can tell when a
// record was put together from two events.
//
// Thread rule: Thread-safe, as NCCL is: a communicator is finalized while nobody enqueues on it.
// On error:    fail() says one line and ends the process.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "plugin/nccl/soak_parts.h"
#include "plugin/nccl/test_host.h"
#include "plugin/nccl/tracker.h"
#include "recorder/control.h"
#include "recorder/reader.h"

namespace lockstep::nccl {

template <typename V>
class SoakCalls {
 protected:
  SoakCalls(const SoakSettings& settings, SoakReported& reported) : settings_(settings), reported_(reported) {
    SoakClock::base = system_now_ns();
    SoakClock::rate = settings.fast_clock ? 16 : 1;
    capi_ = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so", RTLD_NOW | RTLD_LOCAL);
    expect(capi_ != nullptr, "liblockstep.so does not open");
    if (settings.fast_clock) use_clock();
    for (auto& handle : graveyard_) handle.store(kGarbage, std::memory_order_relaxed);
  }

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
    SharedMutex life;
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
    const MutexLock lock(comm.life);
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

  // --- liblockstep.so ---

  void use_clock() {
    for (void* library : {library_.library(), capi_}) {
      auto* use = reinterpret_cast<void (*)(uint64_t(*)())>(::dlsym(library, "lockstep_use_clock"));
      expect(use != nullptr, "no lockstep_use_clock");
      use(&SoakClock::now_ns);
    }
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
  std::array<std::atomic<void*>, 256> graveyard_;
};

}  // namespace lockstep::nccl
