// Real jobs on a real GPU, told by the real plugin and agent, judged by the engine: tests/data/h200.
#include <gtest/gtest.h>

#include <functional>
#include <set>

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

// The job as the agent exported it, looked at after every request. `look` hears of each look.
void play(const std::string& name, DiagnosisEngine& engine, const std::function<void()>& look) {
  Result<std::string> packed = read_file(LOCKSTEP_TEST_DATA "/h200/" + name + ".logs.otlp.zst", 64 << 20);
  ASSERT_TRUE(packed.ok()) << packed.error();
  Result<std::string> bytes = decompress(Encoding::kZstd, *packed, 256 << 20);
  ASSERT_TRUE(bytes.ok()) << bytes.error();
  Result<Batch> batch = otlp::decode(Signal::kLogs, *bytes);
  ASSERT_TRUE(batch.ok()) << batch.error();
  size_t steps = 0;
  int64_t now = 0;
  for (const ResourceGroup& group : batch->groups) {
    Result<Identity> identity = identity_from_resource(group.resource);
    if (!identity.ok()) continue;  // what is said of a node
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
    look();
  }
  ASSERT_GT(steps, 70u);
}

TEST_P(H200, IsJudgedRightly) {
  const Expected& expected = GetParam();
  DiagnosisEngine engine;
  ASSERT_NO_FATAL_FAILURE(play(expected.name, engine, [] {}));

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

// Faults from outside the program (tests/gpu/outside.py): a wire that is slow from the first step, a rank's cores shared
// with busy processes, a process stopped again and again, two at once. Some are over when the recording ends.
struct Outside {
  const char* name;
  std::set<std::pair<int32_t, Layer>> culprits;  // with a confirmed verdict at some time, and nobody else
};

void PrintTo(const Outside& expected, std::ostream* out) {
  *out << expected.name;
}

class H200Outside : public ::testing::TestWithParam<Outside> {};

TEST_P(H200Outside, EveryCulpritIsNamedAndNobodyElse) {
  DiagnosisEngine engine;
  std::set<std::pair<int32_t, Layer>> confirmed;
  ASSERT_NO_FATAL_FAILURE(play(GetParam().name, engine, [&] {
    for (const Verdict& verdict : engine.verdicts("")) {
      if (verdict.state != VerdictState::kConfirmed) continue;
      const int32_t rank = verdict.culprit.ranks.empty() ? -1 : verdict.culprit.ranks.front();
      EXPECT_TRUE(GetParam().culprits.contains({rank, verdict.culprit.layer})) << verdict.sentence;
      confirmed.emplace(rank, verdict.culprit.layer);
    }
  }));
  EXPECT_EQ(confirmed, GetParam().culprits);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, H200Outside,
    ::testing::Values(Outside{"fsdp_healthy", {}}, Outside{"fsdp_link_first_r5", {{5, Layer::kLink}}},
                      Outside{"fsdp_cpu_r3", {{3, Layer::kHost}}}, Outside{"fsdp_stop_r6", {{6, Layer::kHost}}},
                      Outside{"hyb_stop_r2", {{2, Layer::kHost}}},
                      Outside{"hyb_gpu_r6_and_link_r1", {{6, Layer::kGpu}, {1, Layer::kLink}}},
                      // Made with the others and not looked at before the rules were written; right at first sight.
                      Outside{"fsdp_link_first_r2", {{2, Layer::kLink}}}, Outside{"fsdp_cpu_r6", {{6, Layer::kHost}}},
                      Outside{"hyb_gpu_r3_and_link_r4", {{3, Layer::kGpu}, {4, Layer::kLink}}}),
    [](const auto& one) { return std::string(one.param.name); });

INSTANTIATE_TEST_SUITE_P(Cases, H200, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep
