// GET /api/jobs/{job}/stacks: where ranks stood when they were last asked, and what PyTorch's Flight Recorder had.
// POST: the agents are asked for the stacks of these ranks now.
#include <algorithm>
#include <set>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/asked.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "model/events.h"
#include "model/rank_evidence.h"
#include "model/rank_text.h"
#include "model/stack_groups.h"

namespace lockstep {
namespace {

constexpr size_t kLogsLooked = 10'000;

void write_frames(JsonWriter& json, const char* key, const std::vector<StackFrame>& frames) {
  json.key(key).begin_array();
  for (const StackFrame& frame : frames)
    json.begin_object()
        .field("function", frame.function)
        .field("file", frame.file)
        .field("line", frame.line)
        .end_object();
  json.end_array();
}

void write_op(JsonWriter& json, const DumpOp& op) {
  static constexpr const char* kStates[] = {"none", "scheduled", "started", "completed"};
  json.begin_object()
      .field("seq", op.seq)
      .field("operation", op.name)
      .field("sizes", op.sizes)
      .field("dtype", op.dtype)
      .field("state", kStates[static_cast<size_t>(op.state) & 3])
      .field("created_unix_ns", op.created_unix_ns)
      .field("caller", op.caller.file.empty() ? std::string() : to_text(op.caller))
      .end_object();
}

void write(JsonWriter& json, const Identity& who, const RankStack& stack) {
  json.begin_object()
      .field("rank", who.rank.value())
      .field("host", who.host)
      .field("pid", stack.pid)
      .field("time_unix_ns", stack.time_unix_ns)
      .field("where", where_text(stack))
      .field("note", stack.note)
      .field("threads_count", stack.threads_count)
      .key("threads")
      .begin_array();
  for (const ThreadStack& thread : stack.threads) {
    json.begin_object()
        .field("tid", thread.tid)
        .field("name", thread.name)
        .field("state", std::string(1, thread.state))
        .field("wchan", thread.wchan)
        .field("syscall", thread.syscall)
        .key("kernel")
        .begin_array();
    for (const std::string& function : thread.kernel) json.string(function);
    json.end_array().end_object();
  }
  json.end_array().key("python").begin_array();
  for (const PythonStack& thread : stack.python) {
    json.begin_object().field("main", thread.main).field("name", thread.name);
    write_frames(json, "frames", thread.frames);
    json.end_object();
  }
  json.end_array().end_object();
}

void write(JsonWriter& json, const Identity& who, const FlightDump& dump) {
  json.begin_object()
      .field("rank", who.rank.value())
      .field("host", who.host)
      .field("time_unix_ns", dump.time_unix_ns)
      .field("file", dump.file)
      .field("version", dump.version)
      .field("entries", dump.entries)
      .key("last");
  write_op(json, dump.last);
  write_frames(json, "frames", dump.frames);
  json.key("groups").begin_array();
  for (const DumpGroup& group : dump.groups) {
    json.begin_object()
        .field("name", group.name)
        .field("desc", group.desc)
        .field("size", group.size)
        .field("ranks", group.ranks)
        .field("last_enqueued", group.last_enqueued)
        .field("last_started", group.last_started)
        .field("last_completed", group.last_completed)
        .key("ops")
        .begin_array();
    for (const DumpOp& op : group.ops) write_op(json, op);
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

// The newest of each rank of this job and attempt; ranks in order. `read` gives a value or an error. What was written.
template <typename Read>
auto write_newest(const ApiContext& context, const JobInfo& job, const std::set<Rank>& wanted, std::string_view event,
                  Read read, JsonWriter& json) {
  Page<StoredLog> page = context.steps.logs("", event, kLogsLooked);
  std::map<Rank, std::pair<Identity, const LogRecord*>> newest;
  for (const StoredLog& item : page.items) {  // newest first
    Result<Identity> who = identity_from_resource(*item.resource);
    if (!who.ok() || who->job_id != job.job_id || who->attempt != job.attempt) continue;
    if (!wanted.empty() && !wanted.contains(who->rank)) continue;
    newest.try_emplace(who->rank, *who, &item.record);
  }
  std::map<Rank, std::decay_t<decltype(*read(*newest.begin()->second.second))>> written;
  for (const auto& [rank, entry] : newest) {
    auto value = read(*entry.second);
    if (!value.ok()) continue;
    write(json, entry.first, *value);
    written.emplace(rank, std::move(*value));
  }
  return written;
}

Result<std::set<Rank>> wanted_ranks(const ApiRequest& request, size_t most) {
  const std::string text = request.http.parameter("ranks");
  if (text.empty()) return std::set<Rank>();
  Result<std::vector<Rank>> ranks = ranks_from_text(text, most);
  if (!ranks.ok()) return prefixed(ranks.failure(), "ranks: ");
  return std::set<Rank>(ranks->begin(), ranks->end());
}

}  // namespace

HttpResponse get_stacks(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<std::set<Rank>> ranks = wanted_ranks(request, kDetailRanksMax);
  if (!ranks.ok()) return error_answer(400, ranks.error());
  JsonWriter json;
  json.begin_object().field("job_id", job->job_id).field("attempt", job->attempt).key("stacks").begin_array();
  const std::map<Rank, RankStack> stacks =
      write_newest(context, *job, *ranks, kEventRankStack, rank_stack_from_record, json);
  json.end_array().key("groups").begin_array();
  for (const StackGroup& group : group_stacks(stacks))
    json.begin_object()
        .field("where", group.where)
        .field("ranks", ranks_text(group.ranks))
        .field("ranks_count", static_cast<int64_t>(group.ranks.size()))
        .end_object();
  json.end_array().key("dumps").begin_array();
  write_newest(context, *job, *ranks, kEventCommDump, flight_dump_from_record, json);
  json.end_array().end_object();
  return json_answer(json);
}

HttpResponse post_stacks(const ApiContext& context, const ApiRequest& request) {
  if (from_another_site(request.http)) return error_answer(403, "asked from a page of another site");
  if (!context.ask_stacks) return error_answer(501, "this server asks no agents");
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<std::set<Rank>> ranks = wanted_ranks(request, kStackRanksMax);
  if (!ranks.ok()) return error_answer(400, ranks.error());
  if (ranks->empty()) return error_answer(400, format("ranks=LIST says whose: 1 to %zu ranks", kStackRanksMax));
  const DetailAsked asked = context.ask_stacks(
      *job, {.job_id = job->job_id, .attempt = job->attempt, .ranks = {ranks->begin(), ranks->end()}});
  if (std::optional<HttpResponse> later = refuse_asked(asked)) return std::move(*later);
  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("attempt", job->attempt)
      .field("asked_unix_ns", context.clock.unix_ns());
  return asked_answer(json, asked);
}

}  // namespace lockstep
