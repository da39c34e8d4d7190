#include "net/http_client.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "net/http_response.h"
#include "net/testing/raw_socket.h"

namespace lockstep {
namespace {

using testing::ScriptedServer;

HttpClient client_of(const ScriptedServer& server, int64_t timeout_ms = 5'000) {
  return HttpClient(Url{"127.0.0.1", server.port(), ""}, timeout_ms);
}

using Script = std::vector<std::vector<std::string>>;

const std::string kHello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

TEST(ParseUrl, ReadsHostPortAndBasePath) {
  Result<Url> url = parse_url("http://127.0.0.1:4318/base/", 80);
  ASSERT_TRUE(url) << url.error();
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->port, 4318);
  EXPECT_EQ(url->path, "/base");
  url = parse_url("http://gpu-017", 7070);
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "gpu-017");
  EXPECT_EQ(url->port, 7070);
  EXPECT_EQ(url->path, "");
  url = parse_url("http://[::1]:99", 80);
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 99);
}

TEST(ParseUrl, RefusesWhatItCannotReachWithOneLine) {
  for (const char* text :
       {"", "localhost:7070", "https://", "http://", "http://:80", "http://a:0", "http://a:65536", "http://a:x",
        "http://a:", "http://[::1", "http://u@a", "http://a b", "http://a/?q=1", "http://a\r\nX: y"}) {
    Result<Url> url = parse_url(text, 80);
    EXPECT_FALSE(url) << text;
  }
}

TEST(ParseUrl, WithoutAPortTheSchemesOwnIsMeant) {
  EXPECT_EQ(parse_url("http://gpu-server/base")->port, 80);
  if (tls_available()) {
    EXPECT_EQ(parse_url("https://gpu-server/base")->port, 443);
  }
}

TEST(ParseRequestUrl, KeepsWhatIsAskedForAsItWasWritten) {
  const Result<RequestUrl> url = parse_request_url("http://hooks:8080/a/b/?token=x&y=1");
  ASSERT_TRUE(url.ok()) << url.error();
  EXPECT_EQ(origin_of(url->server), "http://hooks:8080");
  EXPECT_EQ(url->target, "/a/b/?token=x&y=1");
  EXPECT_EQ(parse_request_url("http://hooks")->target, "/");
  EXPECT_EQ(parse_request_url("http://hooks?a=b")->target, "/?a=b");
  for (const char* text : {"", "hooks/secret", "http://u:secret", "http://hooks/secret#x", "http://hooks/sec ret",
                           "http://hooks/secret\r\nX: y", "http:///secret"}) {
    const Result<RequestUrl> wrong = parse_request_url(text);
    ASSERT_FALSE(wrong.ok()) << text;
    if (std::string_view(text).find("/secret") != std::string_view::npos) {
      EXPECT_EQ(wrong.error().find("secret"), std::string::npos) << wrong.error();
    }
  }
}

TEST(HostHeader, NamesThePortThatIsNotTheSchemesOwn) {
  EXPECT_EQ(host_header({.host = "a", .port = 80}), "a");
  EXPECT_EQ(host_header({.host = "a", .port = 443}), "a:443");
  EXPECT_EQ(host_header({.host = "a", .port = 443, .path = "", .tls = true}), "a");
  EXPECT_EQ(host_header({.host = "::1", .port = 80}), "[::1]");
  EXPECT_EQ(host_header({.host = "::1", .port = 7070}), "[::1]:7070");
}

TEST(ParseUrl, TakesHttpsWhereTlsIsBuiltIn) {
  Result<Url> url = parse_url("https://gpu-server/base", 443);
  ASSERT_EQ(url.ok(), tls_available());
  if (url.ok()) {
    EXPECT_TRUE(url->tls);
    EXPECT_EQ(url->port, 443);
    EXPECT_FALSE(parse_url("http://gpu-server", 443)->tls);
  } else {
    EXPECT_NE(url.error().find("TLS"), std::string::npos);
  }
}

