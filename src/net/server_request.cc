// The parts of a request that need no server: header lookup, query parameters, admission.
#include "net/server_request.h"

#include <algorithm>

#include "base/text.h"
#include "net/http_server.h"

namespace lockstep {
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string part(text);
  if (plus_is_space) std::replace(part.begin(), part.end(), '+', ' ');
  std::optional<std::string> decoded = from_url_part(part);
  // No path or parameter of ours has a NUL in it; what takes one as the end of a string must not be fooled.
  if (decoded && decoded->find('\0') != std::string::npos) return std::nullopt;
  return decoded;
}

Admission admitted_by(Gatekeeper* gatekeeper, const ServerRequest& head, const PeerCertificate& peer) {
  if (gatekeeper == nullptr) return {.caller = {.roles = ~0u, .tenants = {"*"}}};
  return gatekeeper->admit(head, peer);
}

const char* refusal_reason(const Admission& refusal) {
  switch (refusal.refused) {
    case 401:
      return "unauthenticated";
    case 429:
      return "throttled";
    default:
      return "forbidden";
  }
}

void remove_credentials(ServerRequest& request) {
  std::erase_if(request.headers, [](const auto& header) {
    return header.first == "authorization" || header.first == "proxy-authorization" || header.first == "cookie";
  });
}

std::string_view ServerRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string ServerRequest::parameter(std::string_view name) const {
  std::string_view rest = query;
  while (!rest.empty()) {
    size_t end = std::min(rest.find('&'), rest.size());
    std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    size_t equals = std::min(item.find('='), item.size());
    std::optional<std::string> key = percent_decode(item.substr(0, equals), true);
    if (!key || *key != name) continue;
    return percent_decode(item.substr(std::min(equals + 1, item.size())), true).value_or("");
  }
  return {};
}

}  // namespace lockstep
