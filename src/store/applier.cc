#include "store/applier.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "base/text.h"

namespace lockstep {
namespace {

// What a node tells of itself (model/node_event.h); a name that is none of these is somebody else's log record.
bool is_node_event(std::string_view event) {
  constexpr std::string_view kPrefixes[] = {"gpu.",  "nvswitch.", "pcie.",    "nic.",
                                            "link.", "host.",     "storage.", "clock."};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return event.starts_with(prefix); });
}

bool is_clean(const LogRecord& record) {
  const Value* clean = find(record.attributes, "clean");
  const bool* flag = clean ? std::get_if<bool>(&clean->data) : nullptr;
  return flag != nullptr && *flag;
}

}  // namespace

void Applier::apply(Signal signal, Batch batch, int64_t received_unix_ns, uint64_t log_sequence) {
  std::lock_guard lock(mutex_);
  const bool may_have_steps = signal == Signal::kLogs && log_sequence != 0;
  if (may_have_steps) steps_.begin_record(log_sequence, received_unix_ns);
  int64_t received = 0;
  int64_t refused = 0;
  for (ResourceGroup& group : batch.groups) {
    int64_t records_lost = 0;
    if (signal == Signal::kMetrics) {
      for (StoreSubscriber* subscriber : subscribers_)
        subscriber->on_metrics(group.resource, group.points, received_unix_ns);
      received += static_cast<int64_t>(group.points.size());
    } else if (signal == Signal::kSpans) {
      spans_.append(group, received_unix_ns);
      received += static_cast<int64_t>(group.spans.size());
    } else {
      auto resource = std::make_shared<const Attributes>(std::move(group.resource));
      for (LogRecord& record : group.logs) {
        const char* reason = nullptr;
        records_lost += apply_event(record, *resource, received_unix_ns, &reason);
        if (reason != nullptr) {
          ++refused;
          counters_.add("lockstep_apply_records_refused_total", format("signal=\"logs\",reason=\"%s\"", reason));
        }
        if (record.time_unix_ns == 0 && record.observed_unix_ns == 0) record.observed_unix_ns = received_unix_ns;
        steps_.append_log(resource, std::move(record));
      }
      received += static_cast<int64_t>(group.logs.size());
      note_agent(*resource, received_unix_ns, records_lost);
      continue;
    }
    note_agent(group.resource, received_unix_ns, records_lost);
  }
  if (may_have_steps) steps_.end_record();
  if (log_sequence != 0) applied_through_ = log_sequence;
  std::string label = format("signal=\"%s\"", to_text(signal));
  counters_.add("lockstep_apply_records_received_total", label, received);
  counters_.add("lockstep_apply_records_passed_total", label, received - refused);
}

void Applier::apply_spans(spans::SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence) {
  const int64_t received = static_cast<int64_t>(columns.size());
  std::lock_guard lock(mutex_);
  for (const auto& source : columns.sources) note_agent(*source->resource, received_unix_ns, 0);
  spans_.append(std::move(columns), received_unix_ns, log_sequence);
  if (log_sequence != 0) applied_through_ = log_sequence;
  counters_.add("lockstep_apply_records_received_total", "signal=\"spans\"", received);
  counters_.add("lockstep_apply_records_passed_total", "signal=\"spans\"", received);
}

void Applier::note_agent(const Attributes& resource, int64_t received_unix_ns, int64_t records_lost) {
  std::string_view host = find_string(resource, "host.name");
  if (!host.empty() && host.size() <= kIdentityTextMax && find_string(resource, "service.name") == "lockstep-agent")
    agents_.seen(host, received_unix_ns, records_lost);
}

