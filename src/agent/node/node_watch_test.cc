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
    out.failures = failures;
    out.add(kRow, std::make_shared<const Labels>(), value);
    if (event.exchange(false))
      out.events.push_back({.name = "link.down",
                            .time_unix_ns = tick.unix_ns,
                            .severity = severity,
                            .device = "eth4",
                            .job_id = "job-7",
                            .rank = 3_rank,
                            .source = "sysfs"});
  }
  std::vector<SourceCheck> check() override { return {{"fake files", false, "not there", "make them"}}; }

  std::atomic<bool> stuck{false}, inside{false}, event{false};
  std::atomic<int> reads{0}, slow_reads{0}, failures{0};
  std::atomic<EventSeverity> severity{EventSeverity::kWarn};
  std::atomic<double> value{1};
};

struct NodeWatchTest : ::testing::Test {
  TemporaryFolder root;
  FakeClock clock;
  Counters counters{kAgentCounters};
  FakeSource* source = nullptr;
  std::unique_ptr<NodeWatch> node;

  void start(double cpu_budget = 100, const std::string& gpu_reader = "") {
    auto made = std::make_unique<FakeSource>();
    source = made.get();
    std::vector<std::unique_ptr<NodeSource>> sources;
    sources.push_back(std::move(made));
    NodeOptions options{.host = "gpu-017", .cpu_budget = cpu_budget, .gpus = !gpu_reader.empty()};
    options.gpu_reader.command = {"/bin/sh", "-c", gpu_reader};
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
  bool on_page(const std::string& line) {
    return eventually([&] { return node->page(false).find(line + "\n") != std::string::npos; });
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
  EXPECT_EQ(find_int(batch.logs[0].resource, "lockstep.rank"), 3);
  EXPECT_EQ(find_string(batch.logs[0].resource, "lockstep.gpu_uuid"), "") << "of no GPU";
  EXPECT_EQ(counters.value("lockstep_agent_node_events_total", "severity=\"warn\""), 1);
  source->severity = EventSeverity::kInfo;
  source->event = true;
  live(1);
  ASSERT_TRUE(eventually([&] {
    batch = node->take();
    return !batch.logs.empty();
  }));
  EXPECT_FALSE(batch.urgent) << "no more than a piece of news";
}

TEST_F(NodeWatchTest, ASourceThatDoesNotComeBackIsNamedAndHoldsUpNobody) {
  start();
  node->take();
  source->stuck = true;
  clock.advance(kSecond);
  ASSERT_TRUE(eventually([&] { return source->inside.load(); }));
  clock.advance(NodeWatch::kStuckNs);
  EXPECT_TRUE(events_of(node->take()).empty()) << "so long it may take";
  EXPECT_FALSE(node->stop(20)) << "nobody waits for it";
  clock.advance(1);
  CollectedBatch batch = node->take();
  EXPECT_EQ(events_of(batch), std::vector<std::string>{"agent.source_stuck"});
  EXPECT_TRUE(batch.urgent);
  EXPECT_TRUE(events_of(node->take()).empty());  // once
  EXPECT_EQ(counters.value("lockstep_agent_source_stuck_seconds", "source=\"fake\""), 10);
  EXPECT_NE(node->page(false).find("lockstep_test_value"), std::string::npos);
  source->stuck = false;
  ASSERT_TRUE(eventually([&] {
    node->take();
    return counters.value("lockstep_agent_source_stuck_seconds", "source=\"fake\"") == 0;
  }));
  EXPECT_TRUE(node->stop(10'000));
  EXPECT_TRUE(node->stop(0)) << "it has ended";
}

TEST_F(NodeWatchTest, TellsItsOwnWorkAndWhatBecameOfTheStepsDetail) {
  start();
  source->failures = 2;
  live(3);
  EXPECT_TRUE(on_page("lockstep_agent_source_failures_total{host=\"gpu-017\",source=\"fake\"} 6"));
  EXPECT_TRUE(on_page("lockstep_agent_source_seconds{host=\"gpu-017\",source=\"fake\"} 0")) << "the clock stood";
  EXPECT_TRUE(on_page("lockstep_agent_interval_seconds{host=\"gpu-017\"} 1"));
  EXPECT_EQ(node->page(false).find("lockstep_agent_traced_steps_total{"), std::string::npos) << "no step has ended";
  counters.add("lockstep_agent_detail_sent_total", "reason=\"periodic\"", 4);
  counters.add("lockstep_agent_detail_sent_total", "reason=\"asked\"", 3);
  counters.add("lockstep_agent_detail_left_out_total", "reason=\"age\"", 2);
  counters.add("lockstep_agent_detail_left_out_total", "reason=\"bytes\"", 5);
  counters.set("lockstep_agent_detail_bytes", "", 77);
  counters.add("lockstep_agent_detail_steps_total", "", 14);
  live(2);
  EXPECT_TRUE(on_page("lockstep_agent_traced_steps_total{host=\"gpu-017\",result=\"periodic\"} 4"));
  EXPECT_TRUE(on_page("lockstep_agent_traced_steps_total{host=\"gpu-017\",result=\"asked\"} 3"));
  EXPECT_TRUE(on_page("lockstep_agent_traced_steps_total{host=\"gpu-017\",result=\"left_out\"} 7"));
  EXPECT_TRUE(on_page("lockstep_agent_kept_detail_bytes{host=\"gpu-017\"} 77"));
  EXPECT_EQ(node->status(), "gpus: not read (--gpus off)");
}

TEST_F(NodeWatchTest, ReadsGpusByAProcessThatLetsGoOfThemWhereItIsAskedTo) {
  // A script that plays the reader (gpu_process_test.cc).
  start(100,
        "echo '{\"ready\":\"a script\"}'; while read verb number rest; do echo "
        "'{\"request\":'$number',\"unix_ns\":5,\"gpus\":[{\"uuid\":\"GPU-0\",\"info\":{},\"values\":{\"hw.power\":3}}]}"
        "'; "
        "done");
  ASSERT_TRUE(eventually([&] { return node->status().starts_with("gpus: running, by process "); }));
  EXPECT_FALSE(node->drained());
  live(1);
  EXPECT_TRUE(eventually([&] { return node->page(false).find("GPU-0") != std::string::npos; }));
  // Two moments: until this second's reading is over, a value may come between them.
  EXPECT_TRUE(eventually([&] { return node->page(true).starts_with(node->page(false)); }));
  live(5);
  ASSERT_TRUE(eventually([&] { return node->checks().at(0).found == "1 GPUs are read"; }));
  EXPECT_TRUE(node->checks()[0].works);
  node->drain(0);
  EXPECT_FALSE(node->drained()) << "not before its process has gone";
  ASSERT_TRUE(eventually([&] { return node->drained(); }));
  EXPECT_EQ(node->status(), "gpus: drained");
  live(6);
  ASSERT_TRUE(eventually([&] { return node->checks().at(0).found == "drained"; }));
  EXPECT_FALSE(node->checks()[0].works);
  EXPECT_EQ(node->checks()[0].todo, "lockstep-agent resume --data DIR");
  node->resume();
  EXPECT_TRUE(eventually([&] { return node->status().starts_with("gpus: running"); }));
  EXPECT_FALSE(node->drained());
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
