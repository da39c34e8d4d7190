// GET /api/jobs/{job}/steps/{step}/timeline: the step as a picture, reduced to the screen that asks for it.
#include "analysis/step/timeline.h"

#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "model/events.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep {
namespace {

constexpr int64_t kColumnsDefault = 1'200;
constexpr int64_t kLinesDefault = 400;

void write_spans(JsonWriter& json, const Timeline& timeline) {
  json.key("spans").begin_array();
  for (const TimelineSpan& span : timeline.spans) {
    json.begin_object()
        .field("rank", span.rank.value())
        .field("kind", std::string(1, letter_of(span.kind)))
        .field("name", span.name)
        .field("from_ns", span.from_ns)
        .field("duration_ns", span.duration_ns);
    if (span.op != nullptr) {
      json.field("wait_ns", span.wait_ns)
          .field("comm_id", comm_id_text(span.op->comm_id))
          .field("ordinal", span.op->ordinal)
          .field("bytes", span.op->bytes)
          .field("queue_ns", span.op->start_unix_ns - span.op->enqueued_unix_ns);
      if (span.op->p2p) json.field("peer", span.op->peer);
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace

HttpResponse get_timeline(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  std::optional<int64_t> step = parse_int(request.step);
  if (!step || *step < 0)
    return error_answer(400, format("step is \"%.40s\"; it must be a number", request.step.c_str()));
  Result<int64_t> columns = int_parameter(request.http, "columns", kColumnsDefault, 1, kTimelineColumnsMax);
  Result<int64_t> lines = int_parameter(request.http, "lines", kLinesDefault, 1, kTimelineLinesMax);
  Result<int64_t> from = int_parameter(request.http, "from_ns", 0, 0, INT64_MAX);
  Result<int64_t> to = int_parameter(request.http, "to_ns", 0, 0, INT64_MAX);
  Result<int64_t> spans = int_parameter(request.http, "spans", 4'000, 0, 20'000);
  for (const Result<int64_t>* number : {&columns, &lines, &from, &to, &spans}) {
    if (!number->ok()) return error_answer(400, number->error());
  }
  const std::string ranks_wanted = request.http.parameter("ranks");
  Result<std::vector<Rank>> ranks = std::vector<Rank>{};
  if (!ranks_wanted.empty()) ranks = ranks_from_text(ranks_wanted, kGroupRanksMax);
  if (!ranks.ok()) return error_answer(400, "ranks: " + ranks.error());

  std::shared_ptr<const StepTrace> trace = context.traces.get(job->job_id, job->attempt, StepNumber{*step});
  std::sort(ranks->begin(), ranks->end());
  const Timeline timeline = make_timeline(trace->ranks, trace->clocks,
                                          {.from_ns = *from,
                                           .to_ns = *to,
                                           .ranks = std::move(*ranks),
                                           .columns = static_cast<size_t>(*columns),
                                           .lines = static_cast<size_t>(*lines),
                                           .spans_most = static_cast<size_t>(*spans)});
  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("step", *step)
      .field("start_unix_ns", timeline.start_unix_ns)
      .field("length_ns", timeline.length_ns)
      .field("from_ns", timeline.from_ns)
      .field("to_ns", timeline.to_ns)
      .field("columns", static_cast<uint64_t>(timeline.columns))
      .field("ranks_shown", static_cast<uint64_t>(timeline.ranks))
      .field("ranks_traced", static_cast<uint64_t>(trace->ranks.size()))
      .field("ranks_total", static_cast<uint64_t>(job->ranks.size()));
  write_number(json, "clock_error_us", trace->clocks.error_ns() / 1e3);
  json.key("kinds").begin_object();
  for (size_t i = 0; i < kCellKindCount; ++i) {
    const auto kind = static_cast<CellKind>(i);
    json.field(std::string(1, letter_of(kind)), to_text(kind));
  }
  json.end_object().key("lines").begin_array();
  for (const TimelineLine& line : timeline.lines) {
    json.begin_object()
        .field("first_rank", line.first_rank.value())
        .field("last_rank", line.last_rank.value())
        .field("shown_rank", line.shown_rank.value())
        .field("cells", line.cells)
        .end_object();
  }
  json.end_array();
  write_spans(json, timeline);
  json.field("spans_in_view", static_cast<uint64_t>(timeline.spans_in_view)).end_object();
  return json_answer(json);
}

}  // namespace lockstep
