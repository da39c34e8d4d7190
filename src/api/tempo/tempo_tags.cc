// GET /tempo/api/search/tags, /tempo/api/v2/search/tags and .../tag/{name}/values: what a search may ask for.
#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/tempo/tempo_answer.h"
#include "base/text.h"
#include "net/server_request.h"
#include "query/traceql/span_text.h"

namespace lockstep {
namespace {

constexpr size_t kValuesMax = 5'000;
constexpr const char* kIntrinsics[] = {"duration", "kind",   "name",          "rootName",      "rootServiceName",
                                       "span:id",  "status", "statusMessage", "traceDuration", "trace:id"};

// Clients ask for whole numbers of their own choice; more than we list is no mistake.
size_t list_limit(const ServerRequest& request) {
  std::optional<int64_t> limit = parse_int(request.parameter("limit"));
  return limit && *limit > 0 ? std::min(static_cast<size_t>(*limit), kValuesMax) : kValuesMax;
}

void write_names(JsonWriter& json, const std::vector<std::string>& names, size_t limit) {
  json.begin_array();
  for (size_t i = 0; i < names.size() && i < limit; ++i) json.string(names[i]);
  json.end_array();
}

struct TypedValues {
  const char* type = nullptr;  // nullptr: each by its look, stores keep them as text
  std::vector<std::string> values;
};

const char* type_of(const std::string& value) {
  if (value == "true" || value == "false") return "bool";
  if (parse_int(value)) return "int";
  if (parse_double(value)) return "float";
  return "string";
}

Result<TypedValues> values_of(const ApiContext& context, const ApiRequest& request) {
  // Grafana encodes the name twice where it asks through its proxy.
  const std::string name = percent_decode(request.name, false).value_or(request.name);
  const size_t limit = list_limit(request.http);
  auto without = [&](std::string_view prefix) {
    return name.starts_with(prefix) ? std::optional(name.substr(prefix.size())) : std::nullopt;
  };
  TypedValues answer;
  if (name == "name" || name == "span:name" || name == "rootName" || name == "trace:rootName" || name == "root.name") {
    answer = {"string", context.spans.span_names("")};
  } else if (name == "status" || name == "span:status") {
    answer = {"keyword", {"error", "ok", "unset"}};
  } else if (name == "kind" || name == "span:kind") {
    answer = {"keyword", {"client", "consumer", "internal", "producer", "server", "unspecified"}};
  } else if (name == "service.name" || name == ".service.name" || name == "resource.service.name" ||
             name == "rootServiceName" || name == "trace:rootService" || name == "root.service.name") {
    answer = {"string", context.spans.services()};
    std::erase(answer.values, "");
  } else if (std::find(std::begin(kIntrinsics), std::end(kIntrinsics), name) != std::end(kIntrinsics)) {
    answer = {"string", {}};  // durations and ids: nobody picks them from a list
  } else {
    std::string key = name;
    for (std::string_view prefix : {"span.", "resource.", "."}) {
      if (std::optional<std::string> rest = without(prefix)) {
        key = *rest;
        break;
      }
    }
    if (key.empty()) return Error{format("\"%.60s\" names no attribute", as_one_line(name).c_str())};
    answer.values = context.spans.attribute_values(key, limit);
  }
  if (answer.values.size() > limit) answer.values.resize(limit);
  return answer;
}

}  // namespace

HttpResponse get_tempo_tags(const ApiContext& context, const ApiRequest& request) {
  const SpanStore::AttributeNames names = context.spans.attribute_names();
  std::vector<std::string> all = names.resource;
  all.insert(all.end(), names.span.begin(), names.span.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  JsonWriter json;
  json.begin_object().key("tagNames");
  write_names(json, all, list_limit(request.http));
  json.end_object();
  return json_answer(json);
}

HttpResponse get_tempo_v2_tags(const ApiContext& context, const ApiRequest& request) {
  const std::string scope = request.http.parameter("scope");
  if (!scope.empty() && scope != "resource" && scope != "span" && scope != "intrinsic" && scope != "none")
    return tempo_error(400, format("scope is \"%.40s\"; known: resource, span, intrinsic", as_one_line(scope).c_str()));
  const SpanStore::AttributeNames names = context.spans.attribute_names();
  JsonWriter json;
  json.begin_object().key("scopes").begin_array();
  auto write_scope = [&](const char* name, const std::vector<std::string>& tags) {
    if (!scope.empty() && scope != "none" && scope != name) return;
    json.begin_object().field("name", name).key("tags");
    write_names(json, tags, list_limit(request.http));
    json.end_object();
  };
  write_scope("resource", names.resource);
  write_scope("span", names.span);
  write_scope("intrinsic", {std::begin(kIntrinsics), std::end(kIntrinsics)});
  json.end_array().end_object();
  return json_answer(json);
}

HttpResponse get_tempo_tag_values(const ApiContext& context, const ApiRequest& request) {
  Result<TypedValues> values = values_of(context, request);
  if (!values.ok()) return tempo_error(400, values.error());
  JsonWriter json;
  json.begin_object().key("tagValues");
  write_names(json, values->values, kValuesMax);
  json.end_object();
  return json_answer(json);
}

HttpResponse get_tempo_v2_tag_values(const ApiContext& context, const ApiRequest& request) {
  Result<TypedValues> values = values_of(context, request);
  if (!values.ok()) return tempo_error(400, values.error());
  JsonWriter json;
  json.begin_object().key("tagValues").begin_array();
  for (const std::string& value : values->values) {
    json.begin_object()
        .field("type", values->type != nullptr ? values->type : type_of(value))
        .field("value", value)
        .end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

}  // namespace lockstep
