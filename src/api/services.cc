// GET /api/services and /api/services/{name}: inference services, and how one of them does.
#include <algorithm>

#include "analysis/inference.h"
#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLastDefaultS = 900;
constexpr int64_t kLastMostS = 7 * 86'400;

void write_quantiles(JsonWriter& json, std::string_view name, const Quantiles& quantiles) {
  json.key(name);
  if (quantiles.count == 0) {
    json.null();
    return;
  }
  json.begin_object();
  write_number(json, "p50", quantiles.p50 * 1e3);
  write_number(json, "p90", quantiles.p90 * 1e3);
  write_number(json, "p99", quantiles.p99 * 1e3);
  write_number(json, "mean", quantiles.mean * 1e3);
  json.field("count", static_cast<uint64_t>(quantiles.count)).end_object();
}

void write_known(JsonWriter& json, std::string_view name, double value) {
  if (value < 0) {
    json.key(name).null();
  } else {
    write_number(json, name, value);
  }
}

}  // namespace

HttpResponse get_services(const ApiContext& context, const ApiRequest&) {
  const int64_t now = context.clock.unix_ns();
  const std::vector<std::string> services =
      services_of(context.spans, context.metrics, now - kLastDefaultS * kSecondNs, now);
  JsonWriter json;
  json.begin_object().key("services").begin_array();
  for (const std::string& service : services) json.string(service);
  return list_answer(json, services.size(), services.size());
}

HttpResponse get_service(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> last = int_parameter(request.http, "last_s", kLastDefaultS, 1, kLastMostS);
  if (!last.ok()) return error_answer(400, last.error());
  const int64_t now = context.clock.unix_ns();
  const int64_t from = now - *last * kSecondNs;
  const std::vector<std::string> known = services_of(context.spans, context.metrics, from, now);
  if (std::find(known.begin(), known.end(), request.name) == known.end())
    return error_answer(
        404, "no service \"" + request.name.substr(0, 80) + "\" has sent spans or vLLM metrics; see /api/services");
  const InferenceReport report = inference_report(context.spans, context.metrics, request.name, from, now);
  JsonWriter json;
  json.begin_object()
      .field("service", report.service)
      .field("sentence", report.sentence)
      .field("source", report.source)
      .field("from_unix_ns", report.from_unix_ns)
      .field("to_unix_ns", report.to_unix_ns)
      .field("requests", static_cast<uint64_t>(report.requests))
      .field("cut", report.cut);
  write_quantiles(json, "ttft_ms", report.ttft_s);
  write_quantiles(json, "tpot_ms", report.tpot_s);
  write_quantiles(json, "e2e_ms", report.e2e_s);
  write_quantiles(json, "queue_ms", report.queue_s);
  write_quantiles(json, "prefill_ms", report.prefill_s);
  write_quantiles(json, "decode_ms", report.decode_s);
  write_number(json, "prompt_tokens_per_s", report.prompt_tokens / static_cast<double>(*last));
  write_number(json, "completion_tokens_per_s", report.completion_tokens / static_cast<double>(*last));
  write_known(json, "requests_running", report.running);
  write_known(json, "requests_waiting", report.waiting);
  write_known(json, "kv_cache_share", report.kv_cache_share);
  json.key("slowest").begin_array();
  for (const SlowRequest& slow : report.slowest) {
    json.begin_object().field("trace_id", to_hex(slow.trace_id)).field("start_unix_ns", slow.start_unix_ns);
    write_number(json, "ttft_ms", slow.ttft_s * 1e3);
    write_number(json, "queue_ms", slow.queue_s * 1e3);
    write_number(json, "prefill_ms", slow.prefill_s * 1e3);
    write_number(json, "e2e_ms", slow.e2e_s * 1e3);
    json.end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

}  // namespace lockstep
