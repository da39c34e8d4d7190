#include "diagnosis/measure.h"

#include <gtest/gtest.h>

#include <map>

#include "diagnosis/phrasing.h"

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;

// Four ranks in one communicator: rank 2 works longer, the others wait for it; rank 1's link is slow.
class MeasureTest : public ::testing::Test {
 protected:
  MeasureTest() {
    for (int32_t rank = 0; rank < 4; ++rank) {
      Identity identity;
      identity.job_id = "job";
      identity.rank = Rank{rank};
      identity.world_size = 4;
      identity.host = "node-0";
      for (int64_t step = 0; step < 6; ++step) window_.add_step(identity, summary_of(rank, StepNumber{step}));
    }
  }

  static StepSummary summary_of(int32_t rank, StepNumber step) {
    StepSummary summary;
    summary.step = step;
    summary.duration_ns = 100 * kMs;
    summary.self_ns = (rank == 2 ? 80 : 50) * kMs + step.value() * kMs;
    summary.comm_ns = (rank == 2 ? 10 : 40) * kMs;
    summary.queue_ns = 7 * kMs;
    summary.phase_ns[static_cast<size_t>(Phase::kInput)] = rank == 2 ? 30 * kMs : 2 * kMs;
    summary.quiet_ns = rank == 2 && step == 4_step ? 45 * kMs : kMs;
    CommStep comm;
    comm.comm_id = CommId{0x1a};
    comm.size = 4;
    comm.rank_in_comm = rank;
    comm.count = 1;
    comm.bytes = 1'000;
    comm.gpu_ns = (rank == 2 ? 10 : 40) * kMs;
    comm.shortest_ns = comm.gpu_ns;
    summary.comms = {comm};
    FlowStep flow;
    flow.comm_id = CommId{0x1a};
    flow.peer = (rank + 1) % 4;
    flow.send = true;
    flow.transfers = 4;
    flow.bytes = 40'000'000;
    flow.wire_ns = (rank == 1 ? 20 : 4) * kMs;
    summary.flows = {flow};
    summary.scalars = {{"tokens", 1000.0 + rank}, {"loss", 2.5}};
    return summary;
  }

  double value(Measure measure) const {
    if (measure.steps.empty()) measure.steps = {2_step, 3_step, 4_step};
    return measured(window_, measure);
  }

  JobWindow window_;
};

TEST_F(MeasureTest, IsOfTheRanksAndStepsThatAreAskedFor) {
  EXPECT_DOUBLE_EQ(value({.of = "own_ms", .ranks = {2_rank}}), 83);
  EXPECT_DOUBLE_EQ(value({.of = "own_ms", .ranks = {2_rank}, .steps = {0_step}}), 80);
  EXPECT_DOUBLE_EQ(value({.of = "own_ms", .ranks = {1_rank, 2_rank}}), 68);
  EXPECT_DOUBLE_EQ(value({.of = "own_median_ms", .ranks = {0_rank}}), 53);
  EXPECT_DOUBLE_EQ(value({.of = "input_ms", .ranks = {2_rank}}), 30);
  EXPECT_DOUBLE_EQ(value({.of = "queue_ms", .ranks = {2_rank}}), 7);
  EXPECT_DOUBLE_EQ(value({.of = "late_ms", .ranks = {2_rank}}), 30);
  EXPECT_DOUBLE_EQ(value({.of = "steps", .ranks = {2_rank}, .steps = {1_step, 2_step, 77_step}}), 2);
  EXPECT_DOUBLE_EQ(value({.of = "own_ms", .ranks = {9_rank}}), 0) << "nobody has heard of it";
}

TEST_F(MeasureTest, OfACommunicatorComparesTheRankWithTheOthers) {
  EXPECT_DOUBLE_EQ(value({.of = "waited_ms", .ranks = {2_rank}, .comm_id = CommId{0x1a}}), 30);
  EXPECT_DOUBLE_EQ(value({.of = "transfer_ms", .comm_id = CommId{0x1a}}), 10);
  EXPECT_DOUBLE_EQ(value({.of = "waited_ms", .ranks = {2_rank}, .comm_id = CommId{7}}), 0) << "it has no such one";
}

TEST_F(MeasureTest, OfAFlowIsItsRateAndItsTimeOnTheWire) {
  EXPECT_DOUBLE_EQ(value({.of = "sent_gb_s", .ranks = {1_rank}}), 2);
  EXPECT_DOUBLE_EQ(value({.of = "flow_gb_s", .ranks = {0_rank}, .comm_id = CommId{0x1a}, .peer = 1}), 10);
  EXPECT_DOUBLE_EQ(value({.of = "sent_gb_s", .ranks = {0_rank}, .comm_id = CommId{0x1a}, .peer = 3}), 0) << "no flow";
  EXPECT_DOUBLE_EQ(value({.of = "wire_ms", .ranks = {1_rank}}), 20);
  EXPECT_DOUBLE_EQ(value({.of = "wire_median_ms", .ranks = {1_rank}}), 20);
}

