#include "analysis/whatif/parquet.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/whatif/parquet_testing.h"
#include "base/text.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

using testing::pack_snappy;
using testing::parquet_file;
using testing::TestColumn;
using testing::TestFile;

std::vector<TestColumn> some_columns(bool dictionary) {
  TestColumn whole{.name = "whole", .physical = 2, .dictionary = dictionary};
  TestColumn small{.name = "small", .physical = 1, .optional = true, .dictionary = dictionary};
  TestColumn real{.name = "real", .physical = 5, .dictionary = dictionary};
  TestColumn single{.name = "single", .physical = 4, .optional = true, .dictionary = dictionary};
  TestColumn flag{.name = "flag", .physical = 0};
  TestColumn text{.name = "text", .physical = 6, .optional = true, .dictionary = dictionary};
  for (int row = 0; row < 100; ++row) {
    whole.numbers.push_back(row < 40 ? 7 : row * 1'000'000'000.0);
    small.numbers.push_back(row % 3 == 0 ? std::optional<double>() : -row);
    real.numbers.push_back(row / 8.0);
    single.numbers.push_back(row * 0.5);
    flag.numbers.push_back(row % 5 == 0);
    text.texts.push_back(row % 10 == 9 ? std::optional<std::string>() : std::string(row % 4, 'x') + "op");
  }
  return {whole, small, real, single, flag, text};
}

void expect_some_columns(const Result<ParquetTable>& table) {
  ASSERT_TRUE(table.ok()) << table.error();
  ASSERT_EQ(table->rows, 100u);
  ASSERT_EQ(table->columns.size(), 6u);
  for (size_t row = 0; row < 100; ++row) {
    const auto number = static_cast<int64_t>(row);
    EXPECT_EQ(table->find("whole")->integers[row], row < 40 ? 7 : number * 1'000'000'000);
    EXPECT_EQ(table->find("small")->has_value(row), row % 3 != 0);
    EXPECT_EQ(table->find("small")->integers[row], row % 3 == 0 ? 0 : -number);
    EXPECT_EQ(table->find("real")->reals[row], static_cast<double>(row) / 8);
    EXPECT_EQ(table->find("single")->reals[row], static_cast<double>(row) * 0.5);
    EXPECT_EQ(table->find("flag")->integers[row], row % 5 == 0);
    const ParquetColumn& text = *table->find("text");
    EXPECT_EQ(text.has_value(row), row % 10 != 9);
    EXPECT_EQ(text.words[text.codes[row]], row % 10 == 9 ? "" : std::string(row % 4, 'x') + "op");
  }
}

std::string repacked(Encoding encoding, const std::string& bytes) {
  return std::move(compress(encoding, bytes)).value();
}
Result<std::string> unpack(PageCodec codec, std::string_view packed, uint64_t bytes_max) {
  if (codec == PageCodec::kSnappy) {
    std::string plain;
    LOCKSTEP_TRY(snappy_decompress(packed, bytes_max, plain));
    return plain;
  }
  return decompress(codec == PageCodec::kGzip ? Encoding::kGzip : Encoding::kZstd, packed, bytes_max);
}

TEST(Parquet, ReadsPlainAndDictionaryColumnsInEveryWayTheyAreWritten) {
  for (const bool dictionary : {false, true}) {
    for (const bool version_two : {false, true}) {
      for (const size_t rows_per_page : {size_t{1000}, size_t{7}}) {
        for (const size_t groups : {size_t{1}, size_t{3}}) {
          TestFile how{.version_two = version_two, .rows_per_page = rows_per_page, .row_groups = groups};
          expect_some_columns(read_parquet(parquet_file(some_columns(dictionary), how)));
          how.codec = 1;
          how.pack = pack_snappy;
          expect_some_columns(read_parquet(parquet_file(some_columns(dictionary), how), {}, unpack));
        }
      }
    }
  }
}

TEST(Parquet, OpensGzipAndZstdPagesWithTheUnpackerItIsGiven) {
  for (const auto& [codec, encoding] : {std::make_pair(2, Encoding::kGzip), std::make_pair(6, Encoding::kZstd)}) {
    if (!available(encoding)) continue;
    const TestFile how{.codec = codec, .pack = [e = encoding](const std::string& bytes) { return repacked(e, bytes); }};
    const std::string file = parquet_file(some_columns(true), how);
    expect_some_columns(read_parquet(file, {}, unpack));
    const Result<ParquetTable> without = read_parquet(file);
    ASSERT_FALSE(without.ok());
    EXPECT_NE(without.error().find(codec == 2 ? "packed by gzip" : "packed by zstd"), std::string::npos);
  }
}

TEST(Parquet, ReadsOnlyWhatIsAskedFor) {
  std::vector<TestColumn> columns = some_columns(false);
  columns.push_back({.name = "decimals", .physical = 2, .converted = 5});
  columns.back().numbers.assign(100, 1.0);
  columns.push_back({.name = "list", .physical = 2, .repetition = 2});
  columns.back().numbers.assign(100, 1.0);
  const std::string file = parquet_file(columns);
  const Result<ParquetTable> some = read_parquet(file, {"text", "absent", "whole"});
  ASSERT_TRUE(some.ok()) << some.error();
  EXPECT_EQ(some->columns.size(), 2u);
  EXPECT_EQ(some->find("absent"), nullptr);
  expect_some_columns(read_parquet(file));  // those two are passed over
  for (const auto& [name, why] : {std::make_pair("decimals", "decimals"), std::make_pair("list", "repeated")}) {
    const Result<ParquetTable> refused = read_parquet(file, {name});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().find(why), std::string::npos) << refused.error();
    EXPECT_EQ(refused.error().find('\n'), std::string::npos);
  }
}

TEST(Parquet, NamesWhatItDoesNotKnow) {
  const Result<ParquetTable> lz4 = read_parquet(parquet_file(some_columns(false), {.codec = 7}));
  ASSERT_FALSE(lz4.ok());
  EXPECT_NE(lz4.error().find("lz4_raw"), std::string::npos) << lz4.error();
  const Result<ParquetTable> delta = read_parquet(parquet_file(some_columns(false), {.encoding = 5}), {"whole"});
  ASSERT_FALSE(delta.ok());
  EXPECT_NE(delta.error().find("delta binary packed"), std::string::npos) << delta.error();
  EXPECT_NE(read_parquet("PARE and so on").error().find("encrypted"), std::string::npos);
  EXPECT_NE(read_parquet("a,b,c\n1,2,3\n").error().find("no Parquet file"), std::string::npos);
}

TEST(Parquet, AFileCutOffAnywhereIsOneClearLine) {
  const std::string file = parquet_file(some_columns(true), {.codec = 1, .pack = pack_snappy});
  for (size_t size = 0; size < file.size(); ++size) {
    const Result<ParquetTable> torn = read_parquet(std::string_view(file).substr(0, size), {}, unpack);
    ASSERT_FALSE(torn.ok()) << size;
    EXPECT_EQ(torn.error().find('\n'), std::string::npos);
  }
}

TEST(Parquet, AChangedByteIsReadOrRefusedButNeverMore) {
  const std::string file = parquet_file(some_columns(true), {.codec = 1, .pack = pack_snappy, .rows_per_page = 30});
  const ParquetLimits limits{.rows_max = 10'000, .page_bytes_max = 1 << 20, .text_bytes_max = 1 << 16};
  size_t refused = 0;
  for (size_t at = 0; at < file.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string changed = file;
      changed[at] = static_cast<char>(changed[at] ^ 1 << bit);
      const Result<ParquetTable> table = read_parquet(changed, {}, unpack, limits);
      refused += table.ok() ? 0 : 1;
      if (!table.ok()) continue;
      for (const ParquetColumn& column : table->columns) {
        const size_t rows = std::max({column.integers.size(), column.reals.size(), column.codes.size()});
        ASSERT_EQ(rows, table->rows);
        for (const uint32_t code : column.codes) ASSERT_LT(code, column.words.size());
      }
    }
  }
  EXPECT_GT(refused, file.size() / 2);
}

TEST(Parquet, RefusesMoreThanItsLimits) {
  const std::string file = parquet_file(some_columns(false));
  EXPECT_NE(read_parquet(file, {}, {}, {.rows_max = 99}).error().find("limit 99"), std::string::npos);
  EXPECT_FALSE(read_parquet(file, {}, {}, {.footer_bytes_max = 10}).ok());
  EXPECT_FALSE(read_parquet(file, {}, {}, {.page_bytes_max = 100}).ok());
  EXPECT_FALSE(read_parquet(file, {"text"}, {}, {.text_bytes_max = 40}).ok());
}

}  // namespace
}  // namespace lockstep
