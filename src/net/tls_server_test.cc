#include "net/tls_server.h"

#include <gtest/gtest.h>

#include "net/grpc_client.h"
#include "net/grpc_server.h"
#include "net/handshake_turns.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/testing/authority.h"
#include "net/testing/http_counters.h"
#include "net/testing/raw_socket.h"
#include "net/text_server.h"
#include "testing/eventually.h"

#ifdef LOCKSTEP_OPENSSL
#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using testing::Authority;
using testing::eventually;
using testing::Paper;
using testing::RawSocket;

// Every server of this folder behind TLS, with the same files; each says who came.
struct Listeners {
  Authority authority;
  Paper paper = authority.sign("here", "IP:127.0.0.1");
  Counters counters{testing::kHttpCounters};
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<TextServer> text;

  // Shows the certificate of who asks.
  struct Mirror final : Gatekeeper {
    Admission admit(const ServerRequest&, const PeerCertificate& peer) override {
      std::string all = peer.subject;
      for (const std::string& name : peer.names) all += " " + name;
      return {.caller = {.name = all}};
    }
  } mirror;

  explicit Listeners(bool client_certificates = false, HttpServerOptions options = {}) {
    options.address = {"127.0.0.1", 0};
    options.name = "test";
    options.gatekeeper = &mirror;
    options.tls = {paper.certificate, paper.key, client_certificates ? authority.ca_file : ""};
    http = started(HttpServer::start(
        options,
        [](const ServerRequest& request) {
          return HttpResponse{200, {}, request.path == "/large" ? std::string(3'000'000, 'x') : request.caller.name};
        },
        counters));
    grpc = started(GrpcServer::start(
        {.http = options},
        [](const GrpcServerRequest& request) -> GrpcServerResponse {
          return {kGrpcOk, "", request.body.size() > 1'000 ? request.body : request.caller.name + request.body};
        },
        counters));
    text = started(TextServer::start({.address = {"127.0.0.1", 0},
                                      .tls = options.tls,
                                      .counters = &counters,
                                      .admits =
                                          [](const TextRequest& request, std::string_view authorization) {
                                            return request.path == "/healthz" || authorization == "Bearer word";
                                          }},
                                     [](const TextRequest& request) {
                                       return TextResponse{
                                           .body = request.path == "/large" ? std::string(3'000'000, 'x') : "page"};
                                     }));
  }
  template <typename T>
  static std::unique_ptr<T> started(Result<std::unique_ptr<T>> server) {
    EXPECT_TRUE(server) << server.error();
    return std::move(*server);
  }
  TlsOptions trusting() const { return {.ca_file = authority.ca_file}; }
  HttpClient http_client(const TlsOptions& tls) const {
    return HttpClient(*parse_url("https://" + http->address(), 443), 5'000, 256ull << 20, tls);
  }
  HttpClient text_client(const TlsOptions& tls) const {
    return HttpClient(*parse_url("https://" + text->address(), 443), 5'000, 256ull << 20, tls);
  }
  GrpcClient grpc_client(const TlsOptions& tls) const {
    GrpcTarget target = *parse_grpc_target("https://" + grpc->address(), 4317);
    target.tls_options = tls;
    return GrpcClient(target, 5'000);
  }
  std::vector<std::string> addresses() const { return {http->address(), grpc->address(), text->address()}; }
  int64_t failures(const char* reason) const {
    int64_t all = 0;
    for (const char* name : {"test", "metrics"})
      all += counters.value("lockstep_tls_handshake_failures_total",
                            std::string("receiver=\"") + name + "\",reason=\"" + reason + "\"");
    return all;
  }
};

TEST(TlsServer, EveryServerSpeaksIt) {
  Listeners here;
  HttpClient http = here.http_client(here.trusting());
  for (int i = 0; i < 3; ++i) {
    Result<HttpResponse> answer = http.send({"POST", "/", {}, std::string(200'000, 'x')});
    ASSERT_TRUE(answer) << answer.error();
    EXPECT_EQ(answer->body, "") << "no certificate was shown";
  }
  EXPECT_EQ(http.send({"GET", "/large"})->body.size(), 3'000'000u);
  EXPECT_EQ(here.counters.value("lockstep_http_connections", "receiver=\"test\""), 1) << "kept alive";

  GrpcClient grpc = here.grpc_client(here.trusting());
  Result<GrpcResponse> called = grpc.call({.path = "/a/b", .message = "hello"});
  ASSERT_TRUE(called.ok()) << called.error();
  EXPECT_EQ(called->body, "hello");
  const std::string large(5'000'000, 'y');
  EXPECT_EQ(grpc.call({.path = "/a/b", .message = large})->body, large);

  HttpClient text = here.text_client(here.trusting());
  Result<HttpResponse> page = text.send({"GET", "/large", {{"Authorization", "Bearer word"}}, ""});
  ASSERT_TRUE(page) << page.error();
  EXPECT_EQ(page->body.size(), 3'000'000u);
  Result<HttpResponse> refused = text.send({"GET", "/metrics"});
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(refused->header("www-authenticate"), "Bearer");
  EXPECT_EQ(text.send({"GET", "/healthz"})->status, 200);
}

TEST(TlsServer, AfterEachStepOfAHandshakeTheOthersHaveTheirTurn) {
  boost::asio::io_context io{1};
  HandshakeTurns turns(io);
  std::string order;
  // Somebody else's requests: each is there as soon as the one before it is answered.
  std::function<void()> other = [&] {
    order += '.';
    if (order.find("d") == std::string::npos) boost::asio::post(io, other);
  };
  boost::asio::post(io, other);
  for (const char step : {'a', 'b', 'c'})
    turns.take([&, step] {
      order += step;
      if (step == 'a') turns.take([&] { order += 'd'; });  // its next step comes after those that wait
    });
  io.run();
  EXPECT_EQ(order, ".a.b.c.d.");
}

TEST(TlsServer, WhoComesAtOnceWithManyIsServedAsWell) {
  Listeners here;
  std::atomic<int> answered = 0;
  std::vector<std::thread> many;
  for (int i = 0; i < 24; ++i) {
    many.emplace_back([&] {
      if (here.http_client(here.trusting()).send({"GET", "/"}).ok()) ++answered;
      if (here.grpc_client(here.trusting()).call({.path = "/a/b", .message = "hello"}).ok()) ++answered;
    });
  }
  for (std::thread& one : many) one.join();
  EXPECT_EQ(answered, 48);
}

TEST(TlsServer, AClientCertificateIsRequiredWhereItsCaIsNamed) {
  Listeners here(true);
  Authority other;
  const Paper node = here.authority.sign("node7", "DNS:node7.example,URI:spiffe://fleet/node7");
  const Paper foreign = other.sign("node8", "");
  TlsOptions known = here.trusting(), unknown = here.trusting();
  known.certificate_file = node.certificate;
  known.key_file = node.key;
  unknown.certificate_file = foreign.certificate;
  unknown.key_file = foreign.key;

  EXPECT_EQ(here.http_client(known).send({})->body, "CN=node7 node7.example spiffe://fleet/node7");
  EXPECT_EQ(here.grpc_client(known).call({.path = "/a/b"})->body, "CN=node7 node7.example spiffe://fleet/node7");
  EXPECT_EQ(here.text_client(known).send({"GET", "/healthz"})->status, 200);
  for (const TlsOptions& tls : {unknown, here.trusting()}) {
    EXPECT_FALSE(here.http_client(tls).send({}).ok());
    EXPECT_FALSE(here.grpc_client(tls).call({.path = "/a/b"}).ok());
    EXPECT_FALSE(here.text_client(tls).send({"GET", "/healthz"}).ok());
  }
  EXPECT_TRUE(eventually([&] { return here.failures("no_certificate") > 0 && here.failures("bad_certificate") > 0; }));
}

TEST(TlsServer, WhoSpeaksPlainHttpIsToldSoInOneLine) {
  Listeners here;
  for (const std::string& address : here.addresses()) {
    RawSocket socket(address);
    socket.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string answer = socket.read_until_closed();
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 400");
    EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), "TLS is spoken here: ask by https://\r\n");
    EXPECT_NE(answer.find("Content-Length: 37\r\n"), std::string::npos) << answer;
  }
  EXPECT_EQ(here.failures("not_tls"), 3);
}

TEST(TlsServer, GarbageAndSilenceHarmNobody) {
  Listeners here(false, {.drain_timeout_ms = 3'600'000});
  std::vector<RawSocket> silent;
  for (const std::string& address : here.addresses()) {
    for (const std::string& bytes : {std::string(100'000, '\xff'), std::string("\x16\x03\x01\x00\x05hello", 10),
                                     std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string(64, '\0')}) {
      RawSocket socket(address);
      socket.send(bytes);
      EXPECT_NE(socket.read_until_closed(5'000).size(), 1u);
      EXPECT_TRUE(socket.closed_by_peer()) << address;
    }
    RawSocket gone(address);
  }
  EXPECT_GE(here.failures("not_tls") + here.failures("failed"), 9);
  for (const std::string& address : here.addresses()) {
    silent.emplace_back(address);
    silent.back().send(std::string("\x16\x03\x01\x02\x00\x01", 6));  // the beginning of a hello
  }
  EXPECT_TRUE(here.http_client(here.trusting()).send({}).ok());
  EXPECT_TRUE(here.grpc_client(here.trusting()).call({.path = "/a/b"}).ok());
  EXPECT_TRUE(here.text_client(here.trusting()).send({"GET", "/healthz"}).ok());
  // Shutdown does not wait for those who never finish their handshake: nobody's time ran out before it was over.
  const int64_t timed_out = here.failures("timeout");
  here.http->stop();
  here.grpc->stop();
  here.text->stop();
  EXPECT_EQ(here.failures("timeout"), timed_out);
}

TEST(TlsServer, ANewCertificateServesTheNextConnectionsAndTheOldOnesStay) {
  Listeners here;
  Authority next;
  HttpClient before = here.http_client(here.trusting());
  ASSERT_TRUE(before.send({}).ok());
  const Paper fresh = next.sign("here", "IP:127.0.0.1", -3600, 86'400);
  std::filesystem::copy_file(fresh.key, here.paper.key, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(fresh.certificate, here.paper.certificate,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(eventually([&] {
    return here.http_client({.ca_file = next.ca_file}).send({}).ok() &&
           here.grpc_client({.ca_file = next.ca_file}).call({.path = "/a/b"}).ok() &&
           here.text_client({.ca_file = next.ca_file}).send({"GET", "/healthz"}).ok();
  }));
  EXPECT_FALSE(here.http_client(here.trusting()).send({}).ok());
  EXPECT_TRUE(before.send({}).ok());
  EXPECT_EQ(here.counters.value("lockstep_http_connections", "receiver=\"test\""), 1) << "still the first connection";
  const int64_t expires = here.counters.value("lockstep_tls_certificate_expires_unix_seconds", "receiver=\"test\"");
  EXPECT_NEAR(static_cast<double>(expires), static_cast<double>(time(nullptr) + 86'400), 60);

  std::ofstream(here.paper.certificate) << "half a certif";
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(here.http_client({.ca_file = next.ca_file}).send({}).ok()) << "the one from before serves on";
    return here.counters.value("lockstep_tls_reload_failures_total", "receiver=\"test\"") > 0;
  }));
}

TEST(TlsServer, FilesThatAreOfNoUseAreNamedAtTheStart) {
  Authority authority;
  const Paper own = authority.sign("own", ""), other = authority.sign("other", "");
  Counters counters{testing::kHttpCounters};
  auto why = [&](const TlsListenerOptions& options) {
    return TlsListener::open(options, "http/1.1", "test", counters).error();
  };
  EXPECT_EQ(why({"/nowhere/c", own.key, ""}), "certificate /nowhere/c: No such file or directory");
  EXPECT_EQ(why({own.certificate, "", ""}), "certificate " + own.certificate + ": is of no use without its key");
  EXPECT_EQ(why({own.certificate, other.key, ""}),
            "key " + other.key + ": does not belong to certificate " + own.certificate);
  EXPECT_EQ(why({own.certificate, own.key, own.key}), "client CA " + own.key + ": holds no certificate in PEM form");
  EXPECT_EQ(why({"", "", authority.ca_file}), "client CA: is of no use without a certificate of our own");
}

TEST(TlsServer, ALongPollNoticesThatItsPeerHasLeft) {
  Authority authority;
  const Paper paper = authority.sign("here", "IP:127.0.0.1");
  Counters counters{testing::kHttpCounters};
  std::shared_ptr<HttpResponder> waiting;
  std::atomic<bool> asked{false};
  HttpServerOptions options{.address = {"127.0.0.1", 0}, .name = "test", .tls = {paper.certificate, paper.key, ""}};
  Result<std::unique_ptr<HttpServer>> server = HttpServer::start(
      options, DeferringHandler([&](const ServerRequest&, const std::shared_ptr<HttpResponder>& responder) {
        responder->defer();
        waiting = responder;
        asked = true;
      }),
      counters);
  ASSERT_TRUE(server) << server.error();
  {
    TlsOptions tls{.ca_file = authority.ca_file};
    HttpClient client(*parse_url("https://" + (*server)->address(), 443), 500, 1000, tls);
    EXPECT_FALSE(client.send({}).ok()) << "nobody answers";
  }
  ASSERT_TRUE(asked);
  EXPECT_TRUE(eventually([&] { return waiting->gone(); }));
  EXPECT_EQ(counters.value("lockstep_http_deferred", "receiver=\"test\""), 0);
}

}  // namespace
}  // namespace lockstep
#endif  // LOCKSTEP_OPENSSL
