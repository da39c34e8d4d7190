#include "sources/nic/netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep {

namespace {

// The kernel fills at most 32 KiB of a dump at a time.
constexpr size_t kBufferBytes = 64 * 1024;
// An answer comes with the request, or when another holder of the kernel's lock lets go.
constexpr timeval kTimeout{1, 0};

template <typename T>
std::optional<T> number(Bytes data) {
  if (data.size() != sizeof(T)) return std::nullopt;
  T value;
  memcpy(&value, data.data(), sizeof value);
  return value;
}

// Takes `length` bytes and the padding up to the next four off the front.
void skip(Bytes& bytes, size_t length) {
  bytes = bytes.subspan(std::min(bytes.size(), (length + 3) & ~size_t{3}));
}

}  // namespace

std::optional<uint8_t> NetlinkAttribute::u8() const {
  return number<uint8_t>(data);
}
std::optional<uint16_t> NetlinkAttribute::u16() const {
  return number<uint16_t>(data);
}
std::optional<uint32_t> NetlinkAttribute::u32() const {
  return number<uint32_t>(data);
}
std::optional<uint64_t> NetlinkAttribute::u64() const {
  if (std::optional<uint32_t> small = u32()) return *small;
  return number<uint64_t>(data);
}
std::string_view NetlinkAttribute::text() const {
  std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
  return text.substr(0, text.find('\0'));
}

bool NetlinkAttributes::next(NetlinkAttribute& attribute) {
  nlattr header;
  if (rest_.size() < sizeof header) return false;
  memcpy(&header, rest_.data(), sizeof header);
  if (header.nla_len < sizeof header || header.nla_len > rest_.size()) return false;
  attribute.type = header.nla_type & NLA_TYPE_MASK;
  attribute.data = rest_.subspan(sizeof header, header.nla_len - sizeof header);
  skip(rest_, header.nla_len);
  return true;
}

bool NetlinkMessages::next(NetlinkMessage& message) {
  nlmsghdr header;
  if (rest_.size() < sizeof header) return false;
  memcpy(&header, rest_.data(), sizeof header);
  if (header.nlmsg_len < sizeof header || header.nlmsg_len > rest_.size()) return false;
  message.type = header.nlmsg_type;
  message.flags = header.nlmsg_flags;
  message.sequence = header.nlmsg_seq;
  message.payload = rest_.subspan(sizeof header, header.nlmsg_len - sizeof header);
  skip(rest_, header.nlmsg_len);
  return true;
}

void NetlinkPayload::append(const void* data, size_t size) {
  data_.append(static_cast<const char*>(data), size);
  data_.resize((data_.size() + 3) & ~size_t{3});
}

void NetlinkPayload::attribute(uint16_t type, const void* data, size_t size) {
  nlattr header{static_cast<uint16_t>(sizeof header + size), type};
  data_.append(reinterpret_cast<const char*>(&header), sizeof header);
  append(data, size);
}

void NetlinkPayload::attribute_text(uint16_t type, std::string_view text) {
  std::string terminated(text);
  attribute(type, terminated.c_str(), terminated.size() + 1);
}

void NetlinkPayload::nested(uint16_t type, const NetlinkPayload& inside) {
  attribute(type | NLA_F_NESTED, inside.data_.data(), inside.data_.size());
}

Result<NetlinkSocket> NetlinkSocket::open(int protocol) {
  UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd.valid()) return Error{format("netlink protocol %d: %s", protocol, strerror(errno))};
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return Error{format("netlink protocol %d: bind: %s", protocol, strerror(errno))};
  }
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof kTimeout);
  return NetlinkSocket(std::move(fd));
}

NetlinkError NetlinkSocket::ask(uint16_t type, bool dump, Bytes payload,
                                const std::function<void(const NetlinkMessage&)>& on_answer) {
  nlmsghdr header{};
  header.nlmsg_len = static_cast<uint32_t>(sizeof header + payload.size());
  header.nlmsg_type = type;
  header.nlmsg_flags = NLM_F_REQUEST | (dump ? NLM_F_DUMP : NLM_F_ACK);
  header.nlmsg_seq = ++sequence_;
  std::string request(reinterpret_cast<const char*>(&header), sizeof header);
  request.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (send(fd_.get(), request.data(), request.size(), 0) < 0) return {errno};

  buffer_.resize(kBufferBytes);
  while (true) {
    ssize_t size = recv(fd_.get(), buffer_.data(), buffer_.size(), MSG_TRUNC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return {errno};
    if (static_cast<size_t>(size) > buffer_.size()) return {EMSGSIZE};
    NetlinkMessages messages({reinterpret_cast<const uint8_t*>(buffer_.data()), static_cast<size_t>(size)});
    NetlinkMessage message;
    while (messages.next(message)) {
      // An answer to a request that was given up on.
      if (message.sequence != sequence_) continue;
      if (message.type == NLMSG_DONE || message.type == NLMSG_ERROR) {
        std::optional<uint32_t> code;
        if (message.payload.size() >= sizeof(uint32_t))
          code = number<uint32_t>(message.payload.first(sizeof(uint32_t)));
        return {code ? -static_cast<int>(*code) : 0};
      }
      on_answer(message);
    }
  }
}

}  // namespace lockstep
