// Small rules of the agent at their very borders: when it slows down, polls, samples, and what a packed step is worth.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <fstream>

#include "agent/detail/detail_keeper.h"
#include "agent/detail/detail_policy.h"
#include "agent/detail/packed_detail.h"
#include "agent/detail/trace_sampler.h"
#include "agent/evidence/evidence_taker.h"
#include "agent/evidence/ras_watch.h"
#include "agent/export/otlp_sender.h"
#include "agent/export/spool.h"
#include "agent/heartbeat.h"
#include "agent/node/gpu_process.h"
#include "agent/node/node_idle.h"
#include "agent/node/node_series.h"
#include "agent/own_cost.h"
#include "agent/privileges.h"
#include "agent/ranks/callback_cost.h"
#include "agent/ranks/poll_plan.h"
#include "agent/ranks/rank_metrics.h"
#include "base/text.h"
#include "recorder/test_process.h"
#include "testing/changed_bytes.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(OwnCost, LooksAtWholeWindowsAndNoLevelIsBeyondTheLast) {
  OwnCost cost(0.03);
  EXPECT_FALSE(cost.note({.cpu_seconds = 5}, 7));
  EXPECT_FALSE(cost.note({.cpu_seconds = 9}, 7 + OwnCost::kWindowNs - 1));
  EXPECT_EQ(cost.cpu_share(), 0);
  EXPECT_FALSE(cost.note({.cpu_seconds = 5.3}, 7 + OwnCost::kWindowNs));
  EXPECT_NEAR(cost.cpu_share(), 0.03, 1e-12);
  std::string levels;
  double used = 5.3;
  int64_t now_ns = 7 + OwnCost::kWindowNs;
  auto window = [&](double share) {
    const std::optional<int> level = cost.note({.cpu_seconds = used += share * 10}, now_ns += OwnCost::kWindowNs);
    levels += level ? std::to_string(*level) : ".";
  };
  for (int i = 0; i < 4; ++i) window(0.0299);
  for (int i = 0; i < 10; ++i) window(0.0301);
  EXPECT_EQ(levels, ".....1.2.3....") << "within the budget nothing; two windows a level";
  levels.clear();
  // At level 3 sources are read 10 times less often, at 2 five times: as much there would be twice as much.
  for (int i = 0; i < 8; ++i) window(0.0076);
  EXPECT_EQ(levels, "........") << "0.0152 is more than half of the budget";
  levels.clear();
  for (int i = 0; i < 5; ++i) window(0.0074);
  window(0.0076);
  for (int i = 0; i < 6; ++i) window(0.0074);
  EXPECT_EQ(levels, "...........2") << "six in a row";
}

TEST(NodeIdle, IsCrowdedBelowAQuarterAndNotAtIt) {
  testing::TemporaryFolder folder;
  ::mkdir((folder.path() + "/proc").c_str(), 0755);
  auto says = [&](const std::string& line) { std::ofstream(folder.path() + "/proc/stat") << line << "\n"; };
  NodeIdle node(folder.path());
  says("cpu  1000 0 0 1000 0 0 0 0");
  EXPECT_FALSE(node.crowded(kSecond));
  says("cpu  1750 0 0 1250 0 0 0 0");
  EXPECT_FALSE(node.crowded(2 * kSecond)) << "a quarter";
  says("cpu  2501 0 0 1499 0 0 0 0");
  EXPECT_TRUE(node.crowded(3 * kSecond)) << "just below";
  says("cpu  2501 0 0 1499 0 0 0 0");
  EXPECT_FALSE(node.crowded(4 * kSecond)) << "no time has passed: nothing is known";
  says("cpu  4501 0 0 1498 0 0 0 0");
  EXPECT_FALSE(node.crowded(5 * kSecond)) << "idle time that falls is none";
  EXPECT_TRUE(parse_core_time("cpu  1 2 3 4").has_value());
  EXPECT_EQ(parse_core_time("cpu  1 2 3 4")->all, 10u);
  EXPECT_FALSE(parse_core_time("cpu  1 2 3").has_value());
  EXPECT_EQ(parse_core_time("cpu  1 1 1 1 1 1 1 1 100 100")->all, 8u) << "guests are counted already";
  EXPECT_EQ(parse_core_time("cpu  1 1 1 5 7 1 1 1")->idle, 12u);
}

TEST(PollPlan, GoesByHowFullTheFullestRingIsAndGrowsByNoMoreThanTwice) {
  PollPlan plan;
  auto interval = [&](int64_t passed_ns, double fill) {
    const int64_t now_ns = plan.due_ns() == 0 ? passed_ns : plan.due_ns() - PollPlan::kFirstNs + passed_ns;
    plan.polled(now_ns, fill);
    return plan.due_ns() - now_ns;
  };
  EXPECT_EQ(interval(1'000, 0.5), PollPlan::kFirstNs) << "nothing is known before the first";
  PollPlan fresh;
  int64_t now_ns = 1'000;
  fresh.polled(now_ns, 0);
  auto next = [&](double fill) {
    now_ns = fresh.due_ns();
    fresh.polled(now_ns, fill);
    return fresh.due_ns() - now_ns;
  };
  EXPECT_EQ(next(0), 2 * PollPlan::kFirstNs);
  EXPECT_EQ(next(0), 4 * PollPlan::kFirstNs);
  EXPECT_EQ(next(0), PollPlan::kUsualNs) << "never more";
  EXPECT_EQ(next(PollPlan::kFillAimed), PollPlan::kUsualNs) << "just as full as it may be";
  EXPECT_EQ(next(2 * PollPlan::kFillAimed), PollPlan::kUsualNs / 2);
  EXPECT_EQ(next(100), PollPlan::kShortestNs);
  EXPECT_EQ(next(0.125), 2 * PollPlan::kShortestNs);
  EXPECT_EQ(fresh.late_ns(), 0);
  fresh.polled(fresh.due_ns() - 5, 0);
  EXPECT_EQ(fresh.late_ns(), 0) << "too early is not late";
}

TEST(TraceSampler, EveryBlockHasOneTurnInAsManySampledStepsAsThereAreTurns) {
  EXPECT_EQ(TraceSampler::turns(0), 1);
  EXPECT_EQ(TraceSampler::turns(64), 1);
  EXPECT_EQ(TraceSampler::turns(65), 3) << "two rounded up to odd";
  EXPECT_EQ(TraceSampler::turns(128), 3);
  EXPECT_EQ(TraceSampler::turns(192), 3);
  EXPECT_EQ(TraceSampler::turns(193), 5);
  EXPECT_EQ(TraceSampler::turns(4096), 65);
  using RankType = decltype(Identity::rank);
  using StepType = decltype(StepDetail::step);
  for (Rank rank : {0_rank, 7_rank, 8_rank, 63_rank, 64_rank, 191_rank}) {
    int turns = 0;
    for (int step = 100; step < 103; ++step) turns += TraceSampler::has_turn(StepType(step), RankType(rank), 192);
    EXPECT_EQ(turns, 1) << rank;
  }
  EXPECT_TRUE(TraceSampler::has_turn(StepType(0), RankType(7), 192));
  EXPECT_FALSE(TraceSampler::has_turn(StepType(0), RankType(8), 192));
  EXPECT_TRUE(TraceSampler::has_turn(StepType(2), RankType(8), 192));
  EXPECT_FALSE(TraceSampler::has_turn(StepType(-1), RankType(0), 1));
  EXPECT_FALSE(TraceSampler::has_turn(StepType(0), RankType(-1), 1));
}

TEST(TraceSampler, TheRateIsTheSmallestPowerOfTwoWithinTheBudget) {
  using StepType = decltype(StepDetail::step);
  auto rate_of = [](double budget, size_t ops, double seconds) {
    TraceSampler sampler(budget);
    Identity identity;
    identity.job_id = "j";
    identity.rank = decltype(identity.rank)(0);
    identity.world_size = 8;
    StepDetail detail;
    detail.step = StepType(0);
    detail.duration_ns = static_cast<int64_t>(seconds * 1e9);
    detail.ops.resize(ops);
    EXPECT_EQ(sampler.wants(identity, detail), budget > 0);
    return sampler.every("j", 0);
  };
  EXPECT_EQ(rate_of(0, 99, 1), 0) << "nothing is sampled";
  EXPECT_EQ(rate_of(4000, 99, 1), 1) << "100 spans of 40 bytes in a second";
  EXPECT_EQ(rate_of(3999, 99, 1), 2);
  EXPECT_EQ(rate_of(2000, 99, 1), 2);
  EXPECT_EQ(rate_of(1999, 99, 1), 4);
  EXPECT_EQ(rate_of(2000, 99, 2), 1);
  EXPECT_EQ(rate_of(1e-9, 99, 1), TraceSampler::kEveryMax);
  EXPECT_EQ(rate_of(4000, 99, 0), 16384) << "a step of no time is taken for a tenth of a millisecond";
  EXPECT_EQ(TraceSampler(100).every("nobody", 0), 0);
}

TEST(CallbackCost, AddsUpWhatEachProcessHasGrownBy) {
  CallbackCost cost;
  RecorderCost before, now;
  for (size_t i = 0; i < now.buckets.size(); ++i) {
    before.buckets[i] = 1;
    now.buckets[i] = 1 + i;
  }
  before.total_ns = 500'000'000;
  now.total_ns = 2'000'000'000;
  cost.add(before, now);
  cost.add({}, before);
  const std::string text = cost.prometheus_text();
  uint64_t count = 0;
  for (size_t i = 0; i < now.buckets.size(); ++i) {
    count += i + 1;
    const std::string bound =
        i < kCostBoundsNs.size() ? format("%g", static_cast<double>(kCostBoundsNs[i]) / 1e9) : "+Inf";
    EXPECT_NE(text.find(format("_bucket{le=\"%s\"} %llu\n", bound.c_str(), static_cast<unsigned long long>(count))),
              std::string::npos)
        << text;
  }
  EXPECT_NE(text.find("_sum 2.000000000\n"), std::string::npos) << text;
  EXPECT_NE(text.find(format("_count %llu\n", static_cast<unsigned long long>(count))), std::string::npos) << text;
}

TEST(Heartbeat, IsStuckOnceItStandsForLongerThanItMay) {
  testing::FakeClock clock;
  Heartbeats all(clock);
  Heartbeat& one = all.add("drain", 1'000);
  EXPECT_EQ(all.stuck(), "");
  one.beat();
  clock.advance(1'000);
  EXPECT_EQ(one.stuck_ns(), 0);
  clock.advance(1);
  EXPECT_EQ(one.stuck_ns(), 1'001);
  EXPECT_TRUE(all.stuck().starts_with("drain has not moved for ")) << all.stuck();
  one.waits();
  EXPECT_EQ(one.stuck_ns(), 0);
}

TEST(ChangedBytes, OfAPackedStepAreRefusedOrReadAsTheyStand) {
  StepDetail detail;
  detail.step = decltype(detail.step)(118);
  detail.start_unix_ns = 1'763'000'000'000'000'000;
  detail.duration_ns = 412'345'678;
  detail.inferred = true;
  detail.left_out = 3;
  detail.phases = {{Phase::kInput, "", detail.start_unix_ns, 2'000'111},
                   {Phase::kOther, "mine", detail.start_unix_ns + 5, 77}};
  detail.notes = {{detail.start_unix_ns + 99, "note"}};
  for (int i = 0; i < 7; ++i) {
    OpSpan op;
    op.comm_id = decltype(op.comm_id)(0xfeed);
    op.comm_size = 8;
    op.p2p = i % 3 == 2;
    op.function = op.p2p ? "Send" : "AllReduce";
    op.datatype = "bfloat16";
    op.seq = static_cast<uint64_t>(90 + i);
    op.ordinal = static_cast<uint64_t>(91 + i * (i == 5 ? 2 : 1));
    op.bytes = 25 << 20;
    op.enqueued_unix_ns = detail.start_unix_ns + i * 1'234;
    op.start_unix_ns = op.enqueued_unix_ns + 45;
    op.duration_ns = 800 + i * 17;
    op.timed = i != 4;
    detail.ops.push_back(op);
  }
  const std::string bytes = pack(detail);
  testing::Fingerprint written;
  written.add(bytes);
  EXPECT_EQ(written.text(), "1 of 188 bytes, 9126ac4a");
  EXPECT_EQ(testing::read_changed(bytes,
                                  [](const std::string& changed) -> std::optional<std::string> {
                                    const Result<StepDetail> read = unpack(changed);
                                    return read.ok() ? std::optional(pack(*read)) : read.error();
                                  }),
            "0 refused, 1316 of 162469 bytes, 5a7a9e4a");
}

// The number behind "CapEff:" and the like.
uint64_t status_word(const std::string& name, int base = 16) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::strtoull(line.c_str() + name.size() + 1, nullptr, base);
  }
  return ~uint64_t{0};
}

TEST(Privileges, RootBecomesAnotherUserWithWhatReadingOtherUsersJobsTakesAndNothingElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  // CAP_DAC_OVERRIDE 1, CAP_DAC_READ_SEARCH 2, CAP_KILL 5, CAP_NET_RAW 13, CAP_SYS_PTRACE 19, CAP_SYSLOG 34.
  const uint64_t kept = status_word("CapPrm") & (1 << 1 | 1 << 2 | 1 << 5 | 1 << 13 | 1 << 19 | uint64_t{1} << 34);
  for (const char* user : {"nobody", "65534", ""}) {
    SCOPED_TRACE(user);
    testing::TemporaryFolder folder;
    const std::string data = folder.path() + "/data", outside = folder.path() + "/outside";
    ASSERT_EQ(::mkdir(data.c_str(), 0700), 0);
    ASSERT_EQ(::mkdir((data + "/spool").c_str(), 0700), 0);
    std::ofstream(data + "/spool/request") << "x";
    std::ofstream(outside) << "x";
    ASSERT_EQ(::symlink(outside.c_str(), (data + "/link").c_str()), 0);
    const bool stays = *user == '\0';
    testing::in_child([&] {
      const Result<std::string> dropped = drop_privileges(user, data);
      CHILD_CHECK(dropped.ok());
      CHILD_CHECK(dropped->starts_with(stays ? "running as user 0 with" : "running as user 65534 with"));
      CHILD_CHECK(::getuid() == (stays ? 0u : 65534u) && ::geteuid() == ::getuid());
      CHILD_CHECK(status_word("CapEff") == kept);
      CHILD_CHECK(status_word("CapPrm") == kept);
      CHILD_CHECK(status_word("CapInh") == 0);
      CHILD_CHECK(status_word("NoNewPrivs", 10) == 1);
      CHILD_CHECK(::access("/proc/self/environ", R_OK) == 0);
    });
    auto owner = [](const std::string& path) {
      struct stat info {};
      EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
      return info.st_uid;
    };
    for (const char* name : {"", "/spool", "/spool/request", "/link"})
      EXPECT_EQ(owner(data + name), stays ? 0u : 65534u) << name;
    EXPECT_EQ(owner(outside), 0u) << "a link is not followed";
  }
  testing::in_child([] {
    CHILD_CHECK(drop_privileges("no such user", "/").error() == "--user no such user: there is no such user");
    CHILD_CHECK(drop_privileges("4294967296", "/").error() == "--user 4294967296: there is no such user");
    CHILD_CHECK(drop_privileges("nobody", "/none/such").error().starts_with("--user nobody: cannot give it the data"));
    CHILD_CHECK(::geteuid() == 0);
    CHILD_CHECK(::setresuid(65534, 65534, 65534) == 0);
    CHILD_CHECK(*drop_privileges("", "/") == "running as user 65534");
    CHILD_CHECK(drop_privileges("root", "/").error() == "--user root: only root can become another user");
  });
}

// Whoever fills in a part of one leaves the rest as it is here: 0 and false mean not known, and no child, no delay are -1.
TEST(AgentValues, WhatNobodyHasSaidIsNothing) {
  const SendResult sent;
  EXPECT_EQ(sent.rejected, 0);
  EXPECT_EQ(sent.retry_after_ms, -1);
  EXPECT_EQ(sent.bytes, 0u);
  EXPECT_EQ(RpcStatus().retry_after_ms, -1);
  const SpooledRequest spooled;
  EXPECT_EQ(spooled.sequence + spooled.bytes, 0u);
  EXPECT_EQ(spooled.records, 0);
  const SpoolPush pushed;
  EXPECT_FALSE(pushed.stored || pushed.disk_full);
  EXPECT_EQ(pushed.dropped.total(), 0);
  const GpuReaderStatus gpus;
  EXPECT_EQ(gpus.pid, -1);
  EXPECT_EQ(gpus.since_unix_ns, 0);
  EXPECT_EQ(gpus.hung_since_unix_ns, 0);
  EXPECT_EQ(gpus.starts, 0);
  EXPECT_EQ(gpus.refused_lines, 0);
  EXPECT_EQ(gpus.skipped_requests, 0);
  const DetailPolicy::Look look;
  EXPECT_FALSE(look.overwritten || look.silence || look.crowded);
  EXPECT_EQ(look.now_ns, 0);
  EXPECT_EQ(look.mask + look.control + look.operations + look.transfers, 0u);
  const HookConfig hook;
  EXPECT_FALSE(hook.off);
  EXPECT_EQ(hook.signal, 0);
  EXPECT_EQ(hook.main_ident, 0u);
  const RasAnswer answer;
  EXPECT_EQ(answer.number, 0u);
  EXPECT_EQ(answer.asked_ns, 0);
  EXPECT_FALSE(answer.suspected);
  const NodeSeries::Counts counts;
  EXPECT_EQ(counts.readings + counts.refused + counts.reported + counts.unchanged, 0u);
  const RecordCounts records;
  EXPECT_EQ(records.overwritten + records.torn, 0u);
  const RankKey key;
  EXPECT_EQ(key.attempt, 0);
  EXPECT_EQ(std::bit_cast<int32_t>(key.rank), 0);
  EXPECT_EQ(OwnUse().cpu_seconds, 0);
  EXPECT_EQ(OwnUse().rss_bytes, 0u);
  EXPECT_EQ(CoreTime().idle + CoreTime().all, 0u);
}

}  // namespace
}  // namespace lockstep
