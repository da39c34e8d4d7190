// What every StepStore promises. A new backing joins by one row in kBackings.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "store/memory_step_store.h"
#include "store/steps/columnar_step_store.h"
#include "store/store_counters.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct Limits {
  size_t step_rows = 1'000'000;
  size_t logs = 1'000'000;
};
struct Backing {
  const char* name;
  std::function<std::unique_ptr<StepStore>(const Limits&, Counters&)> make;
};

// The columnar store in a folder of its own. Mode kSealed: every eight rows (then fewer), and before every question,
// everything goes to disk and leaves memory; kOverlap: it stays in memory too.
class OnDisk final : public StepStore {
 public:
  enum class Mode { kSealed, kOverlap };
  OnDisk(Mode mode, const Limits& limits, Counters& counters) {
    ColumnarStepStoreOptions options;
    options.folder = folder_.path();
    options.days = 100'000;  // the times of these tests are those of 1970
    options.rows_max = limits.step_rows;
    options.memory.logs_max = limits.logs;
    options.memory.events_max = limits.logs;
    options.hot_rows_max = mode == Mode::kSealed ? 0 : limits.step_rows / 2;
    options.background = false;
    Result<std::unique_ptr<ColumnarStepStore>> opened = ColumnarStepStore::open(options, clock_, counters);
    if (!opened.ok()) std::abort();
    store_ = std::move(*opened);
  }

  void attempt_back(const std::string& job_id, int64_t attempt) override { store_->attempt_back(job_id, attempt); }
  void append_step(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns) override {
    store_->append_step(identity, summary, received_unix_ns);
    const int appended = ++appended_;
    if (appended % (appended < 1000 ? 8 : 200) == 0) seal();
  }
  void append_status(const Identity& identity, const RankStatus& status, int64_t received_unix_ns) override {
    store_->append_status(identity, status, received_unix_ns);
  }
  void append_comm(const Identity& identity, const CommInit& comm, int64_t received_unix_ns) override {
    store_->append_comm(identity, comm, received_unix_ns);
  }
  void append_group(const Identity& identity, const CommGroup& group, int64_t received_unix_ns) override {
    store_->append_group(identity, group, received_unix_ns);
  }
  void rank_started(const Identity& identity, int64_t received_unix_ns) override {
    store_->rank_started(identity, received_unix_ns);
  }
  void rank_ended(const Identity& identity, bool clean, int64_t received_unix_ns) override {
    store_->rank_ended(identity, clean, received_unix_ns);
  }
  void rank_lost_records(const Identity& identity, int64_t records) override {
    store_->rank_lost_records(identity, records);
  }
  void append_log(std::shared_ptr<const Attributes> resource, LogRecord record) override {
    store_->append_log(std::move(resource), std::move(record));
  }
  std::vector<JobInfo> jobs() const override { return sealed().jobs(); }
  std::optional<JobInfo> job(std::string_view job_id) const override { return sealed().job(job_id); }
  std::vector<StepRow> steps(std::string_view job_id, StepNumber from_step, StepNumber to_step) const override {
    return sealed().steps(job_id, from_step, to_step);
  }
  void visit_steps(std::string_view job_id, StepNumber from_step, StepNumber to_step,
                   const std::function<void(const Identity&, const StepSummary&)>& visit) const override {
    sealed().visit_steps(job_id, from_step, to_step, visit);
  }
  Page<StoredLog> logs(std::string_view service, std::string_view event, size_t limit) const override {
    return store_->logs(service, event, limit);
  }
  void visit_rare_logs(const std::function<bool(const StoredLog&)>& visit) const override {
    store_->visit_rare_logs(visit);
  }

 private:
  void seal() const {
    EXPECT_TRUE(store_->seal().ok());
    store_->maintain();
  }
  const StepStore& sealed() const {
    seal();
    return *store_;
  }
  SystemClock clock_;
  testing::TemporaryFolder folder_;
  std::atomic<int> appended_{0};
  std::unique_ptr<ColumnarStepStore> store_;
};

