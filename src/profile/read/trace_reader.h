// Reads a Chrome trace as Kineto writes it (JSON, gzip or not) into columns, in one pass and without holding the text. What
// begins as an export of Nsight Systems does is read as that (nsys_reader.h), and held meanwhile.
//
// The method: a window of some megabytes slides over the text; an event is read where it stands, whole or not at all.
// Events are written one by one and are small, so what is not JSON (PyTorch did not escape quotes in names for years)
// costs that event: it is counted, and reading goes on at the next thing that begins like an event. A file that breaks
// off gives what came before. Times are read as whole nanoseconds, never as floating point: a timestamp has 16 digits.
// Why by hand beside simdjson, which the tree has: it wants whole documents in memory and stops at the first mistake;
// the few values outside the events (devices, process groups) do go through it.
//
// Limits: kEventBytesMax for one event, kTopValueBytesMax for one value outside the events; ReadOptions: what comes from
// outside is read with small ones.
// On error: only where there is nothing to analyse: no trace at all, or its bytes cannot be had.
// Thread rule: Thread-safe (no state); every call reads one source.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "profile/read/byte_source.h"
#include "profile/read/trace_events.h"

namespace lockstep::profile {

inline constexpr size_t kEventBytesMax = 16 << 20;
inline constexpr size_t kTopValueBytesMax = 16 << 20;

struct ReadOptions {
  uint64_t events_max = 256'000'000;
  uint64_t text_bytes_max = 4ull << 30;  // of names and shapes, each counted once; then events count as over the limit
  uint64_t json_bytes_max = 1ull << 40;  // what comes after is not read: a small gzip file may inflate to anything
  bool keep_python = false;  // frames of Python functions: most of a trace with stacks, and no analysis reads them
  size_t window_bytes = 2 << 20;
  uint64_t export_bytes_max = 4ull << 30;  // of Nsight Systems, where it comes as a stream
};

Result<TraceEvents> read_trace(std::unique_ptr<ByteSource> source, const ReadOptions& options = {});

}  // namespace lockstep::profile
