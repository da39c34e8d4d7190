// Any bytes: decompression ends without a crash and within its limit; compression gives back what went in.
#include <cstdlib>

#include "wire/compression.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  constexpr uint64_t kLimit = 1 << 20;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (Encoding encoding : {Encoding::kGzip, Encoding::kZstd}) {
    if (!available(encoding)) continue;
    Result<std::string> out = decompress(encoding, bytes, kLimit);
    if (out.ok() && out->size() > kLimit) std::abort();
    if (!out.ok() && (out.error().empty() || out.error().find('\n') != std::string::npos)) std::abort();
    Result<std::string> small = compress(encoding, bytes);
    if (!small.ok()) std::abort();
    Result<std::string> back = decompress(encoding, *small, size);
    if (!back.ok() || *back != bytes) std::abort();
  }
  static std::string buffer;
  Result<std::string_view> plain = snappy_decompress(bytes, kLimit, buffer);
  if ((plain.ok() && plain->size() > kLimit) || buffer.size() > kLimit) std::abort();
  Result<std::string> small = snappy_compress(bytes);
  if (!small.ok() || size > kLimit || *snappy_decompress(*small, kLimit, buffer) != bytes) std::abort();
  (void)parse_encoding(bytes);
  return 0;
}
