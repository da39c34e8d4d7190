// read_manifest and read_listing: any bytes give a manifest whose names stay below their folder, or one line; what was
// read, written again, reads the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "backup/manifest.h"

namespace {

using namespace lockstep;
using namespace lockstep::backup;

void check(const Result<Manifest>& manifest) {
  if (!manifest.ok()) {
    if (manifest.error().find('\n') != std::string::npos) std::abort();
    return;
  }
  for (const File& file : manifest->files) {
    if (!is_safe_name(file.name)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check(read_listing(bytes));
  check(read_manifest(bytes));
  // The checksum would keep a fuzzer out: what is behind it is read too.
  std::string text(bytes.substr(0, bytes.find('\n')));
  text += '\n';
  const Result<Manifest> manifest = read_manifest(text + "sha256 " + sha256_hex(text) + "\n");
  check(manifest);
  if (!manifest.ok()) return 0;
  const std::string once = write_manifest(*manifest);
  const Result<Manifest> again = read_manifest(once);
  if (!again.ok() || write_manifest(*again) != once) std::abort();
  return 0;
}
