// GET /metrics: Lockstep's own metrics, Prometheus text. What they say of tenants is the operator's.
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"

namespace lockstep {
namespace {

bool is_of_tenants(std::string_view line) {
  for (const std::string_view head : {"# HELP ", "# TYPE "})
    if (line.starts_with(head)) line.remove_prefix(head.size());
  return line.starts_with("lockstep_tenant");
}

}  // namespace

HttpResponse get_own_metrics(const ApiContext& context, const ApiRequest& request) {
  std::string text = context.counters.prometheus_text();
  if (!request.http.caller.is_operator()) {
    std::string own;
    for (const std::string_view line : split(text, '\n'))
      if (!line.empty() && !is_of_tenants(line)) own.append(line).append("\n");
    text = std::move(own);
  }
  return text_answer(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

}  // namespace lockstep
