// gzip, zstd and snappy, both ways, with a bound on what comes out: a small request may not become a large one.
// Built with what the machine has; available() tells.
//
// On error: kTooLarge where more would come out than the bound allows, and only there.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/memory_budget.h"
#include "base/result.h"

namespace lockstep {

enum class Encoding { kIdentity, kGzip, kZstd };

bool available(Encoding encoding);
// "gzip", "zstd", "" or "identity"; anything else is an error that names what is understood.
Result<Encoding> parse_encoding(std::string_view content_encoding);
const char* to_text(Encoding encoding);

// kFewBytes: what an agent sends is small, and each byte of it is paid by a fleet: there a little more CPU is well
// spent. kFast: for who has many bodies and loopback. Both are zstd's matter alone.
enum class Effort { kFewBytes, kFast };
Result<std::string> compress(Encoding encoding, std::string_view data, Effort effort = Effort::kFewBytes);
// lease: where the memory for what comes out is taken from, here and below; its owner keeps it as long.
Result<std::string> decompress(Encoding encoding, std::string_view data, uint64_t bytes_max,
                               MemoryLease* lease = nullptr);

// gzip of what comes piece by piece, for files that are too large to be held. The same pieces or others: the same bytes
// come out, as long as it is the same zlib. Thread rule: Confined.
class GzipStream {
 public:
  GzipStream();
  ~GzipStream();
  // Appends what comes out to `out`. is_last: nothing follows; then all is out. An error: this build does without gzip.
  Result<void> add(std::string_view data, bool is_last, std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Snappy's block format, as remote write uses it. What comes out lies in `buffer`, which grows and is not cleared:
// filling it anew would cost as much as the rest of reading a request.
Result<std::string_view> snappy_decompress(std::string_view data, uint64_t bytes_max, std::string& buffer,
                                           MemoryLease* lease = nullptr);
Result<std::string> snappy_compress(std::string_view data);

}  // namespace lockstep
