#include "incident/incident.h"

#include <algorithm>
#include <map>

#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep::incident {
namespace {

constexpr const char* kStates[] = {"open", "acknowledged", "resolved"};
constexpr const char* kFindingKinds[] = {"verdict", "event", "alert"};
constexpr JsonLimits kDiskLimits{.bytes_max = 1u << 20, .values_max = 20'000, .depth_max = 8};

template <typename Enum, size_t kCount>
std::optional<Enum> enum_of(const char* const (&names)[kCount], std::string_view text) {
  for (size_t i = 0; i < kCount; ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

void write_place(JsonWriter& json, const FaultPlace& place) {
  json.key("place")
      .begin_object()
      .field("component", place.component)
      .field("part", place.part)
      .field("host", place.host)
      .field("gpu_uuid", place.gpu_uuid)
      .end_object();
}

void write_finding(JsonWriter& json, const Finding& finding) {
  json.begin_object().field("id", finding.id).field("kind", to_text(finding.kind));
  write_place(json, finding.place);
  json.field("opens", finding.opens)
      .field("family", finding.family)
      .field("cause", to_text(finding.cause))
      .field("severity", to_text(finding.severity))
      .field("job_id", finding.job_id)
      .field("sentence", finding.sentence)
      .field("action", finding.action)
      .field("path", finding.path)
      .field("begin_unix_ns", finding.begin_unix_ns)
      .field("seen_unix_ns", finding.seen_unix_ns)
      .field("end_unix_ns", finding.end_unix_ns)
      .field("count", finding.count)
      .field("lost_gpu_seconds", finding.lost_gpu_seconds)
      .field("lost_share", finding.lost_share)
      .field("victims", finding.victims)
      .key("gpus")
      .begin_object();
  for (const auto& [model, count] : finding.gpus) json.field(model, count);
  json.end_object().end_object();
}

void write_radius(JsonWriter& json, const BlastRadius& radius) {
  json.key("radius")
      .begin_object()
      .field("is_known", radius.is_known)
      .field("at_unix_ns", radius.at_unix_ns)
      .field("gpus", radius.gpus)
      .field("hosts", radius.hosts)
      .field("jobs_total", radius.jobs_total)
      .field("note", radius.note)
      .key("jobs")
      .begin_array();
  for (const BlastRadius::Job& job : radius.jobs)
    json.begin_object()
        .field("job_id", job.job_id)
        .field("ranks_hit", job.ranks_hit)
        .field("ranks", job.ranks)
        .end_object();
  json.end_array().end_object();
}

// Fields of our own writing: what is missing was not there to be written.
std::string text_in(const JsonValue& json, std::string_view key) {
  return json[key].string().value_or("");
}
int64_t whole_in(const JsonValue& json, std::string_view key) {
  return json[key].integer().value_or(0);
}

FaultPlace read_place(const JsonValue& json) {
  return {text_in(json, "component"), text_in(json, "part"), text_in(json, "host"), text_in(json, "gpu_uuid")};
}

Result<Finding> read_finding(const JsonValue& json) {
  const std::optional<FindingKind> kind = enum_of<FindingKind>(kFindingKinds, text_in(json, "kind"));
  Finding finding{.id = text_in(json, "id"),
                  .kind = kind.value_or(FindingKind::kVerdict),
                  .place = read_place(json["place"]),
                  .opens = json["opens"].boolean().value_or(true),
                  .family = text_in(json, "family"),
                  .cause = term_of<Cause>(text_in(json, "cause")).value_or(Cause::kNone),
                  .severity = lockstep::severity_of(text_in(json, "severity")),
                  .job_id = text_in(json, "job_id"),
                  .sentence = text_in(json, "sentence"),
                  .action = text_in(json, "action"),
                  .path = text_in(json, "path"),
                  .begin_unix_ns = whole_in(json, "begin_unix_ns"),
                  .seen_unix_ns = whole_in(json, "seen_unix_ns"),
                  .end_unix_ns = whole_in(json, "end_unix_ns"),
                  .count = whole_in(json, "count"),
                  .lost_gpu_seconds = json["lost_gpu_seconds"].number().value_or(0),
                  .lost_share = json["lost_share"].number().value_or(0),
                  .victims = whole_in(json, "victims")};
  for (const JsonValue model : json["gpus"]) {
    if (finding.gpus.size() < kModelsMax + 1)
      finding.gpus.emplace(model.key(), std::max<int64_t>(0, model.integer().value_or(0)));
  }
  if (!kind || finding.id.empty() || finding.place.component.empty())
    return Error{"a finding without kind, id or component"};
  return finding;
}

BlastRadius read_radius(const JsonValue& json) {
  BlastRadius radius{.is_known = json["is_known"].boolean().value_or(false),
                     .at_unix_ns = whole_in(json, "at_unix_ns"),
                     .gpus = whole_in(json, "gpus"),
                     .hosts = whole_in(json, "hosts"),
                     .jobs = {},
                     .jobs_total = whole_in(json, "jobs_total"),
                     .note = text_in(json, "note")};
  for (const JsonValue job : json["jobs"]) {
    if (radius.jobs.size() < kRadiusJobsMax)
      radius.jobs.push_back({text_in(job, "job_id"), whole_in(job, "ranks_hit"), whole_in(job, "ranks")});
  }
  return radius;
}

// When it is over: its end, or for an event the first later one of its family that says so.
int64_t over_unix_ns(const Incident& incident, const Finding& finding, int64_t now_unix_ns) {
  if (finding.kind != FindingKind::kEvent) return finding.end_unix_ns == 0 ? now_unix_ns : finding.end_unix_ns;
  int64_t over = finding.end_unix_ns;
  for (const Finding& other : incident.findings) {
    if (!other.opens && other.family == finding.family && other.begin_unix_ns >= finding.begin_unix_ns)
      over = std::min(over, other.begin_unix_ns);
  }
  return over;
}

}  // namespace

const char* to_text(State state) {
  return kStates[static_cast<size_t>(state)];
}

const char* to_text(FindingKind kind) {
  return kFindingKinds[static_cast<size_t>(kind)];
}

int64_t Finding::until_unix_ns() const {
  if (kind == FindingKind::kEvent) return begin_unix_ns;
  return std::max(begin_unix_ns, end_unix_ns != 0 ? end_unix_ns : seen_unix_ns);
}

bool lasts(const Incident& incident, const Finding& finding, int64_t now_unix_ns) {
  if (!finding.opens) return false;
  if (finding.kind != FindingKind::kEvent) return finding.end_unix_ns == 0;
  return over_unix_ns(incident, finding, now_unix_ns) > now_unix_ns;
}

bool is_active(const Incident& incident, int64_t now_unix_ns) {
  return std::any_of(incident.findings.begin(), incident.findings.end(),
                     [&](const Finding& one) { return lasts(incident, one, now_unix_ns); });
}

int64_t over_since_unix_ns(const Incident& incident, int64_t now_unix_ns) {
  int64_t over = incident.until_unix_ns;
  for (const Finding& one : incident.findings) over = std::max(over, over_unix_ns(incident, one, now_unix_ns));
  return std::min(over, now_unix_ns);
}

const Finding* main_finding(const Incident& incident) {
  const Finding* best = nullptr;
  // A verdict says more than an event; a costly one more than a cheap one; of equals the newest.
  const auto rank = [](const Finding& one) {
    return std::tuple(one.opens, one.kind == FindingKind::kVerdict, one.lost_gpu_seconds, one.severity,
                      one.begin_unix_ns);
  };
  for (const Finding& one : incident.findings) {
    if (best == nullptr || rank(one) > rank(*best)) best = &one;
  }
  return best;
}

AlertSeverity severity_of(const Incident& incident) {
  AlertSeverity severity = AlertSeverity::kInfo;
  for (const Finding& one : incident.findings) severity = std::max(severity, one.severity);
  return severity;
}

std::vector<JobCost> costs_of(const Incident& incident, int64_t now_unix_ns) {
  std::map<std::string, JobCost> by_job;
  std::map<std::string, int64_t> together_until;  // the verdicts that overlap
  for (const Finding& one : incident.findings) {  // by begin
    if (one.kind != FindingKind::kVerdict || one.job_id.empty()) continue;
    JobCost& job = by_job[one.job_id];
    int64_t& until = together_until[one.job_id];
    job.job_id = one.job_id;
    if (job.counted.empty() || one.begin_unix_ns > until) {
      job.counted.push_back(&one);
    } else if (one.lost_gpu_seconds > job.counted.back()->lost_gpu_seconds) {
      job.counted.back() = &one;
    }
    until = std::max(until, one.until_unix_ns());
    const bool now = lasts(incident, one, now_unix_ns);
    // What lasts says how it is; else the last word.
    if (now || !job.suffers)
      job.lost_share = now && job.suffers ? std::max(job.lost_share, one.lost_share) : one.lost_share;
    job.suffers = job.suffers || now;
    job.victims = std::max(job.victims, one.victims);
    job.verdicts.push_back(&one);
  }
  std::vector<JobCost> costs;
  for (auto& [name, job] : by_job) {
    for (const Finding* one : job.counted) job.lost_gpu_seconds += one->lost_gpu_seconds;
    std::stable_sort(job.verdicts.begin(), job.verdicts.end(),
                     [](const Finding* a, const Finding* b) { return a->lost_gpu_seconds > b->lost_gpu_seconds; });
    costs.push_back(std::move(job));
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const JobCost& a, const JobCost& b) { return a.lost_gpu_seconds > b.lost_gpu_seconds; });
  return costs;
}

std::string incident_path(std::string_view id) {
  return "/incidents/" + url_part(id);
}

std::string short_line(std::string_view text) {
  return as_one_line(utf8_prefix(text, kTextBytesMax));
}

void add_entry(Incident& incident, Entry entry) {
  entry.note = short_line(entry.note);
  incident.entries.push_back(std::move(entry));
  std::stable_sort(incident.entries.begin(), incident.entries.end(),
                   [](const Entry& a, const Entry& b) { return a.at_unix_ns < b.at_unix_ns; });
  if (incident.entries.size() > kEntriesMax) incident.entries.erase(incident.entries.begin() + 1);
}

std::string to_json(const Incident& incident) {
  JsonWriter json;
  json.begin_object().field("id", incident.id).field("state", to_text(incident.state));
  write_place(json, incident.place);
  json.field("begin_unix_ns", incident.begin_unix_ns)
      .field("until_unix_ns", incident.until_unix_ns)
      .field("resolved_unix_ns", incident.resolved_unix_ns)
      .field("held_open", incident.held_open)
      .field("has_more", incident.has_more);
  write_radius(json, incident.radius);
  json.key("findings").begin_array();
  for (const Finding& one : incident.findings) write_finding(json, one);
  json.end_array().key("entries").begin_array();
  for (const Entry& one : incident.entries)
    json.begin_object()
        .field("at_unix_ns", one.at_unix_ns)
        .field("what", one.what)
        .field("who", one.who)
        .field("note", one.note)
        .end_object();
  json.end_array().key("also").begin_array();
  for (const std::string& id : incident.also) json.string(id);
  json.end_array().end_object();
  return json.take();
}

Result<Incident> incident_from_json(std::string_view text) {
  const Result<JsonDocument> document = JsonDocument::parse(text, kDiskLimits);
  if (!document.ok()) return prefixed(document.failure(), "an incident that is not JSON: ");
  const JsonValue json = document->root();
  const std::optional<State> state = enum_of<State>(kStates, text_in(json, "state"));
  Incident incident{.id = text_in(json, "id"),
                    .place = read_place(json["place"]),
                    .state = state.value_or(State::kOpen),
                    .begin_unix_ns = whole_in(json, "begin_unix_ns"),
                    .until_unix_ns = whole_in(json, "until_unix_ns"),
                    .resolved_unix_ns = whole_in(json, "resolved_unix_ns"),
                    .held_open = json["held_open"].boolean().value_or(false),
                    .findings = {},
                    .has_more = json["has_more"].boolean().value_or(false),
                    .entries = {},
                    .also = {},
                    .radius = read_radius(json["radius"])};
  if (!state || incident.id.empty() || incident.place.component.empty())
    return Error{"an incident without state, id or component"};
  for (const JsonValue one : json["findings"]) {
    if (incident.findings.size() == kVerdictsMax + kEventsMax) return Error{"an incident with too many findings"};
    incident.findings.push_back(LOCKSTEP_TRY(read_finding(one)));
  }
  for (const JsonValue one : json["entries"])
    add_entry(incident, {whole_in(one, "at_unix_ns"), text_in(one, "what"), text_in(one, "who"), text_in(one, "note")});
  // Of before the field: what was done last says so.
  if (!json["held_open"].present() && !incident.entries.empty())
    incident.held_open = incident.entries.back().what == "reopened" && !incident.entries.back().who.empty();
  for (const JsonValue one : json["also"]) incident.also.push_back(one.string().value_or(""));
  return incident;
}

Result<std::string> read_note(std::string_view body) {
  if (trim(body).empty()) return std::string();
  const Result<JsonDocument> document = JsonDocument::parse(body, {.bytes_max = 8192, .values_max = 8, .depth_max = 2});
  if (!document.ok()) return prefixed(document.failure(), "incident: ");
  const JsonValue root = document->root();
  if (!root.is_object()) return Error{"incident: the body is an object like {\"note\": \"replaced the fan\"}"};
  for (const JsonValue field : root) {
    if (field.key() != "note")
      return Error{
          format("incident: there is no field \"%s\"; there is note", as_one_line(field.key().substr(0, 40)).c_str())};
  }
  const JsonValue note = root["note"];
  if (!note.present()) return std::string();
  std::optional<std::string> text = note.string();
  if (!text) return Error{"incident: note must be a text"};
  if (text->size() > kNoteBytesMax)
    return Error{format("incident: the note has %zu bytes (limit %zu)", text->size(), kNoteBytesMax)};
  return std::move(*text);
}

}  // namespace lockstep::incident
