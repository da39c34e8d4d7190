#include "apply/applier.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <optional>

#include "base/log.h"
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

int64_t lost_of(const LogRecord& gap) {
  // Bounded, as the numbers of every other event are: a sum that others show must not be one sender's word.
  constexpr int64_t kLostMost = 1'000'000'000'000'000;
  return std::clamp<int64_t>(find_int(gap.attributes, "records"), 0, kLostMost);
}

}  // namespace

// Whatever ends the record, its rows are counted to it and to no later one.
struct Applier::OneRecord {
  OneRecord(StepStore& store, uint64_t log_sequence, int64_t received_unix_ns)
      : steps(store), is_open(log_sequence != 0) {
    if (is_open) steps.begin_record(log_sequence, received_unix_ns);
  }
  ~OneRecord() {
    if (is_open) steps.end_record();
  }
  OneRecord(const OneRecord&) = delete;
  OneRecord& operator=(const OneRecord&) = delete;
  StepStore& steps;
  const bool is_open;
};

template <typename Call>
void Applier::notify(const Call& call) {
  for (StoreSubscriber* subscriber : subscribers_) {
    try {
      call(*subscriber);
    } catch (const std::exception& failure) {
      if (counters_.add("lockstep_apply_subscriber_failures_total"); failures_reported_++ < kFailuresReportedMax)
        LOCKSTEP_LOG_ERROR("apply", "a subscriber failed: %s; it misses that record, the others have it",
                           failure.what());
    }
  }
}

bool Applier::apply(Signal signal, Batch batch, int64_t received_unix_ns, uint64_t log_sequence) {
  if (signal == Signal::kMetrics) {
    const int64_t points = static_cast<int64_t>(batch.record_count());
    return apply_metrics(std::move(batch), points, received_unix_ns, log_sequence);
  }
  if (signal == Signal::kLogs) return apply_logs(to_logs_request(std::move(batch)), received_unix_ns, log_sequence);
  return contain(signal, log_sequence, [&] {
    MutexLock lock(mutex_);
    int64_t received = 0;
    for (ResourceGroup& group : batch.groups) {
      spans_.append(group, received_unix_ns);
      received += static_cast<int64_t>(group.spans.size());
      note_agent(group.resource, received_unix_ns, 0);
    }
    counters_.add("lockstep_apply_records_received_total", "signal=\"spans\"", received);
    counters_.add("lockstep_apply_records_passed_total", "signal=\"spans\"", received);
  });
}

bool Applier::apply_logs(LogsRequest request, int64_t received_unix_ns, uint64_t log_sequence) {
  return contain(Signal::kLogs, log_sequence, [&] { apply_records(request, received_unix_ns, log_sequence); });
}

bool Applier::hears_metric(std::string_view name) const {
  return std::any_of(subscribers_.begin(), subscribers_.end(),
                     [&](const StoreSubscriber* subscriber) { return subscriber->hears_metric(name); });
}

bool Applier::apply_metrics(Batch heard, int64_t points, int64_t received_unix_ns, uint64_t log_sequence) {
  return contain(Signal::kMetrics, log_sequence, [&] { apply_points(heard, points, received_unix_ns); });
}

void Applier::apply_points(const Batch& heard, int64_t points, int64_t received_unix_ns) {
  MutexLock lock(mutex_);
  for (const ResourceGroup& group : heard.groups) {
    notify([&](StoreSubscriber& subscriber) { subscriber.on_metrics(group.resource, group.points, received_unix_ns); });
    note_agent(group.resource, received_unix_ns, 0);
  }
  counters_.add("lockstep_apply_records_received_total", "signal=\"metrics\"", points);
  counters_.add("lockstep_apply_records_passed_total", "signal=\"metrics\"", points);
}

bool Applier::apply_spans(spans::SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence) {
  return contain(Signal::kSpans, log_sequence, [&] {
    const int64_t received = static_cast<int64_t>(columns.size());
    MutexLock lock(mutex_);
    for (const auto& source : columns.sources) note_agent(*source->resource, received_unix_ns, 0);
    spans_.append(std::move(columns), received_unix_ns, log_sequence);
    counters_.add("lockstep_apply_records_received_total", "signal=\"spans\"", received);
    counters_.add("lockstep_apply_records_passed_total", "signal=\"spans\"", received);
  });
}

bool Applier::contain(Signal signal, uint64_t log_sequence, const std::function<void()>& apply) {
  bool applied = false;
  try {
    apply();
    applied = true;
  } catch (const std::exception& failure) {
    counters_.add("lockstep_apply_batches_failed_total", format("signal=\"%s\"", to_text(signal)));
    LOCKSTEP_LOG_ERROR("apply", "record %llu of the log (%s) failed: %s; what of it is not stored is set aside there",
                       static_cast<unsigned long long>(log_sequence), to_text(signal), failure.what());
  }
  // Also where it failed: it is not tried again.
  if (log_sequence != 0) applied_through_ = log_sequence;
  return applied;
}

