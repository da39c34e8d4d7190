// Real jobs on a real GPU, told by the real plugin and agent, judged by the engine: tests/data/h200.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <tuple>

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
  Rank rank;
  const char* layer;
};

constexpr Expected kCases[] = {
    {"ddp_healthy", "", kNoRank, ""},
    {"ddp_packing", "", kNoRank, ""},
    {"ddp_gc", "", kNoRank, ""},
    {"ddp_checkpoint", "", kNoRank, ""},
    {"ddp_eval", "", kNoRank, ""},
    {"ddp_warmup_r2", "", kNoRank, ""},
    {"ddp_logging_r0", "", kNoRank, ""},
    {"ddp_gpu_r0", "", kNoRank, ""},  // 4 % of a step: the blind spot
    {"hyb_healthy", "", kNoRank, ""},
    {"hyb_packing", "", kNoRank, ""},
    {"hyb_stage", "inefficient", 4_rank, "workload"},
    {"ddp_input_r3", "slow", 3_rank, "input"},
    {"ddp_host_r1", "slow", 1_rank, "host"},
    {"ddp_rarehost_r2", "slow", 2_rank, "host"},
    {"ddp_link_r2", "slow", 2_rank, "link"},
    {"hyb_gpu_r6", "slow", 6_rank, "gpu"},
    {"hyb_host_r3", "slow", 3_rank, "host"},
    {"hyb_pulse_r3", "slow", 3_rank, "host"},
    {"hyb_link_r5", "slow", 5_rank, "link"},
    {"ddp_dead_r2", "hang", 2_rank, "host"},
    {"hyb_missing_r4", "hang", 4_rank, "software"},
    // Made after the rules were written, and right at first sight.
    {"ddp_silentsave", "", kNoRank, ""},
    {"hyb_checkpoint", "", kNoRank, ""},
    {"hyb_eval", "", kNoRank, ""},
    {"hyb_gc", "", kNoRank, ""},
    {"hyb_warmup_r5", "", kNoRank, ""},
    {"ddp_pulse_r1", "slow", 1_rank, "host"},
    {"ddp_missing_r3", "hang", 3_rank, "software"},
    {"hyb_input_r2", "slow", 2_rank, "input"},
    {"hyb_rarehost_r7", "slow", 7_rank, "host"},
    {"hyb_link_r2", "slow", 2_rank, "link"},
};

void PrintTo(const Expected& expected, std::ostream* out) {
  *out << expected.name;
}

class H200 : public ::testing::TestWithParam<Expected> {};

