// What the columnar store promises beyond the contract: files, crashes, limits.
#include "store/spans/columnar_span_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/files.h"
#include "base/text.h"
#include "store/store_counters.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kTime = 1'700'000'000'000'000'000;
constexpr int64_t kDay = 24ll * 3600 * 1'000'000'000;
constexpr const char* kTable = "table=\"spans\"";

class ColumnarStore : public ::testing::Test {
 protected:
  ColumnarStore() {
    options_.folder = folder_.path() + "/spans";
    options_.background = false;
  }
  void open() {
    store_.reset();
    Result<std::unique_ptr<ColumnarSpanStore>> opened = ColumnarSpanStore::open(options_, clock_, counters_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    store_ = std::move(*opened);
  }
  // As a crash leaves it: what was not sealed is gone.
  void crash_and_open() {
    const std::string aside = folder_.path() + "/aside";
    std::filesystem::copy(options_.folder, aside);
    store_.reset();  // seals
    std::filesystem::remove_all(options_.folder);
    std::filesystem::rename(aside, options_.folder);
    open();
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  void append(uint32_t number, uint64_t sequence = 0, size_t spans = 10) {
    spans::SpanColumnsBuilder builder;
    builder.begin_source({{"service.name", "shop"}}, "", "");
    for (uint32_t i = 0; i < spans; ++i) {
      Span span;
      span.trace_id = trace(number);
      span.span_id = {1,
                      static_cast<uint8_t>(number),
                      static_cast<uint8_t>(number >> 8),
                      4,
                      5,
                      6,
                      static_cast<uint8_t>(i >> 8),
                      static_cast<uint8_t>(i)};
      span.name = "get";
      span.start_unix_ns = clock_.unix_ns() + i;
      span.end_unix_ns = span.start_unix_ns + 5;
      span.attributes = {{"number", static_cast<int64_t>(number)}};
      builder.add(span);
    }
    store_->append(builder.take(), clock_.unix_ns(), sequence);
  }
  static TraceId trace(uint32_t number) {
    TraceId id{7};
    std::memcpy(id.data() + 8, &number, 4);
    return id;
  }
  size_t spans_of(uint32_t number) const { return store_->trace(trace(number), 100'000).total; }
  void expect_all_accounted_for() const {
    EXPECT_EQ(
        counters_.value("lockstep_store_rows_received_total", kTable),
        counters_.value("lockstep_store_rows", kTable) + counters_.value("lockstep_store_rows_replaced_total", kTable) +
            counters_.sum("lockstep_store_rows_dropped_total") + counters_.sum("lockstep_store_rows_refused_total"));
  }
  int64_t dropped(const char* reason) const {
    return counters_.value("lockstep_store_rows_dropped_total", format("%s,reason=\"%s\"", kTable, reason));
  }

  testing::TemporaryFolder folder_;
  ColumnarSpanStoreOptions options_;
  testing::FakeClock clock_{kTime};
  Counters counters_{kStoreCounters};
  SystemClock real_clock_;  // for a store with a thread of its own, which ends with store_
  std::unique_ptr<ColumnarSpanStore> store_;
};

TEST_F(ColumnarStore, KnowsAfterACrashWhichRecordsOfTheLogItHas) {
  open();
  append(1, 5);
  append(2, 7);
  ASSERT_TRUE(store_->seal().ok());
  clock_.advance(1000);
  append(3, 8);
  crash_and_open();
  EXPECT_TRUE(store_->holds(5, kTime));
  EXPECT_TRUE(store_->holds(6, kTime));  // of another signal, or dropped since: nothing to bring back
  EXPECT_TRUE(store_->holds(7, kTime));
  EXPECT_FALSE(store_->holds(8, kTime + 1000));
  EXPECT_FALSE(store_->holds(5, kTime + 1));  // of a log that was made anew
  EXPECT_EQ(spans_of(2), 10u);
  EXPECT_EQ(spans_of(3), 0u);
}

TEST_F(ColumnarStore, AReplayThatBringsSpansTwiceShowsThemOnce) {
  open();
  append(1, 5);
  ASSERT_TRUE(store_->seal().ok());
  open();
  append(1, 5);
  EXPECT_EQ(spans_of(1), 10u);
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(spans_of(1), 10u);
  EXPECT_EQ(store_->search({}).items.at(0).spans, 10u);
}

TEST_F(ColumnarStore, KeepsOutATornFileWithItsLogRecordsToBeReplayed) {
  open();
  append(1, 5);
  ASSERT_TRUE(store_->seal().ok());
  append(2, 6);
  ASSERT_TRUE(store_->seal().ok());
  append(3, 7);
  ASSERT_TRUE(store_->seal().ok());
  store_.reset();
  for (const auto& path : files()) {
    if (path.filename().string().find("-6-6") != std::string::npos)
      std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  }
  open();
  EXPECT_EQ(counters_.value("lockstep_span_files_refused_total"), 1);
  EXPECT_EQ(spans_of(2), 0u);
  EXPECT_EQ(spans_of(3), 10u);
  EXPECT_TRUE(store_->holds(5, kTime));
  EXPECT_FALSE(store_->holds(6, kTime));
}

TEST_F(ColumnarStore, RefusesAnotherFormatVersionWithOneClearLine) {
  open();
  append(1);
  ASSERT_TRUE(store_->seal().ok());
  store_.reset();
  const std::filesystem::path path = files().at(0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);
  file.put(99);
  file.close();
  Result<std::shared_ptr<const spans::SpanFile>> opened =
      spans::SpanFile::open(options_.folder, *spans::SpanFileInfo::from_name(path.filename().string()));
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().find("format version 99, and this server reads version 1"), std::string::npos)
      << opened.error();
  open();
  EXPECT_EQ(counters_.value("lockstep_span_files_refused_total"), 1);
}

TEST_F(ColumnarStore, ARowGroupFoundCorruptIsKeptOutAndCounted) {
  open();
  append(1);
  ASSERT_TRUE(store_->seal().ok());
  append(2);
  ASSERT_TRUE(store_->seal().ok());
  const std::filesystem::path path = files().at(0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(40);
  file.write("\xde\xad\xbe\xef", 4);
  file.close();
  EXPECT_EQ(spans_of(1) + spans_of(2), 10u);
  EXPECT_EQ(counters_.value("lockstep_span_row_groups_corrupt_total"), 1);
  EXPECT_EQ(dropped("corrupt"), 10);
  expect_all_accounted_for();
  EXPECT_EQ(store_->search({}).total, 1u);
  append(3);
  expect_all_accounted_for();
}

TEST_F(ColumnarStore, DropsWhatIsOlderThanItsDaysAndSaysSo) {
  options_.days = 3;
  open();
  append(1);
  ASSERT_TRUE(store_->seal().ok());
  clock_.advance(2 * kDay);
  append(2);
  ASSERT_TRUE(store_->seal().ok());
  store_->maintain();
  EXPECT_EQ(spans_of(1), 10u);
  clock_.advance(kDay + 1);
  store_->maintain();
  EXPECT_EQ(spans_of(1), 0u);
  EXPECT_EQ(spans_of(2), 10u);
  EXPECT_EQ(dropped("retention"), 10);
  EXPECT_EQ(files().size(), 1u);
  expect_all_accounted_for();
}

TEST_F(ColumnarStore, DropsTheOldestBeyondItsBytes) {
  open();
  append(1);
  ASSERT_TRUE(store_->seal().ok());
  options_.bytes_max = 2 * std::filesystem::file_size(files().at(0)) + 200;
  open();
  for (uint32_t number = 2; number <= 5; ++number) {
    clock_.advance(1000);
    append(number);
    ASSERT_TRUE(store_->seal().ok());
    store_->maintain();
  }
  EXPECT_EQ(spans_of(1) + spans_of(2) + spans_of(3), 0u);
  EXPECT_EQ(spans_of(4) + spans_of(5), 20u);
  EXPECT_EQ(dropped("limit"), 30);
}

TEST_F(ColumnarStore, SmallFilesBecomeOneAndACrashInBetweenLosesAndDoublesNothing) {
  open();
  for (uint32_t number = 1; number <= 8; ++number) {
    append(number, number);
    ASSERT_TRUE(store_->seal().ok());
  }
  append(9, 9);
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(files().size(), 9u);
  std::filesystem::copy(options_.folder, folder_.path() + "/before");
  store_->maintain();
  EXPECT_LT(files().size(), 3u);
  for (uint32_t number = 1; number <= 9; ++number) EXPECT_EQ(spans_of(number), 10u) << number;
  for (uint64_t sequence = 1; sequence <= 9; ++sequence) EXPECT_TRUE(store_->holds(sequence, kTime)) << sequence;
  // The crash: the joined file is there and the old ones are too.
  store_.reset();
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/before"))
    std::filesystem::copy(entry.path(), options_.folder, std::filesystem::copy_options::skip_existing);
  std::ofstream(options_.folder + "/spans-99-0-0.blk.part") << "half";
  open();
  EXPECT_LT(files().size(), 3u);
  for (uint32_t number = 1; number <= 9; ++number) EXPECT_EQ(spans_of(number), 10u) << number;
}

TEST_F(ColumnarStore, WhileTheDiskIsFullSpansStayInMemoryUpToALimitAndAreSealedLater) {
  options_.unsealed_bytes_max = 1'000'000;  // 5,000 of these spans fit, 10,000 do not
  open();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit none{200, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  append(2, 0, 5000);
  Result<void> sealed = store_->seal();
  EXPECT_FALSE(sealed.ok());
  EXPECT_EQ(spans_of(2), 5000u);
  append(3, 0, 5000);
  EXPECT_FALSE(store_->seal().ok());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(dropped("unsealed"), 5000);
  EXPECT_EQ(spans_of(3), 5000u);
  EXPECT_GE(counters_.value("lockstep_span_seals_failed_total"), 2);
  expect_all_accounted_for();
  EXPECT_TRUE(store_->seal().ok());
  EXPECT_EQ(spans_of(3), 5000u);
  for (const auto& path : files()) EXPECT_EQ(path.extension(), ".blk") << "a half file was left: " << path;
}

TEST_F(ColumnarStore, ManySmallAppendsStayFewPartsAndEverySpanIsThere) {
  open();
  for (uint32_t number = 0; number < 300; ++number) append(number, number + 1, 1);
  for (uint32_t number = 0; number < 300; ++number) ASSERT_EQ(spans_of(number), 1u);
  EXPECT_EQ(store_->newest("", 1).items.at(0).span.attributes[0].value, Value(299));
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(store_->newest("", 1).items.at(0).span.attributes[0].value, Value(299));
  open();
  EXPECT_TRUE(store_->holds(1, kTime));
  EXPECT_TRUE(store_->holds(300, kTime));
  EXPECT_FALSE(store_->holds(301, kTime));
}

TEST_F(ColumnarStore, SealsByItselfWhenFullWhileOthersAppendAndAsk) {
  options_.background = true;
  options_.head_rows_max = 500;
  clock_.advance_to(real_clock_.unix_ns());
  Result<std::unique_ptr<ColumnarSpanStore>> opened = ColumnarSpanStore::open(options_, real_clock_, counters_);
  ASSERT_TRUE(opened.ok());
  store_ = std::move(*opened);
  std::vector<std::thread> writers;
  for (uint32_t writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&, writer] {
      for (uint32_t i = 0; i < 60; ++i) append(writer * 1000 + i, 0, 50);
    });
  }
  std::thread reader([&] {
    for (int i = 0; i < 20; ++i) {
      Page<TraceSummary> page = store_->search({.service = "shop", .limit = 500});
      for (const TraceSummary& trace : page.items) EXPECT_EQ(trace.spans, 50u);
    }
  });
  for (std::thread& writer : writers) writer.join();
  reader.join();
  EXPECT_EQ(store_->search({}).total, 120u);
  EXPECT_EQ(counters_.value("lockstep_store_rows", kTable), 6000);
  EXPECT_TRUE(testing::eventually([&] { return counters_.value("lockstep_span_files", "") > 0; }));
  for (uint32_t i = 0; i < 60; ++i) EXPECT_EQ(spans_of(i), 50u);
}

TEST(SpanBlockSize, AnOperationTakesLessThanThirtyBytes) {
  // Sixteen ranks, noise in every time, ids that can be derived: what the format is for.
  spans::SpanColumnsBuilder builder;
  uint64_t noise = 1;
  auto random = [&](uint64_t most) {
    noise = noise * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int64_t>((noise >> 20) % most);
  };
  size_t ops = 0;
  for (Rank rank : all_ranks(16)) {
    Identity identity{.job_id = "job",
                      .attempt = 0,
                      .rank = rank,
                      .world_size = 16,
                      .local_rank = rank % 8,
                      .host = "node",
                      .gpu_uuid = ""};
    builder.begin_source(to_resource(identity), "", "");
    for (StepNumber step = 0_step; step < 20_step; ++step) {
      StepDetail detail;
      detail.step = step;
      detail.start_unix_ns = kTime + step.value() * 1'000'000'000 + random(200'000);
      detail.duration_ns = 1'000'000'000 + random(20'000'000);
      int64_t at = detail.start_unix_ns;
      for (int i = 0; i < 100; ++i, ++ops) {
        OpSpan op;
        op.comm_id = CommId{0x1234'5678'9abc'0000 + static_cast<uint64_t>(i % 3)};
        op.comm_size = 16;
        op.rank_in_comm = rank.value();
        op.function = "AllReduce";
        op.datatype = "ncclBfloat16";
        op.seq = static_cast<uint64_t>(step.value() * 100 + i);
        op.ordinal = op.seq + 1;
        op.bytes = 1 << (20 + i % 4);
        at += 5'000'000 + random(5'000'000);
        op.start_unix_ns = at;
        op.enqueued_unix_ns = at - random(3'000'000);
        op.duration_ns = 1'000'000 + random(4'000'000);
        op.timed = true;
        detail.ops.push_back(op);
      }
      for (const Span& span : to_spans(identity, detail, SampledFor::kPeriodic)) builder.add(span);
    }
  }
  const spans::SpanColumns columns = builder.take();
  const spans::SpanColumns* parts[] = {&columns};
  const uint32_t arrivals[] = {0};
  std::string content;
  spans::write_row_group(spans::gather(parts, spans::disk_order(parts), arrivals), content);
  EXPECT_LT(static_cast<double>(content.size()) / static_cast<double>(ops), 12.0);
}

}  // namespace
}  // namespace lockstep
