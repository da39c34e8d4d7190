#include "store/metrics/chunk_codec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "store/columns/byte_codec.h"
#include "store/metric_reader.h"

namespace lockstep::metrics {
namespace {

using columns::ByteReader;
using columns::put_fixed;
using columns::put_signed;
using columns::put_varint;

// First byte of a column of values: how, and what comes along.
constexpr uint8_t kInts = 0;
constexpr uint8_t kXor = 1;
constexpr uint8_t kHowMask = 0x03;
constexpr uint8_t kHasGaps = 0x04;     // a bitmap of the rows that have a sample follows
constexpr uint8_t kHasPatches = 0x08;  // kInts: values that are no such decimals
constexpr uint8_t kHasSummary = 0x10;
constexpr uint8_t kHasIncrease = 0x20;  // with kHasSummary
constexpr uint8_t kHasResets = 0x40;    // with kHasSummary: not all rise, so least, most and the increase are told

constexpr int kExponentMax = 9;
constexpr double kPowers[kExponentMax + 1] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
constexpr double kScaledMax = 2251799813685248;  // 2^51: up to here the rounding below is exact
constexpr double kRounder = 6755399441055744;    // 1.5 * 2^52: its last bit counts ones
constexpr double kWholeMax = 9.0e18;

uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}

// The integer that is `value` times 10^exponent, if dividing it again gives the very same bits.
inline bool as_whole(double value, int64_t& whole) {
  if (!(value > -kWholeMax && value < kWholeMax)) return false;
  whole = static_cast<int64_t>(value);
  return bits_of(static_cast<double>(whole)) == bits_of(value);
}
inline bool as_scaled(double value, double power, int64_t& whole) {
  const double scaled = value * power;
  if (!(scaled > -kScaledMax && scaled < kScaledMax)) return false;
  whole = static_cast<int64_t>(bits_of(scaled + kRounder) - bits_of(kRounder));
  return bits_of(static_cast<double>(whole) / power) == bits_of(value);
}
inline double from_decimal(int64_t whole, int exponent) {
  return exponent == 0 ? static_cast<double>(whole) : static_cast<double>(whole) / kPowers[exponent];
}

// Integers.

// How integers are packed; for values the upper half of the byte is the decimal exponent.
constexpr uint8_t kOrderMask = 0x03;  // 0 values, 1 differences, 2 differences of differences
constexpr uint8_t kZigzag = 0x04;     // zigzag from zero; else frame of reference
constexpr uint8_t kHasOutliers = 0x08;

struct Plan {
  uint32_t bits = UINT32_MAX;  // of all residuals and outliers
  uint8_t order = 0;
  bool zigzag = false;
  uint8_t width = 0;
  uint32_t outliers = 0;
  int64_t base = 0;
};

// The cheapest width, given how many residuals need how many bits.
void plan_width(const std::array<uint32_t, 65>& counts, size_t residuals, unsigned most, Plan plan, Plan& best) {
  uint32_t outliers = 0, outlier_bits = 0;
  const unsigned least = most > 57 ? most : 0;  // wider than 57 bits is written as 64
  for (unsigned width = most;; --width) {
    const uint32_t written = width > 57 ? 64 : width;
    uint32_t patched = 0;
    if (outliers > 0) {
      // Outliers lost one more bit than at the width before; their varints grow every seventh: counted roughly, exactly
      // enough to choose.
      outlier_bits += outliers;
      patched = outliers * 12 + outlier_bits;
    }
    const uint32_t bits = static_cast<uint32_t>(residuals) * written + patched;
    if (bits < best.bits) {
      best = plan;
      best.bits = bits;
      best.width = static_cast<uint8_t>(written);
      best.outliers = outliers;
    }
    if (width == least || outliers > residuals / 4) break;
    outliers += counts[width];
  }
}

inline uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t unzigzag(uint64_t value) {
  return static_cast<int64_t>((value >> 1) ^ (0 - (value & 1)));
}

void plan_order(const int64_t* values, size_t count, uint8_t order, Plan& best) {
  int64_t least = values[0], most = values[0];
  for (size_t i = 1; i < count; ++i) {
    least = std::min(least, values[i]);
    most = std::max(most, values[i]);
  }
  Plan plan;
  plan.order = order;
  plan.base = least;
  const uint64_t span = static_cast<uint64_t>(most) - static_cast<uint64_t>(least);
  if (span == 0) {
    plan.bits = 0;
    if (plan.bits < best.bits) best = plan;
    return;
  }
  // Frame of reference: outliers can only be above. Zigzag: around zero.
  const unsigned span_bits = static_cast<unsigned>(64 - std::countl_zero(span));
  std::array<uint32_t, 65> counts{};
  for (size_t i = 0; i < count; ++i)
    ++counts[static_cast<size_t>(64 -
                                 std::countl_zero(static_cast<uint64_t>(values[i]) - static_cast<uint64_t>(least)))];
  plan_width(counts, count, span_bits, plan, best);
  if (least < 0 && most >= 0) {
    counts = {};
    unsigned widest = 0;
    for (size_t i = 0; i < count; ++i) {
      const unsigned bits = static_cast<unsigned>(64 - std::countl_zero(zigzag(values[i])));
      ++counts[bits];
      widest = std::max(widest, bits);
    }
    plan.zigzag = true;
    plan.base = 0;
    plan_width(counts, count, widest, plan, best);
  }
}

void pack_bits(const uint64_t* residuals, size_t count, unsigned width, std::string& out) {
  if (width == 0) return;
  if (width == 64) {
    out.append(reinterpret_cast<const char*>(residuals), count * 8);
    return;
  }
  const size_t start = out.size();
  out.resize(start + (count * width + 7) / 8 + 8);
  char* to = out.data() + start;
  const uint64_t mask = (uint64_t{1} << width) - 1;
  uint64_t word = 0;
  unsigned used = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t value = residuals[i] & mask;
    word |= value << used;
    used += width;
    if (used >= 64) {
      std::memcpy(to, &word, 8);
      to += 8;
      used -= 64;
      word = used == 0 ? 0 : value >> (width - used);
    }
  }
  std::memcpy(to, &word, 8);
  out.resize(start + (count * width + 7) / 8);
}

