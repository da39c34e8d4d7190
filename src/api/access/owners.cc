// GET /api/owners: which hosts and jobs of the tenant belong to whom. POST /api/owners/takeover gives one to another
// owner.
#include "access/name_owners.h"
#include "access/token_store.h"
#include "api/access/body.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"

namespace lockstep {

HttpResponse get_owners(const ApiContext& context, const ApiRequest& request) {
  if (context.owners == nullptr) return error_answer(501, "this server knows no owners");
  const Result<int64_t> limit = int_parameter(request.http, "limit", 1000, 1, 100'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const std::vector<NameOwner> names = context.owners->list(request.http.caller.tenant, static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().key("owners").begin_array();
  for (const NameOwner& one : names) {
    json.begin_object()
        .field("kind", to_text(one.kind))
        .field("name", one.name)
        .field("owner", one.owner)
        .field("used_unix_ns", one.used_unix_ns)
        .end_object();
  }
  return list_answer(json, names.size(), names.size());
}

HttpResponse post_owner_takeover(const ApiContext& context, const ApiRequest& request) {
  if (context.owners == nullptr) return error_answer(501, "this server knows no owners");
  Result<JsonDocument> document = read_object(request.http.body, {"kind", "name", "owner"});
  if (!document.ok()) return error_answer(400, document.error());
  const JsonValue root = document->root();
  const std::string kind = root["kind"].string().value_or(""), name = root["name"].string().value_or("");
  std::string owner = root["owner"].string().value_or("");
  if (owner.empty()) owner = request.http.caller.owner;
  if ((kind != "host" && kind != "job") || name.empty() || owner.empty() || owner.size() > kTokenNameBytesMax ||
      has_control_characters(owner))
    return error_answer(400, "a takeover needs \"kind\": host or job, \"name\", and \"owner\" (default: your own)");
  request.object = kind + " " + name + " to " + owner;
  const Result<void> done = context.owners->take_over(request.http.caller.tenant,
                                                      kind == "job" ? OwnedKind::kJob : OwnedKind::kHost, name, owner);
  if (!done.ok()) return error_answer(done.code() == ErrorCode::kNotFound ? 404 : 503, done.error());
  JsonWriter json;
  json.begin_object().field("kind", kind).field("name", name).field("owner", owner).end_object();
  return json_answer(json);
}

}  // namespace lockstep
