// Any headers: no crash, and a refusal is one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/text.h"
#include "net/cross_site.h"
#include "net/http_server.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string_view> parts = split(text, '\n');
  ServerRequest request;
  request.method = parts.size() % 2 == 0 ? "GET" : "POST";
  static constexpr const char* kNames[] = {"host", "origin", "content-type", "sec-fetch-site"};
  for (size_t i = 0; i < parts.size() && i < 4; ++i) request.headers.emplace_back(kNames[i], std::string(parts[i]));
  const CrossSitePolicy policy{.hosts = {"a.example", ".b.example"},
                               .check_host = true,
                               .changes_state = [](const ServerRequest&) { return true; }};
  const std::optional<CrossSiteRefusal> refusal = cross_site_refusal(policy, request);
  if (refusal && (refusal->line.empty() || refusal->line.find('\n') != std::string::npos)) std::abort();
  return 0;
}
