// GET /tempo/api/traces/{id} and /tempo/api/v2/traces/{id}: a trace as protobuf where the client takes that, else JSON.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jaeger/jaeger_answer.h"
#include "api/tempo/tempo_answer.h"
#include "base/protobuf_wire.h"
#include "base/text.h"
#include "query/traceql/span_text.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

bool wants_protobuf(const ServerRequest& request) {
  return request.header("accept").find("application/protobuf") != std::string_view::npos;
}

// TraceByIDResponse of Tempo: trace 1, status 3 (1: partial), message 4.
std::string v2_bytes(const std::string& trace, const std::string& cut) {
  std::string bytes;
  protobuf::WireWriter writer(bytes);
  writer.bytes(1, trace);
  if (!cut.empty()) {
    writer.varint(3, 1);
    writer.bytes(4, cut);
  }
  return bytes;
}

HttpResponse trace_answer(const ApiContext& context, const ApiRequest& request, bool is_v2) {
  Result<TraceId> id = trace_id_from_text(request.name);
  if (!id.ok()) return tempo_error(400, id.error());
  const Page<StoredSpan> page = context.spans.trace(*id, kSpansOfTraceShownMax);
  if (page.items.empty()) return tempo_error(404, "trace not found");
  std::string cut;
  if (page.items.size() < page.total)
    cut = format("the first %zu of %zu spans are shown", page.items.size(), page.total);
  HttpResponse response;
  if (wants_protobuf(request.http)) {
    // The trace is one field 1 per resource, as an export request has it.
    std::string trace = otlp::encode(batch_of(page.items));
    response = text_answer(200, "application/protobuf", is_v2 ? v2_bytes(trace, cut) : std::move(trace));
  } else {
    JsonWriter json;
    json.begin_object();
    if (is_v2) json.key("trace").begin_object();
    json.key(is_v2 ? "resourceSpans" : "batches");
    write_resource_spans(json, page.items, OtlpJson::kProtobuf);
    if (is_v2) {
      json.end_object().key("metrics").begin_object().end_object();
      if (!cut.empty()) json.field("status", "PARTIAL").field("message", cut);
    }
    json.end_object();
    response = json_answer(json);
  }
  if (!cut.empty()) response.headers.emplace_back("x-lockstep-cut", cut);
  return response;
}

}  // namespace

HttpResponse get_tempo_trace(const ApiContext& context, const ApiRequest& request) {
  return trace_answer(context, request, false);
}

HttpResponse get_tempo_v2_trace(const ApiContext& context, const ApiRequest& request) {
  return trace_answer(context, request, true);
}

}  // namespace lockstep
