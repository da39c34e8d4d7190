#include "store/metrics/chunk_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "store/metric_reader.h"
#include "store/metrics/reference_load.h"
#include "testing/hex.h"

namespace lockstep::metrics {
namespace {

std::string encoded(const std::vector<double>& rows, WithSummary with = WithSummary::kYes) {
  std::string bytes;
  encode_values(rows, with, bytes);
  return bytes;
}

void expect_exact(const std::vector<double>& rows, const char* what = "") {
  for (WithSummary with : {WithSummary::kNo, WithSummary::kYes}) {
    const std::string bytes = encoded(rows, with);
    std::vector<double> back(rows.size());
    ASSERT_TRUE(decode_values(bytes, rows.size(), back.data())) << what;
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint64_t>(back[i]), std::bit_cast<uint64_t>(rows[i])) << what << " row " << i;
    }
  }
}

const double kOdd[] = {0.0,
                       -0.0,
                       std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity(),
                       std::numeric_limits<double>::quiet_NaN(),
                       std::bit_cast<double>(kStaleBits),
                       std::bit_cast<double>(uint64_t{0xFFF8'0000'1234'5678}),
                       std::bit_cast<double>(uint64_t{0x7FF0'0000'0000'0001}),
                       std::numeric_limits<double>::denorm_min(),
                       -std::numeric_limits<double>::denorm_min(),
                       std::numeric_limits<double>::min(),
                       std::numeric_limits<double>::max(),
                       std::numeric_limits<double>::lowest(),
                       0.1,
                       1.0 / 3,
                       9007199254740993.0,
                       9.2e18,
                       -9.3e18,
                       1e22,
                       123456.789,
                       -0.000001};

TEST(ChunkCodec, GivesEveryBitOfOddDoublesBack) {
  for (double odd : kOdd) {
    expect_exact({odd}, "alone");
    for (size_t count : {2u, 7u, 16u, 17u, 240u}) {
      expect_exact(std::vector<double>(count, odd), "all the same");
      for (double usual : {0.0, 5.0, 640.123, 1.0 / 7}) {
        for (size_t place : {size_t{0}, count / 2, count - 1}) {
          std::vector<double> rows(count, usual);
          rows[place] = odd;
          expect_exact(rows, "one among others");
        }
      }
    }
  }
  expect_exact({kOdd, kOdd + std::size(kOdd)}, "all of them");
}

TEST(ChunkCodec, GivesRandomColumnsOfAllSortsBack) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 4000; ++round) {
    const size_t count = 1 + random() % kChunkRowsMax;
    const unsigned sort = static_cast<unsigned>(random() % 8);
    const int64_t scale = int64_t{1} << (random() % 62);
    const double power = std::pow(10, static_cast<double>(random() % 12));
    std::vector<double> rows;
    double walk = static_cast<double>(static_cast<int64_t>(random()) % scale);
    for (size_t i = 0; i < count; ++i) {
      const double noise = static_cast<double>(static_cast<int64_t>(random()) % scale);
      walk += sort == 1 ? std::abs(noise) : random() % 20 == 0 ? noise : 0;
      double value = sort == 0   ? noise / power
                     : sort <= 3 ? walk / (sort == 3 ? power : 1)
                     : sort == 4 ? std::bit_cast<double>(random())
                     : sort == 5 ? kOdd[random() % std::size(kOdd)]
                     : sort == 6 ? std::round(noise) / power
                                 : static_cast<double>(i) * 0.1;
      if (sort != 4 && random() % 50 == 0) value = kOdd[random() % std::size(kOdd)];
      if (round % 3 == 0 && random() % 5 == 0) value = absent();
      rows.push_back(value);
    }
    expect_exact(rows, "random");
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

TEST(ChunkCodec, SummariesSayWhatTheValuesSay) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    const size_t count = 1 + random() % kChunkRowsMax;
    std::vector<double> rows;
    double counter = 0;
    for (size_t i = 0; i < count; ++i) {
      counter = random() % 100 == 0 ? 0 : counter + static_cast<double>(random() % 1000) / (round % 2 == 0 ? 1 : 100);
      double value = round % 3 == 0 ? counter : std::round(static_cast<double>(random() % 100000)) / 1000;
      if (round % 5 == 0) value = static_cast<double>(random()) / 3e15;
      if (round % 7 == 0 && random() % 30 == 0) value = std::bit_cast<double>(kStaleBits);
      if (round % 11 == 0 && random() % 4 == 0) value = absent();
      rows.push_back(value);
    }
    ChunkSummary told;
    const bool has_summary = read_summary(encoded(rows), count, told);
    ChunkSummary expected;
    double last = 0;
    size_t present = 0, resets = 0;
    bool is_whole = true;
    for (double value : rows) {
      present += is_absent(value) ? 0 : 1;
      if (is_absent(value) || is_stale(value)) continue;
      is_whole = is_whole && value == std::floor(value);
      resets += expected.count > 0 && value < last ? 1 : 0;
      if (expected.count++ == 0) {
        expected.first = expected.min = expected.max = value;
      } else {
        expected.increase += value < last ? value : value - last;
      }
      expected.min = std::min(expected.min, value);
      expected.max = std::max(expected.max, value);
      expected.sum += value;
      last = value;
    }
    // Not every double is a decimal; one that is not, among others that are, leaves the chunk without a summary.
    const bool all_decimals = round % 5 != 0 && (round % 3 != 0 || round % 2 == 0);
    if (all_decimals || expected.count == 0) {
      ASSERT_EQ(has_summary, expected.count > 0) << "round " << round;
    }
    if (!has_summary) continue;
    EXPECT_EQ(told.count, expected.count);
    EXPECT_EQ(told.first, expected.first);
    EXPECT_EQ(told.last, last);
    EXPECT_EQ(told.min, expected.min);
    EXPECT_EQ(told.max, expected.max);
    EXPECT_NEAR(told.sum, expected.sum, 1e-9 * std::abs(expected.sum) + 1e-9);
    EXPECT_EQ(told.has_increase, resets <= present / 16);
    EXPECT_TRUE(told.falls || resets == 0);
    EXPECT_TRUE(is_whole || !told.is_whole);
    if (all_decimals) {
      EXPECT_EQ(told.falls, resets > 0);
    }
    if (told.has_increase) {
      EXPECT_NEAR(told.increase, expected.increase, 1e-9 * expected.increase + 1e-9);
    }
  }
}

// A counter of 32 samples may fall twice: of integers, of decimals with and without a stale marker, and of doubles.
TEST(ChunkCodec, TellsTheIncreaseOfACounterThatFallsSeldom) {
  const double kStale = std::bit_cast<double>(kStaleBits);
  for (const double unit : {1.0, 0.25, 1.0 / 3}) {
    for (const bool with_stale : {false, true}) {
      for (const size_t resets : {0u, 1u, 2u, 3u}) {
        std::vector<double> rows;
        double value = 100 * unit, increase = 0, sum = 0, most = 0, least = value;
        for (size_t i = 0; i < 32; ++i) {
          if (with_stale && i == 7) {
            rows.push_back(kStale);
            continue;
          }
          const bool falls = i > 0 && i % 10 == 0 && i / 10 <= resets;
          const double before = value;
          if (i > 0) value = falls ? 5 * unit : value + 3 * unit;
          if (i > 0) increase += falls ? value : value - before;
          sum += value;
          most = std::max(most, value);
          least = std::min(least, value);
          rows.push_back(value);
        }
        SCOPED_TRACE(::testing::Message() << "unit " << unit << ", stale " << with_stale << ", resets " << resets);
        ChunkSummary told;
        ASSERT_TRUE(read_summary(encoded(rows), rows.size(), told));
        EXPECT_EQ(told.count, with_stale ? 31u : 32u);
        EXPECT_EQ(told.first, 100 * unit);
        EXPECT_EQ(told.last, value);
        EXPECT_EQ(told.min, least);
        EXPECT_EQ(told.max, most);
        EXPECT_NEAR(told.sum, sum, 1e-9);
        EXPECT_EQ(told.has_increase, resets <= 2);
        if (told.has_increase) {
          EXPECT_NEAR(told.increase, increase, 1e-9);
        }
        EXPECT_EQ(told.is_whole, unit == 1.0);
        if (unit != 1.0 / 3) {
          EXPECT_EQ(told.falls, resets > 0);
        }
      }
    }
  }
}

TEST(ChunkCodec, ASummaryOfMoreSamplesThanThereAreIsRefused) {
  const std::vector<double> rows = {1.0 / 3, 2.0 / 3, 1.0 / 7, 0.1 / 3};
  std::string bytes = encoded(rows);
  ChunkSummary told;
  ASSERT_TRUE(read_summary(bytes, rows.size(), told));
  ASSERT_EQ(bytes[1], 4);  // the summary's count
  bytes[1] = 5;
  EXPECT_FALSE(read_summary(bytes, rows.size(), told));
  std::vector<double> back(rows.size());
  EXPECT_FALSE(decode_values(bytes, rows.size(), back.data()));
}

TEST(ChunkCodec, HasNoSummaryWhereANaNWouldMakeItWrong) {
  ChunkSummary summary;
  EXPECT_FALSE(read_summary(encoded({1, 2, std::nan(""), 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}), 16, summary));
  EXPECT_FALSE(read_summary(encoded({1, 2}, WithSummary::kNo), 2, summary));
}

TEST(ChunkCodec, ConstantsAndRareChangesTakeFewBytes) {
  EXPECT_LE(encoded(std::vector<double>(240, 0), WithSummary::kNo).size(), 5u);
  EXPECT_LE(encoded(std::vector<double>(240, 1980)).size(), 14u);
  std::vector<double> rare(240, 7);
  for (size_t i = 100; i < 240; ++i) rare[i] = 8;
  EXPECT_LE(encoded(rare).size(), 20u);
  EXPECT_TRUE(encoded(std::vector<double>(16, absent())).empty());
}

TEST(ChunkCodec, TheReferenceLoadTakesLessThanTheBudget) {
  ReferenceLoad load;
  size_t bytes = 0, samples = 0;
  for (uint64_t node = 0; node < 2; ++node) {
    for (size_t k = 0; k < ReferenceLoad::kPerNode; k += 1) {
      const std::vector<double> column = load.column(node, k, 240);
      bytes += encoded(column).size();
      samples += column.size();
    }
  }
  const double each = static_cast<double>(bytes) / static_cast<double>(samples);
  std::printf("values with summary: %.3f B/sample\n", each);
  EXPECT_LT(each, 1.9);
}

TEST(ChunkCodec, TimesComeBackAndRegularOnesCostNothing) {
  std::vector<int64_t> times;
  for (int64_t i = 0; i < 240; ++i) times.push_back(1'785'542'400'123 + i * 10'000);
  std::string bytes;
  encode_times(times, bytes);
  EXPECT_LE(bytes.size(), 12u);
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> list;
    int64_t at = round % 5 == 0 ? static_cast<int64_t>(random()) : 1'785'542'400'000;
    for (size_t i = 0; i < 1 + random() % kChunkRowsMax; ++i) {
      at = static_cast<int64_t>(static_cast<uint64_t>(at) + 10'000 + (round % 2 == 0 ? random() % 50 : 0));
      list.push_back(at);
    }
    std::string packed;
    encode_times(list, packed);
    std::vector<int64_t> back(list.size());
    ASSERT_TRUE(decode_times(packed, list.size(), back.data()));
    EXPECT_EQ(back, list);
  }
}

TEST(ChunkCodec, WritesTheBytesOfTheFormatPage) {
  EXPECT_EQ(testing::spaced_hex(encoded({640.5, 641, 639.5, 640.25})),
            "50 22 e4 e8 07 31 95 01 64 32 09 64 8f 03 00 52 03");
  EXPECT_EQ(testing::spaced_hex(encoded({100, 110, 120, 130})), "30 01 c8 01 3c 78 00 14");
  EXPECT_EQ(testing::spaced_hex(encoded({7, 7, absent(), 7}, WithSummary::kNo)), "04 0b 00 0e 00 00");
  std::string bytes;
  encode_times(std::vector<int64_t>{1000, 11000, 21000, 31000}, bytes);
  EXPECT_EQ(testing::spaced_hex(bytes), "01 d0 0f 00 a0 9c 01");
}

TEST(ChunkCodec, BytesCutShortAreFalseOrValuesButNeverMore) {
  std::vector<double> rows;
  for (size_t i = 0; i < 240; ++i) rows.push_back(std::round(1000 * std::sin(static_cast<double>(i))) / 1000);
  const std::string bytes = encoded(rows);
  double back[kChunkRowsMax];
  for (size_t size = 1; size < bytes.size(); ++size) EXPECT_FALSE(decode_values(bytes.substr(0, size), 240, back));
}

}  // namespace
}  // namespace lockstep::metrics
