#include "sources/nic/lldp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep {

namespace {

constexpr uint16_t kEthertypeLldp = 0x88cc;
constexpr uint16_t kEthertypeVlan = 0x8100;
// Frames to the nearest bridge, to the nearest one that is not a repeater, and to the nearest customer's bridge.
constexpr unsigned char kGroups[3][6] = {
    {0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}, {0x01, 0x80, 0xc2, 0x00, 0x00, 0x03}, {0x01, 0x80, 0xc2, 0x00, 0x00, 0x00}};

uint16_t big_endian_16(Bytes bytes, size_t at) {
  return static_cast<uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}

// Labels end up on screens: what is not plain text becomes '?'.
std::string plain_text(Bytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  for (char& c : text) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text;
}

std::string hexadecimal(Bytes bytes) {
  std::string text;
  for (uint8_t byte : bytes) {
    if (!text.empty()) text += ':';
    text += format("%02x", byte);
  }
  return text;
}

}  // namespace

Result<LldpNeighbour> parse_lldp_frame(Bytes frame) {
  constexpr size_t kAddresses = 12;
  if (frame.size() < kAddresses + 2) return Error{format("LLDP frame of %zu bytes is too short", frame.size())};
  size_t at = kAddresses;
  if (big_endian_16(frame, at) == kEthertypeVlan && frame.size() >= at + 6) at += 4;
  if (big_endian_16(frame, at) != kEthertypeLldp) {
    return Error{format("not an LLDP frame: ethertype 0x%04x", big_endian_16(frame, at))};
  }
  Bytes rest = frame.subspan(at + 2);
  LldpNeighbour neighbour;
  bool has_chassis = false, has_port = false, has_ttl = false;
  while (rest.size() >= 2) {
    const uint16_t header = big_endian_16(rest, 0);
    const int type = header >> 9;
    const size_t length = header & 0x1ff;
    if (rest.size() < 2 + length) return Error{format("LLDP: element %d of %zu bytes is cut off", type, length)};
    Bytes value = rest.subspan(2, length);
    rest = rest.subspan(2 + length);
    if (type == 0) break;  // the end
    switch (type) {
      case 1:  // subtypes: 4 is a MAC address, 5 a network address, the others are text
        if (length < 2) return Error{"LLDP: the chassis id is empty"};
        neighbour.chassis_id =
            value[0] == 4 || value[0] == 5 ? hexadecimal(value.subspan(1)) : plain_text(value.subspan(1));
        has_chassis = true;
        break;
      case 2:  // subtypes: 3 is a MAC address, 4 a network address
        if (length < 2) return Error{"LLDP: the port id is empty"};
        neighbour.port_id_is_address = value[0] == 3 || value[0] == 4;
        neighbour.port_id = neighbour.port_id_is_address ? hexadecimal(value.subspan(1)) : plain_text(value.subspan(1));
        has_port = true;
        break;
      case 3:
        if (length < 2) return Error{"LLDP: the time to live is cut off"};
        neighbour.ttl_seconds = big_endian_16(value, 0);
        has_ttl = true;
        break;
      case 4:
        neighbour.port_description = plain_text(value);
        break;
      case 5:
        neighbour.system_name = plain_text(value);
        break;
      default:
        break;
    }
  }
  if (!has_chassis || !has_port || !has_ttl) return Error{"LLDP: no chassis id, port id or time to live"};
  return neighbour;
}

LldpListener::LldpListener(NicContext& context) : context_(context) {
  if (!context.root.empty()) return;  // recorded: files
  // Bound in one step to the protocol: no other frame is ever queued.
  socket_ = UniqueFd(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(kEthertypeLldp)));
  if (!socket_.valid()) {
    why_not_ = format("packet socket: %s", strerror(errno));
    return;
  }
  const int bytes = 256 * 1024;
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void LldpListener::join(const std::vector<Netdevs::Netdev>& netdevs) {
  if (!socket_.valid()) return;
  for (const Netdevs::Netdev& netdev : netdevs) {
    if (!joined_.insert(netdev.ifindex).second) continue;
    for (const auto& group : kGroups) {
      packet_mreq request{};
      request.mr_ifindex = netdev.ifindex;
      request.mr_type = PACKET_MR_MULTICAST;
      request.mr_alen = sizeof group;
      memcpy(request.mr_address, group, sizeof group);
      // An interface that takes no such address (InfiniBand) has no LLDP either.
      setsockopt(socket_.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request);
    }
  }
  std::erase_if(joined_, [&](int ifindex) {
    return std::none_of(netdevs.begin(), netdevs.end(), [&](const auto& netdev) { return netdev.ifindex == ifindex; });
  });
}

void LldpListener::accept(const std::string& netdev, Bytes frame, int64_t monotonic_ns, NodeReadings& out) {
  Result<LldpNeighbour> neighbour = parse_lldp_frame(frame);
  if (!neighbour) {
    ++out.failures;
    context_.say_once(out, "nic: " + netdev + ": " + neighbour.error());
    return;
  }
  if (neighbour->ttl_seconds == 0) {
    neighbours_.erase(netdev);
    return;
  }
  const int64_t until = monotonic_ns + neighbour->ttl_seconds * 1'000'000'000LL;
  neighbours_[netdev] = {std::move(*neighbour), until};
}

void LldpListener::read(const Tick& tick, const std::vector<Netdevs::Netdev>& netdevs, NodeReadings& out) {
  if (!context_.root.empty()) {
    if (!tick.slow) return;
    neighbours_.clear();
    for (const Netdevs::Netdev& netdev : netdevs) {
      Result<std::string> frame = read_file(context_.root + "/run/lockstep-recorded/lldp/" + netdev.name, 65536);
      if (!frame) continue;
      accept(netdev.name, {reinterpret_cast<const uint8_t*>(frame->data()), frame->size()}, tick.monotonic_ns, out);
    }
    return;
  }
  uint8_t frame[2048];
  for (int i = 0; socket_.valid() && i < kFramesMax; ++i) {
    sockaddr_ll from{};
    socklen_t from_size = sizeof from;
    ssize_t size = recvfrom(socket_.get(), frame, sizeof frame, 0, reinterpret_cast<sockaddr*>(&from), &from_size);
    if (size < 0) {
      if (errno == EINTR || errno == ENETDOWN) continue;  // told once for an interface that goes down
      break;
    }
    if (from.sll_pkttype == PACKET_OUTGOING) continue;  // what a daemon here says about us
    for (const Netdevs::Netdev& netdev : netdevs) {
      if (netdev.ifindex == from.sll_ifindex) {
        accept(netdev.name, {frame, static_cast<size_t>(size)}, tick.monotonic_ns, out);
      }
    }
  }
  std::erase_if(neighbours_, [&](const auto& entry) {
    return entry.second.until_ns < tick.monotonic_ns ||
           std::none_of(netdevs.begin(), netdevs.end(), [&](const auto& netdev) { return netdev.name == entry.first; });
  });
}

const LldpNeighbour* LldpListener::neighbour(const std::string& netdev) const {
  auto found = neighbours_.find(netdev);
  return found == neighbours_.end() ? nullptr : &found->second.neighbour;
}

}  // namespace lockstep
