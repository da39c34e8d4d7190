// A UDP socket that is read in batches.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"
#include "model/ip_address.h"
#include "net/listen_address.h"

namespace lockstep {

class UdpSocket {
 public:
  static constexpr size_t kBatch = 64;
  static constexpr size_t kDatagramBytesMax = 65'536;

  static Result<std::unique_ptr<UdpSocket>> bind(const ListenAddress& address);
  virtual ~UdpSocket() = default;

  virtual int fd() const = 0;
  virtual const std::string& bound() const = 0;  // "127.0.0.1:6343": with the port that was taken
  // Reads what is there, at most kBatch; 0: nothing. Views are valid until the next call.
  virtual size_t read() = 0;
  virtual std::string_view datagram(size_t i) const = 0;
  virtual IpAddress sender(size_t i) const = 0;
  // That the kernel had no room for, since the last call.
  virtual uint64_t take_kernel_drops() = 0;
};

}  // namespace lockstep
