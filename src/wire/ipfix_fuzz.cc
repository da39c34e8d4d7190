// Any bytes as datagrams of IPFIX and NetFlow 9, one after the other, so that templates meet records: one clear line, or
// flows within bounds.
#include <algorithm>
#include <cstdlib>

#include "wire/ipfix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  IpfixDecoder decoder;
  FlowReport report;
  const IpAddress from = ip_of_v4("\x0a\x00\x00\x01");
  int64_t now_ns = 1;
  for (size_t at = 0; at + 2 <= size;) {
    const size_t length = std::min(size - at - 2, data[at] | static_cast<size_t>(data[at + 1]) << 8);
    const std::string_view bytes(reinterpret_cast<const char*>(data) + at + 2, length);
    at += 2 + length;
    now_ns += 60'000'000'000;
    const Result<void> done = decoder.decode(from, bytes, now_ns, report);
    if (!done.ok() && (!report.flows.empty() || done.error().find('\n') != std::string::npos)) std::abort();
    if (report.flows.size() > 2 * IpfixDecoder::kRecordsMax) std::abort();
    if (decoder.templates() > decoder.domains() * IpfixDecoder::kTemplatesMax) std::abort();
    for (const FlowSample& flow : report.flows) {
      for (const std::string_view name : {flow.in_name, flow.out_name}) {
        if (!name.empty() && (name.data() < bytes.data() || name.data() + name.size() > bytes.data() + bytes.size()))
          std::abort();
      }
    }
  }
  return 0;
}
