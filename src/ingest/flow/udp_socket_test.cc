#include "ingest/flow/udp_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "testing/eventually.h"

namespace lockstep {
namespace {

UniqueFd sender_to(const std::string& address) {
  const ListenAddress to = *parse_listen_address(address);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(to.port);
  inet_pton(AF_INET, "127.0.0.1", &target.sin_addr);
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM, 0));
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target), 0);
  return fd;
}

TEST(UdpSocket, ReadsBatchesAndSaysWhoSent) {
  Result<std::unique_ptr<UdpSocket>> socket = UdpSocket::bind({"127.0.0.1", 0});
  ASSERT_TRUE(socket.ok()) << socket.error();
  EXPECT_EQ((*socket)->read(), 0u);
  const UniqueFd sender = sender_to((*socket)->bound());
  for (const char* text : {"one", "", "three"}) ::send(sender.get(), text, std::string_view(text).size(), 0);
  ASSERT_EQ((*socket)->read(), 3u);
  EXPECT_EQ((*socket)->datagram(0), "one");
  EXPECT_EQ((*socket)->datagram(1), "");
  EXPECT_EQ((*socket)->datagram(2), "three");
  EXPECT_EQ(to_text((*socket)->sender(2)), "127.0.0.1");
}

TEST(UdpSocket, OnAllAddressesTakesIpv4AsIpv4) {
  Result<std::unique_ptr<UdpSocket>> socket = UdpSocket::bind({"", 0});
  ASSERT_TRUE(socket.ok()) << socket.error();
  const UniqueFd sender = sender_to((*socket)->bound());
  ::send(sender.get(), "x", 1, 0);
  ASSERT_TRUE(testing::eventually([&] { return (*socket)->read() == 1; }));
  EXPECT_TRUE((*socket)->sender(0).is_v4());
}

TEST(UdpSocket, CountsWhatTheKernelDropped) {
  Result<std::unique_ptr<UdpSocket>> socket = UdpSocket::bind({"127.0.0.1", 0});
  ASSERT_TRUE(socket.ok()) << socket.error();
  const int small = 1;  // as little as the kernel allows
  ::setsockopt((*socket)->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  const UniqueFd sender = sender_to((*socket)->bound());
  const std::string datagram(1000, 'x');
  uint64_t sent = 0, read = 0, dropped = 0;
  for (int i = 0; i < 1000; ++i, ++sent) ::send(sender.get(), datagram.data(), datagram.size(), 0);
  auto read_all = [&] {
    while (const size_t count = (*socket)->read()) read += count;
    dropped += (*socket)->take_kernel_drops();
  };
  read_all();
  // The count comes with the next datagram that has room.
  ::send(sender.get(), datagram.data(), datagram.size(), 0);
  ++sent;
  read_all();
  EXPECT_GT(dropped, 900u);
  EXPECT_EQ(read + dropped, sent);
}

TEST(UdpSocket, SaysInOneLineWhyItCannotListen) {
  Result<std::unique_ptr<UdpSocket>> first = UdpSocket::bind({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok());
  const Result<std::unique_ptr<UdpSocket>> second = UdpSocket::bind(*parse_listen_address((*first)->bound()));
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().find("in use"), std::string::npos) << second.error();
}

}  // namespace
}  // namespace lockstep
