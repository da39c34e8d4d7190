#include "model/events.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/text.h"
#include "model/attempt.h"
#include "model/rank_text.h"
#include "model/step_rows.h"

namespace lockstep {

const char* to_text(Phase phase) {
  static constexpr const char* kNames[kPhaseCount] = {"other",     "input",      "forward", "backward",
                                                      "optimizer", "checkpoint", "eval",    "sync"};
  size_t index = static_cast<size_t>(phase);
  return index < kPhaseCount ? kNames[index] : "other";
}

const char* to_text(TimePart part) {
  static constexpr const char* kNames[kTimePartCount] = {"compute", "communication", "input",
                                                         "host",    "checkpoint",    "idle"};
  size_t index = static_cast<size_t>(part);
  return index < kTimePartCount ? kNames[index] : "idle";
}

namespace {

using step_bounds::kCountMost;
using step_bounds::kDayNs;
using step_bounds::kTimeMost;
constexpr int64_t kQuietMost = 10 * 366 * kDayNs;  // a job may hang for a long time

// A row of integers, read in order; remembers if any column was missing or of another type.
class RowReader : public BoundedRow<RowReader> {
 public:
  explicit RowReader(const Value& row) : list_(std::get_if<ValueList>(&row.data)) {}
  int64_t next() {
    if (list_ == nullptr || at_ >= list_->size()) {
      ok_ = false;
      return 0;
    }
    const int64_t* number = std::get_if<int64_t>(&(*list_)[at_++].data);
    if (number == nullptr) ok_ = false;
    return number ? *number : 0;
  }
  std::string next_text() {
    if (list_ == nullptr || at_ >= list_->size()) {
      ok_ = false;
      return {};
    }
    const std::string* text = std::get_if<std::string>(&(*list_)[at_++].data);
    if (text == nullptr || text->size() > kIdentityTextMax) ok_ = false;
    return text && text->size() <= kIdentityTextMax ? *text : std::string();
  }
  // Columns that are only sent where they say something.
  bool more() const { return list_ != nullptr && at_ < list_->size(); }