void Applier::apply_records(LogsRequest& request, int64_t received_unix_ns, uint64_t log_sequence) {
  MutexLock lock(mutex_);
  const OneRecord record_at_hand(steps_, log_sequence, received_unix_ns);
  LogProgress progress{.received_unix_ns = received_unix_ns, .log_sequence = log_sequence, .agent_host = {}};
  progress.keeps = logs_ != nullptr && (log_sequence == 0 || !logs_->holds(log_sequence, received_unix_ns));
  request.visit(
      [&](StepReport& report) {
        mutex_.assert_held();
        apply_report(report, progress);
      },
      [&](ResourceGroup& group) {
        mutex_.assert_held();
        note_steps_agent(progress);
        apply_group(group, progress);
      });
  note_steps_agent(progress);
  if (progress.keeps) logs_->append(std::move(progress.kept), received_unix_ns, log_sequence);
  counters_.add("lockstep_apply_records_received_total", "signal=\"logs\"", progress.received);
  counters_.add("lockstep_apply_records_passed_total", "signal=\"logs\"", progress.passed);
  counters_.set("lockstep_apply_records_held", "", static_cast<int64_t>(attempts_.held()));
  for (size_t let_go = attempts_.take_let_go(); let_go > 0; --let_go) count_log("attempt_not_confirmed");
}

template <typename Apply>
Applier::Applied Applier::contain_record(std::string_view event, const LogProgress& progress, const Apply& apply) {
  try {
    return apply();
  } catch (const std::exception& failure) {  // the batch is of others as well
    if (failures_reported_++ < kFailuresReportedMax)
      LOCKSTEP_LOG_ERROR("apply", "record %llu of the log: its %.*s failed: %s; the rest of it is applied",
                         static_cast<unsigned long long>(progress.log_sequence),
                         static_cast<int>(std::min<size_t>(event.size(), 40)), event.data(), failure.what());
    return {.refused = "failed"};
  }
}

void Applier::apply_report(StepReport& report, LogProgress& progress) {
  const Identity& identity = report.identity;
  const int64_t received_unix_ns = progress.received_unix_ns;
  const Applied applied = contain_record(kEventTrainStep, progress, [&] {
    mutex_.assert_held();
    std::optional<Applied> not_now = decide(identity, report.time_unix_ns(), received_unix_ns, false, [&] {
      mutex_.assert_held();
      attempts_.hold(identity, resource_of(report), to_record(report), received_unix_ns);
    });
    return not_now ? *not_now : apply_step(identity, report.summary, received_unix_ns);
  });
  ++progress.received;
  if (!applied.is_held && applied.refused == nullptr) ++progress.passed;
  if (applied.refused != nullptr) count_log(applied.refused);
  const bool is_agents = report.resource == nullptr || find_string(*report.resource, "service.name") == kAgentService;
  if (is_agents) {
    if (progress.agent_host != identity.host) {
      note_steps_agent(progress);
      progress.agent_host = identity.host;
    }
    progress.agent_lost += applied.records_lost;
  }
  steps_.append_step_log(std::move(report));
}

void Applier::note_steps_agent(LogProgress& progress) {
  if (!progress.agent_host.empty()) agents_.seen(progress.agent_host, progress.received_unix_ns, progress.agent_lost);
  progress.agent_host.clear();
  progress.agent_lost = 0;
}

void Applier::apply_group(ResourceGroup& group, LogProgress& progress) {
  int64_t records_lost = 0;
  auto resource = std::make_shared<const Attributes>(std::move(group.resource));
  for (LogRecord& record : group.logs) {
    const Applied applied = contain_record(record.event_name, progress, [&] {
      mutex_.assert_held();
      return apply_event(record, resource, progress.received_unix_ns);
    });
    records_lost += applied.records_lost;
    ++progress.received;
    if (!applied.is_held && applied.refused == nullptr) ++progress.passed;
    if (applied.refused != nullptr) count_log(applied.refused);
    if (record.time_unix_ns == 0 && record.observed_unix_ns == 0) record.observed_unix_ns = progress.received_unix_ns;
    if (progress.keeps && record.event_name != kEventTrainStep)
      progress.kept.add(*resource, record, progress.received_unix_ns);
    steps_.append_log(resource, std::move(record));
  }
  note_agent(*resource, progress.received_unix_ns, records_lost);
}

