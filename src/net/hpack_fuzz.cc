// Feeds hostile header blocks to the decoder, several on one connection: its limits must hold, and what it accepts must
// come through our own encoder unchanged.
#include <algorithm>
#include <cstdlib>

#include "net/hpack.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  constexpr size_t kListBytesMax = 4096;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  HpackDecoder decoder(kListBytesMax);
  while (!rest.empty()) {
    const size_t length = std::min<size_t>(static_cast<uint8_t>(rest.front()), rest.size() - 1);
    Result<HeaderList> headers = decoder.decode(rest.substr(1, length));
    rest.remove_prefix(1 + length);
    if (decoder.table_bytes() > kHpackTableBytesMax) std::abort();
    if (!headers.ok()) return 0;
    size_t bytes = 0;
    for (const auto& [name, value] : *headers) bytes += name.size() + value.size() + 32;
    if (bytes > kListBytesMax) std::abort();
    Result<HeaderList> again = HpackDecoder(kListBytesMax).decode(hpack_encode(*headers));
    if (!again.ok() || *again != *headers) std::abort();
  }
  return 0;
}
