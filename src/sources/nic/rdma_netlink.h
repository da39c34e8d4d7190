// RDMA queue pairs as the kernel lists them over netlink: whose they are, what they are connected to, how they stand.
// From the numbers of both ends follows the UDP source port of a RoCEv2 flow (model/roce.h), and from that the path
// that switches choose for it.
//
// Thread rule: Confined (RdmaResources), Thread-safe (functions).
// Limits:      kQueuePairsMax queue pairs; the rest is left out, and that is said.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/roce.h"
#include "sources/nic/netlink.h"
#include "sources/node_source.h"

namespace lockstep {

struct QueuePair {
  std::string device;
  uint32_t port = 0;  // 0: not told
  uint32_t local_number = 0;
  std::optional<uint32_t> remote_number;  // of connected types only
  std::optional<uint32_t> receive_psn;
  std::optional<uint32_t> send_psn;
  uint8_t type = 0;
  uint8_t state = 0;
  int32_t pid = -1;    // -1: the kernel's own
  std::string kernel;  // then: whose
  bool operator==(const QueuePair&) const = default;
};
const char* queue_pair_type(uint8_t type);    // "RC", "UC", "UD", …; "other"
const char* queue_pair_state(uint8_t state);  // "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"; "other"

// One message of a dump. What does not fit is left out, never read beyond.
struct RdmaDeviceName {
  uint32_t index = 0;
  std::string name;
};
std::optional<RdmaDeviceName> parse_rdma_device(Bytes payload);
void parse_queue_pairs(Bytes payload, std::vector<QueuePair>& out);

class RdmaResources {
 public:
  static constexpr size_t kQueuePairsMax = 65536;

  RdmaResources();  // opens the socket, so that privileges may be dropped later
  // On slow ticks. The driver asks its adapter about each queue pair, so that the next dump waits at least fifty times
  // as long as the last one took; until then the last numbers are published again.
  void read(const Tick& tick, NodeReadings& out);
  // As of the last dump.
  const std::vector<QueuePair>& queue_pairs() const { return queue_pairs_; }
  const std::string& why_not() const { return why_not_; }  // empty: works

 private:
  NetlinkError dump();
  void publish(NodeReadings& out);

  std::optional<NetlinkSocket> socket_;
  std::string why_not_;
  std::vector<QueuePair> queue_pairs_;
  std::set<std::string> unanswered_;  // devices whose dump failed: nothing is known of them
  std::map<std::string, LabelSet> labels_;
  int64_t next_ns_ = INT64_MIN;
  bool reported_ = false;
  bool reported_limit_ = false;
};

}  // namespace lockstep
