// GPUs as one vendor's library shows them. Implemented by sources/nvml and sources/amdsmi; both fill the same table
// (gpu_metrics.h), so that nothing behind this line knows the vendor.
//
// A reader runs in a process of its own (agent/node/gpu_process.h), because a wedged driver parks its caller for ever
// and a vendor's library may crash: it may block, it may not be trusted to come back.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/gpu.h"
#include "model/metric_descriptor.h"

namespace lockstep {

struct GpuValue {
  const MetricDescriptor* metric = nullptr;  // a row of kGpuMetrics
  std::string label;                         // value of the one label that the row has besides gpu_uuid; else empty
  double value = 0;
};

struct GpuState {
  GpuInfo info;
  bool lost = false;  // was there, and does not answer any more ("GPU is lost", off the bus)
  std::vector<GpuValue> values;
};

struct GpuSnapshot {
  int64_t unix_ns = 0;
  std::vector<GpuState> gpus;
  std::vector<GpuProcess> processes;
  bool processes_read = false;  // else `processes` says nothing
  std::vector<GpuEvent> events;
  std::vector<std::string> notes;  // what is missing, said once: "GPM: no permission (…)"
};

struct GpuTick {
  int64_t unix_ns = 0;
  bool slow = false;       // ECC, remapped rows, links one by one, PCIe errors, fabric
  bool processes = false;  // the most expensive call
};

class GpuReader {
 public:
  virtual ~GpuReader() = default;
  // An error means that the library or the driver is gone as a whole: the caller makes a new reader later.
  virtual Result<GpuSnapshot> read(const GpuTick& tick) = 0;
};

// Both load their library by name at run time. No library, or no GPU: an error of one line that says which.
// library: empty for the usual names; else a path (tests, odd installations).
Result<std::unique_ptr<GpuReader>> open_nvml_reader(const std::string& library);
Result<std::unique_ptr<GpuReader>> open_amdsmi_reader(const std::string& library);

}  // namespace lockstep
