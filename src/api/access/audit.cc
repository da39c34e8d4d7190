// GET /api/audit: what was done by whom, newest first. Of one tenant; of all, for whoever is admin of all and speaks
// for the default one.
#include "access/audit_log.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/duration.h"
#include "base/text.h"

namespace lockstep {

HttpResponse get_audit(const ApiContext& context, const ApiRequest& request) {
  if (context.audit == nullptr) return error_answer(501, "this server has no audit log");
  const Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const Caller& caller = request.http.caller;
  AuditFilter filter;
  filter.tenant = caller.tenant;
  filter.all_tenants = caller.tenant.empty() && caller.is_operator();
  filter.who = request.http.parameter("who");
  filter.action = request.http.parameter("action");
  filter.limit = static_cast<size_t>(*limit);
  if (const std::string since = request.http.parameter("since"); !since.empty()) {
    int64_t milliseconds = 0;
    if (std::string wrong = parse_duration_ms(since, &milliseconds); !wrong.empty())
      return error_answer(400, format("since is how long ago, like 90m or 7d: %s", wrong.c_str()));
    filter.since_unix_ns = context.clock.unix_ns() - milliseconds * 1'000'000;
  }
  const Result<std::vector<AuditRow>> rows = context.audit->read(filter);
  if (!rows.ok()) return error_answer(503, rows.error());
  JsonWriter json;
  json.begin_object().key("audit").begin_array();
  for (const AuditRow& row : *rows) {
    json.begin_object();
    if (filter.all_tenants) json.field("number", row.number);  // it counts everybody's: gaps would tell of others
    json.field("at_unix_ns", row.at_unix_ns)
        .field("tenant", row.tenant)
        .field("who", row.who)
        .field("peer", row.peer)
        .field("action", row.action)
        .field("object", row.object)
        .field("status", row.status)
        .end_object();
  }
  return list_answer(json, rows->size(), rows->size());
}

}  // namespace lockstep
