// Every endpoint names who may ask for it, and what names nobody is not let in.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "api/routes.h"
#include "ingest/receiver_paths.h"
#include "net/server_ports.h"

namespace lockstep {
namespace {

Role role_of_path(std::string method, std::string path) {
  ServerRequest request;
  request.method = std::move(method);
  request.path = std::move(path);
  return role_of(request);
}

// A path that the pattern matches.
std::string path_of(const Route& route) {
  std::string path = route.pattern;
  for (const char* segment : {"{job}", "{rank}", "{step}", "{name}", "{capture}", "{file}"}) {
    if (size_t at = path.find(segment); at != std::string::npos) path.replace(at, std::string(segment).size(), "7");
  }
  return path;
}

TEST(Roles, EveryRouteIsAskedForUnderTheRoleOfItsRow) {
  for (const Route& route : routes()) {
    EXPECT_NE(route.role, Role::kUnset) << route.pattern;
    EXPECT_EQ(role_of_path(route.method, path_of(route)), route.role) << route.method << " " << route.pattern;
  }
}

TEST(Roles, WhatChangesSomethingNeedsMoreThanRead) {
  for (const Route& route : routes()) {
    if (!route.changes_state || route.role == Role::kAnyone) continue;
    if (std::string_view(route.pattern) == "/mcp") continue;  // each of its tools needs the role of what it asks for
    EXPECT_TRUE(route.role == Role::kOperate || route.role == Role::kAdmin) << route.pattern;
  }
}

TEST(Roles, AnyoneGetsThePageSignsInAndLearnsWhetherTheServerIsWellAndNothingElse) {
  std::string open;
  for (const Route& route : routes()) {
    if (route.role == Role::kAnyone) open += std::string(route.method) + " " + route.pattern + "\n";
  }
  EXPECT_EQ(open,
            "GET /api/session\nPOST /api/session\nGET /api/session/oidc\nGET /api/session/oidc/callback\n"
            "POST /api/session/end\nGET /healthz\nGET /readyz\n");
  for (const char* page : {"/", "/index.html", "/assets/app.js", "/jobs/llama-3.1", "/apis"})
    EXPECT_EQ(role_of_path("GET", page), Role::kAnyone) << page;
}

TEST(Roles, DataNeedsIngestWhicheverReceiverItComesToAndPortsAreToldToAnyone) {
  EXPECT_GE(receiver_paths().size(), 8u);
  for (const ReceiverPath& receiver : receiver_paths()) {
    const bool is_ports = receiver.path == kServerPortsPath || receiver.path == kServerPortsMethod;
    EXPECT_EQ(role_of_path(std::string(receiver.method), std::string(receiver.path)),
              is_ports ? Role::kAnyone : Role::kIngest)
        << receiver.path;
  }
}

TEST(Roles, WhatIsInNoTableNeedsReadSoThatNobodyLearnsWhatThereIs) {
  for (const char* path : {"/api", "/api/none", "/api/jobs/", "/prometheus/api/v1/none", "/tempo/x", "/jaeger/x"})
    EXPECT_EQ(role_of_path("GET", path), Role::kRead) << path;
  EXPECT_EQ(role_of_path("POST", "/anything"), Role::kRead);
  EXPECT_EQ(role_of_path("DELETE", "/"), Role::kRead);
  EXPECT_EQ(role_of_path("POST", "/other.Service/Method"), Role::kRead);
}

TEST(Roles, AWrongMethodNeedsTheRoleOfThePath) {
  EXPECT_EQ(role_of_path("GET", "/prometheus/api/v1/admin/tsdb/snapshot"), Role::kAdmin);
  EXPECT_EQ(role_of_path("DELETE", "/api/verdicts/v1/feedback"), Role::kOperate);
}

}  // namespace
}  // namespace lockstep
