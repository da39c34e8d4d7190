// Log records on disk by the API. Requests go straight into answer(): no sockets.
#include <simdjson.h>

#include <set>

#include "api/testing/log_api.h"
#include "base/text.h"

namespace lockstep {
namespace {

using simdjson::dom::element;

class LogsApiTest : public testing::LogApiTest {
 protected:
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
  HttpResponse get(const std::string& query) { return LogApiTest::get("/api/logs", query); }
  element json(const std::string& query) {
    HttpResponse response = get(query);
    EXPECT_EQ(response.status, 200) << query << ": " << response.body;
    element document;
    EXPECT_FALSE(parser_.parse(response.body).get(document)) << response.body.substr(0, 300);
    return document;
  }

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
