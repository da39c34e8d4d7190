// What the columnar store promises beyond the contract: files, crashes, limits.
#include "store/steps/columnar_step_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "base/text.h"
#include "store/store_counters.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kTime = 1'700'000'000'000'000'000;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kDay = 24ll * 3600 * kSecond;
constexpr const char* kTable = "table=\"steps\"";

Identity identity_of(Rank rank, std::string job_id = "job", int64_t attempt = 0) {
  return {.job_id = std::move(job_id),
          .attempt = attempt,
          .rank = rank,
          .world_size = 8,
          .local_rank = rank % 4,
          .host = format("node-%d", rank.value() / 4),
          .gpu_uuid = format("GPU-%d", rank.value())};
}

class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed * 2 + 1) {}
  int64_t below(int64_t most) { return static_cast<int64_t>(next() % static_cast<uint64_t>(most)); }
  uint64_t next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return state_ ^ state_ >> 29;
  }
  // Small, large, negative, extreme: what a peer may send.
  int64_t any() {
    switch (next() % 6) {
      case 0:
        return 0;
      case 1:
        return below(1000);
      case 2:
        return -below(1000);
      case 3:
        return kTime + below(kSecond);
      case 4:
        return next() % 2 == 0 ? INT64_MAX : INT64_MIN;
      default:
        return static_cast<int64_t>(next());
    }
  }

 private:
  uint64_t state_;
};

