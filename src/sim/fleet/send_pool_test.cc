#include "sim/fleet/send_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/counters.h"
#include "model/events.h"
#include "net/http_server.h"
#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep::sim {
namespace {

constexpr CounterDescriptor kCounters[] = {
    {"lockstep_http_requests_total", "counter", Severity::kInfo, "requests"},
    {"lockstep_http_connections", "gauge", Severity::kInfo, "connections"},
    {"lockstep_http_bad_requests_total", "counter", Severity::kNotice, "bad requests"}};

TEST(SendPool, SendsEverythingAndKeepsTheOrderOfEachHost) {
  Counters counters(kCounters);
  Mutex mutex;
  std::map<std::string, std::vector<int64_t>> heard;
  auto server = HttpServer::start(
      {.address = {.host = "127.0.0.1", .port = 0}, .threads = 2, .name = "test"},
      [&](const ServerRequest& request) {
        Result<Encoding> encoding = parse_encoding(request.header("content-encoding"));
        Result<Batch> batch = otlp::decode(Signal::kLogs, *decompress(*encoding, request.body, 1 << 20));
        MutexLock lock(mutex);
        for (const ResourceGroup& group : batch->groups)
          heard[std::string(find_string(group.resource, "host.name"))].push_back(group.logs.at(0).time_unix_ns);
        return HttpResponse{.status = 200};
      },
      counters);
  ASSERT_TRUE(server.ok()) << server.error();
  constexpr int64_t kEach = 100;
  SendPool pool(*parse_url("http://" + (*server)->address(), 4318), 3);
  for (int64_t i = 1; i <= kEach; ++i) {
    for (const char* host : {"node-00", "node-01", "node-02", "node-03", "node-04"}) {
      Batch batch{.signal = Signal::kLogs};
      batch.groups.push_back({.resource = {{"host.name", host}}, .logs = {job_start_record(i)}});
      pool.send(std::move(batch), {});
    }
  }
  pool.drain();
  EXPECT_EQ(pool.totals().requests_sent, 5 * kEach);
  EXPECT_EQ(pool.totals().records_accepted, 5 * kEach);
  EXPECT_EQ(heard.size(), 5u);
  for (const auto& [host, times] : heard) {
    EXPECT_EQ(times.size(), static_cast<size_t>(kEach)) << host;
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end())) << host;
  }
}

}  // namespace
}  // namespace lockstep::sim
