// The parts that all OTLP messages are made of: values, attributes, and what is said of a malformed request.
//
// On error: the reader's WireError says it. Memory is taken from the reader's lease.
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/protobuf_wire.h"
#include "base/result.h"
#include "model/telemetry.h"

namespace lockstep::otlp {

// OTLP times are unsigned. One past the year 2262 becomes the last moment we can say, which no clock check lets pass.
inline int64_t time_of(uint64_t unix_ns) {
  return static_cast<int64_t>(std::min<uint64_t>(unix_ns, std::numeric_limits<int64_t>::max()));
}

// Room for `count` more; at least doubling, so that many small pieces stay linear.
template <typename T>
void reserve_more(std::vector<T>& items, size_t count) {
  size_t needed = items.size() + count;
  if (needed > items.capacity()) items.reserve(std::max(needed, items.capacity() * 2));
}

// Reserving is a convenience, not a promise: more elements than this grow the vector as they come.
inline constexpr size_t kReserveMax = 65'536;

// KeyValueList and Resource.
void decode_map(protobuf::WireReader in, Attributes& map, int depth);
// Fields that are KeyValues, one after the other, checked before.
void decode_attributes(std::string_view fields, Attributes& attributes);
// A KeyValue that is not needed as an object, judged as if it were.
void check_attribute(protobuf::WireReader in, int depth);

Error error_of(const protobuf::WireError& error, const char* what, std::string_view bytes);

}  // namespace lockstep::otlp
