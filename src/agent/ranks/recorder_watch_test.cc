#include "agent/ranks/recorder_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/counters_table.h"
#include "agent/ranks/step_rounding.h"
#include "agent/ranks/user_limits.h"
#include "agent/testing.h"
#include "base/text.h"
#include "model/events.h"
#include "model/testing/comm_ras_record.h"
#include "recorder/control.h"
#include "recorder/layout.h"
#include "recorder/writer.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::comm_ras_of;
using testing::eventually;
using testing::FakeClock;
using testing::FakeRas;
using testing::TemporaryFolder;

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
  const InFlightTable::Ticket ticket =
      writer.in_flight().enqueue(row, 1,
                                 {.seq = op_id,
                                  .bytes = 4096,
                                  .now_ns = static_cast<uint64_t>(at_ns),
                                  .detail = op_detail_word(-1, Function::kAllReduce, Datatype::kFloat32, 0, 0)});
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
  TemporaryFolder folder;
  FakeClock clock;
  Counters counters{kAgentCounters};
  WatchOptions options{.folder = folder.path()};

  std::unique_ptr<RecorderWriter> open_writer(uint32_t lane_records = 1024) {
    auto writer = RecorderWriter::open(writer_options(folder.path(), lane_records));
    if (!writer.ok()) ADD_FAILURE() << writer.error();
    return std::move(writer).value();
  }
  static std::vector<std::string> names(const CollectedBatch& batch) {
    std::vector<std::string> all;
    for (const ResourceGroup& group : batch.logs) {
      for (const LogRecord& record : group.logs) all.push_back(record.event_name);
    }
    return all;
  }
  static std::vector<LogRecord> events(const CollectedBatch& batch, std::string_view name) {
    std::vector<LogRecord> all;
    for (const ResourceGroup& group : batch.logs) {
      for (const LogRecord& record : group.logs) {
        if (record.event_name == name) all.push_back(record);
      }
    }
    return all;
  }
  // In an operation of communicator 77.
  void hang(RecorderWriter& writer) const {
    const int32_t row = writer.in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row;
    all_reduce(writer, 1, clock.monotonic_ns(), static_cast<uint32_t>(row), false);
  }
  // Rank 3 of communicator 77, which has done one operation and hangs in the next.
  std::unique_ptr<RecorderWriter> open_hanging(uint32_t nccl_version) {
    auto writer = open_writer();
    writer->show_nccl(nccl_version, 5);
    const auto row =
        static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
    all_reduce(*writer, 1, clock.monotonic_ns(), row);
    all_reduce(*writer, 2, clock.monotonic_ns() + kMs, row, false);
    return writer;
  }
  // The only one among other files.
  std::string one_recorder() const {
    const std::vector<std::string> all = *list_directory(folder.path());
    for (const std::string& name : all) {
      if (name.ends_with(kRecorderSuffix)) return folder.path() + "/" + name;
    }
    return {};
  }
  std::string recorder_path() { return folder.path() + "/" + list_directory(folder.path())->at(0); }
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
  EXPECT_TRUE(watch.poll().logs.empty());
  EXPECT_TRUE(watch.final_poll().logs.empty());
}

TEST_F(RecorderWatchTest, AnnouncesARankAndItsCommunicatorsOnce) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3, .nodes = 1, .name = "dp"});
  CollectedBatch first = watch.poll();
  EXPECT_EQ(names(first), (Names{"job.start", "comm.init"}));
  ASSERT_EQ(first.logs.size(), 1u);
  Result<Identity> who = identity_from_resource(first.logs[0].resource);
  ASSERT_TRUE(who.ok()) << who.error();
  EXPECT_EQ(*who, (Identity{"job-7", 1, 3_rank, 8, 3, "gpu-017", "GPU-3"}));
  Result<CommInit> comm = comm_init_from_record(first.logs[0].logs[1]);
  ASSERT_TRUE(comm.ok()) << comm.error();
  EXPECT_EQ(*comm, (CommInit{CommId{77}, 8, 3, 1, "dp"}));
  EXPECT_TRUE(watch.poll().logs.empty());
  EXPECT_EQ(watch.owners().size(), 1u);
  EXPECT_EQ(counters.value("lockstep_agent_recorders"), 1);
}

TEST_F(RecorderWatchTest, TellsAProcessGroupOnceHoweverOftenItIsTold) {
  auto writer = open_writer();
  RecorderWatch watch(options, clock, counters);
  watch.poll();
  auto report = [&](std::string_view text, uint16_t number) {
    Record record{};
    record.head.type = RecordType::kText;
    record.head.time_ns = static_cast<uint64_t>(clock.monotonic_ns());
    record.text.kind = TextKind::kGroup;
    record.text.bytes = static_cast<uint8_t>(text.size());
    record.text.pieces = 1;
    record.text.number = number;
    std::memcpy(record.text.text, text.data(), text.size());
    writer->write(record);
  };
  report("tp\t0-3", 1);
  report("tp\t0-3", 2);
  report("no ranks", 3);
  std::vector<LogRecord> reported = events(watch.poll(), kEventCommGroup);
  ASSERT_EQ(reported.size(), 1u);
  Result<CommGroup> group = comm_group_from_record(reported[0]);
  ASSERT_TRUE(group.ok()) << group.error();
  EXPECT_EQ(*group, (CommGroup{"tp", {0_rank, 1_rank, 2_rank, 3_rank}}));
  EXPECT_EQ(counters.value("lockstep_agent_recorder_lost_total", "reason=\"malformed\""), 1);
  report("tp\t0-3", 4);
  EXPECT_TRUE(events(watch.poll(), kEventCommGroup).empty());
}

