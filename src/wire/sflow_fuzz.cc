// Any bytes as datagrams of sFlow: one clear line, or samples whose numbers can be.
#include <cstdlib>

#include "wire/sflow.h"
#include "wire/sflow_packet.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  static SflowDecoder decoder;
  static FlowReport report;
  static int64_t now_ns = 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  now_ns += 1'000'000'000'000;
  const Result<void> done = decoder.decode(bytes, now_ns, report);
  if (!done.ok() && (!report.flows.empty() || done.error().find('\n') != std::string::npos)) std::abort();
  if (decoder.agents() > SflowDecoder::kAgentsMax || report.flows.size() > SflowDecoder::kSamplesMax) std::abort();
  for (const FlowSample& flow : report.flows) {
    if (flow.packets == 0 || flow.bytes > flow.packets * SflowDecoder::kFrameBytesMax) std::abort();
    if (flow.key.queue_pair != kNoQueuePair && flow.key.queue_pair > 0xffffff) std::abort();
  }
  for (const PortCounters& port : report.ports) {
    if (!is_port(port.port)) std::abort();
    if (!port.name.empty() &&
        (port.name.data() < bytes.data() || port.name.data() + port.name.size() > bytes.data() + size))
      std::abort();
  }
  FlowSample sample;
  read_ethernet_packet(bytes, sample);
  read_ip_packet(bytes, sample);
  return 0;
}