// `bytes` has (count * width + 7) / 8 of them; whole words are read where there are so many, a copy at the end.
void unpack_bits(std::string_view bytes, size_t count, unsigned width, uint64_t* residuals) {
  if (width == 0) {
    std::fill(residuals, residuals + count, 0);
    return;
  }
  if (width == 64) {
    std::memcpy(residuals, bytes.data(), count * 8);
    return;
  }
  const uint64_t mask = (uint64_t{1} << width) - 1;
  const size_t direct = bytes.size() < 8 ? 0 : std::min(count, ((bytes.size() - 8) * 8 + 7) / width);
  size_t bit = 0;
  size_t i = 0;
  for (; i < direct; ++i, bit += width) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + bit / 8, 8);
    residuals[i] = (word >> (bit % 8)) & mask;
  }
  for (; i < count; ++i, bit += width) {
    const size_t at = bit / 8;
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    residuals[i] = (word >> (bit % 8)) & mask;
  }
}

// At least one integer: how to pack them, then packed.
class IntPacker {
 public:
  explicit IntPacker(std::span<const int64_t> values) : values_(values) {
    const size_t count = values.size();
    plan_order(values.data(), count, 0, plan_);
    if (count > 1 && plan_.bits != 0) {
      for (size_t i = 1; i < count; ++i) differences_[i - 1] = minus(values[i], values[i - 1]);
      plan_order(differences_, count - 1, 1, plan_);
    }
    if (count > 2 && plan_.bits != 0) {
      for (size_t i = 1; i + 1 < count; ++i) second_[i - 1] = minus(differences_[i], differences_[i - 1]);
      plan_order(second_, count - 2, 2, plan_);
    }
  }
  uint8_t how() const {
    return static_cast<uint8_t>(plan_.order | (plan_.zigzag ? kZigzag : 0) | (plan_.outliers > 0 ? kHasOutliers : 0));
  }
  // Everything but how() and the first value, which the caller has written.
  void put(std::string& out) const {
    const int64_t* source = plan_.order == 0 ? values_.data() : plan_.order == 1 ? differences_ : second_;
    const size_t count = values_.size() - plan_.order;
    uint64_t residuals[kChunkRowsMax];
    if (plan_.zigzag) {
      for (size_t i = 0; i < count; ++i) residuals[i] = zigzag(source[i]);
    } else {
      for (size_t i = 0; i < count; ++i) residuals[i] = static_cast<uint64_t>(minus(source[i], plan_.base));
    }
    out.push_back(static_cast<char>(plan_.width));
    if (plan_.order == 2) put_signed(out, differences_[0]);
    if (!plan_.zigzag) put_signed(out, plan_.order == 0 ? minus(plan_.base, values_[0]) : plan_.base);
    pack_bits(residuals, count, plan_.width, out);
    if (plan_.outliers == 0) return;
    out.push_back(static_cast<char>(plan_.outliers));
    for (size_t i = 0; i < count; ++i) {
      if (residuals[i] >> plan_.width == 0) continue;
      out.push_back(static_cast<char>(i));
      put_varint(out, residuals[i] >> plan_.width);
    }
  }

