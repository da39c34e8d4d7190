// GET /api/jobs/{job}/steps/{step}: who waited for whom in one step, the critical path, where the time went.
// GET /api/jobs/{job}/traced: steps of which there is detail.
#include <algorithm>

#include "analysis/step/step_analysis.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep {
namespace {

using Analysis = StepAnalysis;

double milliseconds(int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

// "AllReduce #812"; empty where which one is not known.
std::string operation(const std::string& function, uint64_t number) {
  return function.empty() ? "" : format("%s #%llu", function.c_str(), static_cast<unsigned long long>(number));
}

class Writer {
 public:
  Writer(JsonWriter& json, const Analysis& step, const CommRoles& roles) : json_(json), step_(step), roles_(roles) {}

  void coverage() {
    json_.key("coverage")
        .begin_object()
        .field("ranks", static_cast<uint64_t>(step_.ranks_total))
        .field("detailed", static_cast<uint64_t>(step_.ranks_detailed))
        .field("summarized", static_cast<uint64_t>(step_.ranks_summarized))
        .field("ranks_missing", ranks_text(step_.ranks_missing))
        .field("missing", static_cast<uint64_t>(step_.ranks_missing.size()))
        .field("left_out", step_.left_out)
        .field("untimed", step_.untimed)
        .end_object();
    json_.key("clock").begin_object();
    write_number(json_, "error_us", step_.clock_error_ns / 1e3);
    json_.field("unknown", static_cast<uint64_t>(step_.clocks_unknown)).end_object();
  }

  void culprit() {
    const Analysis::Culprit& culprit = step_.culprit;
    json_.key("culprit");
    if (culprit.rank == kNoRank) {
      json_.null();
      return;
    }
    json_.begin_object()
        .field("rank", culprit.rank.value())
        .field("ranks_waiting", static_cast<uint64_t>(culprit.ranks));
    write_number(json_, "wait_ms", milliseconds(culprit.typical_ns));
    write_number(json_, "longest_ms", milliseconds(culprit.most_ns));
    write_number(json_, "caused_ms", milliseconds(culprit.caused_ns));
    json_.field("doing", culprit.doing).end_object();
  }

  void ranks(size_t most) {
    const size_t shown = std::min(step_.ranks.size(), most);
    json_.key("ranks").begin_array();
    for (size_t i = 0; i < shown; ++i) {
      const Analysis::RankTimes& rank = step_.ranks[i];
      json_.begin_object().field("rank", rank.rank.value()).field("host", rank.host).field("detail", rank.detail);
      write_number(json_, "start_ms", milliseconds(rank.start_ns));
      write_number(json_, "duration_ms", milliseconds(rank.duration_ns));
      write_number(json_, "own_ms", milliseconds(rank.own_ns));
      write_number(json_, "wait_ms", milliseconds(rank.wait_ns));
      write_number(json_, "transfer_ms", milliseconds(rank.transfer_ns));
      write_number(json_, "caused_ms", milliseconds(rank.caused_ns));
      write_number(json_, "path_ms", milliseconds(rank.path_ns));
      json_.field("last", rank.last).end_object();
    }
    json_.end_array();
    total("ranks", step_.ranks.size(), shown);
  }

  void waits(size_t most) {
    const size_t shown = std::min(step_.waits.size(), most);
    json_.key("waits").begin_array();
    for (size_t i = 0; i < shown; ++i) {
      const Analysis::Wait& wait = step_.waits[i];
      json_.begin_object().field("rank", wait.waiter.value()).field("for", wait.awaited.value());
      write_number(json_, "wait_ms", milliseconds(wait.wait_ns));
      json_.field("operations", wait.operations);
      write_number(json_, "longest_ms", milliseconds(wait.longest_ns));
      comm(wait.comm_id);
      json_.field("operation", operation(wait.function, wait.number)).field("from_summary", wait.from_summary);
      json_.end_object();
    }
    json_.end_array();
    total("waits", step_.waits_total, shown);
  }

  void path(size_t most) {
    const std::vector<Analysis::Piece> pieces = shortened(step_.path, most);
    json_.key("path").begin_array();
    for (const Analysis::Piece& piece : pieces) {
      json_.begin_object().field("rank", piece.rank.value()).field("kind", to_text(piece.kind));
      write_number(json_, "from_ms", milliseconds(piece.from_ns));
      write_number(json_, "to_ms", milliseconds(piece.to_ns));
      if (piece.kind == Analysis::Kind::kOwn) json_.field("phase", piece.what);
      if (piece.kind == Analysis::Kind::kCommunication || piece.kind == Analysis::Kind::kWaiting) {
        json_.field("operation", operation(piece.what, piece.number));
        comm(piece.comm_id);
      }
      if (piece.waited_by != kNoRank) {
        json_.field("waited_by", piece.waited_by.value());
        write_number(json_, "waited_ms", milliseconds(piece.waited_ns));
      }
      if (piece.kind == Analysis::Kind::kWaiting) {
        json_.key("waits_for");
        piece.waits_for != kNoRank ? json_.number(piece.waits_for.value()) : json_.null();
      }
      json_.end_object();
    }
    json_.end_array();
    total("path", step_.path_total, pieces.size());
    json_.key("path_ms").begin_object();
    for (size_t i = 0; i < step_.path_ns.size(); ++i)
      write_number(json_, to_text(static_cast<Analysis::Kind>(i)), milliseconds(step_.path_ns[i]));
    json_.end_object();
  }

  void comms(size_t most) {
    const size_t shown = std::min(step_.comms.size(), most);
    json_.key("comms").begin_array();
    for (size_t i = 0; i < shown; ++i) {
      const Analysis::Comm& entry = step_.comms[i];
      const CommRole* role = roles_.find(entry.comm_id);
      std::vector<Rank> members;
      if (role != nullptr) {
        std::copy_if(role->members.begin(), role->members.end(), std::back_inserter(members),
                     [](Rank rank) { return rank != kNoRank; });
      }
      json_.begin_object();
      comm(entry.comm_id);
      json_.field("size", role == nullptr ? 0 : role->size)
          .field("ranks", ranks_text(members))
          .field("operations", entry.operations)
          .field("functions", entry.functions)
          .field("bytes", entry.bytes);
      write_number(json_, "gpu_ms", milliseconds(entry.gpu_ns));
      write_number(json_, "wait_ms", milliseconds(entry.wait_ns));
      write_number(json_, "transfer_ms", milliseconds(entry.transfer_ns));
      json_.key("bus_gb_s");
      entry.bus_gb_s > 0 ? json_.number(rounded(entry.bus_gb_s)) : json_.null();
      json_.key("last_rank");
      entry.last_rank != kNoRank ? json_.number(entry.last_rank.value()) : json_.null();
      json_.field("last", entry.last).end_object();
    }
    json_.end_array();
    total("comms", step_.comms.size(), shown);
  }

  void phases() {
    json_.key("phases").begin_array();
    for (const Analysis::PhasePart& phase : step_.phases) {
      json_.begin_object().field("phase", phase.name).field("ranks", static_cast<uint64_t>(phase.ranks));
      write_number(json_, "mean_ms", milliseconds(phase.mean_ns));
      write_number(json_, "own_ms", milliseconds(phase.own_ns));
      write_number(json_, "longest_ms", milliseconds(phase.longest_ns));
      json_.field("longest_rank", phase.longest_rank.value()).end_object();
    }
    json_.end_array();
    json_.key("late").begin_object().key("below_us").begin_array();
    for (int64_t limit : {10, 100, 1'000, 10'000, 100'000, 1'000'000}) json_.number(limit);
    json_.null().end_array().key("operations").begin_array();
    for (int64_t count : step_.late) json_.number(count);
    json_.end_array().field("undecided", step_.undecided).end_object();
  }

 private:
  void comm(CommId comm_id) {
    if (comm_id == kNoCommId) return;
    const CommRole* role = roles_.find(comm_id);
    json_.field("comm_id", comm_id_text(comm_id))
        .field("comm", role == nullptr ? "group" : role->label())
        .field("comm_index", role == nullptr ? 0 : role->index);
  }
  void total(const char* of, size_t all, size_t shown) {
    json_.field(std::string(of) + "_total", static_cast<uint64_t>(all))
        .field(std::string(of) + "_shown", static_cast<uint64_t>(shown));
  }

  JsonWriter& json_;
  const Analysis& step_;
  const CommRoles& roles_;
};

// The newest with detail, else the newest that the slowest rank is through with.
StepNumber latest_step(const ApiContext& context, const JobInfo& job) {
  const Page<TracedStep> traced = context.spans.traced_steps(job.job_id, job.attempt, 1);
  if (!traced.items.empty()) return traced.items[0].step;
  StepNumber newest = job.last_step;
  for (const RankInfo& rank : job.ranks) {
    if (rank.last_step >= 0_step) newest = std::min(newest, rank.last_step);
  }
  return newest;
}

}  // namespace

HttpResponse get_step(const ApiContext& context, const ApiRequest& request) {
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const Result<StepNumber> step =
      step_of_path(request.step, request.step == "latest" ? latest_step(context, *job) : 0_step);
  if (!step.ok()) return error_answer(400, step.error());
  const Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 1000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const Result<int64_t> pieces = int_parameter(request.http, "path", 200, 1, 2000);
  if (!pieces.ok()) return error_answer(400, pieces.error());

  const std::shared_ptr<const StepTrace> trace = context.traces.get(job->job_id, job->attempt, *step);
  const std::vector<StepRow> rows = context.steps.steps(job->job_id, *step, *step);
  if (trace->ranks.empty() && rows.empty()) {
    return error_answer(404, format("step %lld of job \"%s\" is not known (any more); its last step is %lld",
                                    static_cast<long long>(step->value()), job->job_id.c_str(),
                                    static_cast<long long>(job->last_step.value())));
  }
  const CommRoles roles = comm_roles(context.steps, *job);
  const StepAnalysis analysis = analyze_step(*job, *step, trace->ranks, rows, roles, trace->clocks);

  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("attempt", job->attempt)
      .field("step", step->value())
      .field("trace_id", to_hex(step_trace_id(job->job_id, job->attempt, *step)))
      .field("sentence", sentence_of(analysis))
      .field("detail", analysis.detail)
      .field("inferred", analysis.inferred)
      .field("begin_unix_ns", analysis.begin_unix_ns);
  write_number(json, "length_ms", milliseconds(analysis.length_ns));
  write_number(json, "median_ms", milliseconds(analysis.median_ns));
  Writer writer(json, analysis, roles);
  writer.coverage();
  writer.culprit();
  writer.ranks(static_cast<size_t>(*limit));
  writer.waits(static_cast<size_t>(*limit));
  writer.path(static_cast<size_t>(*pieces));
  writer.comms(static_cast<size_t>(*limit));
  writer.phases();
  json.end_object();
  return json_answer(json);
}

HttpResponse get_traced(const ApiContext& context, const ApiRequest& request) {
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const Page<TracedStep> page = context.spans.traced_steps(job->job_id, job->attempt, static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().field("job_id", job->job_id).field("attempt", job->attempt);
  write_answers(json, context, *job);
  json.key("steps").begin_array();
  for (const TracedStep& step : page.items) {
    json.begin_object()
        .field("step", step.step.value())
        .field("trace_id", to_hex(step_trace_id(job->job_id, job->attempt, step.step)))
        .field("start_unix_ns", step.start_unix_ns)
        .field("ranks", static_cast<uint64_t>(step.ranks))
        .field("spans", static_cast<uint64_t>(step.spans))
        .end_object();
  }
  return list_answer(json, page.total, page.items.size());
}

}  // namespace lockstep
