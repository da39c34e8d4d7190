#include "sources/nvml/nvml_fields.h"

#include <algorithm>
#include <cmath>

namespace lockstep::nvml {

using enum GpuMetric;

// What costs a microsecond or less: the driver keeps it in memory (bench/results/node-h200.md).
const std::vector<FieldRow> kFastFields = {
    {74, kThrottlePower, 1e-9},
    {76, kThrottleSyncBoost, 1e-9},
    {77, kThrottleBoardLimit, 1e-9},
    {78, kThrottleLowUtilization, 1e-9},
    {79, kThrottleReliability, 1e-9},
    {80, kThrottleAppClocks, 1e-9},
    {81, kThrottleBaseClocks, 1e-9},
    {269, kThrottleSwThermal, 1e-9},
    {82, kTempMemory, 1},
    {185, kPower, 1e-3},
    {186, kPowerInstant, 1e-3},
    {138, kLinksTransmit, 1024, nullptr, kAllLinks},
    {139, kLinksReceive, 1024, nullptr, kAllLinks},
};

const std::vector<FieldRow> kSlowFields = {
    // Counters that the driver fetches from the GPU each time: 4 ms for the energy, 0.6 ms for each of the next three,
    // 0.1 ms for each of the rest (H200). They count on meanwhile, so reading them less often loses nothing.
    {83, kEnergy, 1e-3},
    {75, kThrottleThermal, 1e-9},
    {270, kThrottleHwThermal, 1e-9},
    {271, kThrottlePowerBrake, 1e-9},
    {94, kPcieReplays, 1},
    {197, kPcieTransmit, 1},
    {198, kPcieReceive, 1},
    {1, kEccEnabled, 1},
    {3, kEccCorrected, 1},
    {4, kEccUncorrected, 1},
    {5, kEccAggregateCorrected, 1},
    {6, kEccAggregateUncorrected, 1},
    {7, kEccUnitCorrected, 1, "l1"},
    {8, kEccUnitUncorrected, 1, "l1"},
    {9, kEccUnitCorrected, 1, "l2"},
    {10, kEccUnitUncorrected, 1, "l2"},
    {11, kEccUnitCorrected, 1, "memory"},
    {12, kEccUnitUncorrected, 1, "memory"},
    {13, kEccUnitCorrected, 1, "register"},
    {14, kEccUnitUncorrected, 1, "register"},
    {15, kEccUnitCorrected, 1, "texture"},
    {16, kEccUnitUncorrected, 1, "texture"},
    {17, kEccUnitUncorrected, 1, "cbu"},
    {29, kRetiredCorrected, 1},
    {30, kRetiredUncorrected, 1},
    {31, kRetiredPending, 1},
    {142, kRemappedCorrectable, 1},
    {143, kRemappedUncorrectable, 1},
    {144, kRemapPending, 1},
    {145, kRemapFailure, 1},
    {169, kPcieRecoveries, 1},
    {173, kPcieCorrectable, 1},
    {174, kPcieError, 1, "nak_received"},
    {175, kPcieError, 1, "receiver"},
    {176, kPcieError, 1, "bad_tlp"},
    {177, kPcieError, 1, "nak_sent"},
    {178, kPcieError, 1, "bad_dllp"},
    {179, kPcieNonFatal, 1},
    {180, kPcieFatal, 1},
    {181, kPcieError, 1, "unsupported_request"},
    {182, kPcieError, 1, "lcrc"},
    {183, kPcieError, 1, "lane"},
    {190, kPowerLimit, 1e-3},
    {192, kPowerLimitRequested, 1e-3},
    {189, kPowerLimitDefault, 1e-3},
    {187, kPowerLimitMin, 1e-3},
    {188, kPowerLimitMax, 1e-3},
    {230, kRecoveryAction, 1},
    {38, kLinksCrcFlit, 1},
    {45, kLinksCrcData, 1},
    {160, kLinksEcc, 1},
};

double field_number(const FieldValue& value) {
  switch (value.type) {
    case ValueType::kDouble:
      return value.value.f64;
    case ValueType::kU32:
      return value.value.u32;
    case ValueType::kUnsignedLong:
    case ValueType::kU64:
      return static_cast<double>(value.value.u64);
    case ValueType::kI64:
      return static_cast<double>(value.value.i64);
    case ValueType::kI32:
      return value.value.i32;
    case ValueType::kU16:
      return value.value.u16;
  }
  return NAN;  // a type of a later library
}

FieldBatch::FieldBatch(const std::vector<FieldRow>& rows) {
  for (const FieldRow& row : rows) add(row);
}

void FieldBatch::add(const FieldRow& row, int32_t link) {
  requests_.push_back({row, link});
  FieldValue value;
  value.field = row.field;
  value.scope = link >= 0 ? static_cast<uint32_t>(link) : row.scope;
  values_.push_back(value);
}

void FieldBatch::remove_link(int32_t link) {
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i].link == link) continue;
    values_[kept] = values_[i];
    requests_[kept++] = requests_[i];
  }
  values_.resize(kept);
  requests_.resize(kept);
}

bool FieldBatch::asks_for(uint32_t field) const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [field](const Request& request) { return request.row.field == field; });
}

void FieldBatch::read(const Api& api, Caller& caller, const Take& take) {
  if (requests_.empty() || !caller.may_ask(api.field_values)) return;
  for (size_t first = 0; first < values_.size();) {
    const size_t count = std::min(per_call_, values_.size() - first);
    for (size_t i = first; i < first + count; ++i) values_[i].status = kUnknown;
    const int status = api.field_values.call(caller.device(), static_cast<int>(count), &values_[first]);
    if (status == kInvalidArgument && count > 32) {
      per_call_ = 32;
      continue;
    }
    if (!caller.judge(api.field_values.id, api.field_values.name, status)) return;
    first += count;
  }
  size_t kept = 0;
  for (size_t i = 0; i < values_.size(); ++i) {
    const int status = values_[i].status;
    if (status == kOk) {
      const double value = field_number(values_[i]);
      if (std::isfinite(value)) take(requests_[i], value * requests_[i].row.scale);
    } else {
      caller.judge_part(api.field_values.name, status);
      if (is_final(status)) continue;
    }
    values_[kept] = values_[i];
    requests_[kept] = requests_[i];
    ++kept;
  }
  values_.resize(kept);
  requests_.resize(kept);
}

}  // namespace lockstep::nvml
