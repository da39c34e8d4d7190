#include "model/warning.h"

namespace lockstep {

void write_fields(JsonWriter& json, const EarlyWarning& warning) {
  json.field("id", warning.id)
      .field("state", warning.is_gone() ? "gone" : "raised")
      .field("sentence", warning.sentence)
      .field("host", warning.host)
      .field("gpu_uuid", warning.gpu_uuid)
      .field("device", warning.device)
      .field("signal", warning.signal)
      .field("layer", to_text(warning.layer))
      .field("cause", to_text(warning.cause))
      .field("horizon_s", warning.horizon_s)
      .field("confidence", warning.confidence)
      .field("raised_unix_ns", warning.raised_unix_ns)
      .field("updated_unix_ns", warning.updated_unix_ns)
      .field("gone_unix_ns", warning.gone_unix_ns);
  json.key("claims").begin_array();
  for (const Claim& claim : warning.claims) {
    json.begin_object()
        .field("claim", claim.claim)
        .field("kind", to_text(claim.kind))
        .field("subject", claim.subject)
        .field("value", claim.value)
        .field("unit", claim.unit)
        .field("baseline", claim.baseline)
        .field("query", claim.query)
        .end_object();
  }
  json.end_array().key("next").begin_object();
  json.field("action", warning.next.action).field("command", warning.next.command).end_object();
  json.key("record");
  if (warning.record_raised > 0) {
    json.begin_object()
        .field("raised", warning.record_raised)
        .field("came_true", warning.record_came_true)
        .end_object();
  } else {
    json.null();
  }
}

}  // namespace lockstep
