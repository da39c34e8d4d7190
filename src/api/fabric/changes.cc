// GET /api/fabric/changes: which versions became others, and what hangs elsewhere, and when.
#include "fabric/changes.h"

#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"
#include "fabric/fabric.h"

namespace lockstep {

HttpResponse get_changes(const ApiContext& context, const ApiRequest& request) {
  constexpr int64_t kDayNs = 86'400'000'000'000, kMost = std::numeric_limits<int64_t>::max();
  const Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 1'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const Result<int64_t> to = int_parameter(request.http, "to", context.clock.unix_ns(), 0, kMost);
  if (!to.ok()) return error_answer(400, to.error());
  const Result<int64_t> from = int_parameter(request.http, "from", std::max<int64_t>(0, *to - kDayNs), 0, *to);
  if (!from.ok()) return error_answer(400, from.error());
  const Result<int64_t> began = int_parameter(request.http, "began", 0, 0, kMost);
  if (!began.ok()) return error_answer(400, began.error());
  if (context.fabric == nullptr) return error_answer(404, "this server keeps no topology");
  const std::string component = request.http.parameter("component"), what = request.http.parameter("what");
  const fabric::Changes changes = fabric::find_changes(context.fabric->topology, context.fabric->versions,
                                                       {.component = component,
                                                        .what = what,
                                                        .from_unix_ns = *from,
                                                        .to_unix_ns = *to,
                                                        .limit = static_cast<size_t>(*limit)});
  JsonWriter json;
  json.begin_object().key("changes").begin_array();
  for (const fabric::Change& one : changes.shown) {
    json.begin_object().field("time_unix_ns", one.time_unix_ns).field("component", one.component);
    json.field("what", one.what).field("before", one.before).field("after", one.after);
    if (*began > 0) write_number(json, "before_s", static_cast<double>(*began - one.time_unix_ns) / 1e9);
    json.end_object();
  }
  return list_answer(json, changes.total, changes.shown.size());
}

}  // namespace lockstep
