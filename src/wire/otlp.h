// OTLP export requests: protobuf bytes to Batch and back, by a hand-written wire walk (no generated code), and the JSON
// encoding on the way in. Fuzzed against libprotobuf as oracle.
//
// What a peer sends is not trusted: values nest at most kNestingMax deep, lengths are checked against what is there,
// and a malformed request is one clear line, never a partial Batch. A trace or span id of no bytes is all zero; of any
// other wrong length it is an error. A histogram without a sum has the value NaN, and is encoded without one again.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/memory_budget.h"
#include "base/result.h"
#include "model/telemetry.h"

namespace lockstep::otlp {

inline constexpr int kNestingMax = 32;

// Body of an Export*ServiceRequest. Unknown fields are skipped, as protobuf asks. lease: where the memory for it is
// taken from, here and below; its owner keeps it as long as the batch.
Result<Batch> decode(Signal signal, std::string_view bytes, MemoryLease* lease = nullptr);
std::string encode(const Batch& batch);

// One KeyValue message, whatever field it stood in.
Result<Attribute> decode_attribute(std::string_view key_value);
// As a field of this number, after what is in `bytes`.
void put_attribute(std::string& bytes, uint32_t field, const Attribute& attribute);

// OTLP/JSON: lowerCamelCase, ids as hex, 64-bit integers as numbers or strings, enums as numbers (or names). Not built
// with LOCKSTEP_NODE_ONLY.
Result<Batch> decode_json(Signal signal, std::string_view text, MemoryLease* lease = nullptr);

// Export*ServiceResponse: empty, or with partial_success where rejected > 0 (or a message alone is a warning).
std::string encode_response(Signal signal, int64_t rejected, std::string_view message);
std::string encode_response_json(Signal signal, int64_t rejected, std::string_view message);
// google.rpc.Status, the error body of OTLP/HTTP, in protobuf and JSON.
std::string encode_status(int code, std::string_view message);
std::string encode_status_json(int code, std::string_view message);
// Reads the rejected count of a response (what an exporter looks at).
struct PartialSuccess {
  int64_t rejected = 0;
  std::string message;
};
Result<PartialSuccess> decode_response(std::string_view bytes);

}  // namespace lockstep::otlp
