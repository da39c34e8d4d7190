// What every pair of MetricWriter and MetricReader promises (store/metric_writer.h, metric_reader.h). A new backing
// joins by one row in kWorlds; a world may do what it likes between writing and reading (seal, merge, start again).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <thread>

#include "store/metrics/engine_world.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::metrics {
namespace {

class World {
 public:
  virtual ~World() = default;
  virtual MetricWriter& writer() = 0;
  // Called between writing and reading.
  virtual const MetricReader& reader() = 0;
  testing::FakeClock clock{kStartNs};
};

class EngineWorld final : public World {
 public:
  enum class Between { kNothing, kSeals, kStartsAgain, kSealsHalf, kMerges };
  explicit EngineWorld(Between between) : between_(between) { start(); }
  MetricWriter& writer() override {
    if (between_ == Between::kSealsHalf && ++asked_ % 2 == 0) seal();
    if (between_ == Between::kMerges && ++asked_ % 3 == 0) {
      seal();
      EXPECT_TRUE(engine_->merge().ok());
    }
    return *engine_;
  }
  const MetricReader& reader() override {
    if (between_ == Between::kSeals) seal();
    if (between_ == Between::kStartsAgain) start();
    if (between_ == Between::kMerges) {
      seal();
      Result<bool> merged = engine_->merge();
      EXPECT_TRUE(merged.ok()) << merged.error();
    }
    return *engine_;
  }

 private:
  void seal() {
    Result<void> sealed = engine_->seal();
    EXPECT_TRUE(sealed.ok()) << sealed.error();
  }
  void start() {
    engine_.reset();
    MetricEngineOptions options;
    options.folder = folder_.path();
    options.background = false;
    options.merge_ms = 0;
    options.labels.forbidden = {"step"};
    Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options, clock, counters_);
    EXPECT_TRUE(engine.ok());
    engine_ = std::move(*engine);
  }
  const Between between_;
  int asked_ = 0;
  testing::TemporaryFolder folder_;
  Counters counters_{kStoreCounters};
  std::unique_ptr<MetricEngine> engine_;
};

struct WorldRow {
  const char* name;
  std::function<std::unique_ptr<World>()> make;
};
template <EngineWorld::Between between>
std::unique_ptr<World> engine_world() {
  return std::make_unique<EngineWorld>(between);
}
const WorldRow kWorlds[] = {
    {"memory", engine_world<EngineWorld::Between::kNothing>},
    {"sealed", engine_world<EngineWorld::Between::kSeals>},
    {"started_again", engine_world<EngineWorld::Between::kStartsAgain>},
    {"sealed_between_pushes", engine_world<EngineWorld::Between::kSealsHalf>},
    {"merged", engine_world<EngineWorld::Between::kMerges>},
};

class MetricEngineContract : public ::testing::TestWithParam<WorldRow> {
 protected:
  std::unique_ptr<World> world_ = GetParam().make();
  int64_t now() const { return world_->clock.unix_ms(); }
};

TEST_P(MetricEngineContract, GivesBackWhatWasPushedInTimeOrder) {
  for (int64_t i = 0; i < 100; ++i) {
    Result<PushOutcome> outcome = TestPush()
                                      .add("power{host=a}", now() + i * 1000, 600.125 + static_cast<double>(i))
                                      .add("power{host=b}", now() + i * 1000, 1.0 / (1 + static_cast<double>(i)))
                                      .add("constant{host=a}", now() + i * 1000, 7)
                                      .to(world_->writer());
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->stored, 3u);
  }
  const MetricReader& reader = world_->reader();
  const Found power = found(reader, "power");
  ASSERT_EQ(power.size(), 2u);
  const SampleColumns& a = power.at("power{host=a}");
  ASSERT_EQ(a.times_ms.size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(a.times_ms[i], now() + static_cast<int64_t>(i) * 1000);
    EXPECT_EQ(a.values[i], 600.125 + static_cast<double>(i));
    EXPECT_EQ(power.at("power{host=b}").values[i], 1.0 / (1 + static_cast<double>(i)));
  }
  EXPECT_EQ(found(reader, "constant").at("constant{host=a}").values, std::vector<double>(100, 7));
  EXPECT_EQ(found(reader, "power", now() + 10'000, now() + 12'000).at("power{host=a}").times_ms.size(), 3u);
  EXPECT_TRUE(found(reader, "power", now() + 500'000, now() + 600'000).empty());
  EXPECT_TRUE(found(reader, "nothing").empty());
}

TEST_P(MetricEngineContract, AsksForLabelsOnlyOncePerSeriesAndStream) {
  auto push = [&](int64_t time_ms) {
    TestPush one;
    for (int i = 0; i < 50; ++i) one.add("m{i=" + std::to_string(i) + "}", time_ms, i);
    EXPECT_TRUE(one.to(world_->writer()).ok());
    return one.asked;
  };
  EXPECT_EQ(push(now()), 50u);
  EXPECT_EQ(push(now() + 1000), 0u);
  EXPECT_EQ(push(now() + 2000), 0u);
  EXPECT_EQ(found(world_->reader(), "m").size(), 50u);
}

TEST_P(MetricEngineContract, OrderAndGapsOfPushesDoNotMatter) {
  std::mt19937_64 random(5);
  std::map<std::string, std::map<int64_t, double>> expected;
  for (int round = 0; round < 60; ++round) {
    TestPush push;
    const int64_t time_ms = now() + round * 1000 - (round % 7 == 3 ? 20'500 : 0);
    std::vector<int> order;
    for (int i = 0; i < 20; ++i) order.push_back(i);
    if (round % 3 == 0) std::shuffle(order.begin(), order.end(), random);
    for (int i : order) {
      if (random() % 4 == 0) continue;
      const std::string name = "m{i=" + std::to_string(i) + "}";
      const double value = static_cast<double>(random() % 1000) / 10;
      push.add(name, time_ms, value);
      expected[name][time_ms] = value;
    }
    ASSERT_TRUE(push.to(world_->writer(), round % 2 == 0 ? "one" : "two").ok());
  }
  const Found all = found(world_->reader(), "m");
  ASSERT_EQ(all.size(), expected.size());
  for (const auto& [name, samples] : expected) {
    const SampleColumns& columns = all.at(name);
    ASSERT_EQ(columns.times_ms.size(), samples.size()) << name;
    size_t i = 0;
    for (const auto& [time_ms, value] : samples) {
      EXPECT_EQ(columns.times_ms[i], time_ms);
      EXPECT_EQ(columns.values[i++], value);
    }
  }
}

TEST_P(MetricEngineContract, SamplesOfOneSeriesFromTwoStreamsReadAsOneSeries) {
  for (int64_t i = 0; i < 40; ++i) {
    const std::string stream = i % 2 == 0 ? "first agent" : "second agent";
    ASSERT_TRUE(TestPush().add("m{a=b}", now() + i * 1000, static_cast<double>(i)).to(world_->writer(), stream).ok());
  }
  const Found all = found(world_->reader(), "m");
  ASSERT_EQ(all.size(), 1u);
  ASSERT_EQ(all.at("m{a=b}").values.size(), 40u);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(all.at("m{a=b}").values[i], static_cast<double>(i));
}

TEST_P(MetricEngineContract, TheLastOfTwoValuesForOneTimeWins) {
  ASSERT_TRUE(TestPush().add("m", now(), 1).to(world_->writer()).ok());
  ASSERT_TRUE(TestPush().add("m", now() + 1000, 5).to(world_->writer()).ok());
  ASSERT_TRUE(TestPush().add("m", now(), 2).to(world_->writer()).ok());
  ASSERT_TRUE(TestPush().add("m", now(), 2).to(world_->writer()).ok());
  EXPECT_EQ(found(world_->reader(), "m").at("m").values, (std::vector<double>{2, 5}));
}

TEST_P(MetricEngineContract, KeepsEveryBitOfOddDoubles) {
  const double odd[] = {-0.0,
                        std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(),
                        std::bit_cast<double>(kStaleBits),
                        std::bit_cast<double>(uint64_t{0x7FF8'0000'0000'1234}),
                        std::numeric_limits<double>::denorm_min(),
                        std::numeric_limits<double>::max(),
                        0.1,
                        -1e300};
  for (size_t i = 0; i < std::size(odd); ++i)
    ASSERT_TRUE(TestPush().add("m", now() + static_cast<int64_t>(i), odd[i]).to(world_->writer()).ok());
  const Found all = found(world_->reader(), "m");
  ASSERT_EQ(all.at("m").values.size(), std::size(odd));
  for (size_t i = 0; i < std::size(odd); ++i)
    EXPECT_EQ(std::bit_cast<uint64_t>(all.at("m").values[i]), std::bit_cast<uint64_t>(odd[i]));
}

TEST_P(MetricEngineContract, ManySamplesOfASeriesInOnePush) {
  std::vector<int64_t> times;
  std::vector<double> values;
  for (int64_t i = 0; i < 300; ++i) {
    times.push_back(now() - 300'000 + i * 1000);
    values.push_back(static_cast<double>(i % 17) / 4);
  }
  TestPush push;
  for (int i = 0; i < 5; ++i) push.add("m{i=" + std::to_string(i) + "}", times, values);
  Result<PushOutcome> outcome = push.to(world_->writer());
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->stored, 1500u);
  const Found all = found(world_->reader(), "m");
  ASSERT_EQ(all.size(), 5u);
  for (const auto& [name, columns] : all) {
    EXPECT_EQ(columns.times_ms, times);
    EXPECT_EQ(columns.values, values);
  }
}

TEST_P(MetricEngineContract, MatchersMeanWhatPrometheusMeans) {
  TestPush push;
  for (const char* text : {"m{host=a,gpu=0}", "m{host=a,gpu=1}", "m{host=b,gpu=0}", "m{host=c}", "n{host=a}"})
    push.add(text, now(), 1);
  ASSERT_TRUE(push.to(world_->writer()).ok());
  const MetricReader& reader = world_->reader();
  using Op = LabelMatcher::Op;
  auto count = [&](std::vector<LabelMatcher> matchers) {
    return found(reader, matchers, {.from_ms = now(), .to_ms = now()}).size();
  };
  const LabelMatcher m = label_is("__name__", "m");
  EXPECT_EQ(count({m}), 4u);
  EXPECT_EQ(count({m, label_is("host", "a")}), 2u);
  EXPECT_EQ(count({m, label_is("gpu", "")}), 1u);
  EXPECT_EQ(count({m, {"gpu", Op::kNotEqual, ""}}), 3u);
  EXPECT_EQ(count({m, {"gpu", Op::kNotEqual, "0"}}), 2u);
  EXPECT_EQ(count({m, {"host", Op::kRegex, "a|c"}}), 3u);
  EXPECT_EQ(count({m, {"host", Op::kRegex, "[ab]"}}), 3u);
  EXPECT_EQ(count({m, {"host", Op::kRegex, "a"}}), 2u);
  EXPECT_EQ(count({m, {"host", Op::kNotRegex, "a.*"}}), 2u);
  EXPECT_EQ(count({m, {"gpu", Op::kRegex, "0|"}}), 3u);
  EXPECT_EQ(count({m, {"gpu", Op::kRegex, ".*"}}), 4u);
  EXPECT_EQ(count({m, {"gpu", Op::kRegex, ".+"}}), 3u);
  EXPECT_EQ(count({m, {"rank", Op::kNotEqual, "x"}}), 4u);
  EXPECT_EQ(count({{"__name__", Op::kRegex, "m|n"}, label_is("host", "a")}), 3u);
  EXPECT_FALSE(reader.select(std::vector<LabelMatcher>{{"host", Op::kNotEqual, "x"}}, {}).ok());
  EXPECT_FALSE(reader.select(std::vector<LabelMatcher>{{"host", Op::kRegex, "("}}, {}).ok());
  EXPECT_FALSE(reader.select(std::vector<LabelMatcher>{m}, {.from_ms = now(), .to_ms = now(), .series_max = 3}).ok());

  EXPECT_EQ(*reader.label_names({}, now(), now()), (std::vector<std::string>{"__name__", "gpu", "host"}));
  EXPECT_EQ(*reader.label_values("host", {}, now(), now()), (std::vector<std::string>{"a", "b", "c"}));
  const std::vector<std::vector<LabelMatcher>> any{{label_is("__name__", "n")}, {m, label_is("host", "c")}};
  EXPECT_EQ(*reader.label_names(any, now(), now()), (std::vector<std::string>{"__name__", "host"}));
  EXPECT_EQ(*reader.label_values("host", any, now(), now()), (std::vector<std::string>{"a", "c"}));
}

TEST_P(MetricEngineContract, RefusesByReasonAndTakesTheRest) {
  ASSERT_TRUE(TestPush().add("m", now(), 1).to(world_->writer()).ok());
  Result<PushOutcome> outcome = TestPush()
                                    .add("m", now() + 86'400'000, 1)
                                    .add("m", now() - 25 * 3'600'000, 1)
                                    .add("m{step=7}", now(), 1)
                                    .add("{a=b}", now(), 1)
                                    .add("m", now() + 1000, 2)
                                    .to(world_->writer());
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->stored, 1u);
  std::map<std::string, uint64_t> reasons;
  for (const RefusedSamples& refused : outcome->refused) {
    reasons[refused.reason] = refused.samples;
    EXPECT_FALSE(refused.example.empty());
    EXPECT_EQ(refused.example.find('\n'), std::string::npos);
  }
  EXPECT_EQ(reasons, (std::map<std::string, uint64_t>{
                         {"future", 1}, {"too_old", 1}, {"label_forbidden", 1}, {"labels_invalid", 1}}));
  EXPECT_EQ(found(world_->reader(), "m").at("m").values, (std::vector<double>{1, 2}));
}

TEST_P(MetricEngineContract, KeepsHistogramsExemplarsAndMetadata) {
  NativeHistogram histogram;
  histogram.schema = 3;
  histogram.count = 12;
  histogram.sum = 18.4;
  histogram.positive_spans = {{0, 2}, {1, 1}};
  histogram.positive = {3, 4, 5};
  ASSERT_TRUE(TestPush()
                  .histogram("latency{a=b}", now(), histogram)
                  .exemplar({{{"trace_id", "abc"}}, 0.5, now() - 10})
                  .add("power", now(), 3)
                  .to(world_->writer())
                  .ok());
  world_->writer().set_metadata("power", "gauge", "Board power.", "W");
  const MetricReader& reader = world_->reader();
  const Found all = found(reader, "latency");
  ASSERT_EQ(all.at("latency{a=b}").histograms.size(), 1u);
  EXPECT_EQ(*all.at("latency{a=b}").histograms[0], histogram);
  EXPECT_TRUE(found(reader, "power").at("power").histograms.empty());
  Result<std::vector<Exemplar>> exemplars =
      reader.exemplars(std::vector<LabelMatcher>{label_is("__name__", "latency")}, now() - 100, now());
  ASSERT_TRUE(exemplars.ok());
  ASSERT_EQ(exemplars->size(), 1u);
  EXPECT_EQ((*exemplars)[0].labels, (Labels{{"trace_id", "abc"}}));
  EXPECT_EQ((*exemplars)[0].time_ms, now() - 10);
  ASSERT_EQ(reader.metadata().size(), 1u);
  EXPECT_EQ(reader.metadata()[0].unit, "W");
}

TEST_P(MetricEngineContract, ASelectionIsASnapshot) {
  for (int64_t i = 0; i < 40; ++i) ASSERT_TRUE(TestPush().add("m", now() + i, 1).to(world_->writer()).ok());
  Result<std::unique_ptr<MetricSelection>> selection = world_->reader().select(
      std::vector<LabelMatcher>{label_is("__name__", "m")}, {.from_ms = 0, .to_ms = now() + 1'000'000});
  ASSERT_TRUE(selection.ok());
  for (int64_t i = 40; i < 90; ++i) ASSERT_TRUE(TestPush().add("m", now() + i, 1).to(world_->writer()).ok());
  SampleColumns columns;
  ASSERT_TRUE((*selection)->samples(0, 0, now() + 1'000'000, columns).ok());
  EXPECT_EQ(columns.times_ms.size(), 40u);
  EXPECT_EQ(found(world_->reader(), "m").at("m").times_ms.size(), 90u);
}

TEST_P(MetricEngineContract, WritersAndReadersWorkAtOnce) {
  const MetricReader& reader = world_->reader();
  MetricWriter& writer = world_->writer();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        TestPush push;
        for (int k = 0; k < 10; ++k)
          push.add("m{t=" + std::to_string(t) + ",k=" + std::to_string(k) + "}", now() + i, static_cast<double>(i));
        EXPECT_TRUE(push.to(writer, "stream " + std::to_string(t)).ok());
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    for (const auto& [name, columns] : found(reader, "m"))
      EXPECT_TRUE(std::is_sorted(columns.times_ms.begin(), columns.times_ms.end()));
  }
  for (std::thread& thread : threads) thread.join();
  const Found all = found(reader, "m");
  EXPECT_EQ(all.size(), 30u);
  for (const auto& [name, columns] : all) EXPECT_EQ(columns.times_ms.size(), 200u);
}

INSTANTIATE_TEST_SUITE_P(Worlds, MetricEngineContract, ::testing::ValuesIn(kWorlds),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lockstep::metrics
