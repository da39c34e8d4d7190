#include "model/data_value.h"

#include <algorithm>

#include "model/events.h"

namespace lockstep {
namespace {

DataValue value_of_logs(const std::vector<ResourceGroup>& groups) {
  const auto is_event = [](const LogRecord& record) {
    return !record.event_name.empty() && record.event_name != kEventTrainStep;
  };
  const bool has_event = std::any_of(groups.begin(), groups.end(), [&](const ResourceGroup& group) {
    return std::any_of(group.logs.begin(), group.logs.end(), is_event);
  });
  return has_event ? DataValue::kEvents : DataValue::kSteps;
}

}  // namespace

DataValue value_of(Signal signal) {
  return signal == Signal::kMetrics ? DataValue::kMetrics
         : signal == Signal::kSpans ? DataValue::kSpans
                                    : DataValue::kSteps;
}

DataValue value_of(const Batch& batch) {
  return batch.signal == Signal::kLogs ? value_of_logs(batch.groups) : value_of(batch.signal);
}

DataValue value_of(const LogsRequest& request) {
  return value_of_logs(request.groups);
}

}  // namespace lockstep