const Backing kBackings[] = {
    {"memory",
     [](const Limits& limits, Counters& counters) {
       MemoryStepStoreOptions options;
       options.step_rows_max = limits.step_rows;
       options.logs_max = limits.logs;
       options.events_max = limits.logs;
       return std::make_unique<MemoryStepStore>(options, counters);
     }},
    {"columnar_sealed",
     [](const Limits& limits, Counters& counters) {
       return std::make_unique<OnDisk>(OnDisk::Mode::kSealed, limits, counters);
     }},
    {"columnar_overlap",
     [](const Limits& limits, Counters& counters) {
       return std::make_unique<OnDisk>(OnDisk::Mode::kOverlap, limits, counters);
     }},
};

Identity identity_of(Rank rank, std::string job_id = "job", int64_t attempt = 0) {
  return {.job_id = std::move(job_id),
          .attempt = attempt,
          .rank = rank,
          .world_size = 8,
          .local_rank = rank % 4,
          .host = format("node-%d", rank.value() / 4),
          .gpu_uuid = format("GPU-%d", rank.value())};
}

StepSummary step_of(StepNumber step, int64_t self_ns = 1000) {
  StepSummary summary;
  summary.step = step;
  summary.duration_ns = 2 * self_ns;
  summary.self_ns = self_ns;
  summary.comm_ns = self_ns;
  summary.comms.push_back({.comm_id = CommId{7}, .size = 8, .count = 3});
  return summary;
}

std::shared_ptr<const Attributes> resource_of(std::string service) {
  return std::make_shared<const Attributes>(Attributes{{"service.name", std::move(service)}});
}

LogRecord log_of(std::string event, std::string body) {
  LogRecord record;
  record.event_name = std::move(event);
  record.body = Value(std::move(body));
  return record;
}

class StepStoreContract : public ::testing::TestWithParam<Backing> {
 protected:
  std::unique_ptr<StepStore> make(Limits limits = {}) { return GetParam().make(limits, counters_); }
  // received = held + replaced + dropped + refused
  void expect_nothing_lost_unseen(const std::string& table) {
    std::string label = format("table=\"%s\"", table.c_str());
    auto with_reason = [&](const char* name, const char* reason) {
      return counters_.value(name, label + ",reason=\"" + reason + "\"");
    };
    int64_t gone = 0;
    for (const char* reason : {"limit", "new_attempt", "job_dropped"})
      gone += with_reason("lockstep_store_rows_dropped_total", reason);
    for (const char* reason : {"old_attempt", "rank_limit"})
      gone += with_reason("lockstep_store_rows_refused_total", reason);
    EXPECT_EQ(counters_.value("lockstep_store_rows_received_total", label),
              counters_.value("lockstep_store_rows", label) +
                  counters_.value("lockstep_store_rows_replaced_total", label) + gone)
        << table;
  }
  Counters counters_{kStoreCounters};
};

TEST_P(StepStoreContract, AnswersRowsSortedByStepAndRankWhateverOrderTheyCameIn) {
  auto store = make();
  for (StepNumber step : {3_step, 1_step, 2_step}) {
    for (Rank rank : {5_rank, 0_rank, 3_rank})
      store->append_step(identity_of(rank), step_of(step, rank.value() * 10 + step.value()), 100);
  }
  std::vector<StepRow> rows = store->steps("job", 2_step, 3_step);
  ASSERT_EQ(rows.size(), 6u);
  std::vector<std::pair<StepNumber, Rank>> order;
  for (const StepRow& row : rows) {
    order.emplace_back(row.summary.step, row.identity.rank);
    EXPECT_EQ(row.identity, identity_of(row.identity.rank));
    EXPECT_EQ(row.summary, step_of(row.summary.step, row.identity.rank.value() * 10 + row.summary.step.value()));
  }
  EXPECT_EQ(
      order,
      (std::vector<std::pair<StepNumber, Rank>>{
          {2_step, 0_rank}, {2_step, 3_rank}, {2_step, 5_rank}, {3_step, 0_rank}, {3_step, 3_rank}, {3_step, 5_rank}}));
  EXPECT_TRUE(store->steps("job", 4_step, 100_step).empty());
  EXPECT_TRUE(store->steps("other", 0_step, 100_step).empty());

  std::vector<std::pair<StepNumber, Rank>> visited;
  store->visit_steps("job", 2_step, 3_step, [&](const Identity& identity, const StepSummary& summary) {
    visited.emplace_back(summary.step, identity.rank);
  });
  EXPECT_EQ(visited, order);
}

