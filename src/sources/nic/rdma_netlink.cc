#include "sources/nic/rdma_netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "sources/nic/nic_context.h"
#include "sources/nic/nic_metrics.h"

namespace lockstep {

namespace {

// The kernel's numbers (rdma/rdma_netlink.h). They never change; a build machine's headers may be older than they.
constexpr int kProtocolRdma = 20;
constexpr uint16_t kClient = 5 << 10;  // RDMA_NL_NLDEV
constexpr uint16_t kDeviceGet = kClient + 1;
constexpr uint16_t kQueuePairGet = kClient + 10;
enum Attribute : uint16_t {
  kDeviceIndex = 1,
  kDeviceName = 2,
  kPortIndex = 3,
  kQueuePairs = 19,
  kQueuePairEntry = 20,
  kLocalNumber = 21,
  kRemoteNumber = 22,
  kReceivePsn = 23,
  kSendPsn = 24,
  kType = 26,
  kState = 27,
  kPid = 28,
  kKernelName = 29,
};

QueuePair parse_entry(Bytes bytes) {
  QueuePair pair;
  NetlinkAttributes attributes(bytes);
  NetlinkAttribute attribute;
  while (attributes.next(attribute)) {
    switch (attribute.type) {
      case kPortIndex:
        pair.port = attribute.u32().value_or(0);
        break;
      case kLocalNumber:
        pair.local_number = attribute.u32().value_or(0);
        break;
      case kRemoteNumber:
        pair.remote_number = attribute.u32();
        break;
      case kReceivePsn:
        pair.receive_psn = attribute.u32();
        break;
      case kSendPsn:
        pair.send_psn = attribute.u32();
        break;
      case kType:
        pair.type = attribute.u8().value_or(255);
        break;
      case kState:
        pair.state = attribute.u8().value_or(255);
        break;
      case kPid:
        pair.pid = static_cast<int32_t>(attribute.u32().value_or(UINT32_MAX));
        break;
      case kKernelName:
        pair.kernel = attribute.text().substr(0, 64);
        break;
      default:
        break;
    }
  }
  return pair;
}

}  // namespace

const char* queue_pair_type(uint8_t type) {
  static constexpr const char* kNames[] = {"SMI", "GSI", "RC", "UC", "UD", "RAW_IPV6", "RAW_ETHERTYPE"};
  if (type < std::size(kNames)) return kNames[type];
  switch (type) {
    case 8:
      return "RAW_PACKET";
    case 9:
      return "XRC_INI";
    case 10:
      return "XRC_TGT";
    case 255:
      return "DRIVER";  // DCT and the like
    default:
      return "other";
  }
}

const char* queue_pair_state(uint8_t state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : "other";
}

std::optional<RdmaDeviceName> parse_rdma_device(Bytes payload) {
  RdmaDeviceName device;
  bool has_index = false;
  NetlinkAttributes attributes(payload);
  NetlinkAttribute attribute;
  while (attributes.next(attribute)) {
    if (attribute.type == kDeviceIndex && attribute.u32()) {
      device.index = *attribute.u32();
      has_index = true;
    } else if (attribute.type == kDeviceName) {
      device.name = attribute.text().substr(0, 64);
    }
  }
  if (!has_index || device.name.empty() || has_control_characters(device.name)) return std::nullopt;
  return device;
}

void parse_queue_pairs(Bytes payload, std::vector<QueuePair>& out) {
  std::string device;
  NetlinkAttributes attributes(payload);
  NetlinkAttribute attribute;
  while (attributes.next(attribute)) {
    if (attribute.type == kDeviceName) {
      device = attribute.text().substr(0, 64);
      if (has_control_characters(device)) device.clear();
    }
    if (attribute.type != kQueuePairs) continue;
    NetlinkAttributes entries(attribute.data);
    NetlinkAttribute entry;
    while (entries.next(entry)) {
      if (entry.type != kQueuePairEntry || out.size() >= RdmaResources::kQueuePairsMax) continue;
      QueuePair pair = parse_entry(entry.data);
      pair.device = device;
      out.push_back(std::move(pair));
    }
  }
}

RdmaResources::RdmaResources() {
  Result<NetlinkSocket> socket = NetlinkSocket::open(kProtocolRdma);
  if (socket) {
    socket_ = std::move(*socket);
  } else {
    why_not_ = socket.error();
  }
}

NetlinkError RdmaResources::dump() {
  std::vector<RdmaDeviceName> devices;
  NetlinkError error = socket_->ask(kDeviceGet, true, {}, [&](const NetlinkMessage& message) {
    if (std::optional<RdmaDeviceName> device = parse_rdma_device(message.payload))
      devices.push_back(std::move(*device));
  });
  if (!error.ok()) return error;
  queue_pairs_.clear();
  unanswered_.clear();
  for (const RdmaDeviceName& device : devices) {
    NetlinkPayload request;
    request.attribute_u32(kDeviceIndex, device.index);
    NetlinkError one = socket_->ask(kQueuePairGet, true, request.bytes(), [&](const NetlinkMessage& message) {
      if (message.type == kQueuePairGet) parse_queue_pairs(message.payload, queue_pairs_);
    });
    if (one.ok()) continue;
    unanswered_.insert(device.name);  // the others may answer
    error = one;
  }
  return error;
}

void RdmaResources::publish(NodeReadings& out) {
  std::map<std::tuple<std::string, std::string, std::string>, int64_t> counts;
  for (const QueuePair& pair : queue_pairs_) {
    ++counts[{pair.device, queue_pair_state(pair.state), queue_pair_type(pair.type)}];
  }
  // A state that no pair is in any more is told to be 0, not left as it was.
  for (const auto& [key, labels] : labels_) {
    if (unanswered_.contains((*labels)[0].second)) continue;
    counts.emplace(std::tuple{(*labels)[0].second, (*labels)[1].second, (*labels)[2].second}, 0);
  }
  for (const auto& [key, count] : counts) {
    const auto& [device, state, type] = key;
    LabelSet& labels = labels_[device + "/" + state + "/" + type];
    if (!labels) labels = std::make_shared<const Labels>(Labels{{"device", device}, {"state", state}, {"type", type}});
    out.add(nic_metric("lockstep_rdma_queue_pairs"), labels, static_cast<double>(count));
  }
}

void RdmaResources::read(const Tick& tick, NodeReadings& out) {
  if (!socket_ || !tick.slow) return;
  if (tick.monotonic_ns >= next_ns_) {
    const Stopwatch watch;
    NetlinkError error = dump();
    next_ns_ = tick.monotonic_ns + 50 * watch.elapsed_ns();
    if (!error.ok()) {
      ++out.failures;
      if (!reported_) {
        out.notes.push_back(
            format("nic: RDMA queue pairs: %s; those that the kernel reported are counted", strerror(error.error)));
      }
      reported_ = true;
    }
    if (queue_pairs_.size() >= kQueuePairsMax && !reported_limit_) {
      reported_limit_ = true;
      out.notes.push_back(format("nic: more than %zu RDMA queue pairs; the others are left out", kQueuePairsMax));
    }
  }
  publish(out);
}

}  // namespace lockstep
