// A Batch spells out what OTLP shares: every group has its resource, every point its metric's name. A few bytes per
// scope or point would let a peer multiply one large resource or name without end, so what a request may have copied is
// bounded.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>

#include "model/telemetry.h"

namespace lockstep::otlp {

inline constexpr uint64_t kCopiedBytesMax = 256ull << 20;

inline uint64_t memory_bytes(const Attributes& attributes);
inline uint64_t memory_bytes(const Value& value) {
  if (const std::string* text = std::get_if<std::string>(&value.data)) return sizeof(Value) + text->size();
  if (const Value::Bytes* bytes = std::get_if<Value::Bytes>(&value.data)) return sizeof(Value) + bytes->data.size();
  if (const Attributes* map = std::get_if<Attributes>(&value.data)) return sizeof(Value) + memory_bytes(*map);
  uint64_t bytes = sizeof(Value);
  if (const ValueList* list = std::get_if<ValueList>(&value.data)) {
    for (const Value& item : *list) bytes += memory_bytes(item);
  }
  return bytes;
}
inline uint64_t memory_bytes(const Attributes& attributes) {
  uint64_t bytes = 0;
  for (const Attribute& item : attributes) bytes += sizeof(std::string) + item.key.size() + memory_bytes(item.value);
  return bytes;
}

// What a resource takes besides its own when so many groups have it.
inline uint64_t copied_bytes(const Attributes& resource, size_t groups) {
  return groups < 2 ? 0 : memory_bytes(resource) * (groups - 1);
}

class CopyBudget {
 public:
  // False when `copies` more copies of `bytes` would be too many.
  bool take(uint64_t bytes, uint64_t copies) {
    if (bytes != 0 && copies > left_ / bytes) return false;
    left_ -= bytes * copies;
    return true;
  }

  // Gives the resource to every group from `first` on; false when that would be too much.
  bool share_resource(Attributes resource, std::vector<ResourceGroup>& groups, size_t first) {
    if (groups.size() == first || resource.empty()) return true;
    const size_t copies = groups.size() - first - 1;
    if (copies > 0 && !take(memory_bytes(resource), copies)) return false;
    for (size_t i = first; i + 1 < groups.size(); ++i) groups[i].resource = resource;
    groups.back().resource = std::move(resource);
    return true;
  }

 private:
  uint64_t left_ = kCopiedBytesMax;
};

}  // namespace lockstep::otlp
