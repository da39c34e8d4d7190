#include "incident/incident_report.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "alert/builtin_alerts.h"
#include "alert/notify_messages.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "base/utc_time.h"

namespace lockstep::incident {
namespace {

std::string text_in(const JsonValue& json, std::string_view key) {
  return json[key].string().value_or("");
}

std::string feedback_text(const JsonValue& feedback) {
  const std::optional<bool> right = feedback["right"].boolean();
  if (!right) return {};
  std::string text = *right ? "right" : "wrong";
  if (const std::string cause = text_in(feedback, "cause"); !cause.empty()) text += ": it was " + cause;
  if (const std::string note = text_in(feedback, "note"); !note.empty()) text += " (" + note + ")";
  return text;
}

const Entry* last_entry(const Incident& incident, std::string_view what) {
  const auto found = std::find_if(incident.entries.rbegin(), incident.entries.rend(),
                                  [&](const Entry& one) { return one.what == what; });
  return found == incident.entries.rend() ? nullptr : &*found;
}

std::string who_in(const Incident& incident, std::string_view what) {
  const Entry* entry = last_entry(incident, what);
  return entry == nullptr ? std::string() : entry->who;
}

std::string sentence_of(const Incident& incident) {
  const Finding* main = main_finding(incident);
  return main == nullptr ? std::string() : main->sentence;
}

void write_brief(JsonWriter& json, const Brief& brief) {
  json.begin_object()
      .field("id", brief.id)
      .field("component", brief.component)
      .field("sentence", brief.sentence)
      .field("state", to_text(brief.state))
      .field("begin_unix_ns", brief.begin_unix_ns)
      .field("path", incident_path(brief.id))
      .end_object();
}

// Each verdict by the GPUs that it was on: its job may have begun again on others.
GpuCost money_of(const JobCost& cost, const GpuPrices& prices) {
  GpuCost lost;
  for (const Finding* one : cost.counted) lost += prices.cost(one->lost_gpu_seconds, one->gpus);
  return lost;
}

std::string text_of(const JobCost& cost, const GpuPrices& prices) {
  return cost_text(money_of(cost, prices), cost.lost_share);
}

void write_jobs(JsonWriter& json, const Report& report) {
  json.key("jobs").begin_array();
  for (const JobCost& cost : costs_of(report.incident, report.now_unix_ns)) {
    const auto outlook = std::find_if(report.outlooks.begin(), report.outlooks.end(),
                                      [&](const Outlook& one) { return one.job_id == cost.job_id; });
    json.begin_object()
        .field("job_id", cost.job_id)
        .field("suffers", cost.suffers)
        .field("lost_gpu_seconds", cost.lost_gpu_seconds)
        .field("cost", text_of(cost, report.prices))
        .field("lost_share", cost.lost_share)
        .field("victims", cost.victims)
        .field("path", cost.verdicts.front()->path)
        .key("verdicts")
        .begin_array();
    for (const Finding* verdict : cost.verdicts) json.string(verdict->id);
    json.end_array().key("completion");
    if (outlook == report.outlooks.end()) {
      json.null();
    } else {
      json.begin_object().key("delay_s");
      outlook->ranks > 0 ? json.number(outlook->delay_s) : json.null();
      json.field("slower_by", outlook->slower_by)
          .field("stands_still", outlook->stands_still)
          .key("ends_unix_ns")
          .null()
          .field("sentence", outlook->sentence)
          .end_object();
    }
    json.end_object();
  }
  json.end_array();
}

void write_radius(JsonWriter& json, const Incident& incident, int64_t now_unix_ns) {
  const BlastRadius& radius = incident.radius;
  const std::vector<JobCost> costs = costs_of(incident, now_unix_ns);
  json.key("blast_radius")
      .begin_object()
      .field("known", radius.is_known)
      .field("component", incident.place.component)
      .field("at_unix_ns", radius.at_unix_ns)
      .field("gpus", radius.gpus)
      .field("hosts", radius.hosts)
      .field("jobs_total", radius.jobs_total)
      .field("note", radius.note)
      .key("jobs")
      .begin_array();
  for (const BlastRadius::Job& job : radius.jobs) {
    json.begin_object()
        .field("job_id", job.job_id)
        .field("ranks_hit", job.ranks_hit)
        .field("ranks", job.ranks)
        .field("has_verdict",
               std::any_of(costs.begin(), costs.end(), [&](const JobCost& one) { return one.job_id == job.job_id; }))
        .end_object();
  }
  json.end_array().end_object();
}

void write_timeline(JsonWriter& json, const Report& report) {
  json.key("timeline").begin_array();
  for (const Moment& one : timeline_of(report.incident, report.now_unix_ns)) {
    json.begin_object()
        .field("at_unix_ns", one.at_unix_ns)
        .field("what", one.what)
        .field("who", one.who)
        .field("text", one.text)
        .field("path", one.path)
        .end_object();
  }
  json.end_array();
}

// Bytes of a UTF-8 sequence that turns the direction of text, or is not seen at all.
bool is_forging(std::string_view sequence) {
  if (sequence == "\xEF\xBB\xBF") return true;
  if (sequence.size() != 3 || sequence[0] != '\xE2') return false;
  const auto second = static_cast<unsigned char>(sequence[1]), third = static_cast<unsigned char>(sequence[2]);
  return (second == 0x80 && ((third >= 0x8B && third <= 0x8F) || (third >= 0xA8 && third <= 0xAE))) ||
         (second == 0x81 && third >= 0xA0 && third <= 0xAF);
}

std::string plain_line(std::string_view text) {
  const std::string line = as_one_line(text);
  std::string plain;
  for (size_t at = 0; at < line.size();) {
    const size_t length = utf8_length(line, at);
    const std::string_view sequence = std::string_view(line).substr(at, std::max<size_t>(1, length));
    if (length == 0 || is_forging(sequence))
      plain += "\xEF\xBF\xBD";
    else
      plain += sequence;
    at += sequence.size();
  }
  return plain;
}

std::string moment_text(int64_t unix_ns) {
  return utc_time(unix_ns / 1'000'000, "%Y-%m-%d %H:%M:%S UTC");
}

// In an indented block, where nothing is markup.
std::string code_line(std::string_view text) {
  return "    " + plain_line(text) + "\n";
}

std::string list_of(const char* title, const std::vector<Evidence::Line>& lines) {
  std::string text;
  for (const Evidence::Line& line : lines) text += "- " + markdown_text(line.text) + "\n";
  return text.empty() ? text : format("\n**%s**\n\n", title) + text;
}

std::string some(int64_t number, const char* what) {
  return with_thousands(number) + " " + what + (number == 1 ? "" : "s");
}

std::string markdown_head(const Report& report) {
  const Incident& incident = report.incident;
  const int64_t now = report.now_unix_ns;
  std::string text = "# Incident " + markdown_text(incident.id) + ": " + markdown_text(component_text(incident.place)) +
                     "\n\n" + markdown_text(sentence_of(incident)) + "\n\n";
  const bool active = is_active(incident, now);
  text += format("- State: **%s**%s\n", to_text(incident.state), active ? ", still seen" : "");
  text += "- Began: " + moment_text(incident.begin_unix_ns) + "\n";
  if (!active) text += "- Last seen: " + moment_text(over_since_unix_ns(incident, now)) + "\n";
  const std::string cost = cost_text(lost_of(incident, now, report.prices), 0);
  text += "- Cost: " + (cost.empty() ? "none known" : markdown_text(cost)) + "\n";
  if (const std::string repeat = repeat_sentence(incident.place, report.times); !repeat.empty())
    text += "- " + markdown_text(repeat) + "\n";
  const std::string link = absolute_link(incident_path(incident.id), report.external_url);
  text += "- Link: " + (report.external_url.empty() ? "`" + link + "`" : "<" + link + ">") + "\n";
  return text;
}

std::string markdown_jobs(const Report& report) {
  const Incident& incident = report.incident;
  const BlastRadius& radius = incident.radius;
  std::string text = "\n## Blast radius\n\n";
  if (radius.is_known)
    text += some(radius.gpus, "GPU") + " on " + some(radius.hosts, "host") + " in " + some(radius.jobs_total, "job") +
            " depend on it.\n";
  else
    text += "Not known: neither the topology nor a job's ranks have this component.\n";
  const std::vector<JobCost> costs = costs_of(incident, report.now_unix_ns);
  if (!costs.empty()) text += "\n| job | suffers | lost | completion |\n|---|---|---|---|\n";
  for (const JobCost& cost : costs) {
    const auto outlook = std::find_if(report.outlooks.begin(), report.outlooks.end(),
                                      [&](const Outlook& one) { return one.job_id == cost.job_id; });
    text += "| " + markdown_text(cost.job_id) + " | " + (cost.suffers ? "yes" : "no more") + " | " +
            markdown_text(text_of(cost, report.prices)) + " | " +
            (outlook == report.outlooks.end() ? "" : markdown_text(outlook->sentence)) + " |\n";
  }
  for (const BlastRadius::Job& job : radius.jobs) {
    if (std::none_of(costs.begin(), costs.end(), [&](const JobCost& one) { return one.job_id == job.job_id; }))
      text +=
          "\nAlso on it, with no verdict: " + markdown_text(job.job_id) +
          format(" (%lld of %lld ranks)\n", static_cast<long long>(job.ranks_hit), static_cast<long long>(job.ranks));
  }
  return text;
}

std::string markdown_evidence(const Evidence& evidence) {
  std::string text =
      "\n## " + markdown_text(evidence.job_id) + ": evidence\n\n" + markdown_text(evidence.sentence) + "\n";
  text += list_of("Because", evidence.because) + list_of("Ruled out", evidence.ruled_out) +
          list_of("Less likely", evidence.less_likely);
  if (!evidence.next.empty()) text += "\n**Next**\n";
  for (const Evidence::Next& next : evidence.next) {
    text += "\n" + markdown_text(next.action) + "\n";
    if (!next.command.empty()) text += "\n" + code_line(next.command);
  }
  if (!evidence.feedback.empty()) text += "\nPeople say: " + markdown_text(evidence.feedback) + "\n";
  return text;
}

}  // namespace

Evidence evidence_of(std::string verdict_json) {
  Evidence evidence;
  {
    const Result<JsonDocument> document = JsonDocument::parse(verdict_json);
    if (document.ok()) {
      const JsonValue json = document->root();
      evidence.verdict_id = text_in(json, "id");
      evidence.job_id = text_in(json, "job_id");
      evidence.sentence = text_in(json, "sentence");
      evidence.feedback = feedback_text(json["feedback"]);
      for (const JsonValue claim : json["chain"]) {
        const bool excludes = text_in(claim, "kind") == lockstep::to_text(ClaimKind::kExclusion);
        (excludes ? evidence.ruled_out : evidence.because)
            .push_back({text_in(claim, "claim"), text_in(claim, "query")});
      }
      for (const JsonValue other : json["alternatives"])
        evidence.less_likely.push_back({text_in(other, "culprit") + ": " + text_in(other, "why_lower"), ""});
      for (const JsonValue next : json["next"])
        evidence.next.push_back({text_in(next, "action"), text_in(next, "command")});
    }
  }
  evidence.json = std::move(verdict_json);
  return evidence;
}

Outlook outlook_of(const JobCost& cost, int64_t ranks) {
  Outlook outlook{.job_id = cost.job_id, .ranks = ranks, .sentence = {}};
  if (ranks > 0) outlook.delay_s = cost.lost_gpu_seconds / static_cast<double>(ranks);
  outlook.stands_still = cost.suffers && cost.lost_share >= 1;
  if (cost.suffers && cost.lost_share < 1) outlook.slower_by = cost.lost_share / (1 - cost.lost_share);
  std::string& text = outlook.sentence;
  text = ranks > 0 ? human_duration(1e9 * outlook.delay_s) + " later so far" : "how much later is not known";
  if (outlook.stands_still)
    text += "; it stands still, so it ends as much later as this lasts";
  else if (outlook.slower_by > 0)
    text +=
        format("; while it lasts, an hour's work takes %s", human_duration(3600e9 * (1 + outlook.slower_by)).c_str());
  text += ". When it ends is not known: the job does not report how many steps are planned.";
  return outlook;
}

std::vector<Moment> timeline_of(const Incident& incident, int64_t now_unix_ns) {
  std::vector<Moment> list;
  for (const Finding& one : incident.findings) {
    const bool is_event = one.kind == FindingKind::kEvent;
    std::string text = one.kind == FindingKind::kVerdict ? one.job_id + ": " + one.sentence : one.sentence;
    if (one.count > 1) text += format(" (%lld times)", static_cast<long long>(one.count));
    list.push_back({one.begin_unix_ns, is_event ? "event" : "began", "", std::move(text), one.path});
    if (!is_event && one.end_unix_ns != 0 && one.end_unix_ns <= now_unix_ns)
      list.push_back({one.end_unix_ns, "over", "",
                      one.job_id.empty() ? one.sentence : "No longer seen in job " + one.job_id + ".", one.path});
  }
  for (const Entry& one : incident.entries) list.push_back({one.at_unix_ns, one.what, one.who, one.note, ""});
  std::stable_sort(list.begin(), list.end(),
                   [](const Moment& a, const Moment& b) { return a.at_unix_ns < b.at_unix_ns; });
  return list;
}

std::string component_text(const FaultPlace& place) {
  const size_t colon = place.component.find(':');
  const std::string kind = place.component.substr(0, colon), name = place.component.substr(colon + 1);
  // "leaf-1" and "GPU-5b1e" say themselves what they are.
  const bool says_so = name.size() > kind.size() &&
                       std::equal(kind.begin(), kind.end(), name.begin(),
                                  [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
  std::string text = says_so ? name : kind + " " + name;
  if (!place.host.empty() && place.component.find(place.host) == std::string::npos) text += " of " + place.host;
  return text;
}

std::string repeat_sentence(const FaultPlace& place, size_t times) {
  if (times < 2 || !place.is_hardware()) return {};
  return format("%s was guilty %zu times in 30 days.", component_text(place).c_str(), times);
}

GpuCost lost_of(const Incident& incident, int64_t now_unix_ns, const GpuPrices& prices) {
  GpuCost lost;
  for (const JobCost& cost : costs_of(incident, now_unix_ns)) lost += money_of(cost, prices);
  return lost;
}

void write_summary(JsonWriter& json, const Incident& incident, size_t times, int64_t now_unix_ns,
                   const GpuPrices& prices) {
  const Finding* main = main_finding(incident);
  const GpuCost lost = lost_of(incident, now_unix_ns, prices);
  const bool active = is_active(incident, now_unix_ns);
  std::vector<std::string> jobs;
  for (const Finding& one : incident.findings) {
    if (!one.job_id.empty() && std::find(jobs.begin(), jobs.end(), one.job_id) == jobs.end())
      jobs.push_back(one.job_id);
  }
  json.field("id", incident.id)
      .field("state", to_text(incident.state))
      .field("active", active)
      .field("severity", lockstep::to_text(severity_of(incident)))
      .field("sentence", main == nullptr ? "" : main->sentence)
      .field("action", main == nullptr ? "" : main->action)
      .field("component", incident.place.component)
      .field("component_text", component_text(incident.place))
      .field("part", incident.place.part)
      .field("host", incident.place.host)
      .field("gpu_uuid", incident.place.gpu_uuid)
      .field("cause", main == nullptr ? "" : lockstep::to_text(main->cause))
      .field("begin_unix_ns", incident.begin_unix_ns)
      .field("end_unix_ns", active ? 0 : over_since_unix_ns(incident, now_unix_ns))
      .field("resolved_unix_ns", incident.resolved_unix_ns)
      .field("acknowledged_by", incident.state == State::kAcknowledged ? who_in(incident, "acknowledged") : "")
      .field("resolved_by", incident.state == State::kResolved ? who_in(incident, "resolved") : "")
      .field("lost_gpu_seconds", lost.gpu_seconds)
      .key("lost_money")
      .number(lost.has_price() ? lost.money : std::numeric_limits<double>::quiet_NaN())
      .field("money", money_text(lost))
      .field("cost", cost_text(lost, 0))
      .field("times", static_cast<uint64_t>(times))
      .field("repeat", repeat_sentence(incident.place, times))
      .field("path", incident_path(incident.id))
      .key("job_ids")
      .begin_array();
  for (const std::string& job : jobs) json.string(job);
  json.end_array();
}

void write_report(JsonWriter& json, const Report& report) {
  json.begin_object();
  write_summary(json, report.incident, report.times, report.now_unix_ns, report.prices);
  json.field("link", absolute_link(incident_path(report.incident.id), report.external_url));
  json.field("has_more", report.incident.has_more).key("also").begin_array();
  for (const std::string& id : report.incident.also) json.string(id);
  json.end_array();
  write_jobs(json, report);
  write_radius(json, report.incident, report.now_unix_ns);
  write_timeline(json, report);
  json.key("earlier").begin_array();
  for (const Brief& one : report.earlier) write_brief(json, one);
  json.end_array().key("beside").begin_array();
  for (const Brief& one : report.beside) write_brief(json, one);
  json.end_array().key("verdicts").begin_array();
  for (const Evidence& one : report.evidence) json.raw(one.json);
  json.end_array().end_object();
}

std::string to_markdown(const Report& report) {
  std::string text = markdown_head(report) + markdown_jobs(report) + "\n## Timeline\n\n";
  for (const Moment& one : timeline_of(report.incident, report.now_unix_ns)) {
    text += "- " + moment_text(one.at_unix_ns) + " " + one.what;
    if (!one.who.empty()) text += " by " + markdown_text(one.who);
    text += (one.text.empty() ? "" : ": " + markdown_text(one.text)) + "\n";
  }
  for (const Evidence& one : report.evidence) text += markdown_evidence(one);
  const std::pair<const char*, const std::vector<Brief>*> others[] = {
      {"The same component at other times, in 30 days", &report.earlier},
      {"On the same host at that time", &report.beside}};
  for (const auto& [title, briefs] : others) {
    if (!briefs->empty()) text += format("\n## %s\n\n", title);
    for (const Brief& one : *briefs)
      text += "- " + moment_text(one.begin_unix_ns) + " " + markdown_text(one.id) + " (" + to_text(one.state) +
              "): " + markdown_text(one.sentence) + "\n";
  }
  return text;
}

std::string markdown_text(std::string_view text) {
  std::string marked;
  const std::string line = plain_line(text);
  for (size_t at = 0; at < line.size(); ++at) {
    const char one = line[at];
    const std::string_view rest = std::string_view(line).substr(at);
    // Addresses become links by themselves.
    const bool begins_address = rest.starts_with("://") || (at > 0 && one == '.' && marked.ends_with("www"));
    const bool begins_list = at == 0 && std::string_view("-+=.0123456789").find(one) != std::string_view::npos;
    if (begins_address || (begins_list && !(one >= '0' && one <= '9')) ||
        std::string_view("\\`*_[]<>|~#&!$").find(one) != std::string_view::npos)
      marked += '\\';
    marked += one;
  }
  return marked;
}

}  // namespace lockstep::incident