// Everything that a summary can say, sensible or not.
StepSummary any_summary(StepNumber step, Noise& noise) {
  StepSummary summary;
  summary.step = step;
  summary.start_unix_ns = noise.any();
  summary.duration_ns = noise.any();
  for (int64_t& phase : summary.phase_ns) phase = noise.any();
  summary.self_ns = noise.any();
  summary.comm_ns = noise.any();
  summary.queue_ns = noise.any();
  summary.quiet_ns = noise.any();
  summary.quiet_from_unix_ns = noise.below(3) == 0 ? summary.start_unix_ns : noise.any();
  summary.inferred = noise.below(2) == 0;
  summary.records_lost = noise.any();
  summary.unseen = noise.any();
  summary.split_known = noise.below(2) == 0;
  for (int64_t& part : summary.split_ns) part = noise.any();
  constexpr double kNumbers[] = {0.0, -0.0, 1.5, -1e300, 5e-324, HUGE_VAL, -HUGE_VAL};
  for (int64_t i = noise.below(4); i > 0; --i) {
    double value = kNumbers[noise.below(7)];
    if (noise.below(3) == 0) value = std::bit_cast<double>(0x7ff8'0000'0000'0001ull | noise.next() % 1000);  // NaNs
    if (noise.below(5) == 0) value = std::bit_cast<double>(0xfff0'0000'dead'beefull);
    summary.scalars.push_back(
        {noise.below(4) == 0 ? "" : format("scalar %d", static_cast<int>(noise.below(5))), value});
  }
  for (int64_t i = noise.below(4); i > 0; --i) {
    CommStep comm;
    comm.comm_id = CommId{noise.next()};
    comm.size = static_cast<int32_t>(noise.next());
    comm.rank_in_comm = static_cast<int32_t>(noise.next());
    comm.p2p = noise.below(2) == 0;
    comm.count = noise.any();
    comm.bytes = noise.any();
    comm.gpu_ns = noise.any();
    comm.shortest_ns = noise.any();
    comm.longest_ns = noise.any();
    comm.first_start_unix_ns = noise.below(3) == 0 ? summary.start_unix_ns : noise.any();
    comm.last_end_unix_ns = noise.any();
    comm.queue_ns = noise.any();
    comm.unseen = noise.any();
    summary.comms.push_back(comm);
  }
  for (int64_t i = noise.below(4); i > 0; --i) {
    FlowStep flow;
    flow.comm_id = CommId{noise.next()};
    flow.peer = static_cast<int32_t>(noise.next());
    flow.send = noise.below(2) == 0;
    flow.transfers = noise.any();
    flow.bytes = noise.any();
    flow.wire_ns = noise.any();
    flow.own_gpu_ns = noise.any();
    flow.peer_ns = noise.any();
    flow.wire_longest_ns = noise.any();
    flow.own_gpu_longest_ns = noise.any();
    summary.flows.push_back(flow);
  }
  return summary;
}

// NaN is not equal to itself, but its bits are.
void expect_same(const StepSummary& a, const StepSummary& b, const std::string& where) {
  StepSummary plain_a = a;
  StepSummary plain_b = b;
  ASSERT_EQ(a.scalars.size(), b.scalars.size()) << where;
  for (size_t i = 0; i < a.scalars.size(); ++i) {
    EXPECT_EQ(a.scalars[i].name, b.scalars[i].name) << where;
    EXPECT_EQ(std::bit_cast<uint64_t>(a.scalars[i].value), std::bit_cast<uint64_t>(b.scalars[i].value)) << where;
    plain_a.scalars[i].value = plain_b.scalars[i].value = 0;
  }
  EXPECT_TRUE(plain_a == plain_b) << where;
}

class ColumnarSteps : public ::testing::Test {
 protected:
  ColumnarSteps() {
    options_.folder = folder_.path() + "/steps";
    options_.background = false;
    options_.hot_rows_max = 0;  // what is sealed leaves memory
  }
  void open() {
    store_.reset();
    counters_ = std::make_unique<Counters>(kStoreCounters);
    Result<std::unique_ptr<ColumnarStepStore>> opened = ColumnarStepStore::open(options_, clock_, *counters_);
    ASSERT_TRUE(opened.ok()) << opened.error();
    store_ = std::move(*opened);
  }
  // As a crash leaves it: what was not sealed is gone.
  void crash_and_open() {
    const std::string aside = folder_.path() + "/aside";
    std::filesystem::copy(options_.folder, aside);
    store_.reset();  // seals
    std::filesystem::remove_all(options_.folder);
    std::filesystem::rename(aside, options_.folder);
    open();
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  static StepSummary plain(StepNumber step, int64_t self_ns = 1000) {
    StepSummary summary;
    summary.step = step;
    summary.start_unix_ns = kTime + step.value() * kSecond;
    summary.duration_ns = 2 * self_ns;
    summary.self_ns = self_ns;
    summary.comm_ns = self_ns;
    summary.comms.push_back({.comm_id = CommId{7}, .size = 8, .count = 3});
    return summary;
  }
  // A step of eight ranks, as one record of the log.
  void append(StepNumber step, uint64_t sequence = 0, int64_t self_ns = 1000, const std::string& job = "job",
              int64_t attempt = 0) {
    if (sequence != 0) store_->begin_record(sequence, clock_.unix_ns());
    for (Rank rank : all_ranks(8))
      store_->append_step(identity_of(rank, job, attempt), plain(step, self_ns), clock_.unix_ns());
    if (sequence != 0) store_->end_record();
  }
  void append_and_seal(StepNumber step, uint64_t sequence = 0) {
    append(step, sequence);
    ASSERT_TRUE(store_->seal().ok());
  }
  size_t rows_of(StepNumber step, const std::string& job = "job") const {
    return store_->steps(job, step, step).size();
  }
  int64_t count(const char* name, const char* labels = "") const { return counters_->value(name, labels); }
  int64_t dropped(const char* reason) const {
    return counters_->value("lockstep_store_rows_dropped_total", format("%s,reason=\"%s\"", kTable, reason));
  }
  void expect_all_accounted_for() const {
    int64_t gone = 0;
    for (const char* reason : {"limit", "retention", "unsealed", "corrupt", "new_attempt", "job_dropped"})
      gone += dropped(reason);
    for (const char* reason : {"old_attempt", "rank_limit", "too_large"}) {
      gone += counters_->value("lockstep_store_rows_refused_total", format("%s,reason=\"%s\"", kTable, reason));
    }
    EXPECT_EQ(count("lockstep_store_rows_received_total", kTable),
              count("lockstep_store_rows", kTable) + count("lockstep_store_rows_replaced_total", kTable) + gone);
  }

  testing::TemporaryFolder folder_;
  ColumnarStepStoreOptions options_;
  testing::FakeClock clock_{kTime};
  SystemClock real_clock_;
  std::unique_ptr<Counters> counters_;
  std::unique_ptr<ColumnarStepStore> store_;
};

TEST_F(ColumnarSteps, EveryFieldComesBackFromDiskExactlyAsItWas) {
  open();
  std::map<std::pair<StepNumber, Rank>, StepSummary> sent;
  Noise noise(1);
  for (StepNumber step : {StepNumber{INT64_MIN}, StepNumber{-5}, 0_step, 1_step, 2_step, 900_step, kLastStep}) {
    for (Rank rank : all_ranks(60)) {
      StepSummary summary = any_summary(step, noise);
      store_->append_step(identity_of(rank), summary, kTime);
      sent[{step, rank}] = summary;
    }
  }
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(count("lockstep_store_rows", "table=\"hot_steps\""), 0);
  std::vector<StepRow> rows = store_->steps("job", StepNumber{INT64_MIN}, kLastStep);
  ASSERT_EQ(rows.size(), sent.size());
  auto expected = sent.begin();
  for (const StepRow& row : rows) {
    EXPECT_EQ(row.identity, identity_of(expected->first.second));
    EXPECT_EQ(row.summary.step, expected->first.first);
    expect_same(
        row.summary, expected->second,
        format("step %lld rank %d", static_cast<long long>(row.summary.step.value()), row.identity.rank.value()));
    ++expected;
  }
}

TEST_F(ColumnarSteps, JobsThatAreOnDiskAloneAreListedAfterARestartWithRanksIdentitiesAndSteps) {
  open();
  append(3_step, 0, 1000, "a", 2);
  append(4_step, 0, 1000, "a", 2);
  append(9_step, 0, 1000, "b");
  store_->rank_ended(identity_of(1_rank, "b"), false, kTime + 5);
  open();
  std::vector<JobInfo> jobs = store_->jobs();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].job_id, "a");
  EXPECT_EQ(jobs[0].attempt, 2);
  EXPECT_EQ(jobs[0].world_size, 8);
  EXPECT_EQ(jobs[0].first_seen_unix_ns, kTime);
  EXPECT_EQ(jobs[0].last_seen_unix_ns, kTime);
  EXPECT_EQ(jobs[0].last_step, 4_step);
  ASSERT_EQ(jobs[0].ranks.size(), 8u);
  EXPECT_EQ(jobs[0].ranks[5].identity, identity_of(5_rank, "a", 2));
  EXPECT_EQ(jobs[0].ranks[5].last_step, 4_step);
  EXPECT_TRUE(jobs[1].ranks[1].ended);
  EXPECT_FALSE(jobs[1].ranks[1].ended_cleanly);
  EXPECT_FALSE(jobs[1].ranks[2].ended);
  std::vector<StepRow> rows = store_->steps("a", 0_step, 100_step);
  ASSERT_EQ(rows.size(), 16u);
  EXPECT_EQ(rows[9].identity, identity_of(1_rank, "a", 2));
  EXPECT_EQ(rows[9].summary, plain(4_step));
  // An attempt that was over before the restart is over.
  store_->append_step(identity_of(0_rank, "a", 1), plain(5_step), kTime);
  EXPECT_EQ(store_->steps("a", 5_step, 5_step).size(), 0u);
  expect_all_accounted_for();
}

TEST_F(ColumnarSteps, OfARowInMemoryAndOnDiskTheLastOneWinsAndIsShownOnce) {
  open();
  append_and_seal(1_step);
  append_and_seal(2_step);
  store_->append_step(identity_of(3_rank), plain(1_step, 77), kTime);  // late, in memory
  std::vector<StepRow> rows = store_->steps("job", 1_step, 2_step);
  ASSERT_EQ(rows.size(), 16u);
  EXPECT_EQ(rows[3].summary.self_ns, 77);
  EXPECT_EQ(rows[4].summary.self_ns, 1000);
  ASSERT_TRUE(store_->seal().ok());  // both on disk
  store_->append_step(identity_of(4_rank), plain(1_step, 78), kTime);
  ASSERT_TRUE(store_->seal().ok());
  rows = store_->steps("job", 1_step, 2_step);
  ASSERT_EQ(rows.size(), 16u);
  EXPECT_EQ(rows[3].summary.self_ns, 77);
  EXPECT_EQ(rows[4].summary.self_ns, 78);
  open();
  rows = store_->steps("job", 1_step, 1_step);
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[3].summary.self_ns, 77);
  EXPECT_EQ(count("lockstep_store_rows_replaced_total", kTable), 0);
  for (StepNumber step = 3_step; step < 7_step; ++step) append_and_seal(step);  // eight files
  store_->maintain();  // put together: what was twice is there once
  EXPECT_EQ(count("lockstep_store_rows_replaced_total", kTable), 2);
  EXPECT_EQ(store_->steps("job", 1_step, 1_step)[3].summary.self_ns, 77);
  EXPECT_EQ(store_->steps("job", 1_step, 1_step)[4].summary.self_ns, 78);
  expect_all_accounted_for();
}

