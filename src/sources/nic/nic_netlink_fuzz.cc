// Any answer of the kernel: nothing is read beyond it.
#include <cstdlib>

#include "sources/nic/ethtool_netlink.h"
#include "sources/nic/rdma_netlink.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const Bytes bytes(data, size);
  NetlinkMessages messages(bytes);
  NetlinkMessage message;
  size_t total = 0;
  while (messages.next(message)) total += message.payload.size();
  if (total > size) std::abort();
  std::vector<QueuePair> pairs;
  parse_queue_pairs(bytes, pairs);
  if (pairs.size() > size) std::abort();
  for (const QueuePair& pair : pairs) {
    if (!queue_pair_type(pair.type) || !queue_pair_state(pair.state)) std::abort();
    if (pair.remote_number && roce_udp_source_port(pair.local_number, *pair.remote_number) < 0xc000) std::abort();
  }
  (void)parse_rdma_device(bytes);
  (void)parse_family_id(bytes);
  (void)parse_pause(bytes);
  (void)parse_fec(bytes);
  (void)parse_standard(bytes);
  (void)parse_pfc(bytes);
  return 0;
}