TEST_F(RecorderWatchTest, ReadsTheFoldersOfEveryUserButNoneThatIsNotItsUsersOwn) {
  const std::string own = folder.path() + "/lockstep-" + std::to_string(geteuid());
  const std::string foreign = folder.path() + "/lockstep-" + std::to_string(geteuid() + 1);
  options.folder = folder.path() + "/told";
  options.users_folder = folder.path();
  RecorderWatch watch(options, clock, counters);
  ASSERT_TRUE(make_directories(foreign).ok());  // ours, but it says another user's
  auto not_read = RecorderWriter::open(writer_options(foreign));
  ASSERT_TRUE(make_directories(own).ok());  // appears later
  auto read = RecorderWriter::open(writer_options(own));
  ASSERT_TRUE(read.ok() && not_read.ok());
  watch.poll();
  clock.advance(2'000'000'000);
  watch.poll();
  ASSERT_EQ(watch.owners().size(), 1u);
  EXPECT_TRUE(watch.owners()[0].path.starts_with(own + "/")) << watch.owners()[0].path;
}

TEST_F(RecorderWatchTest, AGpuFoundElsewhereIsToldWhereTheRecorderHasNone) {
  RecorderWriter::Options nameless = writer_options(folder.path());
  nameless.identity.gpu_uuid.clear();
  auto writer = RecorderWriter::open(nameless);
  ASSERT_TRUE(writer.ok());
  RecorderWatch watch(options, clock, counters);
  watch.poll();
  ASSERT_EQ(watch.owners().size(), 1u);
  EXPECT_EQ(watch.owners()[0].identity.gpu_uuid, "");
  watch.complete(watch.owners()[0].path, {.gpu_uuid = "GPU-9"});
  watch.poll();
  EXPECT_EQ(watch.owners()[0].identity.gpu_uuid, "GPU-9");
}

TEST_F(RecorderWatchTest, AProcessThatCannotNameItsJobIsToldUnderTheNameThatWasFoundForIt) {
  RecorderWriter::Options nameless = writer_options(folder.path());
  nameless.identity.job_id = "unknown-gpu-017-42";
  auto writer = RecorderWriter::open(nameless);
  ASSERT_TRUE(writer.ok());
  (*writer)->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  options.completion_wait_ns = 3'000'000'000;
  RecorderWatch watch(options, clock, counters);
  EXPECT_TRUE(watch.poll().logs.empty());  // perhaps it gets a name yet
  ASSERT_EQ(watch.owners().size(), 1u);
  watch.complete(watch.owners()[0].path, {.job_id = "team/trainer"});
  CollectedBatch named = watch.poll();
  // Nobody found a name in time: what it calls itself stands, and stays.
  RecorderWatch alone(options, clock, counters);
  EXPECT_TRUE(alone.poll().logs.empty());
  clock.advance(4'000'000'000);
  CollectedBatch unnamed = alone.poll();
  alone.complete(alone.owners()[0].path, {.job_id = "team/trainer"});
  alone.poll();
  EXPECT_EQ(alone.owners()[0].identity.job_id, "unknown-gpu-017-42");
  auto job_of = [](const CollectedBatch& batch) {
    return std::string(batch.logs.empty() ? "none" : find_string(batch.logs.back().resource, "lockstep.job_id"));
  };
  EXPECT_EQ(job_of(named), "team/trainer");
  EXPECT_EQ(job_of(unnamed), "unknown-gpu-017-42");
}

TEST_F(RecorderWatchTest, AStartSaysWhichCodeRunsAndWaitsForThatNoLongerThanItMay) {
  auto writer = open_writer();
  options.code_version_wait_ns = 3 * kSecond;
  RecorderWatch watch(options, clock, counters), unanswered(options, clock, counters);
  EXPECT_TRUE(watch.poll().logs.empty());
  EXPECT_TRUE(watch.awaits_code_versions());
  ASSERT_EQ(watch.owners().size(), 1u);
  watch.set_code_version(watch.owners()[0].path, "9f3a1c2");
  const std::vector<LogRecord> told = events(watch.poll(), kEventJobStart);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(find_string(told[0].attributes, "version"), "9f3a1c2");
  EXPECT_FALSE(watch.awaits_code_versions());

  EXPECT_TRUE(unanswered.poll().logs.empty());
  clock.advance(3 * kSecond - 1);
  EXPECT_TRUE(unanswered.poll().logs.empty());
  clock.advance(1);
  const std::vector<LogRecord> in_time = events(unanswered.poll(), kEventJobStart);
  ASSERT_EQ(in_time.size(), 1u);
  EXPECT_EQ(find_string(in_time[0].attributes, "version"), "");
  EXPECT_FALSE(unanswered.awaits_code_versions());
}

TEST_F(RecorderWatchTest, WhereNobodyCompletesThemAProcessThatCannotNameItsJobIsToldAtTheFirstLook) {
  RecorderWriter::Options nameless = writer_options(folder.path());
  nameless.identity.job_id = "unknown-gpu-017-42";
  auto writer = RecorderWriter::open(nameless);
  ASSERT_TRUE(writer.ok());
  (*writer)->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  EXPECT_FALSE(RecorderWatch(options, clock, counters).poll().logs.empty());
}

TEST_F(RecorderWatchTest, GivesAStepWhenItCloses) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  uint32_t row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  writer->write(mark(RecordType::kStepBegin, 12, clock.monotonic_ns()));
  all_reduce(*writer, 1, clock.monotonic_ns() + 20 * kMs, row);
  EXPECT_TRUE(events(watch.poll(), kEventTrainStep).empty());
  writer->write(mark(RecordType::kStepEnd, 12, clock.monotonic_ns() + 100 * kMs));
  std::vector<LogRecord> steps = events(watch.poll(), kEventTrainStep);
  ASSERT_EQ(steps.size(), 1u);
  Result<StepSummary> step = step_from_record(steps[0]);
  ASSERT_TRUE(step.ok()) << step.error();
  EXPECT_EQ(step->step, 12_step);
  EXPECT_EQ(step->duration_ns, rounded_time(100 * kMs));
  EXPECT_EQ(step->comm_ns, rounded_time(10 * kMs));
  ASSERT_EQ(step->comms.size(), 1u);
  EXPECT_EQ(step->comms[0].comm_id, CommId{77});
  EXPECT_EQ(counters.sum("lockstep_agent_recorder_records_total"), 4);
}

TEST_F(RecorderWatchTest, AStepSaysForHowLongItsProcessWasFoundStopped) {
  RecorderWatch watch(options, clock, counters);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto writer = RecorderWriter::open(writer_options(folder.path()));
    if (!writer.ok()) ::_exit(1);
    (*writer)->write(mark(RecordType::kStepBegin, 12, clock.monotonic_ns()));
    ::raise(SIGSTOP);
    (*writer)->write(mark(RecordType::kStepEnd, 12, clock.monotonic_ns() + 900 * kMs));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  for (int64_t ms : {0, 200, 700}) {  // the first look compares with none
    clock.advance(ms * kMs);
    watch.poll();
  }
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  std::vector<LogRecord> steps = events(watch.poll(), kEventTrainStep);
  for (LogRecord& more : events(watch.poll(), kEventTrainStep)) steps.push_back(std::move(more));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(step_from_record(steps[0])->stopped_ns, 450 * kMs) << "no look stands for more than a quarter of a second";
}

TEST_F(RecorderWatchTest, SaysWhereAQuietRankStandsAgainAndAgainUntilItMoves) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  uint32_t row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  all_reduce(*writer, 1, clock.monotonic_ns(), row);
  all_reduce(*writer, 2, clock.monotonic_ns() + kMs, row, false);
  EXPECT_TRUE(events(watch.poll(), kEventRankStatus).empty());
  clock.advance(options.quiet_status_ns - kMs);
  EXPECT_TRUE(events(watch.poll(), kEventRankStatus).empty());
  clock.advance(2 * kMs);
  CollectedBatch batch = watch.poll();
  EXPECT_TRUE(batch.urgent);
  std::vector<LogRecord> reported = events(batch, kEventRankStatus);
  ASSERT_EQ(reported.size(), 1u);
  Result<RankStatus> status = status_from_record(reported[0]);
  ASSERT_TRUE(status.ok()) << status.error();
  EXPECT_TRUE(status->process_alive);
  EXPECT_FALSE(status->finished);
  EXPECT_GE(status->quiet_ns, options.quiet_status_ns);
  ASSERT_EQ(status->comms.size(), 1u);
  EXPECT_EQ(status->comms[0].collectives_enqueued, 2u);
  EXPECT_EQ(status->comms[0].collectives_completed, 1u);
  EXPECT_EQ(status->comms[0].collective.ordinal, 2u);
  EXPECT_EQ(status->comms[0].collective.state, OpState::kEnqueued);

  EXPECT_TRUE(events(watch.poll(), kEventRankStatus).empty());  // not at every look
  clock.advance(5 * kSecond);
  EXPECT_EQ(events(watch.poll(), kEventRankStatus).size(), 1u);

  writer->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  reported = events(watch.poll(), kEventRankStatus);
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(status_from_record(reported[0])->quiet_ns, 0);
  EXPECT_TRUE(events(watch.poll(), kEventRankStatus).empty());
}

