// The rules of the metrics engine at their very borders: the last that is taken and the first that is not, the first
// and the last sample of a range, exactly as much as a limit allows.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/text.h"
#include "store/metrics/engine_world.h"

namespace lockstep::metrics {
namespace {

class MetricBorders : public ::testing::Test {
 protected:
  MetricBorders() {
    options_.folder = folder_.path();
    options_.background = false;
    options_.shards = 1;
  }
  void open() {
    engine_.reset();
    Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options_, clock_, counters_);
    ASSERT_TRUE(engine.ok()) << engine.error();
    engine_ = std::move(*engine);
  }
  int64_t now() const { return clock_.unix_ms(); }
  // How many samples were refused, why and with which example; "": none.
  static std::string refused(const Result<PushOutcome>& outcome) {
    std::string text;
    for (const RefusedSamples& one : outcome->refused)
      text += format("%llu (%llu histograms) %s: %s\n", static_cast<unsigned long long>(one.samples),
                     static_cast<unsigned long long>(one.histograms), one.reason.c_str(), one.example.c_str());
    return text;
  }
  std::string push_labels(Labels labels) {
    const int64_t time_ms[] = {now()};
    const double value[] = {1};
    std::string raw;
    for (const auto& [name, text] : labels) raw += name + "\1" + text + "\2";
    const PushedSeries series{raw, time_ms, value, {}, {}};
    return refused(engine_->push("s", {&series, 1}, [&](size_t) { return Result<Labels>(labels); }));
  }
  void push(const std::string& series, int64_t time_ms, double value = 1, const std::string& stream = "stream") {
    Result<PushOutcome> outcome = TestPush().add(series, time_ms, value).to(*engine_, stream);
    ASSERT_TRUE(outcome.ok()) << outcome.error();
    ASSERT_EQ(refused(outcome), "");
  }
  std::set<std::string> block_names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/blocks"))
      names.insert(entry.path().filename().string());
    return names;
  }
  int64_t dropped(const char* reason) const {
    return counters_.value("lockstep_metric_samples_dropped_total", format("reason=\"%s\"", reason));
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{kStartNs};
  Counters counters_{kStoreCounters};
  MetricEngineOptions options_;
  std::unique_ptr<MetricEngine> engine_;
};

TEST_F(MetricBorders, TheOldestAndTheNewestSampleThatIsTaken) {
  options_.late_ms = 60'000;
  options_.future_ms = 10'000;
  open();
  push("m", now());
  push("m", now() - 60'000);
  EXPECT_EQ(refused(TestPush().add("a", now(), 1).add("m", now() - 60'001, 1).to(*engine_)),
            format("1 (0 histograms) too_old: sample 1 of the push is of %lld ms, more than a day behind the newest; "
                   "refused\n",
                   static_cast<long long>(now() - 60'001)));
  EXPECT_EQ(
      refused(TestPush().add("m", now() + 12'001, 1).add("n", now() + 10'001, 1).to(*engine_)),
      "2 (0 histograms) future: sample 0 of the push is 2 s ahead of this server's clock and its limit; refused\n");
  push("m", now() + 10'000);
  push("m", now() - 50'000);
  EXPECT_NE(refused(TestPush().add("m", now() - 50'001, 1).to(*engine_)), "");
  NativeHistogram histogram;
  EXPECT_EQ(refused(TestPush().histogram("h", now() + 10'001, histogram).to(*engine_)).substr(0, 24),
            "1 (1 histograms) future:");
  EXPECT_EQ(refused(TestPush().add("m", now(), absent()).to(*engine_)),
            "1 (0 histograms) reserved_nan: a NaN with the payload that stands for no sample here; refused\n");
}

TEST_F(MetricBorders, TheLongestAndTheMostLabelsThatAreTaken) {
  options_.limits.labels_max = 3;
  options_.limits.label_bytes_max = 20;
  open();
  const std::string long16(16, 'x');
  EXPECT_EQ(push_labels({{"__name__", "m"}, {"a", "1"}, {"b", "2"}}), "");
  EXPECT_EQ(push_labels({{"__name__", "m"}, {"a", "1"}, {"b", "2"}, {"c", ""}}), "") << "no value: no label";
  EXPECT_EQ(push_labels({{"__name__", "m"}, {"a", "1"}, {"b", "2"}, {"c", "3"}}),
            "1 (0 histograms) labels_invalid: m{a=\"1\",b=\"2\",c=\"3\"}: it has no labels or too many\n");
  EXPECT_EQ(push_labels({{"__name__", ""}}), "1 (0 histograms) labels_invalid: {}: it has no labels or too many\n");
  EXPECT_EQ(push_labels({{"a", "1"}}), "1 (0 histograms) labels_invalid: {a=\"1\"}: it has no metric name\n");
  EXPECT_EQ(push_labels({{"__name__", "m"}, {"four", long16}}), "");
  EXPECT_EQ(push_labels({{"__name__", "m"}, {"fiveb", long16}}),
            "1 (0 histograms) labels_invalid: m{fiveb=\"" + long16 + "\"}: a label is too long or has no name\n");
  EXPECT_EQ(push_labels({{"", "x"}, {"__name__", "m"}}),
            "1 (0 histograms) labels_invalid: m{=\"x\"}: a label is too long or has no name\n");
  EXPECT_EQ(push_labels({{"__name__", "m"}, {"b", "1"}, {"b", "2"}}).substr(17, 67),
            "labels_invalid: m{b=\"1\",b=\"2\"}: its labels are not sorted, or one i");
  EXPECT_EQ(push_labels({{"__name__", "m"}, {"b", "1"}, {"a", "2"}}).substr(17, 42),
            "labels_invalid: m{b=\"1\",a=\"2\"}: its labels");
}

TEST_F(MetricBorders, AnExampleOfLabelsIsCutAfterTwoHundredBytes) {
  open();
  const std::string text = push_labels({{"__name__", "m"},
                                        {"a", std::string(100, 'x')},
                                        {"b", std::string(92, 'y')},
                                        {"c", "shown"},
                                        {"d", "not"},
                                        {"pid", "7"}});
  // 4 + 100 and 5 + 92 bytes are 201 with those of c: what follows is left out.
  EXPECT_NE(text.find("b=\"" + std::string(92, 'y') + "\",...}"), std::string::npos) << text;
  const std::string exact = push_labels(
      {{"__name__", "n"}, {"a", std::string(100, 'x')}, {"b", std::string(91, 'y')}, {"c", "shown"}, {"pid", "7"}});
  EXPECT_NE(exact.find("c=\"shown\",...}"), std::string::npos) << exact;
}

using PlainSamples = std::map<std::string, std::map<int64_t, double>>;  // value by time, by series

// Between these times the engine has what the plain list has.
void expect_samples(const MetricEngine& engine, const PlainSamples& plain, int64_t from, int64_t to) {
  Found all = found(engine, "m", from, to);
  for (const auto& [series, samples] : plain) {
    std::vector<int64_t> times;
    std::vector<double> values;
    for (auto at = samples.lower_bound(from); at != samples.end() && at->first <= to; ++at) {
      times.push_back(at->first);
      values.push_back(at->second);
    }
    const SampleColumns& there = all[series];
    ASSERT_EQ(there.times_ms, times) << series << " from " << from << " to " << to;
    ASSERT_EQ(there.values, values) << series << " from " << from << " to " << to;
    all.erase(series);
  }
  EXPECT_TRUE(all.empty()) << all.begin()->first;
}

// Every place a sample may be (memory rows, strips, late rows, histograms beside, blocks, deleted ones), asked for with
// every pair of times as borders, is what a plain list says.
TEST_F(MetricBorders, EveryRangeHasExactlyTheSamplesFromItsFirstToItsLastTime) {
  options_.merge_ms = 0;
  open();
  const int64_t start = now() - 1'000'000;
  PlainSamples plain;
  auto put = [&](TestPush& one, const std::string& series, int64_t time_ms, double value) {
    one.add(series, time_ms, value);
    plain[series][time_ms] = value;
  };
  auto fill = [&](int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) {
      TestPush one;
      put(one, "m{k=a}", start + i * 1000, static_cast<double>(i));
      if (i % 3 != 0) put(one, "m{k=b}", start + i * 1000, static_cast<double>(-i));
      if (i % 10 == 9) put(one, "m{k=c}", start + i * 1000 - 4'500, 0.25);
      ASSERT_EQ(refused(one.to(*engine_)), "");
    }
  };
  std::vector<std::pair<int64_t, int64_t>> gone;
  auto check = [&](const char* when) {
    SCOPED_TRACE(when);
    std::vector<int64_t> borders;
    for (const auto& [time_ms, value] : plain["m{k=a}"]) {
      if (time_ms % 7 == 0 || time_ms < start + 3'000 || borders.size() < 3) {
        borders.insert(borders.end(), {time_ms - 1, time_ms, time_ms + 1});
      }
    }
    for (const auto& [time_ms, value] : plain["m{k=c}"]) borders.push_back(time_ms);
    for (const int64_t from : borders) {
      for (const int64_t to : {from, from + 1, from + 4'500, from + 17'000, start + 10'000'000}) {
        ASSERT_NO_FATAL_FAILURE(expect_samples(*engine_, plain, from, to)) << "start " << start;
      }
    }
  };
  fill(0, 16);
  check("rows that are just a strip's");
  fill(16, 1);
  check("a strip and a row");
  fill(17, 25);
  check("strips and rows");
  ASSERT_TRUE(engine_->seal().ok());
  check("a block");
  fill(42, 20);
  check("a block and rows");
  ASSERT_TRUE(engine_->seal().ok());
  ASSERT_TRUE(engine_->merge().ok());
  check("merged");
  fill(62, 5);
  // Deleted with both ends, what is just outside stays.
  ASSERT_TRUE(engine_->remove(std::vector{label_is("k", "a")}, start + 5'000, start + 7'000).ok());
  plain["m{k=a}"].erase(start + 5'000);
  plain["m{k=a}"].erase(start + 6'000);
  plain["m{k=a}"].erase(start + 7'000);
  check("deleted and not yet merged away");
  open();
  check("started again");
  ASSERT_TRUE(engine_->clean().ok());
  check("merged away");
  EXPECT_EQ(dropped("deleted"), 3);
}

TEST_F(MetricBorders, HistogramsAreInARangeWithBothItsEndsAndOneOfTwoOfATimeCounts) {
  options_.merge_ms = 0;
  open();
  auto histogram = [](double sum) {
    NativeHistogram one;
    one.sum = sum;
    one.count = 1;
    one.zero_count = 1;
    return one;
  };
  auto times = [&](int64_t from, int64_t to) {
    Found all = found(*engine_, "h", now() + from, now() + to);
    std::string text;
    const SampleColumns& columns = all["h"];
    for (size_t i = 0; i < columns.times_ms.size(); ++i) {
      const bool is_histogram = !columns.histograms.empty() && columns.histograms[i] != nullptr;
      text += format("%lld=%g%s ", static_cast<long long>(columns.times_ms[i] - now()), columns.values[i],
                     is_histogram ? "h" : "");
    }
    return text;
  };
  auto check = [&] {
    EXPECT_EQ(times(0, 100), "10=1h 20=5 30=3h 40=4h ");
    EXPECT_EQ(times(10, 30), "10=1h 20=5 30=3h ");
    EXPECT_EQ(times(11, 29), "20=5 ");
    EXPECT_EQ(times(30, 30), "30=3h ");
    EXPECT_EQ(times(31, 39), "");
  };
  auto push = [&](int64_t at, double sum) {
    Result<PushOutcome> outcome = TestPush().histogram("h", now() + at, histogram(sum)).to(*engine_);
    return format("%llu %llu %llu", static_cast<unsigned long long>(outcome->stored),
                  static_cast<unsigned long long>(outcome->repeated),
                  static_cast<unsigned long long>(outcome->replaced));
  };
  EXPECT_EQ(push(30, 3), "1 0 0");
  EXPECT_EQ(push(10, 7), "1 0 0");
  EXPECT_EQ(push(10, 7), "0 1 0");
  EXPECT_EQ(push(10, 1), "0 0 1");
  ASSERT_TRUE(TestPush().add("h", now() + 20, 5).to(*engine_).ok());
  EXPECT_EQ(push(40, 4), "1 0 0");
  check();
  ASSERT_TRUE(engine_->seal().ok());
  check();
  ASSERT_TRUE(engine_->merge().ok());
  check();
  open();
  check();
  ASSERT_TRUE(engine_->remove(std::vector{label_is("__name__", "h")}, now() + 30, now() + 39).ok());
  EXPECT_EQ(times(0, 100), "10=1h 20=5 40=4h ");
  ASSERT_TRUE(engine_->clean().ok());
  EXPECT_EQ(times(0, 100), "10=1h 20=5 40=4h ");
  EXPECT_EQ(dropped("deleted"), 1);
}

TEST_F(MetricBorders, AsManySeriesAsAreAskedForAreGivenAndOneMoreIsAnError) {
  options_.idle_ms = 1;
  open();
  for (int i = 0; i < 5; ++i) push(format("m{i=%d}", i), now());
  auto ask = [&](uint64_t most) {
    Found all = found(*engine_, {label_is("__name__", "m")},
                      {.from_ms = now() - 10'000, .to_ms = now() + 10'000, .series_max = most});
    return all.size() == 1 && all.begin()->first.starts_with("error") ? all.begin()->first : std::to_string(all.size());
  };
  const std::string error = "error: more than 4 series match (5 so far); narrow the selector or raise the limit";
  EXPECT_EQ(ask(5), "5");
  EXPECT_EQ(ask(4), error);
  EXPECT_EQ(ask(0), "5");
  ASSERT_TRUE(engine_->seal().ok());
  push("other", now() + 1'000);
  ASSERT_TRUE(engine_->seal().ok());
  EXPECT_EQ(engine_->cardinality(1).series, 1u) << "the others are in blocks alone";
  EXPECT_EQ(ask(5), "5");
  EXPECT_EQ(ask(4), error);
  int asked = 0;
  Found none = found(*engine_, {label_is("__name__", "m")},
                     {.from_ms = now(), .to_ms = now(), .give_up = [&] { return ++asked > 0; }});
  EXPECT_TRUE(none.contains("error: the series are not wanted any more"));
}

TEST_F(MetricBorders, ABlockGoesWhenItsLastSampleIsOlderThanIsKeptAndNotBefore) {
  options_.keep_ms[0] = 100'000;
  options_.merge_ms = int64_t{1} << 50;
  open();
  push("old", now() - 100'000);
  push("old", now() - 150'000);
  ASSERT_TRUE(engine_->seal().ok());
  push("new", now());
  ASSERT_TRUE(engine_->seal().ok());
  engine_->retain();
  EXPECT_EQ(found(*engine_, "old").size(), 1u);
  push("new", now() + 1);
  clock_.advance(3'600'000'000'000);
  engine_->retain();
  EXPECT_EQ(found(*engine_, "old").size(), 0u);
  EXPECT_EQ(dropped("retention"), 2);
  EXPECT_EQ(found(*engine_, "new").size(), 1u);
}

TEST_F(MetricBorders, BytesUpToTheLimitStayAndOneMoreCostsTheOldestBlock) {
  options_.merge_ms = int64_t{1} << 50;
  open();
  for (int64_t block = 2; block >= 0; --block) {  // the oldest samples in the newest block
    push("m", now() - 3000 + block * 1000);
    ASSERT_TRUE(engine_->seal().ok());
  }
  options_.bytes_max[0] = engine_->disk_bytes();
  open();
  engine_->retain();
  EXPECT_EQ(found(*engine_, "m").at("m").times_ms.size(), 3u);
  --options_.bytes_max[0];
  open();
  engine_->retain();
  EXPECT_EQ(found(*engine_, "m").at("m").times_ms, (std::vector<int64_t>{now() - 2000, now() - 1000}));
  EXPECT_EQ(dropped("limit"), 1);
  EXPECT_EQ(counters_.value("lockstep_metric_blocks", "tier=\"raw\""), 2);
  EXPECT_EQ(counters_.value("lockstep_metric_block_bytes", "tier=\"raw\""),
            static_cast<int64_t>(engine_->disk_bytes()));
}

TEST_F(MetricBorders, SealsWhenTheOldestSampleIsAsOldAsItMayBeOrThereAreAsManyBytesOrAsMuchTimeHasPassed) {
  options_.seal_age_ms = 100'000;
  options_.seal_bytes_min = 1 << 20;
  open();
  push("m", now());
  push("m", now() + 99'999);
  engine_->step();
  EXPECT_EQ(engine_->disk_bytes(), 0u);
  push("m", now() + 100'000);
  engine_->step();
  EXPECT_GT(engine_->disk_bytes(), 0u) << "the first is a hundred seconds behind the last";
  size_t blocks = block_names().size();
  push("m", now() + 100'001);
  clock_.advance(99'999'000'000);
  engine_->step();
  EXPECT_EQ(block_names().size(), blocks);
  clock_.advance(1'000'000);
  engine_->step();
  EXPECT_EQ(block_names().size(), blocks + 1) << "the last seal was a hundred seconds ago";
  clock_.advance(100'000'000'000);
  engine_->step();
  EXPECT_EQ(block_names().size(), blocks + 1) << "there is nothing";
  blocks = block_names().size();
  options_.seal_age_ms = int64_t{1} << 50;
  options_.seal_bytes_min = 0;
  options_.seal_bytes_per_series = 100'000;
  open();
  for (int64_t i = 1; i <= 16 * 10; ++i) push("bytes", now() + i, 1.0 / static_cast<double>(i));
  engine_->step();
  EXPECT_EQ(block_names().size(), blocks);
  options_.seal_bytes_per_series = 100;
  open();
  engine_->step();
  EXPECT_EQ(block_names().size(), blocks + 1);
}

TEST_F(MetricBorders, BlocksAreMergedWhenTogetherTheySpanAsLongAsIsSaidOrAreAsManyAsMayBe) {
  options_.merge_ms = 10'000;
  options_.merge_blocks_max = 4;
  open();
  push("m", now());
  ASSERT_TRUE(engine_->seal().ok());
  push("m", now() + 9'999);
  ASSERT_TRUE(engine_->seal().ok());
  EXPECT_FALSE(*engine_->merge());
  push("m", now() + 10'000);
  ASSERT_TRUE(engine_->seal().ok());
  EXPECT_TRUE(*engine_->merge());
  EXPECT_EQ(block_names(), (std::set<std::string>{"block-0000000004-t1-l1.blk", "block-0000000005-t2-l1.blk",
                                                  "block-0000000006-t0-l1.blk"}));
  for (int64_t i = 1; i <= 3; ++i) {
    push("m", now() + 10'000 + i);
    ASSERT_TRUE(engine_->seal().ok());
    EXPECT_FALSE(*engine_->merge()) << i;
  }
  push("m", now() + 10'004);
  ASSERT_TRUE(engine_->seal().ok());
  EXPECT_TRUE(*engine_->merge()) << "four";
  EXPECT_FALSE(*engine_->merge());
  EXPECT_EQ(found(*engine_, "m").at("m").times_ms.size(), 7u);
}

TEST_F(MetricBorders, ASeriesLeavesMemoryOnceItIsSilentForLongerThanItMayBe) {
  options_.idle_ms = 10'000;
  open();
  push("a", now() - 10'000, 1, "a");
  push("b", now() - 10'001, 1, "b");
  push("c", now(), 1, "c");
  EXPECT_EQ(engine_->cardinality(5).streams.size(), 3u);
  ASSERT_TRUE(engine_->seal().ok());
  const CardinalityReport report = engine_->cardinality(5);
  EXPECT_EQ(report.series, 2u);
  ASSERT_EQ(report.streams.size(), 2u);
  EXPECT_EQ(report.streams[0].series + report.streams[1].series, 2u);
  EXPECT_NE(report.streams[0].name, "b");
  EXPECT_EQ(counters_.value("lockstep_metric_series"), 2);
}

// Series that are new together get a group of their own where they are at least 64 and more than half of the push; then
// they leave together while the others stay.
TEST_F(MetricBorders, ManyNewSeriesOfAPushLiveByThemselves) {
  struct Case {
    int old_series, new_series;
    bool apart;
  };
  for (const Case& one : {Case{63, 64, true}, Case{62, 63, false}, Case{64, 64, false}, Case{100, 101, true}}) {
    SCOPED_TRACE(format("%d old, %d new", one.old_series, one.new_series));
    std::filesystem::remove_all(folder_.path());
    options_.idle_ms = 10'000;
    open();
    auto push_both = [&](int64_t time_ms, bool with_new) {
      TestPush both;
      for (int i = 0; i < one.old_series; ++i) both.add(format("old{i=%d}", i), time_ms, 1);
      if (with_new)
        for (int i = 0; i < one.new_series; ++i) both.add(format("new{i=%d}", i), time_ms, 1);
      ASSERT_EQ(refused(both.to(*engine_)), "");
    };
    push_both(now(), false);
    push_both(now() + 1'000, true);
    push_both(now() + 100'000, false);
    ASSERT_TRUE(engine_->seal().ok());
    EXPECT_EQ(engine_->cardinality(1).series,
              static_cast<uint64_t>(one.apart ? one.old_series : one.old_series + one.new_series));
    EXPECT_EQ(found(*engine_, "new").size(), static_cast<size_t>(one.new_series));
    engine_.reset();
  }
}

TEST_F(MetricBorders, AsManyExemplarsAsMayBeAreKeptAndTheOldestGoes) {
  options_.exemplars_max = 3;
  open();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(TestPush()
                    .add("m", now() + i, 1)
                    .exemplar({{{"id", std::to_string(i)}}, static_cast<double>(i), now() + i})
                    .to(*engine_)
                    .ok());
    const auto all = engine_->exemplars(std::vector{label_is("__name__", "m")}, 0, INT64_MAX);
    EXPECT_EQ(all->size(), static_cast<size_t>(std::min(i + 1, 3)));
  }
  auto ids = [&](int64_t from, int64_t to) {
    std::string text;
    const auto list = engine_->exemplars(std::vector{label_is("__name__", "m")}, now() + from, now() + to);
    for (const Exemplar& one : *list) text += one.labels[0].second;
    return text;
  };
  for (const bool sealed : {false, true}) {
    if (sealed) {
      ASSERT_TRUE(engine_->seal().ok());
    }
    EXPECT_EQ(ids(0, 10), "123");
    EXPECT_EQ(ids(1, 3), "123");
    EXPECT_EQ(ids(2, 2), "2");
    EXPECT_EQ(ids(2, 3), "23");
    EXPECT_EQ(ids(4, 9), "");
  }
}

TEST_F(MetricBorders, NamesAndValuesOfABlockCountInItsFirstAndInItsLastMillisecond) {
  options_.idle_ms = 1;
  open();
  push("m{host=a}", now() - 20'000);
  push("m{host=a}", now() - 10'000);
  ASSERT_TRUE(engine_->seal().ok());
  push("n{rack=r}", now());
  ASSERT_TRUE(engine_->seal().ok());
  auto names = [&](int64_t from, int64_t to) {
    std::string text;
    const auto list = engine_->label_names({}, now() + from, now() + to);
    for (const std::string& name : *list) text += name + " ";
    text += "| ";
    const auto values = engine_->label_values("host", {}, now() + from, now() + to);
    for (const std::string& value : *values) text += value + " ";
    return text;
  };
  EXPECT_EQ(names(-20'000, -20'000), "__name__ host rack | a ");
  EXPECT_EQ(names(-10'000, -10'000), "__name__ host rack | a ");
  EXPECT_EQ(names(-30'000, -20'001), "__name__ rack | ");
  EXPECT_EQ(names(-9'999, 0), "__name__ rack | ");
  const std::vector<std::vector<LabelMatcher>> any = {{label_is("__name__", "m")}, {label_is("__name__", "n")}};
  EXPECT_EQ(engine_->label_values("__name__", any, now() - 20'000, now()).value(),
            (std::vector<std::string>{"m", "n"}));
  EXPECT_EQ(engine_->label_names(any, now() - 9'999, now()).value(), (std::vector<std::string>{"__name__", "rack"}));
}

TEST_F(MetricBorders, TheLargestComeFirstAndNoMoreThanAreAskedFor) {
  open();
  for (int stream = 0; stream < 5; ++stream) {
    TestPush many;
    for (int i = 0; i <= stream; ++i)
      many.add(format("m%d{i=%d,job_id=j%d,tenant=t%d}", stream, i, stream, stream), now(), 1);
    ASSERT_TRUE(many.to(*engine_, format("s%d", stream)).ok());
  }
  const CardinalityReport report = engine_->cardinality(2);
  EXPECT_EQ(report.series, 15u);
  for (const auto& [list, prefix] : {std::pair(&report.metrics, "m"), std::pair(&report.jobs, "j"),
                                     std::pair(&report.tenants, "t"), std::pair(&report.streams, "s")}) {
    ASSERT_EQ(list->size(), 2u) << prefix;
    EXPECT_EQ((*list)[0].name, std::string(prefix) + "4");
    EXPECT_EQ((*list)[0].series, 5u);
    EXPECT_EQ((*list)[1].name, std::string(prefix) + "3");
    EXPECT_EQ((*list)[1].series, 4u);
  }
  EXPECT_EQ(engine_->cardinality(100).streams.size(), 5u);
}

// Blocks that a crash leaves: what was merged into one that is there goes; a rollup whose raw part is not there goes.
TEST_F(MetricBorders, OfBlocksThatACrashLeavesThoseStayThatSayEverythingOnce) {
  open();
  auto write = [&](uint64_t number, uint32_t tier, uint32_t level, std::vector<uint64_t> replaces) {
    BlockInfo info;
    info.number = number;
    info.tier = tier;
    info.level = level;
    info.replaces = std::move(replaces);
    std::unique_ptr<BlockWriter> writer = std::move(BlockWriter::create(folder_.path() + "/blocks", info).value());
    const LabelSymbols labels[] = {{writer->symbol("__name__"), writer->symbol("m")}};
    writer->add_series(labels);
    BlockSlice slice;
    slice.times_ms = {now() - 1000 + static_cast<int64_t>(number)};
    std::string chunk;
    encode_values(std::vector<double>{1}, WithSummary::kNo, chunk);
    slice.add(chunk);
    writer->count_samples(1);
    ASSERT_TRUE(writer->add_group({&slice, 1}).ok());
    ASSERT_TRUE(writer->finish().ok());
  };
  write(1, 0, 0, {});
  write(2, 0, 0, {});
  write(3, 1, 1, {1, 2});  // of a merge that was finished:
  write(4, 2, 1, {1, 2});
  write(5, 0, 1, {1, 2});
  write(6, 0, 0, {});
  write(7, 1, 1, {6});  // of one that was not
  write(8, 1, 1, {});   // two of a tier
  write(9, 1, 1, {});
  write(10, 1, 2, {8, 9});  // that are one now
  write(11, 2, 1, {20});    // made of what is gone
  write(12, 2, 2, {3});     // names a block of another tier that is there
  open();
  EXPECT_EQ(block_names(), (std::set<std::string>{"block-0000000003-t1-l1.blk", "block-0000000004-t2-l1.blk",
                                                  "block-0000000005-t0-l1.blk", "block-0000000006-t0-l0.blk",
                                                  "block-0000000010-t1-l2.blk", "block-0000000011-t2-l1.blk"}));
  push("m", now());
  ASSERT_TRUE(engine_->seal().ok());
  EXPECT_TRUE(block_names().contains("block-0000000013-t0-l0.blk")) << "numbers go on";
}

TEST(BlockName, IsNumberTierAndLevelAndNothingElse) {
  BlockInfo info;
  info.number = 12;
  info.tier = 2;
  info.level = 9;
  EXPECT_EQ(info.name(), "block-0000000012-t2-l9.blk");
  const std::optional<BlockInfo> read = BlockInfo::from_name(info.name());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->number, 12u);
  EXPECT_EQ(read->tier, 2u);
  EXPECT_EQ(read->level, 9u);
  for (const char* name :
       {"block-0000000012-t3-l0.blk", "block-0000000012-t0-l10.blk", "block-12-t0.blk", "block-12-t0-l0-x.blk",
        "block-12-0-l0.blk", "block-12-t0-0.blk", "block-x-t0-l0.blk", "block-12-tx-l0.blk", "block-12-t0-lx.blk",
        "black-12-t0-l0.blk", "block-12-t0-l0.blk.part", "block-12-t0-l0", ""})
    EXPECT_FALSE(BlockInfo::from_name(name).has_value()) << name;
}

TEST(WalFileName, IsShardGenerationAndSegmentAndNothingElse) {
  const WalFileName names[] = {{3, 7, 0}, {63, 123456789, 42}};
  EXPECT_EQ(names[0].text(), "shard-03-gen-00000007.snap");
  EXPECT_EQ(names[1].text(), "shard-63-gen-123456789-seg-000042.wal");
  for (const WalFileName& name : names) {
    WalFileName read;
    ASSERT_TRUE(WalFileName::parse(name.text(), read));
    EXPECT_EQ(read, name);
  }
  for (const char* name : {"shard-64-gen-1.snap", "shard-1-gen-1-seg-0.wal", "shard-1-gen-1-seg-1.walx",
                           "shard-1-gen-1", "shard-1-gen-1-seg-1", "shard--gen-1.snap", "shard-1-gen-.snap",
                           "shard-1-gen-1-seg-.wal", "xshard-1-gen-1.snap", "shard-1-gen-1.snapx", ""}) {
    WalFileName read;
    EXPECT_FALSE(WalFileName::parse(name, read)) << name;
  }
}

TEST(Wal, BeginsASegmentOnceTheLastHasAsManyBytesAsItMay) {
  testing::TemporaryFolder folder;
  Wal wal(folder.path(), 2, 5, 30);
  EXPECT_EQ(wal.begin_record(), 1u);
  EXPECT_EQ(wal.append("0123456789a"), 19u);  // 8 bytes of its head
  EXPECT_EQ(wal.begin_record(), 1u);
  EXPECT_EQ(wal.append("abc"), 30u);
  EXPECT_EQ(wal.bytes_appended(), 30u);
  EXPECT_EQ(wal.begin_record(), 2u) << "thirty bytes are full";
  EXPECT_EQ(wal.append("next"), 42u);
  EXPECT_EQ(wal.begin_record(), 2u);
  ASSERT_TRUE(wal.commit(19, Ack::kMemory).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  ASSERT_TRUE(wal.commit(19, Ack::kWritten).ok());
  auto records = [&](const char* name) {
    std::string text;
    const Result<WalReadOutcome> read = read_wal_file(folder.path() + "/" + name, [&](std::string_view record) {
      text += std::string(record) + ";";
      return true;
    });
    EXPECT_TRUE(read.ok() && !read->torn && read->damage.empty()) << name;
    return text;
  };
  EXPECT_EQ(records("shard-02-gen-00000005-seg-000001.wal"), "0123456789a;abc;");
  EXPECT_EQ(records("shard-02-gen-00000005-seg-000002.wal"), "next;");
  wal.begin_generation(6);
  EXPECT_EQ(wal.begin_record(), 3u);
  EXPECT_EQ(wal.append("more"), 54u);
  ASSERT_TRUE(wal.flush(true).ok());
  EXPECT_EQ(records("shard-02-gen-00000006-seg-000001.wal"), "more;");
  EXPECT_EQ(records("shard-02-gen-00000005-seg-000002.wal"), "next;");
}

// What the head of a chunk says of it is what these samples say, those from `at` on.
void expect_stretch(const SampleStretch& stretch, const SampleColumns& all, size_t at) {
  ASSERT_LE(at + stretch.count, all.times_ms.size());
  const auto begin = all.values.begin() + static_cast<ptrdiff_t>(at);
  const auto end = begin + static_cast<ptrdiff_t>(stretch.count);
  EXPECT_EQ(stretch.first_ms, all.times_ms[at]);
  EXPECT_EQ(stretch.last_ms, all.times_ms[at + stretch.count - 1]);
  EXPECT_EQ(stretch.first, *begin);
  EXPECT_EQ(stretch.last, *(end - 1));
  EXPECT_EQ(stretch.min, *std::min_element(begin, end));
  EXPECT_EQ(stretch.max, *std::max_element(begin, end));
  EXPECT_EQ(stretch.falls, !std::is_sorted(begin, end));
  if (stretch.sum_is_exact) {
    EXPECT_EQ(stretch.sum, std::accumulate(begin, end, 0.0));
  }
}

// What the heads of chunks say is what their samples say, wherever the windows are.
TEST_F(MetricBorders, StretchesAndSamplesTogetherAreAllSamplesOfARange) {
  options_.merge_ms = 0;
  open();
  const int64_t start = now() - 10'000'000;
  for (int64_t i = 0; i < 600; ++i) {
    ASSERT_TRUE(TestPush()
                    .add("whole", start + i * 1000, static_cast<double>(i * 7 % 100))
                    .add("half", start + i * 1000, static_cast<double>(i) / 2)
                    .to(*engine_)
                    .ok());
    if (i == 250 || i == 590) {
      ASSERT_TRUE(engine_->seal().ok());
    }
  }
  size_t stretches_seen = 0;
  for (const char* name : {"whole", "half"}) {
    for (const WindowEdges edges :
         {WindowEdges{start + 125'000, 50'000, 10, 40'000}, WindowEdges{start + 600'000, 0, 1, 600'000},
          WindowEdges{start + 250'000, 1, 2, 0}, WindowEdges{start - 1, 600'002, 2, 0}}) {
      for (const auto& [from, to] : {std::pair(start, start + 599'000), std::pair(start + 1, start + 598'999),
                                     std::pair(start - 1, start + 249'000)}) {
        const std::vector<LabelMatcher> matchers{label_is("__name__", name)};
        const auto selection = engine_->select(matchers, {.from_ms = from, .to_ms = to}).value();
        ASSERT_EQ(selection->size(), 1u);
        SampleColumns all, rest;
        std::vector<SampleStretch> stretches;
        ASSERT_TRUE(selection->samples(0, from, to, all).ok());
        ASSERT_TRUE(selection->stretches(0, from, to, edges, rest, stretches).ok());
        stretches_seen += stretches.size();
        size_t at = 0, used = 0;
        auto take_rest = [&](size_t end) {
          for (; used < end; ++used, ++at) {
            ASSERT_LT(at, all.times_ms.size());
            ASSERT_EQ(rest.times_ms[used], all.times_ms[at]);
            ASSERT_EQ(rest.values[used], all.values[at]);
          }
        };
        for (const SampleStretch& stretch : stretches) {
          take_rest(stretch.before);
          ASSERT_NO_FATAL_FAILURE(expect_stretch(stretch, all, at));
          EXPECT_FALSE(edges.cut(stretch.first_ms, stretch.last_ms));
          EXPECT_EQ(stretch.sum_is_exact, name[0] == 'w');
          at += stretch.count;
        }
        take_rest(rest.times_ms.size());
        EXPECT_EQ(at, all.times_ms.size());
      }
    }
  }
  EXPECT_EQ(stretches_seen, 44u);
}

// Each tier is asked from the spacing on that it has, and a point stands at the end of its stretch for all samples in
// it, the one at the end included and the one at the beginning not.
TEST_F(MetricBorders, ATierAnswersFromItsSpacingOnWithEverySampleInItsOwnStretch) {
  options_.merge_ms = 0;
  options_.late_ms = int64_t{1} << 50;
  open();
  constexpr int64_t kHour = 3'600'000;
  const int64_t start = now() / kHour * kHour - 3 * kHour;
  std::map<int64_t, double> raw;
  for (int64_t i = 0; i <= 2 * 3600 / 12; ++i) {
    const double value = static_cast<double>(i * 37 % 101) - 50;
    push("g", start + i * 12'000, value);
    raw[start + i * 12'000] = value;
  }
  ASSERT_TRUE(engine_->seal().ok());
  ASSERT_TRUE(*engine_->merge());
  struct Case {
    int64_t spacing_ms, stretch_ms;
  };
  for (const Case& one : {Case{0, 0}, Case{59'999, 0}, Case{60'000, 60'000}, Case{kHour - 1, 60'000},
                          Case{kHour, kHour}, Case{24 * kHour, kHour}}) {
    for (const Rollup rollup : {Rollup::kLast, Rollup::kMin, Rollup::kMax, Rollup::kSum, Rollup::kCount}) {
      std::map<int64_t, double> expected;
      for (const auto& [time_ms, value] : raw) {
        const int64_t at =
            one.stretch_ms == 0 ? time_ms : (time_ms + one.stretch_ms - 1) / one.stretch_ms * one.stretch_ms;
        const bool is_first = !expected.contains(at);
        double& point = expected[at];
        const double alone = rollup == Rollup::kCount ? 1 : value;
        point = is_first                  ? alone
                : rollup == Rollup::kLast ? value
                : rollup == Rollup::kMin  ? std::min(point, value)
                : rollup == Rollup::kMax  ? std::max(point, value)
                                          : point + alone;
      }
      const Found all = found(*engine_, {label_is("__name__", "g")},
                              {.from_ms = start, .to_ms = now(), .spacing_ms = one.spacing_ms, .rollup = rollup});
      const SampleColumns& columns = all.at("g");
      std::map<int64_t, double> there;
      for (size_t i = 0; i < columns.times_ms.size(); ++i) there[columns.times_ms[i]] = columns.values[i];
      EXPECT_EQ(there, expected) << one.spacing_ms << " " << static_cast<int>(rollup);
    }
  }
  const auto selection =
      engine_->select(std::vector{label_is("__name__", "g")}, {.from_ms = start, .to_ms = now(), .spacing_ms = 60'000})
          .value();
  EXPECT_TRUE(selection->has_rollups());
  EXPECT_EQ(engine_->label_names({}, start, now()).value(), (std::vector<std::string>{"__name__"}))
      << "not the tiers' own";
}

TEST(WindowEdges, CutAStretchWhereOneOfThemLiesBetweenItsSamples) {
  const WindowEdges edges{.first_ms = 100, .step_ms = 50, .count = 3, .range_ms = 80};  // 20 70 120, 100 150 200
  std::string cut;
  for (int64_t begin = 0; begin <= 220; begin += 10) cut += edges.cut(begin, begin + 10) ? 'x' : '.';
  EXPECT_EQ(cut, "..x....x..x.x..x....x..") << "the edge at the first sample is behind it, at the last it is not";
  EXPECT_FALSE(edges.cut(100, 100));
  EXPECT_FALSE(edges.cut(110, 100));
  EXPECT_TRUE(edges.cut(101, 121));
  EXPECT_FALSE(edges.cut(101, 120));
  EXPECT_FALSE((WindowEdges{.first_ms = 100, .step_ms = 0, .count = 5, .range_ms = 0}.cut(101, 1'000)));
  EXPECT_FALSE((WindowEdges{.first_ms = 100, .step_ms = 10, .count = 1, .range_ms = 0}.cut(101, 1'000)));
  EXPECT_TRUE((WindowEdges{.first_ms = 100, .step_ms = 10, .count = 2, .range_ms = 0}.cut(101, 1'000)));
}

}  // namespace
}  // namespace lockstep::metrics
