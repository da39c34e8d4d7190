// What the kernel's own netlink interfaces tell of an interface, whatever the driver calls it: pause frames, error
// correction and standard error counters (ethtool's), and priority flow control (DCB's: which priorities have it, and
// frames of each). Drivers offer some, all or none; a kernel before 5.6 has no ethtool netlink.
//
// Thread rule: Confined (EthtoolNetlink), Thread-safe (functions).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "sources/nic/netlink.h"

namespace lockstep {

struct PauseStatistics {
  std::optional<uint64_t> sent;
  std::optional<uint64_t> received;
};
struct FecStatistics {
  std::optional<uint64_t> corrected_blocks;
  std::optional<uint64_t> uncorrectable_blocks;
  std::optional<uint64_t> corrected_bits;
};
struct StandardStatistics {
  std::optional<uint64_t> checksum_errors;
  std::optional<uint64_t> symbol_errors;
};
struct PfcStatistics {
  uint8_t enabled = 0;  // a bit per priority
  std::array<uint64_t, 8> sent{};
  std::array<uint64_t, 8> received{};
};

// Of one answer, without the message's header.
std::optional<uint16_t> parse_family_id(Bytes payload);
PauseStatistics parse_pause(Bytes payload);
FecStatistics parse_fec(Bytes payload);
StandardStatistics parse_standard(Bytes payload);
std::optional<PfcStatistics> parse_pfc(Bytes payload);

class EthtoolNetlink {
 public:
  EthtoolNetlink();
  bool has_ethtool() const { return family_.has_value(); }
  // All empty: the driver does not tell, or the interface has gone.
  PauseStatistics pause(const std::string& netdev);
  FecStatistics fec(const std::string& netdev);
  StandardStatistics standard(const std::string& netdev);
  std::optional<PfcStatistics> pfc(const std::string& netdev);
  // Of the last of these, as the kernel gave it: EOPNOTSUPP is a driver that does not tell.
  int last_error() const { return last_error_; }

 private:
  template <typename T>
  T ask(uint8_t command, uint16_t header_attribute, const std::string& netdev, const NetlinkPayload& more,
        T (*parse)(Bytes));

  std::optional<NetlinkSocket> generic_;
  std::optional<NetlinkSocket> route_;
  std::optional<uint16_t> family_;
  int last_error_ = 0;
};

}  // namespace lockstep
