// The logs of a request with its steps taken out: most records are train.step events as agents write them, and those
// need no log record with its attributes to become rows (wire/step_walk.h reads them, apply/applier.h stores them).
//
// A StepReport is such an event and nothing else: as a log record it is to_record(report), exactly.
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

inline constexpr std::string_view kAgentScopeName = "lockstep.agent";  // the scope that a report's record has

struct StepReport {
  Identity identity;
  StepSummary summary;
  int64_t observed_unix_ns = 0;
  std::shared_ptr<const Attributes> resource;  // nullptr: to_resource(identity)
  size_t before_group = 0;                     // of LogsRequest::groups: it came before that one

  int64_t time_unix_ns() const { return summary.start_unix_ns + summary.duration_ns; }  // of the record; never 0
};
LogRecord to_record(const StepReport& report);
std::shared_ptr<const Attributes> resource_of(const StepReport& report);

struct LogsRequest {
  std::vector<ResourceGroup> groups;
  std::vector<StepReport> steps;  // in the order in which they came

  size_t record_count() const;
  // Calls for each step and each group, in the order in which they came.
  template <typename OnStep, typename OnGroup>
  void visit(const OnStep& on_step, const OnGroup& on_group) {
    size_t next = 0;
    for (size_t i = 0; i <= groups.size(); ++i) {
      for (; next < steps.size() && steps[next].before_group <= i; ++next) on_step(steps[next]);
      if (i < groups.size()) on_group(groups[i]);
    }
  }
};

// As log records, each step in a group of its own.
Batch to_batch(LogsRequest request);
// As it is, all of it in groups.
LogsRequest to_logs_request(Batch batch);

}  // namespace lockstep
