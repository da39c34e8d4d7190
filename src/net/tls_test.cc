#include "net/tls.h"

#include <gtest/gtest.h>

#include "base/mutex.h"
#include "net/grpc_client.h"
#include "net/http_client.h"
#include "net/listen_address.h"
#include "net/testing/authority.h"
#include "testing/temporary_folder.h"

#ifdef LOCKSTEP_OPENSSL
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

namespace lockstep {
namespace {

using testing::Authority;
using testing::Freed;
using testing::Owned;
using testing::Paper;

struct TlsServerOptions {
  Paper paper;
  std::string client_ca;  // not empty: who comes without a certificate of it is refused
  int version_max = TLS1_3_VERSION;
  size_t answer_bytes = 2;
};

// Answers every request with 200 and a body of x.
class TlsServer {
 public:
  explicit TlsServer(TlsServerOptions options) : options_(std::move(options)) {
    Result<ListenSocket> listener = listen_on({"127.0.0.1", 0});
    listener_ = std::move(*listener);
    thread_ = std::thread([this] { run(); });
  }
  ~TlsServer() {
    stopping_ = true;
    thread_.join();
  }
  uint16_t port() const { return parse_listen_address(listener_.bound)->port; }
  int connections() const { return connections_; }
  void use(const Paper& paper) {
    MutexLock lock(mutex_);
    options_.paper = paper;
  }

 private:
  bool ready(int fd, short events) const {
    pollfd entry{fd, events, 0};
    while (!stopping_) {
      if (poll(&entry, 1, 20) > 0) return true;
    }
    return false;
  }
  void run() {
    // OpenSSL's sockets raise SIGPIPE. Held back in this thread alone: the client's must not raise it.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    while (ready(listener_.fd.get(), POLLIN)) {
      UniqueFd peer(accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      ++connections_;
      serve(peer.get());
    }
  }
  void serve(int fd) {
    TlsServerOptions options;
    {
      MutexLock lock(mutex_);
      options = options_;
    }
    Owned<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_set_max_proto_version(context.get(), options.version_max);
    SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
    if (options.version_max < TLS1_2_VERSION) SSL_CTX_set_security_level(context.get(), 0);
    SSL_CTX_use_certificate_chain_file(context.get(), options.paper.certificate.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), options.paper.key.c_str(), SSL_FILETYPE_PEM);
    if (!options.client_ca.empty()) {
      SSL_CTX_load_verify_locations(context.get(), options.client_ca.c_str(), nullptr);
      SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    }
    Owned<SSL> ssl(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), fd);
    auto until = [&](const std::function<int()>& step) {
      for (;;) {
        int result = step();
        int why = SSL_get_error(ssl.get(), result);
        if (result > 0 || (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)) return result;
        if (!ready(fd, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT)) return -1;
      }
    };
    if (until([&] { return SSL_accept(ssl.get()); }) <= 0) return;
    std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(options.answer_bytes) + "\r\n\r\n" +
                         std::string(options.answer_bytes, 'x');
    std::string request;
    char buffer[65536];
    for (;;) {
      int got = until([&] { return SSL_read(ssl.get(), buffer, sizeof buffer); });
      if (got <= 0) return;
      request.append(buffer, static_cast<size_t>(got));
      size_t head = request.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      size_t length_at = request.find("Content-Length: ");
      size_t length = length_at < head ? strtoull(request.c_str() + length_at + 16, nullptr, 10) : 0;
      if (request.size() < head + 4 + length) continue;
      request.clear();
      size_t at = 0;
      while (at < answer.size()) {
        int put = until([&] { return SSL_write(ssl.get(), answer.data() + at, static_cast<int>(answer.size() - at)); });
        if (put <= 0) return;
        at += static_cast<size_t>(put);
      }
    }
  }

  TlsServerOptions options_ LOCKSTEP_GUARDED_BY(mutex_);
  ListenSocket listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  Mutex mutex_;
  std::thread thread_;
};

