#include "agent/recorder_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <fstream>

#include "agent/counters_table.h"
#include "agent/testing.h"
#include "model/events.h"
#include "recorder/writer.h"

namespace lockstep {
namespace {

using testing::StandingClock;
using testing::TempFolder;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;

RecorderWriter::Options writer_options(const std::string& folder, uint32_t lane_records = 1024) {
  RecorderWriter::Options options;
  options.directory = folder;
  options.geometry = {4, lane_records, 8};
  options.identity = {"job-7", 1, 3, 8, 3, "gpu-017", "GPU-3"};
  return options;
}

Record mark(RecordType type, int64_t number, int64_t at_ns) {
  Record record{};
  record.head.type = type;
  record.head.time_ns = static_cast<uint64_t>(at_ns);
  record.mark.number = number;
  return record;
}

// One AllReduce from enqueue to completion, in the lane and in the table of operations in flight.
void all_reduce(RecorderWriter& writer, uint64_t op_id, int64_t at_ns, uint32_t row, bool completes = true) {
  InFlightTable::Ticket ticket = writer.in_flight().enqueue(row,
                                                            {.op_id = op_id,
                                                             .seq = op_id,
                                                             .bytes = 4096,
                                                             .now_ns = static_cast<uint64_t>(at_ns),
                                                             .function = Function::kAllReduce,
                                                             .datatype = Datatype::kFloat32},
                                                            true);
  Record coll{};
  coll.head.type = RecordType::kColl;
  coll.head.comm_index = static_cast<uint16_t>(row);
  coll.head.time_ns = static_cast<uint64_t>(at_ns);
  coll.op.op_id = op_id;
  coll.op.bytes = 4096;
  coll.op.function = Function::kAllReduce;
  coll.op.channels = 1;
  writer.write(coll);
  if (!completes) return;
  Record kernel{};
  kernel.head.type = RecordType::kKernelCh;
  kernel.head.comm_index = static_cast<uint16_t>(row);
  kernel.head.time_ns = static_cast<uint64_t>(at_ns + 10 * kMs);
  kernel.kernel.op_id = op_id;
  kernel.kernel.gpu_start_ns = static_cast<uint64_t>(at_ns);
  kernel.kernel.gpu_stop_ns = static_cast<uint64_t>(at_ns + 10 * kMs);
  kernel.kernel.host_start_ns = static_cast<uint64_t>(at_ns);
  writer.write(kernel);
  writer.in_flight().completed(row, ticket);
}

struct RecorderWatchTest : ::testing::Test {
  TempFolder folder;
  StandingClock clock;
  Counters counters{kAgentCounters};
  WatchOptions options{.folder = folder.path()};

  std::unique_ptr<RecorderWriter> open_writer(uint32_t lane_records = 1024) {
    auto writer = RecorderWriter::open(writer_options(folder.path(), lane_records));
    if (!writer.ok()) ADD_FAILURE() << writer.error();
    return std::move(writer).value();
  }
  static std::vector<std::string> names(const Harvest& harvest) {
    std::vector<std::string> all;
    for (const ResourceGroup& group : harvest.logs) {
      for (const LogRecord& record : group.logs) all.push_back(record.event_name);
    }
    return all;
  }
  static std::vector<LogRecord> events(const Harvest& harvest, std::string_view name) {
    std::vector<LogRecord> all;
    for (const ResourceGroup& group : harvest.logs) {
      for (const LogRecord& record : group.logs) {
        if (record.event_name == name) all.push_back(record);
      }
    }
    return all;
  }
  // A process that lives, writes and ends.
  template <typename Body>
  void in_process(Body body) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto writer = RecorderWriter::open(writer_options(folder.path()));
      if (!writer.ok()) ::_exit(1);
      body(**writer);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
};

using Names = std::vector<std::string>;

TEST_F(RecorderWatchTest, AFolderThatIsNotThereYieldsNothing) {
  options.folder = folder.path() + "/none";
  RecorderWatch watch(options, clock, counters);
  EXPECT_TRUE(watch.look().logs.empty());
  EXPECT_TRUE(watch.final_look().logs.empty());
}

TEST_F(RecorderWatchTest, AnnouncesARankAndItsCommunicatorsOnce) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3, .nodes = 1, .name = "dp"});
  Harvest first = watch.look();
  EXPECT_EQ(names(first), (Names{"job.start", "comm.init"}));
  ASSERT_EQ(first.logs.size(), 1u);
  Result<Identity> who = identity_from_resource(first.logs[0].resource);
  ASSERT_TRUE(who.ok()) << who.error();
  EXPECT_EQ(*who, (Identity{"job-7", 1, 3, 8, 3, "gpu-017", "GPU-3"}));
  Result<CommInit> comm = comm_init_from_record(first.logs[0].logs[1]);
  ASSERT_TRUE(comm.ok()) << comm.error();
  EXPECT_EQ(*comm, (CommInit{77, 8, 3, 1, "dp"}));
  EXPECT_TRUE(watch.look().logs.empty());
  EXPECT_EQ(watch.identities().size(), 1u);
  EXPECT_EQ(counters.value("lockstep_agent_recorders"), 1);
}

TEST_F(RecorderWatchTest, GivesAStepWhenItCloses) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  uint32_t row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  writer->write(mark(RecordType::kStepBegin, 12, clock.now_ns));
  all_reduce(*writer, 1, clock.now_ns + 20 * kMs, row);
  EXPECT_TRUE(events(watch.look(), kEventTrainStep).empty());
  writer->write(mark(RecordType::kStepEnd, 12, clock.now_ns + 100 * kMs));
  std::vector<LogRecord> steps = events(watch.look(), kEventTrainStep);
  ASSERT_EQ(steps.size(), 1u);
  Result<StepSummary> step = step_from_record(steps[0]);
  ASSERT_TRUE(step.ok()) << step.error();
  EXPECT_EQ(step->step, 12);
  EXPECT_EQ(step->duration_ns, 100 * kMs);
  EXPECT_EQ(step->comm_ns, 10 * kMs);
  ASSERT_EQ(step->comms.size(), 1u);
  EXPECT_EQ(step->comms[0].comm_id, 77u);
  EXPECT_EQ(counters.sum("lockstep_agent_recorder_records_total"), 4);
}

TEST_F(RecorderWatchTest, SaysWhereAQuietRankStandsAgainAndAgainUntilItMoves) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  uint32_t row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  all_reduce(*writer, 1, clock.now_ns, row);
  all_reduce(*writer, 2, clock.now_ns + kMs, row, false);
  EXPECT_TRUE(events(watch.look(), kEventRankStatus).empty());
  clock.now_ns += options.quiet_status_ns - kMs;
  EXPECT_TRUE(events(watch.look(), kEventRankStatus).empty());
  clock.now_ns += 2 * kMs;
  Harvest harvest = watch.look();
  EXPECT_TRUE(harvest.urgent);
  std::vector<LogRecord> told = events(harvest, kEventRankStatus);
  ASSERT_EQ(told.size(), 1u);
  Result<RankStatus> status = status_from_record(told[0]);
  ASSERT_TRUE(status.ok()) << status.error();
  EXPECT_TRUE(status->process_alive);
  EXPECT_FALSE(status->finished);
  EXPECT_GE(status->quiet_ns, options.quiet_status_ns);
  ASSERT_EQ(status->comms.size(), 1u);
  EXPECT_EQ(status->comms[0].collectives_enqueued, 2u);
  EXPECT_EQ(status->comms[0].collectives_completed, 1u);
  EXPECT_EQ(status->comms[0].collective.ordinal, 2u);
  EXPECT_EQ(status->comms[0].collective.state, OpState::kEnqueued);

  EXPECT_TRUE(events(watch.look(), kEventRankStatus).empty());  // not at every look
  clock.now_ns += 5 * kSecond;
  EXPECT_EQ(events(watch.look(), kEventRankStatus).size(), 1u);

  writer->write(mark(RecordType::kStepBegin, 1, clock.now_ns));
  told = events(watch.look(), kEventRankStatus);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(status_from_record(told[0])->quiet_ns, 0);
  EXPECT_TRUE(events(watch.look(), kEventRankStatus).empty());
}

