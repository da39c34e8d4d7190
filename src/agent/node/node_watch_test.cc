#include "agent/node/node_watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "agent/counters_table.h"
#include "agent/testing.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;
using testing::FakeClock;
using testing::TemporaryFolder;

constexpr int64_t kSecond = 1'000'000'000;
constexpr MetricDescriptor kRow{
    .name = "lockstep_test_value", .unit = "1", .kind = MetricKind::kGauge, .labels = "", .help = "A value."};

class FakeSource final : public NodeSource {
 public:
  const char* name() const override { return "fake"; }
  void read(const Tick& tick, NodeReadings& out) override {
    if (stuck) {
      inside = true;
      EXPECT_TRUE(eventually([&] { return !stuck; }));
    }
    ++reads;
    slow_reads += tick.slow;
    out.add(kRow, std::make_shared<const Labels>(), value);
    if (event.exchange(false))
      out.events.push_back({.name = "link.down",
                            .time_unix_ns = tick.unix_ns,
                            .severity = EventSeverity::kWarn,
                            .device = "eth4",
                            .job_id = "job-7",
                            .rank = 3_rank,
                            .source = "sysfs"});
  }
  std::vector<SourceCheck> check() override { return {{"fake files", false, "not there", "make them"}}; }

  std::atomic<bool> stuck{false}, inside{false}, event{false};
  std::atomic<int> reads{0}, slow_reads{0};
  std::atomic<double> value{1};
};

struct NodeWatchTest : ::testing::Test {
  TemporaryFolder root;
  FakeClock clock;
  Counters counters{kAgentCounters};
  FakeSource* source = nullptr;
  std::unique_ptr<NodeWatch> node;

  void start(double cpu_budget = 100) {
    auto made = std::make_unique<FakeSource>();
    source = made.get();
    std::vector<std::unique_ptr<NodeSource>> sources;
    sources.push_back(std::move(made));
    NodeOptions options{.host = "gpu-017", .cpu_budget = cpu_budget, .gpus = false};
    options.who.root = root.path();
    node = std::make_unique<NodeWatch>(options, std::move(sources), clock, counters);
    node->start();
    ASSERT_TRUE(eventually([&] { return source->reads > 0; }));
  }
  // So many seconds of the agent's clock, each of which is read.
  void live(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      const int before = source->reads;
      clock.advance(kSecond);
      ASSERT_TRUE(eventually([&] { return source->reads > before; }));
    }
  }
  std::vector<std::string> events_of(const CollectedBatch& batch) {
    std::vector<std::string> names;
    for (const ResourceGroup& group : batch.logs) {
      for (const LogRecord& record : group.logs) names.push_back(record.event_name);
    }
    return names;
  }
};

TEST_F(NodeWatchTest, ReadsEverySecondAndSendsWhatHasChangedEveryFive) {
  start();
  live(20);
  EXPECT_EQ(source->reads, 21);
  EXPECT_LE(source->slow_reads, 3);
  int reported = 0;
  for (const ResourceGroup& group : node->take().metrics) {
    EXPECT_EQ(find_string(group.resource, "host.name"), "gpu-017");
    for (const MetricPoint& point : group.points) reported += point.name == "lockstep_test_value";
  }
  EXPECT_EQ(reported, 1);  // it stayed the same
  source->value = 2;
  live(6);
  reported = 0;
  for (const ResourceGroup& group : node->take().metrics) {
    for (const MetricPoint& point : group.points) reported += point.name == "lockstep_test_value";
  }
  EXPECT_EQ(reported, 1);
  EXPECT_NE(node->page(false).find("lockstep_test_value{host=\"gpu-017\"} 2\n"), std::string::npos);
}

TEST_F(NodeWatchTest, AnEventIsUrgentAndBelongsToItsJob) {
  start();
  node->take();
  source->event = true;
  live(1);
  CollectedBatch batch;
  ASSERT_TRUE(eventually([&] {
    batch = node->take();
    return !batch.logs.empty();
  }));
  EXPECT_TRUE(batch.urgent);
  EXPECT_EQ(events_of(batch), std::vector<std::string>{"link.down"});
  EXPECT_EQ(find_string(batch.logs[0].resource, "lockstep.job_id"), "job-7");
  EXPECT_EQ(counters.value("lockstep_agent_node_events_total", "severity=\"warn\""), 1);
}

TEST_F(NodeWatchTest, ASourceThatDoesNotComeBackIsNamedAndHoldsUpNobody) {
  start();
  node->take();
  source->stuck = true;
  clock.advance(kSecond);
  ASSERT_TRUE(eventually([&] { return source->inside.load(); }));
  clock.advance(NodeWatch::kStuckNs + kSecond);
  EXPECT_EQ(events_of(node->take()), std::vector<std::string>{"agent.source_stuck"});
  EXPECT_TRUE(events_of(node->take()).empty());  // once
  EXPECT_GE(counters.value("lockstep_agent_source_stuck_seconds", "source=\"fake\""), 10);
  EXPECT_NE(node->page(false).find("lockstep_test_value"), std::string::npos);
  source->stuck = false;
  ASSERT_TRUE(eventually([&] {
    node->take();
    return counters.value("lockstep_agent_source_stuck_seconds", "source=\"fake\"") == 0;
  }));
}

TEST_F(NodeWatchTest, OverItsBudgetItReadsLessOftenAndSaysSo) {
  start(0.0000001);
  std::vector<std::string> seen;
  for (int i = 0; i < 40 && seen.empty(); ++i) {
    volatile double work = 0;
    for (int k = 0; k < 3'000'000; ++k) work = work + 1;  // this test's own CPU time counts as the agent's
    live(1);
    for (const std::string& name : events_of(node->take())) seen.push_back(name);
  }
  EXPECT_EQ(seen, std::vector<std::string>{"agent.shedding"});
  EXPECT_TRUE(eventually(
      [&] { return node->page(false).find("lockstep_agent_shed_level{host=\"gpu-017\"} 1\n") != std::string::npos; }));
}

TEST_F(NodeWatchTest, TheChecksSayWhatIsMissingAndWhatToDo) {
  start();
  ASSERT_TRUE(eventually([&] { return node->checks().size() > 1; }));
  const std::vector<SourceCheck> checks = node->checks();
  EXPECT_EQ(checks[0].what, "GPUs");
  EXPECT_FALSE(checks[0].works);
  EXPECT_EQ(checks[1].what, "fake files");
  EXPECT_EQ(checks[1].todo, "make them");
  EXPECT_TRUE(node->drained()) << "without a reader no GPU is held";
}

}  // namespace
}  // namespace lockstep
