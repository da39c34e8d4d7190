#include "net/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/text.h"
#include "net/http_client.h"
#include "net/testing/http_counters.h"
#include "net/testing/raw_socket.h"
#include "testing/eventually.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using testing::eventually;
using testing::RawSocket;

// Echoes what it was asked: method, path, query, a header, body size.
HttpResponse echo(const ServerRequest& request) {
  HttpResponse answer{200, {{"content-type", "text/plain"}}, ""};
  answer.body = request.method + " " + request.path + " " + request.query + " " +
                std::string(request.header("x-test")) + " " + request.parameter("name") + " " +
                std::to_string(request.body.size());
  return answer;
}

struct Running {
  Counters counters{testing::kHttpCounters};
  std::unique_ptr<HttpServer> server;

  explicit Running(HttpServerOptions options = {}, HttpHandler handler = echo) {
    options.address = {"127.0.0.1", 0};
    options.name = "test";
    Result<std::unique_ptr<HttpServer>> started = HttpServer::start(options, std::move(handler), counters);
    EXPECT_TRUE(started) << started.error();
    server = std::move(*started);
  }
  HttpClient client(int64_t timeout_ms = 10'000) const {
    return HttpClient(*parse_url("http://" + server->address(), 80), timeout_ms);
  }
  int64_t bad(const char* reason) const {
    return counters.value("lockstep_http_bad_requests_total", format("receiver=\"test\",reason=\"%s\"", reason));
  }
  int64_t answers(int code) const {
    return counters.value("lockstep_http_requests_total", format("receiver=\"test\",code=\"%d\"", code));
  }
  int64_t connections() const { return counters.value("lockstep_http_connections", "receiver=\"test\""); }
  std::string raw(std::string_view request) const {
    RawSocket socket(server->address());
    socket.send(request);
    return socket.read_until_closed();
  }
};

