// The fast way into columns against otlp::decode(): both take a request or neither does, with the same line, and the
// spans are the same.
#include <cstdio>
#include <cstdlib>

#include "ingest/otlp/span_decode.h"
#include "wire/otlp.h"

namespace {

using namespace lockstep;

// Groups without spans are no spans, and neighbours of one source are one group to us.
std::string comparable(const Batch& batch) {
  Batch joined;
  joined.signal = Signal::kSpans;
  std::string last;
  for (const ResourceGroup& group : batch.groups) {
    if (group.spans.empty()) continue;
    Batch head;
    head.signal = Signal::kSpans;
    head.groups.push_back({group.resource, group.scope_name, group.scope_version});
    const std::string key = otlp::encode(head);
    if (joined.groups.empty() || key != last) {
      joined.groups.push_back(group);
    } else {
      auto& spans = joined.groups.back().spans;
      spans.insert(spans.end(), group.spans.begin(), group.spans.end());
    }
    last = key;
  }
  return otlp::encode(joined);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Result<Batch> plain = otlp::decode(Signal::kSpans, bytes);
  Result<DecodedSpans> fast = decode_spans(bytes);
  if (plain.ok() != fast.ok() || (!plain.ok() && plain.error() != fast.error())) {
    std::fprintf(stderr, "otlp::decode: %s; decode_spans: %s\n", plain.ok() ? "yes" : plain.error().c_str(),
                 fast.ok() ? "yes" : fast.error().c_str());
    std::abort();
  }
  if (!plain.ok()) return 0;
  // Compared as bytes: NaN is equal to itself there.
  if (comparable(*plain) != comparable(spans::to_batch(fast->columns))) {
    std::fprintf(stderr, "read differently\n");
    std::abort();
  }
  return 0;
}