 private:
  static int64_t minus(int64_t a, int64_t b) {  // wraps around, and back when read
    return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  }
  std::span<const int64_t> values_;
  Plan plan_;
  int64_t differences_[kChunkRowsMax], second_[kChunkRowsMax];
};

bool unpack_ints(ByteReader& in, uint8_t how, int64_t first, size_t count, int64_t* values) {
  const uint8_t width = in.fixed<uint8_t>();
  const size_t order = how & kOrderMask;
  if (!in.ok() || order > 2 || order > count || (width > 57 && width != 64) || count > kChunkRowsMax) return false;
  const int64_t first_difference = order == 2 ? in.signed_varint() : 0;
  uint64_t base = (how & kZigzag) != 0 ? 0 : static_cast<uint64_t>(in.signed_varint());
  if (order == 0 && (how & kZigzag) == 0) base += static_cast<uint64_t>(first);
  const size_t residual_count = count - order;
  std::string_view packed = in.raw((residual_count * width + 7) / 8);
  if (!in.ok()) return false;
  uint64_t residuals[kChunkRowsMax];
  unpack_bits(packed, residual_count, width, residuals);
  if ((how & kHasOutliers) != 0) {
    if (width >= 64) return false;
    for (size_t left = in.fixed<uint8_t>(); left > 0; --left) {
      const size_t at = in.fixed<uint8_t>();
      const uint64_t high = in.varint();
      if (!in.ok() || at >= residual_count) return false;
      residuals[at] |= high << width;
    }
    if (!in.ok()) return false;
  }
  if ((how & kZigzag) != 0) {
    for (size_t i = 0; i < residual_count; ++i) residuals[i] = static_cast<uint64_t>(unzigzag(residuals[i]));
  } else if (base != 0) {
    for (size_t i = 0; i < residual_count; ++i) residuals[i] += base;
  }
  if (order == 0) {
    std::memcpy(values, residuals, count * 8);
    return true;
  }
  uint64_t value = static_cast<uint64_t>(first);
  values[0] = first;
  if (order == 1) {
    for (size_t i = 1; i < count; ++i) {
      value += residuals[i - 1];
      values[i] = static_cast<int64_t>(value);
    }
    return true;
  }
  uint64_t difference = static_cast<uint64_t>(first_difference);
  value += difference;
  values[1] = static_cast<int64_t>(value);
  for (size_t i = 2; i < count; ++i) {
    difference += residuals[i - 2];
    value += difference;
    values[i] = static_cast<int64_t>(value);
  }
  return true;
}

// Fallback: the XOR of neighbours, leading and trailing zero bits left out.

class BitWriter {
 public:
  explicit BitWriter(std::string& out) : out_(out) {}
  void put(uint64_t value, unsigned bits) {  // at most 57 bits
    word_ |= value << used_;
    used_ += bits;
    while (used_ >= 8) {
      out_.push_back(static_cast<char>(word_));
      word_ >>= 8;
      used_ -= 8;
    }
  }
  void put64(uint64_t value, unsigned bits) {
    if (bits > 32) {
      put(value & 0xFFFFFFFF, 32);
      put(value >> 32, bits - 32);
    } else {
      put(value, bits);
    }
  }
  void flush() {
    if (used_ > 0) out_.push_back(static_cast<char>(word_));
  }

