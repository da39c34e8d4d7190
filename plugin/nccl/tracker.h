// Turns NCCL's profiler callbacks into flight recorder records and keeps the operations-in-flight table. One per
// process, made by the first init and never destroyed: NCCL's threads may call after the last finalize.
//
// Thread rule: Thread-safe. Every call but comm_init() is O(1), without lock, allocation or system call (budget: 50
//              ns).
// Limits:      of one thread kOpSlots operations and kEventSlots events of each other kind between start and end.
// Beyond
//              that one of them loses its place and is counted as refused.
// Cost:        what a callback touches is a line or two of its communicator, fetched ahead, and places that belong to
//              its thread: the memory in use, and so the time, does not grow with the number of communicators.
// On error:    a handle of 0 ("not followed"), counted by reason where an event was lost.
#pragma once

#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "plugin/nccl/abi/common.h"
#include "plugin/nccl/detail.h"
#include "plugin/nccl/slots.h"
#include "recorder/in_flight.h"
#include "recorder/records.h"
#include "recorder/writer.h"

namespace lockstep::nccl {

inline constexpr uint32_t kOpSlots = 2048;
inline constexpr uint32_t kEventSlots = 2048;
// Threads that enqueue, and threads with kernel or proxy events, that may come before the next communicator.
inline constexpr uint32_t kSpareOpPlaces = 8;
inline constexpr uint32_t kSparePlaces = 4;

class Tracker {
 public:
  using Word = uint64_t;  // a packed Handle; 0: none

  Tracker(RecorderWriter& recorder, const Policy& policy);

  bool off() const { return recorder_.off(); }
  RecorderWriter& recorder() { return recorder_; }

  // nccl_mask: where NCCL reads what it is to tell.
  Word comm_init(const InFlightTable::Comm& comm, int* nccl_mask);
  // For an interface whose init does not say which communicator it is: told with every operation, kept from the first.
  void comm_identity(Word context, uint64_t comm_id, int32_t rank, const char* name);
  void comm_finalize(Word context);
  // Before comm_init(): there is no room for what kernel events make NCCL do.
  void drop_kernel_events() { detail_.drop(kEventKernelCh); }
  // What is asked of NCCL at most, and what NCCL's mask has besides, for somebody else (chain.h).
  uint32_t events() const { return detail_.events(); }
  void keep_events(uint32_t bits) { detail_.keep(bits); }

  // A group of calls begins; or, with a parent, one call of a group. Handles without anything behind them. The rank
  // that NCCL writes into these events is 0 on every rank, and is not asked for.
  Word group_start();
  Word call_start(Word context, Word parent, bool p2p, bool graph);

  // An operation was enqueued. Its words are those of OpRecord (records.h), as far as NCCL tells them.
  struct Op {
    uint64_t head = 0;  // op_head_word(), the communicator is added here
    uint64_t seq = 0;
    uint64_t bytes = 0;
    uint64_t detail = 0;  // op_detail_word()
    uint64_t protocol = 0;
    Word parent = 0;  // the group or call it belongs to
    Word launch = 0;  // NCCL's own group, which for a captured graph is made anew at each replay
  };
  Word op_start(Word context, const Op& op);
  Word kernel_start(Word op, uint8_t channel, uint64_t gpu_start_ns);
  Word proxy_op_start(Word context, Word op, const ProxyOpFields& fields);
  Word proxy_step_start(Word proxy_op, const ProxyStepFields& fields);

  // What a state carries, whatever the version.
  struct StateValue {
    uint64_t bytes = 0;        // transSize, of a proxy step
    uint64_t gpu_stop_ns = 0;  // of a kernel
  };
  void state(Word handle, int state, const StateValue& value);
  void stop(Word handle);

 private:
  using Lane = RecorderWriter::Lane;