int64_t Applier::apply_event(const LogRecord& record, const Attributes& resource, int64_t received_unix_ns,
                             const char** refused) {
  const std::string& event = record.event_name;
  bool is_ours = event == kEventTrainStep || event == kEventRankStatus || event == kEventCommInit ||
                 event == kEventCommGroup || event == kEventJobStart || event == kEventJobEnd || event == kEventGap ||
                 event == kEventRankStack || event == kEventCommDump;
  if (!is_ours) {
    std::string_view host = find_string(resource, "host.name");
    if (!is_node_event(event) || host.empty() || host.size() > kIdentityTextMax) return 0;
    Result<NodeEvent> told = node_event_from_record(record);
    if (!told.ok()) {
      // Other programs may use such names too: theirs are no business of ours.
      if (find_string(resource, "service.name") == "lockstep-agent") *refused = "malformed";
      return 0;
    }
    for (StoreSubscriber* subscriber : subscribers_) subscriber->on_node_event(host, *told, received_unix_ns);
    return 0;
  }
  Result<Identity> identity = identity_from_resource(resource);
  if (event == kEventGap) {
    int64_t records = std::max<int64_t>(0, find_int(record.attributes, "records"));
    if (identity.ok()) {
      steps_.rank_lost_records(*identity, records);
      for (StoreSubscriber* subscriber : subscribers_)
        subscriber->on_records_lost(*identity, records, received_unix_ns);
    }
    return records;  // a gap without a rank is the agent's own
  }
  if (!identity.ok()) {
    *refused = "no_identity";
    return 0;
  }
  if (event == kEventTrainStep) {
    Result<StepSummary> summary = step_from_record(record);
    if (!summary.ok()) {
      *refused = "malformed";
      return 0;
    }
    steps_.append_step(*identity, *summary, received_unix_ns);
    for (StoreSubscriber* subscriber : subscribers_) subscriber->on_step(*identity, *summary, received_unix_ns);
    return std::max<int64_t>(0, summary->records_lost);
  }
  if (event == kEventRankStatus) {
    Result<RankStatus> status = status_from_record(record);
    if (!status.ok()) {
      *refused = "malformed";
      return 0;
    }
    steps_.append_status(*identity, *status, received_unix_ns);
    for (StoreSubscriber* subscriber : subscribers_) subscriber->on_status(*identity, *status, received_unix_ns);
  } else if (event == kEventCommInit) {
    Result<CommInit> comm = comm_init_from_record(record);
    if (!comm.ok()) {
      *refused = "malformed";
      return 0;
    }
    steps_.append_comm(*identity, *comm, received_unix_ns);
    for (StoreSubscriber* subscriber : subscribers_) subscriber->on_comm(*identity, *comm, received_unix_ns);
  } else if (event == kEventCommGroup) {
    Result<CommGroup> group = comm_group_from_record(record);
    if (!group.ok()) {
      *refused = "malformed";
      return 0;
    }
    steps_.append_group(*identity, *group, received_unix_ns);
  } else if (event == kEventRankStack) {  // kept as log records, which /stacks asks for
    Result<RankStack> stack = rank_stack_from_record(record);
    if (!stack.ok()) {
      *refused = "malformed";
      return 0;
    }
    for (StoreSubscriber* subscriber : subscribers_) subscriber->on_stack(*identity, *stack, received_unix_ns);
  } else if (event == kEventCommDump) {
    Result<FlightDump> dump = flight_dump_from_record(record);
    if (!dump.ok()) {
      *refused = "malformed";
      return 0;
    }
    for (StoreSubscriber* subscriber : subscribers_) subscriber->on_dump(*identity, *dump, received_unix_ns);
  } else if (event == kEventJobStart) {
    steps_.rank_started(*identity, received_unix_ns);
    for (StoreSubscriber* subscriber : subscribers_) subscriber->on_rank_started(*identity, received_unix_ns);
  } else {
    bool clean = is_clean(record);
    steps_.rank_ended(*identity, clean, received_unix_ns);
    for (StoreSubscriber* subscriber : subscribers_) subscriber->on_rank_ended(*identity, clean, received_unix_ns);
  }
  return 0;
}

}  // namespace lockstep
