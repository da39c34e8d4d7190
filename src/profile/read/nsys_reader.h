// Reads what Nsight Systems has recorded, as `nsys export --type sqlite` writes it, into the same columns as a Kineto trace
// (trace_events.h): kernels, copies and memsets, calls of the CUDA runtime and driver, NVTX ranges.
//
// One export may hold several processes, all ranks of a node for one: each is read for itself. Nsight Systems does not
// know ranks.
// NVTX ranges are annotations; those of torch.autograd.profiler.emit_nvtx ("aten::mm, seq = 7") are operators, and a call
// belongs to the innermost of them around it; "step 12" and "iteration 12" mark steps as PyTorch's profiler does.
// Versions of Nsight Systems differ in tables and columns: what is not there is not known.
//
// The file may be anybody's: only tables and columns that are stored are read, so SQLite runs none of its views, virtual
// tables, expressions, triggers or functions; and no more work is done than its size justifies.
// Limits: ReadOptions. On error: one line. Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "profile/read/trace_events.h"
#include "profile/read/trace_reader.h"

namespace lockstep::profile {

inline constexpr std::string_view kSqliteMagic{"SQLite format 3\0", 16};

// As Nsight Systems numbers them.
using NsysProcess = uint64_t;

// Those that have used a GPU, by the lowest device that each used, then by id: the order of local ranks.
Result<std::vector<NsysProcess>> nsys_processes(const std::string& path);
Result<TraceEvents> read_nsys_file(const std::string& path, NsysProcess process, const ReadOptions& options = {});
// Of an export that has one process.
Result<TraceEvents> read_nsys_bytes(std::string_view bytes, const ReadOptions& options = {});

}  // namespace lockstep::profile
