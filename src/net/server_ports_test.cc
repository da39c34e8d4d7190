#include "net/server_ports.h"

#include <gtest/gtest.h>

#include "net/testing/raw_socket.h"

namespace lockstep {
namespace {

using testing::ScriptedServer;

const ServerPorts kUsual{.asked = Listener::kHttp, .tls = false, .ports = {7070, 4318, 4317}};

TEST(ServerPorts, TextIsReadBackAndWhatIsNotOpenIsLeftOut) {
  EXPECT_EQ(to_text(kUsual), "lockstep listener=http tls=no http=7070 otlp_http=4318 otlp_grpc=4317\n");
  ServerPorts few = kUsual;
  few.asked = Listener::kOtlpHttp;
  few.tls = true;
  few.ports[0] = 0;
  EXPECT_EQ(to_text(few), "lockstep listener=otlp_http tls=yes otlp_http=4318 otlp_grpc=4317\n");
  const Result<ServerPorts> read = parse_server_ports(to_text(few));
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(read->asked, Listener::kOtlpHttp);
  EXPECT_TRUE(read->tls);
  EXPECT_EQ(read->ports, few.ports);
  EXPECT_TRUE(parse_server_ports("lockstep listener=http tls=no http=1 later=more").ok());
}

TEST(ServerPorts, WhatIsNoAnswerOfAServerIsRefused) {
  for (const char* text : {"", "ok\n", "lockstep", "lockstep listener=x", "lockstep listener=http http=0",
                           "lockstep listener=http http=65536", "lockstep listener=http http=x", "<html>lockstep"})
    EXPECT_FALSE(parse_server_ports(text).ok()) << text;
  EXPECT_FALSE(parse_server_ports("lockstep listener=http " + std::string(kServerPortsBytesMax, 'x')).ok());
}

TEST(ServerPorts, AnotherListenerOfTheSameHostIsFoundByItsPort) {
  const Url page = *parse_url("http://gpu-server:7070", 7070);
  EXPECT_EQ(origin_of(*url_of(page, kUsual, Listener::kOtlpHttp)), "http://gpu-server:4318");
  EXPECT_EQ(origin_of(*url_of(page, kUsual, Listener::kOtlpGrpc)), "http://gpu-server:4317");
  EXPECT_EQ(origin_of(*url_of(page, kUsual, Listener::kHttp)), "http://gpu-server:7070");
}

TEST(ServerPorts, BehindAProxyNothingIsGuessed) {
  for (const char* proxied :
       {"http://lockstep.example", "http://gpu-server:7070/lockstep", "http://gpu-server:17070"}) {
    const Url url = *parse_url(proxied);
    EXPECT_TRUE(url_of(url, kUsual, Listener::kHttp).ok()) << "what was asked for is what answered";
    const Result<Url> other = url_of(url, kUsual, Listener::kOtlpHttp);
    ASSERT_FALSE(other.ok()) << proxied;
    EXPECT_NE(other.error().find("--otlp-http"), std::string::npos) << other.error();
  }
  ServerPorts closed = kUsual;
  closed.asked = Listener::kOtlpHttp;
  closed.ports[0] = 0;
  const Result<Url> page = url_of(*parse_url("http://gpu-server:4318"), closed, Listener::kHttp);
  ASSERT_FALSE(page.ok());
  EXPECT_NE(page.error().find("not open to this machine (lockstepd --http)"), std::string::npos) << page.error();
}

TEST(ServerPorts, WhoeverIsNoLockstepServerIsTold) {
  ScriptedServer collector({{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"}});
  const Result<ServerPorts> asked = ask_server_ports({"127.0.0.1", collector.port(), ""}, 5'000);
  ASSERT_FALSE(asked.ok());
  EXPECT_NE(asked.error().find("answers 404"), std::string::npos) << asked.error();
}

// Its first answer is the beginning of HTTP/2; what it then does with a call is why its ports are not known.
TEST(ServerPorts, AServerOfAnotherProtocolIsAskedByGrpcAndItsErrorIsThatCalls) {
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::string goaway("\0\0\10\7\0\0\0\0\0\0\0\0\0\0\0\0\13", 17);
  ScriptedServer receiver({{settings}, {settings + goaway}});
  const Result<ServerPorts> asked = ask_server_ports({"127.0.0.1", receiver.port(), ""}, 5'000);
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(receiver.requests().size(), 2u);
  EXPECT_EQ(asked.error().find("not HTTP/1"), std::string::npos) << asked.error();
  EXPECT_NE(asked.error().find("the server takes no further calls on this connection"), std::string::npos)
      << asked.error();
}

TEST(ServerPorts, APeerThatSpeaksNeitherProtocolIsToldFromOneThatDoesNotAnswer) {
  ScriptedServer shell({{"SSH-2.0-OpenSSH_9.2\r\n"}, {"SSH-2.0-OpenSSH_9.2\r\n"}});
  EXPECT_EQ(ask_server_ports({"127.0.0.1", shell.port(), ""}, 5'000).code(), ErrorCode::kOtherProtocol);
  uint16_t closed = 0;
  {
    ScriptedServer gone({});
    closed = gone.port();
  }
  EXPECT_EQ(ask_server_ports({"127.0.0.1", closed, ""}, 5'000).code(), ErrorCode::kUnspecified);
}

}  // namespace
}  // namespace lockstep
