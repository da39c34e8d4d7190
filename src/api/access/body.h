// The JSON body of an endpoint of access: an object with known fields.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <initializer_list>
#include <string_view>

#include "base/json_reader.h"
#include "base/result.h"

namespace lockstep {

inline constexpr size_t kAccessBodyBytesMax = 16 * 1024;

// On error: one line that names the field, and never what is in the body: that may be a secret.
Result<JsonDocument> read_object(std::string_view body, std::initializer_list<std::string_view> fields);

}  // namespace lockstep
