// train.step events read from the bytes of an OTLP request straight into summaries: no log records, attributes or values
// in between. They are most of what a fleet sends as logs.
//
// Only what is written exactly as agents write it (model/events.h: to_record(), to_resource(), in the agent's scope) is
// read so; every other group of the request becomes log records, by the same decoder as otlp::decode(). So both take a
// request or neither does, with the same line, and to_batch() of one is the other's batch (wire/step_walk_fuzz.cc).
// Limits: those of wire/otlp.h.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/protobuf_wire.h"
#include "base/result.h"
#include "model/step_report.h"

namespace lockstep::otlp {

// Body of an ExportLogsServiceRequest. lease: as for decode() (wire/otlp.h).
Result<LogsRequest> decode_logs(std::string_view bytes, MemoryLease* lease = nullptr);

// The steps of one ResourceLogs message (`group`, within the message that `in` reads), with `before_group`. False: there
// is something else in it, and nothing was added.
bool walk_steps(protobuf::WireReader& in, std::string_view group, size_t before_group, std::vector<StepReport>& steps);

}  // namespace lockstep::otlp
