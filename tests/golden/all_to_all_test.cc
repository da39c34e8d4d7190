// What one rank's flight recorder held at the end of a job of experts on an H200, NCCL's kernel events out of step
// (docs/decisions/0027-parts-to-oneself.md): a step of 0.4 s is waiting for the slow wire of another rank, nearly all
// of it.
#include <gtest/gtest.h>

#include "base/files.h"
#include "recorder/reader.h"
#include "sources/nccl/rank_assembler.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

std::vector<StepSummary> steps_of(RecorderReader& reader) {
  const RecorderHeader header = reader.header();
  RankAssembler assembler(header.anchor_unix_ns - header.anchor_monotonic_ns);
  assembler.set_comms(reader.in_flight());
  reader.drain([&](uint32_t, const Record& record) { assembler.add(record); });
  assembler.end_drain(static_cast<int64_t>(reader.last_activity_ns()), 0);
  std::vector<StepSummary> steps;
  for (ClosedStep& closed : assembler.take_steps(static_cast<int64_t>(reader.last_activity_ns()), true))
    steps.push_back(std::move(closed.summary));
  return steps;
}

TEST(AllToAll, AStepThatWaitsForASlowWireIsCommunication) {
  const Result<std::string> packed =
      read_file(LOCKSTEP_TEST_DATA "/h200/experts_link_first_r6.rank2.lsfr.zst", 16 << 20);
  ASSERT_TRUE(packed.ok()) << packed.error();
  const Result<std::string> bytes = decompress(Encoding::kZstd, *packed, 64 << 20);
  ASSERT_TRUE(bytes.ok()) << bytes.error();
  const auto reader = RecorderReader::over(bytes->data(), bytes->size());
  ASSERT_TRUE(reader.ok()) << reader.error();

  size_t whole = 0;
  for (const StepSummary& step : steps_of(**reader)) {
    // Of earlier ones the ring of the network's thread holds a part, or nothing.
    if (step.step < 65_step || !step.gpu_time_known()) continue;
    ++whole;
    EXPECT_GT(step.comm_ns, step.duration_ns * 95 / 100) << "step " << step.step.value();
    ASSERT_EQ(step.comms.size(), 2u);
    EXPECT_EQ(step.comms[1].count, 266) << "19 exchanges with 7 others, none with itself";
  }
  EXPECT_EQ(whole, 3u);
}

}  // namespace
}  // namespace lockstep
