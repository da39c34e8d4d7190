#include "store/columns/int_codec.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace lockstep::columns {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

std::vector<int64_t> there_and_back(const std::vector<int64_t>& values) {
  std::vector<int64_t> again;
  EXPECT_TRUE(decode_ints(encode_ints(values), values.size(), again));
  return again;
}

TEST(IntCodec, GivesEveryColumnBackWhateverItsShape) {
  std::mt19937_64 random(7);
  std::vector<std::vector<int64_t>> columns = {{}, {0}, {kLeast}, {kLeast, kMost, kLeast, 0, -1}};
  for (size_t size : {1, 255, 256, 257, 5000}) {
    for (unsigned width = 0; width <= 64; width += 3) {
      std::vector<int64_t> noise(size);
      for (int64_t& value : noise) value = width == 0 ? 5 : static_cast<int64_t>(random() >> (64 - width));
      columns.push_back(noise);
    }
    std::vector<int64_t> rising(size);
    std::vector<int64_t> pattern(size);
    for (size_t i = 0; i < size; ++i) {
      rising[i] = 1'700'000'000'000'000'000 + static_cast<int64_t>(i * 1000 + random() % 50);
      pattern[i] = static_cast<int64_t>((i % 100) * (i % 100) * 1'000'003);
    }
    columns.push_back(rising);
    columns.push_back(pattern);
  }
  for (const std::vector<int64_t>& column : columns) EXPECT_EQ(there_and_back(column), column);
}

TEST(IntCodec, PacksNoiseToItsBitsAndPatternsToAlmostNothing) {
  std::mt19937_64 random(7);
  std::vector<int64_t> noise(65'536);
  std::vector<int64_t> pattern(65'536);
  for (size_t i = 0; i < noise.size(); ++i) {
    noise[i] = 1'000'000'000'000 + static_cast<int64_t>(random() % (1 << 20));
    pattern[i] = static_cast<int64_t>(i % 100 * 4096);
  }
  EXPECT_LT(encode_ints(noise).size(), noise.size() * 21 / 8);
  EXPECT_LT(encode_ints(pattern).size(), pattern.size() / 50);
  EXPECT_LT(encode_ints(std::vector<int64_t>(65'536, 7)).size(), 4u);
}

TEST(IntCodec, RefusesColumnsOfAnotherLengthAndTornOnes) {
  std::vector<int64_t> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i * i * 31 % 977);
  std::string bytes = encode_ints(values);
  std::vector<int64_t> again;
  EXPECT_FALSE(decode_ints(bytes, 999, again));
  EXPECT_FALSE(decode_ints(bytes, 2000, again));
  EXPECT_FALSE(decode_ints(bytes, size_t{1} << 40, again));
  for (size_t size = 0; size < bytes.size(); size += 7)
    EXPECT_FALSE(decode_ints(std::string_view(bytes).substr(0, size), 1000, again));
  bytes[0] = 9;
  EXPECT_FALSE(decode_ints(bytes, 1000, again));
}

TEST(PackBytes, IsBoundedByWhatTheCallerCanTake) {
  std::string zeros(1 << 20, '\0');
  std::string bytes;
  EXPECT_LT(pack_bytes(zeros).size(), 200u);
  EXPECT_FALSE(unpack_bytes(pack_bytes(zeros), zeros.size() - 1, bytes));
  ASSERT_TRUE(unpack_bytes(pack_bytes(zeros), zeros.size(), bytes));
  EXPECT_EQ(bytes, zeros);
  ASSERT_TRUE(unpack_bytes(pack_bytes(""), 0, bytes));
  EXPECT_EQ(bytes, "");
}

}  // namespace
}  // namespace lockstep::columns
