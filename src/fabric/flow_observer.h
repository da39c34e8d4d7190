// Which ports of which switches packets of a flow were seen on: what the path asks whoever samples the network.
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::fabric {

struct FiveTuple {
  std::string source;  // addresses as text: "10.0.0.1"
  std::string destination;
  uint8_t protocol = 0;      // 6 TCP, 17 UDP; 0: any
  uint16_t source_port = 0;  // 0: any
  uint16_t destination_port = 0;
};

struct ObservedPort {
  std::string switch_name;
  std::string port;
  bool out = true;       // packets left through it; else they came in
  uint64_t packets = 0;  // that were sampled
};

class FlowObserver {
 public:
  virtual ~FlowObserver() = default;
  virtual std::vector<ObservedPort> observed_ports(const FiveTuple& flow, int64_t from_unix_ns,
                                                   int64_t to_unix_ns) const = 0;
};

}  // namespace lockstep::fabric
