#include "net/cross_site.h"

#include <gtest/gtest.h>

#include "net/http_server.h"

namespace lockstep {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

CrossSitePolicy policy() {
  return {.hosts = {"Lockstep.example.com", ".corp.example"},
          .check_host = true,
          .changes_state = [](const ServerRequest& request) { return request.path == "/change"; }};
}

std::string reason(const std::string& method, const std::string& path, Headers headers,
                   const CrossSitePolicy& by = policy()) {
  ServerRequest request;
  request.method = method;
  request.path = path;
  request.headers = std::move(headers);
  const std::optional<CrossSiteRefusal> refusal = cross_site_refusal(by, request);
  return refusal ? refusal->reason : "";
}

TEST(CrossSite, AServerIsAskedByItsNamesAndByAnyAddress) {
  for (const char* host : {"localhost:7070", "LOCALHOST", "a.localhost:1", "127.0.0.1:7070", "[::1]:7070", "10.1.2.3",
                           "lockstep.example.com", "lockstep.example.com.:7070", "a.b.corp.example"}) {
    EXPECT_EQ(reason("GET", "/", {{"host", host}}), "") << host;
  }
  for (const char* host : {"evil.example", "evil.example:7070", "127.0.0.1.evil.example", "localhost.evil.example",
                           "xlockstep.example.com", "corp.example", "a b", "::1]", "127.0.0.1x"}) {
    EXPECT_EQ(reason("GET", "/", {{"host", host}}), "foreign_host") << host;
  }
  EXPECT_EQ(reason("GET", "/", {}), "");  // no browser's
}

TEST(CrossSite, WhereAgentsAskByAnyNameOnlyBrowsersAreHeldToThem) {
  CrossSitePolicy open = policy();
  open.check_host = false;
  EXPECT_EQ(reason("POST", "/v1/logs", {{"host", "otlp.svc.cluster.local"}}, open), "");
  EXPECT_EQ(reason("POST", "/v1/logs", {{"host", "evil.example"}, {"origin", "http://evil.example"}}, open),
            "foreign_host");
  EXPECT_EQ(reason("GET", "/v1/logs", {{"host", "evil.example"}, {"accept-language", "en"}}, open), "foreign_host");
}

TEST(CrossSite, APageOfAnotherOriginIsRefusedWhateverItsMethod) {
  for (const char* method : {"GET", "POST"}) {
    for (const char* origin : {"http://evil.example", "null", "https://evil.example:7070", "http://localhost:3000",
                               "http://localhost", "http://127.0.0.1:7070"}) {
      EXPECT_EQ(reason(method, "/read", {{"host", "localhost:7070"}, {"origin", origin}}), "cross_site") << origin;
    }
    EXPECT_EQ(reason(method, "/read", {{"host", "localhost:7070"}, {"origin", "http://localhost:7070"}}), "");
    // Behind a proxy that ends TLS, and by a name that was allowed.
    EXPECT_EQ(reason(method, "/read", {{"host", "127.0.0.1:7070"}, {"origin", "https://lockstep.example.com"}}), "");
    EXPECT_EQ(reason(method, "/read", {{"host", "10.1.2.3"}, {"origin", "http://10.1.2.3:80"}}), "");
    EXPECT_EQ(reason(method, "/read", {{"host", "10.1.2.3:443"}, {"origin", "https://10.1.2.3"}}), "");
  }
}

TEST(CrossSite, ALinkFromAnywhereOpensAPageButAFormFromAnywhereSendsNothing) {
  const Headers from_elsewhere = {{"host", "localhost:7070"}, {"sec-fetch-site", "cross-site"}};
  EXPECT_EQ(reason("GET", "/", from_elsewhere), "");
  EXPECT_EQ(reason("POST", "/read", from_elsewhere), "cross_site");
  EXPECT_EQ(reason("POST", "/read", {{"host", "localhost:7070"}, {"sec-fetch-site", "same-site"}}), "cross_site");
}

TEST(CrossSite, WhatChangesSomethingNeedsWhatNoFormCanSend) {
  const std::pair<std::string, std::string> host = {"host", "localhost:7070"};
  for (const char* type : {"", "text/plain", "Text/Plain; charset=utf-8", "application/x-www-form-urlencoded",
                           "multipart/form-data; boundary=x"}) {
    EXPECT_EQ(reason("POST", "/change", {host, {"content-type", type}}), "cross_site") << type;
    EXPECT_EQ(reason("POST", "/read", {host, {"content-type", type}}), "") << type;
    EXPECT_EQ(reason("POST", "/change", {host, {"content-type", type}, {"x-lockstep", "1"}}), "") << type;
    EXPECT_EQ(reason("POST", "/change", {host, {"content-type", type}, {"origin", "http://localhost:7070"}}), "");
    EXPECT_EQ(reason("POST", "/change", {host, {"content-type", type}, {"sec-fetch-site", "same-origin"}}), "");
  }
  EXPECT_EQ(reason("POST", "/change", {host, {"content-type", "application/json"}}), "");
  EXPECT_EQ(reason("GET", "/change", {host}), "cross_site");  // an image would do
}

}  // namespace
}  // namespace lockstep
