// What happened on a node or a GPU: verdicts that name it, incidents, events of its hardware.
#include <algorithm>
#include <set>

#include "api/jobs/job_view.h"
#include "api/nodes/node_view.h"
#include "base/json_reader.h"
#include "incident/incident_registry.h"
#include "incident/incident_report.h"

namespace lockstep {
namespace {

constexpr size_t kVerdictsShownMax = 100;
constexpr size_t kIncidentsShownMax = 100;
constexpr size_t kEventsShownMax = 200;
constexpr size_t kRanksNamedMax = 8;

struct VerdictBrief {
  std::string id, job_id, state, kind, layer, cause, sentence, gpu_uuid;
  std::vector<int64_t> ranks;
  int64_t since_unix_ns = 0, found_unix_ns = 0;
  double lost_gpu_seconds = 0;
  bool is_open() const { return state != to_text(VerdictState::kCleared); }
};

VerdictBrief brief_of(const Verdict& verdict) {
  VerdictBrief brief{.id = verdict.id,
                     .job_id = verdict.job_id,
                     .state = to_text(verdict.state),
                     .kind = to_text(verdict.kind),
                     .layer = to_text(verdict.culprit.layer),
                     .cause = to_text(verdict.culprit.cause),
                     .sentence = verdict.sentence,
                     .gpu_uuid = verdict.culprit.gpu_uuid,
                     .ranks = {},
                     .since_unix_ns = verdict.since_unix_ns,
                     .found_unix_ns = verdict.found_unix_ns,
                     .lost_gpu_seconds = verdict.lost_gpu_seconds};
  for (const Rank rank : verdict.culprit.ranks) brief.ranks.push_back(rank.value());
  return brief;
}

bool is_of(const PlaceAsked& asked, std::string_view host, std::string_view gpu_uuid) {
  return asked.gpu_uuid.empty() ? host == asked.host : gpu_uuid == asked.gpu_uuid;
}

// Of an earlier run of the server, by its JSON; nullopt: it names another place.
std::optional<VerdictBrief> brief_of(const StoredVerdict& stored, const PlaceAsked& asked) {
  const Result<JsonDocument> document = JsonDocument::parse(stored.json);
  if (!document.ok()) return std::nullopt;
  const JsonValue json = document->root(), culprit = json["culprit"];
  const auto text = [](const JsonValue& of, const char* key) { return of[key].string().value_or(""); };
  if (!is_of(asked, text(culprit, "host"), text(culprit, "gpu_uuid"))) return std::nullopt;
  VerdictBrief brief{.id = stored.id,
                     .job_id = stored.job_id,
                     .state = to_text(VerdictState::kCleared),  // nothing that is heard now supports it
                     .kind = text(json, "kind"),
                     .layer = text(culprit, "layer"),
                     .cause = text(culprit, "cause"),
                     .sentence = text(json, "sentence"),
                     .gpu_uuid = text(culprit, "gpu_uuid"),
                     .ranks = {},
                     .since_unix_ns = json["since_unix_ns"].integer().value_or(0),
                     .found_unix_ns = stored.found_unix_ns,
                     .lost_gpu_seconds = json["lost_gpu_seconds"].number().value_or(0)};
  for (const JsonValue rank : culprit["rank"]) brief.ranks.push_back(rank.integer().value_or(-1));
  return brief;
}

void write_brief(JsonWriter& json, const VerdictBrief& brief) {
  json.begin_object()
      .field("id", brief.id)
      .field("job_id", brief.job_id)
      .field("state", brief.state)
      .field("kind", brief.kind)
      .field("layer", brief.layer)
      .field("cause", brief.cause)
      .field("sentence", brief.sentence)
      .field("gpu_uuid", brief.gpu_uuid)
      .field("since_unix_ns", brief.since_unix_ns)
      .field("found_unix_ns", brief.found_unix_ns)
      .field("lost_gpu_seconds", brief.lost_gpu_seconds)
      .key("ranks")
      .begin_array();
  for (size_t i = 0; i < std::min(brief.ranks.size(), kRanksNamedMax); ++i) json.number(brief.ranks[i]);
  json.end_array().field("ranks_total", static_cast<uint64_t>(brief.ranks.size())).end_object();
}

void write_event(JsonWriter& json, const StoredLog& log, int64_t time_unix_ns) {
  const LogRecord& record = log.record;
  const Attributes& attributes = record.attributes;
  json.begin_object()
      .field("time_unix_ns", time_unix_ns)
      .field("event", record.event_name)
      .field("severity", record.severity_text)
      .field("text", plain_text(record.body));
  for (const char* key : {"gpu_uuid", "device", "meaning", "action", "job_id"})
    json.field(key, find_string(attributes, key));
  json.field("rank", find_int(attributes, "rank", -1))
      .field("code", find_int(attributes, "code", -1))
      .field("count", find_int(attributes, "count", 1))
      .end_object();
}

}  // namespace

void write_verdicts(JsonWriter& json, const ApiContext& context, const PlaceAsked& asked) {
  std::vector<VerdictBrief> briefs;
  std::set<std::string> live;
  for (const Verdict& verdict : context.diagnosis.verdicts("")) {
    live.insert(verdict.id);
    const bool is_recent = verdict.state != VerdictState::kCleared || verdict.found_unix_ns >= asked.since_unix_ns;
    if (is_recent && is_of(asked, verdict.culprit.host, verdict.culprit.gpu_uuid)) briefs.push_back(brief_of(verdict));
  }
  // Most name another place: the store leaves them out unread.
  const std::string name = JsonWriter().string(asked.gpu_uuid.empty() ? asked.host : asked.gpu_uuid).take();
  for (const StoredVerdict& stored :
       context.state.find_verdicts({.found_since_unix_ns = asked.since_unix_ns, .json_with = name})) {
    if (live.contains(stored.id) || (context.owns && !context.owns(stored.job_id))) continue;
    if (std::optional<VerdictBrief> brief = brief_of(stored, asked)) briefs.push_back(std::move(*brief));
  }
  std::stable_sort(briefs.begin(), briefs.end(), [](const VerdictBrief& a, const VerdictBrief& b) {
    return a.is_open() != b.is_open() ? a.is_open() : a.found_unix_ns > b.found_unix_ns;
  });
  json.key("verdicts").begin_array();
  for (size_t i = 0; i < std::min(briefs.size(), kVerdictsShownMax); ++i) write_brief(json, briefs[i]);
  json.end_array().field("verdicts_total", static_cast<uint64_t>(briefs.size()));
}

void write_incidents(JsonWriter& json, const ApiContext& context, const PlaceAsked& asked) {
  std::vector<incident::Incident> incidents;
  if (context.incidents != nullptr) {
    incidents = context.incidents->incidents([&](const incident::Incident& one) {
      const bool is_recent = one.state != incident::State::kResolved || one.until_unix_ns >= asked.since_unix_ns;
      return is_recent && is_of(asked, one.place.host, one.place.gpu_uuid);
    });
  }
  json.key("incidents").begin_array();
  for (size_t i = 0; i < std::min(incidents.size(), kIncidentsShownMax); ++i) {
    json.begin_object();
    incident::write_summary(json, incidents[i], 1, context.clock.unix_ns(), context.gpu_prices());
    json.end_object();
  }
  json.end_array().field("incidents_total", static_cast<uint64_t>(incidents.size()));
}

void write_events(JsonWriter& json, const ApiContext& context, const PlaceAsked& asked) {
  std::vector<std::pair<int64_t, StoredLog>> events;
  size_t total = 0;
  context.steps.visit_rare_logs([&](const StoredLog& log) {
    const LogRecord& record = log.record;
    const int64_t time = record.time_unix_ns != 0 ? record.time_unix_ns : record.observed_unix_ns;
    if (record.event_name.find('.') == std::string::npos || time < asked.since_unix_ns) return true;
    // Of the node itself: records of ranks name their job in the resource.
    if (!find_string(*log.resource, "lockstep.job_id").empty()) return true;
    if (!is_of(asked, find_string(*log.resource, "host.name"), find_string(record.attributes, "gpu_uuid"))) return true;
    if (total++ < kEventsShownMax) events.emplace_back(time, log);
    return true;
  });
  // Agents that were away send late.
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  json.key("events").begin_array();
  for (const auto& [time, log] : events) write_event(json, log, time);
  json.end_array().field("events_total", static_cast<uint64_t>(total));
}

}  // namespace lockstep