TEST_P(StepStoreContract, TheSameRowAgainReplacesTheOldOne) {
  auto store = make();
  StepSummary lossy = step_of(1_step, 10);
  lossy.records_lost = 5;
  store->append_step(identity_of(0_rank), lossy, 100);
  store->append_step(identity_of(0_rank), lossy, 101);
  store->append_step(identity_of(0_rank), step_of(1_step, 20), 102);
  std::vector<StepRow> rows = store->steps("job", 0_step, 10_step);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].summary.self_ns, 20);
  EXPECT_EQ(store->job("job")->ranks.at(0).records_lost, 0)
      << "records lost must not add up over deliveries of one row";
  EXPECT_EQ(counters_.value("lockstep_store_rows_replaced_total", "table=\"steps\""), 2);
  expect_nothing_lost_unseen("steps");
}

TEST_P(StepStoreContract, KnowsWhereEveryRankStands) {
  auto store = make();
  store->rank_started(identity_of(1_rank), 50);
  store->append_step(identity_of(1_rank), step_of(4_step), 100);
  store->append_step(identity_of(1_rank), step_of(3_step), 110);  // late
  store->append_comm(identity_of(1_rank),
                     {.comm_id = CommId{9}, .size = 8, .rank_in_comm = 1, .nodes = 2, .name = "world"}, 120);
  store->append_comm(identity_of(1_rank),
                     {.comm_id = CommId{9}, .size = 8, .rank_in_comm = 1, .nodes = 2, .name = "world"}, 121);
  RankStatus status;
  status.time_unix_ns = 500;
  status.quiet_ns = 77;
  store->append_status(identity_of(1_rank), status, 130);
  status.time_unix_ns = 400;  // older, came late
  status.quiet_ns = 1;
  store->append_status(identity_of(1_rank), status, 131);
  store->rank_lost_records(identity_of(1_rank), 12);
  store->rank_ended(identity_of(0_rank), true, 90);

  std::optional<JobInfo> job = store->job("job");
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->world_size, 8);
  EXPECT_EQ(job->first_seen_unix_ns, 50);
  EXPECT_EQ(job->last_seen_unix_ns, 131);
  EXPECT_EQ(job->last_step, 4_step);
  ASSERT_EQ(job->ranks.size(), 2u);
  const RankInfo& ended = job->ranks[0];
  EXPECT_EQ(ended.identity.rank, 0_rank);
  EXPECT_TRUE(ended.ended && ended.ended_cleanly);
  const RankInfo& rank = job->ranks[1];
  EXPECT_FALSE(rank.ended);
  EXPECT_EQ(rank.last_step, 4_step);
  EXPECT_EQ(rank.last_seen_unix_ns, 131);
  EXPECT_EQ(rank.comms.size(), 1u);
  EXPECT_EQ(rank.records_lost, 12);
  ASSERT_TRUE(rank.status.has_value());
  EXPECT_EQ(rank.status->quiet_ns, 77);
  EXPECT_FALSE(store->job("job2").has_value());
}

