// The limits of steps in memory and on disk at their very borders, and budgets that are given back exactly.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/text.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/memory_step_store.h"
#include "store/steps/columnar_step_store.h"
#include "store/steps/step_merge.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::steps {
namespace {

using RankType = decltype(Identity::rank);
using StepType = decltype(StepSummary::step);
constexpr int64_t kTime = 1'700'000'000'000'000'000;

Identity identity_of(Rank rank, std::string job_id = "job", int64_t attempt = 0) {
  Identity identity;
  identity.job_id = std::move(job_id);
  identity.attempt = attempt;
  identity.rank = RankType(rank);
  identity.world_size = 8;
  identity.host = "h";
  return identity;
}

RankSeen seen_at(Rank rank, int64_t last_seen_unix_ns = kTime, const char* host = "h") {
  RankSeen seen;
  seen.identity = identity_of(rank);
  seen.identity.host = host;
  seen.last_seen_unix_ns = last_seen_unix_ns;
  return seen;
}

StepSummary summary_of(int64_t step, size_t comms = 0, size_t flows = 0, size_t scalars = 0) {
  StepSummary summary;
  summary.step = StepType(step);
  summary.duration_ns = 5;
  summary.comms.resize(comms);
  summary.flows.resize(flows);
  summary.scalars.resize(scalars);
  return summary;
}

TEST(StepWriter, ARowGroupTakesAsManyRowsAsItMayAndNotOneMore) {
  StepWriter writer = StepFile::start();
  writer.begin_job({.job_id = "job"});
  for (size_t i = 0; i < kGroupRows; ++i) ASSERT_TRUE(writer.add(seen_at(0_rank), summary_of(static_cast<int64_t>(i))));
  EXPECT_FALSE(writer.add(seen_at(0_rank), summary_of(9'000)));
  EXPECT_EQ(writer.rows(), kGroupRows);
  writer.write_group();
  writer.write_group();  // nothing to write
  EXPECT_TRUE(writer.add(seen_at(0_rank), summary_of(9'000)));
  EXPECT_FALSE(writer.is_full());
  const StepWriter::Written written = writer.finish();
  ASSERT_EQ(written.groups.size(), 2u);
  EXPECT_EQ(written.groups[0].rows, kGroupRows);
  EXPECT_EQ(written.groups[1].rows, 1u);
  ASSERT_EQ(written.groups[0].parts.size(), 1u);
  EXPECT_EQ(written.groups[0].parts[0].rows, kGroupRows);
  EXPECT_EQ(written.jobs[0].last_step, StepType(9'000));
  EXPECT_EQ(written.jobs[0].ranks, 1u);
  auto part = [&](const columns::SectionPlace& place) { return written.content.substr(place.offset, place.bytes); };
  const auto tables = StepTables::decode(part(written.tables)).value();
  EXPECT_EQ(StepColumns::decode(part(written.groups[0].place), kGroupRows, tables).value()->rows(), kGroupRows);
  const auto more = StepColumns::decode(part(written.groups[0].place), kGroupRows + 1, tables);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error(), "8193 rows are more than a row group has");
}

TEST(StepWriter, ARowGroupOfManyCellsEndsWithTheRowThatReachesTheLimit) {
  StepWriter writer = StepFile::start();
  writer.begin_job({.job_id = "job"});
  const StepSummary wide = summary_of(0, 0, kFlowsPerStepMax);
  StepSummary row = wide;
  size_t rows = 0;
  for (; rows < 10'000; ++rows) {
    row.step = StepType(static_cast<int64_t>(rows));
    if (!writer.add(seen_at(0_rank), row)) break;
  }
  EXPECT_EQ(rows, kGroupCellsMax / kFlowsPerStepMax);
}

TEST(StepColumns, CellsUpToTheLimitAndTheLastRowsAreRead) {
  // Row groups of rows that all have the shape with most scalars, communicators or flows: numbers that are all zero.
  auto decode = [](size_t rows, RowColumn shape, size_t per_row) -> std::string {
    auto tables = std::make_shared<StepTables>();
    tables->ranks.resize(1);
    tables->comms.ends = {0, shape == RowColumn::kCommShape ? per_row : 0};
    tables->comms.keys.resize(tables->comms.ends[1]);
    tables->flows.ends = {0, shape == RowColumn::kFlowShape ? per_row : 0};
    tables->flows.keys.resize(tables->flows.ends[1]);
    tables->scalars.ends = {0, shape == RowColumn::kScalarShape ? per_row : 0};
    tables->scalars.keys.resize(tables->scalars.ends[1]);
    std::string bytes;
    auto zeros = [&](size_t count) { columns::put_bytes(bytes, columns::encode_ints(std::vector<int64_t>(count))); };
    for (size_t column = 0; column < kRowColumns; ++column) {
      const int64_t value = column == static_cast<size_t>(shape) ? 1 : 0;
      columns::put_bytes(bytes, columns::encode_ints(std::vector<int64_t>(rows, value)));
    }
    for (size_t i = 0; i < kCommColumns; ++i) zeros(shape == RowColumn::kCommShape ? rows * per_row : 0);
    for (size_t i = 0; i < kFlowColumns; ++i) zeros(shape == RowColumn::kFlowShape ? rows * per_row : 0);
    zeros(shape == RowColumn::kScalarShape ? rows * per_row : 0);
    const auto read = StepColumns::decode(bytes, rows, tables);
    if (!read.ok()) return read.error();
    StepSummary row;
    (*read)->get(rows - 1, row);
    return format("%zu communicators, %zu flows, %zu scalars, %zu bytes", row.comms.size(), row.flows.size(),
                  row.scalars.size(), (*read)->memory_bytes() - sizeof(StepColumns));
  };
  EXPECT_EQ(decode(2, RowColumn::kScalarShape, 3),
            format("0 communicators, 0 flows, 3 scalars, %zu bytes", 8 * (2 * (kRowColumns + 3) + 6)));
  EXPECT_EQ(decode(2, RowColumn::kCommShape, 3),
            format("3 communicators, 0 flows, 0 scalars, %zu bytes", 8 * (2 * (kRowColumns + 3) + 6 * kCommColumns)));
  EXPECT_EQ(decode(2, RowColumn::kFlowShape, 3),
            format("0 communicators, 3 flows, 0 scalars, %zu bytes", 8 * (2 * (kRowColumns + 3) + 6 * kFlowColumns)));
  const size_t rows = kGroupCellsMax / kFlowsPerStepMax + 1;
  EXPECT_EQ(decode(rows, RowColumn::kFlowShape, kFlowsPerStepMax).substr(0, 25),
            format("0 communicators, %zu fl", kFlowsPerStepMax));
  EXPECT_EQ(decode(rows + 1, RowColumn::kFlowShape, kFlowsPerStepMax), "its rows have too many cells");
}

TEST(StepWriter, KnowsRunsOfStepsUpToAsManyAsMayBeAndThenOneWithHoles) {
  StepWriter writer = StepFile::start();
  writer.begin_job({.job_id = "job"});
  std::vector<std::pair<int64_t, int64_t>> expected;
  for (int64_t run = 0; run < 34; ++run) {
    for (int64_t step : {run * 10, run * 10 + 1}) {
      ASSERT_TRUE(writer.add(seen_at(0_rank), summary_of(step)));
      ASSERT_TRUE(writer.add(seen_at(1_rank), summary_of(step)));
    }
    if (run < 32) {
      expected.emplace_back(run * 10, run * 10 + 1);
    } else {
      expected.back().second = run * 10 + 1;
    }
  }
  const StepWriter::Written written = writer.finish();
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const StepRun& run : written.groups[0].parts[0].runs)
    runs.emplace_back(std::bit_cast<int64_t>(run.first), std::bit_cast<int64_t>(run.last));
  EXPECT_EQ(runs, expected);
  EXPECT_EQ(written.jobs[0].ranks, 2u);
}

TEST(StepWriter, ARankIsKnownAsItWasSeenLastAndTwiceWhereItMoved) {
  StepWriter writer = StepFile::start();
  writer.begin_job({.job_id = "job"});
  RankSeen rank = seen_at(3_rank, 100);
  StepSummary row = summary_of(4);
  row.records_lost = 2;
  ASSERT_TRUE(writer.add(rank, row));
  rank.last_seen_unix_ns = 90;
  rank.ended = true;
  row.step = StepType(2);
  ASSERT_TRUE(writer.add(rank, row));
  rank.last_seen_unix_ns = 100;
  rank.ended_cleanly = true;
  row.step = StepType(6);
  ASSERT_TRUE(writer.add(rank, row));
  ASSERT_TRUE(writer.add(seen_at(3_rank, 50, "other"), summary_of(5)));
  const StepWriter::Written written = writer.finish();
  const auto tables = StepTables::decode(written.content.substr(written.tables.offset, written.tables.bytes)).value();
  ASSERT_EQ(tables->ranks.size(), 2u);
  EXPECT_EQ(tables->ranks[0].last_seen_unix_ns, 100);
  EXPECT_TRUE(tables->ranks[0].ended) << "of two of one time the later counts";
  EXPECT_TRUE(tables->ranks[0].ended_cleanly);
  EXPECT_EQ(tables->ranks[0].last_step, StepType(6));
  EXPECT_EQ(tables->ranks[0].records_lost, 6);
  EXPECT_EQ(tables->ranks[1].identity.host, "other");
  EXPECT_EQ(tables->ranks[1].last_step, StepType(5));
  EXPECT_EQ(tables->ranks[1].records_lost, 0);
  EXPECT_EQ(written.jobs[0].ranks, 1u) << "it is one rank";
  EXPECT_EQ(written.jobs[0].records_lost, 6);
  EXPECT_EQ(written.jobs[0].last_step, StepType(6));
}

TEST(GroupCache, KeepsWhatWasUsedLastWithinItsBytes) {
  testing::TemporaryFolder folder;
  StepWriter writer = StepFile::start();
  writer.begin_job({.job_id = "job"});
  for (int64_t step = 0; step < 4; ++step) {
    ASSERT_TRUE(writer.add(seen_at(0_rank), summary_of(step)));
    writer.write_group();
  }
  StepFileInfo info;
  info.number = 1;
  const std::shared_ptr<const StepFile> file = StepFile::write(folder.path(), info, writer.finish()).value();
  size_t spoiled = 0;
  auto on_spoiled = [&](const StepFile&, size_t, const std::string&) { ++spoiled; };
  size_t tables_bytes = 0, group_bytes = 0;
  {
    GroupCache all(1 << 20, on_spoiled);
    EXPECT_EQ(all.bytes(), 0u);
    const auto columns = all.load(*file, 0);
    group_bytes = columns->memory_bytes();
    tables_bytes = all.bytes() - group_bytes;
    EXPECT_EQ(tables_bytes, file->read_tables().value()->memory_bytes());
    EXPECT_EQ(all.load(*file, 0), columns) << "the very same";
    EXPECT_EQ(all.bytes(), tables_bytes + group_bytes);
  }
  GroupCache cache(tables_bytes + 2 * group_bytes, on_spoiled);
  const auto first = cache.load(*file, 0);
  const auto second = cache.load(*file, 1);
  EXPECT_EQ(cache.bytes(), tables_bytes + 2 * group_bytes) << "just what fits";
  EXPECT_EQ(cache.load(*file, 0), first);
  (void)cache.load(*file, 2);  // the tables were used when the second was read, the first since
  EXPECT_EQ(cache.bytes(), tables_bytes + 2 * group_bytes);
  EXPECT_EQ(cache.load(*file, 0), first);
  EXPECT_NE(cache.load(*file, 1), second) << "it had to go";
  EXPECT_EQ(cache.bytes(), tables_bytes + 2 * group_bytes);
  GroupCache none(0, on_spoiled);
  (void)none.load(*file, 0);
  EXPECT_EQ(none.bytes(), group_bytes) << "the last one stays whatever it is";
  EXPECT_EQ(spoiled, 0u);
  std::filesystem::remove(file->path());
  EXPECT_EQ(none.load(*file, 1), nullptr);
  EXPECT_EQ(spoiled, 1u);
  file->spoil(0);
  EXPECT_EQ(cache.load(*file, 0), nullptr) << "not even from memory";
}

class MemorySteps : public ::testing::Test {
 protected:
  void open(MemoryStepStoreOptions options) { store_ = std::make_unique<MemoryStepStore>(options, counters_); }
  void append(int64_t step, Rank rank, const std::string& job = "job", int64_t time = kTime) {
    store_->append_step(identity_of(rank, job), summary_of(step, 1), time);
  }
  int64_t bytes() const { return counters_.value("lockstep_store_bytes", "table=\"steps\""); }
  int64_t rows() const { return counters_.value("lockstep_store_rows", "table=\"steps\""); }
  size_t found(int64_t from, int64_t to, const char* job = "job") const {
    return store_->steps(job, StepType(from), StepType(to)).size();
  }
  Counters counters_{kStoreCounters};
  std::unique_ptr<MemoryStepStore> store_;
};

TEST_F(MemorySteps, ARangeOfStepsHasItsFirstAndItsLast) {
  open({});
  for (int64_t step : {1, 3, 5}) append(step, 0_rank);
  EXPECT_EQ(found(1, 5), 3u);
  EXPECT_EQ(found(1, 3), 2u);
  EXPECT_EQ(found(2, 4), 1u);
  EXPECT_EQ(found(3, 3), 1u);
  EXPECT_EQ(found(6, 9), 0u);
  EXPECT_EQ(found(-5, 0), 0u);
  const auto held = store_->held_steps("job", StepType(1), StepType(3));
  ASSERT_TRUE(held.has_value());
  ASSERT_EQ(held->steps.size(), 2u);
  EXPECT_EQ(held->steps[1].step, StepType(3));
  EXPECT_FALSE(held->steps[1].is_whole);
  store_->mark_whole("job", 0, StepType(3));
  EXPECT_TRUE(store_->held_steps("job", StepType(3), StepType(3))->steps[0].is_whole);
  size_t visited = 0;
  auto visit = [&](const Identity&, const StepSummary&) { ++visited; };
  EXPECT_EQ(store_->visit_step("job", 0, StepType(3), true, visit), 1u);
  EXPECT_EQ(store_->visit_step("job", 0, StepType(1), true, visit), 0u);
  EXPECT_EQ(store_->visit_step("job", 0, StepType(1), false, visit), 1u);
  EXPECT_EQ(store_->visit_step("job", 1, StepType(1), false, visit), 0u);
  EXPECT_EQ(visited, 2u);
}

TEST_F(MemorySteps, HoldsAsManyRowsAndBytesAsItMayAndGivesBackWhatGoes) {
  open({.step_rows_max = 3});
  append(1, 0_rank);
  const int64_t row_bytes = bytes();
  EXPECT_EQ(row_bytes, static_cast<int64_t>(48 + sizeof(StepSummary) + sizeof(CommStep)));
  append(2, 0_rank);
  append(3, 0_rank);
  EXPECT_EQ(rows(), 3);
  EXPECT_EQ(bytes(), 3 * row_bytes);
  append(3, 0_rank);
  EXPECT_EQ(bytes(), 3 * row_bytes) << "the same row again";
  append(4, 0_rank);
  EXPECT_EQ(rows(), 3);
  EXPECT_EQ(bytes(), 3 * row_bytes);
  EXPECT_EQ(found(1, 1), 0u);
  store_ = nullptr;

  open({.step_bytes_max = static_cast<size_t>(2 * row_bytes)});
  append(1, 0_rank);
  append(2, 0_rank);
  EXPECT_EQ(rows(), 2);
  append(3, 0_rank);
  EXPECT_EQ(rows(), 2);
  EXPECT_EQ(found(2, 3), 2u);
  store_->append_step(identity_of(0_rank), summary_of(3, 1, 2, 3), kTime);
  EXPECT_EQ(rows(), 1) << "it has grown";
  EXPECT_EQ(bytes(), row_bytes + static_cast<int64_t>(2 * sizeof(FlowStep) + 3 * sizeof(StepScalar)));
  EXPECT_EQ(found(3, 3), 1u);
}

TEST_F(MemorySteps, TrimsToItsLimitsAndNoFurtherAndNeverWhatIsOnNoDisk) {
  open({});
  for (int64_t step = 1; step <= 4; ++step) {
    append(step, 0_rank);
    append(step, 1_rank);
  }
  const auto all = static_cast<size_t>(bytes());
  store_->trim(7, all);
  EXPECT_EQ(rows(), 8) << "none of it is on disk";
  for (int64_t step : {1, 2, 4}) store_->mark_sealed("job", 0, StepType(step), 2);
  store_->trim(8, all);
  EXPECT_EQ(rows(), 8);
  store_->trim(7, all);
  EXPECT_EQ(rows(), 6) << "a step is whole or gone";
  EXPECT_EQ(found(1, 1), 0u);
  store_->trim(100, all / 8 * 6 - 1);
  EXPECT_EQ(rows(), 4);
  store_->trim(0, 0);
  EXPECT_EQ(rows(), 4) << "the oldest that is left is on no disk";
  store_->mark_sealed("job", 0, StepType(3), 1);
  store_->trim(0, 0);
  EXPECT_EQ(rows(), 4) << "one of its rows is not";
  store_->mark_sealed("job", 0, StepType(3), 5);
  store_->trim(0, 0);
  EXPECT_EQ(rows(), 0);
  EXPECT_EQ(bytes(), 0);
  EXPECT_EQ(counters_.value("lockstep_store_rows_dropped_total", "table=\"steps\",reason=\"limit\""), 8);
}

TEST_F(MemorySteps, RowsOfChosenRanksAreVisitedUntilOneIsNotTaken) {
  open({});
  for (Rank rank : {1_rank, 2_rank, 5_rank, 7_rank}) append(9, rank);
  const RankType wanted[] = {RankType(2), RankType(3), RankType(5), RankType(7)};
  std::string seen;
  size_t takes = 10;
  auto visit = [&](const RankInfo& rank, const StepSummary&) {
    if (takes == 0) return false;
    --takes;
    seen += format("%s ", rank.identity.host.c_str());
    return true;
  };
  auto visited = store_->visit_rows("job", 0, StepType(9), wanted, visit);
  EXPECT_EQ(visited.done, 4u);
  EXPECT_EQ(visited.missing, 1u);
  EXPECT_EQ(seen, "h h h ");
  takes = 1;
  visited = store_->visit_rows("job", 0, StepType(9), wanted, visit);
  EXPECT_EQ(visited.done, 2u);
  EXPECT_EQ(visited.missing, 1u);
  visited = store_->visit_rows("job", 0, StepType(8), wanted, visit);
  EXPECT_EQ(visited.done, 4u);
  EXPECT_EQ(visited.missing, 4u);
  visited = store_->visit_rows("job", 0, StepType(9), {}, visit);
  EXPECT_EQ(visited.done + visited.missing, 0u);
}

TEST_F(MemorySteps, AsManyJobsRanksCommunicatorsAndGroupsAsMayBe) {
  open({.jobs_max = 2, .ranks_max = 3, .comms_per_rank_max = 2, .groups_per_rank_max = 2});
  append(1, 0_rank, "a", kTime + 2);
  append(1, 0_rank, "b", kTime + 1);
  append(1, 1_rank, "b", kTime + 1);
  EXPECT_EQ(store_->jobs().size(), 2u);
  append(1, 2_rank, "b", kTime + 3);  // a fourth rank: the longest silent other job goes
  ASSERT_EQ(store_->jobs().size(), 1u);
  EXPECT_EQ(store_->job("b")->ranks.size(), 3u);
  append(1, 3_rank, "b", kTime + 4);
  EXPECT_EQ(store_->job("b")->ranks.size(), 3u) << "there is no other to go";
  EXPECT_EQ(counters_.value("lockstep_store_rows_refused_total", "table=\"steps\",reason=\"rank_limit\""), 1);
  EXPECT_EQ(counters_.value("lockstep_store_jobs_dropped_total"), 1);
  EXPECT_EQ(counters_.value("lockstep_store_rows_dropped_total", "table=\"steps\",reason=\"job_dropped\""), 1);
  EXPECT_EQ(rows(), 3);
  EXPECT_EQ(store_->job("b")->first_seen_unix_ns, kTime + 1);
  EXPECT_EQ(store_->job("b")->last_seen_unix_ns, kTime + 4);
  for (int i : {1, 2, 1, 3}) {
    CommInit comm;
    comm.comm_id = decltype(comm.comm_id)(static_cast<uint64_t>(i));
    store_->append_comm(identity_of(0_rank, "b"), comm, kTime);
    CommGroup group;
    group.name = format("g%d", 9 - i);
    store_->append_group(identity_of(0_rank, "b"), group, kTime);
  }
  const RankInfo rank = store_->job("b")->ranks[0];
  ASSERT_EQ(rank.comms.size(), 2u);
  EXPECT_EQ(rank.comms[0].comm_id, decltype(CommInit::comm_id)(2));
  EXPECT_EQ(rank.comms[1].comm_id, decltype(CommInit::comm_id)(3));
  ASSERT_EQ(rank.groups.size(), 2u);
  EXPECT_EQ(rank.groups[0].name, "g7");
  EXPECT_EQ(rank.groups[1].name, "g8");
}

TEST_F(MemorySteps, LogsComeNewestFirstOfBothKindsAndNoMoreThanAreHeld) {
  open({.logs_max = 2, .events_max = 1});
  auto log = [&](const char* event, const char* text) {
    LogRecord record;
    record.event_name = event;
    record.body = std::string(text);
    store_->append_log(nullptr, record);
  };
  log("a", "1");
  log("train.step", "2");
  log("b", "3");
  EXPECT_EQ(store_->logs("", "", 10).total, 3u);
  log("b", "4");
  log("rank.status", "5");
  const Page<StoredLog> page = store_->logs("", "", 2);
  EXPECT_EQ(page.total, 3u);
  ASSERT_EQ(page.items.size(), 2u);
  EXPECT_EQ(page.items[0].record.event_name, "rank.status");
  EXPECT_EQ(page.items[1].record.event_name, "b");
  EXPECT_EQ(store_->logs("", "b", 10).total, 2u);
  EXPECT_EQ(store_->logs("x", "", 10).total, 0u);
  EXPECT_EQ(counters_.value("lockstep_store_rows", "table=\"logs\""), 2);
  EXPECT_EQ(counters_.value("lockstep_store_rows_dropped_total", "table=\"logs\",reason=\"limit\""), 1);
  EXPECT_EQ(counters_.value("lockstep_store_rows_dropped_total", "table=\"events\",reason=\"limit\""), 1);
  const int64_t held = counters_.value("lockstep_store_bytes", "table=\"logs\"");
  EXPECT_GT(held, 0);
  open({.log_bytes_max = static_cast<size_t>(held)});
  log("b", "3");
  log("b", "4");
  EXPECT_EQ(store_->logs("", "", 10).total, 2u);
  log("b", "5");
  EXPECT_EQ(store_->logs("", "", 10).total, 2u);
  EXPECT_EQ(counters_.value("lockstep_store_bytes", "table=\"logs\""), held);
}

class StepBorders : public ::testing::Test {
 protected:
  StepBorders() {
    options_.folder = folder_.path() + "/steps";
    options_.background = false;
    options_.hot_rows_max = 0;
  }
  void open() {
    store_.reset();
    Result<std::unique_ptr<ColumnarStepStore>> opened = ColumnarStepStore::open(options_, clock_, counters_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    store_ = std::move(*opened);
  }
  void append(int64_t step, Rank rank, uint64_t sequence = 0) {
    if (sequence != 0) store_->begin_record(sequence, clock_.unix_ns());
    store_->append_step(identity_of(rank), summary_of(step), clock_.unix_ns());
    if (sequence != 0) store_->end_record();
  }
  size_t found(int64_t from, int64_t to) const { return store_->steps("job", StepType(from), StepType(to)).size(); }
  int64_t files() const { return counters_.value("lockstep_step_files"); }

  testing::TemporaryFolder folder_;
  ColumnarStepStoreOptions options_;
  testing::FakeClock clock_{kTime};
  Counters counters_{kStoreCounters};
  std::unique_ptr<ColumnarStepStore> store_;
};

TEST_F(StepBorders, ARowWithAsMuchAsItMayHaveIsTakenAndOneWithMoreIsNot) {
  open();
  auto refused = [&](const StepSummary& summary) {
    const char* labels = "table=\"steps\",reason=\"too_large\"";
    const int64_t before = counters_.value("lockstep_store_rows_refused_total", labels);
    store_->append_step(identity_of(0_rank), summary, kTime);
    return counters_.value("lockstep_store_rows_refused_total", labels) > before;
  };
  EXPECT_FALSE(refused(summary_of(1, kCommsPerStepMax, kFlowsPerStepMax, kScalarsPerStepMax)));
  EXPECT_TRUE(refused(summary_of(1, kCommsPerStepMax + 1)));
  EXPECT_TRUE(refused(summary_of(1, 0, kFlowsPerStepMax + 1)));
  EXPECT_TRUE(refused(summary_of(1, 0, 0, kScalarsPerStepMax + 1)));
}

TEST_F(StepBorders, OnDiskARangeOfStepsHasItsFirstAndItsLast) {
  open();
  for (int64_t step : {1, 2, 5}) append(step, 0_rank);
  ASSERT_TRUE(store_->seal().ok());
  for (int64_t step : {4, 5, 9}) append(step, 1_rank);
  for (const bool sealed : {false, true}) {
    if (sealed) {
      ASSERT_TRUE(store_->seal().ok());
    }
    EXPECT_EQ(found(1, 9), 6u);
    EXPECT_EQ(found(2, 4), 2u);
    EXPECT_EQ(found(5, 5), 2u);
    EXPECT_EQ(found(3, 3), 0u);
    EXPECT_EQ(found(6, 8), 0u);
    EXPECT_EQ(found(9, 100), 1u);
    EXPECT_EQ(found(INT64_MIN, 1), 1u);
    EXPECT_EQ(found(10, INT64_MAX), 0u);
  }
}

TEST_F(StepBorders, TheFirstRecordThatIsInNoFileIsTheOneOfTheOldestRow) {
  open();
  EXPECT_EQ(store_->first_unsealed(), UINT64_MAX);
  append(1, 0_rank);  // of no log
  EXPECT_EQ(store_->first_unsealed(), UINT64_MAX);
  append(5, 0_rank, 12);
  append(3, 0_rank, 13);
  append(5, 1_rank, 14);
  EXPECT_EQ(store_->first_unsealed(), 12u);
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(store_->first_unsealed(), UINT64_MAX);
  append(6, 1_rank, 15);
  EXPECT_EQ(store_->first_unsealed(), 15u);
  EXPECT_FALSE(store_->holds(12, kTime)) << "asked of what was found at the start alone";
  open();
  EXPECT_TRUE(store_->holds(15, kTime));
  EXPECT_TRUE(store_->holds(1, kTime));
  EXPECT_FALSE(store_->holds(16, kTime));
  EXPECT_FALSE(store_->holds(15, kTime + 1));
}

TEST_F(StepBorders, EightSmallFilesInARowBecomeOne) {
  open();
  for (int64_t step = 1; step <= 7; ++step) {
    append(step, 0_rank, static_cast<uint64_t>(step));
    ASSERT_TRUE(store_->seal().ok());
  }
  store_->maintain();
  EXPECT_EQ(files(), 7);
  append(8, 0_rank, 8);
  ASSERT_TRUE(store_->seal().ok());
  store_->maintain();
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(found(1, 8), 8u);
  std::string name;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder))
    name = entry.path().filename().string();
  EXPECT_EQ(name, "steps-9-1-8.blk");
  EXPECT_EQ(counters_.value("lockstep_step_file_bytes"),
            static_cast<int64_t>(std::filesystem::file_size(options_.folder + "/" + name)));
}

TEST_F(StepBorders, AFileGoesTheMomentAfterItsLastRowIsAsOldAsItMayBe) {
  options_.days = 1;
  open();
  append(1, 0_rank);
  ASSERT_TRUE(store_->seal().ok());
  clock_.advance(12ll * 3600 * 1'000'000'000);
  append(2, 0_rank);
  ASSERT_TRUE(store_->seal().ok());
  clock_.advance(12ll * 3600 * 1'000'000'000);
  store_->maintain();
  EXPECT_EQ(files(), 2) << "a day to the nanosecond";
  clock_.advance(1);
  store_->maintain();
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(found(1, 2), 1u);
  EXPECT_EQ(counters_.value("lockstep_store_rows_dropped_total", "table=\"steps\",reason=\"retention\""), 1);
}

TEST_F(StepBorders, AsManyRowsAndBytesOnDiskAsMayBe) {
  options_.rows_max = 3;
  open();
  for (int64_t step = 1; step <= 3; ++step) {
    append(step, 0_rank);
    ASSERT_TRUE(store_->seal().ok());
  }
  store_->maintain();
  EXPECT_EQ(files(), 3);
  append(4, 0_rank);
  ASSERT_TRUE(store_->seal().ok());
  store_->maintain();
  EXPECT_EQ(files(), 3);
  EXPECT_EQ(found(1, 1), 0u);
  options_.rows_max = 100;
  options_.bytes_max = static_cast<uint64_t>(counters_.value("lockstep_step_file_bytes"));
  open();
  store_->maintain();
  EXPECT_EQ(files(), 3);
  --options_.bytes_max;
  open();
  store_->maintain();
  EXPECT_EQ(files(), 2);
  EXPECT_EQ(found(2, 2), 0u);
  EXPECT_EQ(found(3, 4), 2u);
}

}  // namespace
}  // namespace lockstep::steps
