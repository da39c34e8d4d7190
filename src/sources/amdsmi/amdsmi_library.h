// AMD's management library, loaded by name at run time: nothing of AMD's is needed to build or to run without it.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "sources/amdsmi/amdsmi_abi.h"

namespace lockstep::amdsmi {

// X(member, symbol, needed, parameters). Every function returns a Status.
#define LOCKSTEP_AMDSMI_FUNCTIONS(X)                                                            \
  X(init, "amdsmi_init", true, (uint64_t))                                                      \
  X(shut_down, "amdsmi_shut_down", true, ())                                                    \
  X(get_socket_handles, "amdsmi_get_socket_handles", true, (uint32_t*, Handle*))                \
  X(get_processor_handles, "amdsmi_get_processor_handles", true, (Handle, uint32_t*, Handle*))  \
  X(get_processor_type, "amdsmi_get_processor_type", true, (Handle, uint32_t*))                 \
  X(get_lib_version, "amdsmi_get_lib_version", true, (void*))                                   \
  X(get_device_bdf, "amdsmi_get_gpu_device_bdf", true, (Handle, uint64_t*))                     \
  X(get_device_uuid, "amdsmi_get_gpu_device_uuid", false, (Handle, uint32_t*, char*))           \
  X(get_asic_info, "amdsmi_get_gpu_asic_info", false, (Handle, void*))                          \
  X(get_driver_info, "amdsmi_get_gpu_driver_info", false, (Handle, void*))                      \
  X(get_metrics_info, "amdsmi_get_gpu_metrics_info", false, (Handle, void*))                    \
  X(get_memory_total, "amdsmi_get_gpu_memory_total", false, (Handle, uint32_t, uint64_t*))      \
  X(get_memory_usage, "amdsmi_get_gpu_memory_usage", false, (Handle, uint32_t, uint64_t*))      \
  X(get_energy_count, "amdsmi_get_energy_count", false, (Handle, uint64_t*, float*, uint64_t*)) \
  X(get_temperature, "amdsmi_get_temp_metric", false, (Handle, uint32_t, uint32_t, int64_t*))   \
  X(get_clock_info, "amdsmi_get_clock_info", false, (Handle, uint32_t, void*))                  \
  X(get_power_cap_info, "amdsmi_get_power_cap_info", false, (Handle, uint32_t, void*))          \
  X(get_pcie_info, "amdsmi_get_pcie_info", false, (Handle, void*))                              \
  X(get_total_ecc_count, "amdsmi_get_gpu_total_ecc_count", false, (Handle, void*))              \
  X(get_bad_page_info, "amdsmi_get_gpu_bad_page_info", false, (Handle, uint32_t*, void*))       \
  X(get_process_list, "amdsmi_get_gpu_process_list", false, (Handle, uint32_t*, void*))

// Those that are not `needed` may be null.
struct Functions {
#define LOCKSTEP_AMDSMI_POINTER(member, symbol, needed, parameters) uint32_t(*member) parameters = nullptr;
  LOCKSTEP_AMDSMI_FUNCTIONS(LOCKSTEP_AMDSMI_POINTER)
#undef LOCKSTEP_AMDSMI_POINTER
};

// path: empty for the usual names. The library stays loaded until the process ends: it has threads and destructors of
// its own, which do not always survive being unloaded.
Result<Functions> load(const std::string& path);

}  // namespace lockstep::amdsmi
