// Values, attributes, events and links as bytes of our own, so that every one comes back exactly as it was sent: kinds,
// order, doubles bit by bit, empty and nested ones. Used inside span files (docs/formats/span-blocks.md).
//
// The bytes of a value determine it and are determined by it, so that equal bytes mean equal values.
// On error: decoding takes nothing on trust; malformed bytes are nullopt.
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/telemetry.h"

namespace lockstep::spans {

void encode_value(std::string& out, const Value& value);
void encode_attributes(std::string& out, const Attributes& attributes);
// Empty where the span has neither.
std::string encode_extra(const std::vector<SpanEvent>& events, const std::vector<SpanLink>& links);

std::optional<Value> decode_value(std::string_view bytes);
std::optional<Attributes> decode_attributes(std::string_view bytes);
bool decode_extra(std::string_view bytes, std::vector<SpanEvent>& events, std::vector<SpanLink>& links);

}  // namespace lockstep::spans
