// What the stand-in for NVIDIA's management library shows, as a small text file says it. The file is named in
// LOCKSTEP_NVML_STANDIN and is read again whenever it changes, so that a test steers a running reader. Without the
// variable there is one healthy GPU.
//
// One statement a line; '#' begins a comment. "gpu N" in front makes a statement about one GPU, else it is about all.
//   gpus 8                         how many there are
//   model NVIDIA H200              driver 570.86.15
//   [gpu N] set KEY VALUE [PER_SECOND]   a value, and how fast it grows; VALUE "none" makes it unsupported
//       keys: field.83, field.138 (per link: link.3.field.138), gpm.2 (of a MIG instance: gi.1.gpm.2), util.gpu,
//       util.memory, util.encoder, util.decoder, memory.total, memory.used, memory.reserved, bar1.total, bar1.used,
//       clock.1, clock_max.1, temperature, margin, threshold.0, pstate, pcie.generation, pcie.width,
//       pcie.generation_max, pcie.width_max, sram.corrected, sram.uncorrected, sram.threshold, bank.0 … bank.4,
//       repair.channel, repair.tpc, fabric.state, fabric.mask, fabric.summary, gpm.supported, license
//   [gpu N] fail FUNCTION STATUS   that function ("*": every one) answers with the status; also "fail field.82 4"
//   [gpu N] block FUNCTION         that function does not return while the line is there
//   gpu N lost [STATUS]            since the line is there (15; 16: reset required)
//   gpu N lost_at SECONDS          from then on, counted from the first nvmlInit
//   gpu N lost_file PATH           while that file is there
//   gpu N absent                   not counted, as if it were not plugged in
//   gpu N process PID BYTES [GPU_INSTANCE]
//   gpu N mig GPU_INSTANCE COMPUTE_INSTANCE BYTES UUID    a MIG instance; switches MIG on
//   event ID gpu N TYPE DATA [GPU_INSTANCE]   told once per ID; TYPE: xid, mig, unavailable, recovery, or a number
//   calls PATH                     writes how often each function was called, now and then and at shutdown
//   real PATH copies N             GPU 0 of the library at PATH, shown N times with other uuids and PCI addresses
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::standin {

struct Value {
  double base = 0;
  double per_second = 0;
  bool none = false;
};
struct Process {
  uint32_t pid = 0;
  uint64_t bytes = 0;
  uint32_t gpu_instance = 0xFFFFFFFFu;
};
struct Instance {
  uint32_t gpu = 0;
  uint32_t compute = 0;
  uint64_t bytes = 0;
  std::string uuid;
};
struct Event {
  int64_t id = 0;
  int gpu = 0;
  uint64_t type = 0;
  uint64_t data = 0;
  uint32_t gpu_instance = 0xFFFFFFFFu;
};

struct Gpu {
  std::map<std::string, Value> values;
  std::map<std::string, int> failures;
  std::set<std::string> blocked;
  int lost = 0;
  int lost_later = 15;
  double lost_at = -1;
  std::string lost_file;
  bool absent = false;
  std::vector<Process> processes;
  std::vector<Instance> instances;
};

struct Script {
  int gpus = 1;
  std::string model = "NVIDIA H200";
  std::string driver = "570.86.15";
  Gpu all;
  std::map<int, Gpu> by_gpu;
  std::vector<Event> events;
  std::string calls_file;
  std::string real;
  int copies = 1;
};

// A line that cannot be understood ends the process with a message: a test that steers nothing must not pass.
Script parse_script(const std::string& text);

}  // namespace lockstep::standin
