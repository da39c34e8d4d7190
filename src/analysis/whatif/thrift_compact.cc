#include "analysis/whatif/thrift_compact.h"

namespace lockstep {

uint64_t ThriftReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (failed_ || at_ >= bytes_.size()) break;
    const auto byte = static_cast<uint8_t>(bytes_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail();
  return 0;
}

bool ThriftReader::next_field(Field& field, int16_t& last_id) {
  if (failed_) return false;
  if (at_ >= bytes_.size()) {
    fail();
    return false;
  }
  const auto head = static_cast<uint8_t>(bytes_[at_++]);
  if (head == 0) return false;
  field.type = static_cast<ThriftType>(head & 15);
  if (field.type == ThriftType::kStop || field.type > ThriftType::kStruct) {
    fail();
    return false;
  }
  const int delta = head >> 4;
  if (delta != 0) {
    last_id = static_cast<int16_t>(last_id + delta);
  } else {
    last_id = static_cast<int16_t>(integer(ThriftType::kI16));
  }
  field.id = last_id;
  return !failed_;
}

int64_t ThriftReader::integer(ThriftType type) {
  switch (type) {
    case ThriftType::kTrue:
      return 1;
    case ThriftType::kFalse:
      return 0;
    case ThriftType::kByte:
      if (!failed_ && at_ < bytes_.size()) return static_cast<int8_t>(bytes_[at_++]);
      fail();
      return 0;
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64: {
      const uint64_t raw = varint();
      return static_cast<int64_t>(raw >> 1 ^ (~(raw & 1) + 1));
    }
    default:
      fail();
      return 0;
  }
}

std::string_view ThriftReader::binary(ThriftType type) {
  if (type != ThriftType::kBinary) fail();
  const uint64_t size = varint();
  if (failed_ || size > bytes_.size() - at_) {
    fail();
    return {};
  }
  const std::string_view value = bytes_.substr(at_, size);
  at_ += size;
  return value;
}

ThriftReader::List ThriftReader::list(ThriftType type) {
  if (type != ThriftType::kList && type != ThriftType::kSet) fail();
  if (failed_ || at_ >= bytes_.size()) {
    fail();
    return {};
  }
  const auto head = static_cast<uint8_t>(bytes_[at_++]);
  uint64_t size = head >> 4;
  if (size == 15) size = varint();
  // Every element takes at least a byte.
  if (failed_ || size > bytes_.size() - at_) {
    fail();
    return {};
  }
  return {static_cast<uint32_t>(size), static_cast<ThriftType>(head & 15)};
}

void ThriftReader::skip(ThriftType type, int depth) {
  if (depth > kDepthMax) fail();
  if (failed_) return;
  switch (type) {
    case ThriftType::kTrue:
    case ThriftType::kFalse:
      return;
    case ThriftType::kByte:
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64:
      integer(type);
      return;
    case ThriftType::kDouble:
      if (bytes_.size() - at_ < 8) return fail();
      at_ += 8;
      return;
    case ThriftType::kBinary:
      binary(type);
      return;
    case ThriftType::kList:
    case ThriftType::kSet: {
      const List elements = list(type);
      for (uint32_t i = 0; i < elements.size && !failed_; ++i) {
        // In a list a flag is a byte of its own.
        const bool flag = elements.element == ThriftType::kTrue || elements.element == ThriftType::kFalse;
        skip(flag ? ThriftType::kByte : elements.element, depth + 1);
      }
      return;
    }
    case ThriftType::kMap: {
      const uint64_t size = varint();
      if (size == 0) return;
      if (failed_ || at_ >= bytes_.size() || size > bytes_.size() - at_) return fail();
      const auto kinds = static_cast<uint8_t>(bytes_[at_++]);
      for (uint64_t i = 0; i < size && !failed_; ++i) {
        for (const int kind : {kinds >> 4, kinds & 15}) {
          const auto part = static_cast<ThriftType>(kind);
          const bool flag = part == ThriftType::kTrue || part == ThriftType::kFalse;
          skip(flag ? ThriftType::kByte : part, depth + 1);
        }
      }
      return;
    }
    case ThriftType::kStruct: {
      Field field;
      int16_t last_id = 0;
      while (next_field(field, last_id)) skip(field.type, depth + 1);
      return;
    }
    default:
      fail();
  }
}

}  // namespace lockstep
