// Clock and temperature of a GPU for MFU, from the signal book: the newest minute of a span, and before it.
//
// Thread rule: Thread-safe.
#pragma once

#include <optional>
#include <string_view>

#include "analysis/cost/mfu.h"
#include "diagnosis/signals/signal_store.h"

namespace lockstep {

std::optional<GpuReading> gpu_reading(const SignalStore& book, std::string_view host, std::string_view gpu_uuid,
                                      int64_t since_unix_ns, int64_t through_unix_ns);

}  // namespace lockstep
