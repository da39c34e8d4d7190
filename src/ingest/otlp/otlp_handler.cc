#include "ingest/otlp/otlp_handler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/characters.h"
#include "base/text.h"
#include "ingest/otlp/admission.h"
#include "ingest/otlp/span_decode.h"
#include "wire/compression.h"
#include "wire/otlp.h"
#include "wire/step_walk.h"

namespace lockstep {
namespace {

constexpr int64_t kOverloadedRetryS = 1;   // a queue drains in moments
constexpr int64_t kUnavailableRetryS = 5;  // a full disk or a restart takes longer

enum class Format { kProtobuf, kJson };

std::optional<Signal> signal_of_path(std::string_view path) {
  if (path == "/v1/metrics") return Signal::kMetrics;
  if (path == "/v1/logs") return Signal::kLogs;
  if (path == "/v1/traces") return Signal::kSpans;
  return std::nullopt;
}

std::optional<Signal> signal_of_method(std::string_view path) {
  if (path == "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export") return Signal::kMetrics;
  if (path == "/opentelemetry.proto.collector.logs.v1.LogsService/Export") return Signal::kLogs;
  if (path == "/opentelemetry.proto.collector.trace.v1.TraceService/Export") return Signal::kSpans;
  return std::nullopt;
}

std::optional<Format> format_of(std::string_view content_type) {
  std::string type =
      lower_case(trim(content_type.substr(0, content_type.find(';'))));  // parameters (charset) change nothing
  if (type == "application/x-protobuf") return Format::kProtobuf;
  if (type == "application/json") return Format::kJson;
  return std::nullopt;
}

HttpResponse text_answer(int status, const std::string& line) {
  return {status, {{"content-type", "text/plain; charset=utf-8"}}, line + "\n"};
}

HttpResponse answer_in(Format wire_format, int status, std::string body) {
  return {status,
          {{"content-type", wire_format == Format::kJson ? "application/json" : "application/x-protobuf"}},
          std::move(body)};
}

HttpResponse status_answer(Format wire_format, int http_status, int code, const std::string& message) {
  return answer_in(
      wire_format, http_status,
      wire_format == Format::kJson ? otlp::encode_status_json(code, message) : otlp::encode_status(code, message));
}

}  // namespace

OtlpHandler::OtlpHandler(IngestSink& sink, const Clock& clock, Counters& counters, uint64_t body_bytes_max,
                         ClockWitness* witness, MemoryBudget* memory, NameOwners* owners)
    : sink_(sink),
      clock_(clock),
      counters_(counters),
      body_bytes_max_(body_bytes_max),
      clocks_(witness),
      memory_(memory),
      owners_(owners),
      log_(clock, "ingest") {}

void OtlpHandler::count_request(std::string_view receiver, Signal signal, int code) {
  counters_.add("lockstep_ingest_requests_total",
                format("receiver=\"%s\",signal=\"%s\",code=\"%d\"", receiver.data(), to_text(signal), code));
}

void OtlpHandler::count_undecodable(std::string_view receiver, const char* reason, const std::string& line) {
  counters_.add("lockstep_ingest_undecodable_requests_total",
                format("receiver=\"%s\",reason=\"%s\"", receiver.data(), reason));
  log_.warn(reason, format("%s: request refused: %s", receiver.data(), line.c_str()));
}

OtlpHandler::Outcome OtlpHandler::no_memory(std::string_view receiver) {
  count_undecodable(receiver, "memory", kMemorySpent);
  return {AcceptError::kOverloaded, 0, kMemorySpent};
}

HttpResponse OtlpHandler::handle_http(const ServerRequest& request) {
  std::optional<Signal> signal = signal_of_path(request.path);
  if (!signal) return text_answer(404, "no such path: OTLP/HTTP is at /v1/metrics, /v1/logs and /v1/traces");
  HttpResponse answer;
  if (request.method == "POST") {
    answer = post(*signal, request);
  } else {
    answer = text_answer(405, "only POST is answered here");
    answer.headers.emplace_back("allow", "POST");
  }
  count_request(kOtlpHttpReceiver, *signal, answer.status);
  return answer;
}

HttpResponse OtlpHandler::post(Signal signal, const ServerRequest& request) {
  std::optional<Format> wire_format = format_of(request.header("content-type"));
  if (!wire_format) {
    std::string line =
        format("content type \"%.100s\" is not understood: use application/x-protobuf or application/json",
               std::string(request.header("content-type")).c_str());
    count_undecodable(kOtlpHttpReceiver, "content_type", line);
    return text_answer(415, line);
  }
  Result<Encoding> encoding = parse_encoding(lower_case(trim(request.header("content-encoding"))));
  if (!encoding) {
    count_undecodable(kOtlpHttpReceiver, "content_encoding", encoding.error());
    return text_answer(415, encoding.error());
  }
  MemoryLease lease(memory_, MemoryUse::kDecoding);
  std::string plain;
  std::string_view bytes = request.body;
  if (*encoding != Encoding::kIdentity) {
    Result<std::string> decompressed = decompress(*encoding, request.body, body_bytes_max_, &lease);
    if (!decompressed && decompressed.code() == ErrorCode::kTooLarge) {
      count_undecodable(kOtlpHttpReceiver, "too_large", decompressed.error());
      return text_answer(413, decompressed.error());
    }
    if (!decompressed && !lease.was_refused()) {
      count_undecodable(kOtlpHttpReceiver, "compression", decompressed.error());
      return status_answer(*wire_format, 400, kGrpcInvalidArgument, decompressed.error());
    }
    if (decompressed) plain = std::move(*decompressed);
    bytes = plain;
  }
  bool json = *wire_format == Format::kJson;
  Result<Outcome> outcome = lease.was_refused()
                                ? Result<Outcome>(no_memory(kOtlpHttpReceiver))
                                : decode_and_ingest({kOtlpHttpReceiver, signal, bytes, json, lease, request.caller});
  if (!outcome) return status_answer(*wire_format, 400, kGrpcInvalidArgument, outcome.error());
  if (outcome->is_forbidden) return status_answer(*wire_format, 403, kGrpcPermissionDenied, outcome->message);
  if (outcome->error == AcceptError::kNone) {
    return answer_in(*wire_format, 200,
                     json ? otlp::encode_response_json(signal, outcome->refused, outcome->message)
                          : otlp::encode_response(signal, outcome->refused, outcome->message));
  }
  bool overloaded = outcome->error == AcceptError::kOverloaded;
  HttpResponse answer = status_answer(*wire_format, overloaded ? 429 : 503,
                                      overloaded ? kGrpcResourceExhausted : kGrpcUnavailable, outcome->message);
  answer.headers.emplace_back("retry-after", std::to_string(overloaded ? kOverloadedRetryS : kUnavailableRetryS));
  return answer;
}

GrpcServerResponse OtlpHandler::decompress_grpc(std::string_view encoding, std::string_view data, uint64_t bytes_max) {
  Result<Encoding> known = parse_encoding(encoding);
  if (!known) return {kGrpcUnimplemented, known.error()};
  auto lease = std::make_shared<MemoryLease>(memory_, MemoryUse::kDecoding);
  Result<std::string> plain = decompress(*known, data, bytes_max, lease.get());
  if (plain) {
    GrpcServerResponse reply{kGrpcOk, "", std::move(*plain)};
    reply.memory = std::move(lease);
    return reply;
  }
  if (lease->was_refused())
    return {kGrpcResourceExhausted, no_memory(kOtlpGrpcReceiver).message, "", kOverloadedRetryS * 1000};
  bool too_large = plain.code() == ErrorCode::kTooLarge;
  count_undecodable(kOtlpGrpcReceiver, too_large ? "too_large" : "compression", plain.error());
  return {too_large ? kGrpcResourceExhausted : kGrpcInvalidArgument, plain.error()};
}

GrpcServerResponse OtlpHandler::handle_grpc(const std::string& path, const std::string& body, const Caller& caller) {
  std::optional<Signal> signal = signal_of_method(path);
  if (!signal)
    return {kGrpcUnimplemented,
            format("no method %.200s: the Export methods of OTLP's metrics, logs and trace services are here",
                   path.c_str())};
  GrpcServerResponse reply;
  MemoryLease lease(memory_, MemoryUse::kDecoding);
  Result<Outcome> outcome = decode_and_ingest({kOtlpGrpcReceiver, *signal, body, false, lease, caller});
  if (!outcome) {
    reply = {kGrpcInvalidArgument, outcome.error()};
  } else if (outcome->is_forbidden) {
    reply = {kGrpcPermissionDenied, outcome->message};
  } else {
    switch (outcome->error) {
      case AcceptError::kNone:
        reply = {kGrpcOk, "", otlp::encode_response(*signal, outcome->refused, outcome->message)};
        break;
      case AcceptError::kOverloaded:
        reply = {kGrpcResourceExhausted, outcome->message, "", kOverloadedRetryS * 1000};
        break;
      case AcceptError::kUnavailable:
        reply = {kGrpcUnavailable, outcome->message, "", kUnavailableRetryS * 1000};
        break;
    }
  }
  count_request(kOtlpGrpcReceiver, *signal, reply.status);
  return reply;
}

std::optional<OtlpHandler::Outcome> OtlpHandler::forbidden(std::string_view receiver, const Attributes& resource,
                                                           const Caller& caller) {
  if (owners_ == nullptr || caller.owner.empty()) return std::nullopt;
  return forbidden(receiver, find_string(resource, "host.name"), find_string(resource, "lockstep.job_id"), caller);
}

std::optional<OtlpHandler::Outcome> OtlpHandler::forbidden(std::string_view receiver, std::string_view host,
                                                           std::string_view job_id, const Caller& caller) {
  if (owners_ == nullptr || caller.owner.empty()) return std::nullopt;
  for (const auto& [kind, name] : {std::pair(OwnedKind::kHost, host), std::pair(OwnedKind::kJob, job_id)}) {
    const Result<void> may = owners_->check(caller, kind, name);
    if (may.ok()) continue;
    count_undecodable(receiver, "owner", may.error());
    return Outcome{AcceptError::kNone, 0, may.error(), true};
  }
  return std::nullopt;
}

Result<OtlpHandler::Outcome> OtlpHandler::undecodable(const Request& request, const std::string& error) {
  if (request.lease.was_refused()) return no_memory(request.receiver);
  count_undecodable(request.receiver, request.json ? "json" : "protobuf", error);
  return Error{error};
}

void OtlpHandler::count_bytes(const Request& request) {
  counters_.add("lockstep_ingest_bytes_total", format("receiver=\"%s\"", request.receiver.data()),
                static_cast<int64_t>(request.bytes.size()));
}

Result<OtlpHandler::Outcome> OtlpHandler::ingest_json(const Request& request, int64_t now_ns) {
  const std::string_view receiver = request.receiver;
  Result<Batch> batch = otlp::decode_json(request.signal, request.bytes, &request.lease);
  if (!batch) return undecodable(request, batch.error());
  count_bytes(request);
  if (request.signal == Signal::kLogs)
    return ingest_logs(receiver, to_logs_request(std::move(*batch)), {}, now_ns, request.caller);
  for (const ResourceGroup& group : batch->groups) {
    if (std::optional<Outcome> refused = forbidden(receiver, group.resource, request.caller))
      return std::move(*refused);
  }
  if (request.signal == Signal::kMetrics) {
    const std::string encoded = otlp::encode(*batch);
    Result<otlp::MetricsRequest> metrics = otlp::decode_metrics(encoded, &request.lease);
    if (!metrics) return undecodable(request, metrics.error());
    return ingest_metrics(receiver, *metrics, encoded, now_ns);
  }
  const AdmissionReport admission = admit(*batch, clocks_.latest_now(std::span(std::as_const(batch->groups)), now_ns));
  return ingest(
      receiver, request.signal, admission, {}, [&] { return otlp::encode(*batch); },
      [&](std::string_view kept) { return sink_.accept_spans(to_columns(*batch).columns, kept, now_ns); });
}

Result<OtlpHandler::Outcome> OtlpHandler::ingest_spans(const Request& request, int64_t now_ns) {
  Result<DecodedSpans> spans = decode_spans(request.bytes, &request.lease);
  if (!spans) return undecodable(request, spans.error());
  count_bytes(request);
  for (const auto& source : spans->columns.sources) {
    if (std::optional<Outcome> refused = forbidden(request.receiver, *source->resource, request.caller))
      return std::move(*refused);
  }
  const AdmissionReport admission = admit(spans->columns, spans->latest_unix_ns, clocks_.latest_now(*spans, now_ns));
  return ingest(
      request.receiver, request.signal, admission, request.bytes,
      [&] { return otlp::encode(spans::to_batch(spans->columns)); },
      [&](std::string_view kept) { return sink_.accept_spans(std::move(spans->columns), kept, now_ns); });
}

Result<OtlpHandler::Outcome> OtlpHandler::decode_and_ingest(const Request& request) {
  const int64_t now_ns = clock_.unix_ns();
  if (request.json) return ingest_json(request, now_ns);
  if (request.signal == Signal::kSpans) return ingest_spans(request, now_ns);
  if (request.signal == Signal::kMetrics) {
    Result<otlp::MetricsRequest> metrics = otlp::decode_metrics(request.bytes, &request.lease);
    if (!metrics) return undecodable(request, metrics.error());
    count_bytes(request);
    for (const Attributes& resource : metrics->resources) {
      if (std::optional<Outcome> refused = forbidden(request.receiver, resource, request.caller))
        return std::move(*refused);
    }
    return ingest_metrics(request.receiver, *metrics, request.bytes, now_ns);
  }
  Result<LogsRequest> logs = otlp::decode_logs(request.bytes, &request.lease);
  if (!logs) return undecodable(request, logs.error());
  count_bytes(request);
  return ingest_logs(request.receiver, std::move(*logs), request.bytes, now_ns, request.caller);
}

Result<OtlpHandler::Outcome> OtlpHandler::ingest_logs(std::string_view receiver, LogsRequest request,
                                                      std::string_view protobuf, int64_t now_ns, const Caller& caller) {
  for (const ResourceGroup& group : request.groups) {
    if (std::optional<Outcome> refused = forbidden(receiver, group.resource, caller)) return std::move(*refused);
  }
  for (const StepReport& step : request.steps) {
    std::optional<Outcome> refused = forbidden(receiver, step.identity.host, step.identity.job_id, caller);
    if (refused) return std::move(*refused);
  }
  const AdmissionReport admission = admit(request, clocks_.latest_now(request, now_ns));
  return ingest(
      receiver, Signal::kLogs, admission, protobuf, [&] { return otlp::encode(to_batch(request)); },
      [&](std::string_view kept) { return sink_.accept_logs(std::move(request), kept, now_ns); });
}

OtlpHandler::Outcome OtlpHandler::ingest_metrics(std::string_view receiver, otlp::MetricsRequest& request,
                                                 std::string_view bytes, int64_t now_ns) {
  const AdmissionReport admission = admit(request, clocks_.latest_now(request, now_ns));
  return ingest(
      receiver, Signal::kMetrics, admission, bytes, [&] { return otlp::encode(otlp::to_batch(request)); },
      [&](std::string_view kept) { return sink_.accept_metrics(request, kept, now_ns); });
}

OtlpHandler::Outcome OtlpHandler::ingest(std::string_view receiver, Signal signal, const AdmissionReport& admission,
                                         std::string_view bytes, const std::function<std::string()>& encode,
                                         const std::function<AcceptResult(std::string_view bytes)>& accept) {
  std::string labels = format("receiver=\"%s\",signal=\"%s\"", receiver.data(), to_text(signal));
  auto count_refused = [&](const std::string& reason, int64_t count) {
    counters_.add("lockstep_ingest_refused_records_total", format("%s,reason=\"%s\"", labels.c_str(), reason.c_str()),
                  count);
  };
  counters_.add("lockstep_ingest_received_records_total", labels, admission.received);
  for (const auto& [reason, count] : admission.refused_by_reason) count_refused(reason, count);
  if (admission.refused > 0)
    log_.warn(admission.first_reason, format("%s %s: %s", receiver.data(), to_text(signal), admission.message.c_str()));
  Outcome outcome{AcceptError::kNone, admission.refused, admission.message};
  int64_t kept = admission.received - admission.refused;
  if (kept == 0) return outcome;  // nothing to keep, nothing to make durable

  // The log holds what was kept, so that reading it again after a crash gives the same answer.
  std::string encoded;
  if (bytes.empty() || admission.refused > 0) {
    encoded = encode();
    bytes = encoded;
  }
  AcceptResult accepted = accept(bytes);
  if (accepted.error != AcceptError::kNone) {
    bool overloaded = accepted.error == AcceptError::kOverloaded;
    // The sender keeps the whole batch and tries again; none of it is lost here.
    count_refused(overloaded ? "overloaded" : "unavailable", kept);
    std::string message = accepted.message.empty()
                              ? (overloaded ? "overloaded, try again" : "unavailable, try again later")
                              : accepted.message;
    log_.warn(overloaded ? "overloaded" : "unavailable",
              format("%s %s: batch of %lld refused: %s", receiver.data(), to_text(signal), static_cast<long long>(kept),
                     message.c_str()));
    return {accepted.error, 0, std::move(message)};
  }
  int64_t rejected = std::clamp<int64_t>(accepted.rejected, 0, kept);
  if (rejected > 0) {
    count_refused("store", rejected);
    log_.warn("store",
              format("%s %s: %s; kept %lld, refused %lld", receiver.data(), to_text(signal), accepted.message.c_str(),
                     static_cast<long long>(kept - rejected), static_cast<long long>(rejected)));
    outcome.refused += rejected;
    outcome.message += (outcome.message.empty() ? "" : "; ") + accepted.message;
  }
  counters_.add("lockstep_ingest_passed_records_total", labels, kept - rejected);
  return outcome;
}

}  // namespace lockstep