TEST_P(StepStoreContract, ANewAttemptTakesThePlaceOfTheOldOne) {
  auto store = make();
  store->append_step(identity_of(0_rank), step_of(10_step), 100);
  store->append_step(identity_of(1_rank), step_of(10_step), 100);
  store->append_step(identity_of(0_rank, "job", 1), step_of(2_step), 200);
  store->append_step(identity_of(1_rank, "job", 0), step_of(11_step), 300);  // a straggler of the old attempt
  std::vector<JobInfo> jobs = store->jobs();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].attempt, 1);
  EXPECT_EQ(jobs[0].last_step, 2_step);
  EXPECT_EQ(jobs[0].ranks.size(), 1u);
  EXPECT_EQ(store->steps("job", 0_step, 100_step).size(), 1u);
  EXPECT_EQ(counters_.value("lockstep_store_rows_refused_total", "table=\"steps\",reason=\"old_attempt\""), 1);
  expect_nothing_lost_unseen("steps");
}

TEST_P(StepStoreContract, ListsJobsByIdAndKeepsThemApart) {
  auto store = make();
  store->append_step(identity_of(0_rank, "b"), step_of(1_step), 100);
  store->append_step(identity_of(0_rank, "a"), step_of(7_step), 100);
  std::vector<JobInfo> jobs = store->jobs();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].job_id, "a");
  EXPECT_EQ(jobs[1].job_id, "b");
  EXPECT_EQ(store->steps("a", 0_step, 100_step).size(), 1u);
  EXPECT_EQ(store->steps("b", 0_step, 100_step).at(0).summary.step, 1_step);
}

TEST_P(StepStoreContract, DropsTheOldestRowsBeyondItsLimitAndCountsThem) {
  auto store = make({.step_rows = 40});
  for (StepNumber step = 0_step; step < 100_step; ++step) {
    for (Rank rank : all_ranks(8)) store->append_step(identity_of(rank), step_of(step), 100 + step.value());
  }
  std::vector<StepRow> rows = store->steps("job", 0_step, 1000_step);
  EXPECT_LE(rows.size(), 40u);
  EXPECT_GE(rows.size(), 32u);
  EXPECT_EQ(rows.back().summary.step, 99_step);
  EXPECT_GE(rows.front().summary.step, 94_step);
  EXPECT_EQ(counters_.value("lockstep_store_rows", "table=\"steps\""), static_cast<int64_t>(rows.size()));
  EXPECT_EQ(counters_.value("lockstep_store_rows_dropped_total", "table=\"steps\",reason=\"limit\""),
            800 - static_cast<int64_t>(rows.size()));
  expect_nothing_lost_unseen("steps");
}

TEST_P(StepStoreContract, AnswersLogsNewestFirstAndSaysHowManyMatched) {
  auto store = make();
  auto app = resource_of("app");
  auto agent = resource_of("lockstep-agent");
  store->append_log(app, log_of("", "one"));
  store->append_log(agent, log_of("train.step", "two"));
  store->append_log(agent, log_of("job.start", "three"));
  store->append_log(agent, log_of("train.step", "four"));
  store->append_log(app, log_of("", "five"));
  auto bodies = [](const Page<StoredLog>& page) {
    std::vector<std::string> list;
    for (const StoredLog& item : page.items) list.push_back(std::get<std::string>(item.record.body.data));
    return list;
  };
  Page<StoredLog> all = store->logs("", "", 3);
  EXPECT_EQ(all.total, 5u);
  EXPECT_EQ(bodies(all), (std::vector<std::string>{"five", "four", "three"}));
  EXPECT_EQ(bodies(store->logs("lockstep-agent", "", 10)), (std::vector<std::string>{"four", "three", "two"}));
  EXPECT_EQ(bodies(store->logs("lockstep-agent", "train.step", 10)), (std::vector<std::string>{"four", "two"}));
  EXPECT_EQ(store->logs("nobody", "", 10).total, 0u);
  std::vector<std::string> rare;
  store->visit_rare_logs([&](const StoredLog& item) {
    rare.push_back(std::get<std::string>(item.record.body.data));
    return rare.size() < 2;
  });
  EXPECT_EQ(rare, (std::vector<std::string>{"five", "three"}));
}