 private:
  const ValueList* list_;
  size_t at_ = 0;
};

ValueList row(std::initializer_list<int64_t> numbers) {
  ValueList list;
  list.reserve(numbers.size());
  for (int64_t number : numbers) list.emplace_back(number);
  return list;
}

// Leaves out the last columns of a row that say what a reader assumes without them, down to `columns`.
void trim(ValueList& row, size_t columns, const ValueList& assumed) {
  while (row.size() > columns && row.back() == assumed[row.size() - columns - 1]) row.pop_back();
}

const ValueList* find_list(const Attributes& attributes, std::string_view key) {
  const Value* value = find(attributes, key);
  return value ? std::get_if<ValueList>(&value->data) : nullptr;
}

LogRecord record_of(std::string_view event, int64_t time_unix_ns) {
  LogRecord record;
  record.event_name = event;
  record.time_unix_ns = time_unix_ns;
  record.severity = 9;  // INFO
  return record;
}

void append_op(ValueList& list, const OpStatus& op) {
  list.emplace_back(static_cast<int64_t>(op.state));
  list.emplace_back(static_cast<int64_t>(op.ordinal));
  list.emplace_back(static_cast<int64_t>(op.seq));
  list.emplace_back(op.function);
  list.emplace_back(op.datatype);
  list.emplace_back(op.bytes);
  list.emplace_back(static_cast<int64_t>(op.peer));
  list.emplace_back(op.since_unix_ns);
}

OpStatus read_op(RowReader& row) {
  OpStatus op;
  int64_t state = row.next();
  op.state = state >= 0 && state <= 3 ? static_cast<OpState>(state) : OpState::kNone;
  op.ordinal = static_cast<uint64_t>(row.next_count());
  op.seq = static_cast<uint64_t>(row.next_count());
  op.function = row.next_text();
  op.datatype = row.next_text();
  op.bytes = row.next_count();
  op.peer = static_cast<int32_t>(row.next_in(-1, kRanksMost));
  op.since_unix_ns = row.next_time();
  return op;
}

constexpr size_t kStatusColumns = 23;  // always sent
constexpr int64_t kCollectiveEndNotSeen = 1;
constexpr int64_t kP2pEndNotSeen = 2;

ValueList more_status(const CommStatus& comm) {
  ValueList list =
      row({(comm.collective.end_not_seen ? kCollectiveEndNotSeen : 0) | (comm.p2p.end_not_seen ? kP2pEndNotSeen : 0),
           static_cast<int64_t>(comm.collective_calls), static_cast<int64_t>(comm.p2p_calls), comm.launched});
  list.emplace_back(comm.proxy.state);
  list.emplace_back(static_cast<int64_t>(comm.proxy.send));
  list.emplace_back(static_cast<int64_t>(comm.proxy.peer));
  list.emplace_back(comm.proxy.since_unix_ns);
  return list;
}

void append_more_status(ValueList& list, const CommStatus& comm) {
  static const ValueList kAssumed = more_status(CommStatus{});
  for (Value& value : more_status(comm)) list.push_back(std::move(value));
  trim(list, kStatusColumns, kAssumed);
}

void read_more_status(RowReader& row, CommStatus& comm) {
  if (row.more()) {
    int64_t ends = row.next();
    comm.collective.end_not_seen = (ends & kCollectiveEndNotSeen) != 0;
    comm.p2p.end_not_seen = (ends & kP2pEndNotSeen) != 0;
  }
  if (row.more()) comm.collective_calls = static_cast<uint64_t>(row.next_count());
  if (row.more()) comm.p2p_calls = static_cast<uint64_t>(row.next_count());
  if (row.more()) comm.launched = row.next_in(-1, kCountMost);
  if (row.more()) comm.proxy.state = row.next_text();
  if (row.more()) comm.proxy.send = row.next() != 0;
  if (row.more()) comm.proxy.peer = static_cast<int32_t>(row.next_in(-1, kRanksMost));
  if (row.more()) comm.proxy.since_unix_ns = row.next_time();
}

Result<void> read_numbers(const Attributes& attributes, StepSummary& step) {
  step.self_ns = find_int(attributes, "self_ns");
  step.comm_ns = find_int(attributes, "comm_ns");
  step.queue_ns = find_int(attributes, "queue_ns");
  step.quiet_ns = find_int(attributes, "quiet_ns");
  step.quiet_from_unix_ns = std::clamp(find_int(attributes, "quiet_from_unix_ns"), -kTimeMost, kTimeMost);
  step.stopped_ns = find_int(attributes, "stopped_ns");
  step.records_lost = find_int(attributes, "records_lost");
  step.unseen = find_int(attributes, "unseen");
  for (int64_t ns : {step.self_ns, step.comm_ns, step.queue_ns, step.quiet_ns, step.stopped_ns}) {
    if (ns < 0 || ns > kDayNs)
      return Error{format("train.step %lld has a part of %lld ns (0 to one day is possible)",
                          static_cast<long long>(step.step.value()), static_cast<long long>(ns))};
  }
  if (step.records_lost < 0 || step.records_lost > kCountMost)
    return Error{format("train.step %lld has lost %lld records", static_cast<long long>(step.step.value()),
                        static_cast<long long>(step.records_lost))};
  if (step.unseen < 0 || step.unseen > kCountMost)
    return Error{format("train.step %lld has %lld operations that were not seen",
                        static_cast<long long>(step.step.value()), static_cast<long long>(step.unseen))};
  const Value* inferred = find(attributes, "inferred");
  step.inferred = inferred && std::get_if<bool>(&inferred->data) && std::get<bool>(inferred->data);
  return {};
}

Result<void> read_phases(const Attributes& attributes, StepSummary& step) {
  const ValueList* phases = find_list(attributes, "phases");
  if (phases == nullptr) return {};
  if (phases->size() > kPhaseCount)
    return Error{format("train.step %lld has %zu phases (limit %zu)", static_cast<long long>(step.step.value()),
                        phases->size(), kPhaseCount)};
  for (size_t i = 0; i < phases->size(); ++i) {
    const int64_t* ns = std::get_if<int64_t>(&(*phases)[i].data);
    if (ns == nullptr || *ns < 0 || *ns > kDayNs)
      return Error{format("train.step %lld: phase %zu is not a time of 0 to one day",
                          static_cast<long long>(step.step.value()), i)};
    step.phase_ns[i] = *ns;
  }
  return {};
}

Result<void> read_split(const Attributes& attributes, StepSummary& step) {
  const ValueList* split = find_list(attributes, "split");
  if (split == nullptr) return {};
  if (split->size() != kTimePartCount)
    return Error{format("train.step %lld: split has %zu parts (%zu are known)",
                        static_cast<long long>(step.step.value()), split->size(), kTimePartCount)};
  for (size_t i = 0; i < kTimePartCount; ++i) {
    const int64_t* ns = std::get_if<int64_t>(&(*split)[i].data);
    if (ns == nullptr || *ns < 0 || *ns > kDayNs)
      return Error{format("train.step %lld: part %zu of split is not a time of 0 to one day",
                          static_cast<long long>(step.step.value()), i)};
    step.split_ns[i] = *ns;
  }
  step.split_known = true;
  return {};
}

Result<void> read_scalars(const Attributes& attributes, StepSummary& step) {
  const Value* value = find(attributes, "scalars");
  const Attributes* scalars = value ? std::get_if<Attributes>(&value->data) : nullptr;
  if (scalars == nullptr) return {};
  if (scalars->size() > kScalarsPerStepMax)
    return Error{format("train.step %lld has %zu scalars (limit %zu)", static_cast<long long>(step.step.value()),
                        scalars->size(), kScalarsPerStepMax)};
  for (const Attribute& scalar : *scalars) {
    const double* number = std::get_if<double>(&scalar.value.data);
    if (number == nullptr || scalar.key.empty() || scalar.key.size() > kScalarNameMax ||
        has_control_characters(scalar.key))
      return Error{format("train.step %lld: a scalar without a number, or with a name of %zu bytes (1 to %zu)",
                          static_cast<long long>(step.step.value()), scalar.key.size(), kScalarNameMax)};
    step.scalars.push_back({scalar.key, *number});
  }
  return {};
}

Result<void> read_comms(const Attributes& attributes, StepSummary& step) {
  const ValueList* comms = find_list(attributes, "comms");
  if (comms == nullptr) return {};
  if (comms->size() > kCommsPerStepMax)
    return Error{format("train.step %lld has %zu communicators (limit %zu)", static_cast<long long>(step.step.value()),
                        comms->size(), kCommsPerStepMax)};
  for (const Value& item : *comms) {
    RowReader row(item);
    const CommStep comm = read_comm_step(row);
    if (!row.ok())
      return Error{format("train.step %lld: communicator row %zu is malformed",
                          static_cast<long long>(step.step.value()), step.comms.size())};
    step.comms.push_back(comm);
  }
  return {};
}

Result<void> read_flows(const Attributes& attributes, StepSummary& step) {
  const ValueList* flows = find_list(attributes, "flows");
  if (flows == nullptr) return {};
  if (flows->size() > kFlowsPerStepMax)
    return Error{format("train.step %lld has %zu flows (limit %zu)", static_cast<long long>(step.step.value()),
                        flows->size(), kFlowsPerStepMax)};
  for (const Value& item : *flows) {
    RowReader row(item);
    const FlowStep flow = read_flow_step(row);
    if (!row.ok())
      return Error{format("train.step %lld: flow row %zu is malformed", static_cast<long long>(step.step.value()),
                          step.flows.size())};
    step.flows.push_back(flow);
  }
  return {};
}

}  // namespace

Attributes to_resource(const Identity& identity) {
  return {{"service.name", std::string(kAgentService)},
          {"lockstep.job_id", identity.job_id},
          {"lockstep.attempt", identity.attempt},
          {"lockstep.rank", static_cast<int64_t>(identity.rank.value())},
          {"lockstep.world_size", static_cast<int64_t>(identity.world_size)},
          {"lockstep.local_rank", static_cast<int64_t>(identity.local_rank)},
          {"host.name", identity.host},
          {"lockstep.gpu_uuid", identity.gpu_uuid}};
}

Result<Identity> identity_from_resource(const Attributes& resource) {
  Identity identity;
  identity.job_id = find_string(resource, "lockstep.job_id");
  identity.attempt = find_int(resource, "lockstep.attempt");
  identity.local_rank = static_cast<int32_t>(find_int(resource, "lockstep.local_rank"));
  identity.host = find_string(resource, "host.name");
  identity.gpu_uuid = find_string(resource, "lockstep.gpu_uuid");
  LOCKSTEP_TRY(set_rank(identity, find_int(resource, "lockstep.rank", -1), find_int(resource, "lockstep.world_size")));
  return identity;
}

Result<void> set_rank(Identity& identity, int64_t rank, int64_t world_size) {
  if (identity.job_id.empty()) return Error{"the resource has no lockstep.job_id"};
  // Names are shown to people, in terminals too.
  if (has_control_characters(identity.job_id) || has_control_characters(identity.host) ||
      has_control_characters(identity.gpu_uuid)) {
    return Error{"the resource has a control character in lockstep.job_id, host.name or lockstep.gpu_uuid"};
  }
  if (identity.job_id.size() > kIdentityTextMax || identity.host.size() > kIdentityTextMax ||
      identity.gpu_uuid.size() > kIdentityTextMax) {
    return Error{format("the resource has a name longer than %zu bytes", kIdentityTextMax)};
  }
  if (!attempt_may_be(identity.attempt)) {
    return Error{format("lockstep.attempt %lld is not one any job reaches (0 to %lld)",
                        static_cast<long long>(identity.attempt), static_cast<long long>(kAttemptMost))};
  }
  if (rank < 0 || rank > kRanksMost || world_size < 0 || world_size > kRanksMost ||
      (world_size > 0 && rank >= world_size)) {
    return Error{format("lockstep.rank %lld does not fit lockstep.world_size %lld", static_cast<long long>(rank),
                        static_cast<long long>(world_size))};
  }
  identity.rank = Rank{static_cast<int32_t>(rank)};
  identity.world_size = static_cast<int32_t>(world_size);
  return {};
}

LogRecord to_record(const StepSummary& step) {
  LogRecord record = record_of(kEventTrainStep, step.start_unix_ns + step.duration_ns);
  ValueList phases;
  for (int64_t ns : step.phase_ns) phases.emplace_back(ns);
  ValueList comms;
  for (const CommStep& comm : step.comms) {
    ValueList list = row({static_cast<int64_t>(comm.comm_id.value()), comm.size, comm.rank_in_comm, comm.p2p ? 1 : 0,
                          comm.count, comm.bytes, comm.gpu_ns, comm.shortest_ns, comm.longest_ns,
                          comm.first_start_unix_ns, comm.last_end_unix_ns, comm.queue_ns});
    if (comm.unseen != 0) list.emplace_back(comm.unseen);
    comms.emplace_back(std::move(list));
  }
  ValueList flows;
  for (const FlowStep& flow : step.flows) {
    flows.emplace_back(
        row({static_cast<int64_t>(flow.comm_id.value()), flow.peer, flow.send ? 1 : 0, flow.transfers, flow.bytes,
             flow.wire_ns, flow.own_gpu_ns, flow.peer_ns, flow.wire_longest_ns, flow.own_gpu_longest_ns}));
  }
  record.attributes = {{"step", step.step.value()},
                       {"duration_ns", step.duration_ns},
                       {"self_ns", step.self_ns},
                       {"comm_ns", step.comm_ns},
                       {"queue_ns", step.queue_ns},
                       {"quiet_ns", step.quiet_ns},
                       {"quiet_from_unix_ns", step.quiet_from_unix_ns},
                       {"inferred", step.inferred},
                       {"records_lost", step.records_lost},
                       {"phases", std::move(phases)},
                       {"comms", std::move(comms)},
                       {"flows", std::move(flows)}};
  if (step.stopped_ns != 0) record.attributes.push_back({"stopped_ns", step.stopped_ns});
  if (step.unseen != 0) record.attributes.push_back({"unseen", step.unseen});
  if (step.split_known) {
    ValueList split;
    for (int64_t ns : step.split_ns) split.emplace_back(ns);
    record.attributes.push_back({"split", std::move(split)});
  }
  if (!step.scalars.empty()) {
    Attributes scalars;
    for (const StepScalar& scalar : step.scalars) scalars.push_back({scalar.name, scalar.value});
    record.attributes.push_back({"scalars", std::move(scalars)});
  }
  return record;
}

Result<StepSummary> step_from_record(const LogRecord& record) {
  StepSummary step;
  step.step = StepNumber{find_int(record.attributes, "step", -1)};
  step.duration_ns = find_int(record.attributes, "duration_ns", -1);
  if (step.step < 0_step) return Error{"train.step without a step number"};
  if (step.step > StepNumber{kCountMost})
    return Error{format("train.step %lld is not a step any job reaches", static_cast<long long>(step.step.value()))};
  if (step.duration_ns < 0 || step.duration_ns > kDayNs) {
    return Error{format("train.step %lld has a duration of %lld ns (0 to one day is possible)",
                        static_cast<long long>(step.step.value()), static_cast<long long>(step.duration_ns))};
  }
  step.start_unix_ns = record.time_unix_ns - step.duration_ns;
  LOCKSTEP_TRY(read_numbers(record.attributes, step));
  LOCKSTEP_TRY(read_phases(record.attributes, step));
  LOCKSTEP_TRY(read_split(record.attributes, step));
  LOCKSTEP_TRY(read_scalars(record.attributes, step));
  LOCKSTEP_TRY(read_comms(record.attributes, step));
  LOCKSTEP_TRY(read_flows(record.attributes, step));
  return step;
}

LogRecord to_record(const RankStatus& status) {
  LogRecord record = record_of(kEventRankStatus, status.time_unix_ns);
  ValueList comms;
  for (const CommStatus& comm : status.comms) {
    ValueList list =
        row({static_cast<int64_t>(comm.comm_id.value()), comm.size, comm.rank_in_comm,
             static_cast<int64_t>(comm.collectives_enqueued), static_cast<int64_t>(comm.collectives_completed),
             static_cast<int64_t>(comm.p2p_enqueued), static_cast<int64_t>(comm.p2p_completed)});
    append_op(list, comm.collective);
    append_op(list, comm.p2p);
    append_more_status(list, comm);
    comms.emplace_back(std::move(list));
  }
  record.attributes = {{"quiet_ns", status.quiet_ns},
                       {"process_alive", status.process_alive},
                       {"process_stopped", status.process_stopped},
                       {"last_call_unix_ns", status.last_call_unix_ns},
                       {"finished", status.finished},
                       {"step", status.step.value()},
                       {"phase", static_cast<int64_t>(status.phase)},
                       {"comms", std::move(comms)}};
  return record;
}

Result<RankStatus> status_from_record(const LogRecord& record) {
  RankStatus status;
  status.time_unix_ns = record.time_unix_ns;
  status.quiet_ns = find_int(record.attributes, "quiet_ns");
  if (status.quiet_ns < 0) return Error{"rank.status with a negative quiet_ns"};
  status.step = StepNumber{find_int(record.attributes, "step", -1)};
  if (status.quiet_ns > kQuietMost || status.step < kNoStep || status.step > StepNumber{kCountMost})
    return Error{format("rank.status at step %lld, quiet for %lld ns: no job is that far, or quiet for ten years",
                        static_cast<long long>(status.step.value()), static_cast<long long>(status.quiet_ns))};
  int64_t phase = find_int(record.attributes, "phase");
  status.phase = phase >= 0 && phase < static_cast<int64_t>(kPhaseCount) ? static_cast<Phase>(phase) : Phase::kOther;
  auto flag = [&](std::string_view key, bool fallback) {
    const Value* value = find(record.attributes, key);
    const bool* set = value ? std::get_if<bool>(&value->data) : nullptr;
    return set ? *set : fallback;
  };
  status.process_alive = flag("process_alive", true);
  status.process_stopped = flag("process_stopped", false);
  status.last_call_unix_ns = std::clamp(find_int(record.attributes, "last_call_unix_ns"), -kTimeMost, kTimeMost);
  status.finished = flag("finished", false);
  if (const ValueList* comms = find_list(record.attributes, "comms")) {
    if (comms->size() > kCommsPerStepMax)
      return Error{format("rank.status has %zu communicators (limit %zu)", comms->size(), kCommsPerStepMax)};
    for (const Value& item : *comms) {
      RowReader row(item);
      CommStatus comm;
      comm.comm_id = CommId{static_cast<uint64_t>(row.next())};
      comm.size = static_cast<int32_t>(row.next_in(0, kRanksMost));
      comm.rank_in_comm = static_cast<int32_t>(row.next_in(0, std::max(comm.size, 1) - 1));
      comm.collectives_enqueued = static_cast<uint64_t>(row.next_count());
      comm.collectives_completed = static_cast<uint64_t>(row.next_count());
      comm.p2p_enqueued = static_cast<uint64_t>(row.next_count());
      comm.p2p_completed = static_cast<uint64_t>(row.next_count());
      comm.collective = read_op(row);
      comm.p2p = read_op(row);
      read_more_status(row, comm);
      if (!row.ok()) return Error{format("rank.status: communicator row %zu is malformed", status.comms.size())};
      status.comms.push_back(std::move(comm));
    }
  }
  return status;
}

LogRecord to_record(const CommInit& comm, int64_t time_unix_ns) {
  LogRecord record = record_of(kEventCommInit, time_unix_ns);
  record.attributes = {{"comm_id", static_cast<int64_t>(comm.comm_id.value())},
                       {"size", static_cast<int64_t>(comm.size)},
                       {"rank_in_comm", static_cast<int64_t>(comm.rank_in_comm)},
                       {"nodes", static_cast<int64_t>(comm.nodes)},
                       {"name", comm.name}};
  return record;
}

Result<CommInit> comm_init_from_record(const LogRecord& record) {
  CommInit comm;
  comm.comm_id = CommId{static_cast<uint64_t>(find_int(record.attributes, "comm_id"))};
  int64_t size = find_int(record.attributes, "size");
  int64_t rank_in_comm = find_int(record.attributes, "rank_in_comm", -1);
  int64_t nodes = find_int(record.attributes, "nodes");
  comm.name = find_string(record.attributes, "name");
  if (size <= 0 || size > kRanksMost || rank_in_comm < 0 || rank_in_comm >= size) {
    return Error{format("comm.init: rank %lld of %lld is not possible", static_cast<long long>(rank_in_comm),
                        static_cast<long long>(size))};
  }
  if (nodes < 0 || nodes > kRanksMost || comm.name.size() > kIdentityTextMax) {
    return Error{format("comm.init: %lld nodes, or a name of %zu bytes (limit %zu)", static_cast<long long>(nodes),
                        comm.name.size(), kIdentityTextMax)};
  }
  comm.size = static_cast<int32_t>(size);
  comm.rank_in_comm = static_cast<int32_t>(rank_in_comm);
  comm.nodes = static_cast<int32_t>(nodes);
  return comm;
}

LogRecord to_record(const CommGroup& group, int64_t time_unix_ns) {
  LogRecord record = record_of(kEventCommGroup, time_unix_ns);
  record.attributes = {{"name", group.name}, {"ranks", ranks_text(group.ranks)}};
  return record;
}

Result<CommGroup> comm_group_from_record(const LogRecord& record) {
  CommGroup group;
  group.name = find_string(record.attributes, "name");
  if (group.name.empty() || group.name.size() > kIdentityTextMax || has_control_characters(group.name))
    return Error{format("comm.group: a name of %zu bytes (1 to %zu), or one with control characters", group.name.size(),
                        kIdentityTextMax)};
  Result<std::vector<Rank>> ranks = ranks_from_text(find_string(record.attributes, "ranks"), kGroupRanksMax);
  if (!ranks.ok()) return prefixed(ranks.failure(), "comm.group: ");
  if (ranks->empty()) return Error{"comm.group: no ranks"};
  group.ranks = std::move(*ranks);
  return group;
}

LogRecord to_record(const Gap& gap, int64_t time_unix_ns) {
  LogRecord record = record_of(kEventGap, time_unix_ns);
  record.severity = 13;  // WARN
  record.attributes = {{"reason", gap.reason}, {"records", gap.records}};
  return record;
}

LogRecord to_record(const CommRas& ras, int64_t time_unix_ns) {
  LogRecord record = record_of(kEventCommRas, time_unix_ns);
  record.severity = 13;  // WARN
  ValueList missing;
  for (const RasMissing& rank : std::span(ras.missing).first(std::min(ras.missing.size(), kRasMissingMax))) {
    ValueList list = row({rank.rank_in_comm, rank.pid, rank.unresponsive ? 1 : 0, rank.considered_dead ? 1 : 0});
    list.emplace_back(rank.host.substr(0, kIdentityTextMax));
    missing.emplace_back(std::move(list));
  }
  ValueList behind;
  for (const RasBehind& function : std::span(ras.behind).first(std::min(ras.behind.size(), kRasBehindMax))) {
    ValueList list;
    list.emplace_back(function.function);
    for (int64_t number : {function.launched, function.launched_most, function.ranks_count}) list.emplace_back(number);
    for (size_t i = 0; i < std::min(function.ranks_in_comm.size(), kRasBehindRanksMax); ++i)
      list.emplace_back(static_cast<int64_t>(function.ranks_in_comm[i]));
    behind.emplace_back(std::move(list));
  }
  record.attributes = {{"comm_id", static_cast<int64_t>(ras.comm_id.value())},
                       {"size", static_cast<int64_t>(ras.size)},
                       {"missing_count", ras.missing_count},
                       {"missing", std::move(missing)},
                       {"behind", std::move(behind)}};
  return record;
}

LogRecord job_start_record(int64_t time_unix_ns) {
  return record_of(kEventJobStart, time_unix_ns);
}

LogRecord job_end_record(const RankEnd& end) {
  LogRecord record = record_of(kEventJobEnd, end.time_unix_ns);
  record.attributes = {{"clean", end.clean}};
  if (end.exit) {
    record.attributes.push_back({"exit_code", static_cast<int64_t>(end.exit->code)});
    record.attributes.push_back({"signal", static_cast<int64_t>(end.exit->signal)});
  }
  if (!end.reason.empty()) {
    record.attributes.push_back({"reason", end.reason});
    record.attributes.push_back({"reason_unix_ns", end.reason_unix_ns});
  }
  return record;
}

RankEnd rank_end_from_record(const LogRecord& record) {
  const Value* clean = find(record.attributes, "clean");
  const bool* flag = clean ? std::get_if<bool>(&clean->data) : nullptr;
  RankEnd end{.time_unix_ns = std::max<int64_t>(0, record.time_unix_ns), .clean = flag != nullptr && *flag};
  const int64_t code = find_int(record.attributes, "exit_code", -1);
  const int64_t signal = find_int(record.attributes, "signal", -1);
  if (code >= 0 && code <= 255 && signal >= 0 && signal <= 64)
    end.exit = ExitStatus{.code = static_cast<int32_t>(code), .signal = static_cast<int32_t>(signal)};
  end.reason = as_one_line(utf8_prefix(find_string(record.attributes, "reason"), kEndReasonBytesMax));
  if (!end.reason.empty()) end.reason_unix_ns = std::max<int64_t>(0, find_int(record.attributes, "reason_unix_ns", 0));
  return end;
}

}  // namespace lockstep