TEST_F(ColumnarSteps, AStepThatIsPartlyInMemoryIsShownWholeAndLaterReadFromMemoryAlone) {
  options_.hot_rows_max = 1000;
  open();
  append_and_seal(1_step, 5);
  open();
  // Replayed: memory gets some ranks again, then all.
  store_->begin_record(5, kTime);
  for (Rank rank : all_ranks(4)) store_->append_step(identity_of(rank), plain(1_step), kTime);
  EXPECT_EQ(rows_of(1_step), 8u);
  for (Rank rank = 4_rank; rank < 8_rank; ++rank) store_->append_step(identity_of(rank), plain(1_step), kTime);
  store_->end_record();
  EXPECT_EQ(rows_of(1_step), 8u);
  EXPECT_EQ(count("lockstep_step_rows_unsealed"), 0) << "it was on disk already";
  std::filesystem::remove(files().at(0));
  EXPECT_EQ(rows_of(1_step), 8u) << "memory is known to have all of it";
  expect_all_accounted_for();
}

TEST_F(ColumnarSteps, KnowsAfterACrashWhichRecordsOfTheLogItHas) {
  open();
  append(1_step, 5);
  append(2_step, 7);
  ASSERT_TRUE(store_->seal().ok());
  clock_.advance(1000);
  append(3_step, 8);
  crash_and_open();
  EXPECT_TRUE(store_->holds(5, kTime));
  EXPECT_TRUE(store_->holds(6, kTime));  // had no steps
  EXPECT_TRUE(store_->holds(7, kTime));
  EXPECT_FALSE(store_->holds(8, kTime + 1000));
  EXPECT_FALSE(store_->holds(5, kTime + 1)) << "of a log that was made anew";
  EXPECT_EQ(rows_of(2_step), 8u);
  EXPECT_EQ(rows_of(3_step), 0u);
  for (uint64_t sequence : {5, 7})
    append(StepNumber{sequence == 5 ? 1 : 2}, sequence);  // replay, with the clock 1 us on
  EXPECT_EQ(count("lockstep_step_rows_unsealed"), 16);
  store_->end_replay();
  EXPECT_FALSE(store_->holds(5, kTime)) << "whatever comes now is new";
}

