// Which requests are refused because a web page of somebody else may have sent them from a user's browser. A browser
// lets any page send simple requests to any address its user reaches, and a page whose name is made to point here (DNS
// rebinding) even reads the answers. Nobody logs in to Lockstep, so nothing else stands between such a page and the
// server.
//
// Refused (403, one line):
//   - a Host that is not a name of this server. Names are `hosts`, localhost and *.localhost; an address in digits is
//     always one, since it cannot be made to point elsewhere. Where check_host is false (receivers that agents reach by
//     whatever name their site gave them) only requests of browsers are held to it;
//   - an Origin that is neither the Host asked for nor of one of `hosts`, whatever the method;
//   - Sec-Fetch-Site cross-site or same-site, but for GET, HEAD and OPTIONS: a link leads here from anywhere;
//   - a request that changes something (changes_state) and could have been sent by a form or an image: it needs an
//     Origin or Sec-Fetch-Site of our own, a content type that forms cannot have, or the header X-Lockstep. Browsers
//     ask before they send these across sites, and are never told yes: there are no CORS headers here.
// HTTP/2 without TLS no browser speaks; where gRPC has a gatekeeper its calls are held to the same.
// Thread rule: Thread-safe (no state).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ServerRequest;

struct CrossSitePolicy {
  // Names without a port: "lockstep.example.com"; ".example.com": every name that ends so; "*": all.
  std::vector<std::string> hosts;
  bool check_host = false;
  std::function<bool(const ServerRequest&)> changes_state = {};  // empty: none does
};

struct CrossSiteRefusal {
  const char* reason;  // foreign_host, cross_site
  std::string line;
};
std::optional<CrossSiteRefusal> cross_site_refusal(const CrossSitePolicy& policy, const ServerRequest& request);

// "Example.com.:7070" is "example.com", "[::1]:80" is "::1".
std::string host_of_authority(std::string_view authority);

}  // namespace lockstep