TEST(HttpServer, HandsTheHandlerWhatTheClientSent) {
  Running running;
  HttpClient client = running.client();
  Result<HttpResponse> answer =
      client.send({"POST", "/a%20b/c?name=x%2By+z&other=1", {{"X-Test", "value"}}, std::string(100'000, 'x')});
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "POST /a b/c name=x%2By+z&other=1 value x+y z 100000");
  EXPECT_EQ(running.answers(200), 1);
}

TEST(HttpServer, KeepsTheConnectionAlive) {
  Running running;
  HttpClient client = running.client();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(client.send({}));
  EXPECT_EQ(running.connections(), 1);
}

TEST(HttpServer, TakesChunkedAndPipelinedRequests) {
  Running running;
  std::string answers = running.raw(
      "POST /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
      "GET /second HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answers.find("POST /chunked    11"), std::string::npos) << answers;
  EXPECT_NE(answers.find("GET /second    0"), std::string::npos) << answers;
}

TEST(HttpServer, TellsAClientThatAsksFirstToGoOn) {
  Running running;
  RawSocket socket(running.server->address());
  socket.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(socket.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  socket.send("ok");
  EXPECT_EQ(socket.read_until("\r\n\r\n").substr(0, 15), "HTTP/1.1 200 OK");
}

// The letters of the alphabet, again and again; fails from `broken_at` on.
class Alphabet final : public BodySource {
 public:
  Alphabet(uint64_t bytes, uint64_t broken_at) : bytes_(bytes), broken_at_(broken_at) {}
  uint64_t bytes() const override { return bytes_; }
  Result<std::string> read(uint64_t from, size_t bytes_max) override {
    if (from >= broken_at_) return Error{"broken"};
    std::string piece(std::min<uint64_t>(bytes_max, bytes_ - from), ' ');
    for (size_t i = 0; i < piece.size(); ++i) piece[i] = static_cast<char>('a' + (from + i) % 26);
    return piece;
  }

 private:
  const uint64_t bytes_, broken_at_;
};

HttpResponse alphabet(const ServerRequest& request) {
  HttpResponse answer{200, {}, "not this"};
  answer.source = std::make_shared<Alphabet>(parse_uint(request.parameter("bytes")).value_or(0),
                                             parse_uint(request.parameter("broken_at")).value_or(UINT64_MAX));
  return answer;
}

TEST(HttpServer, SendsWhatIsTooLargeToBeHeldPieceByPieceAndKeepsTheConnection) {
  Running running({}, alphabet);
  HttpClient client = running.client();
  for (const uint64_t bytes : {0ull, 1ull, 262'144ull, 262'145ull, 3'000'000ull}) {
    const Result<HttpResponse> answer = client.send({"GET", "/?bytes=" + std::to_string(bytes)});
    ASSERT_TRUE(answer) << answer.error();
    EXPECT_TRUE(answer->body == *Alphabet(bytes, UINT64_MAX).read(0, bytes)) << bytes;
  }
  const Result<HttpResponse> head = client.send({"HEAD", "/?bytes=3000000"});
  ASSERT_TRUE(head) << head.error();
  EXPECT_EQ(head->header("content-length"), "3000000");
  EXPECT_EQ(head->body, "");
  EXPECT_EQ(running.connections(), 1);
}

TEST(HttpServer, WhereAPieceCannotBeReadTheAnswerEndsBeforeItsLength) {
  Running running({}, alphabet);
  const Result<HttpResponse> answer = running.client().send({"GET", "/?bytes=3000000&broken_at=500000"});
  EXPECT_FALSE(answer.ok());
  EXPECT_EQ(running.bad("failed"), 1);
  EXPECT_TRUE(running.client().send({"GET", "/?bytes=10"}).ok());
}

// Lets in who has the word, under the name that it asks for.
class WordGatekeeper final : public Gatekeeper {
 public:
  Admission admit(const ServerRequest& head, const PeerCertificate&) override {
    const std::string_view word = head.header("authorization");
    if (head.path == "/often") return {.refused = 429, .line = "too often", .headers = {{"retry-after", "7"}}};
    if (word.empty()) return {.refused = 401, .line = "who are you?", .headers = {{"www-authenticate", "Bearer"}}};
    if (word != "Bearer word") return {.refused = 403, .line = "not you"};
    return {.caller = {.tenant = "blue", .name = "the one with the word", .roles = 5}};
  }
};

HttpResponse say_who(const ServerRequest& request) {
  std::string text = request.caller.tenant + " " + std::to_string(request.caller.roles) + " " +
                     std::to_string(request.body.size()) + (request.peer.starts_with("127.0.0.1:") ? "" : " no peer");
  for (const auto& [name, value] : request.headers) {
    if (name == "authorization" || name == "cookie" || name == "proxy-authorization") text += " " + name;
  }
  return {200, {}, text};
}

TEST(HttpServer, TellsTheHandlerWhoCallsButNotTheirSecret) {
  WordGatekeeper gatekeeper;
  Running running({.gatekeeper = &gatekeeper}, say_who);
  HttpClient client = running.client();
  Result<HttpResponse> answer =
      client.send({"POST", "/", {{"Authorization", "Bearer word"}, {"Cookie", "a=b"}}, "12345"});
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->body, "blue 5 5");
}

TEST(HttpServer, WithoutAGatekeeperEverybodyHasAllRoles) {
  Running running({}, say_who);
  HttpClient client = running.client();
  Result<HttpResponse> answer = client.send({"GET", "/", {{"Authorization", "Bearer x"}}, ""});
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->body, " 4294967295 0 authorization") << "what nobody else looks at is the handler's";
}

TEST(HttpServer, WhoIsNotLetInIsToldBeforeABodyIsRead) {
  WordGatekeeper gatekeeper;
  Running running({.gatekeeper = &gatekeeper}, say_who);
  // Neither the body nor "go on" comes: the answer does.
  std::string nobody = running.raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(nobody.substr(0, 12), "HTTP/1.1 401") << nobody;
  EXPECT_NE(nobody.find("www-authenticate: Bearer\r\n"), std::string::npos) << nobody;
  EXPECT_NE(nobody.find("Connection: close\r\n"), std::string::npos) << nobody;
  EXPECT_TRUE(nobody.ends_with("who are you?\n")) << nobody;
  std::string other =
      running.raw("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nAuthorization: Bearer other\r\n\r\n");
  EXPECT_EQ(other.substr(0, 12), "HTTP/1.1 403") << other;
  EXPECT_TRUE(other.ends_with("not you\n")) << other;
  EXPECT_EQ(running.bad("unauthenticated"), 1);
  EXPECT_EQ(running.bad("forbidden"), 1);
  EXPECT_EQ(running.answers(401), 1);
}

TEST(HttpServer, ARefusalWithoutABodyKeepsTheConnection) {
  WordGatekeeper gatekeeper;
  Running running({.gatekeeper = &gatekeeper}, say_who);
  std::string answers = running.raw(
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET /often HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer word\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answers.substr(0, 12), "HTTP/1.1 401") << answers;
  EXPECT_NE(answers.find("HTTP/1.1 429"), std::string::npos) << answers;
  EXPECT_NE(answers.find("retry-after: 7\r\n"), std::string::npos) << answers;
  EXPECT_TRUE(answers.ends_with("blue 5 0")) << answers;
  EXPECT_EQ(running.bad("throttled"), 1);
}

TEST(HttpServer, AForeignPageIsRefusedBeforeAnybodyIsAskedWhoItIs) {
  WordGatekeeper gatekeeper;
  Running running({.gatekeeper = &gatekeeper}, say_who);
  std::string answer =
      running.raw("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Length: 9\r\n\r\n");
  EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 403") << answer;
  EXPECT_EQ(running.bad("cross_site"), 1);
  EXPECT_EQ(running.bad("unauthenticated"), 0);
}

TEST(HttpServer, AGatekeeperThatFailsLetsNobodyIn) {
  struct Broken final : Gatekeeper {
    Admission admit(const ServerRequest&, const PeerCertificate&) override { throw std::runtime_error("broken"); }
  } gatekeeper;
  Running running({.gatekeeper = &gatekeeper}, say_who);
  EXPECT_EQ(running.raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  EXPECT_EQ(running.bad("failed"), 1);
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  Running running;
  std::string answer = running.raw("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answer.find("Content-Length: 11\r\n"), std::string::npos) << answer;
  EXPECT_EQ(answer.substr(answer.size() - 4), "\r\n\r\n");
}

TEST(HttpServer, RefusesABodyOverTheLimitBeforeItIsSent) {
  HttpServerOptions options;
  options.body_bytes_max = 1000;
  Running running(options);
  HttpClient client = running.client();
  Result<HttpResponse> fits = client.send({"POST", "/", {}, std::string(1000, 'x')});
  ASSERT_TRUE(fits) << fits.error();
  EXPECT_EQ(fits->status, 200);
  Result<HttpResponse> large = client.send({"POST", "/", {}, std::string(50'000'000, 'x')});
  ASSERT_TRUE(large) << large.error();
  EXPECT_EQ(large->status, 413);
  EXPECT_EQ(large->body, "body is over the limit of 1000 bytes\n");
  std::string chunked = running.raw("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                                    std::string(2000, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.substr(0, 12), "HTTP/1.1 413");
  EXPECT_EQ(running.bad("too_large"), 2);
}

TEST(HttpServer, RefusesMalformedRequestsWithOneLineAndGoesOn) {
  Running running;
  const char* requests[] = {"nonsense\r\n\r\n",
                            "GET / HTTP/9.9\r\n\r\n",
                            "GET / HTTP/1.1\r\nbad header\r\n\r\n",
                            "POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                            "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
                            "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                            "GET /%zz HTTP/1.1\r\n\r\n",
                            "GET /a%00b HTTP/1.1\r\n\r\n",
                            "GET nowhere HTTP/1.1\r\n\r\n"};
  int64_t count = 0;
  for (const char* request : requests) {
    std::string answer = running.raw(request);
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 400") << request << " -> " << answer;
    EXPECT_EQ(running.bad("malformed"), ++count) << request;
  }
  EXPECT_EQ(running.client().send({})->status, 200);
}

TEST(HttpServer, RefusesAHeaderOverTheLimit) {
  Running running;
  EXPECT_EQ(running.raw("GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n").substr(0, 12), "HTTP/1.1 431");
  EXPECT_EQ(running.bad("header_too_large"), 1);
}

TEST(HttpServer, CountsARequestCutOffInTheMiddle) {
  Running running;
  {
    RawSocket socket(running.server->address());
    socket.send("POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf");
  }
  EXPECT_TRUE(eventually([&] { return running.bad("truncated") == 1 && running.connections() == 0; }));
}

TEST(HttpServer, DropsAClientThatSendsTooSlowly) {
  HttpServerOptions options;
  options.request_timeout_ms = 300;
  Running running(options);
  RawSocket slow(running.server->address());
  slow.send("GET / HTTP/1.1\r\n");
  // It goes on sending, a line at a time, and would for ever.
  EXPECT_TRUE(eventually(
      [&] { return !slow.send("X: y\r\n") || !slow.read_until_closed(50).empty() || slow.closed_by_peer(); }));
  EXPECT_TRUE(eventually([&] { return running.bad("timeout") == 1; }));
  EXPECT_EQ(running.client().send({})->status, 200);
}

TEST(HttpServer, ClosesIdleConnections) {
  HttpServerOptions options;
  options.idle_timeout_ms = 100;
  Running running(options);
  RawSocket idle(running.server->address());
  EXPECT_EQ(idle.read_until_closed(), "");
  EXPECT_TRUE(idle.closed_by_peer());
  EXPECT_TRUE(eventually([&] { return running.connections() == 0; }));
}

TEST(HttpServer, RefusesConnectionsOverItsLimitWhereAllAreBeingAnswered) {
  HttpServerOptions options;
  options.connections_max = 2;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> entered{0};
  Running running(options, [&entered, released](const ServerRequest& request) {
    ++entered;
    released.wait();
    return echo(request);
  });
  std::vector<std::thread> busy;
  for (int i = 0; i < 2; ++i) busy.emplace_back([&] { EXPECT_EQ(running.client().send({})->status, 200); });
  ASSERT_TRUE(eventually([&] { return entered == 2; }));
  Result<HttpResponse> third = running.client().send({});
  ASSERT_TRUE(third) << third.error();
  EXPECT_EQ(third->status, 503);
  EXPECT_EQ(third->header("retry-after"), "1");
  EXPECT_EQ(running.bad("connections_max"), 1);
  release.set_value();
  for (std::thread& thread : busy) thread.join();
}

TEST(HttpServer, ConnectionsThatSendNothingOrNeverTheWholeGiveWay) {
  HttpServerOptions options;
  options.connections_max = 2;
  Running running(options);
  RawSocket silent(running.server->address());
  RawSocket slow(running.server->address());
  slow.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx");
  ASSERT_TRUE(eventually([&] { return running.connections() == 2; }));
  HttpClient kept[] = {running.client(), running.client(), running.client(), running.client()};
  for (HttpClient& client : kept) EXPECT_EQ(client.send({})->status, 200);
  EXPECT_EQ(running.bad("connections_max"), 0);
  EXPECT_EQ(running.bad("gave_way"), 4);
  EXPECT_LE(running.connections(), 2);
}

TEST(HttpServer, AHandlerThatThrowsCostsItsOwnRequestOnly) {
  Running running({}, [](const ServerRequest& request) -> HttpResponse {
    if (request.path == "/memory") throw std::bad_alloc();
    if (request.path == "/length") throw std::length_error("too long");
    if (request.path == "/odd") throw 7;
    return echo(request);
  });
  for (const char* path : {"/memory", "/length", "/odd"}) {
    HttpClient client = running.client();
    EXPECT_EQ(client.send({"GET", path, {}, ""})->status, 500);
    EXPECT_EQ(client.send({})->status, 200);
  }
}

TEST(HttpServer, RefusesWhatAPageOfAnotherSiteMayHaveSent) {
  HttpServerOptions options;
  options.cross_site = {.hosts = {"lockstep.example"},
                        .check_host = true,
                        .changes_state = [](const ServerRequest& request) { return request.path == "/change"; }};
  Running running(options);
  const std::string rebound = running.raw("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_TRUE(rebound.starts_with("HTTP/1.1 403 ")) << rebound;
  EXPECT_NE(rebound.find("--allowed-host"), std::string::npos) << rebound;
  EXPECT_EQ(rebound.find("Access-Control"), std::string::npos) << rebound;
  EXPECT_TRUE(running.raw("GET / HTTP/1.1\r\nHost: lockstep.example\r\nConnection: close\r\n\r\n")
                  .starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(running.client().send({"POST", "/change", {}, ""})->status, 403);
  EXPECT_EQ(running.client().send({"POST", "/change", {{"X-Lockstep", "1"}}, ""})->status, 200);
  EXPECT_EQ(running.client().send({"POST", "/read", {{"Origin", "http://evil.example"}}, ""})->status, 403);
  EXPECT_EQ(running.bad("foreign_host"), 1);
  EXPECT_EQ(running.bad("cross_site"), 2);
  EXPECT_EQ(running.answers(403), 3);
}

TEST(HttpServer, RefusesBodiesBeyondWhatItMayHoldAndTakesThemAgainLater) {
  HttpServerOptions options;
  options.body_bytes_max = 1000;
  options.bodies_bytes_max = 1500;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  Running running(options, [released](const ServerRequest& request) {
    if (request.path == "/slow") released.wait();
    return echo(request);
  });
  std::thread slow([&] {
    EXPECT_EQ(running.client().send({"POST", "/slow", {}, std::string(1000, 'x')})->status, 200);
  });
  HttpClient client = running.client();
  EXPECT_TRUE(eventually([&] { return running.connections() == 1; }));
  int status = 0;
  EXPECT_TRUE(eventually([&] {
    return (status = client.send({"POST", "/", {}, std::string(800, 'x')})->status) == 429;
  })) << status;
  release.set_value();
  slow.join();
  EXPECT_EQ(client.send({"POST", "/", {}, std::string(1000, 'x')})->status, 200);
}

TEST(HttpServer, TakesBodiesAndAnswersFromTheMemoryBudgetAndGivesThemBack) {
  MemoryBudget budget(128u << 20, [] { return 0; });
  HttpServerOptions options;
  options.memory = &budget;
  options.body_bytes_max = 100u << 20;
  Running running(options, [](const ServerRequest& request) {
    return HttpResponse{200, {}, std::string(request.path == "/large" ? 70u << 20 : 40u << 20, 'x')};
  });
  HttpClient client = running.client();
  EXPECT_EQ(client.send({"POST", "/", {}, std::string(40u << 20, 'x')})->status, 200);
  EXPECT_EQ(running.client().send({"POST", "/", {}, std::string(70u << 20, 'x')})->status, 429);
  EXPECT_EQ(running.bad("overloaded"), 1);
  Result<HttpResponse> large = running.client().send({"GET", "/large", {}, ""});
  ASSERT_TRUE(large.ok()) << large.error();
  EXPECT_EQ(large->status, 503);
  EXPECT_EQ(large->header("retry-after"), "1");
  std::vector<std::unique_ptr<RawSocket>> who_never_read;
  for (int i = 0; i < 2; ++i) {
    who_never_read.push_back(std::make_unique<RawSocket>(running.server->address()));
    who_never_read.back()->send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  EXPECT_TRUE(eventually([&] { return running.answers(503) == 2; })) << "the second, while the first is not read";
  who_never_read.clear();
  EXPECT_TRUE(eventually([&] { return budget.taken(MemoryUse::kAnswers) == 0; }));
  EXPECT_EQ(budget.taken(MemoryUse::kBodies), 0u);
}

TEST(HttpServer, ASlowHandlerDoesNotHoldUpTheOthers) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  Running running({}, [released](const ServerRequest& request) {
    if (request.path == "/slow") released.wait();
    return echo(request);
  });
  std::thread slow([&] { EXPECT_EQ(running.client().send({"GET", "/slow", {}, ""})->status, 200); });
  for (int i = 0; i < 10; ++i) EXPECT_EQ(running.client(5'000).send({})->status, 200);
  release.set_value();
  slow.join();
}

TEST(HttpServer, AHandlerThatThrowsIsAnInternalError) {
  Running running({}, [](const ServerRequest&) -> HttpResponse { throw std::runtime_error("broken"); });
  EXPECT_EQ(running.client().send({})->status, 500);
}

TEST(HttpServer, StopLetsRequestsInProgressFinishAndTakesNoMore) {
  std::promise<void> release;
  std::atomic<bool> entered{false}, stopped{false};
  Running running({.drain_timeout_ms = 60'000},
                  [&, released = release.get_future().share()](const ServerRequest& request) {
                    entered = true;
                    released.wait();
                    return echo(request);
                  });
  HttpClient idle = running.client();
  RawSocket idle_socket(running.server->address());
  std::thread busy([&] {
    Result<HttpResponse> answer = running.client().send({"POST", "/", {}, "body"});
    ASSERT_TRUE(answer) << answer.error();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->header("connection"), "close");
  });
  ASSERT_TRUE(eventually([&] { return entered.load(); }));
  std::thread stopping([&] {
    running.server->stop();
    stopped = true;
  });
  ASSERT_TRUE(eventually([&] { return !RawSocket(running.server->address()).connected(); })) << "it takes no more";
  EXPECT_FALSE(stopped) << "while one is in progress";
  release.set_value();
  stopping.join();
  busy.join();
  EXPECT_FALSE(idle.send({}));
  EXPECT_EQ(running.connections(), 0);
  running.server->stop();  // again: nothing happens
}

TEST(HttpServer, StopDoesNotWaitForAClientThatNeverFinishesItsRequest) {
  HttpServerOptions options;
  options.drain_timeout_ms = 200;
  Running running(options);
  RawSocket half(running.server->address());
  half.send("POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf");
  ASSERT_TRUE(eventually([&] { return running.connections() == 1; }));
  running.server->stop();  // and comes back, though the other half was never sent
  EXPECT_EQ(running.connections(), 0);
}

TEST(HttpServer, ServesManyConnectionsAtOnce) {
  Running running;
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      HttpClient client = running.client();
      for (int i = 0; i < 50; ++i) {
        Result<HttpResponse> answer = client.send({"POST", "/", {}, std::string(static_cast<size_t>(i) * 1000, 'x')});
        if (answer && answer->body == "POST /    " + std::to_string(i * 1000)) ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 16 * 50);
  EXPECT_EQ(running.answers(200), 16 * 50);
}

// Requests for /later wait until the test answers them; everything else is answered at once.
struct LongPolls {
  Mutex mutex;
  std::vector<std::shared_ptr<HttpResponder>> waiting;
  std::atomic<int> refused{0};

  DeferringHandler handler() {
    return [this](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
      if (request.path != "/later") return responder->answer(echo(request));
      if (!responder->defer()) {
        ++refused;
        return responder->answer({503, {}, "full"});
      }
      MutexLock lock(mutex);
      waiting.push_back(responder);
    };
  }
  size_t count() {
    MutexLock lock(mutex);
    return waiting.size();
  }
  std::vector<std::shared_ptr<HttpResponder>> take() {
    MutexLock lock(mutex);
    return std::exchange(waiting, {});
  }
};

struct RunningLater {
  LongPolls polls;
  Counters counters{testing::kHttpCounters};
  std::unique_ptr<HttpServer> server;

  explicit RunningLater(HttpServerOptions options = {}) {
    options.address = {"127.0.0.1", 0};
    options.name = "test";
    Result<std::unique_ptr<HttpServer>> started = HttpServer::start(options, polls.handler(), counters);
    EXPECT_TRUE(started) << started.error();
    server = std::move(*started);
  }
  int64_t deferred() const { return counters.value("lockstep_http_deferred", "receiver=\"test\""); }
  int64_t connections() const { return counters.value("lockstep_http_connections", "receiver=\"test\""); }
};

TEST(HttpServer, ManyMayWaitForAnAnswerWhileOneThreadServesTheRest) {
  RunningLater running({.threads = 1});
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < 200; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(running.server->address()));
    sockets.back()->send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  ASSERT_TRUE(eventually([&] { return running.deferred() == 200; }));
  HttpClient other(*parse_url("http://" + running.server->address(), 80), 5'000);
  EXPECT_EQ(other.send({})->status, 200);
  for (const auto& responder : running.polls.take()) responder->answer({200, {}, "at last"});
  for (auto& socket : sockets) EXPECT_NE(socket->read_until("at last").find("200"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return running.deferred() == 0; }));
  sockets[0]->send("GET /now HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(sockets[0]->read_until("GET /now").find("GET /now"), std::string::npos) << "the connection goes on";
}

TEST(HttpServer, BeyondTheLimitNobodyElseMayWait) {
  RunningLater running({.deferred_max = 1});
  RawSocket first(running.server->address());
  first.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return running.deferred() == 1; }));
  HttpClient client(*parse_url("http://" + running.server->address(), 80), 5'000);
  EXPECT_EQ(client.send({.path = "/later"})->status, 503);
  EXPECT_EQ(running.polls.refused, 1);
}

TEST(HttpServer, NoticesThatWhoeverWaitedHasGone) {
  RunningLater running({.deferred_max = 1});
  {
    RawSocket socket(running.server->address());
    socket.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(eventually([&] { return running.deferred() == 1 && running.polls.count() == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return running.deferred() == 0 && running.connections() == 0; }));
  const std::vector<std::shared_ptr<HttpResponder>> gone = running.polls.take();
  EXPECT_TRUE(eventually([&] { return gone[0]->gone(); }));
  gone[0]->answer({200, {}, "to nobody"});
  RawSocket next(running.server->address());
  next.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return running.polls.count() == 1; })) << "its place is free";
}

TEST(HttpServer, AResponderThatIsDroppedAnswersThatSomethingIsWrong) {
  RunningLater running;
  RawSocket socket(running.server->address());
  socket.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return running.polls.count() == 1; }));
  running.polls.take();
  EXPECT_NE(socket.read_until("internal error").find("500"), std::string::npos);
}

TEST(HttpServer, StoppingDoesNotWaitForWhoeverWaits) {
  RunningLater running({.drain_timeout_ms = 3'600'000});
  RawSocket socket(running.server->address());
  socket.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return running.deferred() == 1 && running.polls.count() == 1; }));
  running.server->stop();
  const std::vector<std::shared_ptr<HttpResponder>> late = running.polls.take();
  running.server.reset();
  late[0]->answer({200, {}, "after the end"});  // and nothing happens
  EXPECT_EQ(running.deferred(), 0);
}

TEST(HttpServer, ARequestSentBehindOneThatWaitsIsAnsweredAfterIt) {
  RunningLater running;
  RawSocket socket(running.server->address());
  socket.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return running.deferred() == 1 && running.polls.count() == 1; }));
  socket.send("GET /now HTTP/1.1\r\nHost: a\r\n\r\n");
  // Whoever came later is answered by now; the request behind the one that waits is not.
  RawSocket other(running.server->address());
  other.send("GET /now HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_NE(other.read_until("GET /now").find("GET /now"), std::string::npos);
  EXPECT_EQ(running.deferred(), 1);
  for (const auto& responder : running.polls.take()) responder->answer({200, {}, "first"});
  const std::string both = socket.read_until("GET /now");
  EXPECT_LT(both.find("first"), both.find("GET /now"));
}

}  // namespace
}  // namespace lockstep
