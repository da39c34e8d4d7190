#include "sources/nvml/nvml_caller.h"

#include "base/text.h"

namespace lockstep::nvml {

bool is_final(int status) {
  return status == kNotSupported || status == kInvalidArgument || status == kFunctionNotFound ||
         status == kWrongVersion || status == kDeprecated || status == kNoPermission || status == kOperatingSystem;
}

bool Caller::judge(Call call, const char* name, int status, size_t variant) {
  last_ = status;
  if (status == kOk) return true;
  judge_part(name, status);
  if (is_final(status)) off_.set(bit(call, variant));
  return false;
}

void Caller::judge_part(const char* name, int status) {
  switch (status) {
    case kGpuLost:
    case kResetRequired:
      lost_ = status;
      break;
    case kUninitialized:
    case kDriverNotLoaded:
    case kVersionMismatch:
      fatal_ = status;
      break;
    case kNoPermission:
    case kOperatingSystem:
      notes_->say_once(name, format("NVML: %s: %s (status %d, first seen on %s); not asked again", name,
                                    status_text(status), status, who_.c_str()));
      break;
    default:
      break;
  }
}

}  // namespace lockstep::nvml
