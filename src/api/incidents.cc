// GET /api/incidents: what is broken, whom it hits and what it costs. GET /api/incidents/{id}: all that is known of one;
// with /markdown for a ticket. POST .../acknowledge, resolve, reopen, feedback: what people do with it.
#include <algorithm>
#include <map>

#include "alert/alert_center.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "incident/incident_registry.h"
#include "incident/incident_report.h"
#include "model/feedback.h"
#include "net/caller.h"

namespace lockstep {
namespace {

using incident::Brief;
using incident::Incident;
using incident::IncidentRegistry;

HttpResponse no_incidents() {
  return error_answer(501, "this server keeps no incidents");
}

Brief brief_of(const Incident& incident) {
  const incident::Finding* main = incident::main_finding(incident);
  return {incident.id, incident.place.component, main == nullptr ? "" : main->sentence, incident.state,
          incident.begin_unix_ns};
}

std::map<std::string, size_t> times_by_component(const std::vector<IncidentRegistry::Offender>& offenders) {
  std::map<std::string, size_t> times;
  for (const IncidentRegistry::Offender& one : offenders) times[one.component] = one.ids.size();
  return times;
}

bool overlap(const Incident& a, const Incident& b) {
  return a.begin_unix_ns <= b.until_unix_ns && b.begin_unix_ns <= a.until_unix_ns;
}

// Verdicts as the API shows them, most costly first.
std::vector<incident::Evidence> evidence_for(const ApiContext& context, const Incident& incident) {
  std::vector<incident::Evidence> list;
  for (const incident::JobCost& cost : incident::costs_of(incident, context.clock.unix_ns())) {
    const std::vector<VerdictView> verdicts = verdicts_of(context, cost.job_id);
    for (const incident::Finding* finding : cost.verdicts) {
      const auto found =
          std::find_if(verdicts.begin(), verdicts.end(), [&](const VerdictView& one) { return one.id == finding->id; });
      if (found != verdicts.end() && list.size() < incident::kEvidenceMax)
        list.push_back(incident::evidence_of(shown_json(context, *found)));
    }
  }
  return list;
}

incident::Report report_of(const ApiContext& context, Incident incident) {
  incident::Report report{.incident = std::move(incident),
                          .now_unix_ns = context.clock.unix_ns(),
                          .prices = context.gpu_prices(),
                          .external_url = context.alerts == nullptr ? "" : context.alerts->external_url()};
  const Incident& one = report.incident;
  for (const IncidentRegistry::Offender& offender : context.incidents->offenders()) {
    if (offender.component == one.place.component) report.times = offender.ids.size();
  }
  const int64_t since = report.now_unix_ns - IncidentRegistry::kOffendersNs;
  const auto is_same = [&](const Incident& other) {
    return other.place.component == one.place.component && one.place.is_hardware();
  };
  const auto is_related = [&](const Incident& other) {
    if (other.id == one.id) return false;
    if (is_same(other)) return other.until_unix_ns >= since;
    return !one.place.host.empty() && other.place.host == one.place.host && overlap(one, other);
  };
  for (const Incident& other : context.incidents->incidents(is_related)) {
    std::vector<Brief>& briefs = is_same(other) ? report.earlier : report.beside;
    if (briefs.size() < incident::kBriefsMax) briefs.push_back(brief_of(other));
  }
  report.evidence = evidence_for(context, one);
  for (const incident::JobCost& cost : incident::costs_of(one, report.now_unix_ns)) {
    const std::optional<JobInfo> job = context.steps.job(cost.job_id);
    report.outlooks.push_back(incident::outlook_of(cost, job ? job->world_size : 0));
  }
  return report;
}

HttpResponse report_answer(const ApiContext& context, Incident incident) {
  JsonWriter json;
  write_report(json, report_of(context, std::move(incident)));
  return json_answer(json);
}

std::string who_of(const ApiRequest& request) {
  return request.http.caller.name.empty() ? "somebody" : request.http.caller.name;
}

using Change = Result<Incident> (IncidentRegistry::*)(std::string_view, const std::string&, const std::string&);

HttpResponse change(const ApiContext& context, const ApiRequest& request, Change what) {
  if (context.incidents == nullptr) return no_incidents();
  const Result<std::string> note = incident::read_note(request.http.body);
  if (!note.ok()) return error_answer(400, note.error());
  Result<Incident> changed = (context.incidents->*what)(request.name, who_of(request), *note);
  if (!changed.ok()) return error_answer(changed.code() == ErrorCode::kNotFound ? 404 : 503, changed.error());
  return report_answer(context, std::move(*changed));
}

void write_offenders(JsonWriter& json, const std::vector<IncidentRegistry::Offender>& offenders, size_t most) {
  json.key("offenders").begin_array();
  for (const IncidentRegistry::Offender& one : offenders) {
    if (most-- == 0) break;
    const incident::FaultPlace place{one.component, "", one.host, ""};
    json.begin_object()
        .field("component", one.component)
        .field("host", one.host)
        .field("times", static_cast<uint64_t>(one.ids.size()))
        .field("sentence", incident::repeat_sentence(place, one.ids.size()))
        .key("incidents")
        .begin_array();
    for (const std::string& id : one.ids) json.string(id);
    json.end_array().end_object();
  }
  json.end_array();
}

}  // namespace

HttpResponse get_incidents(const ApiContext& context, const ApiRequest& request) {
  if (context.incidents == nullptr) return no_incidents();
  const Result<int64_t> limit = int_parameter(request.http, "limit", 200, 1, 2'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const std::string state = request.http.parameter("state"), job = request.http.parameter("job"),
                    component = request.http.parameter("component");
  const bool any = state == "all";
  if (!any && !state.empty() && state != "open" && state != "acknowledged" && state != "resolved")
    return error_answer(400, "state is open, acknowledged, resolved or all; without it: what is not resolved");
  const std::vector<Incident> incidents = context.incidents->incidents([&](const Incident& one) {
    if (!any && (state.empty() ? one.state == incident::State::kResolved : to_text(one.state) != state)) return false;
    if (!component.empty() && one.place.component != component) return false;
    return job.empty() || std::any_of(one.findings.begin(), one.findings.end(),
                                      [&](const incident::Finding& finding) { return finding.job_id == job; });
  });
  const std::vector<IncidentRegistry::Offender> offenders = context.incidents->offenders();
  std::map<std::string, size_t> times = times_by_component(offenders);
  const int64_t now = context.clock.unix_ns();
  JsonWriter json;
  json.begin_object();
  write_offenders(json, offenders, 20);
  json.key("incidents").begin_array();
  const size_t shown = std::min(incidents.size(), static_cast<size_t>(*limit));
  for (size_t i = 0; i < shown; ++i) {
    json.begin_object();
    incident::write_summary(json, incidents[i], std::max<size_t>(1, times[incidents[i].place.component]), now,
                            context.gpu_prices());
    json.end_object();
  }
  return list_answer(json, incidents.size(), shown);
}

HttpResponse get_incident(const ApiContext& context, const ApiRequest& request) {
  if (context.incidents == nullptr) return no_incidents();
  Result<Incident> found = context.incidents->find(request.name);
  return found.ok() ? report_answer(context, std::move(*found)) : error_answer(404, found.error());
}

HttpResponse get_incident_markdown(const ApiContext& context, const ApiRequest& request) {
  if (context.incidents == nullptr) return no_incidents();
  Result<Incident> found = context.incidents->find(request.name);
  if (!found.ok()) return error_answer(404, found.error());
  return text_answer(200, "text/markdown; charset=utf-8", to_markdown(report_of(context, std::move(*found))));
}

HttpResponse post_incident_acknowledge(const ApiContext& context, const ApiRequest& request) {
  return change(context, request, &IncidentRegistry::acknowledge);
}

HttpResponse post_incident_resolve(const ApiContext& context, const ApiRequest& request) {
  return change(context, request, &IncidentRegistry::resolve);
}

HttpResponse post_incident_reopen(const ApiContext& context, const ApiRequest& request) {
  return change(context, request, &IncidentRegistry::reopen);
}

// What is said of an incident is said of its main verdict, where there is one: that is what diagnosis learns from.
HttpResponse post_incident_feedback(const ApiContext& context, const ApiRequest& request) {
  if (context.incidents == nullptr) return no_incidents();
  const Result<FeedbackAsked> asked = read_feedback(request.http.body);
  if (!asked.ok()) return error_answer(400, asked.error());
  const Result<Incident> found = context.incidents->find(request.name);
  if (!found.ok()) return error_answer(404, found.error());
  const incident::Finding* main = incident::main_finding(*found);
  if (main != nullptr && main->kind == incident::FindingKind::kVerdict && context.feedback != nullptr) {
    const Result<void> kept = !asked->right ? context.feedback->take_back(main->id)
                                            : context.feedback->keep({.verdict_id = main->id,
                                                                      .right = *asked->right,
                                                                      .said = main->cause,
                                                                      .cause = asked->cause,
                                                                      .note = asked->note,
                                                                      .at_unix_ns = context.clock.unix_ns()});
    if (!kept.ok()) return error_answer(503, kept.error());
  }
  std::string said = !asked->right ? "taken back" : *asked->right ? "right" : "wrong";
  if (asked->cause != Cause::kNone) said += std::string(": it was ") + to_text(asked->cause);
  if (!asked->note.empty()) said += " (" + asked->note + ")";
  Result<Incident> changed = context.incidents->say(request.name, who_of(request), said);
  if (!changed.ok()) return error_answer(changed.code() == ErrorCode::kNotFound ? 404 : 503, changed.error());
  return report_answer(context, std::move(*changed));
}

}  // namespace lockstep
