#include "base/memory_budget.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

TEST(MemoryBudget, GivesAUseAsMuchAsIsFreeBesides) {
  MemoryBudget budget(1000, [] { return 0; });
  EXPECT_TRUE(budget.take(MemoryUse::kQueries, 500));
  EXPECT_FALSE(budget.take(MemoryUse::kQueries, 1));
  EXPECT_TRUE(budget.take(MemoryUse::kBodies, 250)) << "the others have room all the same";
  EXPECT_FALSE(budget.take(MemoryUse::kBodies, 1));
  EXPECT_EQ(budget.refused(MemoryUse::kQueries), 1u);
  EXPECT_EQ(budget.refused(MemoryUse::kBodies), 1u);
  budget.give_back(MemoryUse::kQueries, 500);
  EXPECT_TRUE(budget.take(MemoryUse::kQueries, 300));
  budget.give_back(MemoryUse::kQueries, 300);
  budget.give_back(MemoryUse::kBodies, 250);
  EXPECT_EQ(budget.taken(MemoryUse::kBodies), 0u);
}

TEST(MemoryBudget, CountsWhatIsResidentThoughNobodyTookIt) {
  uint64_t resident = 900;
  MemoryBudget budget(1000, [&] { return resident; });
  EXPECT_FALSE(budget.take(MemoryUse::kBodies, 60));
  EXPECT_TRUE(budget.take(MemoryUse::kBodies, 40));
  EXPECT_FALSE(budget.spent());
  EXPECT_EQ(budget.why_spent(), "");
  resident = 1000;
  EXPECT_FALSE(budget.take(MemoryUse::kBodies, 20)) << "more than a sixty-fourth: read again";
  EXPECT_TRUE(budget.spent());
  EXPECT_NE(budget.why_spent().find("limit 1000"), std::string::npos);
  budget.give_back(MemoryUse::kBodies, 40);
}

TEST(MemoryBudget, TellsItsCountersWhatEachUseHolds) {
  MemoryBudget budget(1000, [] { return 70; });
  Counters counters(kMemoryCounters);
  ASSERT_TRUE(budget.take(MemoryUse::kSeries, 10));
  EXPECT_FALSE(budget.take(MemoryUse::kAnswers, 900));
  budget.tick(counters);
  EXPECT_EQ(counters.value("lockstep_memory_bytes", "use=\"series\""), 10);
  EXPECT_EQ(counters.value("lockstep_memory_refused_total", "use=\"answers\""), 1);
  EXPECT_EQ(counters.value("lockstep_memory_resident_bytes"), 70);
  EXPECT_EQ(counters.value("lockstep_memory_max_bytes"), 1000);
  budget.give_back(MemoryUse::kSeries, 10);
}

TEST(MemoryLease, GivesBackWhatItHoldsAndSaysThatItWasRefused) {
  MemoryBudget budget(16u << 20, [] { return 0; });
  {
    MemoryLease lease(&budget, MemoryUse::kDecoding);
    EXPECT_TRUE(lease.hold(1000));
    EXPECT_EQ(budget.taken(MemoryUse::kDecoding), 1000u);
    EXPECT_TRUE(lease.hold(500)) << "it has more";
    EXPECT_TRUE(lease.add(1));
    EXPECT_GE(budget.taken(MemoryUse::kDecoding), 64u << 10) << "in steps, not byte by byte";
    const uint64_t taken = lease.bytes();
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(lease.add(1));
    EXPECT_EQ(lease.bytes(), taken);
    EXPECT_FALSE(lease.was_refused());
    EXPECT_TRUE(lease.hold(8u << 20)) << "what is left, where a step would be too much";
    EXPECT_FALSE(lease.add(8u << 20));
    EXPECT_TRUE(lease.was_refused());
    MemoryLease other = std::move(lease);
    EXPECT_EQ(lease.bytes(), 0u);
    EXPECT_EQ(other.bytes(), 8u << 20);
  }
  EXPECT_EQ(budget.taken(MemoryUse::kDecoding), 0u);
  MemoryLease none;
  EXPECT_TRUE(none.hold(UINT64_MAX));
}

