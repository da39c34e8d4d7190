#include "model/verdict.h"

#include <algorithm>

#include "base/json_writer.h"
#include "model/runbook.h"

namespace lockstep {

namespace {

void write_culprit(JsonWriter& json, const Culprit& culprit) {
  json.begin_object().key("rank").begin_array();
  for (Rank rank : culprit.ranks) json.number(rank.value());
  json.end_array()
      .field("host", culprit.host)
      .field("gpu_uuid", culprit.gpu_uuid)
      .field("layer", to_text(culprit.layer))
      .field("component", culprit.component)
      .field("cause", to_text(culprit.cause));
  if (!culprit.place.empty()) json.field("place", culprit.place);
  json.end_object();
}

void write_claim(JsonWriter& json, const Claim& claim) {
  json.begin_object()
      .field("claim", claim.claim)
      .field("kind", to_text(claim.kind))
      .field("subject", claim.subject)
      .field("value", claim.value)
      .field("unit", claim.unit)
      .field("baseline", claim.baseline)
      .field("peers", claim.peers)
      .field("from", claim.from_step.value())
      .field("to", claim.to_step.value())
      .field("query", claim.query)
      .end_object();
}

void write_victims(JsonWriter& json, const Verdict& verdict) {
  json.begin_object().field("count", static_cast<uint64_t>(verdict.victim_ranks.size())).key("ranks").begin_array();
  for (size_t i = 0; i < std::min(verdict.victim_ranks.size(), kVictimsReportedMax); ++i)
    json.number(verdict.victim_ranks[i].value());
  json.end_array().key("groups").begin_array();
  for (const std::string& group : verdict.victim_groups) json.string(group);
  json.end_array().field("gpu_minutes", verdict.victim_gpu_minutes).end_object();
}

void write_alternative(JsonWriter& json, const Alternative& alternative) {
  json.begin_object()
      .field("culprit", alternative.culprit)
      .field("cause", to_text(alternative.cause))
      .field("score", alternative.score)
      .field("checked", alternative.checked)
      .field("why_lower", alternative.why_lower)
      .field("decided_by", alternative.decided_by)
      .end_object();
}

}  // namespace

std::string to_json(const Verdict& verdict) {
  JsonWriter json;
  json.begin_object()
      .field("id", verdict.id)
      .field("job_id", verdict.job_id)
      .field("attempt", verdict.attempt)
      .field("state", to_text(verdict.state))
      .field("kind", to_text(verdict.kind))
      .field("pattern", to_text(verdict.pattern))
      .field("period_steps", verdict.period_steps)
      .field("period_s", verdict.period_s)
      .field("since_step", verdict.since_step.value())
      .field("through_step", verdict.through_step.value())
      .field("since_unix_ns", verdict.since_unix_ns)
      .field("found_unix_ns", verdict.found_unix_ns)
      .field("lost_gpu_seconds", verdict.lost_gpu_seconds)
      .field("lost_share", verdict.lost_share)
      .field("confidence", verdict.confidence)
      .field("coverage", verdict.coverage)
      .field("clock_error_us", verdict.clock_error_us)
      .field("sentence", verdict.sentence);
  json.key("culprit");
  write_culprit(json, verdict.culprit);
  json.key("chain").begin_array();
  for (const Claim& claim : verdict.chain) write_claim(json, claim);
  json.end_array().key("victims");
  write_victims(json, verdict);
  json.key("alternatives").begin_array();
  for (const Alternative& alternative : verdict.alternatives) write_alternative(json, alternative);
  json.end_array().key("next").begin_array();
  for (const NextAction& next : verdict.next)
    json.begin_object().field("action", next.action).field("command", next.command).end_object();
  json.end_array().field("runbook", runbook_of(verdict.culprit.cause)).end_object();
  return json.take();
}

}  // namespace lockstep
