// Any bytes as what agents and the server say of an upload: refused with one line, or the same when written again.
#include <cstdlib>

#include "base/text.h"
#include "wire/uploads.h"

namespace {

using namespace lockstep;

template <typename Body>
void look(Result<Body> (*parse)(std::string_view), std::string_view text) {
  const Result<Body> read = parse(text);
  if (!read.ok()) {
    if (read.error().find('\n') != std::string::npos) std::abort();
    return;
  }
  const std::string written = encode(*read);
  if (written.size() > kUploadBodyBytesMax) return;  // escapes are longer than what they stand for
  const Result<Body> again = parse(written);
  // Text that is no UTF-8 is written with U+FFFD in its place.
  if (is_utf8(text) && (!again.ok() || !(*again == *read))) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  look<UploadBegin>(parse_upload_begin, text);
  look<UploadBegun>(parse_upload_begun, text);
  look<UploadFinish>(parse_upload_finish, text);
  look<UploadFinished>(parse_upload_finished, text);
  return 0;
}