TEST_F(RecorderWatchTest, ARankThatMovesThroughALongStepSaysSoNowAndThen) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  writer->write(mark(RecordType::kStepBegin, 1, clock.now_ns));
  watch.look();
  int64_t told = 0;
  for (int i = 0; i < 20; ++i) {
    clock.now_ns += kSecond;
    writer->write(mark(RecordType::kPhaseBegin, 2, clock.now_ns));
    for (const LogRecord& record : events(watch.look(), kEventRankStatus)) {
      EXPECT_EQ(status_from_record(record)->quiet_ns, 0);
      ++told;
    }
  }
  EXPECT_GE(told, 3);
  EXPECT_LE(told, 5);
}

TEST_F(RecorderWatchTest, ARecorderOutlivesItsProcessUntilWhatCameOutOfItIsSafe) {
  in_process([this](RecorderWriter& writer) {
    uint32_t row = static_cast<uint32_t>(writer.in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
    writer.write(mark(RecordType::kStepBegin, 5, clock.now_ns));
    all_reduce(writer, 1, clock.now_ns + kMs, row);
    writer.write(mark(RecordType::kStepEnd, 5, clock.now_ns + 50 * kMs));
    all_reduce(writer, 2, clock.now_ns + 60 * kMs, row, false);
  });
  RecorderWatch watch(options, clock, counters);
  Names seen;
  std::vector<LogRecord> statuses, ends;
  for (int i = 0; i < 3; ++i) {
    Harvest harvest = watch.look();
    for (const std::string& name : names(harvest)) seen.push_back(name);
    for (const LogRecord& record : events(harvest, kEventRankStatus)) statuses.push_back(record);
    for (const LogRecord& record : events(harvest, kEventJobEnd)) ends.push_back(record);
    watch.submitted(static_cast<uint64_t>(i) + 1);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), kEventTrainStep), 1);
  ASSERT_EQ(statuses.size(), 1u);
  EXPECT_FALSE(status_from_record(statuses[0])->process_alive);
  EXPECT_EQ(status_from_record(statuses[0])->comms.at(0).collective.ordinal, 2u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_FALSE(std::get<bool>(find(ends[0].attributes, "clean")->data));

  watch.release([](uint64_t) { return false; });
  EXPECT_EQ(list_directory(folder.path())->size(), 1u);
  watch.release([](uint64_t) { return true; });
  EXPECT_TRUE(list_directory(folder.path())->empty());
  EXPECT_TRUE(watch.identities().empty());
}

TEST_F(RecorderWatchTest, AProcessThatSaysGoodbyeEndsCleanly) {
  in_process([this](RecorderWriter& writer) {
    writer.write(mark(RecordType::kStepBegin, 5, clock.now_ns));
    writer.write(mark(RecordType::kShutdown, 0, clock.now_ns + kMs));
  });
  RecorderWatch watch(options, clock, counters);
  Names seen;
  std::vector<LogRecord> ends;
  for (int i = 0; i < 3; ++i) {
    Harvest harvest = watch.look();
    for (const std::string& name : names(harvest)) seen.push_back(name);
    for (const LogRecord& record : events(harvest, kEventJobEnd)) ends.push_back(record);
  }
  EXPECT_EQ(seen, (Names{"job.start", "job.end"}));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_TRUE(std::get<bool>(find(ends[0].attributes, "clean")->data));
}

