// The events of one rank's kernel trace, in columns: what analyses need of a Chrome trace as Kineto writes it, a fifth
// of its bytes.
//
// Names and other texts are interned: an event has their numbers. What only some events have (a kernel's grid, a copy's
// bytes, a collective's process group, an operator's shapes) is in tables beside, `detail` says where.
// Thread rule: Immutable once read (read/trace_reader.h).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/ids.h"

namespace lockstep::profile {

// What an event is, by its category ("cat"); names of older Kineto versions and of other vendors are the same kinds.
enum class EventKind : uint8_t {
  kCpuOp,
  kAnnotation,     // user_annotation: also gloo's collectives
  kGpuAnnotation,  // a user's range, drawn on the GPU
  kKernel,
  kMemcpy,
  kMemset,
  kRuntime,  // cudaLaunchKernel, hipLaunchKernel, ...
  kDriver,   // cuLaunchKernel, as Triton calls it
  kSync,     // cuda_sync: a stream or the host waits
  kOverhead,
  kPython,
  kCounter,
  kInstant,
  kOther,
};
inline constexpr size_t kEventKinds = static_cast<size_t>(EventKind::kOther) + 1;
const char* to_text(EventKind kind);

// Texts by number; the same text has the same number. Number 0 is the empty text.
class TextTable {
 public:
  TextTable();
  // raw: as it stands between the quotes in JSON, escapes and all.
  uint32_t intern_json(std::string_view raw);
  uint32_t intern(std::string_view text);
  const std::string& operator[](uint32_t id) const { return texts_[id]; }
  size_t size() const { return texts_.size(); }
  uint64_t bytes() const { return bytes_; }
  // 0 where it is not there.
  uint32_t find(std::string_view text) const;

 private:
  void grow();
  struct Slot {
    uint64_t hash = 0;
    uint32_t id = 0;
  };
  std::vector<Slot> slots_;
  std::deque<std::string> texts_;
  uint64_t bytes_ = 0;
};

// Undoes JSON's escapes. What is no escape stays as it is.
std::string unescaped(std::string_view raw);

inline constexpr uint32_t kNoDetail = UINT32_MAX;

// A row of the timeline: a thread of the host, or a stream of a device.
struct Track {
  std::string pid;
  std::string tid;
  std::string process_name;
  std::string thread_name;
};

struct KernelDetail {
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  uint32_t registers = 0;
  uint32_t shared_bytes = 0;
  uint32_t collective = kNoDetail;  // of a communication kernel
  uint64_t graph_node = 0;          // 0: not from a CUDA graph, or not reported
  float occupancy = -1;             // estimated, 0 to 1; negative: not reported
  uint64_t bytes = 0;               // of a copy or a memset
  float gigabytes_per_s = 0;
};

struct CollectiveDetail {
  uint32_t name = 0;   // "allreduce"
  uint32_t group = 0;  // "Process Group Name"
  uint32_t group_description = 0;
  uint32_t group_ranks = 0;  // "[0, 1]", cut by PyTorch after 30
  uint32_t dtype = 0;
  int64_t seq = -1;  // -1: not reported (PyTorch before 2.12)
  int64_t elements_in = -1;
  int64_t elements_out = -1;
  int32_t group_size = 0;
  int32_t peer = -1;  // of a send or receive
};

struct OpDetail {
  uint32_t dims = 0;   // "Input Dims" as JSON
  uint32_t types = 0;  // "Input type" as JSON
  uint32_t collective = kNoDetail;
};

struct SyncDetail {
  uint32_t kind = 0;  // "Stream Wait Event"
  int64_t wait_on_stream = -1;
  uint64_t wait_on_correlation = 0;  // of the event's record
};

struct DeviceInfo {
  int64_t id = 0;
  std::string name;
  int64_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t compute_major = 0;
  int64_t compute_minor = 0;
};

struct GroupInfo {
  std::string name;
  std::string description;
  std::vector<Rank> ranks;  // empty: not known, or cut short
};

// How reading went: read = kept + skipped + bad.
struct ReadCounts {
  uint64_t bytes = 0;  // of JSON
  uint64_t events = 0;
  uint64_t kept = 0;
  uint64_t skipped = 0;   // well-formed, of no use here: flows, Python frames, markers
  uint64_t bad = 0;       // not JSON
  uint64_t too_many = 0;  // over the limit of events
  uint64_t first_bad_at = 0;
  std::string first_bad;   // why
  bool truncated = false;  // ends before its end
};

struct TraceEvents {
  // One entry each per event.
  std::vector<int64_t> start_ns;
  std::vector<int64_t> duration_ns;
  std::vector<uint32_t> name;
  std::vector<uint32_t> track;
  std::vector<EventKind> kind;
  std::vector<uint64_t> correlation;  // launch to kernel; 0: none
  std::vector<uint64_t> external_id;  // operator to launch and kernel; 0: none
  std::vector<int32_t> device;        // -1: the host
  std::vector<int64_t> stream;        // -1: none
  std::vector<uint32_t> detail;       // in kernels, ops or syncs by kind; kNoDetail: none

  std::vector<KernelDetail> kernels;  // of kernels, copies and memsets
  std::vector<OpDetail> ops;          // of operators and annotations
  std::vector<SyncDetail> syncs;
  std::vector<CollectiveDetail> collectives;
  std::vector<Track> tracks;
  TextTable texts;

  // Of the file.
  std::string host;
  std::string trace_id;
  std::string job;  // PT_PROFILER_JOB_NAME
  int64_t base_time_ns = 0;
  Rank rank = kNoRank;     // as the file says
  int64_t world_size = 0;  // 0: not said
  std::string backend;
  bool has_shapes = false;
  std::map<std::string, std::string> versions;  // of what the process ran with: "CUDA" is "12.8"
  std::vector<DeviceInfo> devices;
  std::vector<GroupInfo> groups;
  ReadCounts counts;

  size_t size() const { return start_ns.size(); }
  int64_t end_ns(size_t event) const { return start_ns[event] + duration_ns[event]; }
  const std::string& name_of(size_t event) const { return texts[name[event]]; }
  bool on_gpu(size_t event) const {
    return kind[event] == EventKind::kKernel || kind[event] == EventKind::kMemcpy || kind[event] == EventKind::kMemset;
  }
  const KernelDetail* kernel(size_t event) const {
    return on_gpu(event) && detail[event] != kNoDetail ? &kernels[detail[event]] : nullptr;
  }
  const OpDetail* op(size_t event) const {
    return (kind[event] == EventKind::kCpuOp || kind[event] == EventKind::kAnnotation) && detail[event] != kNoDetail
               ? &ops[detail[event]]
               : nullptr;
  }
  const SyncDetail* sync(size_t event) const {
    return kind[event] == EventKind::kSync && detail[event] != kNoDetail ? &syncs[detail[event]] : nullptr;
  }
  // Of a communication kernel, or of the operator that began one; nullptr: none.
  const CollectiveDetail* collective(size_t event) const;
  uint64_t memory_bytes() const;
};

}  // namespace lockstep::profile