TEST_F(RecorderWatchTest, AQuietRankIsToldAfterAQuarterOfItsSilenceMoreThatIsASecondToHalfAMinute) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  hang(*writer);
  watch.poll();
  std::string reported_ms;
  const int64_t from_ns = clock.monotonic_ns();
  auto live = [&](int64_t until_ms, int64_t step_ms) {
    while (clock.monotonic_ns() - from_ns < until_ms * kMs) {
      clock.advance(step_ms * kMs);
      if (!events(watch.poll(), kEventRankStatus).empty())
        reported_ms += format(" %lld", static_cast<long long>((clock.monotonic_ns() - from_ns) / kMs));
    }
  };
  live(7'000, 250);
  EXPECT_EQ(reported_ms, " 2000 3000 4000 5000 6250");
  reported_ms.clear();
  live(200'000, 193'000);
  live(260'000, 1'000);
  EXPECT_EQ(reported_ms, " 200000 230000 260000");
}

TEST_F(RecorderWatchTest, ARankThatMovesThroughALongStepSaysSoNowAndThen) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  writer->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  watch.poll();
  int64_t reported = 0;
  for (int i = 0; i < 20; ++i) {
    clock.advance(kSecond);
    writer->write(mark(RecordType::kPhaseBegin, 2, clock.monotonic_ns()));
    for (const LogRecord& record : events(watch.poll(), kEventRankStatus)) {
      EXPECT_EQ(status_from_record(record)->quiet_ns, 0);
      ++reported;
    }
  }
  EXPECT_GE(reported, 3);
  EXPECT_LE(reported, 5);
}

TEST_F(RecorderWatchTest, ARecorderOutlivesItsProcessUntilWhatCameOutOfItIsSafe) {
  in_process([this](RecorderWriter& writer) {
    uint32_t row = static_cast<uint32_t>(writer.in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
    writer.write(mark(RecordType::kStepBegin, 5, clock.monotonic_ns()));
    all_reduce(writer, 1, clock.monotonic_ns() + kMs, row);
    writer.write(mark(RecordType::kStepEnd, 5, clock.monotonic_ns() + 50 * kMs));
    all_reduce(writer, 2, clock.monotonic_ns() + 60 * kMs, row, false);
  });
  RecorderWatch watch(options, clock, counters);
  Names seen;
  std::vector<LogRecord> statuses, ends;
  for (int i = 0; i < 3; ++i) {
    CollectedBatch batch = watch.poll();
    for (const std::string& name : names(batch)) seen.push_back(name);
    for (const LogRecord& record : events(batch, kEventRankStatus)) statuses.push_back(record);
    for (const LogRecord& record : events(batch, kEventJobEnd)) ends.push_back(record);
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
  EXPECT_TRUE(watch.owners().empty());
}

TEST_F(RecorderWatchTest, AProcessThatSaysGoodbyeEndsCleanly) {
  in_process([this](RecorderWriter& writer) {
    writer.write(mark(RecordType::kStepBegin, 5, clock.monotonic_ns()));
    writer.write(mark(RecordType::kShutdown, 0, clock.monotonic_ns() + kMs));
  });
  RecorderWatch watch(options, clock, counters);
  Names seen;
  std::vector<LogRecord> ends;
  for (int i = 0; i < 3; ++i) {
    CollectedBatch batch = watch.poll();
    for (const std::string& name : names(batch)) seen.push_back(name);
    for (const LogRecord& record : events(batch, kEventJobEnd)) ends.push_back(record);
  }
  EXPECT_EQ(seen, (Names{"job.start", "job.end"}));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_TRUE(std::get<bool>(find(ends[0].attributes, "clean")->data));
}

TEST_F(RecorderWatchTest, OverwrittenRecordsBecomeAGap) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer(64);
  for (int64_t i = 0; i < 200; ++i) writer->write(mark(RecordType::kScalar, i, clock.monotonic_ns() + i));
  std::vector<LogRecord> gaps = events(watch.poll(), kEventGap);
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
  (*writer)->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  EXPECT_TRUE(watch.poll().logs.empty());
  EXPECT_TRUE(watch.owners().empty());
  (*writer)->learn_world(2, 4);
  EXPECT_EQ(names(watch.poll()), Names{"job.start"});
  ASSERT_EQ(watch.owners().size(), 1u);
  EXPECT_EQ(watch.owners()[0].identity.rank, 2_rank);
  // What was marked before is not lost.
  (*writer)->write(mark(RecordType::kStepEnd, 1, clock.monotonic_ns() + kMs));
  EXPECT_EQ(events(watch.poll(), kEventTrainStep).size(), 1u);
}

TEST_F(RecorderWatchTest, AFileThatIsNoRecorderIsCountedOnceAndLeftAlone) {
  std::ofstream(folder.path() + "/1-1.lsfr") << "hello";
  std::ofstream(folder.path() + "/notes.txt") << "hello";
  RecorderWatch watch(options, clock, counters);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(watch.poll().logs.empty());
    clock.advance(20 * kSecond);
  }
  EXPECT_EQ(counters.sum("lockstep_agent_recorder_refused_total"), 1);
  EXPECT_EQ(list_directory(folder.path())->size(), 2u);
}

