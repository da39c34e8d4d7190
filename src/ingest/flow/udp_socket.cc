#include "ingest/flow/udp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/text.h"

namespace lockstep {
namespace {

// A burst of a whole fabric's switches, while we wait for the processor.
constexpr int kKernelBufferBytes = 16 << 20;

IpAddress address_of(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) return ip_of_v4(&reinterpret_cast<const sockaddr_in&>(from).sin_addr);
  return ip_of_v6(&reinterpret_cast<const sockaddr_in6&>(from).sin6_addr);
}

std::string text_of(const sockaddr_storage& address) {
  const IpAddress ip = address_of(address);
  const uint16_t port = ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                                           : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return format(ip.is_v4() ? "%s:%u" : "[%s]:%u", to_text(ip).c_str(), port);
}

class BoundSocket final : public UdpSocket {
 public:
  BoundSocket(UniqueFd fd, std::string bound)
      : fd_(std::move(fd)), bound_(std::move(bound)), room_(kBatch * kDatagramBytesMax) {
    for (size_t i = 0; i < kBatch; ++i) {
      parts_[i] = {room_.data() + i * kDatagramBytesMax, kDatagramBytesMax};
      messages_[i].msg_hdr.msg_iov = &parts_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
      messages_[i].msg_hdr.msg_name = &senders_[i];
    }
  }

  int fd() const override { return fd_.get(); }
  const std::string& bound() const override { return bound_; }
  std::string_view datagram(size_t i) const override {
    return {room_.data() + i * kDatagramBytesMax, messages_[i].msg_len};
  }
  IpAddress sender(size_t i) const override { return address_of(senders_[i]); }
  uint64_t take_kernel_drops() override { return std::exchange(kernel_drops_, 0); }

  size_t read() override {
    for (size_t i = 0; i < kBatch; ++i) {
      messages_[i].msg_hdr.msg_namelen = sizeof senders_[i];
      messages_[i].msg_hdr.msg_control = controls_[i].data();
      messages_[i].msg_hdr.msg_controllen = controls_[i].size();
    }
    const int count = ::recvmmsg(fd_.get(), messages_.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (count <= 0) return 0;  // an error of the socket (a peer's ICMP) is nobody's datagram
    msghdr& last = messages_[static_cast<size_t>(count) - 1].msg_hdr;
    for (cmsghdr* control = CMSG_FIRSTHDR(&last); control != nullptr; control = CMSG_NXTHDR(&last, control)) {
      if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SO_RXQ_OVFL) continue;
      uint32_t dropped = 0;  // since the socket was made, around the end of 32 bits
      std::memcpy(&dropped, CMSG_DATA(control), sizeof dropped);
      kernel_drops_ += static_cast<uint32_t>(dropped - dropped_before_);
      dropped_before_ = dropped;
    }
    return static_cast<size_t>(count);
  }

 private:
  const UniqueFd fd_;
  const std::string bound_;
  std::vector<char> room_;
  std::array<mmsghdr, kBatch> messages_{};
  std::array<iovec, kBatch> parts_{};
  std::array<sockaddr_storage, kBatch> senders_{};
  std::array<std::array<char, CMSG_SPACE(sizeof(uint32_t))>, kBatch> controls_{};
  uint32_t dropped_before_ = 0;
  uint64_t kernel_drops_ = 0;
};

Result<std::unique_ptr<UdpSocket>> bind_to(const addrinfo& target, bool dual_stack) {
  UniqueFd fd(::socket(target.ai_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Error{std::strerror(errno)};
  const int on = 1, off = 0;
  if (target.ai_family == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, dual_stack ? &off : &on, sizeof on);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
  // As much as the administrator allows where we are not root.
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kKernelBufferBytes, sizeof kKernelBufferBytes) != 0)
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kKernelBufferBytes, sizeof kKernelBufferBytes);
  if (::bind(fd.get(), target.ai_addr, target.ai_addrlen) != 0) return Error{std::strerror(errno)};
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) return Error{std::strerror(errno)};
  return std::unique_ptr<UdpSocket>(std::make_unique<BoundSocket>(std::move(fd), text_of(bound)));
}

}  // namespace

Result<std::unique_ptr<UdpSocket>> UdpSocket::bind(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_PASSIVE;
  const bool any = address.host.empty();
  const std::string port = std::to_string(address.port);
  std::string why = "no address found";
  // All addresses: one IPv6 socket that takes IPv4 too; a machine without IPv6 has IPv4 alone.
  for (const int family : {any ? AF_INET6 : AF_UNSPEC, AF_INET}) {
    hints.ai_family = family;
    addrinfo* found = nullptr;
    if (const int failed = ::getaddrinfo(any ? nullptr : address.host.c_str(), port.c_str(), &hints, &found);
        failed != 0) {
      why = ::gai_strerror(failed);
      continue;
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
    for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
      Result<std::unique_ptr<UdpSocket>> socket = bind_to(*target, any);
      if (socket.ok()) return socket;
      why = socket.error();
    }
  }
  return Error{format("cannot listen on %s:%s (UDP): %s", address.host.c_str(), port.c_str(), why.c_str())};
}

}  // namespace lockstep
