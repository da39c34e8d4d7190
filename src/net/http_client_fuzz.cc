// Feeds a hostile answer to the parser, whole and in pieces: both must agree, and the body must keep its limit.
#include <cstdlib>

#include "net/http_response.h"

namespace {

constexpr uint64_t kBodyBytesMax = 4096;

// "" while unfinished, the body when done, the error otherwise.
std::string outcome(std::string_view bytes, size_t piece, bool head_request, bool cuts) {
  lockstep::HttpResponseParser parser(head_request, kBodyBytesMax, cuts);
  for (size_t at = 0; at < bytes.size() && !parser.done(); at += piece) {
    lockstep::Result<void> fed = parser.feed(bytes.substr(at, piece));
    if (!fed) return "error";
  }
  if (!parser.done() && !parser.end_of_stream()) return "cut";
  lockstep::HttpResponse response = parser.take();
  if (response.body.size() > kBodyBytesMax || response.status < 200 || response.status > 999) std::abort();
  return std::to_string(response.status) + response.body;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const bool head_request = (data[0] & 1) != 0, cuts = (data[0] & 2) != 0;
  size_t piece = 1 + data[1];
  if (outcome(bytes, bytes.size() + 1, head_request, cuts) != outcome(bytes, piece, head_request, cuts)) std::abort();
  return 0;
}
