// Spans at the borders of questions and limits, in memory, in the head and in files.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "store/columns/int_codec.h"
#include "store/memory_span_store.h"
#include "store/spans/columnar_span_store.h"
#include "store/spans/row_group.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::spans {
namespace {

constexpr int64_t kTime = 1'700'000'000'000'000'000;
constexpr const char* kTable = "table=\"spans\"";

Span span_of(uint8_t number, int64_t start_ns, int64_t duration_ns) {
  Span span;
  span.trace_id = {7, number};
  span.span_id = {9, number};
  span.name = "get";
  span.start_unix_ns = kTime + start_ns;
  span.end_unix_ns = span.start_unix_ns + duration_ns;
  return span;
}

ResourceGroup group_of(std::vector<Span> spans, const char* service = "shop") {
  ResourceGroup group;
  group.resource = {{"service.name", service}};
  group.spans = std::move(spans);
  return group;
}

std::string numbers_of(const Page<TraceSummary>& page) {
  std::string text;
  for (const TraceSummary& trace : page.items) text += format("%d ", trace.trace_id[1]);
  return text;
}

class SpanBorders : public ::testing::Test {
 protected:
  SpanBorders() {
    options_.folder = folder_.path();
    options_.background = false;
  }
  void open() {
    store_.reset();
    Result<std::unique_ptr<ColumnarSpanStore>> opened = ColumnarSpanStore::open(options_, clock_, counters_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    store_ = std::move(*opened);
  }
  void append(uint8_t number, uint64_t sequence = 0) {
    SpanColumnsBuilder builder;
    builder.begin_source({{"service.name", "shop"}}, "", "");
    builder.add(span_of(number, number, 5));
    store_->append(builder.take(), clock_.unix_ns(), sequence);
  }
  int64_t count(const char* name, const char* labels = "") const { return counters_.value(name, labels); }

  testing::TemporaryFolder folder_;
  ColumnarSpanStoreOptions options_;
  testing::FakeClock clock_{kTime};
  Counters counters_{kStoreCounters};
  std::unique_ptr<ColumnarSpanStore> store_;
};

TEST_F(SpanBorders, ASearchTakesStartsAndDurationsAtBothOfItsLimits) {
  open();
  Counters other{kStoreCounters};
  MemorySpanStore plain({}, other);
  const ResourceGroup group = group_of({span_of(1, 100, 10), span_of(2, 200, 20), span_of(3, 300, 30)});
  plain.append(group, kTime);
  store_->append(group, kTime);
  struct Case {
    int64_t from, to, least, most;
    const char* found;
  };
  for (const bool sealed : {false, true}) {
    if (sealed) {
      ASSERT_TRUE(store_->seal().ok());
    }
    for (const Case& one :
         {Case{0, 0, 0, 0, "3 2 1 "}, Case{100, 300, 0, 0, "3 2 1 "}, Case{101, 299, 0, 0, "2 "},
          Case{200, 200, 0, 0, "2 "}, Case{201, 299, 0, 0, ""}, Case{301, 400, 0, 0, ""}, Case{1, 99, 0, 0, ""},
          Case{0, 0, 10, 30, "3 2 1 "}, Case{0, 0, 11, 29, "2 "}, Case{0, 0, 20, 20, "2 "}, Case{0, 0, 31, 0, ""},
          Case{0, 0, 0, 9, ""}, Case{200, 0, 30, 0, "3 "}, Case{300, 300, 30, 30, "3 "}}) {
      TraceQuery query;
      if (one.from != 0) query.start_from_unix_ns = kTime + one.from;
      if (one.to != 0) query.start_to_unix_ns = kTime + one.to;
      query.duration_least_ns = one.least;
      query.duration_most_ns = one.most;
      const std::string what =
          format("%d: %lld to %lld, %lld to %lld", sealed, static_cast<long long>(one.from),
                 static_cast<long long>(one.to), static_cast<long long>(one.least), static_cast<long long>(one.most));
      EXPECT_EQ(numbers_of(store_->search(query)), one.found) << what;
      EXPECT_EQ(numbers_of(plain.search(query)), one.found) << what;
      query.limit = 1;
      EXPECT_EQ(numbers_of(store_->search(query)), std::string(one.found).substr(0, 2)) << what;
      EXPECT_EQ(store_->search(query).total, std::strlen(one.found) / 2) << what;
    }
  }
}

TEST_F(SpanBorders, MemoryHoldsAsManySpansAndBytesAsItMay) {
  Counters other{kStoreCounters};
  MemorySpanStore rows({.spans_max = 3}, other);
  for (uint8_t i = 1; i <= 4; ++i) {
    rows.append(group_of({span_of(i, i, 5)}), kTime);
    EXPECT_EQ(other.value("lockstep_store_rows", kTable), std::min<int64_t>(i, 3));
  }
  EXPECT_EQ(numbers_of(rows.search({})), "4 3 2 ");
  EXPECT_EQ(other.value("lockstep_store_rows_dropped_total", "table=\"spans\",reason=\"limit\""), 1);
  const int64_t three = other.value("lockstep_store_bytes", kTable);
  MemorySpanStore bytes({.bytes_max = static_cast<size_t>(three)}, other);
  for (uint8_t i = 1; i <= 3; ++i) bytes.append(group_of({span_of(i, i, 5)}), kTime);
  EXPECT_EQ(other.value("lockstep_store_bytes", kTable), three);
  EXPECT_EQ(numbers_of(bytes.search({})), "3 2 1 ");
  bytes.append(group_of({span_of(4, 4, 5)}), kTime);
  EXPECT_EQ(numbers_of(bytes.search({})), "4 3 2 ");
  bytes.append(group_of({span_of(1, 1, 5)}), kTime);
  EXPECT_EQ(numbers_of(bytes.search({})), "4 3 1 ") << "one that went may come again";
}

TEST_F(SpanBorders, WhatIsInNoFileIsBoundedAndTheOldestGoes) {
  options_.unsealed_bytes_max = 0;
  open();
  append(1);
  EXPECT_EQ(count("lockstep_store_rows", kTable), 1) << "the last one stays whatever it takes";
  append(2);
  EXPECT_EQ(count("lockstep_store_rows", kTable), 1);
  EXPECT_EQ(numbers_of(store_->search({})), "2 ");
  EXPECT_EQ(count("lockstep_store_rows_dropped_total", "table=\"spans\",reason=\"unsealed\""), 1);
}

TEST_F(SpanBorders, EightSmallFilesInARowBecomeOneAndItsNameSaysWhatIsInIt) {
  open();
  for (uint8_t i = 1; i <= 7; ++i) {
    append(i, 10u + i);
    ASSERT_TRUE(store_->seal().ok());
  }
  store_->maintain();
  EXPECT_EQ(count("lockstep_span_files"), 7);
  EXPECT_EQ(store_->first_unsealed(), UINT64_MAX);
  append(8, 18);
  append(9, 19);
  EXPECT_EQ(store_->first_unsealed(), 18u);
  ASSERT_TRUE(store_->seal().ok());
  store_->maintain();
  EXPECT_EQ(count("lockstep_span_files"), 1);
  std::string name;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) name = entry.path().filename().string();
  EXPECT_EQ(name, "spans-9-11-19.blk");
  EXPECT_EQ(count("lockstep_span_file_bytes"),
            static_cast<int64_t>(std::filesystem::file_size(folder_.path() + "/" + name)));
  EXPECT_EQ(count("lockstep_store_rows", kTable), 9);
  EXPECT_TRUE(store_->holds(11, kTime));
  EXPECT_TRUE(store_->holds(19, kTime));
  EXPECT_TRUE(store_->holds(10, kTime)) << "before the first: dropped since";
  EXPECT_FALSE(store_->holds(20, kTime));
  EXPECT_FALSE(store_->holds(19, kTime + 1));
}

TEST_F(SpanBorders, AFileGoesTheMomentAfterItIsAsOldOrLargeAsItMayBe) {
  options_.days = 1;
  open();
  append(1);
  ASSERT_TRUE(store_->seal().ok());
  clock_.advance(12ll * 3600 * 1'000'000'000);
  append(2);
  ASSERT_TRUE(store_->seal().ok());
  clock_.advance(12ll * 3600 * 1'000'000'000);
  store_->maintain();
  EXPECT_EQ(count("lockstep_span_files"), 2) << "a day to the nanosecond";
  clock_.advance(1);
  store_->maintain();
  EXPECT_EQ(count("lockstep_span_files"), 1);
  EXPECT_EQ(count("lockstep_store_rows_dropped_total", "table=\"spans\",reason=\"retention\""), 1);
  append(3);
  ASSERT_TRUE(store_->seal().ok());
  options_.bytes_max = static_cast<uint64_t>(count("lockstep_span_file_bytes"));
  open();
  store_->maintain();
  EXPECT_EQ(count("lockstep_span_files"), 2);
  --options_.bytes_max;
  open();
  store_->maintain();
  EXPECT_EQ(count("lockstep_span_files"), 1);
  EXPECT_EQ(numbers_of(store_->search({})), "3 ");
}

TEST_F(SpanBorders, SmallAppendsAreJoinedOnceThereAreThirtyTwoAndKeepTheirOrder) {
  open();
  for (uint8_t i = 1; i <= 70; ++i) append(i, i);
  EXPECT_EQ(store_->first_unsealed(), 1u);
  const Page<StoredSpan> newest = store_->newest("shop", 5);
  EXPECT_EQ(newest.total, 70u);
  std::string order;
  for (const StoredSpan& one : newest.items) order += format("%d ", one.span.trace_id[1]);
  EXPECT_EQ(order, "70 69 68 67 66 ");
  EXPECT_EQ(store_->newest("other", 5).total, 0u);
  EXPECT_EQ(store_->newest("", 0).total, 70u);
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(store_->newest("shop", 70).items.back().span.trace_id[1], 1);
}

TEST(SpanColumnsBuilder, KnowsTheLatestStartOrEnd) {
  SpanColumnsBuilder builder;
  builder.begin_source({}, "", "");
  EXPECT_EQ(builder.latest_unix_ns(), 0u);
  builder.add(span_of(1, 100, 50));
  EXPECT_EQ(builder.latest_unix_ns(), static_cast<uint64_t>(kTime + 150));
  builder.add(span_of(2, 120, 10));
  EXPECT_EQ(builder.latest_unix_ns(), static_cast<uint64_t>(kTime + 150));
  builder.add(span_of(3, 200, -90));
  EXPECT_EQ(builder.latest_unix_ns(), static_cast<uint64_t>(kTime + 200)) << "one that ends before it starts";
}

SpanColumns with_names(size_t names, size_t keys, size_t services = 1) {
  SpanColumnsBuilder builder;
  for (size_t service = 0; service < services; ++service) {
    builder.begin_source({{"service.name", format("s%zu", service)}}, "", "");
    for (size_t i = 0; i < (service == 0 ? names : 1); ++i) {
      Span span = span_of(1, static_cast<int64_t>(i), 5);
      span.name = format("n%zu", i);
      if (i == 0 && service == 0) {
        for (size_t key = 0; key < keys; ++key)
          span.attributes.push_back({format("k%zu", key), static_cast<int64_t>(key)});
      }
      builder.add(span);
    }
  }
  return builder.take();
}

TEST(RowGroup, ListsAsManyNamesKeysAndServicesAsItMay) {
  EXPECT_TRUE(describe(with_names(kCatalogueMax, 1)).is_listed);
  EXPECT_FALSE(describe(with_names(kCatalogueMax + 1, 1)).is_listed);
  EXPECT_TRUE(describe(with_names(1, kCatalogueMax - 1)).is_listed) << "and the one of the resource";
  EXPECT_FALSE(describe(with_names(1, kCatalogueMax)).is_listed);
  EXPECT_TRUE(describe(with_names(1, 1, kCatalogueMax)).is_listed);
  EXPECT_FALSE(describe(with_names(1, 1, kCatalogueMax + 1)).is_listed);
  const RowGroupMeta meta = describe(with_names(3, 2, 2));
  EXPECT_EQ(meta.rows, 4u);
  EXPECT_EQ(meta.services.at("s0"), 3u);
  EXPECT_EQ(meta.services.at("s1"), 1u);
  EXPECT_EQ(meta.names.size(), 4u);
  EXPECT_EQ(meta.span_keys, (std::vector<std::string>{"k0", "k1"}));
  EXPECT_EQ(meta.starts.least, kTime);
  EXPECT_EQ(meta.starts.most, kTime + 2);
  EXPECT_EQ(meta.durations.least, 5);
  EXPECT_FALSE(meta.has_errors);
}

// Cells of the keys beyond those that have a column of their own lie together, and come back.
TEST(RowGroup, KeysBeyondThoseWithAColumnComeBack) {
  SpanColumnsBuilder builder;
  builder.begin_source({{"service.name", "s"}}, "", "");
  for (uint8_t i = 0; i < 4; ++i) {
    Span span = span_of(i, i, 5);
    for (size_t key = 0; key < 203; ++key) {
      if (i == 0 || key < 100) {
        span.attributes.push_back({format("k%03zu", key), key % 2 == 0 ? Value(static_cast<int64_t>(key * 3 + i))
                                                                       : Value(format("t%zu", key))});
      }
    }
    span.attributes.push_back({"empty", Value()});
    builder.add(span);
  }
  const SpanColumns columns = builder.take();
  std::string file;
  const RowGroupMeta meta = write_row_group(columns, file);
  size_t cell_columns = 0;
  for (const SectionPlace& place : meta.sections) cell_columns += place.section >= 1000 ? 1 : 0;
  EXPECT_EQ(cell_columns, 200u);
  const auto source = columns::bytes_source(file);
  const Result<SpanColumns> read = read_row_group(*source, meta);
  ASSERT_TRUE(read.ok()) << read.error();
  ASSERT_EQ(read->rows.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(read->to_span(read->rows[i]), columns.to_span(columns.rows[i])) << i;
  const Result<SpanColumns> some =
      read_row_group(*source, meta, {.ids = false, .attributes = true, .all_fields = false, .keys = {"k000"}});
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(plain_text(some->to_span(some->rows[1]).attributes[0].value), "1");
  EXPECT_EQ(plain_text(some->to_span(some->rows[1]).attributes[2].value), "0") << "not asked for";
}

TEST(RowGroup, IdsOfStepsAreKeptAsPlacesAndOthersAsTheyAre) {
  Identity identity;
  identity.job_id = "j";
  identity.rank = decltype(identity.rank)(1);
  identity.world_size = 2;
  identity.host = "h";
  StepDetail detail;
  detail.step = decltype(detail.step)(3);
  detail.start_unix_ns = 1000;
  detail.duration_ns = 900;
  detail.phases = {{Phase::kForward, "", 1000, 5}, {Phase::kBackward, "", 1005, 5}};
  for (int i = 0; i < 6; ++i) {
    OpSpan op;
    op.function = "AllReduce";
    op.start_unix_ns = 1000 + i;
    op.duration_ns = 1;
    detail.ops.push_back(op);
  }
  auto columns_of = [&](const std::vector<Span>& spans) {
    SpanColumnsBuilder builder;
    builder.begin_source(to_resource(identity), "", "");
    for (const Span& span : spans) builder.add(span);
    return builder.take();
  };
  auto numbers = [](const SpanColumns& columns, Section section) {
    std::string file, text;
    const RowGroupMeta meta = write_row_group(columns, file);
    for (const SectionPlace& place : meta.sections) {
      if (place.section != static_cast<uint32_t>(section)) continue;
      std::vector<int64_t> values;
      EXPECT_TRUE(columns::decode_ints(file.substr(place.offset, place.bytes), meta.rows, values));
      for (const int64_t value : values) text += std::to_string(value) + " ";
    }
    return text;
  };
  std::vector<Span> spans = to_spans(identity, detail, SampledFor::kAsked);
  EXPECT_EQ(numbers(columns_of(spans), Section::kSpanIdPlace), "0 0 1 0 1 2 3 4 5 ");
  const std::vector<Span> second_piece(spans.begin() + 5, spans.end());
  EXPECT_EQ(numbers(columns_of(second_piece), Section::kSpanIdPlace), "2 3 4 5 ");
  spans[4].span_id = {1, 2, 3};         // not derived
  spans[5].parent_span_id = {4, 5, 6};  // of another
  const SpanColumns columns = columns_of(spans);
  EXPECT_EQ(numbers(columns, Section::kSpanIdPlace), "0 0 1 0 -1 -1 -1 -1 -1 ");
  EXPECT_EQ(numbers(columns, Section::kParentKind), "0 1 1 1 1 2 1 1 1 ");
  std::string file;
  const RowGroupMeta meta = write_row_group(columns, file);
  const auto source = columns::bytes_source(file);
  const Result<SpanColumns> read = read_row_group(*source, meta);
  ASSERT_TRUE(read.ok()) << read.error();
  for (size_t i = 0; i < columns.rows.size(); ++i)
    EXPECT_EQ(read->to_span(read->rows[i]), columns.to_span(columns.rows[i])) << i;
  const std::vector<StepInGroup> steps = summarise_steps(columns);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].ranks, 1u);
  EXPECT_EQ(steps[0].spans, columns.rows.size());
  EXPECT_EQ(steps[0].start_unix_ns, 1000);
}

}  // namespace
}  // namespace lockstep::spans