TEST_F(RecorderWatchTest, AFileThatWasNoRecorderIsTriedAgainAfterTenSecondsAndNotBefore) {
  const std::string path = folder.path() + "/1-1.lsfr";
  std::ofstream(path) << "hello";
  RecorderWatch watch(options, clock, counters);
  watch.poll();
  TemporaryFolder elsewhere;
  auto writer = RecorderWriter::open(writer_options(elsewhere.path()));
  ASSERT_TRUE(writer.ok());
  std::filesystem::rename(elsewhere.path() + "/" + list_directory(elsewhere.path())->at(0), path);
  clock.advance(10 * kSecond - 1);
  EXPECT_TRUE(watch.poll().logs.empty());
  EXPECT_EQ(counters.value("lockstep_agent_recorders"), 0);
  clock.advance(1);
  EXPECT_FALSE(watch.poll().logs.empty());
  EXPECT_EQ(counters.value("lockstep_agent_recorders"), 1);
}

TEST_F(RecorderWatchTest, CountsTheRecordersThatItReadsAndThoseThatAreSwitchedOff) {
  RecorderWatch watch(options, clock, counters);
  watch.poll();
  EXPECT_EQ(counters.value("lockstep_agent_recorders"), 0);
  EXPECT_EQ(counters.value("lockstep_agent_plugins_switched_off"), 0);
  auto writer = open_writer();
  watch.poll();
  EXPECT_EQ(counters.value("lockstep_agent_recorders"), 1);
  EXPECT_EQ(counters.value("lockstep_agent_plugins_switched_off"), 0);
  writer->switch_off(SwitchOff{1});
  for (int i = 0; i < 2; ++i) {  // reported once, counted as long as it is so
    EXPECT_EQ(events(watch.poll(), kEventGap).size(), i == 0 ? 1u : 0u);
    EXPECT_EQ(counters.value("lockstep_agent_plugins_switched_off"), 1);
  }
  EXPECT_EQ(counters.value("lockstep_agent_poll_late_ms", "which=\"most\""), 0);
}

TEST_F(RecorderWatchTest, TellsTotalsOfCollectivesAsMetrics) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  uint32_t row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  for (uint64_t op = 1; op <= 3; ++op)
    all_reduce(*writer, op, clock.monotonic_ns() + static_cast<int64_t>(op) * 20 * kMs, row);
  EXPECT_TRUE(watch.poll().metrics.empty());
  clock.advance(options.metrics_every_ns);
  CollectedBatch batch = watch.poll();
  ASSERT_EQ(batch.metrics.size(), 1u);
  std::map<std::string, double> values;
  for (const MetricPoint& point : batch.metrics[0].points) values[point.name] = point.value;
  EXPECT_EQ(values["lockstep_job_gpu_info"], 1);
  EXPECT_EQ(values["lockstep_collective_operations_total"], 3);
  EXPECT_EQ(values["lockstep_collective_bytes_total"], 3 * 4096);
  EXPECT_NEAR(values["lockstep_collective_gpu_seconds_total"], 0.030, 1e-9);
  EXPECT_NEAR(values["lockstep_collective_bus_bandwidth"], 3 * 4096 * 1.75 / 0.030, 1);
}