TEST_P(StepStoreContract, DropsTheOldestLogsBeyondTheirLimit) {
  auto store = make({.logs = 10});
  for (int i = 0; i < 100; ++i) {
    store->append_log(resource_of("app"), log_of("", std::to_string(i)));
  }
  EXPECT_EQ(store->logs("", "", 1000).total, 10u);
  EXPECT_EQ(std::get<std::string>(store->logs("", "", 1).items.at(0).record.body.data), "99");
  expect_nothing_lost_unseen("logs");
}

TEST_P(StepStoreContract, AppendsAndQueriesFromManyThreadsAtOnce) {
  auto store = make({.step_rows = 2000, .logs = 100});
  std::vector<std::thread> threads;
  for (Rank rank : all_ranks(4)) {
    threads.emplace_back([&, rank] {
      for (StepNumber step = 0_step; step < 1000_step; ++step) {
        store->append_step(identity_of(rank), step_of(step), step.value());
        store->append_log(resource_of("app"), log_of("", "x"));
        if (step % 50 == 0) {
          store->steps("job", step - 20, step);
          store->logs("app", "", 5);
          store->jobs();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->job("job")->last_step, 999_step);
  expect_nothing_lost_unseen("steps");
  expect_nothing_lost_unseen("logs");
}

INSTANTIATE_TEST_SUITE_P(Backings, StepStoreContract, ::testing::ValuesIn(kBackings),
                         [](const auto& test) { return test.param.name; });

TEST(MemoryStepStore, CountsBytesToo) {
  Counters counters(kStoreCounters);
  MemoryStepStoreOptions options;
  options.step_bytes_max = 100'000;
  options.log_bytes_max = 10'000;
  MemoryStepStore store(options, counters);
  for (StepNumber step = 0_step; step < 100_step; ++step) {
    StepSummary summary = step_of(step);
    summary.flows.resize(100);
    store.append_step(identity_of(0_rank), summary, 1);
    store.append_log(resource_of("app"), log_of("", std::string(1000, 'x')));
  }
  EXPECT_LE(counters.value("lockstep_store_bytes", "table=\"steps\""), 100'000);
  EXPECT_LT(store.steps("job", 0_step, 1000_step).size(), 20u);
  EXPECT_GT(store.steps("job", 0_step, 1000_step).size(), 5u);
  EXPECT_LE(store.logs("", "", 0).total, 9u);
  EXPECT_GE(store.logs("", "", 0).total, 5u);
}

TEST(MemoryStepStore, ForgetsTheLongestSilentJobWhenThereAreTooManyJobsOrRanks) {
  Counters counters(kStoreCounters);
  MemoryStepStoreOptions options;
  options.jobs_max = 2;
  options.ranks_max = 4;
  MemoryStepStore store(options, counters);
  store.append_step(identity_of(0_rank, "old"), step_of(1_step), 100);
  store.append_step(identity_of(0_rank, "middle"), step_of(1_step), 200);
  store.append_step(identity_of(0_rank, "new"), step_of(1_step), 300);
  EXPECT_FALSE(store.job("old").has_value());
  EXPECT_TRUE(store.job("middle").has_value());
  for (Rank rank : all_ranks(6)) store.append_step(identity_of(rank, "new"), step_of(2_step), 400);
  EXPECT_FALSE(store.job("middle").has_value());
  EXPECT_EQ(store.job("new")->ranks.size(), 4u);
  EXPECT_EQ(counters.value("lockstep_store_rows_refused_total", "table=\"steps\",reason=\"rank_limit\""), 2);
  EXPECT_EQ(counters.value("lockstep_store_jobs_dropped_total"), 2);
}

}  // namespace
}  // namespace lockstep
