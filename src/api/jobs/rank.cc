// GET /api/jobs/{job}/ranks/{rank}: one rank: its steps, communicators and flows, and where it stands.
#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "model/step_detail.h"

namespace lockstep {
namespace {

double milliseconds(int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

const char* to_text(OpState state) {
  switch (state) {
    case OpState::kNone:
      return "none";
    case OpState::kEnqueued:
      return "enqueued";
    case OpState::kStarted:
      return "started";
    case OpState::kCompleted:
      return "completed";
  }
  return "none";
}

// Model FLOPs utilisation: what the step computed over what its GPU could have computed in that time.
void write_mfu(JsonWriter& json, const StepSummary& step) {
  double flops = 0;
  double peak_flops = 0;
  for (const StepScalar& scalar : step.scalars) {
    if (scalar.name == "flops") flops = scalar.value;
    if (scalar.name == "peak_flops") peak_flops = scalar.value;
  }
  if (flops > 0 && peak_flops > 0 && step.duration_ns > 0) {
    json.field("mfu", flops / (static_cast<double>(step.duration_ns) / 1e9 * peak_flops));
  } else {
    json.key("mfu").null();
  }
}

void write_step(JsonWriter& json, const StepSummary& step) {
  json.begin_object().field("step", step.step.value()).field("start_unix_ns", step.start_unix_ns);
  write_number(json, "duration_ms", milliseconds(step.duration_ns));
  write_number(json, "self_ms", milliseconds(step.self_ns));
  write_number(json, "comm_ms", milliseconds(step.comm_ns));
  write_number(json, "queue_ms", milliseconds(step.queue_ns));
  write_number(json, "quiet_ms", milliseconds(step.quiet_ns));
  json.field("inferred", step.inferred).field("records_lost", step.records_lost).key("phases_ms").begin_object();
  for (size_t i = 1; i < kPhaseCount; ++i) {
    if (step.phase_ns[i] != 0)
      write_number(json, lockstep::to_text(static_cast<Phase>(i)), milliseconds(step.phase_ns[i]));
  }
  json.end_object().key("parts_ms");
  if (step.split_known) {
    json.begin_object();
    for (size_t i = 0; i < kTimePartCount; ++i)
      write_number(json, lockstep::to_text(static_cast<TimePart>(i)), milliseconds(step.split_ns[i]));
    json.end_object();
  } else {
    json.null();
  }
  json.key("scalars").begin_object();
  for (const StepScalar& scalar : step.scalars) json.field(scalar.name, scalar.value);  // a learning rate is small
  json.end_object();
  write_mfu(json, step);
  json.key("comms").begin_array();
  for (const CommStep& comm : step.comms) {
    json.begin_object()
        .field("comm_id", comm_id_text(comm.comm_id))
        .field("size", comm.size)
        .field("p2p", comm.p2p)
        .field("count", comm.count)
        .field("bytes", comm.bytes);
    write_number(json, "gpu_ms", milliseconds(comm.gpu_ns));
    write_number(json, "shortest_ms", milliseconds(comm.shortest_ns));
    write_number(json, "longest_ms", milliseconds(comm.longest_ns));
    write_number(json, "gb_s",
                 comm.gpu_ns > 0 ? static_cast<double>(comm.bytes) / static_cast<double>(comm.gpu_ns) : 0);
    json.end_object();
  }
  json.end_array().key("flows").begin_array();
  for (const FlowStep& flow : step.flows) {
    json.begin_object()
        .field("comm_id", comm_id_text(flow.comm_id))
        .field("peer", flow.peer)
        .field("send", flow.send)
        .field("transfers", flow.transfers)
        .field("bytes", flow.bytes);
    write_number(json, "wire_ms", milliseconds(flow.wire_ns));
    write_number(json, "own_gpu_ms", milliseconds(flow.own_gpu_ns));
    write_number(json, "peer_ms", milliseconds(flow.peer_ns));
    json.end_object();
  }
  json.end_array().end_object();
}

void write_op(JsonWriter& json, std::string_view name, const OpStatus& op) {
  json.key(name)
      .begin_object()
      .field("state", to_text(op.state))
      .field("ordinal", op.ordinal)
      .field("seq", op.seq)
      .field("function", op.function)
      .field("datatype", op.datatype)
      .field("bytes", op.bytes)
      .field("peer", op.peer)
      .field("since_unix_ns", op.since_unix_ns)
      .field("end_not_seen", op.end_not_seen)
      .end_object();
}

void write_status(JsonWriter& json, const RankStatus& status) {
  json.begin_object().field("time_unix_ns", status.time_unix_ns);
  write_number(json, "quiet_ms", milliseconds(status.quiet_ns));
  json.field("alive", status.process_alive)
      .field("finished", status.finished)
      .field("step", status.step.value())
      .field("phase", lockstep::to_text(status.phase))
      .key("comms")
      .begin_array();
  for (const CommStatus& comm : status.comms) {
    json.begin_object()
        .field("comm_id", comm_id_text(comm.comm_id))
        .field("size", comm.size)
        .field("rank_in_comm", comm.rank_in_comm)
        .field("collectives_enqueued", comm.collectives_enqueued)
        .field("collectives_completed", comm.collectives_completed)
        .field("p2p_enqueued", comm.p2p_enqueued)
        .field("p2p_completed", comm.p2p_completed)
        .field("collective_calls", comm.collective_calls)
        .field("p2p_calls", comm.p2p_calls);
    json.key("launched");
    comm.launched >= 0 ? json.number(comm.launched) : json.null();
    write_op(json, "collective", comm.collective);
    write_op(json, "p2p", comm.p2p);
    json.key("network")
        .begin_object()
        .field("waits_for", comm.proxy.state)
        .field("send", comm.proxy.send)
        .field("peer", comm.proxy.peer)
        .field("since_unix_ns", comm.proxy.since_unix_ns)
        .end_object();
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace

HttpResponse get_rank(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  std::optional<int64_t> number = parse_int(request.rank);
  if (!number)
    return error_answer(400, format("\"%.40s\" is not a rank; a rank is a whole number", request.rank.c_str()));
  auto rank = std::find_if(job->ranks.begin(), job->ranks.end(),
                           [&](const RankInfo& info) { return info.identity.rank.value() == *number; });
  if (rank == job->ranks.end()) {
    return error_answer(404, format("rank %lld of job \"%s\" has not been heard of; %zu ranks have",
                                    static_cast<long long>(*number), job->job_id.c_str(), job->ranks.size()));
  }
  Result<StepRange> range = step_range(request.http, rank->last_step, 50);
  if (!range.ok()) return error_answer(400, range.error());

  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("rank", rank->identity.rank.value())
      .field("host", rank->identity.host)
      .field("local_rank", rank->identity.local_rank)
      .field("gpu_uuid", rank->identity.gpu_uuid)
      .field("state", rank_state(*rank, context.clock.unix_ns()))
      .field("last_seen_unix_ns", rank->last_seen_unix_ns)
      .field("records_lost", rank->records_lost)
      .key("communicators")
      .begin_array();
  for (const CommInit& comm : rank->comms) {
    json.begin_object()
        .field("comm_id", comm_id_text(comm.comm_id))
        .field("size", comm.size)
        .field("rank_in_comm", comm.rank_in_comm)
        .field("nodes", comm.nodes)
        .field("name", comm.name)
        .end_object();
  }
  json.end_array().key("steps").begin_array();
  uint64_t shown = 0;
  context.steps.visit_steps(job->job_id, range->from, range->to,
                            [&](const Identity& identity, const StepSummary& step) {
                              if (identity.rank != rank->identity.rank) return;
                              write_step(json, step);
                              ++shown;
                            });
  json.end_array().field("total_steps", (rank->last_step + 1).value()).field("shown", shown).key("status");
  if (rank->status) {
    write_status(json, *rank->status);
  } else {
    json.null();
  }
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