// The job as the agent exported it, looked at after every request. `look` hears of each look; of rank `without` nothing
// is heard.
void play(const std::string& name, DiagnosisEngine& engine, const std::function<void()>& look, Rank without = kNoRank) {
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
    if (!identity.ok() || identity->rank == without) continue;  // what is said of a node
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

// A node without an agent: the job of eight hides its work beneath communication, gets slower because of somebody else,
// or because its sequences get longer.
TEST(H200Silent, WhoIsNotHeardOfIsNotAccusedForOthers) {
  const std::tuple<const char*, Rank, std::set<Rank>> cases[] = {
      {"fsdp_lengths", 4_rank, {}}, {"fsdp_cpu_r3", 0_rank, {3_rank}}, {"fsdp_wire_r1", 5_rank, {1_rank}}};
  for (const auto& [name, silent, culprits] : cases) {
    DiagnosisEngine engine;
    ASSERT_NO_FATAL_FAILURE(play(
        name, engine, [] {}, silent));
    std::set<Rank> accused;
    for (const Verdict& verdict : engine.verdicts(""))
      accused.insert(verdict.culprit.ranks.begin(), verdict.culprit.ranks.end());
    EXPECT_EQ(accused, culprits) << name;
  }
}

// Faults from outside the program (tests/gpu/outside.py): a wire that is slow from the first step, a rank's cores shared
// with busy processes, a process stopped again and again, two at once. Some are over when the recording ends.
struct Outside {
  const char* name;
  std::set<std::pair<Rank, Layer>> culprits;  // with a confirmed verdict at some time, and nobody else
};

void PrintTo(const Outside& expected, std::ostream* out) {
  *out << expected.name;
}

class H200Outside : public ::testing::TestWithParam<Outside> {};

TEST_P(H200Outside, EveryCulpritIsNamedAndNobodyElse) {
  DiagnosisEngine engine;
  std::set<std::pair<Rank, Layer>> confirmed;
  ASSERT_NO_FATAL_FAILURE(play(GetParam().name, engine, [&] {
    for (const Verdict& verdict : engine.verdicts("")) {
      if (verdict.state != VerdictState::kConfirmed) continue;
      const Rank rank = verdict.culprit.ranks.empty() ? kNoRank : verdict.culprit.ranks.front();
      EXPECT_TRUE(GetParam().culprits.contains({rank, verdict.culprit.layer})) << verdict.sentence;
      confirmed.emplace(rank, verdict.culprit.layer);
    }
  }));
  EXPECT_EQ(confirmed, GetParam().culprits);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, H200Outside,
    ::testing::Values(Outside{"fsdp_healthy", {}}, Outside{"fsdp_link_first_r5", {{5_rank, Layer::kLink}}},
                      Outside{"fsdp_cpu_r3", {{3_rank, Layer::kHost}}},
                      Outside{"fsdp_stop_r6", {{6_rank, Layer::kHost}}},
                      Outside{"hyb_stop_r2", {{2_rank, Layer::kHost}}},
                      Outside{"hyb_gpu_r6_and_link_r1", {{6_rank, Layer::kGpu}, {1_rank, Layer::kLink}}},
                      // Made with the others and not looked at before the rules were written; right at first sight.
                      Outside{"fsdp_link_first_r2", {{2_rank, Layer::kLink}}},
                      Outside{"fsdp_cpu_r6", {{6_rank, Layer::kHost}}},
                      Outside{"hyb_gpu_r3_and_link_r4", {{3_rank, Layer::kGpu}, {4_rank, Layer::kLink}}}),
    [](const auto& one) { return std::string(one.param.name); });

// What becomes slow while the job runs, stopped and killed ranks, and healthy jobs that are odd now and then.
INSTANTIATE_TEST_SUITE_P(Later, H200Outside,
                         ::testing::Values(Outside{"fsdp_wire_r1", {{1_rank, Layer::kLink}}},
                                           Outside{"fsdp_wire_r6", {{6_rank, Layer::kLink}}},
                                           Outside{"fsdp_narrow_r4", {{4_rank, Layer::kHost}}},
                                           Outside{"fsdp_stop_r0", {{0_rank, Layer::kHost}}},
                                           // Busy processes where its loader's worker is: its transfers starve with it.
                                           Outside{"fsdp_worker_r2", {{2_rank, Layer::kHost}, {2_rank, Layer::kInput}}},
                                           Outside{"fsdp_freeze_r7", {{7_rank, Layer::kHost}}},
                                           Outside{"fsdp_kill_r2", {{2_rank, Layer::kHost}}},
                                           Outside{"fsdp_checkpoint", {}}, Outside{"fsdp_compile", {}},
                                           Outside{"fsdp_evaluate", {}}, Outside{"fsdp_lengths", {}},
                                           Outside{"fsdp_loader", {}}),
                         [](const auto& one) { return std::string(one.param.name); });

// One rank a stage, by torch's own 1F1B schedule.
INSTANTIATE_TEST_SUITE_P(
    Pipeline, H200Outside,
    ::testing::Values(
        Outside{"pipe_healthy", {}}, Outside{"pipe_cpu_r3", {{3_rank, Layer::kHost}}},
        Outside{"pipe_narrow_r5", {{5_rank, Layer::kHost}}}, Outside{"pipe_wire_r2", {{2_rank, Layer::kLink}}},
        Outside{"pipe_wire_r5", {{5_rank, Layer::kLink}}},
        // A small share of the GPU from the first step on: a stage with more work looks the same.
        Outside{"pipe_share_r4", {{4_rank, Layer::kWorkload}}}, Outside{"pipe_freeze_r1", {{1_rank, Layer::kHost}}},
        Outside{"pipe_kill_r6", {{6_rank, Layer::kHost}}},
        // Whose cores are shared is not a slow link, and neither is that of who sends to it.
        Outside{"pipe_cpu_r2", {{2_rank, Layer::kHost}}}, Outside{"hyb_cpu_r6", {{6_rank, Layer::kHost}}},
        Outside{"hyb_cpu_r6_later", {{6_rank, Layer::kHost}}}, Outside{"pipe_freeze_r6", {{6_rank, Layer::kHost}}},
        Outside{"pipe_stop_r6", {}}),  // missed: everybody is quiet as long as the one that is stopped
    [](const auto& one) { return std::string(one.param.name); });

INSTANTIATE_TEST_SUITE_P(Cases, H200, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep
