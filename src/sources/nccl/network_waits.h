// Where the time of the network side goes, since the process started: for each function, communicator size, peer and
// channel, what its transfers waited for.
//
// Limits: kKeysMax keys. Beyond, what would be a new one is put under channel kAllChannels, and under peer -1 where
// those are too many too; both are counted.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>

#include "recorder/records.h"

namespace lockstep {

struct NetworkWaitKey {
  Function function = Function::kUnknown;  // of the operation; kUnknown where NCCL or the ring lost it
  int32_t comm_size = 0;                   // 0: not known
  int32_t peer = -1;                       // rank in the communicator
  uint8_t channel = 0;
  bool send = true;
  auto operator<=>(const NetworkWaitKey&) const = default;
};

// Sums over transfers; transfers overlap, so a sum may be longer than the time that passed.
struct NetworkWait {
  uint64_t own_gpu_ns = 0;  // send: own GPU had not produced; receive: own GPU had not consumed
  uint64_t peer_ns = 0;     // send: no credit from the receiver; receive: nothing from the sender
  uint64_t wire_ns = 0;     // send: on the wire; receive: flush
  uint64_t bytes = 0;
  uint64_t transfers = 0;
  bool operator==(const NetworkWait&) const = default;
};

class NetworkWaits {
 public:
  static constexpr size_t kKeysMax = 4096;
  static constexpr uint8_t kAllChannels = 255;  // NCCL has 64

  void add(NetworkWaitKey key, const ProxyStepRecord& step);
  const std::map<NetworkWaitKey, NetworkWait>& all() const { return waits_; }
  uint64_t folded() const { return folded_; }  // transfers that are not under their own key

 private:
  std::map<NetworkWaitKey, NetworkWait> waits_;
  uint64_t folded_ = 0;
};

}  // namespace lockstep
