#include "net/text_server.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/testing/raw_socket.h"

namespace lockstep {
namespace {

using testing::RawSocket;

std::unique_ptr<TextServer> start(TextServerOptions options = {}) {
  options.address = {"127.0.0.1", 0};
  Result<std::unique_ptr<TextServer>> server = TextServer::start(options, [](const TextRequest& request) {
    const std::string& path = request.path;
    if (path == "/metrics") return TextResponse{200, "text/plain; version=0.0.4", "up 1\n"};
    if (path == "/large") return TextResponse{200, "text/plain", std::string(8'000'000, 'x')};
    return TextResponse{404, "text/plain", "no such page\n"};
  });
  EXPECT_TRUE(server) << server.error();
  return std::move(*server);
}

Result<HttpResponse> get(const TextServer& server, const std::string& path, const std::string& method = "GET") {
  Result<Url> url = parse_url("http://" + server.address(), 80);
  return HttpClient(*url).send({method, path, {}, ""});
}

TEST(TextServer, AnswersByPath) {
  auto server = start();
  Result<HttpResponse> answer = get(*server, "/metrics?x=1");
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "up 1\n");
  EXPECT_EQ(answer->header("content-type"), "text/plain; version=0.0.4");
  EXPECT_EQ(get(*server, "/other")->status, 404);
}

TEST(TextServer, SaysHowABodyIsEncodedAndWhatTheClientWouldTake) {
  TextServerOptions options;
  options.address = {"127.0.0.1", 0};
  Result<std::unique_ptr<TextServer>> server = TextServer::start(options, [](const TextRequest& request) {
    return TextResponse{.body = "x", .content_encoding = request.accept_encoding};
  });
  ASSERT_TRUE(server) << server.error();
  HttpClient client(*parse_url("http://" + (*server)->address(), 80));
  EXPECT_EQ(client.send({"GET", "/", {{"Accept-Encoding", "gzip"}}, ""})->header("content-encoding"), "gzip");
  EXPECT_EQ(client.send({"GET", "/", {}, ""})->header("content-encoding"), "");
}

TEST(TextServer, ShowsTheHandlerTheQueryAndWhatTheClientAccepts) {
  TextServerOptions options;
  options.address = {"127.0.0.1", 0};
  Result<std::unique_ptr<TextServer>> server = TextServer::start(options, [](const TextRequest& request) {
    return TextResponse{200, "text/plain", request.path + "|" + request.query + "|" + request.accept};
  });
  ASSERT_TRUE(server) << server.error();
  HttpClient client(*parse_url("http://" + (*server)->address(), 80));
  EXPECT_EQ(
      client.send({"GET", "/metrics?a=1&b=2", {{"ACCEPT", "application/openmetrics-text;q=0.5"}, {"X", "y"}}, ""})
          ->body,
      "/metrics|a=1&b=2|application/openmetrics-text;q=0.5");
  EXPECT_EQ(client.send({"GET", "/a", {{"Accept", "b"}, {"Accept-Language", "x"}, {"accept", "c"}}, ""})->body,
            "/a||b,c");
  EXPECT_EQ(client.send({"GET", "/?", {}, ""})->body, "/||");
}

TEST(TextServer, SendsLargeAnswersWhole) {
  auto server = start();
  EXPECT_EQ(get(*server, "/large")->body.size(), 8'000'000u);
}

TEST(TextServer, TakesOnlyGetAndHead) {
  auto server = start();
  Result<HttpResponse> post = get(*server, "/metrics", "POST");
  ASSERT_TRUE(post) << post.error();
  EXPECT_EQ(post->status, 405);
  EXPECT_EQ(post->header("allow"), "GET, HEAD");
  Result<HttpResponse> head = get(*server, "/metrics", "HEAD");
  ASSERT_TRUE(head) << head.error();
  EXPECT_EQ(head->header("content-length"), "5");
  EXPECT_EQ(head->body, "");
}

TEST(TextServer, RefusesMalformedAndOversizedRequests) {
  auto server = start();
  RawSocket malformed(server->address());
  malformed.send("nonsense\r\n\r\n");
  EXPECT_EQ(malformed.read_until_closed().substr(0, 12), "HTTP/1.1 400");
  RawSocket oversized(server->address());
  oversized.send("GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x'));
  EXPECT_EQ(oversized.read_until_closed().substr(0, 12), "HTTP/1.1 431");
  EXPECT_EQ(get(*server, "/metrics")->status, 200);
}

TEST(TextServer, DropsASlowClientAndServesTheOthersMeanwhile) {
  TextServerOptions options;
  options.client_timeout_ms = 200;
  auto server = start(options);
  RawSocket slow(server->address());
  slow.send("GET /metr");
  EXPECT_EQ(get(*server, "/metrics")->status, 200);
  EXPECT_EQ(slow.read_until_closed(), "");
  EXPECT_TRUE(slow.closed_by_peer());
}

TEST(TextServer, RefusesConnectionsOverItsLimit) {
  TextServerOptions options;
  options.connections_max = 2;
  auto server = start(options);
  RawSocket first(server->address());
  RawSocket second(server->address());
  first.send("G");
  second.send("G");
  Result<HttpResponse> third = get(*server, "/metrics");
  ASSERT_TRUE(third) << third.error();
  EXPECT_EQ(third->status, 503);
  first.send("ET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_EQ(first.read_until_closed().substr(0, 12), "HTTP/1.1 200");
}

TEST(TextServer, StopsWithConnectionsOpen) {
  auto server = start();
  RawSocket open(server->address());
  open.send("GET /");
  server->stop();  // and comes back, though the rest of the request was never sent
  EXPECT_EQ(open.read_until_closed(), "");
  EXPECT_TRUE(open.closed_by_peer());
}

}  // namespace
}  // namespace lockstep
