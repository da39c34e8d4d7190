// GET /api/jobs/{job}/steps: rank x step matrix for the heat map.
#include <algorithm>
#include <cmath>
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "api/jobs/step_window.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kRanksMax = 4096;

// One value per rank and step; NaN (null): nothing was heard, or what was heard is not all of it.
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

// The heat map: what each of these ranks did in each step, and where the steps went.
struct Picture {
  explicit Picture(size_t ranks) : duration(ranks), self(ranks), excess(ranks), input(ranks) {}

  Matrix duration, self, excess, input;
  std::vector<StepParts> parts;
};

// Ranks are those from `begin` to before `end`, by their place in the job.
Picture read_picture(const StepStore& steps, const JobInfo& job, const StepRange& range, size_t begin, size_t end) {
  Picture picture(end - begin);
  visit_window(steps, job, range.from, range.to, [&](const StepParts& step, std::span<const StepCell> cells) {
    const size_t at = picture.parts.size();
    for (const StepCell& cell : cells) {
      if (cell.rank_index < begin || cell.rank_index >= end) continue;
      const size_t rank = cell.rank_index - begin;
      picture.duration.set(rank, at, cell.duration_ms);
      if (cell.gpu_time_known) picture.self.set(rank, at, cell.self_ms);
      picture.excess.set(rank, at, cell.excess_ms);
      picture.input.set(rank, at, cell.input_ms);
    }
    picture.parts.push_back(step);
  });
  return picture;
}

void write_steps(JsonWriter& json, const std::vector<StepParts>& parts) {
  json.key("steps").begin_array();
  for (const StepParts& step : parts) json.number(step.step.value());
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
  write_per_step("host_ms", &StepParts::host_ms);
  write_per_step("checkpoint_ms", &StepParts::checkpoint_ms);
  write_per_step("idle_ms", &StepParts::idle_ms);
  write_per_step("other_ms", &StepParts::other_ms);
}

}  // namespace

HttpResponse get_steps(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<StepRange> range = step_range(request.http, job->last_step, 200);
  if (!range.ok()) return error_answer(400, range.error());
  Result<int64_t> rank_from = int_parameter(request.http, "rank_from", 0, 0, std::numeric_limits<int32_t>::max());
  if (!rank_from.ok()) return error_answer(400, rank_from.error());

  range->from = std::max(range->from, range->to - steps_within(*job, 1'000'000, kPictureRowsMax) + 1);
  auto first = std::find_if(job->ranks.begin(), job->ranks.end(), [&](const RankInfo& rank) {
    return rank.identity.rank >= Rank{static_cast<int32_t>(*rank_from)};
  });
  size_t begin = static_cast<size_t>(first - job->ranks.begin());
  size_t end = std::min(job->ranks.size(), begin + kRanksMax);
  Picture picture = read_picture(context.steps, *job, *range, begin, end);
  const size_t steps = picture.parts.size();

  JsonWriter json;
  json.begin_object().field("job_id", job->job_id).key("ranks").begin_array();
  for (size_t i = begin; i < end; ++i) json.number(job->ranks[i].identity.rank.value());
  json.end_array().key("hosts").begin_array();
  for (size_t i = begin; i < end; ++i) json.string(job->ranks[i].identity.host);
  json.end_array();
  write_steps(json, picture.parts);
  picture.duration.write(json, "duration_ms", steps);
  picture.self.write(json, "self_ms", steps);
  picture.excess.write(json, "excess_ms", steps);
  picture.input.write(json, "input_ms_rank", steps);
  json.field("total_steps", (job->last_step + 1).value())
      .field("shown", static_cast<uint64_t>(steps))
      .field("ranks_total", static_cast<uint64_t>(job->ranks.size()))
      .field("ranks_shown", static_cast<uint64_t>(end - begin))
      .end_object();
  return json_answer(json);
}

}  // namespace lockstep
