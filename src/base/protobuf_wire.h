// The protobuf wire format, no more: a bounded reader and a writer of varint, fixed and length-delimited fields.
// Inline, because every byte of every request passes here.
//
// The reader takes what libprotobuf takes: overlong varints, fields in any order, unknown fields and groups. A field of
// a known number with an unexpected wire type is an unknown field. On a malformed byte, and where memory is refused,
// every reader that shares the WireError ends, so that callers look at it once, at the end.
//
// Thread rule: Confined.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/memory_budget.h"

namespace lockstep::protobuf {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroupBegin = 3, kGroupEnd = 4, kFixed32 = 5 };

constexpr uint32_t tag_of(uint32_t field, WireType type) {
  return field << 3 | type;
}
constexpr int64_t zigzag_decode(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}
constexpr uint64_t zigzag_encode(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}

// What the elements of one request may take in memory: an empty element is two bytes on the wire and hundreds here.
inline constexpr uint64_t kDecodedBytesMax = 512ull << 20;

// The first thing found wrong, and where; and the memory of the request, which is taken from the lease (where there is
// one) in pieces.
struct WireError {
  const char* what = nullptr;
  const char* at = nullptr;
  MemoryLease* lease = nullptr;
  uint64_t memory_left = 0;   // of what was taken
  uint64_t memory_taken = 0;  // of kDecodedBytesMax
};

// Nested groups of unknown fields are skipped this deep; messages we know are bounded by their decoder.
inline constexpr int kUnknownGroupsMax = 32;

