#include "api/prometheus/query_scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "ingest/counters_table.h"
#include "net/testing/raw_socket.h"
#include "query/promql/query.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/eventually.h"

namespace lockstep {
namespace {

using testing::eventually;

struct Client final : HttpResponder {
  void answer(HttpResponse response) override {
    body = response.body;
    status = response.status;
  }
  bool defer() override { return true; }
  bool gone() const override { return has_gone; }
  std::string body;
  std::atomic<int> status{0};
  std::atomic<bool> has_gone{false};
};

class QuerySchedulerTest : public ::testing::Test {
 protected:
  // Each query runs until the test lets it.
  HttpResponse hold(const ServerRequest& request) {
    began_.push_back(request.query);
    const int number = ++begun_;
    if (!eventually([&] { return released_ >= number; })) return {500, {}, "never released"};
    return {200, {}, request.query};
  }
  std::shared_ptr<Client> come(const std::string& query) {
    auto client = std::make_shared<Client>();
    threads_.emplace_back([this, client, query] {
      ServerRequest request;
      request.query = query;
      turns_.run(request, client);
    });
    return client;
  }
  int64_t count(const char* result) const {
    return counters_.value("lockstep_queries_total", std::string("result=\"") + result + "\"");
  }
  int64_t waiting() const { return counters_.value("lockstep_queries", "state=\"waiting\""); }
  int64_t running() const { return counters_.value("lockstep_queries", "state=\"running\""); }
  void TearDown() override {
    released_ = 1000;
    for (std::thread& thread : threads_) thread.join();
    EXPECT_EQ(running(), 0);
    EXPECT_EQ(waiting(), 0);
    EXPECT_EQ(counters_.sum("lockstep_queries_total"), static_cast<int64_t>(threads_.size())) << "each ends once";
  }

  Counters counters_{kServerCounters};
  std::atomic<int> begun_{0}, released_{0};
  std::vector<std::string> began_;  // one runs at a time
  QueryScheduler turns_{
      {.running_max = 1, .waiting_max = 2}, [this](const ServerRequest& request) { return hold(request); }, counters_};
  std::vector<std::thread> threads_;
};

TEST_F(QuerySchedulerTest, TheOthersWaitInTheOrderTheyCameAndHoldNoThread) {
  const auto first = come("query=a");
  ASSERT_TRUE(eventually([&] { return begun_ == 1; }));
  const auto second = come("query=b");
  threads_.back().join();  // it came back at once
  threads_.back() = std::thread([] {});
  const auto third = come("query=c");
  ASSERT_TRUE(eventually([&] { return waiting() == 2; }));
  EXPECT_EQ(begun_, 1);
  EXPECT_EQ(second->status, 0);
  released_ = 3;
  ASSERT_TRUE(eventually([&] { return third->status == 200; }));
  EXPECT_EQ(began_, (std::vector<std::string>{"query=a", "query=b", "query=c"}));
  EXPECT_EQ(second->body, "query=b");
  EXPECT_EQ(count("answered"), 3);
}

TEST_F(QuerySchedulerTest, BeyondTheQueueTheyAreTurnedAwayAndToldTheLimits) {
  come("query=a");
  ASSERT_TRUE(eventually([&] { return begun_ == 1; }));
  come("query=b");
  come("query=c");
  ASSERT_TRUE(eventually([&] { return waiting() == 2; }));
  const auto fourth = come("query=d");
  ASSERT_TRUE(eventually([&] { return fourth->status == 503; }));
  EXPECT_NE(fourth->body.find("1 queries run (limit 1) and 2 wait (limit 2)"), std::string::npos) << fourth->body;
  EXPECT_EQ(count("turned_away"), 1);
}

TEST_F(QuerySchedulerTest, WhoHasWaitedAsLongAsItsTimeoutAllowsIsToldSo) {
  come("query=a");
  ASSERT_TRUE(eventually([&] { return begun_ == 1; }));
  const auto hurried = come("query=b&timeout=50ms");
  const auto patient = come("query=c");
  ASSERT_TRUE(eventually([&] { return waiting() == 2; }));
  ASSERT_TRUE(eventually([&] {
    turns_.tick();
    return hurried->status == 503;
  }));
  EXPECT_NE(hurried->body.find("timed out in query queue"), std::string::npos) << hurried->body;
  EXPECT_EQ(waiting(), 1);
  EXPECT_EQ(count("timeout"), 1);
  EXPECT_EQ(patient->status, 0);
}

TEST_F(QuerySchedulerTest, WhoHasGoneTakesNoTurn) {
  come("query=a");
  ASSERT_TRUE(eventually([&] { return begun_ == 1; }));
  const auto impatient = come("query=b");
  ASSERT_TRUE(eventually([&] { return waiting() == 1; }));
  impatient->has_gone = true;
  turns_.tick();
  EXPECT_EQ(waiting(), 0);
  EXPECT_EQ(count("cancelled"), 1);
  released_ = 1;
  ASSERT_TRUE(eventually([&] { return running() == 0; }));
  EXPECT_EQ(begun_, 1);
}

TEST_F(QuerySchedulerTest, AQueryThatThrowsGivesItsTurnBack) {
  QueryScheduler turns(
      {.running_max = 1}, [](const ServerRequest&) -> HttpResponse { throw std::bad_alloc(); }, counters_);
  for (int i = 0; i < 2; ++i) {
    auto client = std::make_shared<Client>();
    turns.run({}, client);
    EXPECT_EQ(client->status, 500);
    threads_.emplace_back([] {});
  }
  EXPECT_EQ(count("failed"), 2);
}

// Two tenants' schedulers over the same slots.
class SharedSlotsTest : public ::testing::Test {
 protected:
  struct Tenant {
    Tenant(std::string called, SharedSlotsTest& test)
        : name(std::move(called)),
          turns(
              {.waiting_max = 8}, [this, &test](const ServerRequest&) { return test.hold(name); }, counters,
              &test.slots_) {}
    int64_t running() const { return counters.value("lockstep_queries", "state=\"running\""); }
    int64_t waiting() const { return counters.value("lockstep_queries", "state=\"waiting\""); }
    std::string name;
    Counters counters{kServerCounters};
    QueryScheduler turns;
  };
  HttpResponse hold(const std::string& name) {
    {
      MutexLock lock(mutex_);
      began_ += name;
    }
    const int number = ++begun_;
    eventually([&] { return released_ >= number; });
    return {200, {}, ""};
  }
  void come(Tenant& tenant) {
    threads_.emplace_back([&tenant] { tenant.turns.run({}, std::make_shared<Client>()); });
  }
  std::string began() {
    MutexLock lock(mutex_);
    return began_;
  }
  void TearDown() override {
    released_ = 1000;
    for (std::thread& thread : threads_) thread.join();
    EXPECT_EQ(a_.running() + b_.running() + a_.waiting() + b_.waiting(), 0);
  }

