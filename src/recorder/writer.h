// Writes the flight recorder of this process: one memory-mapped file that outlives it. Whatever goes wrong here, the
// job runs on: a recorder that cannot be made is simply off, a record that finds no place is counted and forgotten.
//
// The NCCL plugin and the C API library are two libraries in one process, each with its own copy of this code; the
// second to come maps the file that the first one made. They share lanes by compare-and-swap in the mapped header.
//
// Thread rule: Thread-safe. write() takes no lock, allocates nothing and makes no system call, except that a thread's
// very
//              first record claims a lane for it (a bounded scan). The lane is given back when the thread ends.
// Limits:      layout::kLanesDefault threads at a time, layout::kLaneRecordsDefault records per thread before the
// oldest
//              are overwritten.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/files.h"
#include "base/result.h"
#include "recorder/in_flight.h"
#include "recorder/layout.h"
#include "recorder/records.h"
#include "recorder/ticks.h"

namespace lockstep {

// Time of every record: CLOCK_MONOTONIC, or what use_recorder_clock() put in its place (replay and tests; nullptr: back
// to the system's clock). Callbacks ask RecorderWriter::now_ns(), which is cheaper.
uint64_t recorder_now_ns();
void use_recorder_clock(uint64_t (*now_ns)());
extern std::atomic<uint64_t (*)()> recorder_clock;  // null: the system's

// Why a recorder stopped by itself; the number is in the file.
enum class SwitchOff : uint64_t {
  kNone = 0,
  kLaneTaken = 1,      // another thread wrote its name on a lane that was ours
  kHeaderChanged = 2,  // somebody else wrote into the file
  kTooSlow = 3,        // its own callbacks took too long, again and again
};
const char* to_text(SwitchOff reason);  // a clause for a log line

class RecorderWriter {
 public:
  struct Identity {
    std::string job_id;
    int64_t attempt = 0;
    int32_t rank = -1;
    int32_t world_size = 0;
    int32_t local_rank = 0;
    std::string host;
    std::string gpu_uuid;
  };
  struct Options {
    std::string directory;
    bool directory_must_be_ours = false;  // refuse one that another user made: the default one is in a public place
    // What is asked for; on a file system with little room the file is made smaller (fitting()).
    layout::Geometry geometry{layout::kLanesDefault, layout::kLaneRecordsDefault, layout::kCommsDefault};
    Identity identity;
    int64_t anchor_unix_ns = 0;  // both 0: read from the clocks now
    int64_t anchor_monotonic_ns = 0;
  };

  // Options and identity as the environment gives them (docs/formats/flight-recorder.md).
  static Options options_from_environment();

  // The geometry asked for, or less of it: NCCL itself needs shared memory, and every rank of the node makes a file, so
  // one file takes at most a sixteenth of what is free. Fails where even the smallest one does not fit.
  static Result<layout::Geometry> fitting(layout::Geometry requested, uint64_t free_bytes);

  // Makes <directory>/<pid>-<start ticks>.lsfr, or maps it where it is there already (its geometry and identity then
  // stand).
  static Result<std::unique_ptr<RecorderWriter>> open(const Options& options);
  ~RecorderWriter();
  RecorderWriter(const RecorderWriter&) = delete;
  RecorderWriter& operator=(const RecorderWriter&) = delete;

  // A thread's place to write. The one that stands for "there was none left" takes everything and keeps nothing.
  struct Lane {
    RecorderWriter* writer = nullptr;
    layout::LaneHeader* header = nullptr;  // null: not a lane, there was none left for the thread
    uint64_t* words = nullptr;             // the ring, eight words a record
    uint64_t mask = 0;
    uint64_t head = 0;
    uint64_t events = 0;
    TickClock clock;
    uint32_t owner = 0;
    uint32_t number = 0;        // of the lane
    uint32_t groups = 0;        // numbers given out
    uint32_t texts = 0;         // likewise, for TextRecord::number
    uint32_t slow_samples = 0;  // of the last window
  };
  Lane& lane() {
    auto* lane = static_cast<Lane*>(::pthread_getspecific(key_));
    return lane != nullptr ? *lane : *claim_lane();
  }
  // Time of a record on this lane.
  uint64_t now_ns(Lane& lane) {
    if (ticks_ && lane.header != nullptr && recorder_clock.load(std::memory_order_relaxed) == nullptr)
      return lane.clock.now_ns();
    return recorder_now_ns();
  }

  // Puts the record on the lane. record.head.reserved is the recorder's own.
  void write(Lane& lane, const Record& record) { write(lane, record.words); }
  void write(Lane& lane, const uint64_t (&words)[8]);
  void write(const Record& record) { write(lane(), record); }

  // Around one callback: counts it, and now and then measures it. True: measure this one, and say so when it is over.
  bool begin_event(Lane& lane) {
    if (lane.header == nullptr) return false;
    layout::store(lane.header->events, ++lane.events);
    return (lane.events & (kCostEvery - 1)) == 0;
  }
  void end_sample(Lane& lane, uint64_t cost_ns);

