#include "store/steps/step_file.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "testing/hex.h"

namespace lockstep::steps {
namespace {

RankSeen rank_of(Rank rank) {
  RankSeen seen;
  seen.identity = {.job_id = "j",
                   .attempt = 0,
                   .rank = rank,
                   .world_size = 2,
                   .local_rank = rank.value(),
                   .host = "h",
                   .gpu_uuid = format("G%d", rank.value())};
  seen.last_seen_unix_ns = 2'000'000;
  return seen;
}

TEST(StepFile, WritesTheBytesOfTheFormatPage) {
  StepWriter writer = StepFile::start();
  writer.begin_job({.job_id = "j", .attempt = 0, .world_size = 2, .first_seen_unix_ns = 1, .last_seen_unix_ns = 2});
  for (Rank rank : all_ranks(2)) {
    StepSummary summary;
    summary.step = 7_step;
    summary.start_unix_ns = 1'000'000 + rank.value() * 3;
    summary.duration_ns = 500;
    summary.self_ns = 450 - rank.value() * 50;
    summary.comm_ns = 50 + rank.value() * 50;
    summary.split_known = true;
    summary.split_ns = {400, summary.comm_ns, 0, 0, 0, 50 - rank.value() * 50};
    summary.scalars = {{"loss", 2.0}};
    CommStep comm;
    comm.comm_id = CommId{0x1f};
    comm.size = 2;
    comm.rank_in_comm = rank.value();
    comm.count = 1;
    comm.bytes = 4096;
    comm.gpu_ns = comm.shortest_ns = comm.longest_ns = 50 + rank.value() * 50;
    comm.first_start_unix_ns = 1'000'400;
    comm.last_end_unix_ns = comm.first_start_unix_ns + comm.gpu_ns;
    summary.comms = {comm};
    ASSERT_TRUE(writer.add(rank_of(rank), summary));
  }
  const StepWriter::Written written = writer.finish();
  EXPECT_EQ(testing::spaced_hex(std::string_view(written.content).substr(0, 16)),
            "4c 53 53 54 45 50 53 0a 01 00 00 00 00 00 00 00");
  ASSERT_EQ(written.groups.size(), 1u);
  EXPECT_EQ(
      testing::spaced_hex(
          std::string_view(written.content).substr(written.groups[0].place.offset, written.groups[0].place.bytes)),
      "04 01 01 00 02 "                                                           // rank
      "03 02 00 02 02 00 00 02 00 02 "                                            // shapes
      "02 00 0e "                                                                 // step
      "06 01 02 80 89 7a 0c 03 00 e8 07 "                                         // start, duration
      "02 00 00 02 00 00 02 00 00 02 00 00 02 00 00 02 00 00 02 00 00 02 00 00 "  // phases
      "06 01 06 a0 06 32 00 02 00 00 "                                            // self, comm
      "02 00 00 02 00 00 02 00 00 02 00 04 02 00 00 02 00 00 "                    // queue to unseen
      "03 00 a0 06 03 02 00 64 02 00 00 02 00 00 02 00 00 02 00 00 "              // split
      "02 00 02 03 00 80 40 03 02 00 64 02 00 00 02 00 00 "                       // communicators:
      "05 01 02 9a 06 03 02 00 00 02 00 00 02 00 00 "                             // the rest
      "00 00 00 00 00 00 00 "                                                     // flows: none
      "0b 00 80 80 80 80 80 80 80 80 80 01");                                     // scalars
}

TEST(StepFile, SaysWhatIsInItByItsName) {
  StepFileInfo info;
  info.number = 3;
  info.first_sequence = 70;
  info.last_sequence = 90;
  EXPECT_EQ(info.name(), "steps-3-70-90.blk");
  std::optional<StepFileInfo> read = StepFileInfo::from_name(info.name());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, 3u);
  EXPECT_EQ(read->first_sequence, 70u);
  EXPECT_EQ(read->last_sequence, 90u);
  for (const char* name : {"", "steps-.blk", "steps-1-2.blk", "steps-1-2-x.blk", "steps-1-2-3.blk.part", "x"})
    EXPECT_FALSE(StepFileInfo::from_name(name)) << name;
}

TEST(StepFile, RefusesWhatIsNoFileWithOneLine) {
  for (const std::string& content : {std::string(), std::string(100, 'x'), StepFile::start().finish().content}) {
    Result<std::shared_ptr<const StepFile>> file = StepFile::from_bytes(content);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().find('\n'), std::string::npos);
  }
}

TEST(StepBlockSize, ARowOfFiveCommunicatorsTakesLessThanAQuarterOfItsNumbers) {
  // 512 ranks, 16 steps, noise in every time: what the format is for.
  StepWriter writer = StepFile::start();
  writer.begin_job({.job_id = "j"});
  uint64_t state = 1;
  auto noise = [&](int64_t most) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int64_t>((state >> 20) % static_cast<uint64_t>(most));
  };
  size_t rows = 0;
  for (StepNumber step = 0_step; step < 16_step; ++step) {
    for (Rank rank = 0_rank; rank < 512_rank; ++rank, ++rows) {
      StepSummary summary;
      summary.step = step;
      summary.start_unix_ns = 1'700'000'000'000'000'000 + step.value() * 1'000'000'000 + noise(400'000);
      summary.duration_ns = 990'000'000 + noise(8'000'000);
      summary.self_ns = 700'000'000 + noise(20'000'000);
      summary.comm_ns = summary.duration_ns - summary.self_ns;
      for (uint64_t i = 0; i < 5; ++i) {
        CommStep comm;
        comm.comm_id = CommId{0x1234'5678'9abc'0000 + i * 1000 + static_cast<uint64_t>(rank.value() / 8)};
        comm.size = 8;
        comm.rank_in_comm = rank % 8;
        comm.count = 16;
        comm.bytes = 1 << 26;
        comm.gpu_ns = 8'000'000 + noise(1'000'000);
        comm.longest_ns = 600'000 + noise(100'000);
        comm.shortest_ns = 400'000 + noise(50'000);
        comm.first_start_unix_ns = summary.start_unix_ns + 5'000'000 + noise(1'000'000);
        comm.last_end_unix_ns = summary.start_unix_ns + summary.duration_ns - noise(1'000'000);
        comm.queue_ns = noise(2'000'000);
        summary.comms.push_back(comm);
      }
      while (!writer.add(rank_of(rank), summary)) writer.write_group();
    }
  }
  const size_t numbers_bytes = 8 * (kRowColumns + 5 * 13);
  EXPECT_LT(static_cast<double>(writer.finish().content.size()) / static_cast<double>(rows),
            static_cast<double>(numbers_bytes) / 4);
}

}  // namespace
}  // namespace lockstep::steps