TEST_F(RecorderWatchTest, OverwrittenRecordsBecomeAGap) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer(64);
  for (int64_t i = 0; i < 200; ++i) writer->write(mark(RecordType::kScalar, i, clock.now_ns + i));
  std::vector<LogRecord> gaps = events(watch.look(), kEventGap);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(find_string(gaps[0].attributes, "reason"), "ring_overwritten");
  int64_t lost = find_int(gaps[0].attributes, "records");
  EXPECT_EQ(lost, counters.value("lockstep_agent_recorder_lost_total", "reason=\"overwritten\""));
  EXPECT_EQ(lost + counters.sum("lockstep_agent_recorder_records_total"), 200);
}

TEST_F(RecorderWatchTest, ARankWithoutANumberBelongsToNoJobUntilItLearnsIt) {
  RecorderWatch watch(options, clock, counters);
  RecorderWriter::Options nameless = writer_options(folder.path());
  nameless.identity.rank = -1;
  nameless.identity.world_size = 0;
  auto writer = RecorderWriter::open(nameless);
  ASSERT_TRUE(writer.ok()) << writer.error();
  (*writer)->write(mark(RecordType::kStepBegin, 1, clock.now_ns));
  EXPECT_TRUE(watch.look().logs.empty());
  EXPECT_TRUE(watch.identities().empty());
  (*writer)->learn_world(2, 4);
  EXPECT_EQ(names(watch.look()), Names{"job.start"});
  ASSERT_EQ(watch.identities().size(), 1u);
  EXPECT_EQ(watch.identities()[0].rank, 2);
  // What was marked before is not lost.
  (*writer)->write(mark(RecordType::kStepEnd, 1, clock.now_ns + kMs));
  EXPECT_EQ(events(watch.look(), kEventTrainStep).size(), 1u);
}

TEST_F(RecorderWatchTest, AFileThatIsNoRecorderIsCountedOnceAndLeftAlone) {
  std::ofstream(folder.path() + "/1-1.lsfr") << "hello";
  std::ofstream(folder.path() + "/notes.txt") << "hello";
  RecorderWatch watch(options, clock, counters);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(watch.look().logs.empty());
    clock.now_ns += 20 * kSecond;
  }
  EXPECT_EQ(counters.sum("lockstep_agent_recorder_refused_total"), 1);
  EXPECT_EQ(list_directory(folder.path())->size(), 2u);
}

TEST_F(RecorderWatchTest, TellsTotalsOfCollectivesAsMetrics) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  uint32_t row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  for (uint64_t op = 1; op <= 3; ++op) all_reduce(*writer, op, clock.now_ns + static_cast<int64_t>(op) * 20 * kMs, row);
  EXPECT_TRUE(watch.look().metrics.empty());
  clock.now_ns += options.metrics_every_ns;
  Harvest harvest = watch.look();
  ASSERT_EQ(harvest.metrics.size(), 1u);
  std::map<std::string, double> values;
  for (const MetricPoint& point : harvest.metrics[0].points) values[point.name] = point.value;
  EXPECT_EQ(values["lockstep_job_gpu_info"], 1);
  EXPECT_EQ(values["lockstep_collective_operations_total"], 3);
  EXPECT_EQ(values["lockstep_collective_bytes_total"], 3 * 4096);
  EXPECT_NEAR(values["lockstep_collective_gpu_seconds_total"], 0.030, 1e-9);
  EXPECT_NEAR(values["lockstep_collective_bus_bandwidth"], 3 * 4096 * 1.75 / 0.030, 1);
}

TEST_F(RecorderWatchTest, TheLastLookOfAnEndingAgentGivesStepsThatHaveEnded) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  uint32_t row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  writer->write(mark(RecordType::kStepBegin, 1, clock.now_ns));
  all_reduce(*writer, 1, clock.now_ns + kMs, row, false);
  writer->write(mark(RecordType::kStepEnd, 1, clock.now_ns + 50 * kMs));
  EXPECT_TRUE(events(watch.look(), kEventTrainStep).empty());
  EXPECT_EQ(events(watch.final_look(), kEventTrainStep).size(), 1u);
}

}  // namespace
}  // namespace lockstep
