#include "model/events.h"

#include <gtest/gtest.h>

#include <limits>

#include "model/attempt.h"
#include "model/testing/comm_ras_record.h"

namespace lockstep {
namespace {

using testing::comm_ras_of;

constexpr int64_t kTime = 1'800'000'000'000'000'000;
constexpr int64_t kDayNs = 86'400'000'000'000;

StepSummary good_step() {
  StepSummary step;
  step.step = 12_step;
  step.start_unix_ns = kTime;
  step.duration_ns = 1000;
  step.self_ns = 600;
  step.comm_ns = 400;
  step.queue_ns = 50;
  step.comms = {{.comm_id = CommId{0xffffffffffffffff},
                 .size = 8,
                 .rank_in_comm = 3,
                 .count = 2,
                 .bytes = 100,
                 .gpu_ns = 400,
                 .shortest_ns = 100,
                 .longest_ns = 300}};
  step.flows = {{.comm_id = CommId{7}, .peer = 4, .transfers = 3, .bytes = 30, .wire_ns = 20}};
  return step;
}

// The record with one attribute replaced.
LogRecord with(LogRecord record, std::string_view key, Value value) {
  for (Attribute& attribute : record.attributes) {
    if (attribute.key == key) attribute.value = std::move(value);
  }
  return record;
}

// The record with one column of one row replaced.
LogRecord with_column(LogRecord record, std::string_view key, size_t column, int64_t value) {
  for (Attribute& attribute : record.attributes) {
    if (attribute.key == key)
      std::get<ValueList>(std::get<ValueList>(attribute.value.data).at(0).data).at(column) = Value(value);
  }
  return record;
}

bool accepted(const LogRecord& record) {
  return step_from_record(record).ok();
}

TEST(Events, AStepComesBackAsItWas) {
  Result<StepSummary> back = step_from_record(to_record(good_step()));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, good_step());
}

TEST(Events, AStepOfOneDayIsPossibleALongerOneIsNot) {
  LogRecord record = to_record(good_step());
  EXPECT_TRUE(accepted(with(record, "duration_ns", kDayNs)));
  EXPECT_FALSE(accepted(with(record, "duration_ns", kDayNs + 1)));
}

TEST(Events, TimesThatCannotBeInTheStepAreRefused) {
  LogRecord record = to_record(good_step());
  for (const char* field : {"self_ns", "comm_ns", "queue_ns", "quiet_ns"}) {
    EXPECT_FALSE(accepted(with(record, field, -1))) << field;
    EXPECT_FALSE(accepted(with(record, field, std::numeric_limits<int64_t>::max()))) << field;
    EXPECT_FALSE(accepted(with(record, field, std::numeric_limits<int64_t>::min()))) << field;
  }
  EXPECT_FALSE(accepted(with(record, "records_lost", -1)));
}

TEST(Events, PhasesThatCannotBeAreRefused) {
  LogRecord record = to_record(good_step());
  EXPECT_TRUE(accepted(with(record, "phases", ValueList{1, 2, 3})));  // an older sender may know fewer
  EXPECT_FALSE(accepted(with(record, "phases", ValueList{0, -1})));
  EXPECT_FALSE(accepted(with(record, "phases", ValueList{0, std::numeric_limits<int64_t>::max()})));
}

TEST(Events, AStepNumberNearTheEndOfTheNumbersIsRefused) {
  // Windows compute with step + n.
  EXPECT_FALSE(accepted(with(to_record(good_step()), "step", std::numeric_limits<int64_t>::max())));
}

TEST(Events, ACommunicatorRowThatCannotBeIsRefused) {
  LogRecord record = to_record(good_step());
  constexpr size_t kSize = 1, kRank = 2, kCount = 4, kBytes = 5, kGpu = 6;
  EXPECT_FALSE(accepted(with_column(record, "comms", kSize, (int64_t{1} << 32) + 8)));  // not 8
  EXPECT_FALSE(accepted(with_column(record, "comms", kSize, -1)));
  EXPECT_FALSE(accepted(with_column(record, "comms", kRank, 8)));
  EXPECT_FALSE(accepted(with_column(record, "comms", kRank, -1)));
  EXPECT_FALSE(accepted(with_column(record, "comms", kCount, -1)));
  EXPECT_FALSE(accepted(with_column(record, "comms", kBytes, -1)));
  EXPECT_FALSE(accepted(with_column(record, "comms", kGpu, -1)));
}

TEST(Events, ACommunicatorThatWasNotKnownYetIsAccepted) {
  // The agent read the operation before the communicator's row: size 0.
  StepSummary step = good_step();
  step.comms[0].size = 0;
  step.comms[0].rank_in_comm = 0;
  EXPECT_TRUE(accepted(to_record(step)));
}

TEST(Events, AFlowRowThatCannotBeIsRefused) {
  LogRecord record = to_record(good_step());
  constexpr size_t kPeer = 1, kBytes = 4, kWire = 5;
  EXPECT_FALSE(accepted(with_column(record, "flows", kPeer, (int64_t{1} << 32) + 4)));
  EXPECT_FALSE(accepted(with_column(record, "flows", kBytes, -1)));
  EXPECT_FALSE(accepted(with_column(record, "flows", kWire, -1)));
}

TEST(Events, AsManyFlowsAsTheLimitAndNotOneMore) {
  LogRecord record = to_record(good_step());
  Value row = std::get<ValueList>(find(record.attributes, "flows")->data).front();
  EXPECT_TRUE(accepted(with(record, "flows", ValueList(kFlowsPerStepMax, row))));
  EXPECT_FALSE(accepted(with(record, "flows", ValueList(kFlowsPerStepMax + 1, row))));
}

TEST(Events, AStatusThatCannotBeIsRefused) {
  RankStatus status;
  status.time_unix_ns = kTime;
  CommStatus comm{.comm_id = CommId{1}, .size = 8, .rank_in_comm = 3};
  comm.collective.function = "AllReduce";
  status.comms = {comm};
  LogRecord record = to_record(status);
  ASSERT_TRUE(status_from_record(record).ok());
  EXPECT_FALSE(status_from_record(with(record, "quiet_ns", -1)).ok());
  EXPECT_FALSE(status_from_record(with_column(record, "comms", 1, (int64_t{1} << 32) + 8)).ok());
  EXPECT_FALSE(status_from_record(with_column(record, "comms", 2, 8)).ok());
  status.comms[0].collective.function = std::string(kIdentityTextMax + 1, 'x');
  EXPECT_FALSE(status_from_record(to_record(status)).ok());
}

TEST(Events, APhaseOfALaterVersionIsOther) {
  LogRecord record = to_record(RankStatus{});
  EXPECT_EQ(status_from_record(with(record, "phase", 1000))->phase, Phase::kOther);
  EXPECT_EQ(status_from_record(with(record, "phase", -1))->phase, Phase::kOther);
}

TEST(Events, ACommunicatorThatCannotBeIsRefused) {
  auto accepted_comm = [](int64_t size, int64_t rank, const std::string& name = "") {
    LogRecord record = to_record(CommInit{CommId{1}, 8, 3, 1, name}, kTime);
    return comm_init_from_record(with(with(record, "size", size), "rank_in_comm", rank)).ok();
  };
  EXPECT_TRUE(accepted_comm(8, 3));
  EXPECT_FALSE(accepted_comm(0, 0));
  EXPECT_FALSE(accepted_comm(8, 8));
  EXPECT_FALSE(accepted_comm(8, -1));
  EXPECT_FALSE(accepted_comm((int64_t{1} << 32) + 8, 3));
  EXPECT_FALSE(accepted_comm(8, (int64_t{1} << 32) + 3));
  EXPECT_FALSE(accepted_comm(8, 3, std::string(kIdentityTextMax + 1, 'x')));
}

TEST(RankStatus, NumbersThatCannotBeAreRefused) {
  auto accepted_status = [](int64_t quiet_ns, StepNumber step, int64_t since_unix_ns) {
    RankStatus status;
    status.quiet_ns = quiet_ns;
    status.step = step;
    status.comms.resize(1);
    status.comms[0].collective.since_unix_ns = since_unix_ns;
    return status_from_record(to_record(status)).ok();
  };
  EXPECT_TRUE(accepted_status(86'400'000'000'000 * 30, 1'000'000_step, 1'700'000'000'000'000'000));
  EXPECT_FALSE(accepted_status(INT64_MAX, 1_step, 1));
  EXPECT_FALSE(accepted_status(1, kLastStep, 1));
  EXPECT_FALSE(accepted_status(1, 1_step, INT64_MAX));
}

TEST(Identity, HasLimits) {
  auto accepted_identity = [](Identity identity) { return identity_from_resource(to_resource(identity)).ok(); };
  Identity good{"job", 0, 3_rank, 8, 3, "host", "GPU-1"};
  EXPECT_TRUE(accepted_identity(good));
  Identity bad = good;
  bad.job_id = "";
  EXPECT_FALSE(accepted_identity(bad));
  bad = good;
  bad.rank = kNoRank;
  EXPECT_FALSE(accepted_identity(bad));
  bad = good;
  bad.rank = 8_rank;
  EXPECT_FALSE(accepted_identity(bad));
  bad = good;
  bad.world_size = 0;  // not known yet
  EXPECT_TRUE(accepted_identity(bad));
  for (int64_t attempt : {int64_t{-1}, kAttemptMost + 1, INT64_MAX, INT64_MIN}) {
    bad = good;
    bad.attempt = attempt;
    EXPECT_FALSE(accepted_identity(bad)) << attempt;
  }
  bad = good;
  bad.attempt = kAttemptMost;
  EXPECT_TRUE(accepted_identity(bad));
  for (std::string Identity::*field : {&Identity::job_id, &Identity::host, &Identity::gpu_uuid}) {
    bad = good;
    bad.*field = std::string(kIdentityTextMax, 'x');
    EXPECT_TRUE(accepted_identity(bad));
    bad.*field += 'x';
    EXPECT_FALSE(accepted_identity(bad));
  }
}

TEST(Phases, HaveNames) {
  EXPECT_STREQ(to_text(Phase::kOther), "other");
  EXPECT_STREQ(to_text(Phase::kSync), "sync");
  EXPECT_STREQ(to_text(static_cast<Phase>(200)), "other");
}

TEST(Events, OperationsThatWereNotSeenTravelOnlyWhereThereAreAny) {
  LogRecord whole = to_record(good_step());
  EXPECT_EQ(find(whole.attributes, "unseen"), nullptr);
  EXPECT_EQ(std::get<ValueList>(std::get<ValueList>(find(whole.attributes, "comms")->data).at(0).data).size(), 12u);
  EXPECT_TRUE(good_step().gpu_time_known());

  StepSummary step = good_step();
  step.unseen = 3;
  step.comms[0].unseen = 2;  // one was given up before it could be told whose it is
  EXPECT_FALSE(step.gpu_time_known());
  Result<StepSummary> back = step_from_record(to_record(step));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, step);
  EXPECT_FALSE(accepted(with(to_record(step), "unseen", -1)));
  EXPECT_FALSE(accepted(with_column(to_record(step), "comms", 12, -1)));
}

TEST(Events, AStatusRowEndsBehindTheLastColumnThatSaysSomething) {
  auto columns = [](const CommStatus& comm) {
    RankStatus status;
    status.comms = {comm};
    LogRecord record = to_record(status);
    Result<RankStatus> back = status_from_record(record);
    EXPECT_TRUE(back.ok() && back->comms.at(0) == comm);
    return std::get<ValueList>(std::get<ValueList>(find(record.attributes, "comms")->data).at(0).data).size();
  };
  CommStatus comm{.comm_id = CommId{1}, .size = 8, .rank_in_comm = 3};
  EXPECT_EQ(columns(comm), 23u);
  comm.p2p.end_not_seen = true;
  EXPECT_EQ(columns(comm), 24u);
  comm.collective_calls = 12;
  EXPECT_EQ(columns(comm), 25u);
  comm.launched = 0;  // known to be none
  EXPECT_EQ(columns(comm), 27u);
  comm.proxy = {.state = "peer", .send = true, .peer = 6, .since_unix_ns = kTime};
  EXPECT_EQ(columns(comm), 31u);
}

TEST(Events, AStatusWhoseLastColumnsCannotBeIsRefused) {
  CommStatus comm{.comm_id = CommId{1}, .size = 8, .rank_in_comm = 3};
  comm.launched = 5;
  comm.proxy = {.state = "peer", .send = true, .peer = 6, .since_unix_ns = kTime};
  RankStatus status;
  status.comms = {comm};
  LogRecord record = to_record(status);
  ASSERT_TRUE(status_from_record(record).ok());
  for (size_t column : {24, 25, 26, 29})
    EXPECT_FALSE(status_from_record(with_column(record, "comms", column, -2)).ok());
  EXPECT_FALSE(status_from_record(with_column(record, "comms", 27, 1)).ok());  // not a text
}