TEST_F(ColumnarSteps, OnlySaysItHasARecordWhenAllBeforeItAreOnDisk) {
  open();
  append(1_step, 5);
  clock_.advance(20 * kSecond);
  append(2_step, 6);
  store_->begin_record(7, clock_.unix_ns());
  store_->append_step(identity_of(0_rank), plain(1_step, 5),
                      clock_.unix_ns());  // a late row for the old step: in the middle of its record
  ASSERT_TRUE(store_->seal().ok());
  crash_and_open();
  EXPECT_TRUE(store_->holds(6, kTime));
  EXPECT_FALSE(store_->holds(7, kTime)) << "more of it may have come";
}

TEST_F(ColumnarSteps, ReplayingWhatIsOnDiskWritesNothingAgain) {
  open();
  for (StepNumber step = 0_step; step < 20_step; ++step) append(step, static_cast<uint64_t>(step.value() + 1));
  open();
  const auto before = files();
  for (StepNumber step = 0_step; step < 20_step; ++step) append(step, static_cast<uint64_t>(step.value() + 1));
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(files(), before);
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 160u);
  EXPECT_EQ(count("lockstep_store_rows_replaced_total", kTable), 160);
  expect_all_accounted_for();
}

TEST_F(ColumnarSteps, WhatRanksLostIsCountedOnceWhetherReadFromDiskOrReplayed) {
  open();
  StepSummary lossy = plain(1_step);
  lossy.records_lost = 5;
  store_->begin_record(3, kTime);
  store_->append_step(identity_of(2_rank), lossy, kTime);
  store_->end_record();
  open();
  EXPECT_EQ(store_->job("job")->ranks.at(0).records_lost, 5);
  store_->begin_record(3, kTime);
  store_->append_step(identity_of(2_rank), lossy, kTime);
  store_->end_record();
  EXPECT_EQ(store_->job("job")->ranks.at(0).records_lost, 5);
}