TEST_F(RecorderWatchTest, ARankThatIsProfiledTellsItsMetricsEverySecondAndAllAtWholeTimes) {
  clock.advance(options.metrics_every_ns - clock.monotonic_ns() % options.metrics_every_ns + 300 * kMs);
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  std::string told;
  const auto next = [&](int64_t ms) {
    clock.advance(ms * kMs);
    told += watch.poll().metrics.empty() ? '.' : 'x';
  };
  next(0);
  next(4'699);
  next(1);  // five seconds since a whole time, though not since it was found
  EXPECT_EQ(told, "..x");
  watch.set_profiled({watch.owners().at(0).path});
  for (const int64_t ms : {0, 999, 1, 999, 1}) next(ms);
  EXPECT_EQ(told, "..x..x.x");
  watch.set_profiled({});
  for (const int64_t ms : {1'000, 1'000, 999, 1}) next(ms);
  EXPECT_EQ(told, "..x..x.x...x") << "with the others again";
}

TEST_F(RecorderWatchTest, StepsOverTheLimitOfOneLookAreAGapOfSoMany) {
  RecorderWatch watch(options, clock, counters);
  constexpr auto kSteps = static_cast<int64_t>(user_limits::kStepsPerPollMax);
  auto writer = open_writer(16'384);
  const int64_t began_ns = clock.monotonic_ns();
  for (int64_t i = 0; i < kSteps + 3; ++i) {
    writer->write(mark(RecordType::kStepBegin, i, began_ns + 2 * i));
    writer->write(mark(RecordType::kStepEnd, i, began_ns + 2 * i + 1));
  }
  clock.advance(kSecond);
  const CollectedBatch batch = watch.poll();
  EXPECT_EQ(events(batch, kEventTrainStep).size(), user_limits::kStepsPerPollMax);
  const std::vector<LogRecord> gaps = events(batch, kEventGap);
  ASSERT_EQ(gaps.size(), 1u);
  EXPECT_EQ(find_string(gaps[0].attributes, "reason"), "steps_over_limit");
  EXPECT_EQ(find_int(gaps[0].attributes, "records"), 3);
  EXPECT_EQ(counters.sum("lockstep_agent_over_limit_total"), 3);
}

TEST_F(RecorderWatchTest, SaysHowLateALookWasAndHowLateTheLatest) {
  RecorderWatch watch(options, clock, counters);
  const auto late = [&](const char* which) {
    return counters.value("lockstep_agent_poll_late_ms", format("which=\"%s\"", which));
  };
  watch.poll();
  clock.advance(watch.next_poll_ns() + 250 * kMs);
  watch.poll();
  EXPECT_EQ(late("last"), 250);
  clock.advance(watch.next_poll_ns() + 90 * kMs);
  watch.poll();
  EXPECT_EQ(late("last"), 90);
  EXPECT_EQ(late("most"), 250);
  clock.advance(watch.next_poll_ns());
  watch.poll();
  EXPECT_EQ(late("last"), 0);
}

TEST_F(RecorderWatchTest, WhatBelongsToNothingThatIsKnownIsLostOnce) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  Record kernel{};
  kernel.head.type = RecordType::kKernelCh;
  kernel.head.time_ns = static_cast<uint64_t>(clock.monotonic_ns());
  kernel.kernel.op_id = 4711;
  writer->write(kernel);
  const auto lost = [&] { return counters.value("lockstep_agent_recorder_lost_total", "reason=\"orphan\""); };
  for (int i = 0; i < 3; ++i) {
    clock.advance(30 * kSecond);
    writer->write(mark(RecordType::kStepBegin, i, clock.monotonic_ns()));
    watch.poll();
  }
  EXPECT_EQ(lost(), 1);
  kernel.head.time_ns = static_cast<uint64_t>(clock.monotonic_ns());
  writer->write(kernel);
  for (int i = 3; i < 6; ++i) {
    clock.advance(30 * kSecond);
    writer->write(mark(RecordType::kStepBegin, i, clock.monotonic_ns()));
    watch.poll();
  }
  EXPECT_EQ(lost(), 2);
}

TEST_F(RecorderWatchTest, PointsOfPeersThatWaitForTheNextReportAreCountedAtEach) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  writer->in_flight().claim({.comm_id = 77, .size = 4096, .rank_in_comm = 3});
  for (int32_t peer = 0; peer < 40; ++peer) {
    Record record{};
    record.head.type = RecordType::kProxyStep;
    record.head.flags = kFlagSend;
    record.head.time_ns = static_cast<uint64_t>(clock.monotonic_ns());
    record.proxy_step.peer = decltype(record.proxy_step.peer)(peer);
    record.proxy_step.bytes = 1000;
    record.proxy_step.wait_peer_ns = 1000;
    writer->write(record);
  }
  watch.poll();
  // Of 40 peers with four points each 16 are told at once.
  for (const int64_t held_back : {4 * 24, 4 * 24 + 4 * 8, 4 * 24 + 4 * 8}) {
    clock.advance(options.metrics_every_ns);
    watch.poll();
    EXPECT_EQ(counters.value("lockstep_agent_points_held_back_total", "reason=\"network\""), held_back);
  }
}

TEST_F(RecorderWatchTest, AThreadThatRecordsWhatTheNetworkDoesIsOneOfThoseThatDriveIt) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  auto threads = [&] {
    watch.poll();
    return watch.owners().at(0).proxy_threads;
  };
  writer->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  EXPECT_TRUE(threads().empty());
  writer->write(mark(RecordType::kProxyOp, 1, clock.monotonic_ns()));
  EXPECT_EQ(threads(), std::vector<int32_t>{::gettid()});
  std::thread([&] {
    writer->write(mark(RecordType::kProxyStep, 1, clock.monotonic_ns()));
    EXPECT_EQ(threads(), (std::vector<int32_t>{::getpid(), ::gettid()}));
  }).join();
  EXPECT_EQ(threads(), std::vector<int32_t>{::gettid()}) << "the other has ended";
}

// As NCCL writes it: rank 3 has launched two, rank 6 (on another node) one, rank 7 is not there.
constexpr const char* kRasReport = R"({"nccl_version": "2.30.7", "communicators": [
  {"hash": "0x4d", "size": 8, "ranks": [{"rank": 3, "collective_counts": {"AllReduce": 2}},
                                        {"rank": 6, "collective_counts": {"AllReduce": 1}}],
   "missing_ranks": [{"rank": 7, "host": "10.0.0.7", "pid": 99, "status": {"considered_dead": true}}]},
  {"hash": "0x999", "size": 2, "missing_ranks": [{"rank": 0, "host": "10.0.0.8", "pid": 98}]}]})";