  QuerySlots slots_{3};
  Mutex mutex_;
  std::string began_;
  std::atomic<int> begun_{0}, released_{0};
  Tenant a_{"a", *this}, b_{"b", *this};
  std::vector<std::thread> threads_;
};

TEST_F(SharedSlotsTest, OneTenantLeavesASlotForTheOther) {
  for (int i = 0; i < 5; ++i) come(a_);
  ASSERT_TRUE(eventually([&] { return a_.running() == 2 && a_.waiting() == 3; }));
  come(b_);
  ASSERT_TRUE(eventually([&] { return b_.running() == 1; }));
  EXPECT_EQ(began(), "aab");
}

TEST_F(SharedSlotsTest, WhoRunsFewestIsNextWhoeverCameFirst) {
  for (int i = 0; i < 6; ++i) come(a_);
  ASSERT_TRUE(eventually([&] { return a_.running() == 2 && a_.waiting() == 4; }));
  for (int i = 0; i < 3; ++i) come(b_);
  ASSERT_TRUE(eventually([&] { return b_.running() == 1 && b_.waiting() == 2; }));
  released_ = 1;  // of a: now a and b run one each, and the slot is a's to lose
  ASSERT_TRUE(eventually([&] { return began().size() == 4; }));
  EXPECT_EQ(a_.running() + b_.running(), 3);
  EXPECT_EQ(a_.waiting() + b_.waiting(), 5);
  for (int one = 2; one <= 6; ++one) {  // together they would end in any order
    released_ = one;
    ASSERT_TRUE(eventually([&] { return began().size() == static_cast<size_t>(3 + one); }));
  }
  EXPECT_LE(began().rfind('b'), 7u) << began() << ": b's three did not wait behind a's six";
}

// What takes forever in a reader: finding the series, or reading them.
class SlowReader final : public MetricReader {
 public:
  explicit SlowReader(bool slow_to_find) : slow_to_find_(slow_to_find) {
    for (int i = 0; i < 10'000; ++i) inner_.add({{"__name__", "x"}, {"n", std::to_string(i)}}, 1000, 1);
  }
  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                  const SelectOptions& options) const override {
    if (slow_to_find_) {
      ++begun;
      return Error{eventually([&] { return options.give_up && options.give_up(); }) ? "not wanted"
                                                                                    : "nobody said stop"};
    }
    auto selection = LOCKSTEP_TRY(inner_.select(matchers, options));
    return std::unique_ptr<MetricSelection>(std::make_unique<Slow>(*this, std::move(selection)));
  }
  Result<std::vector<std::string>> label_names(std::span<const std::vector<LabelMatcher>>, int64_t,
                                               int64_t) const override {
    return std::vector<std::string>();
  }
  Result<std::vector<std::string>> label_values(std::string_view, std::span<const std::vector<LabelMatcher>>, int64_t,
                                                int64_t) const override {
    return std::vector<std::string>();
  }
  std::vector<MetricMetadata> metadata() const override { return {}; }
  Result<std::vector<Exemplar>> exemplars(std::span<const LabelMatcher>, int64_t, int64_t) const override {
    return std::vector<Exemplar>();
  }
  mutable std::atomic<int> begun{0};

