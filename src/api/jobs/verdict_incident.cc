// The incident that a verdict belongs to: whoever reads why a job is slow finds who takes care of it.
#include "api/answer.h"
#include "api/jobs/job_view.h"
#include "incident/incident_registry.h"

namespace lockstep {

std::string with_incident(const ApiContext& context, const std::string& verdict_id, std::string verdict_json) {
  if (context.incidents == nullptr || !verdict_json.ends_with('}')) return verdict_json;
  const std::string id = context.incidents->id_of_finding(verdict_id);
  const Result<incident::Incident> found = context.incidents->find(id);
  verdict_json.pop_back();
  if (!found.ok()) return verdict_json + ",\"incident\":null}";
  JsonWriter json;
  json.begin_object().field("id", found->id).field("state", to_text(found->state)).end_object();
  return verdict_json + ",\"incident\":" + json.take() + "}";
}

}  // namespace lockstep
