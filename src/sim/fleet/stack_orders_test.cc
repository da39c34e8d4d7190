#include "sim/fleet/stack_orders.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "base/counters.h"
#include "net/http_server.h"
#include "testing/eventually.h"
#include "wire/commands.h"

namespace lockstep::sim {
namespace {

constexpr CounterDescriptor kCounters[] = {
    {"lockstep_http_requests_total", "counter", Severity::kInfo, "requests"},
    {"lockstep_http_connections", "gauge", Severity::kInfo, "connections"},
    {"lockstep_http_bad_requests_total", "counter", Severity::kNotice, "bad requests"}};

TEST(StackOrders, AreThoseOfThisJobAndAttemptOnceEachAndTheCursorIsSentBack) {
  Counters counters(kCounters);
  std::atomic<int> polls = 0;
  std::atomic<bool> came_back = false;
  auto server = HttpServer::start(
      {.address = {.host = "127.0.0.1", .port = 0}, .threads = 1, .name = "test"},
      [&](const ServerRequest& request) {
        if (request.path != kCommandsPath || request.header("x-lockstep") != "1") return HttpResponse{.status = 400};
        if (++polls > 1) {
          came_back = came_back || request.parameter("after") == "c-1";
          return HttpResponse{.status = 204};
        }
        const std::vector<StackRequest> orders = {{.job_id = "job", .attempt = 1, .ranks = {3_rank, 5_rank}},
                                                  {.job_id = "job", .attempt = 1, .ranks = {5_rank}},
                                                  {.job_id = "job", .attempt = 0, .ranks = {7_rank}},
                                                  {.job_id = "another", .attempt = 1, .ranks = {9_rank}}};
        return HttpResponse{.status = 200, .body = encode_commands({.cursor = "c-1", .stacks = orders})};
      },
      counters);
  ASSERT_TRUE(server.ok()) << server.error();
  StackOrders orders(*parse_url("http://" + (*server)->address(), 4318), "job", {"node-00"});
  EXPECT_TRUE(lockstep::testing::eventually([&] { return came_back.load(); }));
  EXPECT_EQ(orders.take(1), (std::vector<Rank>{3_rank, 5_rank}));
  EXPECT_TRUE(orders.take(1).empty());
}

}  // namespace
}  // namespace lockstep::sim
