// Any Authorization and Cookie headers: whatever is taken for a secret can be compared, logged nowhere, and is short.
#include <cstdlib>

#include "access/credentials.h"
#include "net/http_server.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  ServerRequest request;
  if (!input.empty()) request.headers.emplace_back("authorization", input.substr(0, cut));
  if (cut != std::string_view::npos) {
    request.headers.emplace_back("cookie", input.substr(cut + 1));
    if (cut == 0) request.headers.erase(request.headers.begin());
  }
  const Credentials shown = read_credentials(request);
  const bool has_secret = shown.kind == CredentialKind::kToken || shown.kind == CredentialKind::kSession;
  if (has_secret != !shown.secret.empty() || shown.secret.size() > kTokenBytesMax) std::abort();
  for (const char c : shown.secret) {
    if (c <= ' ' || c > '~') std::abort();
  }
  return 0;
}
