// Log records on disk by the API. Requests go straight into answer(): no sockets.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <set>

#include "api/routes.h"
#include "base/text.h"
#include "store/logs/columnar_log_store.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using simdjson::dom::element;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'700'000'000 * kSecond;

struct NoDiagnosis final : VerdictSource {
  std::vector<Verdict> verdicts(std::string_view) const override { return {}; }
  std::string summary(std::string_view) const override { return ""; }
};

class LogsApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    auto logs = ColumnarLogStore::open({.folder = folder_.path() + "/logs", .background = false}, clock_, counters_);
    ASSERT_TRUE(state.ok() && logs.ok());
    state_ = std::move(*state);
    logs_ = std::move(*logs);
  }
  // So many in one request, whose times run backwards.
  void say(int count, int rank) {
    logs::LogColumns columns;
    for (int i = 0; i < count; ++i) {
      LogRecord record;
      record.time_unix_ns = kNow - i * kSecond;
      record.body = format("%d", said_++);
      columns.add({{"lockstep.rank", int64_t{rank}}}, record, kNow);
    }
    logs_->append(std::move(columns), kNow, 0);
  }
  HttpResponse get(const std::string& query) {
    ApiContext context{steps_, spans_, traces_, metrics_, *state_, agents_, diagnosis_, counters_, clock_, ready_, ""};
    context.logs = logs_.get();
    ServerRequest request;
    request.method = "GET";
    request.path = "/api/logs";
    request.query = query;
    request.is_gone = is_gone_;
    return answer(context, request);
  }
  element json(const std::string& query) {
    HttpResponse response = get(query);
    EXPECT_EQ(response.status, 200) << query << ": " << response.body;
    element document;
    EXPECT_FALSE(parser_.parse(response.body).get(document)) << response.body.substr(0, 300);
    return document;
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{kNow};
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  StepTraceCache traces_{steps_, spans_, clock_};
  MemoryMetricReader metrics_;
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<ColumnarLogStore> logs_;
  AgentRegistry agents_;
  NoDiagnosis diagnosis_;
  std::atomic<bool> ready_{true};
  std::function<bool()> is_gone_;
  int said_ = 0;
  simdjson::dom::parser parser_;
};

TEST_F(LogsApiTest, WhoGoesOnByAfterSeesEachRecordOnce) {
  int64_t after = json("")["after"].get_int64().value();
  std::set<std::string> seen;
  for (const int rank : {3, 4, 3}) {
    say(25, rank);
    while (true) {
      const element page = json(format("order=oldest&limit=10&after=%lld", static_cast<long long>(after)));
      after = page["after"].get_int64().value();
      for (element one : page["logs"].get_array())
        EXPECT_TRUE(seen.insert(std::string(one["body"].get_string().value())).second);
      if (page["total"].get_uint64().value() == page["shown"].get_uint64().value()) break;
    }
  }
  EXPECT_EQ(seen.size(), 75u);
  EXPECT_EQ(json("rank=3&limit=40")["shown"].get_uint64().value(), 40u);
  EXPECT_EQ(json("rank=3&limit=40")["total"].get_uint64().value(), 41u);
  EXPECT_EQ(json("rank=04")["total"].get_uint64().value(), 25u);
  EXPECT_EQ(get("rank=-1").status, 400);
}

TEST_F(LogsApiTest, NobodyLooksOnForAClientThatHasGone) {
  say(3, 0);
  is_gone_ = [] { return true; };
  EXPECT_EQ(get("grep=0").status, 503);
  is_gone_ = [] { return false; };
  EXPECT_TRUE(json("grep=0")["whole"].get_bool().value());
}

}  // namespace
}  // namespace lockstep
