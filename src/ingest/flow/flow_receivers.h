// Receivers of network telemetry over UDP: sFlow version 5, and NetFlow version 9 with IPFIX on the same sockets.
//
// A thread for each socket reads batches and hands them to one thread that decodes and calls the subscriber; between
// them stands a queue of queue_bytes_max bytes of memory, and when it is full what comes is dropped. UDP shows nobody who sends:
// datagrams whose sender is not in `exporters` are refused before anything looks at them, which keeps out mistakes and
// strangers, not whoever can forge addresses inside these networks.
// Counts: received = decoded + refused[reason] + dropped + in the queue, per receiver; what the kernel dropped and what
//         is missing by the exporters' own numbers besides (flow_counters.h). Bad input: a line, at most one a second.
// Shutdown: stop() decodes what is in the queue, and joins.
// Thread rule: Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/result.h"
#include "model/flow.h"
#include "net/listen_address.h"

namespace lockstep {

// Loopback and private networks (RFC 1918, 4193, 3927, 4291, 6598).
std::vector<IpPrefix> default_flow_exporters();
// "10.0.0.0/8,fd00::/8"; empty: the default ones.
// On error: one line that names what is no prefix.
Result<std::vector<IpPrefix>> parse_flow_exporters(std::string_view text);

struct FlowReceiversOptions {
  std::vector<ListenAddress> sflow, ipfix;
  std::vector<IpPrefix> exporters = default_flow_exporters();
  size_t queue_bytes_max = 32u << 20;
};

class FlowReceivers {
 public:
  // subscriber: called by one thread until stop() has returned.
  // On error: one line; nothing listens.
  static Result<std::unique_ptr<FlowReceivers>> start(FlowReceiversOptions options, FlowSubscriber& subscriber,
                                                      const Clock& clock, Counters& counters);
  virtual ~FlowReceivers() = default;
  virtual void stop() = 0;
  virtual std::vector<std::string> sflow_addresses() const = 0;
  virtual std::vector<std::string> ipfix_addresses() const = 0;
};

}  // namespace lockstep