TEST(ParseListenAddress, ReadsTheThreeFormsAndRefusesTheRest) {
  EXPECT_EQ(parse_listen_address("127.0.0.1:7070")->host, "127.0.0.1");
  EXPECT_EQ(parse_listen_address("[::1]:0")->host, "::1");
  EXPECT_EQ(parse_listen_address(":4318")->host, "");
  EXPECT_EQ(parse_listen_address(":4318")->port, 4318);
  for (const char* text : {"", "7070", "a:", "a:b", "a:70000", "::1:80", "[::1:80", "[]:80"})
    EXPECT_FALSE(parse_listen_address(text)) << text;
}

TEST(ParseListenAddress, KnowsWhatOthersReach) {
  for (const char* own : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"})
    EXPECT_TRUE(is_loopback(*parse_listen_address(own))) << own;
  for (const char* open :
       {":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1]:1", "lockstep.example:1", "128.0.0.1:1"})
    EXPECT_FALSE(is_loopback(*parse_listen_address(open))) << open;
}

TEST(ListenOn, SaysWhichAddressIsTaken) {
  Result<ListenSocket> first = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(first) << first.error();
  Result<ListenSocket> second = listen_on(*parse_listen_address(first->bound));
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().find(first->bound), std::string::npos) << second.error();
}

TEST(HttpClient, SendsTheRequestAndReadsAnAnswerWithALength) {
  ScriptedServer server(Script{{kHello}});
  HttpClient client(Url{"127.0.0.1", server.port(), "/base"});
  Result<HttpResponse> answer = client.send({"POST", "/v1/logs?x=1", {{"Content-Type", "text/plain"}}, "body"});
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "hello");
  EXPECT_EQ(answer->header("content-length"), "5");
  EXPECT_EQ(answer->header("absent"), "");
  std::string request = server.requests().at(0);
  EXPECT_EQ(request.substr(0, 36), "POST /base/v1/logs?x=1 HTTP/1.1\r\nHos");
  EXPECT_NE(request.find("Content-Type: text/plain\r\n"), std::string::npos);
  EXPECT_NE(request.find("Content-Length: 4\r\n"), std::string::npos);
  EXPECT_EQ(request.substr(request.size() - 8), "\r\n\r\nbody");
}

TEST(HttpClient, ReadsChunkedAnswersAndAnswersThatEndWithTheConnection) {
  ScriptedServer server(Script{
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: 1\r\n\r\n",
       "HTTP/1.0 200 OK\r\n\r\nuntil the end"}});
  HttpClient client = client_of(server);
  Result<HttpResponse> chunked = client.send({});
  ASSERT_TRUE(chunked) << chunked.error();
  EXPECT_EQ(chunked->body, "hello world");
  Result<HttpResponse> until_close = client.send({});
  ASSERT_TRUE(until_close) << until_close.error();
  EXPECT_EQ(until_close->body, "until the end");
}

