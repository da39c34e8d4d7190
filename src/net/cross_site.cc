#include "net/cross_site.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/characters.h"
#include "base/text.h"
#include "net/http_server.h"

namespace lockstep {
namespace {

bool is_address(const std::string& host) {
  in6_addr parsed{};  // room for either
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 || inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

bool is_listed(const CrossSitePolicy& policy, const std::string& host) {
  return std::any_of(policy.hosts.begin(), policy.hosts.end(), [&](const std::string& written) {
    const std::string name = lower_case(written);
    return name == "*" || name == host || (name.size() > 1 && name.front() == '.' && host.ends_with(name));
  });
}

bool is_ours(const CrossSitePolicy& policy, const std::string& host) {
  return host == "localhost" || host.ends_with(".localhost") || is_address(host) || is_listed(policy, host);
}

// "http://Name:80" is "name"; what has no scheme ("null") is itself.
std::string authority_of_origin(std::string_view origin) {
  std::string text = lower_case(trim(origin));
  for (const auto& [scheme, port] : {std::pair<std::string_view, std::string_view>{"http://", ":80"},
                                     std::pair<std::string_view, std::string_view>{"https://", ":443"}}) {
    if (!text.starts_with(scheme)) continue;
    text.erase(0, scheme.size());
    if (text.ends_with(port)) text.resize(text.size() - port.size());
    break;
  }
  return text;
}

// What a page can send without asking first: no content type, or one of a form.
bool is_simple(std::string_view content_type) {
  const std::string type = lower_case(trim(content_type.substr(0, content_type.find(';'))));
  return type.empty() || type == "text/plain" || type == "application/x-www-form-urlencoded" ||
         type == "multipart/form-data";
}

// Every browser sends one of these, and no page can prevent it.
bool is_of_browser(const ServerRequest& request) {
  for (const char* name : {"origin", "sec-fetch-site", "sec-fetch-mode", "accept-language", "referer"}) {
    if (!request.header(name).empty()) return true;
  }
  return false;
}

}  // namespace

std::string host_of_authority(std::string_view authority) {
  std::string host = lower_case(trim(authority));
  if (host.starts_with("[")) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host.resize(std::min(host.find(':'), host.size()));
  }
  if (host.ends_with(".")) host.pop_back();
  return host;
}

std::optional<CrossSiteRefusal> cross_site_refusal(const CrossSitePolicy& policy, const ServerRequest& request) {
  const std::string_view host_header = request.header("host");
  const std::string_view origin = request.header("origin");
  const std::string site = lower_case(trim(request.header("sec-fetch-site")));
  // Without a Host it is no browser's.
  if (!host_header.empty() && (policy.check_host || is_of_browser(request))) {
    const std::string host = host_of_authority(host_header);
    if (!is_ours(policy, host)) {
      return CrossSiteRefusal{"foreign_host", format("host \"%.100s\" is not a name of this server: ask for it by its "
                                                     "address, or start it with --allowed-host and that name",
                                                     as_one_line(host).c_str())};
    }
  }
  bool is_own_page = site == "same-origin" || site == "none";
  if (!origin.empty()) {
    std::string asked = lower_case(trim(host_header));
    const std::string from = authority_of_origin(origin);
    if (asked.ends_with(":80") && asked.size() == from.size() + 3) asked.resize(asked.size() - 3);
    if (asked.ends_with(":443") && asked.size() == from.size() + 4) asked.resize(asked.size() - 4);
    if (from != asked && !is_listed(policy, host_of_authority(from))) {
      return CrossSiteRefusal{"cross_site",
                              format("a page of \"%.100s\" may not send requests here; where that is this "
                                     "server's own name, start it with --allowed-host and that name",
                                     as_one_line(origin).c_str())};
    }
    is_own_page = true;
  }
  const bool only_reads = request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS";
  if (!only_reads && (site == "cross-site" || (site == "same-site" && origin.empty())))
    return CrossSiteRefusal{"cross_site", "a page of another site may not send requests here (Sec-Fetch-Site)"};
  if (!is_own_page && policy.changes_state && policy.changes_state(request) &&
      is_simple(request.header("content-type")) && request.header("x-lockstep").empty()) {
    return CrossSiteRefusal{
        "cross_site", "this changes something, and any web page could have sent it: add the header X-Lockstep: 1"};
  }
  return std::nullopt;
}

}  // namespace lockstep
