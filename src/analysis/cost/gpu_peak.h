// Dense peak of a GPU by its name, for MFU. The table is python/lockstep/peak_flops.csv, built in: one place for the
// hook inside a job and for the server, with the source of every figure.
//
// Thread rule: Thread-safe (the table is read once).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "store/metric_reader.h"

namespace lockstep {

struct GpuPeak {
  double flops = 0;    // per second
  std::string source;  // the data sheet
};

// Until told otherwise a job is taken to train in this.
inline constexpr std::string_view kUsualPrecision = "bf16";

// As the driver names it ("NVIDIA H100 80GB HBM3"). nullopt: not in the table, or its figures are not settled.
std::optional<GpuPeak> gpu_peak(std::string_view gpu_name, std::string_view precision = kUsualPrecision);

// The model of a GPU as its agent reported it last, in the driver's words; "": none did.
std::string gpu_model(const MetricReader& metrics, std::string_view gpu_uuid);

using GpuModels = std::unordered_map<std::string, std::string>;  // by uuid
// Of all that agents reported since; 0: ever. Where several were reported of a GPU, the last one counts.
Result<GpuModels> gpu_models(const MetricReader& metrics, int64_t from_ms);

}  // namespace lockstep
