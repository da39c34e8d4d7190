#include "store/columns/int_codec.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "store/columns/byte_codec.h"

namespace lockstep::columns {
namespace {

// First byte of a column: part of the format.
enum Mode : uint8_t {
  kConstant = 0,      // signed varint
  kPacked = 1,        // runs of kRun values: width (1 byte), least (signed varint), bits
  kPackedDeltas = 2,  // the same over differences to the value before (the first to 0)
  kPatterns = 3,      // packed bytes of signed varints
  kDeltaPatterns = 4  // packed bytes of signed varints of differences
};
constexpr size_t kRun = 256;
// zstd is tried on this many values; what it makes of them decides.
constexpr size_t kSample = 4096;
constexpr int kSampleLevel = 1;
constexpr int kLevel = 1;
constexpr int kBytesLevel = 3;

// Differences wrap around, so that any two values have one.
int64_t difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
ZSTD_CCtx* compressor() {
  thread_local std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  return context.get();
}
ZSTD_DCtx* decompressor() {
  thread_local std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  return context.get();
}

// false: no gain.
bool compress(std::string_view bytes, int level, std::string& out) {
  out.resize(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compressCCtx(compressor(), out.data(), out.size(), bytes.data(), bytes.size(), level);
  if (ZSTD_isError(size) || size >= bytes.size()) return false;
  out.resize(size);
  return true;
}

struct Run {
  int64_t least;
  unsigned width;
};
Run run_of(std::span<const int64_t> values) {
  int64_t least = values[0];
  int64_t most = values[0];
  for (int64_t value : values) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  return {least, static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(difference(most, least))))};
}

size_t packed_size(std::span<const int64_t> values) {
  size_t bytes = 0;
  for (size_t at = 0; at < values.size(); at += kRun) {
    std::span<const int64_t> run = values.subspan(at, std::min(kRun, values.size() - at));
    const Run shape = run_of(run);
    bytes += 2 + std::bit_width(protobuf::zigzag_encode(shape.least)) / 7 + (run.size() * shape.width + 7) / 8;
  }
  return bytes;
}

void pack(std::string& out, std::span<const int64_t> values) {
  for (size_t at = 0; at < values.size(); at += kRun) {
    std::span<const int64_t> run = values.subspan(at, std::min(kRun, values.size() - at));
    const Run shape = run_of(run);
    out.push_back(static_cast<char>(shape.width));
    put_signed(out, shape.least);
    if (shape.width == 0) continue;
    const size_t begin = out.size();
    const size_t bytes = (run.size() * shape.width + 7) / 8;
    out.resize(begin + bytes + 8);  // room for a whole word at the end
    char* to = out.data() + begin;
    unsigned __int128 bits = 0;
    unsigned filled = 0;
    for (int64_t value : run) {
      bits |= static_cast<unsigned __int128>(static_cast<uint64_t>(difference(value, shape.least))) << filled;
      filled += shape.width;
      if (filled >= 64) {
        const uint64_t word = static_cast<uint64_t>(bits);
        std::memcpy(to, &word, 8);
        to += 8;
        bits >>= 64;
        filled -= 64;
      }
    }
    const uint64_t word = static_cast<uint64_t>(bits);
    std::memcpy(to, &word, 8);
    out.resize(begin + bytes);
  }
}

bool unpack(ByteReader& in, size_t count, std::vector<int64_t>& values) {
  values.resize(count);
  for (size_t at = 0; at < count; at += kRun) {
    const size_t size = std::min(kRun, count - at);
    const unsigned width = in.fixed<uint8_t>();
    const int64_t least = in.signed_varint();
    if (!in.ok() || width > 64) return false;
    const size_t bytes = (size * width + 7) / 8;
    std::string_view packed = in.raw(bytes);
    if (!in.ok()) return false;
    const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    unsigned __int128 bits = 0;
    unsigned filled = 0;
    size_t next = 0;
    for (size_t i = 0; i < size; ++i) {
      if (filled < width) {
        uint64_t word = 0;
        const size_t take = std::min<size_t>(8, packed.size() - next);
        std::memcpy(&word, packed.data() + next, take);
        next += take;
        bits |= static_cast<unsigned __int128>(word) << filled;
        filled += 64;
      }
      values[at + i] = sum(static_cast<int64_t>(static_cast<uint64_t>(bits) & mask), least);
      bits >>= width;
      filled -= width;
    }
  }
  return true;
}

void put_varints(std::string& out, std::span<const int64_t> values) {
  const size_t begin = out.size();
  out.resize(begin + values.size() * 10);
  char* to = out.data() + begin;
  for (int64_t value : values) {
    uint64_t left = protobuf::zigzag_encode(value);
    for (; left >= 0x80; left >>= 7) *to++ = static_cast<char>(left | 0x80);
    *to++ = static_cast<char>(left);
  }
  out.resize(static_cast<size_t>(to - out.data()));
}

size_t pattern_size(std::span<const int64_t> values) {
  thread_local std::string plain;
  thread_local std::string packed;
  plain.clear();
  put_varints(plain, values);
  return compress(plain, kSampleLevel, packed) ? packed.size() : plain.size();
}

void add_up(std::vector<int64_t>& values) {
  int64_t last = 0;
  for (int64_t& value : values) value = last = sum(last, value);
}

}  // namespace