void Applier::note_agent(const Attributes& resource, int64_t received_unix_ns, int64_t records_lost) {
  std::string_view host = find_string(resource, "host.name");
  if (!host.empty() && host.size() <= kIdentityTextMax && find_string(resource, "service.name") == kAgentService)
    agents_.seen(host, received_unix_ns, records_lost);
}

void Applier::count_log(const char* refused) {
  if (refused == nullptr) {
    counters_.add("lockstep_apply_records_passed_total", "signal=\"logs\"");
  } else {
    counters_.add("lockstep_apply_records_refused_total", format("signal=\"logs\",reason=\"%s\"", refused));
  }
}

Applier::Applied Applier::apply_event(const LogRecord& record, const std::shared_ptr<const Attributes>& resource,
                                      int64_t received_unix_ns) {
  const std::string& event = record.event_name;
  bool is_ours = event == kEventTrainStep || event == kEventRankStatus || event == kEventCommInit ||
                 event == kEventCommGroup || event == kEventJobStart || event == kEventJobEnd || event == kEventGap ||
                 event == kEventRankStack || event == kEventCommDump || event == kEventRankSamples ||
                 event == kEventProfileFinding;
  if (event == kEventProfileState || event == kEventProfileReady)
    return apply_profile_event(record, *resource, received_unix_ns);
  if (!is_ours) {
    std::string_view host = find_string(*resource, "host.name");
    if (!is_node_event(event) || host.empty() || host.size() > kIdentityTextMax) return {};
    Result<NodeEvent> reported = node_event_from_record(record);
    if (!reported.ok()) {
      // Other programs may use such names too: theirs are no business of ours.
      return {.refused = find_string(*resource, "service.name") == kAgentService ? "malformed" : nullptr};
    }
    notify([&](StoreSubscriber& subscriber) { subscriber.on_node_event(host, *reported, received_unix_ns); });
    return {};
  }
  Result<Identity> identity = identity_from_resource(*resource);
  if (!identity.ok()) {
    if (event == kEventGap) return {.records_lost = lost_of(record)};  // a gap without a rank is the agent's own
    return {.refused = "no_identity"};
  }
  std::optional<Applied> not_now = decide(*identity, record.time_unix_ns, received_unix_ns, event == kEventJobEnd, [&] {
    mutex_.assert_held();
    attempts_.hold(*identity, resource, record, received_unix_ns);
  });
  return not_now ? *not_now : apply_job_event(record, *identity, received_unix_ns);
}

// Of whatever attempt: a trace of the one before may arrive while the next has begun.
Applier::Applied Applier::apply_profile_event(const LogRecord& record, const Attributes& resource,
                                              int64_t received_unix_ns) {
  const Result<Identity> identity = identity_from_resource(resource);
  if (!identity.ok()) return {.refused = "no_identity"};
  if (record.event_name == kEventProfileState) {
    const Result<ProfileProgress> progress = profile_progress_from_record(record);
    if (!progress.ok()) return {.refused = "malformed"};
    notify([&](StoreSubscriber& subscriber) { subscriber.on_profile_state(*identity, *progress, received_unix_ns); });
    return {};
  }
  const Result<ProfileReady> ready = profile_ready_from_record(record);
  if (!ready.ok()) return {.refused = "malformed"};
  notify([&](StoreSubscriber& subscriber) { subscriber.on_profile_ready(*identity, *ready, received_unix_ns); });
  return {};
}

template <typename Hold>
std::optional<Applier::Applied> Applier::decide(const Identity& identity, int64_t time_unix_ns,
                                                int64_t received_unix_ns, bool is_end, const Hold& hold) {
  switch (attempts_.decide(identity, time_unix_ns, received_unix_ns, is_end)) {
    case JobAttempts::Decision::kOld:
      return Applied{.refused = "old_attempt"};
    case JobAttempts::Decision::kHold:
      hold();
      return Applied{.is_held = true};
    case JobAttempts::Decision::kSwitch:
      begin_attempt(identity);
      break;
    case JobAttempts::Decision::kApply:
      break;
  }
  return std::nullopt;
}

Applier::Applied Applier::apply_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) {
  steps_.append_step(identity, summary, received_unix_ns);
  notify([&](StoreSubscriber& subscriber) { subscriber.on_step(identity, summary, received_unix_ns); });
  return {.records_lost = std::max<int64_t>(0, summary.records_lost)};
}

