// Real jobs on a real GPU, told by the real plugin and agent, judged by the engine: tests/data/h200.
#include <gtest/gtest.h>

#include "base/files.h"
#include "diagnosis/engine.h"
#include "model/events.h"
#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

struct Expected {
  const char* name;
  const char* kind;  // empty: no verdict, not even one that was cleared
  int32_t rank;
  const char* layer;
};

constexpr Expected kCases[] = {
    {"ddp_healthy", "", -1, ""},
    {"ddp_packing", "", -1, ""},
    {"ddp_gc", "", -1, ""},
    {"ddp_checkpoint", "", -1, ""},
    {"ddp_eval", "", -1, ""},
    {"ddp_warmup_r2", "", -1, ""},
    {"ddp_logging_r0", "", -1, ""},
    {"ddp_gpu_r0", "", -1, ""},  // 4 % of a step: the blind spot
    {"hyb_healthy", "", -1, ""},
    {"hyb_packing", "", -1, ""},
    {"hyb_stage", "inefficient", 4, "workload"},
    {"ddp_input_r3", "slow", 3, "input"},
    {"ddp_host_r1", "slow", 1, "host"},
    {"ddp_rarehost_r2", "slow", 2, "host"},
    {"ddp_link_r2", "slow", 2, "link"},
    {"hyb_gpu_r6", "slow", 6, "gpu"},
    {"hyb_host_r3", "slow", 3, "host"},
    {"hyb_pulse_r3", "slow", 3, "host"},
    {"hyb_link_r5", "slow", 5, "link"},
    {"ddp_dead_r2", "hang", 2, "host"},
    {"hyb_missing_r4", "hang", 4, "software"},
    // Made after the rules were written, and right at first sight.
    {"ddp_silentsave", "", -1, ""},
    {"hyb_checkpoint", "", -1, ""},
    {"hyb_eval", "", -1, ""},
    {"hyb_gc", "", -1, ""},
    {"hyb_warmup_r5", "", -1, ""},
    {"ddp_pulse_r1", "slow", 1, "host"},
    {"ddp_missing_r3", "hang", 3, "software"},
    {"hyb_input_r2", "slow", 2, "input"},
    {"hyb_rarehost_r7", "slow", 7, "host"},
    {"hyb_link_r2", "slow", 2, "link"},
};

void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.name;
}

class H200 : public ::testing::TestWithParam<Expected> {};

TEST_P(H200, IsJudgedRightly) {
  const Expected& expected = GetParam();
  Result<std::string> packed =
      read_file(std::string(LOCKSTEP_TEST_DATA "/h200/") + expected.name + ".logs.otlp.zst", 64 << 20);
  ASSERT_TRUE(packed.ok()) << packed.error();
  Result<std::string> bytes = decompress(Encoding::kZstd, *packed, 256 << 20);
  ASSERT_TRUE(bytes.ok()) << bytes.error();
  Result<Batch> batch = otlp::decode(Signal::kLogs, *bytes);
  ASSERT_TRUE(batch.ok()) << batch.error();

  DiagnosisEngine engine;
  size_t steps = 0;
  int64_t now = 0;
  for (const ResourceGroup& group : batch->groups) {
    Result<Identity> identity = identity_from_resource(group.resource);
    ASSERT_TRUE(identity.ok()) << identity.error();
    for (const LogRecord& record : group.logs) {
      now = std::max(now, record.time_unix_ns);
      if (record.event_name == kEventTrainStep) {
        Result<StepSummary> step = step_from_record(record);
        ASSERT_TRUE(step.ok()) << step.error();
        engine.on_step(*identity, *step, now);
        ++steps;
      } else if (record.event_name == kEventRankStatus) {
        Result<RankStatus> status = status_from_record(record);
        ASSERT_TRUE(status.ok()) << status.error();
        engine.on_status(*identity, *status, now);
      } else if (record.event_name == kEventCommInit) {
        Result<CommInit> comm = comm_init_from_record(record);
        ASSERT_TRUE(comm.ok()) << comm.error();
        engine.on_comm(*identity, *comm, now);
      } else if (record.event_name == kEventJobEnd) {
        engine.on_rank_ended(*identity, rank_end_from_record(record), now);
      }
    }
    engine.tick(now);
  }
  ASSERT_GT(steps, 70u);

  std::vector<Verdict> verdicts = engine.verdicts("");
  if (expected.kind[0] == '\0') {
    for (const Verdict& verdict : verdicts) ADD_FAILURE() << "false verdict: " << verdict.sentence;
    return;
  }
  ASSERT_EQ(verdicts.size(), 1u) << (verdicts.empty() ? "nothing was found" : verdicts[1].sentence);
  EXPECT_STREQ(to_text(verdicts[0].kind), expected.kind);
  EXPECT_EQ(verdicts[0].state, VerdictState::kConfirmed);
  // One rank, or the whole stage of which it is the first.
  ASSERT_EQ(verdicts[0].culprit.ranks.size(), verdicts[0].culprit.layer == Layer::kWorkload ? 4u : 1u)
      << verdicts[0].sentence;
  EXPECT_EQ(verdicts[0].culprit.ranks.front(), expected.rank) << verdicts[0].sentence;
  EXPECT_STREQ(to_text(verdicts[0].culprit.layer), expected.layer) << verdicts[0].sentence;
  bool excluded = false;
  for (const Claim& claim : verdicts[0].chain) excluded |= claim.kind == ClaimKind::kExclusion;
  EXPECT_TRUE(excluded);
}

INSTANTIATE_TEST_SUITE_P(Cases, H200, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep
