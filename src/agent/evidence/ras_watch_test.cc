#include "agent/evidence/ras_watch.h"

#include <gtest/gtest.h>

#include "agent/counters_table.h"
#include "agent/testing.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"

namespace lockstep {
namespace {

using testing::eventually;
using testing::FakeClock;
using testing::FakeRas;

constexpr int64_t kSecond = 1'000'000'000;
constexpr const char* kReport = R"({"nccl_version": "2.30.7", "communicators": [
  {"hash": "0xabc", "size": 3, "ranks": [{"rank": 0, "collective_counts": {"AllReduce": 5, "AllGather": 2}},
                                         {"rank": 1, "collective_counts": {"AllReduce": 4, "AllGather": 2}}],
   "missing_ranks": [{"rank": 2, "host": "10.0.0.7", "pid": 4711,
                      "status": {"unresponsive": true, "considered_dead": false}}]},
  {"hash": "0xdef", "size": 1, "ranks": [{"rank": 0, "collective_counts": {"AllReduce": 9}}]}]})";

struct RasWatchTest : ::testing::Test {
  FakeClock clock;
  Counters counters{kAgentCounters};

  int64_t counted(const char* result) {
    return counters.value("lockstep_agent_ras_queries_total", format("result=\"%s\"", result));
  }
  bool eventually_counted(const char* result, int64_t count) {
    return eventually([&] { return counted(result) == count; });
  }
};

TEST_F(RasWatchTest, AsksOnceInAWhileAsLongAsARankIsSuspected) {
  FakeRas ras(kReport);
  RasWatch watch({.address = ras.address()}, clock, counters);
  watch.consider(false, true);
  EXPECT_EQ(watch.answer(), nullptr);
  for (int i = 0; i < 5; ++i) watch.consider(true, true);
  ASSERT_TRUE(eventually([&] { return watch.answer() != nullptr; }));
  EXPECT_EQ(watch.answer()->number, 1u);
  EXPECT_EQ(watch.answer()->asked_ns, clock.monotonic_ns());
  EXPECT_TRUE(watch.answer()->suspected);
  EXPECT_EQ(watch.answer()->report.comms.size(), 2u);
  clock.advance(29 * kSecond);
  watch.consider(true, true);
  clock.advance(kSecond);
  watch.consider(true, true);
  ASSERT_TRUE(eventually([&] { return watch.answer()->number == 2; }));
  clock.advance(60 * kSecond);
  watch.consider(false, true);
  EXPECT_EQ(ras.connections(), 2);
  EXPECT_EQ(counted("answered"), 2);
}

TEST_F(RasWatchTest, AnNcclThatMayNotStandItIsNeverAsked) {
  FakeRas ras(kReport);
  {
    RasWatch watch({.always = true, .address = ras.address()}, clock, counters);
    for (int i = 0; i < 4; ++i) {
      watch.consider(true, false);
      clock.advance(30 * kSecond);
    }
  }  // whatever was under way is over now
  EXPECT_EQ(ras.connections(), 0);
  EXPECT_EQ(counted("unsafe"), 4);
}

TEST_F(RasWatchTest, SwitchedOffItNeverAsks) {
  FakeRas ras(kReport);
  { RasWatch({.off = true, .address = ras.address()}, clock, counters).consider(true, true); }
  EXPECT_EQ(ras.connections(), 0);
  EXPECT_EQ(counters.sum("lockstep_agent_ras_queries_total"), 0);
}

TEST_F(RasWatchTest, AlwaysMeansAlsoWhileNobodyIsSuspected) {
  FakeRas ras(kReport);
  RasWatch watch({.always = true, .address = ras.address()}, clock, counters);
  watch.consider(false, true);
  ASSERT_TRUE(eventually_counted("answered", 1));
  EXPECT_FALSE(watch.answer()->suspected);
}

TEST_F(RasWatchTest, TellsNobodyThereFromAFailure) {
  uint16_t port = 0;
  { testing::listen_on_loopback(port); }
  RasWatch absent({.address = format("127.0.0.1:%d", port)}, clock, counters);
  absent.consider(true, true);
  EXPECT_TRUE(eventually_counted("absent", 1));
  FakeRas garbage("hello\n");
  RasWatch failing({.address = garbage.address()}, clock, counters);
  failing.consider(true, true);
  EXPECT_TRUE(eventually_counted("failed", 1));
  EXPECT_EQ(failing.answer(), nullptr);
}