TEST_F(ColumnarSteps, KeepsOutATornFileWithItsLogRecordsToBeReplayed) {
  open();
  append_and_seal(1_step, 5);
  append_and_seal(2_step, 6);
  append_and_seal(3_step, 7);
  store_.reset();
  for (const auto& path : files()) {
    if (path.filename().string().find("-6-6") != std::string::npos)
      std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  }
  open();
  EXPECT_EQ(count("lockstep_step_files_refused_total"), 1);
  EXPECT_EQ(rows_of(2_step), 0u);
  EXPECT_EQ(rows_of(3_step), 8u);
  EXPECT_TRUE(store_->holds(5, kTime));
  EXPECT_FALSE(store_->holds(6, kTime));
  append(2_step, 6);
  EXPECT_EQ(rows_of(2_step), 8u);
  expect_all_accounted_for();
}

TEST_F(ColumnarSteps, AnyFlippedBitIsFoundAndCostsNoMoreThanItsRowGroup) {
  open();
  append(1_step);
  append(2_step);
  ASSERT_TRUE(store_->seal().ok());
  store_.reset();
  const std::filesystem::path path = files().at(0);
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  in.close();
  for (size_t at = 0; at < whole.size(); at += 3) {
    if (at >= 12 && at < 16) continue;                              // reserved
    if (at >= whole.size() - 8 && at < whole.size() - 4) continue;  // the version again
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << at % 8);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << flipped;
    open();
    const std::vector<StepRow> rows = store_->steps("job", 0_step, 10_step);
    EXPECT_EQ(rows.size(), 0u) << at;
    EXPECT_EQ(count("lockstep_step_files_refused_total") + count("lockstep_step_row_groups_corrupt_total"), 1) << at;
    expect_all_accounted_for();
  }
}

TEST_F(ColumnarSteps, RefusesAnotherFormatVersionWithOneClearLine) {
  open();
  append_and_seal(1_step);
  store_.reset();
  const std::filesystem::path path = files().at(0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);
  file.put(99);
  file.close();
  Result<std::shared_ptr<const steps::StepFile>> opened =
      steps::StepFile::open(options_.folder, *steps::StepFileInfo::from_name(path.filename().string()));
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().find("format version 99, and this server reads version 1"), std::string::npos)
      << opened.error();
}

TEST_F(ColumnarSteps, DropsWhatIsOlderThanItsDaysAndSaysSo) {
  options_.days = 3;
  open();
  append_and_seal(1_step);
  clock_.advance(2 * kDay);
  append_and_seal(2_step);
  store_->maintain();
  EXPECT_EQ(rows_of(1_step), 8u);
  clock_.advance(kDay + 1);
  store_->maintain();
  EXPECT_EQ(rows_of(1_step), 0u);
  EXPECT_EQ(rows_of(2_step), 8u);
  EXPECT_EQ(dropped("retention"), 8);
  EXPECT_EQ(files().size(), 1u);
  expect_all_accounted_for();
}

TEST_F(ColumnarSteps, DropsTheOldestBeyondItsBytes) {
  open();
  append_and_seal(1_step);
  options_.bytes_max = 2 * std::filesystem::file_size(files().at(0)) + 50;
  open();
  for (StepNumber step = 2_step; step <= 5_step; ++step) {
    append_and_seal(step);
    store_->maintain();
  }
  EXPECT_EQ(rows_of(1_step) + rows_of(2_step) + rows_of(3_step), 0u);
  EXPECT_EQ(rows_of(4_step) + rows_of(5_step), 16u);
  EXPECT_EQ(dropped("limit"), 24);
  expect_all_accounted_for();
}