TEST(MemoryPool, TakesInStepsForManyAndGivesBackWhenTheyLeave) {
  MemoryBudget budget(16u << 20, [] { return 0; });
  {
    MemoryPool pool(&budget, MemoryUse::kBodies);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(pool.hold(1000));
    EXPECT_EQ(budget.taken(MemoryUse::kBodies), 1u << 20);
    EXPECT_TRUE(pool.hold(7u << 20));
    EXPECT_FALSE(pool.hold(1u << 20));
    pool.release(7u << 20);
    EXPECT_LT(budget.taken(MemoryUse::kBodies), 4u << 20);
    for (int i = 0; i < 100; ++i) pool.release(1000);
    EXPECT_EQ(budget.taken(MemoryUse::kBodies), 0u);
    EXPECT_TRUE(pool.hold(1));
  }
  EXPECT_EQ(budget.taken(MemoryUse::kBodies), 0u);
}

TEST(MemoryLimit, IsTheLowestOfTheMachineAndTheCgroupsAround) {
  const testing::TemporaryFolder folder;
  const std::string& root = folder.path();
  auto write = [&](const std::string& path, const char* text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:        10 kB\n");
  EXPECT_EQ(memory_limit_bytes(root), 1'024'000u);
  write("/proc/self/cgroup", "0::/system.slice/lockstepd.service\n");
  write("/sys/fs/cgroup/system.slice/lockstepd.service/memory.max", "max\n");
  EXPECT_EQ(memory_limit_bytes(root), 1'024'000u);
  write("/sys/fs/cgroup/system.slice/memory.max", "500000\n");
  EXPECT_EQ(memory_limit_bytes(root), 500'000u);
  write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/pod/one\n");
  write("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "9223372036854771712\n");
  write("/sys/fs/cgroup/memory/pod/one/memory.limit_in_bytes", "400000\n");
  EXPECT_EQ(memory_limit_bytes(root), 400'000u);
}

TEST(MemoryLimit, OfThisProcessIsKnownAndItsResidentMemoryTold) {
  EXPECT_GT(memory_limit_bytes(), 1u << 20);
  EXPECT_LT(memory_limit_bytes(), UINT64_MAX);
  EXPECT_GT(resident_bytes(), 0u);
}

TEST(ReleaseMemory, LeavesAStringNothingWhereAssigningDoesNot) {
  std::string text(1 << 20, 'x');
  release_memory(text);
  EXPECT_LT(text.capacity(), 100u);
}

TEST(MemoryBudget, APartEndsBeforeTheWholeAndGivesBackToBoth) {
  MemoryBudget whole(1000, [] { return uint64_t{0}; });
  MemoryBudget blue(whole, 500), green(whole, 500);
  EXPECT_TRUE(blue.take(MemoryUse::kBodies, 250));
  EXPECT_EQ(whole.taken(MemoryUse::kBodies), 250u);
  EXPECT_FALSE(blue.take(MemoryUse::kQueries, 200)) << "as much as is free besides, of its own part";
  EXPECT_EQ(blue.refused(MemoryUse::kQueries), 1u);
  EXPECT_EQ(whole.refused(MemoryUse::kQueries), 1u) << "who runs the server sees all of them";
  EXPECT_TRUE(green.take(MemoryUse::kQueries, 200)) << "the other has room";
  EXPECT_EQ(green.refused(MemoryUse::kQueries), 0u);
  blue.give_back(MemoryUse::kBodies, 250);
  green.give_back(MemoryUse::kQueries, 200);
  EXPECT_EQ(whole.taken(MemoryUse::kBodies) + whole.taken(MemoryUse::kQueries), 0u);
}

TEST(MemoryBudget, APartSaysNothingOfTheWhole) {
  uint64_t resident = 0;
  MemoryBudget whole(1 << 20, [&] { return resident; });
  MemoryBudget part(whole, 1 << 10);
  EXPECT_EQ(part.why_spent(), "");
  part.set_bytes_max(0);
  EXPECT_TRUE(part.spent());
  EXPECT_EQ(part.why_spent(), "memory: 0 bytes are held (limit 0, --tenant-memory-share); requests are refused");
  part.set_bytes_max(1 << 10);
  resident = 2 << 20;
  Counters counters(kMemoryCounters);
  whole.tick(counters);
  EXPECT_TRUE(part.spent());
  EXPECT_EQ(part.why_spent(), "memory: the server has none left; requests are refused");
  EXPECT_NE(whole.why_spent().find("2097152 are resident"), std::string::npos);
  Counters own(kMemoryCounters);
  part.tick(own);
  EXPECT_EQ(own.value("lockstep_memory_max_bytes"), 1 << 10);
  EXPECT_EQ(own.value("lockstep_memory_resident_bytes"), 0);
}

}  // namespace
}  // namespace lockstep
