// GET /api/jobs/{job}/steps: rank x step matrix for the heat map.
#include <algorithm>
#include <cmath>
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/job_view.h"
#include "api/step_window.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kStepsMax = 500;
constexpr size_t kRanksMax = 4096;

struct Range {
  int64_t from = 0;
  int64_t to = 0;
};

Result<Range> range_of(const ServerRequest& request, int64_t last_step) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  bool has_from = !request.parameter("from").empty();
  bool has_to = !request.parameter("to").empty();
  if (has_from != has_to) return Error{"from and to come together: ?from=100&to=299"};
  if (!has_from) {
    Result<int64_t> last = int_parameter(request, "last", 200, 1, kStepsMax);
    if (!last.ok()) return Error{last.error()};
    return Range{std::max<int64_t>(0, last_step - *last + 1), last_step};
  }
  if (!request.parameter("last").empty()) return Error{"give last, or from and to, not both"};
  Result<int64_t> from = int_parameter(request, "from", 0, 0, kLargest);
  if (!from.ok()) return Error{from.error()};
  Result<int64_t> to = int_parameter(request, "to", 0, 0, kLargest);
  if (!to.ok()) return Error{to.error()};
  if (*to < *from || *to - *from >= kStepsMax) {
    return Error{format("from %lld to %lld is not a window of 1 to %lld steps", static_cast<long long>(*from),
                        static_cast<long long>(*to), static_cast<long long>(kStepsMax))};
  }
  return Range{*from, *to};
}

// One value per rank and step; NaN (null): nothing was heard.
class Matrix {
 public:
  explicit Matrix(size_t ranks) : rows_(ranks) {}
  void set(size_t rank, size_t step, double value) {
    rows_[rank].resize(step + 1, std::numeric_limits<double>::quiet_NaN());
    rows_[rank][step] = value;
  }
  void write(JsonWriter& json, std::string_view name, size_t steps) {
    json.key(name).begin_array();
    for (std::vector<double>& row : rows_) {
      row.resize(steps, std::numeric_limits<double>::quiet_NaN());
      json.begin_array();
      for (double value : row) json.number(rounded(value));
      json.end_array();
    }
    json.end_array();
  }

 private:
  std::vector<std::vector<double>> rows_;
};

}  // namespace

HttpResponse get_steps(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<Range> range = range_of(request.http, job->last_step);
  if (!range.ok()) return error_answer(400, range.error());
  Result<int64_t> rank_from = int_parameter(request.http, "rank_from", 0, 0, std::numeric_limits<int32_t>::max());
  if (!rank_from.ok()) return error_answer(400, rank_from.error());

  auto first = std::find_if(job->ranks.begin(), job->ranks.end(),
                            [&](const RankInfo& rank) { return rank.identity.rank >= *rank_from; });
  size_t begin = static_cast<size_t>(first - job->ranks.begin());
  size_t end = std::min(job->ranks.size(), begin + kRanksMax);

  Matrix duration(end - begin), self(end - begin), excess(end - begin), input(end - begin);
  std::vector<StepParts> parts;
  visit_window(context.steps, *job, range->from, range->to,
               [&](const StepParts& step, std::span<const StepCell> cells) {
                 for (const StepCell& cell : cells) {
                   if (cell.rank_index < begin || cell.rank_index >= end) continue;
                   duration.set(cell.rank_index - begin, parts.size(), cell.duration_ms);
                   self.set(cell.rank_index - begin, parts.size(), cell.self_ms);
                   excess.set(cell.rank_index - begin, parts.size(), cell.excess_ms);
                   input.set(cell.rank_index - begin, parts.size(), cell.input_ms);
                 }
                 parts.push_back(step);
               });

  JsonWriter json;
  json.begin_object().field("job_id", job->job_id).key("ranks").begin_array();
  for (size_t i = begin; i < end; ++i) json.number(job->ranks[i].identity.rank);
  json.end_array().key("hosts").begin_array();
  for (size_t i = begin; i < end; ++i) json.string(job->ranks[i].identity.host);
  json.end_array().key("steps").begin_array();
  for (const StepParts& step : parts) json.number(step.step);
  json.end_array();
  auto write_per_step = [&](std::string_view name, double StepParts::*field) {
    json.key(name).begin_array();
    for (const StepParts& step : parts) json.number(rounded(step.*field));
    json.end_array();
  };
  write_per_step("step_ms", &StepParts::step_ms);
  write_per_step("compute_ms", &StepParts::compute_ms);
  write_per_step("waiting_ms", &StepParts::waiting_ms);
  write_per_step("communication_ms", &StepParts::communication_ms);
  write_per_step("input_ms", &StepParts::input_ms);
  duration.write(json, "duration_ms", parts.size());
  self.write(json, "self_ms", parts.size());
  excess.write(json, "excess_ms", parts.size());
  input.write(json, "input_ms_rank", parts.size());
  json.field("total_steps", job->last_step + 1)
      .field("shown", static_cast<uint64_t>(parts.size()))
      .field("ranks_total", static_cast<uint64_t>(job->ranks.size()))
      .field("ranks_shown", static_cast<uint64_t>(end - begin))
      .end_object();
  return json_answer(json);
}

}  // namespace lockstep
