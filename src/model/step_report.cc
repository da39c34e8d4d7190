#include "model/step_report.h"

#include <utility>

#include "model/events.h"

namespace lockstep {

LogRecord to_record(const StepReport& report) {
  LogRecord record = to_record(report.summary);
  record.observed_unix_ns = report.observed_unix_ns;
  return record;
}

std::shared_ptr<const Attributes> resource_of(const StepReport& report) {
  return report.resource ? report.resource : std::make_shared<const Attributes>(to_resource(report.identity));
}

size_t LogsRequest::record_count() const {
  size_t count = steps.size();
  for (const ResourceGroup& group : groups) count += group.logs.size();
  return count;
}

Batch to_batch(LogsRequest request) {
  Batch batch{.signal = Signal::kLogs, .groups = {}};
  request.visit(
      [&](const StepReport& report) {
        batch.groups.push_back({.resource = *resource_of(report),
                                .scope_name = std::string(kAgentScopeName),
                                .logs = {to_record(report)}});
      },
      [&](ResourceGroup& group) { batch.groups.push_back(std::move(group)); });
  return batch;
}

LogsRequest to_logs_request(Batch batch) {
  return {.groups = std::move(batch.groups), .steps = {}};
}

}  // namespace lockstep
