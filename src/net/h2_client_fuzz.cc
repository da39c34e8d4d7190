// Feeds a hostile server's bytes to the client's half of a connection, whole and in pieces: both must come to the same
// end, limits hold, and what we would write stays bounded.
#include <algorithm>
#include <cstdlib>

#include "net/h2_client.h"

namespace {

constexpr uint64_t kAnswerBytesMax = 4096;

std::string outcome(std::string_view bytes, size_t piece, size_t body_bytes) {
  using namespace lockstep;
  H2Client client;
  client.start({{":method", "POST"}, {":path", "/a.B/C"}}, std::string(body_bytes, 'b'), kAnswerBytesMax);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const bool fed = client.feed(bytes.substr(at, piece)).ok();
    if (client.unsent().size() > H2Client::kUnsentBytesMax + 256 * 1024) std::abort();
    if (!fed) return "broken";
  }
  std::string reported;
  if (client.done()) {
    H2Response answer = client.take();
    if (answer.body.size() > kAnswerBytesMax) std::abort();
    reported += answer.body + std::to_string(answer.headers.size()) + "," + std::to_string(answer.trailers.size()) +
                "," + std::to_string(answer.reset_code);
  }
  return reported + (client.usable() ? "usable" : "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  // A server greets with SETTINGS; without that nothing else is looked at.
  static constexpr char kSettings[] = "\0\0\0\4\0\0\0\0\0";
  std::string bytes((data[0] & 1) != 0 ? std::string(kSettings, 9) : std::string());
  bytes.append(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t body_bytes = (data[0] & 2) != 0 ? 200'000 : 10;
  if (outcome(bytes, bytes.size() + 1, body_bytes) != outcome(bytes, 1 + data[1], body_bytes)) std::abort();
  return 0;
}
