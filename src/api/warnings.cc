// GET /api/warnings: what will hurt if it goes on.
#include "api/warnings.h"

#include <unordered_map>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"

namespace lockstep {
namespace {

// "GPU-1f0b... of node-17" says little to a person; "GPU 3 of node-17 (rank 11 of train)" does.
void name_place(WarningView& view) {
  EarlyWarning& warning = view.warning;
  if (warning.gpu_uuid.empty() || view.ranks.empty()) return;
  const std::string place = warning.gpu_uuid + " of " + warning.host;
  if (!warning.sentence.starts_with(place)) return;
  const WarningView::At& at = view.ranks.front();
  const std::string gpu = at.local_rank >= 0 ? format("GPU %d", at.local_rank) : warning.gpu_uuid;
  warning.sentence = format("%s of %s (rank %d of %s)", gpu.c_str(), warning.host.c_str(), at.rank.value(),
                            as_one_line(at.job_id).c_str()) +
                     warning.sentence.substr(place.size());
}

}  // namespace

std::vector<WarningView> warnings_of(const ApiContext& context, const std::string& job, bool gone) {
  std::vector<WarningView> all;
  std::unordered_map<std::string, std::vector<size_t>> by_gpu, by_host;
  for (EarlyWarning& warning : context.diagnosis.warnings()) {
    if (!gone && warning.is_gone()) continue;
    (warning.gpu_uuid.empty() ? by_host[warning.host] : by_gpu[warning.host + "/" + warning.gpu_uuid])
        .push_back(all.size());
    all.push_back({std::move(warning), {}, 0});
  }
  if (all.empty()) return all;
  std::vector<JobInfo> jobs;
  if (job.empty()) {
    jobs = context.steps.jobs();
  } else if (std::optional<JobInfo> one = context.steps.job(job)) {
    jobs.push_back(std::move(*one));
  }
  for (const JobInfo& each : jobs) {
    for (const RankInfo& rank : each.ranks) {
      if (rank.ended) continue;
      const Identity& identity = rank.identity;
      auto note = [&](const auto& index, const std::string& key) {
        auto found = index.find(key);
        if (found == index.end()) return;
        for (size_t i : found->second) {
          if (++all[i].ranks_total > kWarningRanksMax) continue;
          all[i].ranks.push_back({each.job_id, identity.rank, identity.local_rank});
        }
      };
      note(by_gpu, identity.host + "/" + identity.gpu_uuid);
      note(by_host, identity.host);
    }
  }
  if (!job.empty()) std::erase_if(all, [](const WarningView& view) { return view.ranks_total == 0; });
  for (WarningView& view : all) name_place(view);
  return all;
}

void write_warning(JsonWriter& json, const WarningView& view) {
  json.begin_object();
  write_fields(json, view.warning);
  json.key("ranks").begin_array();
  for (const WarningView::At& at : view.ranks)
    json.begin_object().field("job_id", at.job_id).field("rank", at.rank.value()).end_object();
  json.end_array().field("ranks_total", static_cast<uint64_t>(view.ranks_total)).end_object();
}

HttpResponse get_warnings(const ApiContext& context, const ApiRequest& request) {
  const std::string state = request.http.parameter("state");
  if (!state.empty() && state != "raised" && state != "all")
    return error_answer(400, format("state is \"%.40s\"; it must be raised or all", as_one_line(state).c_str()));
  const std::string job = request.http.parameter("job");
  if (!job.empty() && !find_job(context, job)) return unknown_job(context, job);
  Result<int64_t> limit = int_parameter(request.http, "limit", 200, 1, 1000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const std::vector<WarningView> all = warnings_of(context, job, state == "all");
  const size_t shown = std::min(all.size(), static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().key("warnings").begin_array();
  for (size_t i = 0; i < shown; ++i) write_warning(json, all[i]);
  return list_answer(json, all.size(), shown);
}

}  // namespace lockstep
