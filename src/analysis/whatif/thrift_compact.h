// A walk over Thrift's compact protocol, in which Parquet writes its footer and its page headers.
//
// A value that cannot be read makes the reader fail and stay failed: it then gives zeros and empty text and no more
// fields, so that callers check once at the end.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class ThriftType : uint8_t {
  kStop = 0,
  kTrue = 1,
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
};

class ThriftReader {
 public:
  explicit ThriftReader(std::string_view bytes_untrusted) : bytes_(bytes_untrusted) {}

  struct Field {
    int16_t id = 0;
    ThriftType type = ThriftType::kStop;
  };
  // Of one struct; `last_id` begins at 0 and belongs to that struct. False: its end, or a failure.
  bool next_field(Field& field, int16_t& last_id);

  int64_t integer(ThriftType type);  // byte, i16, i32, i64 or a flag; of any other type: fails
  std::string_view binary(ThriftType type);
  struct List {
    uint32_t size = 0;
    ThriftType element = ThriftType::kStop;
  };
  List list(ThriftType type);
  void skip(ThriftType type, int depth = 0);

  bool ok() const { return !failed_; }
  void fail() { failed_ = true; }
  size_t position() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

 private:
  static constexpr int kDepthMax = 16;
  uint64_t varint();
  std::string_view bytes_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace lockstep
