// The Model Context Protocol against a filled store. Requests go straight into answer(): no sockets.
#include <gtest/gtest.h>

#include "access/access_counters.h"
#include "access/audit_log.h"
#include "access/role.h"
#include "api/mcp/bounded_json.h"
#include "api/mcp/mcp_message.h"
#include "api/mcp/mcp_tools.h"
#include "api/routes.h"
#include "base/text.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct OneVerdict final : VerdictSource {
  std::vector<Verdict> verdicts(std::string_view) const override {
    Verdict verdict;
    verdict.id = "v1";
    verdict.job_id = "llama";
    verdict.state = VerdictState::kConfirmed;
    verdict.sentence = "Rank 2 is slow.";
    return {verdict};
  }
  std::string summary(std::string_view) const override { return "1 verdict."; }
  std::vector<EarlyWarning> warnings() const override { return {}; }
};

class McpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(state.ok());
    state_ = std::move(*state);
    audit_.emplace(*state_, clock_, access_counters_);
    for (Rank rank : all_ranks(4)) {
      StepSummary summary;
      summary.step = 7_step;
      summary.duration_ns = 100'000'000;
      steps_.append_step({"llama", 0, rank, 4, 0, "node-0", format("GPU-%d", rank.value())}, summary, clock_.unix_ns());
    }
    agents_.seen("node-0", clock_.unix_ns(), 0);
  }

  HttpResponse post(const std::string& body, std::vector<std::pair<std::string, std::string>> headers = {}) {
    ApiContext context{steps_, spans_, traces_, metrics_, *state_, agents_, source_, counters_, clock_, ready_, ""};
    context.audit = &*audit_;
    ServerRequest request{.method = "POST", .path = "/mcp", .query = "", .headers = std::move(headers), .body = body};
    request.headers.emplace_back("content-type", "application/json");
    request.caller = caller_;
    request.peer = "203.0.113.9:5123";
    return answer(context, request);
  }
  // As a client with a handshake calls.
  HttpResponse request(const std::string& method, const std::string& params = "{}") {
    return post(R"({"jsonrpc":"2.0","id":1,"method":")" + method + R"(","params":)" + params + "}");
  }
  HttpResponse call(const std::string& tool, const std::string& arguments = "{}") {
    return request("tools/call", R"({"name":")" + tool + R"(","arguments":)" + arguments + "}");
  }
  // As one without a handshake does.
  HttpResponse stateless(const std::string& method, const std::string& more = "",
                         std::vector<std::pair<std::string, std::string>> headers = {}) {
    if (headers.empty()) headers = {{"mcp-protocol-version", "2026-07-28"}, {"mcp-method", method}};
    return post(R"({"jsonrpc":"2.0","id":"a","method":")" + method +
                    R"(","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",)" +
                    R"("io.modelcontextprotocol/clientCapabilities":{}})" + more + "}}",
                headers);
  }
  static bool has(const HttpResponse& response, std::string_view part) {
    return response.body.find(part) != std::string::npos;
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{1'000'000'000'000};
  Counters counters_{kStoreCounters};
  Counters access_counters_{kAccessCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  StepTraceCache traces_{steps_, spans_, clock_};
  MemoryMetricReader metrics_;
  std::unique_ptr<StateStore> state_;
  std::optional<AuditLog> audit_;
  AgentRegistry agents_;
  OneVerdict source_;
  std::atomic<bool> ready_{true};
  Caller caller_{.name = "token 3f9a1c (reader)", .roles = roles_of(Role::kRead)};
};

TEST_F(McpTest, AHandshakeAgreesOnAVersionThatBothSpeak) {
  for (const auto& [asked, agreed] : {std::pair{"2025-06-18", "2025-06-18"},
                                      {"2025-11-25", "2025-11-25"},
                                      {"2024-11-05", "2025-11-25"},
                                      {"2026-07-28", "2025-11-25"}}) {
    const HttpResponse response =
        request("initialize", format(R"({"protocolVersion":"%s","capabilities":{},"clientInfo":{}})", asked));
    EXPECT_EQ(response.status, 200);
    EXPECT_TRUE(has(response, format(R"("protocolVersion":"%s")", agreed))) << response.body;
    EXPECT_TRUE(response.header("mcp-session-id").empty());
  }
  EXPECT_EQ(post(R"({"jsonrpc":"2.0","method":"notifications/initialized"})").status, 202);
  EXPECT_TRUE(has(request("ping"), R"("result":{})"));
}

TEST_F(McpTest, WithoutAHandshakeEveryRequestSaysItsVersion) {
  const HttpResponse found = stateless("server/discover");
  EXPECT_EQ(found.status, 200);
  EXPECT_TRUE(has(found, R"("supportedVersions":["2026-07-28","2025-11-25","2025-06-18"])")) << found.body;
  EXPECT_TRUE(has(found, R"("resultType":"complete")"));
  EXPECT_TRUE(has(found, R"("id":"a")"));
  EXPECT_EQ(stateless("ping").status, 404);
  const HttpResponse unlike =
      stateless("tools/list", "", {{"mcp-protocol-version", "2026-07-28"}, {"mcp-method", "ping"}});
  EXPECT_EQ(unlike.status, 400);
  EXPECT_TRUE(has(unlike, "-32020")) << unlike.body;
  const HttpResponse bare = post(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})",
                                 {{"mcp-protocol-version", "2026-07-28"}, {"mcp-method", "tools/list"}});
  EXPECT_EQ(bare.status, 400);
  EXPECT_TRUE(has(bare, "-32602")) << bare.body;
}