TEST(Events, ACommunicatorInTroubleComesBackAsItWas) {
  CommRas ras{.comm_id = CommId{0xfedcba9876543210}, .size = 8, .missing_count = 2};
  ras.missing = {{.rank_in_comm = 3, .host = "10.0.0.7", .pid = 4711, .unresponsive = true, .considered_dead = true},
                 {.rank_in_comm = 5}};
  ras.behind = {{"AllReduce", 41, 42, 2, {1, 2}}, {"Unknown", 0, 3, 1, {}}};
  EXPECT_EQ(comm_ras_of(to_record(ras, kTime)), ras);
}

TEST(Events, OfACommunicatorInTroubleNoMoreRanksAreNamedThanFit) {
  CommRas ras{.comm_id = CommId{1}, .size = 10'000, .missing_count = 5'000};
  ras.missing.resize(5'000);
  ras.behind.resize(100);
  ras.behind[0].ranks_in_comm.resize(5'000);
  const CommRas back = comm_ras_of(to_record(ras, kTime));
  EXPECT_EQ(back.missing_count, 5'000);
  EXPECT_EQ(back.missing.size(), kRasMissingMax);
  EXPECT_EQ(back.behind.size(), kRasBehindMax);
  EXPECT_EQ(back.behind[0].ranks_in_comm.size(), kRasBehindRanksMax);
}

TEST(Events, ScalarsAndSplitOfAStepComeBack) {
  StepSummary step;
  step.step = 3_step;
  step.duration_ns = 600;
  step.start_unix_ns = kTime;
  step.split_known = true;
  step.split_ns = {100, 200, 50, 100, 0, 150};
  step.scalars = {{"loss", 2.5}, {"tokens", 4096}};
  Result<StepSummary> back = step_from_record(to_record(step));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, step);
  EXPECT_FALSE(step_from_record(with(to_record(step), "split", ValueList{Value(1)})).ok());
  EXPECT_FALSE(step_from_record(with(to_record(step), "scalars", Attributes{{"loss", "high"}})).ok());
  EXPECT_FALSE(step_from_record(with(to_record(step), "scalars", Attributes{{"a\nb", 1.0}})).ok());
}

TEST(Events, AProcessGroupComesBackWithItsRanks) {
  CommGroup group{"tp", {0_rank, 1_rank, 2_rank, 3_rank}};
  Result<CommGroup> back = comm_group_from_record(to_record(group, kTime));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, group);
  EXPECT_FALSE(comm_group_from_record(to_record(CommGroup{"tp", {}}, kTime)).ok());
  EXPECT_FALSE(comm_group_from_record(to_record(CommGroup{"", {1_rank}}, kTime)).ok());
}

}  // namespace
}  // namespace lockstep