TEST_F(ColumnarSteps, SmallFilesBecomeOneAndACrashInBetweenLosesAndDoublesNothing) {
  open();
  for (StepNumber step = 1_step; step <= 9_step; ++step) append_and_seal(step, static_cast<uint64_t>(step.value()));
  EXPECT_EQ(files().size(), 9u);
  std::filesystem::copy(options_.folder, folder_.path() + "/before");
  store_->maintain();
  EXPECT_LT(files().size(), 3u);
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 72u);
  // The crash: the joined file is there and the old ones are too.
  store_.reset();
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/before"))
    std::filesystem::copy(entry.path(), options_.folder, std::filesystem::copy_options::skip_existing);
  std::ofstream(options_.folder + "/steps-99-0-0.blk.part") << "half";
  open();
  EXPECT_LT(files().size(), 3u);
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 72u);
  EXPECT_EQ(count("lockstep_store_rows", kTable), 72);
  for (uint64_t sequence = 1; sequence <= 9; ++sequence) EXPECT_TRUE(store_->holds(sequence, kTime)) << sequence;
}

TEST_F(ColumnarSteps, AQuestionReadsOnInFilesThatAreRemovedMeanwhile) {
  options_.hot_rows_max = 0;
  options_.cache_bytes_max = 0;  // who puts files together would leave their rows there
  open();
  for (StepNumber step = 1_step; step <= 9_step; ++step) append_and_seal(step, static_cast<uint64_t>(step.value()));
  int64_t rows = 0;
  store_->visit_steps("job", 0_step, 100_step, [&](const Identity&, const StepSummary&) {
    if (rows++ == 0) store_->maintain();  // puts all files together
  });
  EXPECT_EQ(rows, 72);
  EXPECT_LT(files().size(), 3u);
}

TEST_F(ColumnarSteps, WhileTheDiskIsFullRowsStayInMemoryUpToItsLimitAndAreSealedLater) {
  options_.memory.step_rows_max = 80;
  open();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit none{200, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  for (StepNumber step = 0_step; step < 8_step; ++step) append(step);
  EXPECT_FALSE(store_->seal().ok());
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 64u);
  store_->append_step(identity_of(3_rank), plain(7_step, 55), kTime);  // again, after it could not be written
  for (StepNumber step = 8_step; step < 12_step; ++step) append(step);
  EXPECT_FALSE(store_->seal().ok());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(count("lockstep_step_seals_failed_total"), 2);
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 80u);
  EXPECT_TRUE(store_->seal().ok());
  EXPECT_EQ(dropped("unsealed"), 16);
  EXPECT_EQ(count("lockstep_store_rows_replaced_total", kTable), 1);
  expect_all_accounted_for();
  EXPECT_EQ(count("lockstep_step_rows_unsealed"), 0);
  const std::vector<StepRow> rows = store_->steps("job", 0_step, 100_step);
  ASSERT_EQ(rows.size(), 80u);
  EXPECT_EQ(rows[5 * 8 + 3].summary.self_ns, 55);
  for (const auto& path : files()) EXPECT_EQ(path.extension(), ".blk") << "a half file was left: " << path;
}

TEST_F(ColumnarSteps, SealsOnlyStepsThatHaveSettledUntilThereIsTooMuch) {
  options_.seal_rows = 16;
  options_.background = true;
  options_.hot_rows_max = 1000;
  open();
  append(1_step);
  append(2_step);
  append(3_step);
  // The sleep is the point: time for what must not happen, of a thread that looks every 250 ms.
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(count("lockstep_step_files"), 0) << "rows of these steps may still come";
  clock_.advance(options_.settle_ns);
  append(4_step);  // now too much: all that has settled, or twice the limit
  EXPECT_TRUE(testing::eventually([&] { return count("lockstep_step_rows_unsealed") <= 8; }));
  EXPECT_TRUE(testing::eventually([&] { return count("lockstep_step_files") >= 1; }));
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 32u);
}

TEST_F(ColumnarSteps, ANewAttemptHidesWhatIsOnDiskOfTheOldOne) {
  open();
  append_and_seal(1_step);
  append(2_step);
  append(7_step, 0, 1000, "job", 1);
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 8u);
  EXPECT_EQ(dropped("new_attempt"), 8) << "what was in no file";
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 8u);
  open();
  EXPECT_EQ(store_->job("job")->attempt, 1);
  EXPECT_EQ(store_->steps("job", 0_step, 100_step).size(), 8u);
  expect_all_accounted_for();
}

