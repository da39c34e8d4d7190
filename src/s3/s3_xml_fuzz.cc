// The answers of S3: any bytes give a page whose objects, uploads and parts have names, or one line; a page that goes on
// says where.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "s3/s3_xml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<s3::ListPage> page = s3::read_list_page(bytes);
  if (!page.ok() && page.error().find('\n') != std::string::npos) std::abort();
  if (page.ok()) {
    for (const s3::ListEntry& entry : page->entries) {
      if (entry.name.empty()) std::abort();
    }
    if (bytes.find("IsTruncated") == std::string_view::npos) std::abort();
  }
  if (const Result<s3::UploadsPage> uploads = s3::read_uploads_page(bytes); uploads.ok()) {
    for (const s3::UploadEntry& entry : uploads->uploads) {
      if (entry.name.empty() || entry.id.empty() || entry.begun_unix_s < 0) std::abort();
    }
  }
  if (const Result<s3::PartsPage> parts = s3::read_parts_page(bytes); parts.ok()) {
    for (const s3::PartEntry& entry : parts->parts) {
      if (entry.number == 0 || entry.etag.empty()) std::abort();
    }
  }
  if (const Result<std::string> id = s3::read_upload_id(bytes); id.ok() && id->empty()) std::abort();
  if (s3::is_completed(bytes) && bytes.find("CompleteMultipartUploadResult") == std::string_view::npos) std::abort();
  const std::string code = s3::refusal_code(bytes);
  if (code.size() > 64 || code.find_first_of(" \n<&") != std::string::npos) std::abort();
  return 0;
}
