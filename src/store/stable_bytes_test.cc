// The bytes that encoders write, and what readers make of bytes that are wrong, each as one line with a checksum.
//
// An encoder chooses among many ways to write the same numbers, and each of them reads back: only the bytes tell that it
// still chooses the best. A reader checks much that no whole file can show: here every byte is changed in turn, with its
// checksums made right again. Where a format or a choice is changed on purpose, what the test prints is the new line.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <random>

#include "base/crc32c.h"
#include "base/files.h"
#include "base/text.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/columns/text_codec.h"
#include "store/metrics/block_builder.h"
#include "store/metrics/engine_world.h"
#include "store/metrics/wal_record.h"
#include "store/spans/span_file.h"
#include "store/steps/step_file.h"
#include "testing/changed_bytes.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using columns::ByteReader;
using columns::put_bytes;
using columns::put_fixed;
using columns::put_varint;

using testing::Fingerprint;
using testing::read_changed;

// A file whose footer is another.
std::string with_footer(const std::string& file, std::string_view footer) {
  ByteReader tail(std::string_view(file).substr(file.size() - 24));
  std::string changed = file.substr(0, tail.fixed<uint64_t>());
  const uint64_t at = changed.size();
  const std::string packed = columns::pack_bytes(footer);
  changed += packed;
  put_fixed(changed, at);
  put_fixed(changed, static_cast<uint32_t>(packed.size()));
  put_fixed(changed, crc32c(packed));
  return changed + file.substr(file.size() - 8);
}
std::string footer_of(const std::string& file) {
  ByteReader tail(std::string_view(file).substr(file.size() - 24));
  const uint64_t at = tail.fixed<uint64_t>();
  std::string footer;
  EXPECT_TRUE(columns::unpack_bytes(std::string_view(file).substr(at, tail.fixed<uint32_t>()), 1 << 20, footer));
  return footer;
}

// What is read of the file with each byte of one of its sections changed, and the checksum that the footer has of it.
// in: stands in the footer where the section's place is; goes on behind it.
template <typename Read>
std::string read_section_changed(const std::string& file, const std::string& footer, ByteReader& in, Read read) {
  const uint64_t offset = in.varint(), length = in.varint();
  const size_t crc_at = footer.size() - in.left();
  in.fixed<uint32_t>();
  return read_changed(file.substr(offset, length), [&](const std::string& changed) -> std::optional<std::string> {
    if (changed.size() != length) return std::nullopt;
    std::string other = file;
    other.replace(offset, length, changed);
    std::string crc;
    put_fixed(crc, crc32c(changed));
    return read(with_footer(other, std::string(footer).replace(crc_at, 4, crc)));
  });
}

std::string only_file(const std::string& folder, const std::string& ending) {
  std::string content;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.path().string().ends_with(ending)) continue;
    EXPECT_TRUE(content.empty()) << entry.path();
    content = read_file(entry.path().string(), 1 << 24).value();
  }
  return content;
}

// Columns of chunks.

