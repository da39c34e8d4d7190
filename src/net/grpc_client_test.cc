#include "net/grpc_client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "net/grpc_server.h"
#include "net/testing/http_counters.h"
#include "net/testing/raw_socket.h"

namespace lockstep {
namespace {

GrpcServerResponse answer_call(const std::string& path, const std::string& body,
                               const std::shared_future<void>& released) {
  if (path == "/test.Service/Echo") return {kGrpcOk, "", body};
  if (path == "/test.Service/Large") return {kGrpcOk, "", std::string(3'000'000, 'x')};
  if (path == "/test.Service/Busy") return {kGrpcUnavailable, "disk full: 100 % of \xc3\xa9", "", 1'500};
  if (path == "/test.Service/Slow") {
    released.wait();
    return {kGrpcOk, "", "late"};
  }
  return {kGrpcUnimplemented, "no method " + path};
}

struct GrpcPeer {
  Counters counters{testing::kHttpCounters};
  std::promise<void> release;  // slow calls, which until then are not answered
  std::unique_ptr<GrpcServer> server;

  ~GrpcPeer() { release.set_value(); }
  explicit GrpcPeer(const std::string& address = "127.0.0.1:0") {
    GrpcServerOptions options;
    options.http.address = *parse_listen_address(address);
    options.http.name = "test";
    options.encodings = {"reversed"};
    options.decompress = [](std::string_view, std::string_view data, uint64_t) -> GrpcServerResponse {
      return {kGrpcOk, "", std::string(data.rbegin(), data.rend())};
    };
    Result<std::unique_ptr<GrpcServer>> started = GrpcServer::start(
        std::move(options),
        [released = release.get_future().share()](const GrpcServerRequest& request) {
          return answer_call(request.path, request.body, released);
        },
        counters);
    EXPECT_TRUE(started) << started.error();
    server = std::move(*started);
  }
  GrpcTarget target() const { return *parse_grpc_target("http://" + server->address(), 4317); }
};

TEST(GrpcTarget, ReadsTheFormsAndRefusesTheRest) {
  EXPECT_EQ(parse_grpc_target("http://gpu-server", 4317)->address, (StreamAddress{"gpu-server", 4317, ""}));
  EXPECT_EQ(parse_grpc_target("http://[::1]:99/", 4317)->address, (StreamAddress{"::1", 99, ""}));
  EXPECT_EQ(parse_grpc_target("unix:///run/a.sock", 0)->address.unix_path, "/run/a.sock");
  EXPECT_EQ(parse_grpc_target("unix:/run/a.sock", 0)->address.unix_path, "/run/a.sock");
  Result<GrpcTarget> secure = parse_grpc_target("https://gpu-server:1", 4317);
  EXPECT_EQ(secure.ok() && secure->tls, tls_available());
  for (const char* text : {"", "gpu-server:4317", "http://a/path", "unix:", "unix://", "ftp://a"})
    EXPECT_FALSE(parse_grpc_target(text, 4317).ok()) << text;
}

TEST(GrpcClient, MakesCallsOnOneConnection) {
  GrpcPeer peer;
  GrpcClient client(peer.target());
  for (const char* text : {"first", "", "third"}) {
    Result<GrpcResponse> answer = client.call({.path = "/test.Service/Echo", .message = text});
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(answer->code, GrpcCode::kOk);
    EXPECT_EQ(answer->body, text);
  }
  EXPECT_EQ(peer.counters.value("lockstep_http_connections", "receiver=\"test\""), 1);
}

TEST(GrpcClient, CarriesMessagesLargerThanEveryWindow) {
  GrpcPeer peer;
  GrpcClient client(peer.target());
  std::string large(5'000'000, 'a');
  for (size_t i = 0; i < large.size(); i += 997) large[i] = static_cast<char>(i);
  for (int i = 0; i < 3; ++i) {
    Result<GrpcResponse> answer = client.call({.path = "/test.Service/Echo", .message = large});
    ASSERT_TRUE(answer.ok()) << answer.error();
    EXPECT_EQ(answer->body, large);
  }
}

TEST(GrpcClient, RefusesAnAnswerOverItsLimitAndGoesOn) {
  GrpcPeer peer;
  GrpcClient client(peer.target(), 5'000, 1'000'000);
  Result<GrpcResponse> answer = client.call({.path = "/test.Service/Large"});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->code, GrpcCode::kResourceExhausted);
  EXPECT_EQ(client.call({.path = "/test.Service/Echo", .message = "x"})->body, "x");
}

TEST(GrpcClient, SendsACompressedMessageAsItIs) {
  GrpcPeer peer;
  GrpcClient client(peer.target());
  EXPECT_EQ(client.call({.path = "/test.Service/Echo", .message = "abc", .encoding = "reversed"})->body, "cba");
  EXPECT_EQ(client.call({.path = "/test.Service/Echo", .message = "abc", .encoding = "other"})->code,
            GrpcCode::kUnimplemented);
}

TEST(GrpcClient, ReadsCodeMessageAndDetailsOfAnError) {
  GrpcPeer peer;
  Result<GrpcResponse> answer = GrpcClient(peer.target()).call({.path = "/test.Service/Busy"});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->code, GrpcCode::kUnavailable);
  EXPECT_STREQ(to_text(answer->code), "UNAVAILABLE");
  EXPECT_EQ(answer->message, "disk full: 100 % of \xc3\xa9");
  EXPECT_NE(answer->trailer("grpc-status-details-bin"), "");
  EXPECT_EQ(answer->trailer("absent"), "");
  EXPECT_EQ(GrpcClient(peer.target()).call({.path = "/no.Such/Thing"})->code, GrpcCode::kUnimplemented);
}

TEST(GrpcClient, OpensANewConnectionWhereTheServerHasGoneAndComeBack) {
  auto peer = std::make_unique<GrpcPeer>();
  const std::string address = peer->server->address();
  GrpcClient client(peer->target(), 2'000);
  ASSERT_TRUE(client.call({.path = "/test.Service/Echo"}).ok());
  peer.reset();
  Result<GrpcResponse> gone = client.call({.path = "/test.Service/Echo"});
  ASSERT_FALSE(gone.ok());
  EXPECT_NE(gone.error().find("Connection refused"), std::string::npos) << gone.error();
  peer = std::make_unique<GrpcPeer>(address);
  Result<GrpcResponse> back = client.call({.path = "/test.Service/Echo", .message = "back"});
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(back->body, "back");
  // And where it restarted between two calls, without an error in between.
  peer.reset();
  peer = std::make_unique<GrpcPeer>(address);
  Result<GrpcResponse> again = client.call({.path = "/test.Service/Echo", .message = "again"});
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(again->body, "again");
}

TEST(GrpcClient, GivesUpAtTheDeadline) {
  GrpcPeer peer;
  GrpcClient client(peer.target());
  Result<GrpcResponse> answer = client.call({.path = "/test.Service/Slow", .timeout_ms = 150});  // never answered
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().find("timed out after 150 ms while waiting for the answer"), std::string::npos)
      << answer.error();
  EXPECT_EQ(client.call({.path = "/test.Service/Echo", .message = "next"})->body, "next");
}

TEST(GrpcClient, SaysThatAnHttp1ServerIsNone) {
  testing::ScriptedServer server({{"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"}});
  Result<GrpcResponse> answer =
      GrpcClient(*parse_grpc_target("http://" + server.address(), 80), 2'000).call({.path = "/a.B/C"});
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().find("does not speak HTTP/2"), std::string::npos) << answer.error();
}

TEST(GrpcClient, RefusesToSendMalformedMetadata) {
  GrpcClient client(*parse_grpc_target("http://127.0.0.1:1", 80));
  for (const GrpcRequest& request : {GrpcRequest{.path = "no slash"}, GrpcRequest{.path = "/a\r\nb"},
                                     GrpcRequest{.path = "/a", .metadata = {{"Upper", "x"}}},
                                     GrpcRequest{.path = "/a", .metadata = {{":path", "/"}}},
                                     GrpcRequest{.path = "/a", .metadata = {{"a", "b\r\nc"}}}}) {
    EXPECT_NE(client.call(request).error().find("malformed"), std::string::npos);
  }
}

TEST(GrpcClient, ReadsWhatIsPercentEncoded) {
  EXPECT_EQ(grpc_percent_decode("100%25 of %C3%A9"), "100% of \xc3\xa9");
  EXPECT_EQ(grpc_percent_decode("50% of %zz%4"), "50% of %zz%4");
}

// Hands every connection to a UNIX socket on to a TCP server.
class UnixReceiver {
 public:
  UnixReceiver(std::string path, std::string address) : path_(std::move(path)), address_(std::move(address)) {
    listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path_.copy(to.sun_path, sizeof to.sun_path - 1);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    EXPECT_EQ(listen(listener_.get(), 4), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~UnixReceiver() {
    stopping_ = true;
    thread_.join();
    unlink(path_.c_str());
  }

 private:
  void run() {
    pollfd entry{listener_.get(), POLLIN, 0};
    while (!stopping_ && poll(&entry, 1, 20) <= 0) {
    }
    if (stopping_) return;
    UniqueFd here(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    testing::RawSocket there(address_);
    pollfd both[] = {{here.get(), POLLIN, 0}, {there.fd(), POLLIN, 0}};
    char buffer[65536];
    while (!stopping_) {
      if (poll(both, 2, 20) <= 0) continue;
      for (int i = 0; i < 2; ++i) {
        if (both[i].revents == 0) continue;
        ssize_t got = read(both[i].fd, buffer, sizeof buffer);
        if (got <= 0 || !write_all(both[1 - i].fd, {buffer, static_cast<size_t>(got)}).ok()) return;
      }
    }
  }
  std::string path_, address_;
  UniqueFd listener_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST(GrpcClient, SpeaksOverAUnixSocket) {
  GrpcPeer peer;
  const std::string path = format("/tmp/lockstep-grpc-%d.sock", getpid());
  UnixReceiver receiver(path, peer.server->address());
  Result<GrpcResponse> answer = grpc_call("unix://" + path, "/test.Service/Echo", "through the receiver");
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_EQ(answer->body, "through the receiver");
  Result<GrpcResponse> nobody = grpc_call("unix:///nowhere/a.sock", "/test.Service/Echo", "");
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error(), "unix:///nowhere/a.sock: No such file or directory");
}

}  // namespace
}  // namespace lockstep