TEST_F(RasWatchTest, NobodyWaitsForAServerThatHangs) {
  FakeRas ras("");
  RasWatch watch({.address = ras.address(), .timeout_ms = 500}, clock, counters);
  for (int i = 0; i < 100; ++i) {
    watch.consider(true, true);
    clock.advance(60 * kSecond);
    EXPECT_EQ(watch.answer(), nullptr);
  }
  EXPECT_LE(ras.connections(), 1) << "one question at a time";
  EXPECT_TRUE(eventually([&] { return counted("failed") > 0; }));
}

TEST(RasOption, TakesAnAddressAndTwoWords) {
  EXPECT_FALSE(parse_ras_option("")->off);
  EXPECT_EQ(parse_ras_option("")->address, ras_default_address());
  EXPECT_TRUE(parse_ras_option("off")->off);
  EXPECT_TRUE(parse_ras_option("always")->always);
  EXPECT_EQ(parse_ras_option("[::1]:28028")->address, "[::1]:28028");
  for (const char* wrong : {"on", "localhost", ":1", "localhost:"}) {
    Result<RasWatchOptions> options = parse_ras_option(wrong);
    ASSERT_FALSE(options.ok()) << wrong;
    EXPECT_EQ(options.error(), format("--ras takes HOST:PORT, off or always, not \"%s\"", wrong));
  }
}

TEST(RasOption, AVersionThatIsNotToldIsAsOldAsItsInterface) {
  RecorderHeader header;
  EXPECT_FALSE(ras_is_safe(header));
  header.nccl_interface = 5;
  EXPECT_FALSE(ras_is_safe(header));
  header.nccl_interface = 6;
  EXPECT_TRUE(ras_is_safe(header));
  header.nccl_version = 22809;
  EXPECT_FALSE(ras_is_safe(header));
  header.nccl_version = 23007;
  EXPECT_TRUE(ras_is_safe(header));
}

TEST(RasTrouble, NamesWhoIsMissingAndWhoIsBehind) {
  Result<RasReport> report = parse_ras_json(kReport);
  ASSERT_TRUE(report.ok()) << report.error();
  std::optional<CommRas> trouble = fault_class_of(report->comms[0], true);
  ASSERT_TRUE(trouble);
  CommRas wanted{.comm_id = CommId{0xabc}, .size = 3, .missing_count = 1};
  wanted.missing = {{.rank_in_comm = 2, .host = "10.0.0.7", .pid = 4711, .unresponsive = true}};
  wanted.behind = {{"AllReduce", 4, 5, 1, {1}}};
  EXPECT_EQ(*trouble, wanted);
  EXPECT_FALSE(fault_class_of(report->comms[1], true));
}

TEST(RasTrouble, RanksOfARunningJobDoNotLaunchAtTheSameMoment) {
  Result<RasReport> report = parse_ras_json(kReport);
  ASSERT_TRUE(report.ok());
  RasComm comm = report->comms[0];
  EXPECT_TRUE(fault_class_of(comm, false)->behind.empty());
  comm.missing.clear();
  EXPECT_FALSE(fault_class_of(comm, false));
  EXPECT_TRUE(fault_class_of(comm, true));
}

TEST(RasTrouble, LaunchesAreJoinedByCommunicatorAndRank) {
  Result<RasReport> report = parse_ras_json(kReport);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(launched_by(*report, CommId{0xabc}, 0), 7);
  EXPECT_EQ(launched_by(*report, CommId{0xabc}, 1), 6);
  EXPECT_EQ(launched_by(*report, CommId{0xdef}, 0), 9);
  EXPECT_EQ(launched_by(*report, CommId{0xabc}, 2), -1) << "missing";
  EXPECT_EQ(launched_by(*report, CommId{0x123}, 0), -1) << "another job's";
}

}  // namespace
}  // namespace lockstep
