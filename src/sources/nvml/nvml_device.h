// One NVIDIA GPU: reads everything that it supports, and its MIG instances.
//
// A fast reading costs 8 calls of the library (utilisation, memory, two clocks, temperature, one batch of fields, and
// two for GPM); the rest waits for slow ticks.
// Thread rule: Confined.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sources/gpu/gpu_reader.h"
#include "sources/nvml/nvml_caller.h"
#include "sources/nvml/nvml_fields.h"
#include "sources/nvml/nvml_gpm.h"
#include "sources/nvml/nvml_links.h"

namespace lockstep::nvml {

// What a person needs to know about a handle that was just got.
GpuInfo describe(const Api& api, Handle device, int32_t index, const std::string& driver);

class Device {
 public:
  Device(const Api& api, Handle handle, GpuInfo info, Notes& notes);

  const GpuInfo& info() const { return info_; }
  Handle handle() const { return caller_.device(); }
  int lost() const { return caller_.lost(); }
  int fatal() const { return caller_.fatal(); }
  bool read_before() const { return slow_readings_ > 0; }

  // Adds the GPU and then its MIG instances. Where the GPU is lost on the way, what was read is what there is.
  void read(const GpuTick& tick, bool slow, GpuSnapshot& out);
  // The next reading looks at the MIG instances again. True from mig_changed() once after they were others than before.
  void look_at_mig() { mig_due_ = true; }
  bool mig_changed() { return std::exchange(mig_changed_, false); }
  // uuid of an instance, or of the GPU where there is no such instance.
  const std::string& uuid_of(uint32_t gpu_instance, uint32_t compute_instance) const;

 private:
  struct MigInstance {
    MigInstance(const Api& api, Handle handle, GpuInfo described, uint32_t gpu, uint32_t compute, Notes& notes)
        : info(std::move(described)),
          gpu_instance(gpu),
          compute_instance(compute),
          caller(handle, info.uuid, notes),
          gpm(api, gpu) {}
    GpuInfo info;
    uint32_t gpu_instance;
    uint32_t compute_instance;
    Caller caller;
    Gpm gpm;
  };

  void read_fast(GpuState& out);
  void read_fields(GpuState& out);
  void read_slow(GpuState& out);
  void read_errors(GpuState& out);
  void read_fabric(GpuState& out);
  void read_limits();
  void read_memory(Caller& caller, GpuState& out);
  void read_processes(Caller& caller, const std::string& uuid, GpuSnapshot& out);
  void read_mig_mode(GpuState& out);
  void find_instances();
  void add_u32(GpuMetric metric, double scale, const Function<Handle, uint32_t*>& function, GpuState& out);

  const Api* api_;
  GpuInfo info_;
  Caller caller_;
  FieldBatch fast_{kFastFields};
  FieldBatch slow_{kSlowFields};
  Links links_;
  Gpm gpm_;
  // Bytes over all links at the reading before, for the rate.
  double links_bytes_ = -1;
  int64_t links_bytes_ns_ = 0;
  // What never changes while the driver stays, looked at again every so often.
  GpuState limits_;
  int slow_readings_ = 0;
  uint32_t fabric_version_ = kFabricInfoV3;
  bool mig_on_ = false;
  bool mig_known_ = false;
  bool mig_due_ = true;
  bool mig_changed_ = false;
  std::vector<std::unique_ptr<MigInstance>> instances_;
  std::vector<ProcessInfo> processes_;
};

}  // namespace lockstep::nvml
