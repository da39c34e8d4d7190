#include "ingest/flow/udp_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

// A burst of a whole fabric's switches, while we wait for the processor.
constexpr int kKernelBufferBytes = 16 << 20;

IpAddress address_of(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) return ip_of_v4(&reinterpret_cast<const sockaddr_in&>(from).sin_addr);
  return ip_of_v6(&reinterpret_cast<const sockaddr_in6&>(from).sin6_addr);
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

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
  // As much as the administrator allows where we are not root.
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kKernelBufferBytes, sizeof kKernelBufferBytes) != 0)
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kKernelBufferBytes, sizeof kKernelBufferBytes);
}

}  // namespace

Result<std::unique_ptr<UdpSocket>> UdpSocket::bind(const ListenAddress& address) {
  ListenSocket socket = LOCKSTEP_TRY(bind_datagrams(address, set_options));
  return std::unique_ptr<UdpSocket>(std::make_unique<BoundSocket>(std::move(socket.fd), std::move(socket.bound)));
}

}  // namespace lockstep
