// From the bus to its takers, whatever goes wrong on the way: nothing is lost unseen, and nobody waits for ever.
#include "server/bus_feed.h"

#include <gtest/gtest.h>

#include <deque>
#include <stdexcept>

#include "base/text.h"
#include "ingest/counters_table.h"
#include "testing/eventually.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;
using testing::FakeClock;

// A bus that says what the test says.
class ScriptedReader final : public BusReader {
 public:
  std::vector<TakenRecord> take(std::chrono::milliseconds) override {
    MutexLock lock(mutex_);
    ++asked_;
    if (batches_.empty()) {
      said_.wait_for(mutex_, std::chrono::milliseconds(1), [] { return false; });
      return {};
    }
    std::vector<TakenRecord> batch = std::move(batches_.front());
    batches_.pop_front();
    return batch;
  }
  void applied(const std::map<BusPlace, int64_t>&) override {}
  bool is_at_end() const override { return at_end; }
  BusAssignment assignment() const override {
    if (has_all) return {4, {0, 1, 2, 3}};
    return {4, {0, 1}};
  }
  std::optional<std::string> trouble() const override { return std::nullopt; }
  uint32_t cluster() const override { return 77; }

  void say(std::vector<TakenRecord> batch) {
    MutexLock lock(mutex_);
    batches_.push_back(std::move(batch));
  }
  int asked() const {
    MutexLock lock(mutex_);
    return asked_;
  }
  std::atomic<bool> at_end{true}, has_all{true};

 private:
  mutable Mutex mutex_;
  ConditionVariable said_;
  std::deque<std::vector<TakenRecord>> batches_ LOCKSTEP_GUARDED_BY(mutex_);
  int asked_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

// A payload "throw" fails it, for a "bomb" there is no memory.
class Taker final : public BusTaker {
 public:
  DurableSink::FromBus take(std::span<const TakenRecord> records, Counters&,
                            const std::function<void(int64_t)>& before) override {
    for (const TakenRecord& record : records) {
      if (record.payload == "throw") throw std::runtime_error("a library complains");
    }
    DurableSink::FromBus taken;
    for (const TakenRecord& record : records) {
      if (record.payload == "bomb") return {taken.done, "no memory", taken.done == 0};
      before(record.received_unix_ns);
      MutexLock lock(mutex_);
      payloads_.push_back(record.payload);
      ++taken.done;
    }
    return taken;
  }
  bool keep(Batch) override { return true; }
  std::vector<std::string> payloads() const {
    MutexLock lock(mutex_);
    return payloads_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> payloads_ LOCKSTEP_GUARDED_BY(mutex_);
};

struct Takers final : BusTakers {
  Found find_for_bus(const std::string& name) override {
    if (name == "unknown") return {nullptr, "there is none", true};
    if (name == "never") return {nullptr, "it does not open"};
    return {&taker};
  }
  std::atomic<int> taken_over{0};
  void take_over_jobs() override { ++taken_over; }
  void let_go_of_jobs() override {}
  void look_as_of(int64_t unix_ns) override {
    looked_unix_ns = unix_ns;
    looked_at = taker.payloads().size();
  }
  Taker taker;
  std::atomic<int64_t> looked_unix_ns{0};
  std::atomic<size_t> looked_at{0};  // so many records
};

struct BusFeedTest : ::testing::Test {
  testing::TemporaryFolder folder;
  ServerOptions options;
  FakeClock clock;
  ClockWitness witness{clock};
  MemoryBudget memory{1ull << 30, [] { return uint64_t{0}; }};
  QuerySlots queries{4};
  TenantCommon common{options, clock, witness, memory, queries, ""};
  Counters counters{kServerCounters};
  Takers takers;
  ScriptedReader* reader = nullptr;  // the feed's
  BusReaderOptions asked;
  BusFeed feed{folder.path(),
               common,
               counters,
               {.tenant = std::chrono::milliseconds(0),
                .record = std::chrono::milliseconds(0),
                .again = std::chrono::milliseconds(1)}};

