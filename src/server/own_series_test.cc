#include "server/own_series.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "ingest/counters_table.h"
#include "model/series_labels.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct OwnSeriesTest : ::testing::Test {
  testing::TemporaryFolder folder;
  testing::FakeClock clock{1'800'000'000'000'000'000};
  Counters counters{kServerCounters};
  std::map<std::string, double> told;  // the newest of each, by "name part"
  int pushes = 0;
  OwnSeries series{
      [this](auto pushed, const auto& canonical) -> Result<PushOutcome> {
        ++pushes;
        for (size_t i = 0; i < pushed.size(); ++i) {
          const Labels labels = *canonical(i);
          told[std::string(label_value(labels, "__name__")) + " " + std::string(label_value(labels, "part"))] =
              pushed[i].values[0];
        }
        return PushOutcome{};
      },
      folder.path(), counters, clock};
};

TEST_F(OwnSeriesTest, FilesCountWhereTheyAreAndCapturesOnce) {
  for (const char* one : {"/log", "/metrics/blocks", "/blobs"})
    std::filesystem::create_directories(folder.path() + one);
  for (const auto& [path, bytes] : {std::pair{"/log/1", 100},
                                    {"/metrics/wal", 20},
                                    {"/metrics/blocks/b", 3},
                                    {"/state.sqlite", 7},
                                    {"/blobs/capture", 9'000}})
    ASSERT_TRUE(write_file_atomically(folder.path() + path, std::string(static_cast<size_t>(bytes), 'x')).ok());
  counters.set("lockstep_blob_bytes", "state=\"stored\"", 5'000);
  counters.set("lockstep_memory_resident_bytes", "", 70'000);
  series.tick();
  EXPECT_GT(told.at("lockstep_server_cpu_seconds_total "), 0);
  told.erase("lockstep_server_cpu_seconds_total ");
  EXPECT_EQ(told, (std::map<std::string, double>{{"lockstep_server_memory_bytes ", 70'000},
                                                 {"lockstep_server_disk_bytes log", 100},
                                                 {"lockstep_server_disk_bytes metrics", 23},
                                                 {"lockstep_server_disk_bytes files", 7},
                                                 {"lockstep_server_disk_bytes blobs", 5'000}}));
}

TEST_F(OwnSeriesTest, DiskIsWalkedEveryFourthTimeAndNothingIsWrittenInBetween) {
  series.tick();
  series.tick();
  EXPECT_EQ(pushes, 1);
  for (int turn = 1; turn <= OwnSeries::kTurnsPerWalk; ++turn) {
    told.clear();
    clock.advance(OwnSeries::kEveryNs);
    series.tick();
    EXPECT_EQ(told.count("lockstep_server_disk_bytes blobs"), turn == OwnSeries::kTurnsPerWalk ? 1u : 0u) << turn;
    EXPECT_EQ(told.count("lockstep_server_memory_bytes "), 1u);
  }
}

}  // namespace
}  // namespace lockstep