void Applier::begin_attempt(const Identity& first) {
  const std::optional<JobInfo> before = steps_.job(first.job_id);
  LOCKSTEP_LOG_INFO("apply", "job %s: attempt %lld, it was %lld", first.job_id.c_str(),
                    static_cast<long long>(first.attempt), static_cast<long long>(before ? before->attempt : -1));
  if (before && first.attempt < before->attempt) {
    steps_.attempt_back(first.job_id, first.attempt);
    notify([&](StoreSubscriber& subscriber) { subscriber.on_attempt_back(first.job_id, first.attempt); });
  }
  for (const JobAttempts::Held& held : attempts_.take_held(first.job_id)) {
    const Result<Identity> identity = identity_from_resource(*held.resource);
    const Applied applied = apply_job_event(held.record, *identity, held.received_unix_ns);
    count_log(applied.refused);
    if (applied.records_lost > 0) note_agent(*held.resource, held.received_unix_ns, applied.records_lost);
  }
}

void Applier::apply_job_start(const Identity& identity, const LogRecord& record, int64_t received_unix_ns) {
  steps_.rank_started(identity, received_unix_ns);
  const std::string_view version = find_string(record.attributes, "version");
  // Where records come late the change is as old as the start that it came with.
  const int64_t began_unix_ns =
      record.time_unix_ns > 0 ? std::min(record.time_unix_ns, received_unix_ns) : received_unix_ns;
  notify([&](StoreSubscriber& subscriber) {
    subscriber.on_rank_started(identity, received_unix_ns);
    if (!version.empty()) subscriber.on_code_version(identity, version, began_unix_ns);
  });
}

Applier::Applied Applier::apply_job_event(const LogRecord& record, const Identity& identity, int64_t received_unix_ns) {
  const std::string& event = record.event_name;
  if (event == kEventGap) {
    const int64_t records = lost_of(record);
    steps_.rank_lost_records(identity, records);
    notify([&](StoreSubscriber& subscriber) { subscriber.on_records_lost(identity, records, received_unix_ns); });
    return {.records_lost = records};
  }
  if (event == kEventTrainStep) {
    Result<StepSummary> summary = step_from_record(record);
    if (!summary.ok()) return {.refused = "malformed"};
    return apply_step(identity, *summary, received_unix_ns);
  }
  if (event == kEventRankStatus) {
    Result<RankStatus> status = status_from_record(record);
    if (!status.ok()) return {.refused = "malformed"};
    // A clock that is ahead would keep every later status out.
    status->time_unix_ns = std::min(status->time_unix_ns, received_unix_ns);
    steps_.append_status(identity, *status, received_unix_ns);
    notify([&](StoreSubscriber& subscriber) { subscriber.on_status(identity, *status, received_unix_ns); });
  } else if (event == kEventCommInit) {
    Result<CommInit> comm = comm_init_from_record(record);
    if (!comm.ok()) return {.refused = "malformed"};
    steps_.append_comm(identity, *comm, received_unix_ns);
    notify([&](StoreSubscriber& subscriber) { subscriber.on_comm(identity, *comm, received_unix_ns); });
  } else if (event == kEventCommGroup) {
    Result<CommGroup> group = comm_group_from_record(record);
    if (!group.ok()) return {.refused = "malformed"};
    steps_.append_group(identity, *group, received_unix_ns);
  } else if (event == kEventRankStack) {  // kept as log records, which /stacks asks for
    Result<RankStack> stack = rank_stack_from_record(record);
    if (!stack.ok()) return {.refused = "malformed"};
    notify([&](StoreSubscriber& subscriber) { subscriber.on_stack(identity, *stack, received_unix_ns); });
  } else if (event == kEventCommDump) {
    Result<FlightDump> dump = flight_dump_from_record(record);
    if (!dump.ok()) return {.refused = "malformed"};
    notify([&](StoreSubscriber& subscriber) { subscriber.on_dump(identity, *dump, received_unix_ns); });
  } else if (event == kEventRankSamples) {  // likewise, for /samples
    Result<RankSamples> samples = rank_samples_from_record(record);
    if (!samples.ok()) return {.refused = "malformed"};
    notify([&](StoreSubscriber& subscriber) { subscriber.on_samples(identity, *samples, received_unix_ns); });
  } else if (event == kEventProfileFinding) {  // likewise, for /evidence
    Result<ProfileFinding> finding = profile_finding_from_record(record);
    if (!finding.ok()) return {.refused = "malformed"};
    notify([&](StoreSubscriber& subscriber) { subscriber.on_profile_finding(identity, *finding, received_unix_ns); });
  } else if (event == kEventJobStart) {
    apply_job_start(identity, record, received_unix_ns);
  } else {
    const RankEnd end = rank_end_from_record(record);
    steps_.rank_ended(identity, end.clean, received_unix_ns);
    notify([&](StoreSubscriber& subscriber) { subscriber.on_rank_ended(identity, end, received_unix_ns); });
  }
  return {};
}

}  // namespace lockstep
