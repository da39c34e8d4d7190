// Netlink: a request to the kernel and its answers, and walks over messages and attributes that trust no length.
//
// Thread rule: Confined (NetlinkSocket), Thread-safe (the rest).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace lockstep {

using Bytes = std::span<const uint8_t>;

struct NetlinkAttribute {
  uint16_t type = 0;  // without the flag bits
  Bytes data;

  // nullopt where the size is another than that of the number.
  std::optional<uint8_t> u8() const;
  std::optional<uint16_t> u16() const;
  std::optional<uint32_t> u32() const;
  std::optional<uint64_t> u64() const;  // 4 bytes do as well: newer kernels shorten
  std::string_view text() const;        // up to the first NUL
};

// Walks attributes one after the other; ends at the first that does not fit.
class NetlinkAttributes {
 public:
  explicit NetlinkAttributes(Bytes bytes) : rest_(bytes) {}
  bool next(NetlinkAttribute& attribute);

 private:
  Bytes rest_;
};

struct NetlinkMessage {
  uint16_t type = 0;
  uint16_t flags = 0;
  uint32_t sequence = 0;
  Bytes payload;
};

class NetlinkMessages {
 public:
  explicit NetlinkMessages(Bytes bytes) : rest_(bytes) {}
  bool next(NetlinkMessage& message);

 private:
  Bytes rest_;
};

// Builds a payload: fixed headers first, then attributes.
class NetlinkPayload {
 public:
  void append(const void* data, size_t size);
  void attribute(uint16_t type, const void* data, size_t size);
  void attribute_u32(uint16_t type, uint32_t value) { attribute(type, &value, sizeof value); }
  void attribute_text(uint16_t type, std::string_view text);  // with its NUL
  void nested(uint16_t type, const NetlinkPayload& inside);
  Bytes bytes() const { return {reinterpret_cast<const uint8_t*>(data_.data()), data_.size()}; }

 private:
  std::string data_;
};

struct NetlinkError {
  int error = 0;  // errno as the kernel gave it; 0: none
  bool ok() const { return error == 0; }
};

class NetlinkSocket {
 public:
  // protocol: NETLINK_GENERIC, NETLINK_ROUTE, NETLINK_RDMA. An error says why ("protocol not supported").
  static Result<NetlinkSocket> open(int protocol);
  // Sends the request and hands each answer on, until the kernel says that it is done. dump: everything there is.
  NetlinkError ask(uint16_t type, bool dump, Bytes payload,
                   const std::function<void(const NetlinkMessage&)>& on_answer);

 private:
  explicit NetlinkSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  uint32_t sequence_ = 0;
  std::string buffer_;
};

}  // namespace lockstep