TEST_F(McpTest, AVersionThatIsNotSpokenIsToldWhichAre) {
  const HttpResponse response =
      post(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})", {{"mcp-protocol-version", "2031-01-01"}});
  EXPECT_EQ(response.status, 400);
  EXPECT_TRUE(has(response, "-32022") && has(response, R"("supported":["2026-07-28")") &&
              has(response, R"("requested":"2031-01-01")"))
      << response.body;
}

TEST_F(McpTest, WhyIsTheSentenceAndWhatTheApiSays) {
  const HttpResponse response = call("why", R"({"job":"llama"})");
  EXPECT_TRUE(has(response, "1 verdict.\\nRank 2 is slow.")) << response.body;
  EXPECT_TRUE(has(response, R"(\"state\":\"confirmed\")"));
  EXPECT_TRUE(has(response, R"("isError":false)"));
}

TEST_F(McpTest, ToolsAnswerWithTheLineOfTheApiWhereItRefuses) {
  for (const auto& [tool, arguments, line] :
       {std::tuple{"why", R"({"job":"none"})", "none"},
        {"why", "{}", "job is missing"},
        {"why", R"({"job":"llama","x":1})", "why does not take"},
        {"jobs", R"({"limit":"many"})", "whole number from 1 to 200"},
        {"query", R"({"query":"sum("})", "parse error"},
        {"query", R"({"query":"up","start":"1"})", "belong together"},
        {"node", R"({"host":"nowhere"})", "no node \\\"nowhere\\\" is known"},
        {"step", R"({"job":"llama","step":"7/detail"})", "whole number, or latest"}}) {
    const HttpResponse response = call(tool, arguments);
    EXPECT_EQ(response.status, 200);
    EXPECT_TRUE(has(response, line)) << tool << " " << arguments << ": " << response.body;
    EXPECT_TRUE(has(response, R"("isError":true)")) << tool << " " << arguments;
  }
  EXPECT_TRUE(has(call("delete_everything"), "-32602"));
}

TEST_F(McpTest, ANodeIsWhatItsPageSaysAndItsMetrics) {
  const HttpResponse response = call("node", R"({"host":"node-0"})");
  EXPECT_TRUE(has(response, R"(\"node\":{\"host\":\"node-0\",\"state\":\"ok\")")) << response.body;
  EXPECT_TRUE(has(response, R"(\"verdicts_total\":0)") && has(response, R"(\"ranks_total\":4)")) << response.body;
  EXPECT_TRUE(has(response, "SM clock of each GPU"));
}

TEST_F(McpTest, EvidenceReadsWhatAClaimAsksForAndNothingElse) {
  EXPECT_TRUE(has(call("evidence", R"({"query":"/api/jobs/llama/ranks?last=10"})"), R"("isError":false)"));
  caller_.roles = roles_of(Role::kAdmin);
  for (const char* query : {"/api/tokens", "/api/audit", "/api/session", "/api/backup/file?id=1", "/metrics", "/mcp",
                            "/api/jobs/llama/../../tokens", "//api/jobs", "http://other/api/jobs", "/api/%00", "%zz"}) {
    const HttpResponse response = call("evidence", format(R"({"query":"%s"})", query));
    EXPECT_TRUE(has(response, R"("isError":true)")) << query << ": " << response.body;
  }
}

TEST_F(McpTest, WhatWritesIsForTokensThatMayOperateAndIsInTheAuditLog) {
  const char* order = R"({"job":"llama"})";
  EXPECT_FALSE(has(request("tools/list"), "order_profile"));
  EXPECT_TRUE(has(call("order_profile", order), "needs the role operate"));
  caller_ = {.name = "", .roles = kAllRoles};  // a server on loopback that lets anybody in
  EXPECT_FALSE(has(request("tools/list"), "order_profile"));
  EXPECT_TRUE(has(call("order_profile", order), "needs a token"));
  EXPECT_TRUE(audit_->read({.all_tenants = true})->empty());
  caller_ = {.name = "token 77 (operator)", .roles = roles_of(Role::kOperate)};
  EXPECT_TRUE(has(request("tools/list"), "order_profile"));
  EXPECT_TRUE(has(call("order_profile", order), "takes no kernel profiles"));
  const std::vector<AuditRow> rows = *audit_->read({.all_tenants = true});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].action, "POST /api/jobs/{job}/profiles");
  EXPECT_EQ(rows[0].object, "job llama");
  EXPECT_EQ(rows[0].who, "token 77 (operator)");
}

