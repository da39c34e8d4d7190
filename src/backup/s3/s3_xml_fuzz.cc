// read_list_page and refusal_code: any bytes give a page whose objects have names, or one line; a page that goes on says
// where.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "backup/s3/s3_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<backup::ListPage> page = backup::read_list_page(bytes);
  if (!page.ok() && page.error().find('\n') != std::string::npos) std::abort();
  if (page.ok()) {
    for (const backup::Objects::Entry& entry : page->entries) {
      if (entry.name.empty()) std::abort();
    }
    if (bytes.find("IsTruncated") == std::string_view::npos) std::abort();
  }
  const std::string code = backup::refusal_code(bytes);
  if (code.size() > 64 || code.find_first_of(" \n<&") != std::string::npos) std::abort();
  return 0;
}