TEST_F(MeasureTest, OfTheWholeJobNeedsNoRanks) {
  EXPECT_DOUBLE_EQ(value({.of = "step_ms"}), 100);
  EXPECT_DOUBLE_EQ(value({.of = "step_mean_ms"}), 100);
  EXPECT_DOUBLE_EQ(value({.of = "step_quarter_ms"}), 100);
  EXPECT_DOUBLE_EQ(value({.of = "most_own_ms"}), 30);
  EXPECT_DOUBLE_EQ(value({.of = "apart_ms"}), 30);
  EXPECT_DOUBLE_EQ(value({.of = "latest_ms"}), 30);
  EXPECT_DOUBLE_EQ(value({.of = "latest_ranks"}), 1);
  EXPECT_DOUBLE_EQ(value({.of = "work", .name = "tokens"}), 1001.5);
  EXPECT_DOUBLE_EQ(value({.of = "scalar", .name = "loss"}), 2.5);
  EXPECT_DOUBLE_EQ(value({.of = "not_finite", .name = "loss"}), 0);
}

TEST_F(MeasureTest, WhatStoodStillIsTheLongestOfTheRank) {
  EXPECT_DOUBLE_EQ(value({.of = "stood_ms", .ranks = {2_rank}, .steps = {4_step}}), 45);
  EXPECT_DOUBLE_EQ(value({.of = "stood_ms", .ranks = {2_rank}, .steps = {3_step, 4_step}}), 23);
}

TEST_F(MeasureTest, AStepWhoseRecordsWereLostAddsNothing) {
  Identity identity;
  identity.job_id = "job";
  identity.rank = 2_rank;
  identity.world_size = 4;
  StepSummary summary = summary_of(2, 3_step);
  summary.records_lost = 5;
  summary.self_ns = 99 * kMs;
  window_.add_step(identity, summary);
  EXPECT_DOUBLE_EQ(value({.of = "own_ms", .ranks = {2_rank}}), 83) << "of steps 2 and 4";
}

std::map<std::string, std::string> parameters_of(const std::string& query) {
  std::map<std::string, std::string> parameters;
  const std::string text = query.substr(query.find('?') + 1) + "&";
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('&', at), is = text.find('=', at);
    parameters[text.substr(at, is - at)] = text.substr(is + 1, end - is - 1);
    at = end + 1;
  }
  return parameters;
}

Result<Measure> read_query(const std::string& query) {
  const std::map<std::string, std::string> parameters = parameters_of(query);
  return measure_from([&](std::string_view name) {
    const auto found = parameters.find(std::string(name));
    return found == parameters.end() ? std::string() : found->second;
  });
}

TEST(MeasureText, AQueryIsReadAsItWasWritten) {
  const Measure measure{.of = "wire_ms",
                        .ranks = {3_rank, 4_rank, 9_rank},
                        .steps = {40_step, 41_step, 42_step, 50_step},
                        .comm_id = CommId{0xbeef},
                        .peer = 2,
                        .stage = 0,
                        .name = "loss"};
  EXPECT_EQ(measure.query(),
            "/api/jobs/{job}/evidence?of=wire_ms&ranks=3-4,9&comm=0xbeef&peer=2&stage=0&name=loss&steps=40-42,50");
  const Result<Measure> again = read_query(measure.query());
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(again->query(), measure.query());
}

TEST(MeasureText, WhatIsNotWellFormedOrTooMuchIsRefused) {
  for (const char* query :
       {"?of=&steps=1", "?of=own_ms", "?of=own_ms&steps=", "?of=own_ms&steps=a", "?of=own_ms&steps=5-",
        "?of=own_ms&steps=-5", "?of=own_ms&steps=5,4", "?of=own_ms&steps=5,5", "?of=own_ms&steps=0-1024",
        "?of=own_ms&ranks=99999999999&steps=1", "?of=own_ms&comm=12&steps=1", "?of=own_ms&peer=x&steps=1",
        "?of=own_ms&steps=0-9223372036854775807"})
    EXPECT_FALSE(read_query(query).ok()) << query;
  EXPECT_TRUE(read_query("?of=own_ms&steps=0-1023").ok());
}

TEST(MeasureText, EveryMeasureSaysWhatItIs) {
  for (const MeasureInfo& one : measures()) {
    EXPECT_FALSE(one.help.empty()) << one.of;
    EXPECT_TRUE(read_query("?of=" + std::string(one.of) + "&steps=1").ok()) << one.of;
  }
}

TEST(MeasureQuery, TakesTheLargestNumberThereIsAndEnds) {
  Result<Measure> measure = measure_from([](std::string_view name) -> std::string {
    return name == "of" ? "step_ms" : name == "steps" ? "9223372036854775806-9223372036854775807" : "";
  });
  ASSERT_TRUE(measure.ok()) << measure.error();
  EXPECT_EQ(measure->steps.size(), 2u);
  EXPECT_TRUE(measure->query().ends_with("&steps=9223372036854775806-9223372036854775807")) << measure->query();
}

}  // namespace
}  // namespace lockstep
