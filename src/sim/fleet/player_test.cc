#include "sim/fleet/player.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "testing/eventually.h"

namespace lockstep::sim {
namespace {

const JobShape kSmall{.tp = 2, .pp = 2, .dp = 4, .step_ms = 20};

// Counts what came, per event and rank.
struct Heard {
  Mutex mutex;
  std::map<std::string, std::map<Rank, int64_t>> events;
  std::map<std::string, int64_t> batches;
  std::vector<RankStatus> statuses;
  std::vector<int64_t> times;
  int64_t unclean = 0, points = 0;

  void operator()(const Batch& batch, std::stop_token) {
    MutexLock lock(mutex);
    for (const ResourceGroup& group : batch.groups) {
      Result<Identity> identity = identity_from_resource(group.resource);
      ASSERT_TRUE(identity.ok()) << identity.error();
      points += static_cast<int64_t>(group.points.size());
      for (const LogRecord& record : group.logs) {
        ++events[record.event_name][identity->rank];
        if (record.event_name == kEventTrainStep) times.push_back(record.time_unix_ns);
        if (record.event_name == kEventRankStatus) statuses.push_back(*status_from_record(record));
        if (record.event_name == kEventJobEnd && !std::get<bool>(find(record.attributes, "clean")->data)) ++unclean;
      }
    }
    if (!batch.groups.empty() && !batch.groups[0].logs.empty()) ++batches[batch.groups[0].logs[0].event_name];
  }
  PlayerOptions options(int64_t steps, double speed) {
    return {.steps = steps, .speed = speed, .deliver = [this](const Batch& batch, std::stop_token stop) {
              (*this)(batch, stop);
            }};
  }
};

TEST(Player, TellsWhatAnAgentPerHostWouldTellAndEndsClean) {
  Heard heard;
  Player player(kSmall, heard.options(300, 200));
  player.run({});
  EXPECT_EQ(player.step(), 299_step);
  for (Rank rank : all_ranks(16)) {
    EXPECT_EQ(heard.events["job.start"][rank], 1);
    EXPECT_EQ(heard.events["comm.init"][rank], 4);
    EXPECT_EQ(heard.events["train.step"][rank], 300);
    EXPECT_EQ(heard.events["job.end"][rank], 1);
  }
  EXPECT_EQ(heard.batches["train.step"], 600) << "two hosts, one request each per step";
  EXPECT_EQ(heard.unclean, 0);
  EXPECT_TRUE(heard.statuses.empty());
  EXPECT_GT(heard.points, 0);
}

TEST(Player, StaysOutOfTheFutureWhenPlayedFast) {
  Heard heard;
  Player player(kSmall, heard.options(500, 500));
  const int64_t began = SystemClock().unix_ns();
  player.run({});
  const int64_t now = SystemClock().unix_ns();
  // What is allowed for: compilation in the first steps (70 ms here) and the error of the hosts' clocks.
  EXPECT_LT(*std::max_element(heard.times.begin(), heard.times.end()), now + 500'000'000);
  EXPECT_GT(*std::max_element(heard.times.begin(), heard.times.end()), began - 2'000'000'000);
}

TEST(Player, AnnouncesEachFaultWhenItBeginsAndEnds) {
  Heard heard;
  PlayerOptions options = heard.options(30, 200);
  options.faults = {{.kind = FaultKind::kSlowGpu, .rank = 3_rank, .from_step = 10_step, .steps = 5},
                    {.kind = FaultKind::kSlowInput, .rank = 1_rank, .from_step = 12_step}};
  std::vector<std::string> changes;
  options.on_fault = [&](const FaultChange& change) {
    changes.push_back((change.began ? "+" : "-") + std::to_string(change.fault.rank.value()) + "@" +
                      std::to_string(change.step.value()));
  };
  Player(kSmall, options).run({});
  EXPECT_EQ(changes, (std::vector<std::string>{"+3@10", "+1@12", "-3@15"}));
}

TEST(Player, TellsWhereEveryRankStandsWhileOneIsMissingAndEndsUnclean) {
  Heard heard;
  PlayerOptions options = heard.options(1000, 20);  // slow enough for a busy machine to report often
  options.faults = {{.kind = FaultKind::kMissingRank, .rank = 6_rank, .from_step = 10_step}};
  Player player(kSmall, options);
  player.run({});
  EXPECT_EQ(player.step(), 9_step);
  EXPECT_EQ(heard.unclean, 16);
  ASSERT_GE(heard.statuses.size(), 3u * 16u);
  EXPECT_GE(heard.statuses.front().quiet_ns, 1'900'000'000);
  EXPECT_GT(heard.statuses[32].quiet_ns, heard.statuses[0].quiet_ns + 900'000'000) << "ever longer";
  EXPECT_FALSE(heard.statuses.back().process_alive);
}

TEST(Player, GoesOnAfterAFaultIsCleared) {
  Heard heard;
  PlayerOptions options = heard.options(0, 1);
  Player player(kSmall, options);
  std::jthread thread([&](std::stop_token stop) { player.run(stop); });
  ASSERT_TRUE(lockstep::testing::eventually([&] { return player.step() >= 2_step; }));
  player.inject({.kind = FaultKind::kMissingRank, .rank = 2_rank});
  ASSERT_TRUE(lockstep::testing::eventually([&] { return player.hung(); }));
  const StepNumber stuck_at = player.step();
  player.clear();
  EXPECT_TRUE(lockstep::testing::eventually([&] { return player.step() > stuck_at + 3; }));
  EXPECT_FALSE(player.hung());
}

TEST(Player, ReadsItsNodesAndSendsStacksThatWereAskedForWhileItIsStuckToo) {
  Heard heard;
  PlayerOptions options = heard.options(60, 100);
  options.faults = {{.kind = FaultKind::kMissingRank, .rank = 3_rank, .from_step = 20_step}};
  int64_t reads = 0, reads_while_stuck = 0;
  options.nodes = [&](const Fleet& fleet, std::span<const Fault> active, int64_t, std::stop_token) {
    ++reads;
    reads_while_stuck += fleet.hung() && !active.empty();
  };
  std::vector<Rank> wanted = {0_rank, 3_rank, 99_rank};
  options.stacks_wanted = [&] { return std::exchange(wanted, {}); };
  Player player(kSmall, options);
  player.run({});
  EXPECT_GE(reads, 20);
  EXPECT_GT(reads_while_stuck, 0);
  EXPECT_EQ(heard.events["rank.stack"], (std::map<Rank, int64_t>{{0_rank, 1}, {3_rank, 1}}));
}

}  // namespace
}  // namespace lockstep::sim