TEST_F(RecorderWatchTest, ARankThatHangsIsToldWithWhatNcclSaysItHasLaunched) {
  FakeRas ras(kRasReport);
  RasWatch ras_watch({.address = ras.address()}, clock, counters);
  RecorderWatch watch(options, clock, counters, nullptr, &ras_watch);
  auto writer = open_hanging(23007);
  watch.poll();
  EXPECT_EQ(ras.connections(), 0) << "nothing is suspected yet";
  clock.advance(options.quiet_status_ns);
  const CollectedBatch asked = watch.poll();
  std::vector<LogRecord> reported = events(asked, kEventRankStatus);
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(status_from_record(reported[0])->comms.at(0).launched, -1);

  ASSERT_TRUE(eventually([&] { return ras_watch.answer() != nullptr; }));
  CollectedBatch batch = watch.poll();
  if (!events(asked, kEventCommRas).empty()) batch = asked;  // the answer came before that look was over
  EXPECT_TRUE(batch.urgent);
  std::vector<LogRecord> trouble = events(batch, kEventCommRas);
  ASSERT_EQ(trouble.size(), 1u) << "of the node's own communicators";
  const CommRas comm = comm_ras_of(trouble[0]);
  EXPECT_EQ(comm.comm_id, CommId{77});
  EXPECT_EQ(comm.missing.at(0), (RasMissing{7, "10.0.0.7", 99, false, true}));
  EXPECT_EQ(comm.behind.at(0), (RasBehind{"AllReduce", 1, 2, 1, {6}}));
  EXPECT_EQ(identity_from_resource(batch.logs.at(0).resource)->rank, 3_rank);

  clock.advance(kSecond);
  batch = watch.poll();
  reported = events(batch, kEventRankStatus);
  ASSERT_EQ(reported.size(), 1u);
  const CommStatus comm_status = status_from_record(reported[0])->comms.at(0);
  EXPECT_EQ(comm_status.launched, 2);
  EXPECT_EQ(comm_status.collectives_completed, 1u);
  EXPECT_TRUE(events(batch, kEventCommRas).empty()) << "an answer is told once";

  writer->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  reported = events(watch.poll(), kEventRankStatus);
  ASSERT_EQ(reported.size(), 1u);
  EXPECT_EQ(status_from_record(reported[0])->comms.at(0).launched, -1) << "it has moved since it was asked";
  clock.advance(60 * kSecond);
  writer->write(mark(RecordType::kStepBegin, 2, clock.monotonic_ns()));
  watch.poll();
  EXPECT_EQ(ras.connections(), 1);
}

TEST_F(RecorderWatchTest, AnNcclThatMayNotStandAQuestionIsNeverAsked) {
  FakeRas ras(kRasReport);
  {
    RasWatch ras_watch({.address = ras.address()}, clock, counters);
    RecorderWatch watch(options, clock, counters, nullptr, &ras_watch);
    auto writer = open_hanging(22809);
    for (int i = 0; i < 20; ++i) {
      watch.poll();
      clock.advance(10 * kSecond);
    }
  }
  EXPECT_EQ(ras.connections(), 0);
  EXPECT_GT(counters.value("lockstep_agent_ras_queries_total", "result=\"unsafe\""), 0);
}

TEST_F(RecorderWatchTest, ARankThatIsQuietOutsideOfAnyOperationIsNoReasonToAsk) {
  FakeRas ras(kRasReport);
  {
    RasWatch ras_watch({.address = ras.address()}, clock, counters);
    RecorderWatch watch(options, clock, counters, nullptr, &ras_watch);
    auto writer = open_writer();
    writer->show_nccl(23007, 6);
    const auto row =
        static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
    all_reduce(*writer, 1, clock.monotonic_ns(), row);
    for (int i = 0; i < 20; ++i) {
      watch.poll();
      clock.advance(10 * kSecond);
    }
  }
  EXPECT_EQ(ras.connections(), 0);
}

TEST_F(RecorderWatchTest, AServiceThatHangsKeepsNobodyFromDraining) {
  FakeRas ras("");
  RasWatch ras_watch({.address = ras.address(), .timeout_ms = 2'000}, clock, counters);
  RecorderWatch watch(options, clock, counters, nullptr, &ras_watch);
  auto writer = open_hanging(23007);
  watch.poll();
  clock.advance(options.quiet_status_ns);
  watch.poll();
  ASSERT_TRUE(eventually([&] { return ras.connections() == 1; }));
  const int64_t before = counters.sum("lockstep_agent_recorder_records_total");
  for (int i = 0; i < 50; ++i) {
    writer->write(mark(RecordType::kScalar, i, clock.monotonic_ns()));
    watch.poll();
  }
  EXPECT_EQ(counters.sum("lockstep_agent_ras_queries_total"), 0) << "the question is still under way";
  EXPECT_EQ(counters.sum("lockstep_agent_recorder_records_total"), before + 50);
}

TEST_F(RecorderWatchTest, CountsWhatThePluginRecordedAndWhatItCouldNot) {
  CallbackCost cost;
  RecorderWatch watch(options, clock, counters, &cost);
  auto writer = open_writer();
  const auto row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  all_reduce(*writer, 1, clock.monotonic_ns(), row);
  writer->write(mark(RecordType::kScalar, 1, clock.monotonic_ns()));
  writer->count_refused(Refused::kNoSlot);
  watch.poll();
  EXPECT_EQ(counters.value("lockstep_plugin_records_total", "type=\"coll\""), 1);
  EXPECT_EQ(counters.value("lockstep_plugin_records_total", "type=\"kernel\""), 1);
  EXPECT_EQ(counters.value("lockstep_plugin_records_total", "type=\"mark\""), 1);
  EXPECT_EQ(counters.sum("lockstep_plugin_records_total"), counters.sum("lockstep_agent_recorder_records_total"));
  EXPECT_EQ(counters.value("lockstep_plugin_refused_total", "reason=\"no_slot\""), 1);
  watch.poll();
  EXPECT_EQ(counters.sum("lockstep_plugin_refused_total"), 1) << "counted once";
}

TEST_F(RecorderWatchTest, AProcessWhoseRecordsComeTooFastIsAskedForLess) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer(64);
  writer->show_mask(0x5e);
  auto overflow = [&] {
    for (int64_t i = 0; i < 200; ++i) writer->write(mark(RecordType::kScalar, i, clock.monotonic_ns() + i));
    watch.poll();
    clock.advance(kSecond);
  };
  overflow();
  overflow();
  EXPECT_EQ(writer->control(), 0u);
  overflow();
  auto request = DetailControl::from(writer->control(), static_cast<uint64_t>(clock.monotonic_ns()));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->mask, 0x4e);
  for (int i = 0; i < 3; ++i) overflow();
  EXPECT_EQ(DetailControl::from(writer->control(), static_cast<uint64_t>(clock.monotonic_ns()))->mask, 0x06);
  EXPECT_EQ(counters.value("lockstep_agent_detail_changes_total", "direction=\"down\""), 2);
}

