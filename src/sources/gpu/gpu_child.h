// The process that reads the GPUs for the agent, from inside: agent/node/gpu_process.h starts it and watches it.
//
// It opens the vendors' libraries, says that it is ready, and answers each request on its standard input with one line
// on its standard output (snapshot_json.h). It ends when its input ends, and lets go of every GPU then. Where nothing
// can be read it says why, and ends: the agent tries again later, in a fresh process. Whatever a vendor's library
// prints goes to the standard error.
//
// Thread rule: Confined; the whole of a process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "sources/gpu/gpu_reader.h"

namespace lockstep {

struct GpuChildOptions {
  std::string vendor = "auto";  // "nvidia", "amd"; "auto": whichever can be read, both if both
  std::string nvml_library;     // a path; empty: the usual names
  std::string amdsmi_library;
};

struct OpenReader {
  std::string name;  // "nvml", "amdsmi"
  std::unique_ptr<GpuReader> reader;
};
// At least one, or an error of one line that says for each why not.
Result<std::vector<OpenReader>> open_gpu_readers(const GpuChildOptions& options);
// What all of them see. An error of one is an error.
Result<GpuSnapshot> read_all(std::vector<OpenReader>& readers, const GpuTick& tick);

// The process's exit code.
int run_gpu_child(const GpuChildOptions& options);

// For a person: reads everything once (twice in fact, 250 ms apart, as some values are rates between two readings) and
// writes it as text, or the error. It runs in the caller's process, and hangs if the driver does.
Result<std::string> describe_gpus(const GpuChildOptions& options);
std::string to_text(const GpuSnapshot& snapshot);

}  // namespace lockstep
