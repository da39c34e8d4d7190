// A second profiler plugin behind ours: NCCL loads only one, so where LOCKSTEP_CHAIN_PLUGIN names another, we load it
// and hand it everything that NCCL tells, as if NCCL had loaded it.
//
// Both plugins answer an event with a handle of their own, but NCCL keeps one. Where the second plugin took an event,
// NCCL gets the place of a pair {our word, their pointer}; where it did not, our word alone, and the chain is out of
// it. So the second plugin only ever sees pointers that it gave itself, each is stopped at most once, and whatever else
// comes as a handle does not reach it.
//
// Thread rule: Thread-safe. init() and finalize() lock; no other call locks, allocates or makes a system call itself.
//
// Limits:      kContexts communicators at a time; kPairs events of each kind (kCapturedPairs calls captured into CUDA
//              graphs) after which the oldest pair is forgotten: it then is nobody's parent any more, and its stop
//              reaches nobody.
//
// On error:    the second plugin is left out, for good or for one communicator; our own half goes on. Said once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "plugin/nccl/convert.h"
#include "plugin/nccl/handles.h"
#include "plugin/nccl/slots.h"
#include "recorder/in_flight.h"

namespace lockstep::nccl {

inline constexpr const char* kPluginName = "Lockstep";

// A ring of pairs. A pair outlives its stop: an event may be named as a parent long after it.
//
// Thread rule: Thread-safe, lock-free.
class PairRing {
 public:
  explicit PairRing(uint32_t size) : pairs_(new Pair[size]()), mask_(size - 1) {}  // size: a power of two

  struct Seen {
    bool found = false;
    bool open = false;  // not stopped
    uint64_t ours = 0;
    void* theirs = nullptr;
    uint32_t wanted = 0;
  };
  // wanted: what the second plugin wanted to hear when the event began. Gives the position; 0: no place.
  uint32_t put(uint64_t ours, void* theirs, uint32_t wanted);
  Seen peek(uint32_t position) const;
  // open for the first caller alone.
  Seen stop(uint32_t position);

 private:
  static constexpr uint64_t kStopped = 1ULL << 32;
  static constexpr uint64_t kBusy = 1ULL << 33;

  struct alignas(32) Pair {
    std::atomic<uint64_t> key;  // position, and kStopped; 0: never used
    std::atomic<uint64_t> ours;
    std::atomic<void*> theirs;
    std::atomic<uint32_t> wanted;
  };
  std::unique_ptr<Pair[]> pairs_;
  const uint32_t mask_;
  std::atomic<uint32_t> next_{0};
};

class Chain {
 public:
  using Word = uint64_t;

  static constexpr uint32_t kContexts = 1024;
  static constexpr uint32_t kPairs = 16'384;
  static constexpr uint32_t kCapturedPairs = 32'768;

  // The plugin that LOCKSTEP_CHAIN_PLUGIN names, for an NCCL that speaks this version of the interface. Null where it
  // names none, or one that cannot be used.
  static Chain* load(int nccl_version, DebugLogger log);

  // A communicator begins: theirs first, then what NCCL's mask must have for them, then ours, then both together.
  struct Theirs {
    bool follows = false;
    void* context = nullptr;
  };
  template <typename V>
  Theirs init(const InFlightTable::Comm& comm, DebugLogger log);
  uint32_t events() const { return keep_.load(std::memory_order_relaxed); }
  // events: what our half asks for; the rest is for the second plugin alone.
  void ours_follows(uint32_t events);
  Word add(Word ours, const Theirs& theirs, const InFlightTable::Comm& comm, int* nccl_mask);

  // These call the second plugin, and give the word that our half is to be called with; 0: not at all. None of them is
  // inlined: without a chain, a callback is not to pay for their frames.
  Word finalize(Word context);
  Word stop(Word handle);
  template <typename V>
  [[gnu::noinline]] Word state(Word handle, int state, const typename V::StateArgs* args);

  // Calls both and gives NCCL's handle. Ours: start(context, descriptor) as NCCL would call it; keep(bits), which
  // writes NCCL's mask with these bits in it or says false.
  template <typename V, typename Ours>
  [[gnu::noinline]] Word start(Word context, const typename V::Descriptor& descriptor);

 private:
  enum Ring : uint32_t { kGroups, kCaptured, kOperations, kKernels, kProxyOps, kSteps, kRings, kContextRow };
  static constexpr uint64_t kOperationEvents = kEventColl | kEventP2p | kEventCeColl;
  static constexpr Word kNobody = ~0ULL;  // is no handle, so our half counts it as refused

  struct Context {
    std::atomic<uint32_t> key{0};  // position; 0: free
    Relaxed<uint64_t> ours;
    Relaxed<void*> theirs;
    Relaxed<uint64_t> comm_id;
    Relaxed<uint8_t> named;
    char name[128];
  };
  struct Named {  // a handle that NCCL gave back
    Word ours = 0;
    void* theirs = nullptr;
    uint32_t wanted = 0;
  };

