// Any bytes as a key set, a signed token, the claims of one, and the configuration: one line or a value, never more.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "access/jwt.h"
#include "access/oidc.h"
#include "base/base64.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\n');
  const std::string_view first = text.substr(0, cut);
  const std::string_view rest = cut == std::string_view::npos ? std::string_view() : text.substr(cut + 1);
  if (const Result<JwkSet> keys = JwkSet::parse(first); keys.ok()) (void)keys->verify(rest);
  (void)check_id_token(first, {"i", "c", "n", 1500});
  (void)parse_oidc_config(text);
  if (const auto bytes = decode_base64url(first); bytes && base64url(*bytes) != first) __builtin_trap();
  return 0;
}