  void start() {
    auto open = [this](BusReaderOptions given) -> Result<std::unique_ptr<BusReader>> {
      asked = std::move(given);
      auto made = std::make_unique<ScriptedReader>();
      reader = made.get();
      return std::unique_ptr<BusReader>(std::move(made));
    };
    ASSERT_TRUE(feed.start(open, {}, takers).ok());
  }
  TakenRecord record(int64_t offset, std::string payload, std::string tenant = "") {
    return {.place = {3, RecordKind::kOtlpLogs},
            .offset = offset,
            .received_unix_ns = clock.unix_ns(),
            .tenant = std::move(tenant),
            .payload = std::move(payload),
            .cluster = 77};
  }
  bool heard(const std::vector<std::string>& payloads) {
    return eventually([&] { return takers.taker.payloads() == payloads; });
  }
  int64_t refused(const char* reason) {
    return counters.value("lockstep_bus_records_refused_total", format("reason=\"%s\"", reason));
  }
};

TEST_F(BusFeedTest, JobsThatComeAreTakenOverBeforeAnythingOfThemIsRead) {
  start();
  EXPECT_TRUE(eventually([&] { return takers.taken_over == 1; }));
}

TEST_F(BusFeedTest, ARecordThatFailsIsPassedOverAndTakesNoOtherWithIt) {
  start();
  reader->say({record(0, "a"), record(1, "throw"), record(2, "b"), record(3, "c", "team"), record(4, "d")});
  EXPECT_TRUE(heard({"a", "b", "c", "d"}));
  EXPECT_EQ(refused("failed"), 1);
  feed.stop();
  EXPECT_EQ(BusPositions::read(folder.path() + "/bus_positions", 77).places.at({3, RecordKind::kOtlpLogs}).next_offset,
            5);
}

TEST_F(BusFeedTest, ARecordForWhichThereIsNoMemoryIsPassedOverOnceThatHasLasted) {
  start();
  reader->say({record(0, "a"), record(1, "bomb"), record(2, "b")});
  EXPECT_TRUE(heard({"a", "b"}));
  EXPECT_EQ(refused("memory"), 1);
  EXPECT_FALSE(feed.problem());
}

TEST_F(BusFeedTest, AllOfHistoryIsLookedAtThoughNothingMoreComes) {
  start();
  reader->at_end = false;  // no broker answers
  const int64_t hour_ago_ns = clock.unix_ns() - 3'600'000'000'000;
  TakenRecord old = record(0, "a");
  old.received_unix_ns = hour_ago_ns;
  reader->say({old});
  EXPECT_TRUE(eventually([&] { return takers.looked_at == 1u; }));
  EXPECT_EQ(takers.looked_unix_ns, hour_ago_ns);
  EXPECT_TRUE(common.bus_is_behind);
  reader->at_end = true;
  EXPECT_TRUE(eventually([&] { return !common.bus_is_behind; }));
}

TEST_F(BusFeedTest, PartitionsThatComeAreLookedAtAsOfTheirOwnHistory) {
  start();
  reader->at_end = reader->has_all = false;
  const int64_t hour_ns = 3'600'000'000'000;
  TakenRecord one = record(0, "a"), older = record(1, "b");
  one.received_unix_ns = clock.unix_ns() - hour_ns;
  older.received_unix_ns = clock.unix_ns() - 2 * hour_ns;
  reader->say({one});
  EXPECT_TRUE(eventually([&] { return takers.looked_at == 1u; }));
  reader->has_all = true;
  older.place.partition = 0;
  const int asked = reader->asked();
  EXPECT_TRUE(eventually([&] { return reader->asked() > asked + 1; }));
  reader->say({older, older});
  EXPECT_TRUE(eventually([&] { return takers.looked_unix_ns == older.received_unix_ns; }));
}

TEST_F(BusFeedTest, TenantsThatAreNotThereHoldUpNobody) {
  start();
  reader->say({record(0, "a", "unknown"), record(1, "b", "never"), record(2, "c")});
  EXPECT_TRUE(heard({"c"}));
  EXPECT_EQ(refused("tenant"), 2);
}

}  // namespace
}  // namespace lockstep
