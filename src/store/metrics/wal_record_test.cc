#include "store/metrics/wal_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/text.h"
#include "store/metrics/postings.h"
#include "testing/hex.h"

namespace lockstep::metrics {
namespace {

class Heard final : public WalVisitor {
 public:
  void on_text(std::string_view text) override { texts.emplace_back(text); }
  void on_series(uint32_t group, uint32_t first_slot, const LabelRows& rows) override {
    for (uint32_t i = 0; i < rows.size(); ++i) {
      Labels& labels = series[{group, first_slot + i}];
      labels.clear();
      for (const LabelSymbols& label : rows[i]) labels.emplace_back(texts.at(label.name), texts.at(label.value));
    }
  }
  void on_run(uint32_t group, int64_t time_ms, uint32_t first_slot, std::span<const double> values) override {
    for (size_t i = 0; i < values.size(); ++i) samples[{group, first_slot + i}][time_ms] = values[i];
  }
  void on_histogram(uint32_t, uint32_t, int64_t, NativeHistogram) override {}
  void on_exemplar(uint32_t, uint32_t, int64_t, double, Labels) override {}
  void on_metadata(MetricMetadata) override {}
  std::vector<std::string> texts;
  std::map<std::pair<uint32_t, uint32_t>, Labels> series;
  std::map<std::pair<uint32_t, uint32_t>, std::map<int64_t, double>> samples;
};

const LabelSymbols kFirst[] = {{0, 1}, {2, 3}};
const LabelSymbols kSecond[] = {{0, 4}, {2, 3}};
const char* const kTexts[] = {"__name__", "power", "host", "a", "temp"};

void add_two(WalRecordWriter& writer) {
  writer.add_series(
      0, 0, 2, [](size_t i) { return std::span<const LabelSymbols>(i == 0 ? kFirst : kSecond); },
      [](uint32_t symbol) { return std::string_view(kTexts[symbol]); });
}

TEST(WalRecord, WritesTheBytesOfTheFormatPage) {
  WalRecordWriter writer;
  add_two(writer);
  const double row[] = {640.5, 60}, next[] = {641, 60};
  writer.add_run(0, 1000, 0, row, nullptr);
  EXPECT_EQ(testing::spaced_hex(writer.bytes()),
            "01 08 5f 5f 6e 61 6d 65 5f 5f 01 05 70 6f 77 65 72 01 04 68 6f 73 74 01 01 61 01 04 74 65 6d 70 "
            "02 00 00 02 04 00 01 02 03 03 04 03 00 d0 0f 00 02 00 35 04 84 40 26 4e 40");
  WalRecordReader reader;
  Heard heard;
  ASSERT_TRUE(reader.read(writer.bytes(), heard));
  writer.clear();
  writer.add_run(0, 11000, 0, next, row);
  EXPECT_EQ(testing::spaced_hex(writer.bytes()), "03 00 f0 ab 01 00 02 01 15 0c 00");
  ASSERT_TRUE(reader.read(writer.bytes(), heard));
  EXPECT_EQ(heard.series.at({0, 1}), (Labels{{"__name__", "temp"}, {"host", "a"}}));
  EXPECT_EQ(heard.samples.at({0, 0}), (std::map<int64_t, double>{{1000, 640.5}, {11000, 641}}));
  EXPECT_EQ(heard.samples.at({0, 1}), (std::map<int64_t, double>{{1000, 60}, {11000, 60}}));
}

TEST(WalRecord, RowsOfAnyDoublesComeBack) {
  std::vector<double> before, row;
  for (int i = 0; i < 400; ++i) {
    before.push_back(i % 3 == 0 ? 0 : std::sin(i));
    row.push_back(i % 5 == 0 ? before.back() : i % 7 == 0 ? -INFINITY : std::cos(i) * std::pow(10, i % 300));
  }
  for (const double* base : {static_cast<const double*>(nullptr), static_cast<const double*>(before.data())}) {
    std::string bytes;
    pack_row(row, base, bytes);
    columns::ByteReader in(bytes);
    std::vector<double> back(row.size());
    ASSERT_TRUE(unpack_row(in, row.size(), base, back.data()));
    EXPECT_EQ(back, row);
    EXPECT_TRUE(in.at_end());
  }
}

TEST(WalRecord, WhatIsNoRecordIsFalse) {
  WalRecordReader reader;
  Heard heard;
  EXPECT_FALSE(reader.read("\x09", heard));
  EXPECT_FALSE(reader.read(std::string_view("\x02\x00\x00\x01\x02\x07\x07", 7), heard));  // texts nobody told
  EXPECT_FALSE(reader.read(std::string_view("\x03\x00\x00\x00\x02\x00\x35", 7), heard));
}

TEST(Postings, EveryNinetyEighthIsOneRunAndAnythingComesBack) {
  Postings every;
  for (uint32_t i = 0; i < 8; ++i) every.add(2 + 98 * i);
  std::string bytes;
  every.encode(bytes);
  EXPECT_EQ(testing::spaced_hex(bytes), "01 02 08 62");
  Postings odd;
  std::vector<uint32_t> ids;
  uint32_t id = 0;
  for (uint32_t i = 0; i < 500; ++i) ids.push_back(id += 1 + (i * i) % (i % 50 < 25 ? 2 : 90));
  for (uint32_t one : ids) odd.add(one);
  bytes.clear();
  odd.encode(bytes);
  SeriesSet direct(id + 1), read(id + 1);
  odd.add_to(direct);
  columns::ByteReader in(bytes);
  ASSERT_TRUE(Postings::decode(in, read));
  EXPECT_EQ(direct.count(), ids.size());
  for (uint32_t one : ids) EXPECT_TRUE(direct.has(one) && read.has(one));
  SeriesSet small(id);
  columns::ByteReader again(bytes);
  EXPECT_FALSE(Postings::decode(again, small));
}

}  // namespace
}  // namespace lockstep::metrics
