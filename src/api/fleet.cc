// GET /api/fleet: the fleet in a few numbers.
#include <algorithm>
#include <limits>
#include <optional>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "api/nodes/node_view.h"
#include "incident/incident_registry.h"
#include "incident/incident_report.h"

namespace lockstep {
namespace {

constexpr int64_t kDayNs = 86'400'000'000'000;

// What verdicts of the last day cost, as incidents count it: of one job those that overlap count once, with the one that
// says most. Of one that began before, the share of its time that is in the day. nullopt: no incidents are kept.
std::optional<GpuCost> lost_in_a_day(const ApiContext& context, int64_t now) {
  if (context.incidents == nullptr) return std::nullopt;
  incident::Incident day;
  const int64_t since = now - kDayNs;
  for (const incident::Incident& one :
       context.incidents->incidents([&](const incident::Incident& it) { return it.until_unix_ns >= since; })) {
    for (incident::Finding finding : one.findings) {
      const int64_t until = std::max(finding.until_unix_ns(), finding.begin_unix_ns + 1);
      if (finding.kind != incident::FindingKind::kVerdict || until < since) continue;
      const double within = static_cast<double>(until - std::max(since, finding.begin_unix_ns));
      finding.lost_gpu_seconds *= within / static_cast<double>(until - finding.begin_unix_ns);
      day.findings.push_back(std::move(finding));
    }
  }
  return incident::lost_of(day, now, context.gpu_prices());
}

}  // namespace

HttpResponse get_fleet(const ApiContext& context, const ApiRequest&) {
  const int64_t now = context.clock.unix_ns();
  uint64_t jobs = 0, running = 0, ranks = 0, gpus = 0, idle = 0, silent = 0, open = 0;
  std::vector<JobInfo> known = context.steps.jobs();
  for (const JobInfo& job : known) {
    ++jobs;
    running += job_state(job, now) == std::string_view("running") ? 1 : 0;
  }
  const Nodes nodes = nodes_of(context, std::move(known));
  for (const auto& [host, node] : nodes) {
    ranks += node.ranks.size();
    gpus += node.gpus.size();
    idle += node.gpus_idle(now);
    silent += state_of(node, now) == std::string_view("silent") ? 1 : 0;
  }
  for (const Verdict& verdict : context.diagnosis.verdicts("")) open += verdict.state == VerdictState::kCleared ? 0 : 1;
  JsonWriter json;
  json.begin_object()
      .field("jobs", jobs)
      .field("jobs_running", running)
      .field("nodes", static_cast<uint64_t>(nodes.size()))
      .field("nodes_silent", silent)
      .field("gpus", gpus)
      .field("gpus_idle", idle)
      .field("ranks", ranks)
      .field("verdicts_open", open);
  // For whoever asks how to send something here; with a port of 0 only the ready line knows it.
  json.field("otlp_http", context.otlp_http.ends_with(":0") ? "" : context.otlp_http).field("is_tls", context.is_tls);
  const std::optional<GpuCost> lost = lost_in_a_day(context, now);
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  write_number(json, "lost_gpu_seconds_day", lost ? lost->gpu_seconds : unknown);
  write_number(json, "lost_money_day", lost && lost->has_price() ? lost->money : unknown);
  json.field("money_day", lost ? money_text(*lost) : "");
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
