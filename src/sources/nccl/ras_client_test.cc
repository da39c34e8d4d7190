#include "sources/nccl/ras_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr const char* kJson = R"({"nccl_version": "2.30.7", "communicators": [
  {"hash": "0xabc", "size": 2, "ranks": [{"rank": 0, "pid": 7, "collective_counts": {"AllReduce": 5}},
                                         {"rank": 1, "pid": 8, "collective_counts": {"AllReduce": 4}}]}]})";
constexpr const char* kText = "NCCL version 2.27.7 compiled with CUDA 12.9\n\nErrors\n======\n\nWarnings\n========\n\n";

// What the server's side of one connection can do.
struct Peer {
  int fd;
  std::string* heard;  // every command, one per line

  // Empty where the client has gone (or says nothing for long).
  std::string read_line() {
    std::string line;
    char c = 0;
    pollfd entry{fd, POLLIN, 0};
    while (poll(&entry, 1, 10'000) > 0 && recv(fd, &c, 1, 0) == 1) {
      line += c;
      if (c == '\n') break;
    }
    *heard += line;
    if (!line.empty()) line.pop_back();
    return line;
  }
  bool write(std::string_view text, size_t piece = SIZE_MAX) {
    for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
      std::string_view now = text.substr(0, piece);
      if (send(fd, now.data(), now.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(now.size())) return false;
    }
    return true;
  }
};

// Plays RAS for one connection on a free loopback port.
class FakeRas {
 public:
  explicit FakeRas(std::function<void(Peer&)> script, bool ipv6 = false) {
    listener_ = UniqueFd(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage bound{};
    socklen_t length = ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    bound.ss_family = ipv6 ? AF_INET6 : AF_INET;
    if (ipv6) {
      reinterpret_cast<sockaddr_in6&>(bound).sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in&>(bound).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    auto* address = reinterpret_cast<sockaddr*>(&bound);
    if (bind(listener_.get(), address, length) != 0 || listen(listener_.get(), 4) != 0 ||
        getsockname(listener_.get(), address, &length) != 0)
      return;
    port_ = ntohs(reinterpret_cast<sockaddr_in&>(bound).sin_port);  // at the same place for both families
    thread_ = std::thread([this, script = std::move(script)] {
      pollfd entry{listener_.get(), POLLIN, 0};
      if (poll(&entry, 1, 10'000) <= 0) return;
      UniqueFd accepted(accept(listener_.get(), nullptr, nullptr));
      Peer peer{accepted.get(), &heard_};
      script(peer);
    });
  }
  ~FakeRas() { join(); }

  bool listening() const { return port_ != 0; }
  RasOptions options(int timeout_ms = 10'000, const char* host = "127.0.0.1") const {
    return {.address = format("%s:%d", host, port_), .timeout_ms = timeout_ms};
  }
  const std::string& heard() {
    join();
    return heard_;
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  UniqueFd listener_;
  int port_ = 0;
  std::string heard_;
  std::thread thread_;
};

// Answers as NCCL does: `json` where it knows formats, text otherwise; `piece` bytes at a time.
auto nccl(bool knows_json, size_t piece = SIZE_MAX) {
  return [=](Peer& peer) {
    bool json = false;
    for (std::string line = peer.read_line(); !line.empty(); line = peer.read_line()) {
      if (line == "CLIENT PROTOCOL 2") {
        peer.write("SERVER PROTOCOL 2\n", piece);
      } else if (line.substr(0, 8) == "TIMEOUT ") {
        peer.write("OK\n", piece);
      } else if (line == "SET FORMAT json" && knows_json) {
        json = true;
        peer.write("OK\n", piece);
      } else if (line == "VERBOSE STATUS") {
        peer.write(json ? kJson : kText, piece);
        return;
      } else {
        peer.write("ERROR: Unknown command " + line + "\n", piece);
      }
    }
  };
}

// Up to the status, then as told.
auto nccl_then(std::function<void(Peer&)> status) {
  return [=](Peer& peer) {
    for (const char* answer : {"SERVER PROTOCOL 2\n", "OK\n", "OK\n"}) {
      peer.read_line();
      peer.write(answer);
    }
    peer.read_line();
    status(peer);
  };
}

std::string error_of(const FakeRas& server, int timeout_ms = 10'000) {
  Result<RasReport> report = ras_status(server.options(timeout_ms));
  if (report.ok()) return "accepted";
  // The port differs from run to run.
  std::string prefix = "RAS at " + server.options().address + " ";
  EXPECT_EQ(report.error().substr(0, prefix.size()), prefix);
  return report.error().substr(prefix.size());
}

TEST(RasClient, AsksForJsonAndReadsIt) {
  FakeRas server(nccl(true));
  Result<RasReport> report = ras_status(server.options());
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_TRUE(report->counts_reported);
  EXPECT_EQ(report->nccl_version, "2.30.7");
  ASSERT_EQ(report->comms.size(), 1u);
  EXPECT_EQ(report->comms[0].mismatches[0].groups[0].ranks_in_comm, std::vector<int32_t>{1});
  EXPECT_EQ(server.heard(), "CLIENT PROTOCOL 2\nTIMEOUT 4\nSET FORMAT json\nVERBOSE STATUS\n");
}

TEST(RasClient, LetsTheServerGatherNoLongerThanItWillWait) {
  for (auto [timeout_ms, line] :
       {std::pair(2000, "TIMEOUT 1\n"), std::pair(7000, "TIMEOUT 1\n"), std::pair(20'000, "TIMEOUT 14\n")}) {
    FakeRas server(nccl(true));
    ASSERT_TRUE(ras_status(server.options(timeout_ms)).ok());
    EXPECT_NE(server.heard().find(line), std::string::npos) << server.heard();
  }
}

TEST(RasClient, TakesTextFromAnOlderServer) {
  FakeRas server(nccl(false));
  Result<RasReport> report = ras_status(server.options());
  ASSERT_TRUE(report.ok()) << report.error();
  EXPECT_FALSE(report->counts_reported);
  EXPECT_EQ(report->nccl_version, "2.27.7");
}

TEST(RasClient, PutsLinesTogetherFromSingleBytes) {
  for (bool json : {true, false}) {
    FakeRas server(nccl(json, 1));
    Result<RasReport> report = ras_status(server.options());
    ASSERT_TRUE(report.ok()) << report.error();
    EXPECT_EQ(report->counts_reported, json);
  }
}

TEST(RasClient, FindsAServerOnEitherLoopbackAddress) {
  FakeRas four(nccl(true));
  EXPECT_TRUE(ras_status(four.options(10'000, "localhost")).ok());
  FakeRas six(nccl(true), true);
  if (!six.listening()) GTEST_SKIP() << "no IPv6 here";
  EXPECT_TRUE(ras_status(six.options(10'000, "[::1]")).ok());
}

TEST(RasClient, TakesAnEmptyPortForNoServerAndNotForAnError) {
  std::string address;
  {
    FakeRas server([](Peer&) {});
    address = server.options().address;
    ASSERT_FALSE(ras_status(server.options()).ok());
  }
  Result<RasReport> report = ras_status({.address = address, .timeout_ms = 10'000});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error(), kRasAbsent);
  EXPECT_EQ(report.code(), ErrorCode::kNotFound);
  Result<void> set = ras_set_profiler_mask({.address = address, .timeout_ms = 10'000}, 1);
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.error(), kRasAbsent);
  EXPECT_EQ(set.code(), ErrorCode::kNotFound);
}

TEST(RasClient, RefusesAnAddressThatIsNone) {
  for (const char* address : {"", "localhost", "localhost:", ":28028", "localhost:0", "localhost:65536", "::1:28028",
                              "[]:1", "[::1:28028", "local\nhost:1"}) {
    Result<RasReport> report = ras_status({.address = address, .timeout_ms = 10'000});
    ASSERT_FALSE(report.ok()) << address;
    EXPECT_NE(report.error().find("not HOST:PORT"), std::string::npos) << report.error();
  }
}

TEST(RasClient, TakesTheAddressFromTheEnvironment) {
  setenv("NCCL_RAS_ADDR", "127.0.0.1:4711", 1);
  EXPECT_EQ(RasOptions().address, "127.0.0.1:4711");
  unsetenv("NCCL_RAS_ADDR");
  EXPECT_EQ(RasOptions().address, "localhost:28028");
}

TEST(RasClient, GivesUpAtItsDeadline) {
  auto silent = [](Peer& peer) {
    while (!peer.read_line().empty()) {
    }
  };
  // Never still, and never done either: the deadline is for the whole exchange.
  auto dripping = nccl_then([](Peer& peer) {
    // The sleep is the point: a byte now and then.
    while (peer.write("[")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  for (const std::function<void(Peer&)>& script :
       {std::function<void(Peer&)>(silent), std::function<void(Peer&)>(dripping)}) {
    FakeRas server(script);
    int64_t begin_ns = SystemClock().monotonic_ns();
    EXPECT_EQ(error_of(server, 300), "did not answer within 300 ms");
    int64_t took_ms = (SystemClock().monotonic_ns() - begin_ns) / 1'000'000;
    EXPECT_GE(took_ms, 299);
  }
}

TEST(RasClient, TellsAnotherServiceFromRas) {
  FakeRas http([](Peer& peer) {
    peer.read_line();
    peer.write("HTTP/1.1 400 \x1b[2J" + std::string(200, 'x') + "\r\n\r\n");
  });
  EXPECT_EQ(error_of(http), "answers, but not as RAS: 'HTTP/1.1 400 ?[2J" + std::string(83, 'x') + "...'");
  FakeRas endless([](Peer& peer) {
    peer.read_line();
    while (peer.write(std::string(10'000, 'x'))) {
    }
  });
  EXPECT_EQ(error_of(endless), "answers, but not as RAS: a line without end");
}

TEST(RasClient, SaysWhenTheAnswerIsNoReport) {
  FakeRas garbage(nccl_then([](Peer& peer) { peer.write("\x01\x02 garbage \xff\xfe\n"); }));
  EXPECT_EQ(error_of(garbage), "gave a report that cannot be read: RAS JSON: byte 0: not a value");
  FakeRas refusing(nccl_then([](Peer& peer) { peer.write("ERROR: not now\n"); }));
  EXPECT_EQ(error_of(refusing), "refuses: 'ERROR: not now'");
}

TEST(RasClient, SaysWhenTheServerClosesEarly) {
  FakeRas at_once([](Peer& peer) { peer.read_line(); });
  EXPECT_EQ(error_of(at_once), "closed the connection without an answer");
  FakeRas before_status(nccl_then([](Peer&) {}));
  EXPECT_EQ(error_of(before_status), "closed the connection without an answer");
  FakeRas halfway(nccl_then([](Peer& peer) { peer.write(std::string(kJson).substr(0, 40)); }));
  EXPECT_EQ(error_of(halfway).substr(0, 44), "gave a report that cannot be read: RAS JSON:");
}

TEST(RasClient, StopsReadingAtItsLimit) {
  size_t written = 0;
  {
    FakeRas server(nccl_then([&](Peer& peer) {
      std::string piece(1 << 20, ' ');
      while (written < (64u << 20) && peer.write(piece, 4096)) written += piece.size();
    }));
    EXPECT_EQ(error_of(server, 60'000), "answers with more than 16777216 bytes");
  }
  EXPECT_GE(written, 16u << 20);
  EXPECT_LT(written, 64u << 20) << "the connection is closed, not drained";
}

TEST(RasClient, SetsTheProfilerMask) {
  FakeRas server([](Peer& peer) {
    for (const char* answer : {"SERVER PROTOCOL 2\n", "OK\n", "OK\n"}) {
      peer.read_line();
      peer.write(answer);
    }
  });
  Result<void> set = ras_set_profiler_mask(server.options(), 0x1046);
  EXPECT_TRUE(set.ok()) << set.error();
  EXPECT_EQ(server.heard(), "CLIENT PROTOCOL 2\nTIMEOUT 4\nCONTROL PROFILER_MASK 0x1046\n");
}

TEST(RasClient, SaysWhichNcclAProfilerMaskNeeds) {
  FakeRas older(nccl(true));
  Result<void> set = ras_set_profiler_mask(older.options(), 0);
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.error(),
            "RAS at " + older.options().address + " cannot set the profiler mask: this needs NCCL 2.31 or newer");
}

TEST(RasClient, KnowsWhichVersionsAreNotToBeAsked) {
  EXPECT_TRUE(ras_status_is_safe(22501));
  EXPECT_FALSE(ras_status_is_safe(22602));
  EXPECT_FALSE(ras_status_is_safe(22809));
  EXPECT_TRUE(ras_status_is_safe(22902));
}

}  // namespace
}  // namespace lockstep
