#include "fabric/flows/table_observer.h"

#include <map>
#include <tuple>

namespace lockstep {

std::vector<fabric::ObservedPort> TableObserver::observed_ports(const FlowKey& flow, int64_t from_unix_ns,
                                                                int64_t to_unix_ns) const {
  std::vector<FlowSighting> seen;
  if (flow.protocol != 0 && flow.source_port != 0 && flow.destination_port != 0) {
    seen = flows_.crossed(flow, from_unix_ns, to_unix_ns);
  } else {
    constexpr size_t kSightingsMax = 10'000;
    seen = flows_
               .find({.source = IpPrefix{flow.source, 128},
                      .destination = IpPrefix{flow.destination, 128},
                      .protocol = flow.protocol,
                      .source_port = flow.source_port,
                      .destination_port = flow.destination_port,
                      .from_unix_ns = from_unix_ns,
                      .to_unix_ns = to_unix_ns},
                     kSightingsMax)
               .flows;
  }
  std::map<std::tuple<std::string, std::string, bool>, uint64_t> samples;
  for (const FlowSighting& one : seen) {
    if (is_port(one.in_number)) samples[{one.switch_name, one.in_port, false}] += one.samples;
    if (is_port(one.out_number)) samples[{one.switch_name, one.out_port, true}] += one.samples;
  }
  std::vector<fabric::ObservedPort> ports;
  ports.reserve(samples.size());
  for (const auto& [place, count] : samples)
    ports.push_back({std::get<0>(place), std::get<1>(place), std::get<2>(place), count});
  return ports;
}

}  // namespace lockstep