 private:
  std::string& out_;
  uint64_t word_ = 0;
  unsigned used_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t get(unsigned bits) {  // at most 57 bits
    if (bit_ + bits > bytes_.size() * 8) {
      ok_ = false;
      return 0;
    }
    uint64_t word = 0;
    const size_t at = bit_ / 8;
    std::memcpy(&word, bytes_.data() + at, std::min<size_t>(8, bytes_.size() - at));
    word >>= bit_ % 8;
    bit_ += bits;
    return word & ((uint64_t{1} << bits) - 1);
  }
  uint64_t get64(unsigned bits) {
    if (bits <= 32) return get(bits);
    const uint64_t low = get(32);
    return low | get(bits - 32) << 32;
  }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes_;
  size_t bit_ = 0;
  bool ok_ = true;
};

void pack_xor(std::span<const double> values, std::string& out) {
  uint64_t before = bits_of(values[0]);
  put_fixed(out, before);
  BitWriter bits(out);
  unsigned window_zeros = 0, window_bits = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    const uint64_t now = bits_of(values[i]);
    const uint64_t changed = now ^ before;
    before = now;
    if (changed == 0) {
      bits.put(0, 1);
      continue;
    }
    const unsigned leading = static_cast<unsigned>(std::countl_zero(changed));
    const unsigned trailing = static_cast<unsigned>(std::countr_zero(changed));
    if (window_bits != 0 && trailing >= window_zeros && 64 - leading <= window_zeros + window_bits &&
        window_bits <= 64 - leading - trailing + 12) {
      bits.put(0b01, 2);
    } else {
      window_zeros = trailing;
      window_bits = 64 - leading - trailing;
      bits.put(0b11, 2);
      bits.put(window_zeros, 6);
      bits.put(window_bits - 1, 6);
    }
    bits.put64(changed >> window_zeros, window_bits);
  }
  bits.flush();
}

bool unpack_xor(ByteReader& in, size_t count, double* values) {
  if (count == 0) return true;
  uint64_t value = in.fixed<uint64_t>();
  if (!in.ok()) return false;
  values[0] = std::bit_cast<double>(value);
  BitReader bits(in.raw(in.left()));
  unsigned window_zeros = 0, window_bits = 0;
  for (size_t i = 1; i < count; ++i) {
    if (bits.get(1) != 0) {
      if (bits.get(1) != 0) {
        window_zeros = static_cast<unsigned>(bits.get(6));
        window_bits = static_cast<unsigned>(bits.get(6)) + 1;
        if (window_zeros + window_bits > 64) return false;
      }
      if (window_bits == 0) return false;
      value ^= bits.get64(window_bits) << window_zeros;
    }
    if (!bits.ok()) return false;
    values[i] = std::bit_cast<double>(value);
  }
  return true;
}

// Columns of values.

struct Patch {
  uint8_t row;
  double value;
};

// The present values as decimals of one exponent; those that are none as patches. False: too many are none.
struct Decimals {
  int exponent = 0;
  size_t patch_count = 0;
  int64_t wholes[kChunkRowsMax];
  Patch patches[kChunkRowsMax / 16 + 1];

  bool take(std::span<const double> values) {
    const size_t patches_max = values.size() / 16 + (values.size() >= 8 ? 1 : 0);
    size_t i = 0;
    int64_t before = 0;
    while (i < values.size()) {
      // The inner loop is for what is usual: the exponent that fitted so far fits.
      if (exponent == 0) {
        while (i < values.size() && as_whole(values[i], wholes[i])) ++i;
      } else {
        const double power = kPowers[exponent];
        while (i < values.size() && as_scaled(values[i], power, wholes[i])) ++i;
      }
      if (i == values.size()) break;
      if (i > 0) before = wholes[i - 1];
      const int more = exponent_of(values[i]);
      if (more > exponent && raise(more, i)) continue;
      if (patch_count == patches_max) return false;
      patches[patch_count++] = {static_cast<uint8_t>(i), values[i]};
      wholes[i] = before;
      ++i;
    }
    // A patch at the start takes the value after it, so that it costs no outlier.
    size_t good = 0;
    while (good < patch_count && patches[good].row == good) ++good;
    if (good > 0 && good < values.size())
      for (size_t k = 0; k < good; ++k) wholes[k] = wholes[good];
    return true;
  }

