#include "sources/nccl/network_waits.h"

namespace lockstep {

void NetworkWaits::add(NetworkWaitKey key, const ProxyStepRecord& step) {
  auto found = waits_.find(key);
  if (found == waits_.end() && waits_.size() >= kKeysMax) {
    ++folded_;
    key.channel = kAllChannels;
    found = waits_.find(key);
    if (found == waits_.end() && waits_.size() >= 2 * kKeysMax) {
      key.peer = -1;
      key.comm_size = 0;
    }
  }
  NetworkWait& wait = found == waits_.end() ? waits_[key] : found->second;
  wait.own_gpu_ns += step.wait_gpu_ns;
  wait.peer_ns += step.wait_peer_ns;
  wait.wire_ns += step.wire_ns;
  wait.bytes += step.bytes;
  wait.transfers += uint64_t{step.merged} + 1;
}

}  // namespace lockstep