TEST_F(RecorderWatchTest, AnOperatorsWishForDetailStands) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer(64);
  writer->show_mask(0x5e);
  const DetailControl request{0x5e, static_cast<uint32_t>(clock.monotonic_ns() / kSecond + 600)};
  ASSERT_TRUE(ask_detail(recorder_path(), request).ok());
  for (int look = 0; look < 10; ++look) {
    for (int64_t i = 0; i < 200; ++i) writer->write(mark(RecordType::kScalar, i, clock.monotonic_ns() + i));
    watch.poll();
  }
  EXPECT_EQ(writer->control(), request.word());
  EXPECT_EQ(counters.sum("lockstep_agent_detail_changes_total"), 0);
}

TEST_F(RecorderWatchTest, AProcessThatLeavesOutKernelsIsAskedForAllOnceItFallsSilent) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_hanging(22809);
  writer->show_mask(0x1e);
  watch.poll();
  EXPECT_EQ(writer->control(), 0u);
  clock.advance(options.quiet_status_ns);
  watch.poll();
  auto request = DetailControl::from(writer->control(), static_cast<uint64_t>(clock.monotonic_ns()));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->mask, 0x5e);
  EXPECT_EQ(counters.value("lockstep_agent_detail_changes_total", "direction=\"up\""), 1);
}

TEST_F(RecorderWatchTest, AProcessThatMayNotBeWrittenIsLeftAlone) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_hanging(22809);
  writer->show_mask(0x1e);
  watch.poll();
  // No recorder any more, by its first word: root may write whatever its mode.
  std::fstream(recorder_path(), std::ios::in | std::ios::out).write("\0\0\0\0\0\0\0\0", 8);
  for (int i = 0; i < 5; ++i) {
    clock.advance(10 * kSecond);
    EXPECT_EQ(events(watch.poll(), kEventRankStatus).size(), 1u) << "it is still read";
  }
  EXPECT_EQ(writer->control(), 0u);
  EXPECT_EQ(counters.sum("lockstep_agent_detail_changes_total"), 0);
}

TEST_F(RecorderWatchTest, TheLastLookOfAnEndingAgentGivesStepsThatHaveEnded) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  uint32_t row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  writer->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  all_reduce(*writer, 1, clock.monotonic_ns() + kMs, row, false);
  writer->write(mark(RecordType::kStepEnd, 1, clock.monotonic_ns() + 50 * kMs));
  EXPECT_TRUE(events(watch.poll(), kEventTrainStep).empty());
  EXPECT_EQ(events(watch.final_poll(), kEventTrainStep).size(), 1u);
}

// Users who mean harm, or have made a mistake.

TEST_F(RecorderWatchTest, ARecorderSwappedForALinkIsKeptAsItWasReadAndForRootAlone) {
  options.kept_folder = folder.path() + "/kept";
  const std::string secret = folder.path() + "/secret";
  std::ofstream(secret) << "secret";
  in_process([&](RecorderWriter& writer) { hang(writer); });
  RecorderWatch watch(options, clock, counters);
  watch.poll();
  const std::string path = one_recorder();
  const std::string content = *read_file(path, 64u << 20);
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::symlink(secret.c_str(), path.c_str()), 0);
  watch.poll();
  watch.submitted(1);
  const std::string kept = format("%s/%u-%s", options.kept_folder.c_str(), static_cast<unsigned>(::geteuid()),
                                  path.substr(path.rfind('/') + 1).c_str());
  EXPECT_TRUE(eventually([&] {
    watch.release([](uint64_t) { return true; });
    return ::access(path.c_str(), F_OK) != 0;
  }));
  EXPECT_EQ(*read_file(kept, 64u << 20), content);
  EXPECT_EQ(*read_file(secret, 100), "secret") << "what the link stood for is still there";
  EXPECT_EQ(list_directory(options.kept_folder)->size(), 1u);
}

TEST_F(RecorderWatchTest, ARecorderSwappedForAPipeHoldsUpNobody) {
  options.kept_folder = folder.path() + "/kept";
  in_process([&](RecorderWriter& writer) { hang(writer); });
  RecorderWatch watch(options, clock, counters);
  watch.poll();
  const std::string path = one_recorder();
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  watch.poll();
  watch.submitted(1);
  EXPECT_TRUE(eventually([&] {
    watch.release([](uint64_t) { return true; });
    return list_directory(options.kept_folder).ok() && list_directory(options.kept_folder)->size() == 1;
  }));
  ASSERT_EQ(::mkfifo((folder.path() + "/1-1.lsfr").c_str(), 0600), 0);
  watch.poll();
  EXPECT_GE(counters.value("lockstep_agent_user_files_refused_total", "reason=\"kind\""), 1);
}

TEST_F(RecorderWatchTest, AFolderThatIsReplacedIsReadAnewAndALinkInItsPlaceIsNot) {
  options.folder = folder.path() + "/own";
  std::filesystem::create_directory(options.folder);
  RecorderWatch watch(options, clock, counters);
  std::filesystem::rename(options.folder, folder.path() + "/away");
  std::filesystem::create_directory(folder.path() + "/other");
  std::filesystem::create_directory_symlink("other", options.folder);
  auto in_other = RecorderWriter::open(writer_options(folder.path() + "/other"));
  ASSERT_TRUE(in_other.ok());
  clock.advance(2 * kSecond);
  EXPECT_TRUE(watch.poll().logs.empty());
  std::filesystem::remove(options.folder);
  std::filesystem::rename(folder.path() + "/other", options.folder);
  clock.advance(2 * kSecond);
  EXPECT_FALSE(watch.poll().logs.empty());
}

TEST_F(RecorderWatchTest, ARankThatChangesItsNumberStaysTheOneItWas) {
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  writer->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  watch.poll();
  const int32_t other = 4711;
  std::fstream(recorder_path(), std::ios::in | std::ios::out)
      .seekp(offsetof(layout::FileHeader, rank_and_world))
      .write(reinterpret_cast<const char*>(&other), sizeof other);
  writer->write(mark(RecordType::kStepEnd, 1, clock.monotonic_ns() + kMs));
  watch.poll();
  ASSERT_EQ(watch.owners().size(), 1u);
  EXPECT_EQ(watch.owners()[0].identity.rank, 3_rank);
}

