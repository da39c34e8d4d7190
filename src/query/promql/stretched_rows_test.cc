// Functions that read the heads of chunks give what they give over every sample, to the last bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "query/promql/query.h"
#include "query/promql/testing/samples_only.h"
#include "store/metrics/engine_world.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::promql {
namespace {

using metrics::TestPush;

TEST(WindowEdges, CutWhatHasSamplesOnBothSides) {
  const WindowEdges edges{.first_ms = 1'000, .step_ms = 500, .count = 3, .range_ms = 2'000};  // ends 1,000 to 2,000
  EXPECT_TRUE(edges.cut(900, 1'100));
  EXPECT_TRUE(edges.cut(1'000, 1'100));  // a sample at the edge is before it
  EXPECT_FALSE(edges.cut(900, 1'000));
  EXPECT_FALSE(edges.cut(1'001, 1'500));
  EXPECT_TRUE(edges.cut(1'001, 1'501));
  EXPECT_FALSE(edges.cut(2'001, 9'000));  // behind the last end
  EXPECT_TRUE(edges.cut(-1'001, -900));   // where windows begin
  EXPECT_FALSE(edges.cut(-9'000, -1'000));
  const WindowEdges one{.first_ms = 1'000, .step_ms = 0, .count = 1, .range_ms = 100};
  EXPECT_FALSE(one.cut(901, 1'000));
  EXPECT_TRUE(one.cut(900, 1'000));
  EXPECT_FALSE(one.cut(1'001, 1'002));
}

constexpr int64_t kEveryMs = 10'000;

// Values as devices and others send them; `i` is the row.
double value_of(size_t kind, size_t i, std::mt19937& random) {
  const double row = static_cast<double>(i);
  switch (kind) {
    case 0:
      return 42;
    case 1:
      return 1e6 + 17 * row;  // a counter
    case 2:
      return static_cast<double>((i * 13) % 3'000);  // a counter that begins again
    case 3:
      return static_cast<double>(random() % 100);
    case 4:
      return static_cast<double>(random() % 10'000) / 100;
    case 5:
      return std::sin(row);
    case 6:
      return i % 300 == 7 ? std::nan("") : row;
    case 7:
      return i % 200 == 5 ? std::bit_cast<double>(kStaleBits) : row / 2;
    case 8:
      return 4e15 + row;  // too large to add up without loss
    case 9:
      return i % 2 == 0 ? -0.0 : 0.0;
    case 10:
      return i % 500 == 3 ? std::numeric_limits<double>::infinity() : -row;
    default:
      return -0.0;
  }
}
constexpr size_t kKinds = 12;

struct StretchedRowsTest : ::testing::Test {
  testing::FakeClock clock{metrics::kStartNs};
  testing::TemporaryFolder folder;
  Counters counters{kStoreCounters};
  std::unique_ptr<MetricEngine> engine;
  std::mt19937 random{7};
  const int64_t begin_ms = clock.unix_ms() / 3'600'000 * 3'600'000;
  size_t rows = 0;

  StretchedRowsTest() {
    MetricEngineOptions options;
    options.folder = folder.path();
    options.background = false;
    engine = MetricEngine::open(options, clock, counters).value();
  }
  void push(size_t count) {
    for (size_t end = rows + count; rows < end; ++rows) {
      clock.advance_to((begin_ms + static_cast<int64_t>(rows) * kEveryMs) * 1'000'000);
      TestPush push;
      for (size_t kind = 0; kind < kKinds; ++kind)
        push.add(format("x_total{kind=%zu}", kind), clock.unix_ms(), value_of(kind, rows, random));
      if (rows % 50 != 0) push.add("x_total{kind=gaps}", clock.unix_ms(), static_cast<double>(rows));
      ASSERT_TRUE(push.to(*engine).ok());
    }
  }

  // How many samples were read: over all of them, and with heads.
  std::pair<uint64_t, uint64_t> expect_same(const std::string& query, const QueryTimes& times) {
    const QueryResult expected = run_query(query, SamplesOnly(*engine), times, {});
    const QueryResult result = run_query(query, *engine, times, {});
    EXPECT_TRUE(expected.ok()) << expected.error;
    EXPECT_TRUE(result.ok()) << result.error;
    EXPECT_EQ(result.annotations.size(), expected.annotations.size()) << query;
    EXPECT_EQ(result.series.size(), expected.series.size()) << query;
    std::map<std::string, std::vector<std::pair<int64_t, uint64_t>>> there, wanted;
    const auto fill = [](const QueryResult& from, auto& to) {
      for (const ResultSeries& series : from.series) {
        std::string name;
        for (const auto& [key, value] : series.labels) name += key + "=" + value + " ";
        for (size_t i = 0; i < series.values.size(); ++i)
          to[name].emplace_back(series.times_ms[i], std::bit_cast<uint64_t>(series.values[i]));
      }
    };
    fill(result, there);
    fill(expected, wanted);
    EXPECT_EQ(there, wanted) << query << " from " << times.start_ms << " to " << times.end_ms << " every "
                             << times.step_ms;
    return {expected.samples_read, result.samples_read};
  }
  void expect_all_same() {
    const int64_t end_ms = clock.unix_ms();
    const int64_t span_ms = end_ms - begin_ms;
    const auto any = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
    for (const char* function :
         {"count_over_time", "present_over_time", "min_over_time", "max_over_time", "sum_over_time", "avg_over_time",
          "first_over_time", "last_over_time", "rate", "increase", "delta", "absent_over_time", "stddev_over_time"}) {
      for (int i = 0; i < 12; ++i) {
        // Also times at which there are samples, and at which chunks begin and end.
        const int64_t grain = i % 3 == 0 ? 1 : i % 3 == 1 ? kEveryMs : 240 * kEveryMs;
        const int64_t at_ms = begin_ms + any(span_ms) / grain * grain;
        const int64_t range_ms = std::max<int64_t>(any(span_ms) / grain * grain, 1);
        const std::string query = format("%s(x_total[%lldms])", function, static_cast<long long>(range_ms));
        expect_same(query, {at_ms, at_ms, 0});
        const int64_t step_ms = std::max<int64_t>(any(span_ms / 2) / grain * grain, kEveryMs);
        expect_same(query, {begin_ms, end_ms, step_ms});
      }
    }
  }
};

TEST_F(StretchedRowsTest, AreWhatTheSamplesGive) {
  for (size_t block : {700, 241, 1'500, 96}) {
    push(block);
    ASSERT_TRUE(engine->seal().ok());
  }
  push(123);  // and some in memory
  expect_all_same();
}

TEST_F(StretchedRowsTest, AreWhatTheSamplesGiveWhereTheyComeLateOrAreDeleted) {
  push(1'000);
  ASSERT_TRUE(engine->seal().ok());
  push(100);
  // Late samples in between those of a block, one in place of another.
  TestPush late;
  late.add("x_total{kind=1}", clock.unix_ms() - 300 * kEveryMs - 1, 5);
  late.add("x_total{kind=3}", clock.unix_ms() - 300 * kEveryMs, 1e9);
  ASSERT_TRUE(late.to(*engine, "other").ok());
  expect_all_same();
  ASSERT_TRUE(engine->seal().ok());
  expect_all_same();
  const std::vector<LabelMatcher> matchers{label_is("kind", "4")};
  ASSERT_TRUE(engine->remove(matchers, begin_ms + 500 * kEveryMs, begin_ms + 600 * kEveryMs).ok());
  expect_all_same();
}

TEST_F(StretchedRowsTest, DoNotReadTheSamplesOfWholeChunks) {
  push(2'400);
  ASSERT_TRUE(engine->seal().ok());
  const QueryTimes now{clock.unix_ms(), clock.unix_ms(), 0};
  for (const char* query : {"max_over_time(x_total{kind=~\"[0-5]\"}[6h])", "rate(x_total{kind=\"1\"}[6h])",
                            "avg_over_time(x_total{kind=\"3\"}[6h])"}) {
    const auto [all, with_heads] = expect_same(query, now);
    EXPECT_LT(with_heads * 8, all) << query;
  }
  // Chunks that must be read: decimals do not add up exactly, and this one falls.
  for (const char* query : {"avg_over_time(x_total{kind=\"4\"}[6h])", "rate(x_total{kind=\"2\"}[6h])"}) {
    const auto [all, with_heads] = expect_same(query, now);
    EXPECT_GE(with_heads, all) << query;
  }
}

}  // namespace
}  // namespace lockstep::promql