 private:
  int exponent_of(double value) const {
    int64_t whole;
    for (int e = exponent + 1; e <= kExponentMax; ++e) {
      if (as_scaled(value, kPowers[e], whole)) return e;
    }
    return 0;
  }
  // What was taken so far, with more digits; divided again it is the same fraction, so the same double.
  bool raise(int to, size_t count) {
    const int64_t factor = static_cast<int64_t>(kPowers[to - exponent]);
    const int64_t most = static_cast<int64_t>(kScaledMax) / factor;
    for (size_t i = 0; i < count; ++i) {
      if (wholes[i] > most || wholes[i] < -most) return false;
    }
    for (size_t i = 0; i < count; ++i) wholes[i] *= factor;
    exponent = to;
    return true;
  }
};

struct IntSummary {
  size_t used = 0;  // values that are numbers
  int64_t first = 0, last = 0, least = 0, most = 0;
  __int128 sum = 0, increase = 0;
  size_t resets = 0;
};

// Its increase is only there where resets are neither none nor too many to be told.
IntSummary summary_of(const int64_t* values, size_t count) {
  int64_t least = values[0], most = values[0];
  __int128 sum = values[0], increase = 0;
  size_t resets = 0;
  for (size_t i = 1; i < count; ++i) {
    least = std::min(least, values[i]);
    most = std::max(most, values[i]);
    sum += values[i];
    resets += values[i] < values[i - 1] ? 1 : 0;
  }
  if (resets > 0 && resets <= count / 16) {
    for (size_t i = 1; i < count; ++i)
      increase += values[i] < values[i - 1] ? values[i] : static_cast<__int128>(values[i]) - values[i - 1];
  }
  return {.used = count,
          .first = values[0],
          .last = values[count - 1],
          .least = least,
          .most = most,
          .sum = sum,
          .increase = increase,
          .resets = resets};
}

// Of values with stale marks among them; none where a patch is anything else, or nothing else is there.
std::optional<IntSummary> summary_between_marks(const Decimals& decimals, size_t count) {
  IntSummary all;
  size_t patch = 0;
  for (size_t i = 0; i < count; ++i) {
    if (patch < decimals.patch_count && decimals.patches[patch].row == i) {
      if (!is_stale(decimals.patches[patch].value)) return std::nullopt;
      ++patch;
      continue;
    }
    const int64_t value = decimals.wholes[i];
    if (all.used == 0) {
      all.first = all.least = all.most = value;
    } else {
      all.resets += value < all.last ? 1 : 0;
      all.increase += value < all.last ? value : static_cast<__int128>(value) - all.last;
    }
    all.least = std::min(all.least, value);
    all.most = std::max(all.most, value);
    all.sum += value;
    all.last = value;
    ++all.used;
  }
  if (all.used == 0) return std::nullopt;
  return all;
}

// Of integers: exact, and small when told from the first.
bool put_int_summary(const Decimals& decimals, size_t count, std::string& out, uint8_t& flags) {
  const std::optional<IntSummary> all =
      decimals.patch_count == 0 ? summary_of(decimals.wholes, count) : summary_between_marks(decimals, count);
  if (!all) return false;
  const __int128 sum = all->sum - static_cast<__int128>(all->first) * static_cast<int64_t>(all->used);
  constexpr __int128 kMost = INT64_MAX / 4;
  auto fits = [](__int128 value) { return value <= kMost && value >= -kMost; };
  if (!fits(all->first) || !fits(all->last) || !fits(all->least) || !fits(all->most) || !fits(sum) ||
      !fits(all->increase))
    return false;
  flags |= kHasSummary;
  if (decimals.patch_count > 0) put_varint(out, all->used);
  put_signed(out, all->last - all->first);
  put_signed(out, static_cast<int64_t>(sum));
  if (all->resets == 0) {  // least is first, most is last
    flags |= kHasIncrease;
    return true;
  }
  flags |= kHasResets;
  put_varint(out, static_cast<uint64_t>(all->first - all->least));
  put_varint(out, static_cast<uint64_t>(all->most - all->first));
  if (all->resets > count / 16) return true;
  flags |= kHasIncrease;
  put_signed(out, static_cast<int64_t>(all->increase));
  return true;
}