std::vector<std::vector<double>> value_columns(size_t count, size_t rows_max) {
  std::mt19937_64 random(19);
  const double kOdd[] = {-0.0, 1e300, 0.1, 1.0 / 3, 9.1e18, -9.1e18, 2251799813685248.0, 0.000000001, 123456.789};
  std::vector<std::vector<double>> columns;
  while (columns.size() < count) {
    const size_t rows = 1 + random() % rows_max;
    const unsigned sort = static_cast<unsigned>(columns.size() % 11);
    const int64_t scale = int64_t{1} << (random() % 61);
    const double power = std::array<double, 5>{1, 10, 1000, 1e6, 1e9}[random() % 5];
    int64_t walk = static_cast<int64_t>(random()) % scale;
    std::vector<double>& column = columns.emplace_back();
    for (size_t i = 0; i < rows; ++i) {
      const int64_t noise = static_cast<int64_t>(random()) % scale;
      walk += sort == 1 ? noise & 0xff : random() % 20 == 0 ? noise / 16 : 3;
      double value = sort == 0   ? static_cast<double>(noise) / power
                     : sort <= 3 ? static_cast<double>(walk) / (sort == 3 ? power : 1)
                     : sort == 4 ? std::bit_cast<double>(random() & 0xbfff'ffff'ffff'ffff)
                     : sort == 5 ? kOdd[random() % std::size(kOdd)]
                     : sort == 6 ? static_cast<double>(noise % 1000) / power
                     : sort == 7 ? static_cast<double>(i / 7)
                     : sort == 8 ? static_cast<double>(i * i)
                     : sort == 9 ? 7
                                 : static_cast<double>(i % 5 == 0 ? noise : 0);
      if (random() % 40 == 0) value = random() % 2 == 0 ? kOdd[random() % std::size(kOdd)] : 5;
      if (columns.size() % 4 == 0 && random() % 30 == 0) value = std::bit_cast<double>(kStaleBits);
      if (columns.size() % 3 == 0 && random() % 5 == 0) value = metrics::absent();
      column.push_back(value);
    }
  }
  return columns;
}

TEST(StableBytes, OfValuesInChunks) {
  for (const metrics::WithSummary with : {metrics::WithSummary::kNo, metrics::WithSummary::kYes}) {
    Fingerprint written;
    for (const std::vector<double>& column : value_columns(1500, metrics::kChunkRowsMax)) {
      std::string bytes;
      metrics::encode_values(column, with, bytes);
      written.add(bytes);
    }
    EXPECT_EQ(written.text(),
              with == metrics::WithSummary::kNo ? "1500 of 476335 bytes, 99562c61" : "1500 of 497603 bytes, afffbad7");
  }
}

TEST(StableBytes, OfTimesInChunks) {
  std::mt19937_64 random(23);
  Fingerprint written;
  for (size_t round = 0; round < 600; ++round) {
    std::vector<int64_t> times;
    int64_t at = round % 7 == 0 ? static_cast<int64_t>(random() >> 1) : 1'785'542'400'000;
    for (size_t i = 1 + random() % metrics::kChunkRowsMax; i > 0; --i) {
      at = static_cast<int64_t>(static_cast<uint64_t>(at) + (round % 3 == 0 ? 10'000 : 9'990 + random() % 20) +
                                (random() % 50 == 0 ? random() % 100'000 : 0));
      times.push_back(at);
    }
    std::string bytes;
    metrics::encode_times(times, bytes);
    written.add(bytes);
  }
  EXPECT_EQ(written.text(), "600 of 43603 bytes, 3b9cde01");
}

std::string bits_of(std::span<const double> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

TEST(DamagedBytes, OfAChunkAreRefusedOrReadAsTheyStand) {
  Fingerprint all;
  for (const std::vector<double>& column : value_columns(150, 20)) {
    std::string bytes;
    metrics::encode_values(column, metrics::WithSummary::kYes, bytes);
    for (const size_t rows : {column.size(), column.size() + 1}) {
      all.add(read_changed(bytes, [&](const std::string& changed) -> std::optional<std::string> {
        double values[metrics::kChunkRowsMax];
        metrics::ChunkSummary summary;
        std::string made;
        const bool has_summary = metrics::read_summary(changed, rows, summary);
        if (has_summary) {
          put_fixed(made, summary.count);
          for (const double number :
               {summary.first, summary.last, summary.min, summary.max, summary.sum, summary.increase})
            put_fixed(made, number);
          put_varint(made, summary.has_increase + 2u * summary.falls + 4u * summary.is_whole);
        }
        put_varint(made, metrics::has_gaps(changed));
        const bool is_read = metrics::decode_values(changed, rows, values);
        if (is_read) made += bits_of({values, rows});
        if (!is_read && !has_summary) return std::nullopt;
        return made;
      }));
    }
  }
  EXPECT_EQ(all.text(), "300 of 11823 bytes, 973866cd");
}

TEST(DamagedBytes, OfTimesAreRefusedOrReadAsTheyStand) {
  Fingerprint all;
  const std::vector<int64_t> kTimes[] = {{1000, 2000, 3000, 4000},
                                         {1, 5, 6, 100, 101},
                                         {0, INT64_MAX, INT64_MIN, 7},
                                         {5},
                                         {10, 20, 30, 40, 51, 61, 1'000'000}};
  for (const std::vector<int64_t>& times : kTimes) {
    std::string bytes;
    metrics::encode_times(times, bytes);
    all.add(read_changed(bytes, [&](const std::string& changed) -> std::optional<std::string> {
      std::vector<int64_t> back(times.size());
      if (!metrics::decode_times(changed, back.size(), back.data())) return std::nullopt;
      return std::string(reinterpret_cast<const char*>(back.data()), back.size() * 8);
    }));
  }
  EXPECT_EQ(all.text(), "5 of 189 bytes, 03a1a07a");
}

// Columns of integers and texts. What zstd makes of bytes is its own affair and may change with it: of what it packed
// only that it did is looked at.

TEST(StableBytes, OfIntegers) {
  std::mt19937_64 random(29);
  Fingerprint written;
  for (size_t round = 0; round < 250; ++round) {
    std::vector<int64_t> column(1 + random() % (round % 10 == 0 ? 5000 : 300));
    const unsigned shift = static_cast<unsigned>(random() % 64);
    int64_t walk = static_cast<int64_t>(random() >> 2);
    for (size_t i = 0; i < column.size(); ++i) {
      const int64_t noise = static_cast<int64_t>(random() >> shift);
      walk += noise & 0xfff;
      column[i] = round % 5 == 0   ? noise
                  : round % 5 == 1 ? walk
                  : round % 5 == 2 ? static_cast<int64_t>(i % 4) * 1'000'003
                  : round % 5 == 3 ? -noise
                                   : static_cast<int64_t>(i) + (noise & 1);
    }
    const std::string bytes = columns::encode_ints(column);
    written.add(bytes[0] <= 2 ? bytes : bytes.substr(0, 1));
  }
  EXPECT_EQ(written.text(), "250 of 286233 bytes, 34fc7215");
}

TEST(DamagedBytes, OfIntegersAndTextsAreRefusedOrReadAsTheyStand) {
  Fingerprint all;
  const std::vector<int64_t> kColumns[] = {
      {7, 7, 7}, {1, 2, 9, 4}, {1'000'000, 1'000'003, 1'000'009, 1'000'010}, {INT64_MIN, INT64_MAX, 0, 5}, {-1, -3}};
  for (const std::vector<int64_t>& column : kColumns) {
    all.add(read_changed(columns::encode_ints(column), [&](const std::string& changed) -> std::optional<std::string> {
      std::vector<int64_t> back;
      if (!columns::decode_ints(changed, column.size(), back)) return std::nullopt;
      return std::string(reinterpret_cast<const char*>(back.data()), back.size() * 8);
    }));
  }
  // As zstd would have it: varints that are too long, too many or too few.
  for (const std::string& plain : {std::string("\x02\x04\x06", 3), std::string("\x80\x01\x04\x06", 4),
                                   std::string(9, '\x80') + "\x01\x04\x06", std::string(10, '\x80') + "\x01\x04\x06"}) {
    std::string bytes(1, '\3');
    put_varint(bytes, 0);
    bytes += plain;
    all.add(read_changed(bytes, [&](const std::string& changed) -> std::optional<std::string> {
      std::vector<int64_t> back;
      if (!columns::decode_ints(changed, 3, back)) return std::nullopt;
      return std::string(reinterpret_cast<const char*>(back.data()), back.size() * 8);
    }));
  }
  columns::TextTable texts;
  for (const char* text : {"a", "host", "node-1", "z"}) texts.intern(text);
  all.add(read_changed(columns::encode_texts(texts), [&](const std::string& changed) -> std::optional<std::string> {
    columns::TextTable back;
    if (!columns::decode_texts(changed, 20, back)) return std::nullopt;
    std::string made;
    for (uint32_t id = 0; id < back.size(); ++id) put_bytes(made, back[id]);
    return made;
  }));
  EXPECT_EQ(all.text(), "10 of 369 bytes, 381a8569");
}

// Metrics: the log, blocks of what was in memory, blocks that were merged and rolled up.

class StableMetrics : public ::testing::Test {
 protected:
  StableMetrics() {
    options_.folder = folder_.path();
    options_.background = false;
    options_.shards = 1;
    options_.merge_ms = 0;
    Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options_, clock_, counters_);
    engine_ = std::move(*engine);
  }
  // Series of several shapes; some come late, some have holes, some begin again.
  void push(int64_t first, int64_t end, int64_t series) {
    for (int64_t i = first; i < end; ++i) {
      metrics::TestPush one;
      const int64_t time_ms = clock_.unix_ms() - 3'600'000 + i * 5'000;
      for (int64_t k = 0; k < series; ++k) {
        if ((i + k) % 13 == 0) continue;
        const std::string name = format(k % 3 == 0   ? "power{gpu=%lld,host=a}"
                                        : k % 3 == 1 ? "temp{gpu=%lld}"
                                                     : "bytes_total{gpu=%lld,host=b,rack=r}",
                                        static_cast<long long>(k));
        const double value =
            k % 3 == 2 ? static_cast<double>(i % 100 * (k + 1)) : static_cast<double>(i * 7 % (k + 5)) / 4;
        one.add(name, k % 5 == 4 && i % 20 == 9 ? time_ms - 12'345 : time_ms, value);
      }
      if (i == 0) one.exemplar({{{"id", "x"}}, 1, time_ms});
      Result<PushOutcome> outcome = one.to(*engine_);
      ASSERT_TRUE(outcome.ok() && outcome->refused.empty());
    }
  }
  // Files by name; a block's footer, and what zstd packs, as they are before.
  std::string content(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/" + folder))
      files[entry.path().filename().string()] = read_file(entry.path().string(), 1 << 24).value();
    std::string text;
    for (const auto& [name, bytes] : files) {
      Fingerprint one;
      if (name.ends_with(".blk")) {
        ByteReader tail(std::string_view(bytes).substr(bytes.size() - 24));
        one.add(std::string_view(bytes).substr(0, tail.fixed<uint64_t>()));
        one.add(footer_of(bytes));
      } else {
        one.add(bytes);
      }
      text += name + ": " + one.text() + "\n";
    }
    return text;
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{metrics::kStartNs};
  Counters counters_{kStoreCounters};
  MetricEngineOptions options_;
  std::unique_ptr<MetricEngine> engine_;
};

TEST_F(StableMetrics, LogAndBlocks) {
  push(0, 300, 40);
  EXPECT_EQ(content("log"), "shard-00-gen-00000001-seg-000001.wal: 1 of 56613 bytes, 9236898d\n");
  ASSERT_TRUE(engine_->seal().ok());
  push(300, 320, 40);
  ASSERT_TRUE(engine_->seal().ok());
  EXPECT_EQ(content("blocks"),
            "block-0000000001-t0-l0.blk: 2 of 14681 bytes, e5c75b1d\n"
            "block-0000000002-t0-l0.blk: 2 of 2128 bytes, 60b9f42d\n");
  EXPECT_EQ(content("log"),
            "sealed-00000003: 1 of 0 bytes, 48674bc7\n"
            "shard-00-gen-00000003.snap: 1 of 532 bytes, 6f24f418\n");
  ASSERT_TRUE(*engine_->merge());
  EXPECT_EQ(content("blocks"),
            "block-0000000003-t1-l1.blk: 2 of 7538 bytes, f77cdc33\n"
            "block-0000000004-t2-l1.blk: 2 of 3613 bytes, c89ad1e2\n"
            "block-0000000005-t0-l1.blk: 2 of 15527 bytes, ab9b9987\n");
  push(320, 700, 40);
  ASSERT_TRUE(engine_->seal().ok());
  while (*engine_->merge()) {
  }
  EXPECT_EQ(content("blocks"),
            "block-0000000003-t1-l1.blk: 2 of 7538 bytes, f77cdc33\n"
            "block-0000000004-t2-l1.blk: 2 of 3613 bytes, c89ad1e2\n"
            "block-0000000005-t0-l1.blk: 2 of 15527 bytes, ab9b9987\n"
            "block-0000000007-t1-l1.blk: 2 of 8214 bytes, 6e8cf065\n"
            "block-0000000008-t2-l1.blk: 2 of 3605 bytes, 4bd84f23\n"
            "block-0000000009-t0-l1.blk: 2 of 17960 bytes, ee42b0e5\n");
}

std::string all_of(const metrics::Block& block) {
  std::string made;
  std::vector<LabelSymbols> labels;
  for (size_t series = 0; series < block.series_count() && series < 100; ++series) {
    put_varint(made, block.labels(series, labels));
    for (const LabelSymbols& label : labels) {
      put_bytes(made, block.text(label.name));
      put_bytes(made, block.text(label.value));
    }
    SampleColumns columns;
    put_varint(made, block.read(series, INT64_MIN, INT64_MAX, columns));
    made.append(reinterpret_cast<const char*>(columns.times_ms.data()), columns.times_ms.size() * 8);
    made += bits_of(columns.values);
    int64_t time_ms = 0;
    double value = 0;
    put_varint(made, block.newest(series, time_ms, value));
    put_fixed(made, time_ms);
    std::vector<metrics::HistogramSample> histograms;
    block.histograms(series, histograms);
    put_varint(made, histograms.size());
  }
  for (const char* pattern : {"power", "t.*|nothing", ".+"}) {
    const LabelMatcher matcher{"__name__", LabelMatcher::Op::kRegex, pattern};
    Result<metrics::SeriesSet> set = block.matching(*metrics::compile_matchers({&matcher, 1}));
    put_varint(made, set.ok());
    if (set.ok()) set->visit([&](uint32_t series) { put_varint(made, series); });
  }
  std::vector<std::pair<uint32_t, PushedExemplar>> exemplars;
  put_varint(made, block.exemplars(exemplars));
  put_varint(made, exemplars.size());
  return made;
}

TEST_F(StableMetrics, ADamagedBlock) {
  push(0, 8, 20);
  ASSERT_TRUE(engine_->seal().ok());
  const std::string file = only_file(folder_.path() + "/blocks", ".blk");
  const std::string footer = footer_of(file);
  auto read = [](const std::string& bytes) -> std::optional<std::string> {
    Result<std::shared_ptr<const metrics::Block>> block = metrics::Block::from_bytes(bytes);
    if (!block.ok()) return std::nullopt;
    Result<void> loaded = (*block)->load();
    if (!loaded.ok()) return loaded.error();
    return format("%llu %u %u %lld %lld ", static_cast<unsigned long long>((*block)->info().number),
                  (*block)->info().level, (*block)->info().tier, static_cast<long long>((*block)->info().first_ms),
                  static_cast<long long>((*block)->info().last_ms)) +
           all_of(**block);
  };
  EXPECT_EQ(read_changed(footer, [&](const std::string& changed) { return read(with_footer(file, changed)); }),
            "174 refused, 274 of 225279 bytes, e6a4e891");
  // Section by section, the footer has its checksum.
  ByteReader in(footer);
  for (int i = 0; i < 3; ++i) in.varint();
  for (int i = 0; i < 2; ++i) in.signed_varint();
  for (int i = 0; i < 2; ++i) in.varint();
  for (size_t left = in.count(); left > 0; --left) in.varint();
  std::string sections;
  for (size_t left = in.count(); left > 0; --left) sections += read_section_changed(file, footer, in, read) + "\n";
  EXPECT_EQ(sections,
            "200 refused, 1200 of 3882886 bytes, 4eea2e1f\n"
            "165 refused, 990 of 2406484 bytes, 9f980922\n"
            "73 refused, 438 of 1186886 bytes, 43d23f42\n"
            "52 refused, 312 of 631504 bytes, 50953d89\n"
            "1 refused, 6 of 19830 bytes, f3be1aba\n"
            "23 refused, 138 of 456090 bytes, 9cf74f55\n");
}

class Heard final : public metrics::WalVisitor {
 public:
  void on_text(std::string_view text) override { put_bytes(said, text); }
  void on_series(uint32_t group, uint32_t first_slot, const metrics::LabelRows& series) override {
    put_varint(said, group);
    put_varint(said, first_slot);
    for (size_t i = 0; i < series.size(); ++i) {
      for (const LabelSymbols& label : series[i]) put_varint(said, label.name * 1000u + label.value);
    }
  }
  void on_run(uint32_t group, int64_t time_ms, uint32_t first_slot, std::span<const double> values) override {
    put_varint(said, group);
    put_fixed(said, time_ms);
    put_varint(said, first_slot);
    said += bits_of(values);
  }
  void on_histogram(uint32_t group, uint32_t slot, int64_t time_ms, NativeHistogram histogram) override {
    put_varint(said, group);
    put_varint(said, slot);
    put_fixed(said, time_ms);
    put_fixed(said, histogram.sum);
    said += bits_of(histogram.positive) + bits_of(histogram.negative) + bits_of(histogram.custom_bounds);
    put_varint(said, histogram.positive_spans.size());
  }
  void on_exemplar(uint32_t group, uint32_t slot, int64_t time_ms, double value, Labels labels) override {
    put_varint(said, group);
    put_varint(said, slot);
    put_fixed(said, time_ms);
    put_fixed(said, value);
    for (const auto& [name, text] : labels) put_bytes(said, name + text);
  }
  void on_metadata(MetricMetadata metadata) override { put_bytes(said, metadata.name + metadata.type); }
  std::string said;
};

TEST(DamagedBytes, OfARecordOfTheMetricsLogAreRefusedOrReadAsTheyStand) {
  const LabelSymbols kSeries[][3] = {{{0, 1}, {2, 3}, {4, 5}}, {{0, 1}, {2, 3}, {4, 6}}, {{0, 7}, {2, 3}, {4, 6}}};
  metrics::WalRecordWriter writer;
  writer.add_series(
      3, 0, 3, [&](size_t i) { return std::span<const LabelSymbols>(kSeries[i]); },
      [](uint32_t symbol) { return std::string_view("abcdefgh").substr(symbol, 1); });
  const double row[] = {640.5, 60, 60}, next[] = {641, 60, 61};
  writer.add_run(3, 1000, 0, row, nullptr);
  writer.add_run(3, 2000, 0, next, row);
  NativeHistogram histogram;
  histogram.positive = {1, 2, 2};
  histogram.negative = {4};
  histogram.positive_spans = {{0, 2}, {3, 1}};
  histogram.negative_spans = {{1, 1}};
  histogram.sum = 17;
  writer.add_histogram(3, 1, 2000, histogram);
  writer.add_exemplar(3, 2, 2001, 0.5, {{"id", "x"}, {"k", "v"}});
  writer.add_metadata({"power", "gauge", "watts", "W"});
  const std::string bytes(writer.bytes());
  EXPECT_EQ(read_changed(bytes,
                         [](const std::string& changed) -> std::optional<std::string> {
                           metrics::WalRecordReader reader;
                           Heard heard;
                           if (!reader.read(changed, heard)) return std::nullopt;
                           return heard.said;
                         }),
            "549 refused, 655 of 121078 bytes, 2f040ca3");
}

TEST(DamagedBytes, OfASegmentOfTheMetricsLogEndItOrAreDamage) {
  testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/one.wal";
  ASSERT_TRUE(metrics::write_wal_file(path, {"first", "second record", "3"}).ok());
  const std::string bytes = read_file(path, 1 << 20).value();
  auto read = [&](const std::string& changed) -> std::optional<std::string> {
    std::string said;
    const metrics::WalReadOutcome outcome = metrics::read_wal_bytes(changed, [&](std::string_view record) {
      put_bytes(said, record);
      return record != "second recore";
    });
    return format("%llu %llu %d %s ", static_cast<unsigned long long>(outcome.records),
                  static_cast<unsigned long long>(outcome.bytes_good), outcome.torn, outcome.damage.c_str()) +
           said;
  };
  EXPECT_EQ(read_changed(bytes, read), "0 refused, 413 of 13979 bytes, 1efd7cdb");
  // Zeros at the end are what a crash leaves; zeros with something behind them are not.
  EXPECT_EQ(read(bytes + std::string(20, '\0')).value().substr(0, 5), "3 59 ");
  EXPECT_NE(read(bytes + std::string(20, '\0')).value().find(" 1 "), std::string::npos);
  EXPECT_NE(read(bytes + std::string(20, '\0') + "x").value().find(" 0 nothing was written at byte 59 "),
            std::string::npos);
  EXPECT_EQ(read(std::string(16, '\0')).value(), "0 0 1  ");
  EXPECT_EQ(read(bytes.substr(0, 16)).value(), "0 16 0  ");
  EXPECT_EQ(read(bytes.substr(0, 15)).value(), "0 0 1  ");
}

// Steps.

std::string step_file() {
  steps::StepWriter writer = steps::StepFile::start();
  for (const char* job : {"i", "j"}) {
    writer.begin_job({.job_id = job, .attempt = 1, .world_size = 3, .first_seen_unix_ns = 10, .last_seen_unix_ns = 20});
    for (int number : {0, 1, 2, 5}) {
      for (Rank rank : all_ranks(2)) {
        steps::RankSeen seen;
        seen.identity.job_id = job;
        seen.identity.attempt = 1;
        seen.identity.rank = decltype(seen.identity.rank)(rank);
        seen.identity.host = "h";
        seen.last_seen_unix_ns = 15 + rank.value();
        seen.ended = rank == 1_rank;
        StepSummary summary;
        summary.step = decltype(summary.step)(number);
        summary.start_unix_ns = 1000 + number * 100 + rank.value() * 7;
        summary.duration_ns = 90 + number * rank.value();
        summary.self_ns = 40 + rank.value();
        summary.records_lost = rank.value();
        summary.quiet_from_unix_ns = number == 1 ? summary.start_unix_ns : 0;
        summary.split_known = rank == 0_rank;
        summary.scalars = {{"loss", 0.5 * number}};
        summary.comms.resize(index_of(rank) + 1);
        for (CommStep& comm : summary.comms) comm.gpu_ns = number * 31 % 17;
        summary.flows.resize(number == 2 ? 2 : 0);
        EXPECT_TRUE(writer.add(seen, summary));
      }
    }
    if (job[0] == 'i') writer.write_group();
  }
  testing::TemporaryFolder folder;
  steps::StepFileInfo info;
  info.number = 3;
  info.order = 2;
  info.first_sequence = 7;
  info.last_sequence = 9;
  info.through_sequence = 9;
  info.through_unix_ns = 50;
  info.received_unix_ns.add(40);
  info.received_unix_ns.add(45);
  info.replaces = {1, 2};
  EXPECT_TRUE(steps::StepFile::write(folder.path(), info, writer.finish()).ok());
  return only_file(folder.path(), ".blk");
}

std::optional<std::string> read_step_file(const std::string& bytes) {
  Result<std::shared_ptr<const steps::StepFile>> file = steps::StepFile::from_bytes(bytes);
  if (!file.ok()) return std::nullopt;
  const steps::StepFileInfo& info = (*file)->info();
  std::string made;
  for (const uint64_t number :
       {info.number, info.order, info.first_sequence, info.last_sequence, info.through_sequence})
    put_varint(made, number);
  for (const int64_t time : {info.through_unix_ns, info.received_unix_ns.least, info.received_unix_ns.most})
    put_fixed(made, time);
  for (const uint64_t number : info.replaces) put_varint(made, number);
  for (const steps::JobInFile& job : (*file)->jobs()) {
    put_bytes(made, job.job_id);
    put_fixed(made, job.attempt);
    put_fixed(made, job.last_step);
    put_fixed(made, job.records_lost);
    put_varint(made, job.ranks);
  }
  Result<std::shared_ptr<const steps::StepTables>> tables = (*file)->read_tables();
  if (!tables.ok()) return made + tables.error();
  for (size_t group = 0; group < (*file)->groups(); ++group) {
    Result<std::shared_ptr<const steps::StepColumns>> columns = (*file)->read_group(group, *tables);
    if (!columns.ok()) {
      made += columns.error();
      continue;
    }
    StepSummary row;
    for (size_t i = 0; i < (*columns)->rows(); ++i) {
      (*columns)->get(i, row);
      put_bytes(made, (*columns)->identity(i).host);
      put_fixed(made, (*columns)->identity(i).rank);
      put_varint(made, (*columns)->seen(i).ended + 2u * (*columns)->seen(i).ended_cleanly + 4u * row.inferred +
                           8u * row.split_known);
      put_fixed(made, row.step);
      for (const int64_t number : {row.start_unix_ns, row.duration_ns, row.self_ns, row.comm_ns, row.quiet_from_unix_ns,
                                   row.records_lost, row.split_ns.back(), (*columns)->seen(i).records_lost})
        put_fixed(made, number);
      for (const CommStep& comm : row.comms) put_fixed(made, comm.gpu_ns + comm.longest_ns + 3 * comm.last_end_unix_ns);
      for (const FlowStep& flow : row.flows) put_fixed(made, flow.bytes);
      for (const StepScalar& scalar : row.scalars) {
        put_bytes(made, scalar.name);
        put_fixed(made, scalar.value);
      }
    }
  }
  return made;
}

TEST(DamagedBytes, OfAFileOfStepsAreRefusedOrReadAsTheyStand) {
  const std::string file = step_file();
  ASSERT_TRUE(read_step_file(file).has_value());
  const std::string footer = footer_of(file);
  EXPECT_EQ(
      read_changed(footer, [&](const std::string& changed) { return read_step_file(with_footer(file, changed)); }),
      "255 refused, 242 of 302715 bytes, be9cf371");
  // Tables and row groups, with the checksum that the footer has of them.
  std::string sections;
  ByteReader in(footer);
  auto damage_one = [&] { sections += read_section_changed(file, footer, in, read_step_file) + "\n"; };
  for (int i = 0; i < 5; ++i) in.varint();
  for (int i = 0; i < 3; ++i) in.signed_varint();
  for (size_t left = in.count(); left > 0; --left) in.varint();
  damage_one();
  for (size_t left = in.count(); left > 0; --left) {
    in.bytes();
    for (int i = 0; i < 5; ++i) in.signed_varint();
    in.varint();
    in.signed_varint();
  }
  for (size_t left = in.count(); left > 0; --left) {
    in.varint();
    damage_one();
    for (size_t parts = in.count(); parts > 0; --parts) {
      in.varint();
      in.varint();
      for (size_t runs = in.count(); runs > 0; --runs) {
        in.signed_varint();
        in.signed_varint();
      }
    }
  }
  EXPECT_TRUE(in.ok() && in.at_end());
  EXPECT_EQ(sections,
            "97 refused, 582 of 321317 bytes, 750ff766\n"
            "280 refused, 1680 of 2421420 bytes, 17d94c9c\n"
            "280 refused, 1680 of 2420613 bytes, e64089aa\n");
}

// Spans.

spans::SpanColumns some_spans() {
  spans::SpanColumnsBuilder builder;
  Identity identity;
  identity.job_id = "j";
  identity.rank = decltype(identity.rank)(1);
  identity.world_size = 2;
  identity.host = "h";
  StepDetail detail;
  detail.step = decltype(detail.step)(3);
  detail.start_unix_ns = 1000;
  detail.duration_ns = 900;
  detail.phases = {{Phase::kForward, "", 1000, 5}};
  for (int i = 0; i < 5; ++i) {
    OpSpan op;
    op.function = "AllReduce";
    op.start_unix_ns = 1000 + i * i;
    op.duration_ns = i * 7 % 31;
    op.timed = i % 3 != 0;
    detail.ops.push_back(op);
  }
  builder.begin_source(to_resource(identity), "", "");
  for (const Span& span : to_spans(identity, detail, SampledFor::kAsked)) builder.add(span);
  Span span;
  span.trace_id = {1};
  span.span_id = {2};
  span.parent_span_id = {3};
  span.name = "get";
  span.status_code = 2;
  span.start_unix_ns = 500;
  span.end_unix_ns = 800;
  span.attributes = {{"a", 1}, {"b", ValueList{1, "x"}}, {"c", 0.5}, {"d", true}, {"e", Value()}};
  builder.begin_source({{"service.name", "shop"}}, "scope", "1");
  builder.add(span);
  return builder.take();
}

std::string all_of(const spans::SpanColumns& columns) {
  std::string made;
  for (const spans::SpanRow& row : columns.rows) {
    const Span span = columns.to_span(row);
    for (const std::string& text : {span.name, span.trace_state, span.status_message, columns.sources[row.source]->key})
      put_bytes(made, text);
    put_fixed(made, span.trace_id);
    put_fixed(made, span.span_id);
    put_fixed(made, span.parent_span_id);
    for (const int64_t number : {int64_t{span.kind}, int64_t{span.status_code}, span.start_unix_ns, span.end_unix_ns,
                                 static_cast<int64_t>(row.arrival)})
      put_fixed(made, number);
    for (const Attribute& attribute : span.attributes)
      put_bytes(made, attribute.key + "=" + plain_text(attribute.value));
  }
  return made;
}

TEST(DamagedBytes, OfARowGroupOfSpansAreRefusedOrReadAsTheyStand) {
  struct Other final : columns::SectionSource {
    std::string content;
    uint32_t section = 0;
    std::string changed;
    Result<std::string> read(const columns::SectionPlace& place) const override {
      return place.section == section ? changed : content.substr(place.offset, place.bytes);
    }
  };
  Other source;
  const spans::RowGroupMeta meta = spans::write_row_group(some_spans(), source.content);
  Fingerprint all;
  size_t read_count = 0;
  for (size_t i = 0; i < meta.sections.size(); ++i) {
    const columns::SectionPlace& place = meta.sections[i];
    std::string bytes = source.content.substr(place.offset, place.bytes);
    // What is packed is changed before it is packed again.
    const bool is_packed = place.section == 2 || place.section == 3 || place.section == 4 || place.section == 6 ||
                           place.section == 24 || place.section == 26;
    if (place.section == 1 || (!is_packed && place.section != 5 && !bytes.empty() && bytes[0] > 2)) continue;
    std::string plain;
    ASSERT_TRUE(!is_packed || columns::unpack_bytes(bytes, 1 << 20, plain));
    all.add(read_changed(is_packed ? plain : bytes, [&](const std::string& changed) -> std::optional<std::string> {
      spans::RowGroupMeta other = meta;
      source.section = place.section;
      source.changed = is_packed ? columns::pack_bytes(changed) : changed;
      other.sections[i].crc = crc32c(source.changed);
      std::string made;
      if (Result<spans::SpanColumns> columns = spans::read_row_group(source, other); columns.ok()) {
        made += all_of(*columns);
        ++read_count;
      } else {
        made += columns.error();
      }
      if (Result<std::vector<spans::StepInGroup>> steps = spans::read_steps(source, other); steps.ok()) {
        for (const spans::StepInGroup& step : *steps)
          made += format("%s %u %u", step.job_id.c_str(), step.ranks, step.spans);
      }
      Result<std::vector<TraceId>> traces = spans::read_traces(source, other);
      if (!traces.ok()) return made + "no traces";
      if (auto summaries = spans::read_trace_summaries(source, other, traces->size()); summaries.ok()) {
        for (const spans::TraceInGroup& trace : *summaries)
          made += format("%u %u %lld %lld", trace.spans, trace.root_row, static_cast<long long>(trace.start_unix_ns),
                         static_cast<long long>(trace.end_unix_ns));
      }
      return made;
    }));
  }
  EXPECT_EQ(format("%zu read, %s", read_count, all.text().c_str()), "2010 read, 40 of 1520 bytes, d70222fd");
}

TEST(DamagedBytes, OfWhatIsKnownOfARowGroupOfSpansAreRefusedOrReadAsTheyStand) {
  std::string content, bytes;
  spans::RowGroupMeta meta = spans::write_row_group(some_spans(), content);
  meta.sections.resize(2);  // how large they are is zstd's affair
  for (columns::SectionPlace& place : meta.sections) place = {place.section, 100, 10, 7};
  spans::encode_meta(bytes, meta);
  EXPECT_EQ(read_changed(bytes,
                         [](const std::string& changed) -> std::optional<std::string> {
                           ByteReader in(changed);
                           spans::RowGroupMeta read;
                           if (!spans::decode_meta(in, read)) return std::nullopt;
                           std::string again;
                           spans::encode_meta(again, read);
                           return again;
                         }),
            "805 refused, 2695 of 1347238 bytes, 38dc9a96");
}

}  // namespace
}  // namespace lockstep
