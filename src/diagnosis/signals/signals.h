// Which metrics and events of a node diagnosis listens to: one row of signals.cc each, and nowhere else.
//
// A signal is one quantity of a GPU, of a network adapter or of a host ("sm_clock"); several rows with one key feed one
// signal (all reasons of thermal throttling). What it is worth as evidence is not said here: signatures.cc does.
// Thread rule: Immutable after the first call (tables are built once).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Whose quantity it is.
enum class Place : uint8_t { kGpu, kNic, kHost };

// kLevel: a gauge, its mean over a while counts. kRate: a counter, its increase per second counts.
enum class SignalKind : uint8_t { kLevel, kRate };

// How series that feed one signal become one number. kOne: there is only one.
enum class Merge : uint8_t { kOne, kSum, kMax };

// What names the entity in the point's attributes.
enum class FoundBy : uint8_t {
  kGpuUuid,  // gpu_uuid
  kDevice,   // device: an RDMA device, or an interface that lockstep_nic_info joins with one
  kPci,      // pci: whichever GPU or adapter has that address
  kNothing,  // the host itself
};

struct SignalRow {
  const char* key;
  const char* metric;
  const char* filter;  // "name=value" joined by ','; "": none. At most kFiltersMax
  Place place;
  FoundBy by;
  SignalKind kind;
  Merge merge;
  double scale;       // what the book keeps and people read is the metric's value times this
  const char* unit;   // of that; "" for a plain number
  const char* words;  // "SM clock"
  double most = 0;    // a share of the time whose reasons overlap is never more; 0: no such limit
};

inline constexpr size_t kFiltersMax = 2;
using SignalIndex = uint8_t;
inline constexpr SignalIndex kNoSignal = 0xFF;

std::span<const SignalRow> signal_rows();
// Signals, numbered in the order of their first rows.
size_t signal_count();
// kNoSignal: there is none of that key.
SignalIndex signal_index(std::string_view key);
// The first row of a signal: what all its rows agree in (place, kind, merge, unit, words).
const SignalRow& signal_row(SignalIndex signal);
// Its number among the signals of its place, and how many these are: entities keep them side by side.
size_t ordinal_of(SignalIndex signal);
size_t signals_of(Place place);

// The path of the API that computes a signal of an entity again, from stored metrics: "now" of what is between the times.
// ids: a GPU's, or those of adapters that are added up; none for a host.
std::string signal_query(SignalIndex signal, std::string_view host, std::span<const std::string> ids,
                         int64_t since_unix_ns, int64_t through_unix_ns);

struct LabelFilter {
  std::string_view name;
  std::string_view value;
};
// A row as the book's hot path wants it.
struct Feed {
  SignalIndex signal = kNoSignal;
  uint8_t ordinal = 0;
  const SignalRow* row = nullptr;
  LabelFilter filters[kFiltersMax];
  size_t filter_count = 0;
};
// Two metrics that carry no quantity but say what belongs together.
enum class InfoMetric : uint8_t { kNone, kGpu, kNic };
struct FeedsOfMetric {
  std::span<const Feed> feeds;
  InfoMetric info = InfoMetric::kNone;
};
// The rows that a metric feeds; nullptr: nobody listens to it. Costs a hash of the name.
const FeedsOfMetric* feeds_of(std::string_view metric);

// Kinds of node events that are evidence. An event that fits no row is kept by none.
struct EventRow {
  const char* key;       // "xid_memory"
  const char* name;      // of the node event: "gpu.xid"
  const char* codes;     // "48,63,94-95"; "": any
  uint8_t severity_min;  // EventSeverity as a number
  uint8_t severity_max;
  const char* words;  // "memory error of the GPU (XID)"
};
using EventIndex = uint8_t;
inline constexpr EventIndex kNoEvent = 0xFF;
std::span<const EventRow> event_rows();
EventIndex event_index(std::string_view key);
// The first row that fits.
EventIndex event_of(std::string_view name, int64_t code, uint8_t severity);

}  // namespace lockstep
