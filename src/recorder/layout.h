// The bytes of a flight recorder file, shared by writer and reader. The page docs/formats/flight-recorder.md tells the
// same story with a worked example; change both together, and kLayoutVersion with them.
//
//   FileHeader | CommRow[comms] | LaneHeader[lanes] | Record[lanes][lane_records]      each part starts on a page
//
// The structs are plain data so that a reader can copy them out of any file. The writer touches them only through
// load() and store(), because readers look at the same memory at the same time.
//
// Thread rule: Immutable (plain data); load/store are atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "recorder/records.h"

namespace lockstep::layout {

inline constexpr uint64_t kMagic = 0x50455453'4b434f4cULL;  // "LOCKSTEP"
inline constexpr uint32_t kLayoutVersion = 2;
inline constexpr uint64_t kPage = 4096;

inline constexpr uint32_t kLanesMax = 256;
inline constexpr uint32_t kLaneRecordsMin = 16;
inline constexpr uint32_t kLaneRecordsMax = 1u << 20;
inline constexpr uint32_t kCommsMax = 4096;
inline constexpr uint32_t kLanesDefault = 24;
inline constexpr uint32_t kLaneRecordsDefault = 8192;
inline constexpr uint32_t kCommsDefault = 1024;

// Operations kept per communicator: a ring of 32, and one more for the newest when the ring is full of operations that
// have not completed (a hang is diagnosed from the oldest of them, so those stay).
inline constexpr uint32_t kRecentOps = 32;
inline constexpr uint32_t kNewestEntry = kRecentOps;
inline constexpr uint32_t kOpEntries = kRecentOps + 1;

struct FileHeader {
  uint64_t magic;
  uint32_t layout_version;
  uint32_t header_bytes;
  uint64_t file_bytes;
  int32_t pid;
  uint32_t lanes;
  uint64_t process_start_ticks;
  uint32_t lane_records;
  uint32_t comms;
  uint64_t comm_offset;
  uint64_t lane_header_offset;
  uint64_t record_offset;
  int64_t anchor_unix_ns;
  int64_t anchor_monotonic_ns;
  int64_t attempt;
  uint64_t
      rank_and_world;  // low half rank, high half world size: one word, because a communicator may fill it in later
  int32_t local_rank;
  uint32_t padding;
  // Cache lines apart from what never changes.
  alignas(64) uint64_t lanes_refused;
  uint64_t switched_off;
  uint64_t comm_epochs;     // communicators ever made
  uint64_t comm_rows_used;  // rows below this have been used
  uint64_t mask;            // NCCL event bits asked for now
  uint64_t nccl;  // low half NCCL's version as it numbers itself (22809 is 2.28.9; 0: not known), high half its
                  // profiler interface
  uint64_t state_padding[2];
  alignas(64) uint64_t refused[8];  // by Refused
  // Read at every operation, written rarely: the control word by whoever wants more or less detail (control.h), the
  // count of steps begun by the C API.
  alignas(64) uint64_t control;
  uint64_t steps_begun;
  uint64_t control_padding[6];
  char job_id[128];
  char host[256];
  char gpu_uuid[64];
};

struct alignas(128) LaneHeader {
  uint64_t head;     // records ever published on this lane; the newest is in slot (head - 1) % lane_records
  uint64_t last_ns;  // time of the newest record
  uint32_t owner;    // thread id of the producer; 0: free to claim
  uint32_t padding;
  // Of every thread that ever had this lane; see RecorderCost.
  uint64_t events;
  uint64_t cost_samples;
  uint64_t cost_ns;
  uint64_t cost_worst_ns;
  uint64_t cost_buckets[kCostBoundsNs.size() + 1];
};

// What the network side of a communicator is doing, per proxy step state.
struct ProxyCell {
  uint32_t count;     // steps in this state now
  int32_t peer;       // of the last that entered
  uint64_t since_ns;  // last time a step entered or left
};
inline constexpr uint8_t kProxyStates[] = {8, 20, 9, 10, 11, 12};  // NCCL's numbers, in the order of the cells
inline constexpr uint32_t kProxyCells = sizeof kProxyStates;

// tag = op_id << 8 | state; the state is an InFlightState, or kEntryFilling while the other words are being written.
// op_id = epoch of the row << kOpIdPositionBits | position + 1.
inline constexpr uint32_t kOpIdPositionBits = 36;
struct OpEntry {
  uint64_t tag;
  uint64_t ordinal;
  uint64_t seq;
  uint64_t bytes;
  uint64_t enqueued_ns;
  uint64_t started_ns;
  uint64_t detail;    // bits 0-31 peer, 32-39 function, 40-47 datatype, 48 p2p, 49 its end is not seen
  uint64_t position;  // order of enqueueing in the communicator, collectives and p2p together
};
inline constexpr uint64_t kEntryFilling = 0xFF;

enum class RowState : uint64_t { kFree = 0, kFilling = 1, kLive = 2, kFinalized = 3 };

struct alignas(128) CommRow {
  uint64_t state;  // epoch << 2 | RowState
  uint64_t comm_id;
  int32_t size;
  int32_t rank_in_comm;
  int32_t nodes;
  uint32_t padding0;
  char name[64];
  // Written by the threads that enqueue.
  alignas(128) uint64_t collectives_enqueued;
  uint64_t p2p_enqueued;
  uint64_t inserted;  // positions given out
  uint64_t collective_calls;
  uint64_t p2p_calls;
  // Written by the threads that see completion.
  alignas(64) uint64_t collectives_completed;
  uint64_t p2p_completed;
  uint64_t newest_completed;  // 1 + position of the newest operation that completed; 0: none
  alignas(64) ProxyCell proxy[kProxyCells];
  alignas(64) OpEntry ops[kOpEntries];
};

static_assert(sizeof(FileHeader) == 768 && alignof(FileHeader) == 64);
static_assert(offsetof(FileHeader, lanes_refused) == 128 && offsetof(FileHeader, refused) == 192);
static_assert(offsetof(FileHeader, control) == 256 && offsetof(FileHeader, job_id) == 320);
static_assert(sizeof(LaneHeader) == 128 && sizeof(ProxyCell) == 16 && sizeof(OpEntry) == 64);
static_assert(offsetof(CommRow, collectives_enqueued) == 128 && offsetof(CommRow, collectives_completed) == 192);
static_assert(offsetof(CommRow, proxy) == 256 && offsetof(CommRow, ops) == 384 && sizeof(CommRow) == 2560);
static_assert(std::is_trivially_copyable_v<FileHeader> && std::is_trivially_copyable_v<CommRow>);

// Where the parts are, from the three counts alone: what a file says about its offsets must agree with this.
struct Geometry {
  uint32_t lanes = 0;
  uint32_t lane_records = 0;
  uint32_t comms = 0;