// Of doubles: only of numbers; with a NaN among them the values have to be read.
void put_double_summary(std::span<const double> values, std::string& out, uint8_t& flags) {
  ChunkSummary summary;
  size_t resets = 0;
  for (double value : values) {
    if (is_stale(value)) continue;
    if (value != value) return;
    if (summary.count == 0) {
      summary.first = summary.min = summary.max = value;
    } else {
      resets += value < summary.last ? 1 : 0;
      summary.increase += value < summary.last ? value : value - summary.last;
    }
    summary.min = std::min(summary.min, value);
    summary.max = std::max(summary.max, value);
    summary.sum += value;
    summary.last = value;
    ++summary.count;
  }
  if (summary.count == 0) return;
  flags |= kHasSummary;
  put_varint(out, summary.count);
  for (double value : {summary.first, summary.last, summary.min, summary.max, summary.sum}) put_fixed(out, value);
  flags |= kHasResets;
  if (resets > values.size() / 16) return;
  flags |= kHasIncrease;
  put_fixed(out, summary.increase);
}

struct Head {
  uint8_t flags = 0;
  size_t count = 0;  // of rows that have a sample
  std::string_view bitmap;
  // Of integers.
  int exponent = 0;
  uint8_t how = 0;
  int64_t first = 0;
};

bool read_head(ByteReader& in, size_t rows, Head& head) {
  head.flags = in.fixed<uint8_t>();
  if (!in.ok() || rows > kChunkRowsMax || (head.flags & kHowMask) > kXor) return false;
  head.count = rows;
  if ((head.flags & kHasGaps) != 0) {
    head.bitmap = in.raw((rows + 7) / 8);
    head.count = 0;
    for (char byte : head.bitmap) head.count += static_cast<size_t>(std::popcount(static_cast<uint8_t>(byte)));
    if (head.count > rows) return false;
  }
  if ((head.flags & kHowMask) == kInts) {
    const uint8_t byte = in.fixed<uint8_t>();
    head.exponent = byte >> 4;
    head.how = byte & 0x0F;
    head.first = in.signed_varint();
  }
  return in.ok() && head.exponent <= kExponentMax && head.count > 0;
}

bool take_summary(ByteReader& in, const Head& head, ChunkSummary& summary) {
  summary = {};
  summary.count = static_cast<uint32_t>(head.count);
  if ((head.flags & kHowMask) == kXor || (head.flags & kHasPatches) != 0)
    summary.count = static_cast<uint32_t>(std::min<uint64_t>(in.varint(), kChunkRowsMax + 1));
  if ((head.flags & kHowMask) == kInts) {
    auto plus = [](int64_t a, uint64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + b); };
    auto number = [&](int64_t whole) { return from_decimal(whole, head.exponent); };
    const int64_t first = head.first;
    const int64_t last = plus(first, static_cast<uint64_t>(in.signed_varint()));
    const __int128 sum = static_cast<__int128>(first) * summary.count + in.signed_varint();
    int64_t least = first, most = last;
    if ((head.flags & kHasResets) != 0) {
      least = plus(first, 0 - in.varint());
      most = plus(first, in.varint());
    }
    summary.first = number(first);
    summary.last = number(last);
    summary.min = number(least);
    summary.max = number(most);
    summary.sum = static_cast<double>(sum) / kPowers[head.exponent];
    summary.falls = (head.flags & kHasResets) != 0;
    summary.is_whole = head.exponent == 0;
    if ((head.flags & kHasIncrease) != 0) {
      summary.has_increase = true;
      summary.increase =
          number((head.flags & kHasResets) != 0 ? in.signed_varint() : plus(last, 0 - static_cast<uint64_t>(first)));
    }
  } else {
    for (double* value : {&summary.first, &summary.last, &summary.min, &summary.max, &summary.sum})
      *value = in.fixed<double>();
    summary.falls = true;
    if ((head.flags & kHasIncrease) != 0) {
      summary.has_increase = true;
      summary.increase = in.fixed<double>();
    }
  }
  return in.ok() && summary.count <= head.count;
}

}  // namespace

