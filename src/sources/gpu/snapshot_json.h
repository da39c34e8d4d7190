// What the GPU reader's process tells the agent, one line of JSON each:
//
//   {"ready":"nvml 12.560.35"}                    its library is open; it can be asked
//   {"error":"nvml: no library …","absent":true}  it cannot read, and ends; absent: there is nothing to read here
//   {"request":17,"unix_ns":…,"gpus":[{"uuid":"GPU-…","info":{…},"lost":true,"values":{"hw.power":312.5,
//     "hw.temperature":{"gpu":61,"memory":74}}}],"processes":[[pid,"GPU-…",bytes]],"events":[…],"notes":["…"]}
//
// A value stands under its metric's name; where the row has a label of its own, under the label's value in there. What
// a GPU is (`info`) is said when it is new or has changed, not on every line; both ends remember it.
// A request, the other way, is one line too: "read 17 slow=0 processes=1".
//
// Limits: kGpuLine…Max; more is an error, never a cut. A metric that is not in the table is left out, counted, and
// noted once by name: the agent and its reader are one program, so that happens only by a fault.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "sources/gpu/gpu_reader.h"

namespace lockstep {

inline constexpr size_t kGpuLineBytesMax = 4u << 20;
inline constexpr size_t kGpuLineGpusMax = 256;     // MIG instances count
inline constexpr size_t kGpuLineValuesMax = 8192;  // of one GPU
inline constexpr size_t kGpuLineProcessesMax = 16'384;
inline constexpr size_t kGpuLineEventsMax = 4096;
inline constexpr size_t kGpuLineNotesMax = 256;
inline constexpr size_t kGpuLineTextMax = 512;  // bytes of any text in it

struct GpuRequest {
  uint64_t number = 0;
  bool slow = false;
  bool processes = false;
  bool operator==(const GpuRequest&) const = default;
};
std::string to_line(const GpuRequest& request);  // with the line break
Result<GpuRequest> parse_gpu_request(std::string_view line);

// Without the line break. Numbers that are not finite are left out; texts are cut to kGpuLineTextMax.
std::string gpu_ready_line(std::string_view what);
std::string gpu_error_line(std::string_view why, bool absent);

class GpuSnapshotWriter {
 public:
  std::string line(uint64_t request, const GpuSnapshot& snapshot);  // without the line break

 private:
  std::map<std::string, GpuInfo> reported_;  // by uuid
};

struct GpuLine {
  enum class Kind : uint8_t { kReady, kError, kSnapshot };
  Kind kind = Kind::kReady;
  std::string text;      // kReady, kError
  bool absent = false;   // kError
  uint64_t request = 0;  // kSnapshot
  GpuSnapshot snapshot;
};

class GpuLineReader {
 public:
  GpuLineReader();
  // A line without its break, from bytes that may be anything.
  Result<GpuLine> read(std::string_view line);
  int64_t unknown_metrics() const { return unknown_metrics_; }

 private:
  Result<GpuSnapshot> read_snapshot(const class JsonValue& root);
  Result<GpuState> read_gpu(const JsonValue& json, GpuSnapshot& snapshot);
  Result<void> read_values(const JsonValue& json, GpuState& gpu, GpuSnapshot& snapshot);
  void refuse(const std::string& name, GpuSnapshot& snapshot);

  struct Row {
    std::string_view label;  // as kGpuLabelValues has it
    const MetricDescriptor* metric;
  };
  std::unordered_map<std::string_view, std::vector<Row>> rows_;  // kGpuMetrics, by name
  std::map<std::string, GpuInfo> reported_;                      // by uuid
  std::set<std::string> unknown_names_;                          // noted; bounded
  int64_t unknown_metrics_ = 0;
};

}  // namespace lockstep