class WireReader {
 public:
  WireReader(std::string_view bytes, WireError& error)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()), error_(&error) {}

  // Moves to the next field. False at the end, or once anything is malformed.
  bool next() {
    if (at_ == end_ || error_->what != nullptr) return false;
    if (static_cast<uint8_t>(*at_) < 0x80) {
      tag_ = static_cast<uint8_t>(*at_++);
    } else {
      tag_ = static_cast<uint32_t>(varint_slow(5));
    }
    if (tag_ >> 3 == 0) return fail("field number 0");
    return error_->what == nullptr;
  }
  uint32_t tag() const { return tag_; }

  // The value of the field next() found; the caller has looked at the tag.
  uint64_t varint() {
    if (at_ != end_ && static_cast<uint8_t>(*at_) < 0x80) return static_cast<uint8_t>(*at_++);
    return varint_slow(10);
  }
  uint64_t fixed64() { return fixed<uint64_t>(); }
  uint32_t fixed32() { return fixed<uint32_t>(); }
  double real() { return std::bit_cast<double>(fixed64()); }
  std::string_view bytes() {
    uint64_t length_untrusted =
        at_ != end_ && static_cast<uint8_t>(*at_) < 0x80 ? static_cast<uint8_t>(*at_++) : varint_slow(5);
    if (length_untrusted > left()) {
      fail("a length that goes past the end");
      return {};
    }
    std::string_view value(at_, length_untrusted);
    at_ += length_untrusted;
    return value;
  }
  WireReader message() { return WireReader(bytes(), *error_); }
  // Over bytes() that the caller keeps besides.
  WireReader part(std::string_view bytes) const { return WireReader(bytes, *error_); }

  void skip() { skip_field(0); }
  bool fail(const char* what) {
    if (error_->what == nullptr) {
      error_->what = what;
      error_->at = at_;
    }
    at_ = end_;
    return false;
  }
  // Accounts for a decoded element, before it is made. False: the request has become too large, or the server has no
  // more memory for it; the element is not to be made, and no reader gives any more.
  [[nodiscard]] bool take_memory(uint64_t bytes) {
    if (bytes > error_->memory_left && !take_more(bytes)) return false;
    error_->memory_left -= bytes;
    return true;
  }

  // Whether so much could be accounted for. Where not, the request has failed before anything of it was made.
  [[nodiscard]] bool has_room(uint64_t bytes) {
    return bytes <= kDecodedBytesMax - error_->memory_taken + error_->memory_left || fail(kTooMany);
  }

  // Where the next field begins.
  const char* position() const { return at_; }
  // Goes past the fields that stand here in a row, have this one-byte tag and are shorter than 128 bytes: their bytes,
  // tags and lengths included.
  std::string_view short_run(uint8_t tag) {
    const char* began = at_;
    while (left() >= 2 && static_cast<uint8_t>(at_[0]) == tag && static_cast<uint8_t>(at_[1]) < 0x80) {
      const size_t size = 2u + static_cast<uint8_t>(at_[1]);
      if (size > left()) break;
      at_ += size;
    }
    return {began, static_cast<size_t>(at_ - began)};
  }

  // Bare values follow each other in a packed field. Also once anything is malformed, whichever reader found it.
  bool at_end() const { return at_ == end_ || error_->what != nullptr; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  // How many fields with this one-byte tag, the current one included, stand here in a row: what to reserve. Counts what
  // is really there, so a peer cannot make us reserve more than it sent.
  size_t run_length() const {
    WireError ignored;
    WireReader ahead(*this);
    ahead.error_ = &ignored;
    size_t count = 0;
    do {
      ahead.bytes();
      ++count;
    } while (ahead.next() && ahead.tag_ == tag_);
    return count;
  }

 private:
  static constexpr const char* kTooMany = "too many elements for one request (512 MiB decoded is the limit)";

  bool take_more(uint64_t bytes) {
    // Doubling, so that small requests take little and large ones ask rarely.
    constexpr uint64_t kPieceMin = 64u << 10, kPieceMax = 4u << 20;
    const uint64_t taken = error_->memory_taken;
    const uint64_t room = kDecodedBytesMax - taken + error_->memory_left;
    if (error_->what != nullptr) return fail("");
    if (bytes > room) return fail(kTooMany);
    const uint64_t piece = taken < kPieceMin ? kPieceMin : taken < kPieceMax ? taken : kPieceMax;
    const uint64_t need = bytes - error_->memory_left;
    const uint64_t most = kDecodedBytesMax - taken;
    const uint64_t more = need > piece ? need : piece < most ? piece : most;
    if (error_->lease != nullptr && !error_->lease->add(more)) return fail(kMemorySpent);
    error_->memory_taken += more;
    error_->memory_left += more;
    return true;
  }

  uint64_t varint_slow(int bytes_max) {
    uint64_t value = 0;
    for (int i = 0; i < bytes_max; ++i) {
      if (at_ == end_) {
        fail("a number cut short");
        return 0;
      }
      uint64_t byte = static_cast<uint8_t>(*at_++);
      value |= (byte & 0x7f) << (7 * i);  // bits past the 64th fall away, as in libprotobuf
      if (byte < 0x80) return value;
    }
    fail("a number longer than its type");
    return 0;
  }

  template <typename T>
  T fixed() {
    static_assert(std::endian::native == std::endian::little, "the wire is little-endian");
    T value = 0;
    if (left() < sizeof(T)) {
      fail("a fixed-size number cut short");
      return 0;
    }
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  void skip_field(int depth) {
    switch (tag_ & 7) {
      case kVarint:
        varint();
        return;
      case kFixed64:
        fixed64();
        return;
      case kBytes:
        bytes();
        return;
      case kFixed32:
        fixed32();
        return;
      case kGroupBegin: {
        if (depth == kUnknownGroupsMax) {
          fail("groups nested too deeply");
          return;
        }
        const uint32_t group_end = (tag_ & ~7u) | kGroupEnd;
        while (next()) {
          if (tag_ == group_end) return;
          skip_field(depth + 1);
        }
        fail("a group that does not end");
        return;
      }
      case kGroupEnd:
        fail("an end of a group that never began");
        return;
      default:
        fail("an unknown wire type");
        return;
    }
  }

  const char* at_;
  const char* end_;
  WireError* error_;
  uint32_t tag_ = 0;
};

// Appends fields to a string. Zero values are written too: callers leave out what proto3 leaves out.
class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}

  void varint(uint32_t field, uint64_t value) {
    raw_varint(tag_of(field, kVarint));
    raw_varint(value);
  }
  void fixed64(uint32_t field, uint64_t value) {
    raw_varint(tag_of(field, kFixed64));
    raw_fixed(value);
  }
  void fixed32(uint32_t field, uint32_t value) {
    raw_varint(tag_of(field, kFixed32));
    raw_fixed(value);
  }
  void real(uint32_t field, double value) { fixed64(field, std::bit_cast<uint64_t>(value)); }
  void bytes(uint32_t field, std::string_view value) {
    raw_varint(tag_of(field, kBytes));
    raw_varint(value.size());
    out_.append(value);
  }

  // A message (or packed field) whose length is known only once it is written: one byte is kept for the length, and
  // the rare message of 128 bytes or more is moved to make room.
  size_t begin(uint32_t field) {
    raw_varint(tag_of(field, kBytes));
    out_.push_back('\0');
    return out_.size();
  }
  void end(size_t began) {
    size_t length = out_.size() - began;
    if (length < 0x80) {
      out_[began - 1] = static_cast<char>(length);
      return;
    }
    char digits[10];
    size_t count = 0;
    for (; length >= 0x80; length >>= 7) digits[count++] = static_cast<char>(length | 0x80);
    digits[count++] = static_cast<char>(length);
    out_.replace(began - 1, 1, digits, count);
  }

  void raw_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
    out_.push_back(static_cast<char>(value));
  }
  template <typename T>
  void raw_fixed(T value) {
    char digits[sizeof(T)];
    std::memcpy(digits, &value, sizeof(T));
    out_.append(digits, sizeof(T));
  }

 private:
  std::string& out_;
};

}  // namespace lockstep::protobuf