 private:
  struct Slow final : MetricSelection {
    Slow(const SlowReader& from, std::unique_ptr<MetricSelection> of) : reader(from), inner(std::move(of)) {}
    size_t size() const override { return inner->size(); }
    std::span<const LabelSymbols> labels(size_t series) const override { return inner->labels(series); }
    std::string_view text(uint32_t symbol) const override { return inner->text(symbol); }
    Result<void> samples(size_t series, int64_t from, int64_t to, SampleColumns& out) const override {
      ++reader.begun;
      // The sleep is the point: it is a slow reader. Of ten thousand series: minutes.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Result<void> read = inner->samples(series, from, to, out);
      // Many samples each, so that the evaluator looks up after every series.
      out.times_ms.resize(5000, 1000);
      out.values.resize(5000, 1);
      return read;
    }
    const SlowReader& reader;
    std::unique_ptr<MetricSelection> inner;
  };
  const bool slow_to_find_;
  MemoryMetricReader inner_;
};

// A real server, a real client that closes its connection, and a query that would take a minute or more.
struct Served {
  explicit Served(bool slow_to_find) : reader(slow_to_find) {
    Result<std::unique_ptr<HttpServer>> started = HttpServer::start(
        {.address = {"127.0.0.1", 0}, .name = "test"},
        DeferringHandler([this](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
          turns.run(request, responder);
        }),
        counters);
    EXPECT_TRUE(started.ok()) << started.error();
    server = std::move(*started);
  }
  HttpResponse query(const ServerRequest& request) const {
    promql::QueryOptions options;
    options.cancelled = request.is_gone;
    const promql::QueryResult result = promql::run_query("sum(x)", reader, {1000, 1000, 0}, options);
    return {result.failure == promql::QueryFailure::kCancelled ? 499 : 500, {}, result.error};
  }
  // A client whose query is under way.
  std::unique_ptr<testing::RawSocket> ask() const {
    auto client = std::make_unique<testing::RawSocket>(server->address());
    client->send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_TRUE(eventually([&] { return reader.begun > 0; }));
    return client;
  }
  int64_t cancelled() const { return counters.value("lockstep_queries_total", "result=\"cancelled\""); }

  SlowReader reader;
  Counters counters{kServerCounters};
  QueryScheduler turns{{}, [this](const ServerRequest& request) { return query(request); }, counters};
  std::unique_ptr<HttpServer> server;
};

TEST(QueryCancel, AQueryEndsSoonAfterItsClientHasGoneWhileSeriesAreReadOrLookedFor) {
  for (const bool slow_to_find : {false, true}) {
    Served served(slow_to_find);
    served.ask().reset();
    EXPECT_TRUE(eventually([&] { return served.cancelled() == 1; })) << slow_to_find;
    EXPECT_LT(served.reader.begun, 1000);
  }
}

TEST(QueryCancel, AQueryDoesNotHoldUpTheServersEnd) {
  Served served(false);
  const auto client = served.ask();
  served.server->stop();
  EXPECT_EQ(served.cancelled(), 1);
  EXPECT_LT(served.reader.begun, 10'000) << "it came back before all were read";
}

}  // namespace
}  // namespace lockstep