TEST_F(ColumnarSteps, StepsWithHolesAndManyJobsInOneFileAreFoundAgain) {
  open();
  std::map<std::string, std::vector<StepNumber>> sent;
  for (int job = 0; job < 40; ++job) {
    const std::string id = format("job-%d", job);
    for (int64_t i = 0; i < 50; ++i) {
      const StepNumber step = StepNumber{i * (job + 1) * (i % 7 == 0 ? 3 : 1) + i};
      sent[id].push_back(step);
      store_->append_step(identity_of(Rank{job % 3}, id), plain(step, job + 1), kTime);
    }
  }
  ASSERT_TRUE(store_->seal().ok());
  EXPECT_EQ(files().size(), 1u);
  for (auto& [id, steps] : sent) {
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    std::vector<StepNumber> got;
    for (const StepRow& row : store_->steps(id, StepNumber{INT64_MIN}, kLastStep)) got.push_back(row.summary.step);
    EXPECT_EQ(got, steps) << id;
    EXPECT_EQ(store_->steps(id, steps[20], steps[20]).size(), 1u);
  }
}

TEST_F(ColumnarSteps, ManyThreadsAppendAndAskWhileItSealsAndPutsFilesTogether) {
  options_.background = true;
  options_.seal_rows = 200;
  options_.settle_ns = 0;
  options_.hot_rows_max = 500;
  clock_.advance_to(real_clock_.unix_ns());
  counters_ = std::make_unique<Counters>(kStoreCounters);
  Result<std::unique_ptr<ColumnarStepStore>> opened = ColumnarStepStore::open(options_, real_clock_, *counters_);
  ASSERT_TRUE(opened.ok());
  store_ = std::move(*opened);
  constexpr int64_t kSteps = 1500;
  std::atomic<StepNumber> done{kNoStep};
  std::thread writer([&] {
    for (StepNumber step = 0_step; step < StepNumber{kSteps}; ++step) {
      append(step);
      done = step;
    }
  });
  auto ask = [&] {
    while (done.load() < StepNumber{kSteps - 1}) {
      const StepNumber newest = done;
      if (newest == kNoStep) continue;
      int64_t rows = 0;
      std::pair<StepNumber, Rank> last{kNoStep, kNoRank};
      store_->visit_steps("job", newest - 300, newest, [&](const Identity& identity, const StepSummary& summary) {
        std::pair<StepNumber, Rank> key{summary.step, identity.rank};
        if (key <= last) ADD_FAILURE() << "out of order at step " << summary.step;
        last = key;
        ++rows;
      });
      EXPECT_EQ(rows, 8 * std::min<int64_t>(newest.value() + 1, 301)) << "up to step " << newest;
    }
  };
  std::thread reader(ask);
  std::thread other(ask);
  writer.join();
  reader.join();
  other.join();
  EXPECT_EQ(store_->steps("job", 0_step, StepNumber{kSteps}).size(), 8u * kSteps);
  expect_all_accounted_for();
}

// The bound on what a walk over very many rows takes: row groups are held one or two at a time.
TEST_F(ColumnarSteps, AWalkOverVeryManyRowsHoldsFewOfThemAtATime) {
  constexpr int64_t kSteps = 500;
  constexpr int32_t kRanks = 1024;
  options_.cache_bytes_max = 8u << 20;
  open();
  for (StepNumber step = 0_step; step < StepNumber{kSteps}; ++step) {
    for (Rank rank : all_ranks(kRanks)) store_->append_step(identity_of(rank), plain(step, rank.value()), kTime);
    if (step % 50 == 49) {
      ASSERT_TRUE(store_->seal().ok());
    }
  }
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  int64_t rows = 0;
  int64_t sum = 0;
  store_->visit_steps("job", 0_step, StepNumber{kSteps}, [&](const Identity&, const StepSummary& summary) {
    ++rows;
    sum += summary.self_ns;
  });
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(rows, kSteps * kRanks);
  EXPECT_EQ(sum, kSteps * (kRanks * (kRanks - 1) / 2));
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  // 512,000 rows take some 400 MB as summaries; kilobytes here.
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 40'000);
#endif
}

}  // namespace
}  // namespace lockstep
