#include "net/grpc_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "net/grpc_message.h"
#include "net/testing/grpc_client.h"
#include "net/testing/http_counters.h"
#include "testing/eventually.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::eventually;
using testing::GrpcTestClient;
using testing::GrpcTestResponse;
using testing::RawSocket;

GrpcServerResponse echo(const GrpcServerRequest& request) {
  const std::string& path = request.path;
  const std::string& body = request.body;
  if (path == "/test.Service/Echo") return {kGrpcOk, "", body};
  if (path == "/test.Service/Size") return {kGrpcOk, "", std::to_string(body.size())};
  if (path == "/test.Service/Busy") return {kGrpcUnavailable, "disk full: 100 % of \xc3\xa9", "", 1'500};
  return {kGrpcUnimplemented, "no method " + path};
}

struct Running {
  Counters counters{testing::kHttpCounters};
  std::unique_ptr<GrpcServer> server;

  explicit Running(HttpServerOptions http = {}, GrpcHandler handler = echo) {
    GrpcServerOptions options;
    options.http = http;
    options.http.address = {"127.0.0.1", 0};
    options.http.name = "test";
    options.encodings = {"reversed"};
    options.decompress = [](std::string_view, std::string_view data, uint64_t) -> GrpcServerResponse {
      if (data == "memory") throw std::bad_alloc();
      if (data == "corrupt") return {kGrpcInvalidArgument, "not reversed"};
      return {kGrpcOk, "", std::string(data.rbegin(), data.rend())};
    };
    Result<std::unique_ptr<GrpcServer>> started = GrpcServer::start(std::move(options), std::move(handler), counters);
    EXPECT_TRUE(started) << started.error();
    server = std::move(*started);
  }
  int64_t bad(const char* reason) const {
    return counters.value("lockstep_http_bad_requests_total", format("receiver=\"test\",reason=\"%s\"", reason));
  }
  int64_t answers(const char* code) const {
    return counters.value("lockstep_http_requests_total", format("receiver=\"test\",code=\"%s\"", code));
  }
  int64_t connections() const { return counters.value("lockstep_http_connections", "receiver=\"test\""); }
};

GrpcTestClient::Request request_of(const std::string& path, std::string data) {
  GrpcTestClient::Request request;
  request.path = path;
  request.data = std::move(data);
  return request;
}

TEST(GrpcServer, AnswersAUnaryCallWithMessageAndTrailers) {
  Running running;
  GrpcTestClient client(running.server->address());
  GrpcTestResponse answer = client.call("/test.Service/Echo", "hello");
  EXPECT_TRUE(answer.finished);
  EXPECT_EQ(answer.headers[":status"], "200");
  EXPECT_EQ(answer.headers["content-type"], "application/grpc");
  EXPECT_EQ(answer.data, grpc_frame("hello"));
  EXPECT_EQ(answer.trailers["grpc-status"], "0");
  EXPECT_EQ(client.call("/test.Service/Echo", "").body(), "");
  EXPECT_EQ(running.answers("0"), 2);
  EXPECT_EQ(running.connections(), 1);
}

TEST(GrpcServer, SendsErrorsAsTrailersOnly) {
  Running running;
  GrpcTestClient client(running.server->address());
  GrpcTestResponse answer = client.call("/test.Service/Busy", "x");
  EXPECT_EQ(answer.headers["grpc-status"], "14");
  EXPECT_EQ(answer.headers["grpc-message"], "disk full: 100 %25 of %C3%A9");
  EXPECT_TRUE(answer.trailers.empty());
  EXPECT_TRUE(answer.data.empty());
  // Status{code: 14, message, details: [Any{RetryInfo{Duration{seconds: 1, nanos: 500000000}}}]}, made with protobuf.
  EXPECT_EQ(answer.headers["grpc-status-details-bin"],
            "CA4SFmRpc2sgZnVsbDogMTAwICUgb2Ygw6kaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIARCAyr"
            "XuAQ==");
}

TEST(GrpcServer, AMethodThatIsNotThereIsUnimplemented) {
  Running running;
  GrpcTestClient client(running.server->address());
  GrpcTestResponse answer = client.call("/test.Service/Other", "x");
  EXPECT_EQ(answer.status(), kGrpcUnimplemented);
  EXPECT_EQ(answer.message(), "no method /test.Service/Other");
}

TEST(GrpcServer, TakesAndGivesMessagesLargerThanTheFlowControlWindows) {
  Running running;
  GrpcTestClient client(running.server->address());
  std::string large(20'000'000, 'x');
  for (size_t i = 0; i < large.size(); i += 997) large[i] = static_cast<char>(i);
  EXPECT_EQ(client.call("/test.Service/Size", large).body(), "20000000");
  EXPECT_TRUE(client.call("/test.Service/Echo", large).body() == large);
}

TEST(GrpcServer, UndoesTheMessageEncodingsItKnows) {
  Running running;
  GrpcTestClient client(running.server->address());
  auto call = [&](std::string frame, const char* encoding) {
    GrpcTestClient::Request request = request_of("/test.Service/Echo", std::move(frame));
    request.encoding = encoding;
    return client.wait(client.start(request));
  };
  EXPECT_EQ(call(grpc_frame("abc", true), "reversed").body(), "cba");
  EXPECT_EQ(call(grpc_frame("abc", false), "reversed").body(), "abc");
  EXPECT_EQ(call(grpc_frame("abc", false), "identity").body(), "abc");
  EXPECT_EQ(call(grpc_frame("corrupt", true), "reversed").status(), kGrpcInvalidArgument);
  EXPECT_EQ(call(grpc_frame("abc", true), "").status(), kGrpcInternal);
  EXPECT_EQ(call("\2" + grpc_frame("abc").substr(1), "reversed").status(), kGrpcInternal);
  GrpcTestResponse unknown = call(grpc_frame("abc", true), "snappy");
  EXPECT_EQ(unknown.status(), kGrpcUnimplemented);
  EXPECT_EQ(unknown.headers["grpc-accept-encoding"], "identity,reversed");
}

TEST(GrpcServer, RefusesAMessageOverTheLimitBeforeItIsSent) {
  HttpServerOptions http;
  http.body_bytes_max = 1'000;
  Running running(http);
  GrpcTestClient client(running.server->address());
  EXPECT_EQ(client.call("/test.Service/Size", std::string(1'000, 'x')).body(), "1000");
  GrpcTestResponse large = client.call("/test.Service/Size", std::string(30'000'000, 'x'));
  EXPECT_EQ(large.status(), kGrpcResourceExhausted);
  EXPECT_EQ(large.message(), "message of 30000000 bytes is over the limit of 1000");
  EXPECT_TRUE(large.headers.find("grpc-status-details-bin") == large.headers.end());  // trying again would not help
  EXPECT_EQ(client.call("/test.Service/Size", "x").body(), "1");
  EXPECT_EQ(running.bad("too_large"), 1);
}

TEST(GrpcServer, RefusesMalformedCallsAndGoesOn) {
  Running running;
  GrpcTestClient client(running.server->address());
  auto call = [&](const GrpcTestClient::Request& request) { return client.wait(client.start(request)); };
  EXPECT_EQ(call(request_of("/test.Service/Echo", "")).status(), kGrpcInternal);
  EXPECT_EQ(call(request_of("/test.Service/Echo", grpc_frame("hello").substr(0, 7))).status(), kGrpcInternal);
  EXPECT_EQ(call(request_of("/test.Service/Echo", grpc_frame("one") + grpc_frame("two"))).status(), kGrpcUnimplemented);
  GrpcTestClient::Request json = request_of("/test.Service/Echo", "{}");
  json.content_type = "application/json";
  EXPECT_EQ(call(json).headers[":status"], "415");
  GrpcTestClient::Request get = request_of("/test.Service/Echo", "");
  get.method = "GET";
  EXPECT_EQ(call(get).headers[":status"], "405");
  GrpcTestClient::Request headers = request_of("/test.Service/Echo", grpc_frame("x"));
  headers.extra_header_value = std::string(30'000, 'x');
  EXPECT_NE(call(headers).reset_code, 0u);
  EXPECT_EQ(client.call("/test.Service/Echo", "still here").body(), "still here");
}

TEST(GrpcServer, ClosesConnectionsThatAreNotHttp2) {
  Running running;
  RawSocket socket(running.server->address());
  socket.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  socket.read_until_closed();
  EXPECT_TRUE(socket.closed_by_peer());
  EXPECT_TRUE(eventually([&] { return running.bad("not_http2") == 1 && running.connections() == 0; }));
  RawSocket garbage(running.server->address());
  garbage.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(100, '\xff'));
  garbage.read_until_closed();
  EXPECT_TRUE(garbage.closed_by_peer());
  EXPECT_TRUE(eventually([&] { return running.connections() == 0; }));
}

TEST(GrpcServer, ASlowCallHoldsUpNeitherItsConnectionNorItsPings) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  Running running({}, [released](const GrpcServerRequest& request) {
    if (request.body == "slow") released.wait();
    return echo(request);
  });
  GrpcTestClient client(running.server->address());
  int32_t slow = client.start(request_of("/test.Service/Echo", grpc_frame("slow")));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(client.call("/test.Service/Echo", std::to_string(i)).body(), std::to_string(i));
  EXPECT_TRUE(client.ping());
  release.set_value();
  EXPECT_EQ(client.wait(slow).body(), "slow");
}

TEST(GrpcServer, RunsManyCallsOfOneConnectionAtATime) {
  Running running;
  GrpcTestClient client(running.server->address());
  std::vector<int32_t> streams;
  for (int i = 0; i < 200; ++i)
    streams.push_back(client.start(
        request_of("/test.Service/Echo", grpc_frame(std::string(5'000, static_cast<char>('a' + i % 26))))));
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(client.wait(streams[static_cast<size_t>(i)]).body(), std::string(5'000, static_cast<char>('a' + i % 26)));
}

TEST(GrpcServer, AnAnswerToACancelledCallHarmsNobody) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> entered{0};
  HttpServerOptions http;
  http.body_bytes_max = 1'000;
  http.bodies_bytes_max = 1'500;
  Running running(http, [&, released](const GrpcServerRequest& request) {
    ++entered;
    if (request.body.front() == 's') released.wait();
    return echo(request);
  });
  GrpcTestClient client(running.server->address());
  int32_t cancelled = client.start(request_of("/test.Service/Echo", grpc_frame(std::string(900, 's'))));
  EXPECT_TRUE(client.ping());
  ASSERT_TRUE(eventually([&] { return entered == 1; }));
  client.cancel(cancelled);
  EXPECT_TRUE(client.ping());
  {
    GrpcTestClient gone(running.server->address());
    gone.start(request_of("/test.Service/Echo", grpc_frame(std::string(100, 's'))));
    EXPECT_TRUE(gone.ping());
    ASSERT_TRUE(eventually([&] { return entered == 2; }));
  }
  // What the workers hold still counts...
  GrpcTestResponse refused = client.call("/test.Service/Size", std::string(900, 'x'));
  EXPECT_EQ(refused.status(), kGrpcResourceExhausted);
  EXPECT_FALSE(refused.headers["grpc-status-details-bin"].empty());
  release.set_value();
  // ...and is given back exactly once.
  EXPECT_TRUE(eventually([&] { return client.call("/test.Service/Size", std::string(1'000, 'x')).body() == "1000"; }));
  EXPECT_EQ(running.connections(), 1);
}

TEST(GrpcServer, DropsCallsAndConnectionsThatSendTooSlowly) {
  HttpServerOptions http;
  http.request_timeout_ms = 200;
  http.idle_timeout_ms = 500;
  Running running(http);
  GrpcTestClient client(running.server->address());
  GrpcTestClient::Request half = request_of("/test.Service/Echo", grpc_frame("hello").substr(0, 6));
  half.end_stream = false;
  GrpcTestResponse answer = client.wait(client.start(half), 5'000);
  EXPECT_TRUE(answer.finished);
  EXPECT_NE(answer.reset_code, 0u);
  EXPECT_GE(running.bad("timeout"), 1);
  RawSocket silent(running.server->address());
  silent.read_until_closed();
  EXPECT_TRUE(silent.closed_by_peer());
  EXPECT_TRUE(client.wait_for_goaway());  // idle by now
}

TEST(GrpcServer, ClosesConnectionsOverItsLimitWhereAllAreBeingAnswered) {
  HttpServerOptions http;
  http.connections_max = 1;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<bool> entered{false};
  Running running(http, [&entered, released](const GrpcServerRequest& request) {
    entered = true;
    released.wait();
    return echo(request);
  });
  std::thread busy([&] {
    GrpcTestClient first(running.server->address());
    EXPECT_EQ(first.call("/test.Service/Echo", "x").status(), 0);
  });
  ASSERT_TRUE(eventually([&] { return entered.load(); }));
  GrpcTestClient second(running.server->address());
  EXPECT_EQ(second.call("/test.Service/Echo", "x").status(), -1);
  EXPECT_EQ(running.bad("connections_max"), 1);
  release.set_value();
  busy.join();
}

TEST(GrpcServer, ConnectionsWithoutCallsGiveWay) {
  HttpServerOptions http;
  http.connections_max = 1;
  Running running(http);
  GrpcTestClient idle(running.server->address());
  EXPECT_EQ(idle.call("/test.Service/Echo", "x").status(), 0);
  GrpcTestClient next(running.server->address());
  EXPECT_EQ(next.call("/test.Service/Echo", "x").status(), 0);
  EXPECT_EQ(running.bad("gave_way"), 1);
  EXPECT_EQ(running.bad("connections_max"), 0);
}

TEST(GrpcServer, AnExceptionInACallOrInDecompressionCostsThatCallOnly) {
  Running running({}, [](const GrpcServerRequest& request) -> GrpcServerResponse {
    if (request.body == "memory") throw std::bad_alloc();
    if (request.body == "odd") throw 7;
    return echo(request);
  });
  GrpcTestClient client(running.server->address());
  EXPECT_EQ(client.call("/test.Service/Echo", "memory").status(), kGrpcInternal);
  EXPECT_EQ(client.call("/test.Service/Echo", "odd").status(), kGrpcInternal);
  GrpcTestClient::Request packed = request_of("/test.Service/Echo", grpc_frame("memory", true));
  packed.encoding = "reversed";
  EXPECT_EQ(client.wait(client.start(packed)).status(), kGrpcInternal);
  EXPECT_EQ(client.call("/test.Service/Echo", "x").status(), 0);
}

TEST(GrpcServer, StopSaysGoawayAndLetsCallsFinish) {
  std::promise<void> release;
  std::atomic<bool> entered{false}, stopped{false};
  Running running({.drain_timeout_ms = 60'000},
                  [&, released = release.get_future().share()](const GrpcServerRequest& request) {
                    entered = true;
                    released.wait();
                    return echo(request);
                  });
  GrpcTestClient idle(running.server->address());
  EXPECT_TRUE(idle.ping());
  std::thread busy([&] {
    GrpcTestClient client(running.server->address());
    EXPECT_EQ(client.call("/test.Service/Echo", "finish me").body(), "finish me");
    EXPECT_TRUE(client.wait_for_goaway());
  });
  ASSERT_TRUE(eventually([&] { return entered.load(); }));
  std::thread stopping([&] {
    running.server->stop();
    stopped = true;
  });
  ASSERT_TRUE(eventually([&] { return !RawSocket(running.server->address()).connected(); })) << "it takes no more";
  EXPECT_FALSE(stopped) << "while a call is in progress";
  release.set_value();
  stopping.join();
  busy.join();
  EXPECT_TRUE(idle.wait_for_goaway());
  EXPECT_EQ(running.connections(), 0);
  EXPECT_FALSE(RawSocket(running.server->address()).connected());
}

TEST(GrpcServer, WhoIsNotLetInIsToldBeforeAMessageIsRead) {
  struct ByWord final : Gatekeeper {
    Admission admit(const ServerRequest& head, const PeerCertificate&) override {
      EXPECT_EQ(head.method, "POST");
      EXPECT_EQ(head.path, "/test.Service/Echo");
      EXPECT_TRUE(head.peer.starts_with("127.0.0.1:")) << head.peer;
      const std::string_view word = head.header("authorization");
      if (word.empty()) return {.refused = 401, .line = "who are you?"};
      if (word == "Bearer often") return {.refused = 429, .line = "too often", .headers = {{"retry-after", "7"}}};
      if (word != "Bearer word") return {.refused = 403, .line = "not you"};
      return {.caller = {.tenant = "blue", .roles = 5}};
    }
  } gatekeeper;
  Running running({.gatekeeper = &gatekeeper}, [](const GrpcServerRequest& request) -> GrpcServerResponse {
    EXPECT_TRUE(request.peer.starts_with("127.0.0.1:")) << request.peer;
    return {kGrpcOk, "", request.caller.tenant + " " + std::to_string(request.caller.roles) + " " + request.body};
  });
  GrpcTestClient client(running.server->address());
  auto call = [&](const char* word, bool whole = true) {
    GrpcTestClient::Request request = request_of("/test.Service/Echo", grpc_frame("hello"));
    request.extra_header_name = "authorization";
    request.extra_header_value = word;
    request.end_stream = whole;
    return client.wait(client.start(request));
  };
  EXPECT_EQ(call("Bearer word").body(), "blue 5 hello");
  GrpcTestResponse nobody = call("");
  EXPECT_EQ(nobody.headers["grpc-status"], "16") << "in the headers: trailers only";
  EXPECT_EQ(nobody.message(), "who are you?");
  EXPECT_EQ(call("Bearer other").status(), kGrpcPermissionDenied);
  EXPECT_EQ(call("Bearer other", false).status(), kGrpcPermissionDenied) << "although its message is not whole";
  GrpcTestResponse often = call("Bearer often");
  EXPECT_EQ(often.status(), kGrpcResourceExhausted);
  EXPECT_FALSE(often.headers["grpc-status-details-bin"].empty());
  EXPECT_EQ(running.bad("unauthenticated"), 1);
  EXPECT_EQ(running.bad("forbidden"), 2);
  EXPECT_EQ(running.bad("throttled"), 1);
  EXPECT_EQ(call("Bearer word").status(), 0) << "on the same connection";
}

TEST(GrpcServer, AHandlerThatThrowsIsAnInternalError) {
  Running running({}, [](const GrpcServerRequest&) -> GrpcServerResponse { throw std::runtime_error("broken"); });
  GrpcTestClient client(running.server->address());
  EXPECT_EQ(client.call("/test.Service/Echo", "x").status(), kGrpcInternal);
}

}  // namespace
}  // namespace lockstep