void encode_values(std::span<const double> rows, WithSummary with, std::string& out) {
  double present[kChunkRowsMax];
  uint8_t bitmap[kChunkRowsMax / 8] = {};
  size_t count = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    present[count] = rows[i];
    const bool there = !is_absent(rows[i]);
    count += there ? 1 : 0;
    bitmap[i / 8] = static_cast<uint8_t>(bitmap[i / 8] | (there ? 1 : 0) << (i % 8));
  }
  if (count == 0) return;  // no bytes at all
  const std::span<const double> values(present, count);
  const size_t start = out.size();
  uint8_t flags = 0;
  out.push_back(0);
  if (count < rows.size()) {
    flags |= kHasGaps;
    out.append(reinterpret_cast<const char*>(bitmap), (rows.size() + 7) / 8);
  }
  Decimals decimals;
  if (decimals.take(values)) {
    flags |= kInts;
    const IntPacker packer({decimals.wholes, count});
    out.push_back(static_cast<char>(decimals.exponent << 4 | packer.how()));
    put_signed(out, decimals.wholes[0]);
    if (with == WithSummary::kYes) put_int_summary(decimals, count, out, flags);
    if (decimals.patch_count > 0) {
      flags |= kHasPatches;
      out.push_back(static_cast<char>(decimals.patch_count));
      for (size_t i = 0; i < decimals.patch_count; ++i) {
        out.push_back(static_cast<char>(decimals.patches[i].row));
        put_fixed(out, decimals.patches[i].value);
      }
    }
    packer.put(out);
  } else {
    flags |= kXor;
    if (with == WithSummary::kYes) put_double_summary(values, out, flags);
    pack_xor(values, out);
  }
  out[start] = static_cast<char>(flags);
}

bool decode_values(std::string_view bytes, size_t rows, double* values) {
  if (bytes.empty()) {
    std::fill(values, values + rows, absent());
    return rows <= kChunkRowsMax;
  }
  ByteReader in(bytes);
  Head head;
  if (!read_head(in, rows, head)) return false;
  ChunkSummary unused;
  if ((head.flags & kHasSummary) != 0 && !take_summary(in, head, unused)) return false;
  double present[kChunkRowsMax];
  double* to = (head.flags & kHasGaps) != 0 ? present : values;
  if ((head.flags & kHowMask) == kInts) {
    std::string_view patches;
    if ((head.flags & kHasPatches) != 0) patches = in.raw(in.fixed<uint8_t>() * size_t{9});
    int64_t wholes[kChunkRowsMax];
    if (!in.ok() || !unpack_ints(in, head.how, head.first, head.count, wholes)) return false;
    if (head.exponent == 0) {
      for (size_t i = 0; i < head.count; ++i) to[i] = static_cast<double>(wholes[i]);
    } else {
      const double power = kPowers[head.exponent];
      for (size_t i = 0; i < head.count; ++i) to[i] = static_cast<double>(wholes[i]) / power;
    }
    for (; !patches.empty(); patches.remove_prefix(9)) {
      const size_t row = static_cast<uint8_t>(patches[0]);
      if (row >= head.count) return false;
      std::memcpy(&to[row], patches.data() + 1, 8);
    }
  } else if (!unpack_xor(in, head.count, to)) {
    return false;
  }
  if ((head.flags & kHasGaps) != 0) {
    size_t next = 0;
    for (size_t i = 0; i < rows; ++i) {
      const bool there = (static_cast<uint8_t>(head.bitmap[i / 8]) >> (i % 8) & 1) != 0;
      values[i] = there && next < head.count ? present[next++] : absent();
    }
  }
  return true;
}

bool has_gaps(std::string_view bytes) {
  return bytes.empty() || (static_cast<uint8_t>(bytes[0]) & kHasGaps) != 0;
}

bool read_summary(std::string_view bytes, size_t rows, ChunkSummary& summary) {
  ByteReader in(bytes);
  Head head;
  if (bytes.empty() || !read_head(in, rows, head) || (head.flags & kHasSummary) == 0) return false;
  return take_summary(in, head, summary);
}

void encode_times(std::span<const int64_t> times_ms, std::string& out) {
  if (times_ms.empty()) return;
  const IntPacker packer(times_ms);
  out.push_back(static_cast<char>(packer.how()));
  put_signed(out, times_ms[0]);
  packer.put(out);
}

bool decode_times(std::string_view bytes, size_t rows, int64_t* times_ms) {
  if (rows == 0) return true;
  ByteReader in(bytes);
  const uint8_t how = in.fixed<uint8_t>();
  const int64_t first = in.signed_varint();
  return in.ok() && unpack_ints(in, how, first, rows, times_ms);
}

}  // namespace lockstep::metrics