TEST(HttpClient, CutsALongAnswerWhereItIsToldTo) {
  const std::string long_body(100, 'x');
  ScriptedServer server(Script{{"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n" + long_body},
                               {"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + long_body + "\r\n"},
                               {"HTTP/1.1 500 No\r\n\r\n" + long_body},
                               {"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n" + long_body}});
  HttpClient client(Url{"127.0.0.1", server.port(), ""}, 5'000, 10);
  client.cut_long_answers();
  for (int i = 0; i < 3; ++i) {
    const Result<HttpResponse> answer = client.send({});
    ASSERT_TRUE(answer) << answer.error();
    EXPECT_EQ(answer->status, 500);
    EXPECT_EQ(answer->body, std::string(10, 'x'));
  }
  HttpClient strict(Url{"127.0.0.1", server.port(), ""}, 5'000, 10);
  EXPECT_EQ(strict.send({}).code(), ErrorCode::kTooLarge);
}

TEST(HttpClient, KeepsTheConnectionForTheNextRequest) {
  ScriptedServer server(Script{{kHello, kHello, kHello}});  // one connection only
  HttpClient client = client_of(server);
  for (int i = 0; i < 3; ++i) {
    Result<HttpResponse> answer = client.send({});
    ASSERT_TRUE(answer) << answer.error();
    EXPECT_EQ(answer->body, "hello");
  }
}

TEST(HttpClient, SendsOnceMoreOnAKeptConnectionThatTheServerHasClosed) {
  ScriptedServer server(Script{{kHello}, {kHello}});  // closes after its first answer without saying so
  HttpClient client = client_of(server);
  ASSERT_TRUE(client.send({}));
  Result<HttpResponse> second = client.send({"POST", "/", {}, "again"});
  ASSERT_TRUE(second) << second.error();
  EXPECT_EQ(second->body, "hello");
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST(HttpClient, DoesNotRepeatARequestOnAFreshConnection) {
  ScriptedServer server(Script{{""}, {kHello}});
  HttpClient client = client_of(server);
  Result<HttpResponse> answer = client.send({});
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().find("closed before the answer"), std::string::npos) << answer.error();
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(HttpClient, OpensANewConnectionWhenTheServerAskedToClose) {
  ScriptedServer server(Script{{"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"}, {kHello}});
  HttpClient client = client_of(server);
  ASSERT_EQ(client.send({})->status, 204);
  ASSERT_EQ(client.send({})->status, 200);
}

TEST(HttpClient, SaysThatNobodyListens) {
  uint16_t port = 0;
  {
    ScriptedServer gone(Script{});
    port = gone.port();
  }
  Result<HttpResponse> answer = HttpClient(Url{"127.0.0.1", port, ""}).send({});
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().find("Connection refused"), std::string::npos) << answer.error();
  EXPECT_NE(answer.error().find(std::to_string(port)), std::string::npos) << answer.error();
}

TEST(HttpClient, GivesUpAtTheDeadline) {
  Result<ListenSocket> silent = listen_on({"127.0.0.1", 0});  // accepts into the backlog, never answers
  ASSERT_TRUE(silent);
  HttpClient client(Url{"127.0.0.1", parse_listen_address(silent->bound)->port, ""}, 200);
  Result<HttpResponse> answer = client.send({});
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().find("timed out after 200 ms"), std::string::npos) << answer.error();
}

TEST(HttpClient, RefusesToSmuggleLinesIntoTheRequest) {
  ScriptedServer server(Script{});
  HttpClient client = client_of(server);
  EXPECT_FALSE(client.send({"GET", "/\r\nX: y", {}, ""}));
  EXPECT_FALSE(client.send({"GET", "/", {{"A", "b\r\nC: d"}}, ""}));
  EXPECT_FALSE(client.send({"GET", "no-slash", {}, ""}));
}

Result<HttpResponse> parse(std::string_view text, uint64_t body_bytes_max = 1000, bool head_request = false) {
  HttpResponseParser parser(head_request, body_bytes_max);
  for (char c : text) {
    LOCKSTEP_TRY(parser.feed({&c, 1}));
  }
  if (!parser.done()) {
    LOCKSTEP_TRY(parser.end_of_stream());
  }
  return parser.take();
}

TEST(HttpAnswer, SkipsInterimAnswers) {
  Result<HttpResponse> answer =
      parse("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok");
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body, "ok");
}

TEST(HttpAnswer, HeadAnswersHaveALengthButNoBody) {
  Result<HttpResponse> answer = parse("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", 10, true);
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer->body, "");
}

TEST(HttpAnswer, RefusesWhatIsMalformed) {
  for (const char* text : {"SSH-2.0-OpenSSH_9.2\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 20x OK\r\n\r\n",
                           "HTTP/1.1 200OK\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
                           "HTTP/1.1 200 OK\r\n: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX",
                           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "HTTP/1.1 101 Switching\r\n\r\n"}) {
    EXPECT_FALSE(parse(text)) << text;
  }
}

TEST(HttpAnswer, KeepsItsLimits) {
  EXPECT_TRUE(parse("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", 4));
  EXPECT_FALSE(parse("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 4));
  EXPECT_FALSE(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n", 4));
  EXPECT_FALSE(parse("HTTP/1.1 200 OK\r\n\r\nabcde", 4));
  EXPECT_FALSE(parse("HTTP/1.1 200 OK\r\nX: " + std::string(HttpResponseParser::kHeadBytesMax, 'x'), 4));
}

}  // namespace
}  // namespace lockstep
