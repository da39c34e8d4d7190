// GET /api/jobs/{job}/steps/{step}/perfetto: a step as a Perfetto trace, all ranks or some (docs/guide/perfetto.md).
#include "query/export/perfetto.h"

#include <algorithm>

#include "analysis/step/comm_roles.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

constexpr size_t kStepsNamed = 10;

// "tp 3": which of several of its kind. A guess carries a question mark.
std::map<CommId, std::string> comm_names(const CommRoles& roles) {
  std::map<CommId, std::string> names;
  for (const CommRole& role : roles.all()) {
    if (!role.reported && role.kind == CommKind::kOther) continue;
    names[role.comm_id] = format("%s%s %d", role.label().c_str(), role.reported ? "" : "?", role.index);
  }
  return names;
}

std::string steps_with_detail(const Page<TracedStep>& steps) {
  std::string list;
  for (const TracedStep& step : steps.items) {
    list += format("%s%lld", list.empty() ? "" : ", ", static_cast<long long>(step.step.value()));
  }
  if (steps.total > steps.items.size()) list += format(" and %zu older ones", steps.total - steps.items.size());
  return list;
}

// A job id may hold anything; a file name should not.
std::string file_name(const std::string& job_id, StepNumber step, const std::string& ending) {
  std::string name = job_id.substr(0, 100);
  for (char& letter : name) {
    const bool is_plain =
        std::isalnum(static_cast<unsigned char>(letter)) || letter == '-' || letter == '_' || letter == '.';
    if (!is_plain) letter = '_';
  }
  return format("%s-step-%lld.%s", name.c_str(), static_cast<long long>(step.value()), ending.c_str());
}

}  // namespace

HttpResponse get_perfetto(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const std::string asked = request.http.parameter("format");
  const std::string ending = asked.empty() ? "tar" : asked;
  if (ending != "tar" && ending != "pftrace")
    return error_answer(400, format("format is \"%.40s\"; known: tar, pftrace", as_one_line(asked).c_str()));
  PerfettoStep wanted;
  if (const std::string text = request.http.parameter("ranks"); !text.empty()) {
    Result<std::vector<Rank>> ranks = ranks_from_text(text, kGroupRanksMax);
    if (!ranks.ok()) return error_answer(400, "ranks: " + ranks.error());
    wanted.ranks = std::move(*ranks);
  }
  const Page<TracedStep> traced = context.spans.traced_steps(job->job_id, job->attempt, kStepsNamed);
  if (traced.items.empty()) {
    return error_answer(404, format("no step of job \"%s\" has been sent in detail yet: agents send one of many, and "
                                    "those that are asked for",
                                    job->job_id.c_str()));
  }
  const Result<StepNumber> step = step_of_path(request.step, traced.items.front().step);
  if (!step.ok()) return error_answer(400, step.error());
  wanted.step = *step;
  const std::shared_ptr<const StepTrace> trace = context.traces.get(job->job_id, job->attempt, wanted.step);
  const std::vector<RankDetail>& details = trace->ranks;
  if (details.empty()) {
    return error_answer(404, format("no detail of step %lld; steps with detail: %s",
                                    static_cast<long long>(wanted.step.value()), steps_with_detail(traced).c_str()));
  }
  wanted.job_id = job->job_id;
  wanted.details = details;
  wanted.alignment = trace->clocks;
  wanted.comm_names = comm_names(comm_roles(context.steps, *job));
  const bool is_any =
      wanted.ranks.empty() || std::any_of(details.begin(), details.end(), [&](const RankDetail& rank) {
        return std::find(wanted.ranks.begin(), wanted.ranks.end(), rank.identity.rank) != wanted.ranks.end();
      });
  if (!is_any) {
    std::vector<Rank> have;
    for (const RankDetail& rank : details) have.push_back(rank.identity.rank);
    return error_answer(404, format("no detail of ranks %.80s in step %lld; ranks with detail: %.200s",
                                    ranks_text(wanted.ranks).c_str(), static_cast<long long>(wanted.step.value()),
                                    ranks_text(have).c_str()));
  }
  Result<PerfettoFile> file = ending == "tar" ? perfetto_archive(wanted) : perfetto_trace(wanted);
  if (!file.ok()) return error_answer(400, file.error());
  HttpResponse response =
      text_answer(200, ending == "tar" ? "application/x-tar" : "application/octet-stream", std::move(file->bytes));
  auto header = [&](const char* name, std::string value) { response.headers.emplace_back(name, std::move(value)); };
  header("content-disposition",
         format("attachment; filename=\"%s\"", file_name(job->job_id, wanted.step, ending).c_str()));
  header("x-lockstep-step", std::to_string(wanted.step.value()));
  header("x-lockstep-ranks", std::to_string(file->ranks));
  header("x-lockstep-spans", std::to_string(file->slices));
  header("x-lockstep-clock-error-ns", std::to_string(static_cast<int64_t>(wanted.alignment.error_ns())));
  header("x-lockstep-ranks-unknown-clock", std::to_string(file->ranks_unknown_clock));
  return response;
}

}  // namespace lockstep
