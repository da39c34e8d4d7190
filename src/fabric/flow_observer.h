// Which ports of which switches packets of a flow were seen on: what the path asks whoever samples the network.
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/flow.h"

namespace lockstep::fabric {

struct ObservedPort {
  std::string switch_name;
  std::string port;
  bool out = true;       // packets left through it; else they came in
  uint64_t packets = 0;  // that were sampled
};

class FlowObserver {
 public:
  virtual ~FlowObserver() = default;
  // Protocol and ports 0: any.
  virtual std::vector<ObservedPort> observed_ports(const FlowKey& flow, int64_t from_unix_ns,
                                                   int64_t to_unix_ns) const = 0;
};

}  // namespace lockstep::fabric