std::string pack_bytes(std::string_view bytes) {
  std::string out;
  std::string packed;
  if (bytes.size() >= 32 && compress(bytes, kBytesLevel, packed)) {
    put_varint(out, bytes.size());
    out += packed;
  } else {
    put_varint(out, 0);
    out += bytes;
  }
  return out;
}

bool unpack_bytes(std::string_view packed, size_t bytes_max, std::string& bytes) {
  ByteReader in(packed);
  const uint64_t size = in.varint();
  if (!in.ok()) return false;
  std::string_view rest = in.raw(in.left());
  if (size == 0) {
    if (rest.size() > bytes_max) return false;
    bytes = rest;
    return true;
  }
  // zstd makes at most about 2^17 of a byte, so a size beyond that is a lie we need no memory to find out.
  if (size > bytes_max || size / (1u << 18) > rest.size()) return false;
  bytes.resize(size);
  return ZSTD_decompressDCtx(decompressor(), bytes.data(), size, rest.data(), rest.size()) == size;
}

std::string encode_ints(std::span<const int64_t> values) {
  std::string out;
  if (values.empty()) return out;
  if (std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == values[0]; })) {
    out.push_back(static_cast<char>(kConstant));
    put_signed(out, values[0]);
    return out;
  }
  thread_local std::vector<int64_t> deltas;
  deltas.resize(values.size());
  int64_t last = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    deltas[i] = difference(values[i], last);
    last = values[i];
  }
  // A sample from the middle decides: the beginning is where a pattern is still new.
  const size_t sample = std::min(kSample, values.size());
  const size_t from = (values.size() - sample) / 2;
  std::span<const int64_t> plain_sample = values.subspan(from, sample);
  std::span<const int64_t> delta_sample = std::span<const int64_t>(deltas).subspan(from, sample);
  const size_t plain_size = packed_size(plain_sample);
  const size_t delta_size = packed_size(delta_sample);
  const size_t best_packed = std::min(plain_size, delta_size);
  const size_t plain_patterns = pattern_size(plain_sample);
  const size_t delta_patterns = pattern_size(delta_sample);
  const size_t best_patterns = std::min(plain_patterns, delta_patterns);
  const double scale = static_cast<double>(values.size()) / static_cast<double>(sample);
  if (static_cast<double>(best_patterns) < 0.95 * static_cast<double>(best_packed)) {
    const bool of_deltas = delta_patterns < plain_patterns;
    thread_local std::string plain;
    plain.clear();
    put_varints(plain, of_deltas ? std::span<const int64_t>(deltas) : values);
    std::string packed;
    if (compress(plain, kLevel, packed) &&
        static_cast<double>(packed.size()) < scale * static_cast<double>(best_packed)) {
      out.push_back(static_cast<char>(of_deltas ? kDeltaPatterns : kPatterns));
      put_varint(out, plain.size());
      out += packed;
      return out;
    }
  }
  const bool of_deltas = delta_size < plain_size;
  out.reserve(static_cast<size_t>(scale * static_cast<double>(best_packed)) + 1024);
  out.push_back(static_cast<char>(of_deltas ? kPackedDeltas : kPacked));
  pack(out, of_deltas ? std::span<const int64_t>(deltas) : values);
  return out;
}

bool decode_ints(std::string_view bytes, size_t count, std::vector<int64_t>& values) {
  values.clear();
  if (count == 0) return bytes.empty();
  ByteReader in(bytes);
  const uint8_t mode = in.fixed<uint8_t>();
  switch (mode) {
    case kConstant:
      values.assign(count, in.signed_varint());
      return in.ok() && in.at_end();
    case kPacked:
    case kPackedDeltas:
      // Two bytes at least for each run.
      if (in.left() / 2 < (count + kRun - 1) / kRun || !unpack(in, count, values) || !in.at_end()) return false;
      if (mode == kPackedDeltas) add_up(values);
      return true;
    case kPatterns:
    case kDeltaPatterns: {
      thread_local std::string plain;
      if (!unpack_bytes(in.raw(in.left()), count * 10, plain) || plain.size() < count) return false;
      values.resize(count);
      const char* at = plain.data();
      const char* end = at + plain.size();
      for (int64_t& value : values) {
        uint64_t number = 0;
        for (unsigned shift = 0;; shift += 7) {
          if (at == end || shift > 63) return false;
          const uint64_t byte = static_cast<uint8_t>(*at++);
          number |= (byte & 0x7f) << shift;
          if (byte < 0x80) break;
        }
        value = protobuf::zigzag_decode(number);
      }
      if (at != end) return false;
      if (mode == kDeltaPatterns) add_up(values);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace lockstep::columns