TEST_F(McpTest, WhatIsNoMessageIsRefusedWithOneLine) {
  for (const auto& [body, code] : {std::pair{"", "-32700"},
                                   {"{", "-32700"},
                                   {"[]", "-32600"},
                                   {"7", "-32600"},
                                   {R"({"jsonrpc":"1.0","id":1,"method":"ping"})", "-32600"},
                                   {R"({"jsonrpc":"2.0","id":1})", "-32600"},
                                   {R"({"jsonrpc":"2.0","id":null,"method":"ping"})", "-32600"},
                                   {R"({"jsonrpc":"2.0","id":{},"method":"ping"})", "-32600"}}) {
    const HttpResponse response = post(body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_TRUE(has(response, code)) << body << ": " << response.body;
  }
  EXPECT_TRUE(has(post(R"({"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]})"), "-32602"));
  EXPECT_EQ(post(std::string(100'000, ' ')).status, 400);
  EXPECT_EQ(post(R"({"jsonrpc":"2.0","id":1,"result":{}})").status, 202) << "an answer to what was never asked";
  EXPECT_EQ(post("{}", {{"accept", "text/html"}}).status, 406);
}

TEST_F(McpTest, OnlyPostIsServedAndOnlyOfJson) {
  ApiContext context{steps_, spans_, traces_, metrics_, *state_, agents_, source_, counters_, clock_, ready_, ""};
  for (const char* method : {"GET", "DELETE", "PUT"}) {
    const HttpResponse response =
        answer(context, {.method = method, .path = "/mcp", .query = "", .headers = {}, .body = ""});
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(response.header("allow"), "POST") << method;
  }
  // A browser sends the second one for any page without asking: to it that is text/plain.
  for (const auto& [type, status] : {std::pair{"text/plain", 415},
                                     {"text/plain;a=, application/json", 415},
                                     {"*/*", 415},
                                     {"application/*", 415},
                                     {"", 415},
                                     {"Application/JSON; charset=utf-8", 400}}) {
    const ServerRequest request{
        .method = "POST", .path = "/mcp", .query = "", .headers = {{"content-type", type}}, .body = "{}"};
    EXPECT_EQ(answer(context, request).status, status) << type;
    EXPECT_TRUE(changes_state(request)) << "tools may";
  }
}

TEST(BoundedJson, CutsAsLittleAsIsEnoughAndSaysWhat) {
  std::string json = R"({"a":[)";
  for (int i = 0; i < 500; ++i)
    json += (i == 0 ? "" : ",") + format(R"({"i":%d,"t":"%s"})", i, std::string(40, 'x').c_str());
  json += R"(],"b":1.25e3})";
  const auto whole = mcp::bounded_json(json, 100'000);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->json, json);
  EXPECT_EQ(whole->cut_count, 0u);
  const auto less = mcp::bounded_json(json, 4'000);
  ASSERT_TRUE(less.ok());
  EXPECT_LE(less->json.size(), 4'000u);
  EXPECT_EQ(less->cut, std::vector<std::string>{"a: 60 of 500"});
  EXPECT_TRUE(less->json.ends_with(R"("b":1.25e3})"));
  EXPECT_FALSE(mcp::bounded_json(json, 10).ok());
  EXPECT_FALSE(mcp::bounded_json("{", 1000).ok());
}

TEST(BoundedJson, CutsTextsBetweenCharacters) {
  const std::string json = "{\"t\":\"" + [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "ü";
    return text;
  }() + "\"}";
  const auto less = mcp::bounded_json(json, 700);
  ASSERT_TRUE(less.ok());
  EXPECT_TRUE(less->json.ends_with("ü...\"}")) << less->json.substr(less->json.size() - 12);
}

}  // namespace
}  // namespace lockstep