  static constexpr uint64_t whole_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
  constexpr bool sane() const {
    return lanes >= 1 && lanes <= kLanesMax && comms >= 1 && comms <= kCommsMax && lane_records >= kLaneRecordsMin &&
           lane_records <= kLaneRecordsMax && (lane_records & (lane_records - 1)) == 0;
  }
  constexpr uint64_t comm_offset() const { return kPage; }
  constexpr uint64_t lane_header_offset() const { return comm_offset() + whole_pages(comms * sizeof(CommRow)); }
  constexpr uint64_t record_offset() const { return lane_header_offset() + whole_pages(lanes * sizeof(LaneHeader)); }
  constexpr uint64_t lane_bytes() const { return uint64_t{lane_records} * sizeof(Record); }
  constexpr uint64_t file_bytes() const { return record_offset() + whole_pages(lanes * lane_bytes()); }
};

// nullptr, or what is wrong with the header of a file of this size.
inline const char* header_fault(const FileHeader& header, uint64_t file_bytes) {
  const Geometry geometry{header.lanes, header.lane_records, header.comms};
  if (header.magic != kMagic) return "not a flight recorder (wrong magic)";
  if (header.layout_version != kLayoutVersion) return "of a layout version this program does not know";
  if (header.header_bytes != sizeof(FileHeader)) return "contradicts itself (header length)";
  if (!geometry.sane()) return "contradicts itself (lane, record or communicator count out of range)";
  if (header.file_bytes != geometry.file_bytes() || header.comm_offset != geometry.comm_offset() ||
      header.lane_header_offset != geometry.lane_header_offset() || header.record_offset != geometry.record_offset()) {
    return "contradicts itself (offsets)";
  }
  if (file_bytes < header.file_bytes) return "too short for what its header says";
  return nullptr;
}

template <typename T>
T load(const T& word, std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}
template <typename T>
void store(T& word, std::type_identity_t<T> value, std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref<T>(word).store(value, order);
}
inline uint64_t add(uint64_t& word, uint64_t count = 1) {
  return std::atomic_ref<uint64_t>(word).fetch_add(count, std::memory_order_relaxed);
}
template <typename T>
bool swap_if(T& word, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(word).compare_exchange_strong(expected, value, std::memory_order_acq_rel,
                                                          std::memory_order_relaxed);
}

// Orders the stores before it against the stores after it. GCC warns that its thread sanitizer does not model fences;
// every access around ours is atomic, so it has nothing to model.
inline void store_fence() {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_release);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

}  // namespace lockstep::layout