  Chain(int version, const void* table);

  template <typename M>
  const typename M::Profiler& table() const {
    return *static_cast<const typename M::Profiler*>(table_);
  }
  // Calls body with the type of the second plugin's version where that is not newer than V.
  template <typename V, typename Body>
  void with_version(Body body) const;

  Named named(const void* handle) const;
  Context* find_context(Word word);
  bool mask_changed() const;
  void note_mask();
  template <typename Ours>
  [[gnu::noinline, gnu::cold]] void merge_mask();
  template <typename V>
  void* start_theirs(const Context& context, typename V::Descriptor& descriptor, const Links& links) const;
  template <typename V>
  static Ring ring_of(const typename V::Descriptor& descriptor);
  Word pair(Ring ring, Word ours, void* theirs, uint32_t wanted);

  const int version_;        // of the second plugin's interface
  const void* const table_;  // theirs; its functions are looked up at every call, as NCCL does
  const pid_t pid_;
  const uint16_t salt_;
  alignas(64) int their_mask_ = 0;  // theirs to write, at any time
  std::atomic<uint32_t> seen_mask_{0};
  std::atomic<uint32_t> keep_{0};
  std::atomic<uint32_t> wanted_{0};       // every event that NCCL would send for their mask
  std::atomic<uint32_t> ours_wanted_{0};  // the same of our half
  std::atomic<int*> nccl_mask_{nullptr};  // while a communicator of theirs lives
  std::unique_ptr<PairRing> rings_[kRings];
  Mutex lifecycle_;  // of contexts
  std::unique_ptr<Context[]> contexts_;
  uint32_t next_context_ LOCKSTEP_GUARDED_BY(lifecycle_) = 0;
  uint32_t contexts_alive_ LOCKSTEP_GUARDED_BY(lifecycle_) = 0;
};

inline uint32_t PairRing::put(uint64_t ours, void* theirs, uint32_t wanted) {
  const uint32_t position = next_.fetch_add(1, std::memory_order_relaxed) + 1;
  Pair& place = pairs_[position & mask_];
  // 0 comes once in four billion and means "none". Busy: a thread slept here while the whole ring went round.
  if (position == 0 || place.key.exchange(kBusy, std::memory_order_acq_rel) == kBusy) return 0;
  place.ours.store(ours, std::memory_order_release);  // who sees this sees the place busy
  place.theirs.store(theirs, std::memory_order_release);
  place.wanted.store(wanted, std::memory_order_release);
  place.key.store(position, std::memory_order_release);
  return position;
}

inline PairRing::Seen PairRing::peek(uint32_t position) const {
  const Pair& place = pairs_[position & mask_];
  const uint64_t key = place.key.load(std::memory_order_acquire);
  if (position == 0 || static_cast<uint32_t>(key) != position) return {};
  const Seen seen{.found = true,
                  .open = key == position,
                  .ours = place.ours.load(std::memory_order_acquire),
                  .theirs = place.theirs.load(std::memory_order_acquire),
                  .wanted = place.wanted.load(std::memory_order_acquire)};
  const bool whole = static_cast<uint32_t>(place.key.load(std::memory_order_relaxed)) == position;
  return whole ? seen : Seen{};
}

inline PairRing::Seen PairRing::stop(uint32_t position) {
  Seen seen = peek(position);
  uint64_t open = position;
  if (seen.open)
    seen.open =
        pairs_[position & mask_].key.compare_exchange_strong(open, position | kStopped, std::memory_order_acq_rel);
  return seen;
}

template <typename V, typename Body>
void Chain::with_version(Body body) const {
  const auto try_one = [&]<typename M>(M version) {
    if constexpr (M::kNumber <= V::kNumber) {
      if (version_ == M::kNumber) body(version);
    }
  };
  try_one(V7{}), try_one(V6{}), try_one(V5{}), try_one(V4{}), try_one(V3{}), try_one(V2{}), try_one(V1{});
}

template <typename V>
Chain::Theirs Chain::init(const InFlightTable::Comm& comm, DebugLogger log) {
  Theirs theirs;
  with_version<V>([&]<typename M>(M) {
    const auto& second = table<M>();
    int result = kNcclSuccess;
    if constexpr (M::kApiEvents) {
      result = second.init(&theirs.context, comm.comm_id, &their_mask_, comm.name, comm.nodes, comm.size,
                           comm.rank_in_comm, log);
    } else if constexpr (M::kIdentityInInit) {
      result = second.init(&theirs.context, &their_mask_, comm.name, comm.comm_id, comm.nodes, comm.size,
                           comm.rank_in_comm, log);
    } else {
      result = second.init(&theirs.context, &their_mask_);
    }
    theirs.follows = result == kNcclSuccess;
  });
  if (theirs.follows) note_mask();
  return theirs;
}

inline bool Chain::mask_changed() const {
  const int now = __atomic_load_n(&their_mask_, __ATOMIC_RELAXED);
  return static_cast<uint32_t>(now) != seen_mask_.load(std::memory_order_relaxed) &&
         nccl_mask_.load(std::memory_order_relaxed) != nullptr;
}

template <typename Ours>
void Chain::merge_mask() {
  note_mask();
  if (Ours::keep(events())) return;
  if (int* mask = nccl_mask_.load(std::memory_order_acquire))
    __atomic_store_n(mask, static_cast<int>(events()), __ATOMIC_RELAXED);
}

template <typename V>
Chain::Ring Chain::ring_of(const typename V::Descriptor& descriptor) {
  // Calls captured into a graph are named again at each of its replays, and no new ones come then.
  if constexpr (V::kApiEvents) {
    if (descriptor.type == kEventCollApi && descriptor.collApi.graphCaptured) return kCaptured;
    if (descriptor.type == kEventP2pApi && descriptor.p2pApi.graphCaptured) return kCaptured;
  }
  if ((descriptor.type & kOperationEvents) != 0) return kOperations;
  if (descriptor.type == kEventProxyOp) return kProxyOps;
  if ((descriptor.type & (kEventProxyStep | kEventNetPlugin | kEventProxyCtrl)) != 0) return kSteps;
  if ((descriptor.type & (kEventKernelCh | kEventKernelPhase | kEventCeSync | kEventCeBatch)) != 0) return kKernels;
  return kGroups;
}

template <typename V>
void* Chain::start_theirs(const Context& context, typename V::Descriptor& descriptor, const Links& links) const {
  void* handle = nullptr;
  with_version<V>([&]<typename M>(M) {
    if constexpr (M::kNumber == V::kNumber) {
      descriptor.parentObj = links.parent;
      if (void** group = parent_group_of<V>(descriptor)) *group = links.parent_group;
      table<M>().startEvent(context.theirs, &handle, &descriptor);
    } else {
      const Identity identity{context.named != 0 ? context.name : nullptr, context.comm_id};
      typename M::Descriptor older;
      if (convert<V, M>(descriptor, links, identity, older)) table<M>().startEvent(context.theirs, &handle, &older);
    }
  });
  return handle;
}

template <typename V, typename Ours>
Chain::Word Chain::start(Word context_word, const typename V::Descriptor& from_nccl) {
  const auto type = static_cast<uint64_t>(from_nccl.type);
  const bool for_ours = (type & ours_wanted_.load(std::memory_order_relaxed)) != 0;
  typename V::Descriptor descriptor = from_nccl;
  // Of another process (PXN) nothing in the call means anything here, the context neither: ours counts it.
  if (type == kEventProxyOp && descriptor.proxyOp.pid != pid_) {
    if (for_ours) Ours::start(kNobody, descriptor);
    return 0;
  }
  if ((type & kOperationEvents) != 0 && mask_changed()) [[unlikely]]
    merge_mask<Ours>();

  const Named parent = named(descriptor.parentObj);
  Links links{.parent = parent.theirs};
  uint32_t wanted = parent.wanted;
  descriptor.parentObj = reinterpret_cast<void*>(parent.ours);
  if (void** field = parent_group_of<V>(descriptor)) {
    const Named group = named(*field);
    links.parent_group = group.theirs;
    if (wanted == 0) wanted = group.wanted;
    *field = reinterpret_cast<void*>(group.ours);
  }
  // NCCL takes what it read at the call of its API for all that follows from it.
  if (wanted == 0) wanted = wanted_.load(std::memory_order_relaxed);

  Context* context = find_context(context_word);
  const Word ours_context = context != nullptr ? static_cast<Word>(context->ours) : context_word;
  const Word ours = for_ours ? Ours::start(ours_context, descriptor) : 0;
  if (context == nullptr || (type & wanted) == 0) return ours;
  void* theirs = start_theirs<V>(*context, descriptor, links);
  return theirs != nullptr ? pair(ring_of<V>(from_nccl), ours, theirs, wanted) : ours;
}

template <typename V>
Chain::Word Chain::state(Word word, int state, const typename V::StateArgs* args) {
  const Handle handle = Handle::unpacked(word, salt_);
  if (handle.kind != HandleKind::kPair) return word;
  const auto seen = handle.row < kRings ? rings_[handle.row]->peek(handle.position) : PairRing::Seen{};
  if (!seen.found) return kNobody;
  if (!seen.open) return seen.ours;
  with_version<V>([&]<typename M>(M) {
    typename M::StateArgs copy{};
    if constexpr (M::kNumber == V::kNumber) {
      if (args != nullptr) copy = *args;
      table<M>().recordEventState(seen.theirs, state, args != nullptr ? &copy : nullptr);
    } else {
      if (convert_state<V, M>(state, args, copy)) table<M>().recordEventState(seen.theirs, state, &copy);
    }
  });
  return seen.ours;
}

}  // namespace lockstep::nccl
