// Bytes as base64 text and back (RFC 4648).
//
// Limits: none of their own. On error: nullopt, for whoever knows what the text was to say so.
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// With + and /, padded.
std::string base64(std::string_view bytes);
// Padding where it belongs, nothing else.
std::optional<std::string> decode_base64(std::string_view text);

// With - and _, without padding.
std::string base64url(std::string_view bytes);
// One text for a value: bits that belong to no byte must be 0, so that nothing that is signed has two texts.
std::optional<std::string> decode_base64url(std::string_view text);

// Either alphabet, padded or not, as protobuf's JSON and gRPC's metadata are read.
std::optional<std::string> decode_any_base64(std::string_view text);

}  // namespace lockstep