TEST_F(RecorderWatchTest, ManyCommunicatorsAreReportedAPartAtATime) {
  RecorderWatch watch(options, clock, counters);
  RecorderWriter::Options many = writer_options(folder.path());
  many.geometry.comms = 600;
  auto writer = RecorderWriter::open(many);
  ASSERT_TRUE(writer.ok());
  for (uint64_t i = 0; i < 600; ++i) (*writer)->in_flight().claim({.comm_id = i + 1, .size = 8, .rank_in_comm = 3});
  size_t all = 0;
  for (int i = 0; i < 3; ++i) {
    const size_t now = events(watch.poll(), kEventCommInit).size();
    EXPECT_LE(now, user_limits::kCommsPerPollMax);
    all += now;
  }
  EXPECT_EQ(all, 600u) << "also of a job that makes no further call";
}

TEST_F(RecorderWatchTest, AUserWhoseOperationsTakeTooMuchMemoryHasTheOldestForgotten) {
  options.memory_per_user = 10'000;
  RecorderWatch watch(options, clock, counters);
  auto writer = open_writer();
  const auto row = static_cast<uint32_t>(writer->in_flight().claim({.comm_id = 77, .size = 8, .rank_in_comm = 3}).row);
  writer->write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns()));
  for (uint64_t i = 1; i <= 200; ++i)
    all_reduce(*writer, i, clock.monotonic_ns() + static_cast<int64_t>(i), row, false);
  watch.poll();
  EXPECT_EQ(counters.value("lockstep_agent_over_limit_total",
                           format("what=\"memory\",uid=\"%u\"", static_cast<unsigned>(::geteuid()))),
            1);
  watch.poll();
  EXPECT_EQ(counters.sum("lockstep_agent_over_limit_total"), 1) << "it is not over it any more";
}

// Copies of one recorder, of processes that are gone.
struct ManyRecordersTest : RecorderWatchTest {
  void SetUp() override {
    in_process([&](RecorderWriter& writer) { writer.write(mark(RecordType::kStepBegin, 1, clock.monotonic_ns())); });
    content = *read_file(one_recorder(), 64u << 20);
    std::filesystem::remove(one_recorder());
    options.folder.clear();
    options.users_folder = folder.path();
  }
  std::string user(uid_t uid, size_t recorders) {
    const std::string path = format("%s/lockstep-%u", folder.path().c_str(), static_cast<unsigned>(uid));
    std::filesystem::create_directory(path);
    for (size_t i = 0; i < recorders; ++i) {
      const std::string file = format("%s/%zu-1.lsfr", path.c_str(), i);
      // The same bytes under many names: a second of disk less.
      if (i == 0) {
        std::ofstream(file) << content;
        EXPECT_EQ(::chown(file.c_str(), uid, uid), 0);
      } else {
        EXPECT_EQ(::link(format("%s/0-1.lsfr", path.c_str()).c_str(), file.c_str()), 0);
      }
    }
    EXPECT_EQ(::chown(path.c_str(), uid, uid), 0);
    return path;
  }
  std::string content;
};

TEST_F(ManyRecordersTest, AUsersThreeThousandRecordersAreNotReadAllAndAnothersAreReadAllTheSame) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  user(1000, 3000);
  user(1001, 2);
  RecorderWatch watch(options, clock, counters);
  for (int i = 0; i < 5; ++i) watch.poll();
  EXPECT_EQ(counters.value("lockstep_agent_recorders"), static_cast<int64_t>(user_limits::kRecordersPerUserMax + 2));
  EXPECT_EQ(counters.value("lockstep_agent_over_limit_total", "what=\"tries\",uid=\"1000\""), 2) << "64 in each poll";
  EXPECT_EQ(counters.value("lockstep_agent_over_limit_total", "what=\"recorders\",uid=\"1000\""), 3)
      << "once in each poll after that";
  EXPECT_GT(counters.value("lockstep_agent_over_limit_total", "what=\"names\",uid=\"1000\""), 0);
  EXPECT_EQ(counters.value("lockstep_agent_over_limit_total", "what=\"recorders\",uid=\"1001\""), 0);
}

// Every look at it takes a while.
class SlowClock final : public Clock {
 public:
  int64_t unix_ns() const override { return monotonic_ns() + 1'700'000'000'000'000'000; }
  int64_t monotonic_ns() const override { return now_ns += 2 * kMs; }
  mutable int64_t now_ns = 1'000 * kSecond;
};

TEST_F(ManyRecordersTest, AUserWhoseRecordersTakeLongWaitsForHisOwnNextTurn) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  user(1000, 100);
  user(1001, 2);
  SlowClock slow;
  RecorderWatch watch(options, slow, counters);
  auto ranks_in = [](const CollectedBatch& batch) { return batch.logs.size(); };
  size_t seen = 0, polls = 0;
  // All are copies of one rank of a process that is gone: a group for each that had its turn.
  const size_t first = ranks_in(watch.poll());
  EXPECT_LT(first, 60u);
  EXPECT_GT(counters.value("lockstep_agent_over_limit_total", "what=\"time\",uid=\"1000\""), 0);
  EXPECT_EQ(counters.value("lockstep_agent_over_limit_total", "what=\"time\",uid=\"1001\""), 0)
      << "who has few has them read at once";
  for (seen = first; seen < 102 && polls < 100; ++polls) seen += ranks_in(watch.poll());
  EXPECT_GE(seen, 102u) << "nobody is passed over for ever";
}

TEST_F(ManyRecordersTest, APidThatIsAnotherUsersDoesNotMakeARecorderAlive) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  const std::string path = user(1000, 1) + "/0-1.lsfr";
  // Our own pid and start: a process of root, which user 1000 has only heard of.
  const int32_t pid = ::getpid();
  const uint64_t ticks = process_state(pid).start_ticks;
  std::fstream file(path, std::ios::in | std::ios::out);
  file.seekp(offsetof(layout::FileHeader, pid)).write(reinterpret_cast<const char*>(&pid), sizeof pid);
  file.seekp(offsetof(layout::FileHeader, process_start_ticks))
      .write(reinterpret_cast<const char*>(&ticks), sizeof ticks);
  file.close();
  RecorderWatch watch(options, clock, counters);
  watch.poll();
  EXPECT_EQ(events(watch.poll(), kEventJobEnd).size(), 1u);
}

}  // namespace
}  // namespace lockstep
