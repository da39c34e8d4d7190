// Spans as other tools write and ask for them: ids in hex, durations as Go prints them, tags as logfmt, OTLP as JSON.
//
// What comes from outside is checked: one clear line on error, never a guess.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/result.h"
#include "model/telemetry.h"
#include "store/span_store.h"

namespace lockstep {

// 1 to 32 hex digits; leading zeros may be missing, as Jaeger and Grafana leave them out. All zero is no id.
Result<TraceId> trace_id_from_text(std::string_view text);

// "1.5s", "250ms", "1h30m", "10us", "-3ns"; "0" alone may stand without a unit. Nanoseconds.
Result<int64_t> duration_from_text(std::string_view text);
// The same at the beginning of a longer text; says how much of it was used. nullopt: it does not begin with one.
std::optional<std::pair<int64_t, size_t>> duration_prefix(std::string_view text);

// `service.name=trainer http.status=200 msg="two words"`, at most 64 of them.
Result<std::vector<AttributeMatch>> tags_from_logfmt(std::string_view text);

const char* kind_text(int32_t kind);    // "unspecified", "internal", "server", "client", "producer", "consumer"
const char* status_text(int32_t code);  // "unset", "ok", "error"
std::optional<int32_t> kind_from_text(std::string_view text);
std::optional<int32_t> status_from_text(std::string_view text);

// How OTLP is written as JSON: as the specification has it (hex ids, enums as numbers), or as protobuf's own mapping
// has it, which Tempo keeps to (ids in base64, enums by name).
enum class OtlpJson : uint8_t { kOtlp, kProtobuf };
// `[{"resource": ..., "scopeSpans": [...]}, ...]`: spans of one resource together, in the order given.
void write_resource_spans(JsonWriter& json, std::span<const StoredSpan> spans, OtlpJson style);
void write_otlp_attributes(JsonWriter& json, const Attributes& attributes);
void write_otlp_value(JsonWriter& json, const Value& value);

// The same grouping as values, for wire/otlp.h.
Batch batch_of(std::span<const StoredSpan> spans);

}  // namespace lockstep
