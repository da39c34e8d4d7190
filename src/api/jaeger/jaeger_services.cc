// GET /jaeger/api/services, .../services/{name}/operations, .../operations?service=: what can be searched for.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jaeger/jaeger_answer.h"

namespace lockstep {
namespace {

std::vector<std::string> names_of(std::vector<std::string> names) {
  std::erase(names, "");  // spans whose sender did not say who it is
  return names;
}

HttpResponse list_answer(const std::vector<std::string>& names) {
  return jaeger_answer(names.size(), [&](JsonWriter& json) {
    json.begin_array();
    for (const std::string& name : names) json.string(name);
    json.end_array();
  });
}

void write_operations(JsonWriter& json, const std::vector<std::string>& names) {
  json.begin_array();
  // A name may have spans of several kinds, so none is told.
  for (const std::string& name : names) json.begin_object().field("name", name).field("spanKind", "").end_object();
  json.end_array();
}

}  // namespace

HttpResponse get_jaeger_services(const ApiContext& context, const ApiRequest&) {
  return list_answer(names_of(context.spans.services()));
}

HttpResponse get_jaeger_service_operations(const ApiContext& context, const ApiRequest& request) {
  return list_answer(context.spans.span_names(request.name));
}

HttpResponse get_jaeger_operations(const ApiContext& context, const ApiRequest& request) {
  const std::string service = request.http.parameter("service");
  if (service.empty()) return jaeger_error(400, "service is missing: ?service=NAME");
  const std::vector<std::string> names = context.spans.span_names(service);
  return jaeger_answer(names.size(), [&](JsonWriter& json) { write_operations(json, names); });
}

HttpResponse get_jaeger_v3_services(const ApiContext& context, const ApiRequest&) {
  JsonWriter json;
  json.begin_object().key("services").begin_array();
  for (const std::string& name : names_of(context.spans.services())) json.string(name);
  json.end_array().end_object();
  return json_answer(json);
}

HttpResponse get_jaeger_v3_operations(const ApiContext& context, const ApiRequest& request) {
  const std::string service = request.http.parameter("service");
  if (service.empty()) return jaeger_v3_error(400, "service is missing: ?service=NAME");
  JsonWriter json;
  json.begin_object().key("operations");
  write_operations(json, context.spans.span_names(service));
  json.end_object();
  return json_answer(json);
}

}  // namespace lockstep