  // Around one callback: its thread's lane, and now and then its cost.
  class Call {
   public:
    explicit Call(RecorderWriter& recorder) : recorder_(recorder), lane_(recorder.lane()) {
      if (recorder_.begin_event(lane_)) [[unlikely]]
        began_ = cost_clock();
    }
    ~Call() {
      if (began_ != 0) [[unlikely]]
        recorder_.end_sample(
            lane_, TickClock::usable() ? TickClock::ticks_to_ns(cost_clock() - began_) : cost_clock() - began_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    Lane& lane() { return lane_; }
    uint64_t now_ns() { return recorder_.now_ns(lane_); }

   private:
    static uint64_t cost_clock() { return TickClock::usable() ? TickClock::ticks() : system_now_ns(); }

    RecorderWriter& recorder_;
    Lane& lane_;
    uint64_t began_ = 0;
  };

  struct alignas(64) OpSlot {
    std::atomic<uint64_t> key;
    Relaxed<uint64_t> op_id;
    Relaxed<uint64_t> table_position;
    Relaxed<uint64_t> ordinal;
    Relaxed<uint32_t> epoch;  // of the communicator, its low half: a process makes no 4 billion of them
    Relaxed<uint32_t> table_entry;
    Relaxed<uint32_t> kernels_started;
    Relaxed<uint32_t> kernels_stopped;
    Relaxed<int32_t> proxy_ops_open;
    Relaxed<uint16_t> row;
    Relaxed<uint8_t> p2p;
    Relaxed<uint8_t> channels;
    Relaxed<uint8_t> enqueued;  // NCCL has stopped the event: everything is handed to the GPU and the proxy
    Relaxed<uint8_t> completed;
    Relaxed<uint8_t> kernels_reported;  // kernel events were asked for when it was enqueued: its end will be seen
    Relaxed<uint8_t> untimed;           // they show its end, but are not recorded: kCallAlone
  };
  struct alignas(64) KernelSlot {
    std::atomic<uint64_t> key;
    Relaxed<uint64_t> op;  // packed handle
    Relaxed<uint64_t> op_id;
    Relaxed<uint64_t> gpu_start_ns;
    Relaxed<uint64_t> gpu_stop_ns;
    Relaxed<uint64_t> host_start_ns;
    Relaxed<uint16_t> row;
    Relaxed<uint8_t> channel;
  };
  struct alignas(64) ProxyOpSlot {
    std::atomic<uint64_t> key;
    Relaxed<uint64_t> op;  // packed handle, 0: none
    Relaxed<uint64_t> op_id;
    Relaxed<uint32_t> epoch;
    Relaxed<uint64_t> start_ns;
    Relaxed<int32_t> peer;
    Relaxed<uint32_t> steps;
    Relaxed<uint32_t> chunk_bytes;
    Relaxed<uint16_t> row;
    Relaxed<uint8_t> channel;
    Relaxed<uint8_t> send;
  };
  struct alignas(64) StepSlot {  // one cache line: there are more steps than anything else
    std::atomic<uint64_t> key;
    Relaxed<uint64_t> op_id;
    Relaxed<uint64_t> start_ns;
    Relaxed<uint64_t> state_since_ns;
    Relaxed<uint32_t> wait_gpu_ns;  // these four stay at their largest value once they reach it
    Relaxed<uint32_t> wait_peer_ns;
    Relaxed<uint32_t> wire_ns;
    Relaxed<uint32_t> bytes;
    Relaxed<int32_t> peer;
    Relaxed<uint32_t> step;
    Relaxed<uint32_t> epoch;
    Relaxed<uint16_t> row;
    Relaxed<uint8_t> channel;
    Relaxed<uint8_t> state;  // NCCL's number; bit 7: send
  };
  static_assert(sizeof(OpSlot) == 64 && sizeof(KernelSlot) == 64 && sizeof(ProxyOpSlot) == 64 &&
                sizeof(StepSlot) == 64);
  // What is kept of a communicator besides its row. Small, so that many fit into the nearest cache.
  struct PeerCounts;
  struct alignas(32) Comm {
    std::atomic<uint64_t> epoch{0};  // of the communicator that lives here now; 0: none
    std::atomic<uint64_t> comm_id{0};
    std::atomic<PeerCounts*> peers{nullptr};
    std::atomic<int32_t> rank{-1};  // in it
    // It has sent to itself: kernel events may come too early from then on (decision 27).
    std::atomic<bool> miscounts{false};
  };
  // How many point-to-point operations went to each rank, and how many came. Kept with the row like the rest of Comm,
  // and replaced only by a larger one.
  struct PeerCounts {
    explicit PeerCounts(int32_t ranks)
        : size(ranks), counts(std::make_unique<std::atomic<uint32_t>[]>(static_cast<size_t>(ranks) * 2)) {}
    const int32_t size;
    std::unique_ptr<std::atomic<uint32_t>[]> counts;
  };

  // Of the operations and of the other events that one thread starts, by its lane; their handles carry its number in
  // the place of the row. Taken from the spare ones with the thread's first such event: few threads have any.
  struct OpPlaces {
    SlotRing<OpSlot> ops{kOpSlots};
  };
  struct Places {
    SlotRing<KernelSlot> kernels{kEventSlots};
    SlotRing<ProxyOpSlot> proxy_ops{kEventSlots};
    SlotRing<StepSlot> steps{kEventSlots};
  };

  // For threads to come: made with each communicator, which is when NCCL makes threads, so that a callback allocates
  // nothing.
  template <typename T, uint32_t kCount>
  class Spares {
   public:
    void refill() {
      for (auto& spare : spares_) {
        if (spare.load(std::memory_order_relaxed) == nullptr) spare.store(new T, std::memory_order_release);
      }
    }
    T* take() {  // null: all are taken
      for (auto& spare : spares_) {
        if (T* taken = spare.exchange(nullptr, std::memory_order_acquire)) return taken;
      }
      return nullptr;
    }

   private:
    std::atomic<T*> spares_[kCount] = {};
  };
  template <typename T>
  using ByLane = std::unique_ptr<std::atomic<T*>[]>;

  // The call that a thread is in: counted when it is over, by when what it touches has been fetched.
  struct alignas(64) OpenCall {
    Word context = 0;  // 0: none
    bool p2p = false;
  };

  // Steps that wait to share a record (ProxyStepRecord::merged): one record in the making for each proxy operation, as
  // far as they do not fall on the same place.
  struct Merging {
    struct Entry {
      Record record;
      uint64_t wire_until_ns;
      bool used;
    };
    static constexpr size_t kEntries = 64;
    Entry entries[kEntries] = {};
  };

  Handle unpacked(Word word) const { return Handle::unpacked(word, salt_); }
  Word refused(Refused reason) {
    recorder_.count_refused(reason);
    return 0;
  }
  // Null: no lane, or no places left; the latter is counted.
  template <typename T, uint32_t kCount>
  T* places_here(Call& call, ByLane<T>& by_lane, Spares<T, kCount>& spares) {
    if (call.lane().header == nullptr) return nullptr;
    T* places = by_lane[call.lane().number].load(std::memory_order_relaxed);
    return places != nullptr ? places : take_places(call, by_lane, spares);
  }
  template <typename T, uint32_t kCount>
  [[gnu::noinline, gnu::cold]] T* take_places(Call& call, ByLane<T>& by_lane, Spares<T, kCount>& spares) {
    T* places = spares.take();
    if (places == nullptr) {
      recorder_.count_refused(Refused::kNoSlot);
    } else {
      by_lane[call.lane().number].store(places, std::memory_order_release);
    }
    return places;
  }
  Places* event_places(Call& call);  // null: none, counted
  template <typename Slot>
  Slot* find_event(SlotRing<Slot> Places::*ring, const Handle& handle) {
    Places* places = handle.row < recorder_.lanes() ? places_[handle.row].load(std::memory_order_acquire) : nullptr;
    return places != nullptr ? (places->*ring).find(handle.position) : nullptr;
  }
  Comm* live_comm(const Handle& handle);
  bool is_live(uint32_t row, uint32_t epoch);
  OpSlot* find_op(const Handle& handle);
  // Whose it is, for what it is the parent of. False: it is gone.
  struct OpOwner {
    uint64_t op_id = 0;
    uint32_t epoch = 0;
    uint16_t row = 0;
  };
  static bool owner_of(const OpSlot* slot, const Handle& handle, OpOwner& owner);
  bool nobody_waits_for(const OpSlot& slot);
  void count_open_call(Call& call);
  static void count_peers_anew(Comm& comm, int32_t size);
  static uint64_t next_of_peer(Comm& comm, uint64_t detail);
  void op_stop(const Handle& handle);
  void kernel_stop(Call& call, const Handle& handle);
  void proxy_op_stop(Call& call, const Handle& handle);
  void proxy_step_stop(Call& call, const Handle& handle);
  Merging::Entry& merging_entry(Call& call, uint64_t op_id, uint8_t channel, bool send);
  void merge(Call& call, const Record& step);
  void flush(Call& call, Merging::Entry& entry);
  void step_state(Call& call, StepSlot& slot, int state, uint64_t bytes);
  void end_step_state(StepSlot& slot, uint64_t now_ns);
  void op_started(OpSlot& slot, uint64_t now_ns);
  void op_completed(OpSlot& slot);
  bool kernels_over(const OpSlot& slot) const;
  bool waits_for_network(const OpSlot& slot) const;  // besides its kernels, or without them
  void mark(RecordType type, uint32_t row, const InFlightTable::Comm& comm);
  static InFlightTable::Ticket ticket_of(const OpSlot& slot);

  RecorderWriter& recorder_;
  InFlightTable& table_;
  const pid_t pid_;
  const uint16_t salt_;
  Detail detail_;
  Mutex lifecycle_;  // of communicators: not held by any other callback
  uint32_t comms_alive_ LOCKSTEP_GUARDED_BY(lifecycle_) = 0;
  Comm comms_[layout::kCommsMax];  // by row
  ByLane<OpPlaces> op_places_;
  ByLane<Places> places_;
  Spares<OpPlaces, kSpareOpPlaces> spare_op_places_;
  Spares<Places, kSparePlaces> spare_places_;
  std::unique_ptr<OpenCall[]> open_calls_;  // by lane
  std::unique_ptr<Merging[]> merging_;      // by lane
};

}  // namespace lockstep::nccl