struct Tls : ::testing::Test {
  static void SetUpTestSuite() {
    authority = new Authority;
    here = new Paper(authority->sign("here", "IP:127.0.0.1,DNS:localhost"));
  }
  static void TearDownTestSuite() {
    delete here;
    delete authority;
  }
  static Result<HttpResponse> get(const TlsServer& server, const TlsOptions& tls, const std::string& host = "127.0.0.1",
                                  std::string body = "") {
    HttpClient client(Url{host, server.port(), "", true}, 5'000, 256ull << 20, tls);
    return client.send({"POST", "/", {}, std::move(body)});
  }
  static void expect_error(const Result<HttpResponse>& answer, const char* text) {
    ASSERT_FALSE(answer.ok());
    EXPECT_NE(answer.error().find(text), std::string::npos) << answer.error();
    EXPECT_TRUE(answer.error().starts_with("https://")) << answer.error();
    EXPECT_EQ(answer.error().find('\n'), std::string::npos);
  }
  static Authority* authority;
  static Paper* here;
};
Authority* Tls::authority = nullptr;
Paper* Tls::here = nullptr;

TEST_F(Tls, SpeaksToAServerWhoseCertificateTheCaSignedByAddressAndByName) {
  TlsServer server({.paper = *here});
  EXPECT_EQ(get(server, {.ca_file = authority->ca_file})->body, "xx");
  EXPECT_EQ(get(server, {.ca_file = authority->ca_file}, "localhost")->body, "xx");
}

TEST_F(Tls, KeepsTheConnectionForTheNextRequest) {
  TlsServer server({.paper = *here});
  HttpClient client(Url{"127.0.0.1", server.port(), "", true}, 5'000, 1 << 20, {.ca_file = authority->ca_file});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client.send({}).ok());
  EXPECT_EQ(server.connections(), 1);
}

TEST_F(Tls, CarriesLargeBodiesBothWays) {
  TlsServer server({.paper = *here, .answer_bytes = 5'000'000});
  Result<HttpResponse> answer = get(server, {.ca_file = authority->ca_file}, "127.0.0.1", std::string(5'000'000, 'y'));
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body.size(), 5'000'000u);
}

TEST_F(Tls, DoesNotBelieveACaItWasNotTold) {
  TlsServer server({.paper = *here});
  expect_error(get(server, {}), "signed by an unknown CA");
  Authority other;
  expect_error(get(server, {.ca_file = other.ca_file}), "signed by an unknown CA");
}

TEST_F(Tls, NamesTheHostThatTheCertificateIsNotFor) {
  TlsServer server({.paper = authority->sign("elsewhere", "DNS:gpu-server")});
  expect_error(get(server, {.ca_file = authority->ca_file}), "certificate is not for 127.0.0.1");
  expect_error(get(server, {.ca_file = authority->ca_file}, "localhost"), "certificate is not for localhost");
}

TEST_F(Tls, SaysThatACertificateHasExpiredOrIsNotValidYet) {
  TlsServer server({.paper = authority->sign("old", "IP:127.0.0.1", -7200, -3600)});
  expect_error(get(server, {.ca_file = authority->ca_file}), "certificate has expired");
  server.use(authority->sign("early", "IP:127.0.0.1", 3600, 7200));
  expect_error(get(server, {.ca_file = authority->ca_file}), "not valid yet");
}

TEST_F(Tls, BelievesAnybodyOnlyWhereItWasToldTo) {
  TlsServer server({.paper = authority->sign("nowhere", "DNS:nowhere", -7200, -3600)});
  EXPECT_TRUE(get(server, {.verify = false}).ok());
}

TEST_F(Tls, ShowsItsOwnCertificateToAServerThatAsksForOne) {
  for (int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsServer server({.paper = *here, .client_ca = authority->ca_file, .version_max = version});
    const Paper own = authority->sign("agent", "");
    Result<HttpResponse> answer =
        get(server, {.ca_file = authority->ca_file, .certificate_file = own.certificate, .key_file = own.key});
    EXPECT_TRUE(answer.ok()) << answer.error();
    Result<HttpResponse> without = get(server, {.ca_file = authority->ca_file});
    expect_error(without, "client certificate");
    Authority other;
    const Paper foreign = other.sign("foreign", "");
    expect_error(
        get(server, {.ca_file = authority->ca_file, .certificate_file = foreign.certificate, .key_file = foreign.key}),
        "does not know the CA of our client certificate");
  }
}

TEST_F(Tls, AcceptsNoVersionOlderThan12) {
  TlsServer server({.paper = *here, .version_max = TLS1_1_VERSION});
  expect_error(get(server, {.ca_file = authority->ca_file}), "TLS version");
}

TEST_F(Tls, SaysThatTheServerDoesNotSpeakIt) {
  Result<ListenSocket> plain = listen_on({"127.0.0.1", 0});
  std::thread answers([&] {
    pollfd entry{plain->fd.get(), POLLIN, 0};
    poll(&entry, 1, 5'000);
    UniqueFd peer(accept4(plain->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char hello[4096];
    (void)!read(peer.get(), hello, sizeof hello);
    (void)write_all(peer.get(), "HTTP/1.1 400 Bad Request\r\n\r\n").ok();
  });
  HttpClient client(Url{"127.0.0.1", parse_listen_address(plain->bound)->port, "", true}, 2'000);
  expect_error(client.send({}), "does not speak TLS");
  answers.join();
}

TEST_F(Tls, GivesUpAtTheDeadlineInTheHandshake) {
  Result<ListenSocket> silent = listen_on({"127.0.0.1", 0});
  HttpClient client(Url{"127.0.0.1", parse_listen_address(silent->bound)->port, "", true}, 200);
  expect_error(client.send({}), "timed out after 200 ms while in the TLS handshake");
}

TEST_F(Tls, AFileThatIsOfNoUseIsOneLineThatNamesIt) {
  const Paper own = authority->sign("own", "");
  const Paper other = authority->sign("other", "");
  const std::string text = authority->path("text");
  std::ofstream(text) << "not PEM\n";
  auto load = [](const TlsOptions& options) { return TlsClient(options).load().error(); };
  EXPECT_EQ(load({.ca_file = "/nowhere/ca.pem"}), "CA file /nowhere/ca.pem: No such file or directory");
  EXPECT_EQ(load({.ca_file = text}), "CA file " + text + ": holds no certificate in PEM form");
  EXPECT_EQ(load({.certificate_file = "/nowhere/c", .key_file = own.key}),
            "certificate /nowhere/c: No such file or directory");
  EXPECT_EQ(load({.certificate_file = own.certificate, .key_file = "/nowhere/k"}),
            "key /nowhere/k: No such file or directory");
  EXPECT_EQ(load({.certificate_file = text, .key_file = own.key}),
            "certificate " + text + ": is not a certificate in PEM form");
  EXPECT_EQ(load({.certificate_file = own.certificate, .key_file = text}),
            "key " + text + ": is not an unencrypted key in PEM form");
  EXPECT_EQ(load({.certificate_file = own.certificate, .key_file = other.key}),
            "key " + other.key + ": does not belong to certificate " + own.certificate);
  EXPECT_EQ(load({.certificate_file = own.certificate}),
            "certificate " + own.certificate + ": is of no use without its key");
}

TEST_F(Tls, ReadsItsFilesAgainWhenTheyChange) {
  Authority next;
  TlsServer server({.paper = *here});
  const std::string ca = authority->path("current.pem");
  std::filesystem::copy_file(authority->ca_file, ca);
  Connector connector({.host = "127.0.0.1", .port = server.port()}, TlsOptions{.ca_file = ca});
  EXPECT_TRUE(connector.open(Deadline(5'000)).ok());
  server.use(next.sign("here", "IP:127.0.0.1"));
  EXPECT_FALSE(connector.open(Deadline(5'000)).ok());
  std::filesystem::copy_file(next.ca_file, ca + ".new");
  std::filesystem::rename(ca + ".new", ca);
  Result<std::unique_ptr<Stream>> again = connector.open(Deadline(5'000));
  EXPECT_TRUE(again.ok()) << again.error();
}

TEST_F(Tls, GrpcNeedsAServerThatOffersHttp2) {
  TlsServer server({.paper = *here});  // no ALPN
  GrpcTarget target{{"127.0.0.1", server.port(), ""}, true, {.ca_file = authority->ca_file}};
  Result<GrpcResponse> answer = GrpcClient(target, 3'000).call({.path = "/a.B/C"});
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().find("does not offer h2 over TLS"), std::string::npos) << answer.error();
}

}  // namespace
}  // namespace lockstep

#else  // LOCKSTEP_OPENSSL

namespace lockstep {
namespace {

TEST(Tls, WhatIsNotBuiltInIsOneLine) {
  EXPECT_FALSE(tls_available());
  EXPECT_NE(TlsClient({}).load().error().find("not built in"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
#endif