  // What is written on this lane now overwrites something younger than that: the reader may not have come by yet.
  static bool goes_round_within(const Lane& lane, uint64_t now_ns, uint64_t window_ns) {
    if (lane.header == nullptr || lane.head <= lane.mask) return false;
    return now_ns - layout::load(lane.words[(lane.head & lane.mask) * 8 + 1]) < window_ns;
  }

  // A number below 2^31 that no other group of this process has had lately; 0: none, there is no lane.
  static uint32_t next_group(Lane& lane) {
    if (lane.header == nullptr) return 0;
    constexpr uint32_t kCountMask = (1u << 23) - 1;
    if ((++lane.groups & kCountMask) == 0) ++lane.groups;
    return lane.number << 23 | (lane.groups & kCountMask);
  }

  InFlightTable& in_flight() { return in_flight_; }

  void count_refused(Refused reason) { layout::add(header_->refused[static_cast<size_t>(reason)]); }
  uint64_t control() const { return layout::load(header_->control); }
  uint64_t steps_begun() const { return layout::load(header_->steps_begun); }
  void count_step() { layout::add(header_->steps_begun); }
  void show_nccl(uint32_t version, uint32_t interface_version) {
    layout::store(header_->nccl, static_cast<uint64_t>(interface_version) << 32 | version);
  }
  void show_mask(uint32_t mask) { layout::store(header_->mask, mask); }
  // For a job whose environment does not say who it is: the largest communicator is the world.
  void learn_world(int32_t rank, int32_t world_size);
  // For a process that tells steps while neither its environment nor a communicator has told its rank: a job of one.
  void learn_alone() {
    if (static_cast<int32_t>(layout::load(header_->rank_and_world)) < 0) [[unlikely]]
      learn_world(0, 1);
  }

  // False where somebody else has written into the header; the caller then switches off.
  bool header_intact() const;
  void switch_off(SwitchOff reason);
  // After a fork this memory belongs to the parent: the child leaves it alone from now on.
  void abandon() { off_.store(true, std::memory_order_relaxed); }
  bool off() const { return off_.load(std::memory_order_relaxed); }
  SwitchOff off_reason() const { return off_reason_.load(std::memory_order_relaxed); }  // kNone: on, or abandoned

  const std::string& path() const { return path_; }
  uint32_t lanes() const { return geometry_.lanes; }

 private:
  RecorderWriter() = default;
  Result<void> map(UniqueFd file, const layout::FileHeader& header);
  void place_lanes(const layout::FileHeader& header);
  Lane* claim_lane();
  static void thread_ended(void* lane);

  std::string path_;
  UniqueFd fd_;  // kept: closing it would let go of the lock
  std::byte* bytes_ = nullptr;
  layout::Geometry geometry_;
  layout::FileHeader* header_ = nullptr;
  InFlightTable in_flight_;
  std::unique_ptr<Lane[]> lanes_;
  Lane no_lane_;
  bool ticks_ = false;
  pthread_key_t key_ = 0;
  bool has_key_ = false;
  std::atomic<bool> off_{false};
  std::atomic<SwitchOff> off_reason_{SwitchOff::kNone};
};

// The publish protocol of a lane, for one producer and any number of readers in other processes:
//   1. the slot's first word becomes 0: "not a record";
//   2. a fence, then the other seven words;
//   3. the first word, which carries the low half of the record's number (from 1), with release order;
//   4. the lane's head, with release order.
// So a slot is whole exactly while its first word carries the number the reader expects, before and after the copy; and
// a producer killed anywhere leaves at most one slot that is not.
//
// Inline, so that a record goes from registers to its slot: put together in memory from small fields first, it would
// have to be waited for before it could be copied by the word.
inline void RecorderWriter::write(Lane& lane, const uint64_t (&words)[8]) {
  if (off()) return;
  if (lane.header == nullptr) return count_refused(Refused::kNoLane);
  uint64_t* slot = lane.words + (lane.head & lane.mask) * 8;
  lane.head += 1;
  layout::store(slot[0], 0);
  layout::store_fence();
  for (int i = 1; i < 8; ++i) layout::store(slot[i], words[i]);
  const uint64_t number = lane.head << 32;  // in the place of RecordHead::reserved
  layout::store(slot[0], (words[0] & 0xFFFFFFFF) | number, std::memory_order_release);
  // The ring is larger than the nearest cache: have the next slot here by the time it is written.
  __builtin_prefetch(lane.words + (lane.head & lane.mask) * 8, 1);
  layout::store(lane.header->last_ns, words[1]);
  layout::store(lane.header->head, lane.head, std::memory_order_release);
}

// The recorder of this process, made on the first call; nullptr when it is off: LOCKSTEP_DISABLE=1, it could not be
// made, it switched itself off, or this is a forked child of the process that made it. Never unmapped, so that a late
// callback finds it.
RecorderWriter* process_recorder();
// Why process_recorder() is null; empty while it is not, or was not asked for. For one line in NCCL's log.
std::string process_recorder_fault();

}  // namespace lockstep
