// POST /mcp: the Model Context Protocol for assistants (docs/guide/assistants.md), streamable HTTP, answered with one
// JSON object each time; no stream, no session. GET and DELETE are answered with 405, as the protocol has it for servers
// without them.
#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/mcp/mcp_message.h"
#include "api/mcp/mcp_tools.h"
#include "base/text.h"

namespace lockstep {
namespace {

using mcp::Message;

constexpr const char* kInstructions =
    "Lockstep says why a distributed GPU training job is slow or stuck. Start with jobs, then why for the job; its "
    "first "
    "lines are the verdicts in words. Prove a claim with evidence and the claim's query. Waiting ranks are victims, "
    "not "
    "culprits. Where a verdict says that it cannot tell, say so too.";

void write_server_info(JsonWriter& json) {
  json.begin_object()
      .field("name", "lockstep")
      .field("title", "Lockstep")
      .field("version", LOCKSTEP_VERSION)
      .end_object();
}

void write_capabilities(JsonWriter& json) {
  json.key("capabilities").begin_object().key("tools").begin_object().end_object().end_object();
}

// Without a handshake every result says what it is, and of whom.
void begin_result(JsonWriter& json, const Message& message) {
  json.begin_object().field("jsonrpc", "2.0").key("id").raw(message.id).key("result").begin_object();
  if (!message.stateless) return;
  json.field("resultType", "complete").key("_meta").begin_object().key("io.modelcontextprotocol/serverInfo");
  write_server_info(json);
  json.end_object();
}

HttpResponse end_result(JsonWriter& json) {
  json.end_object().end_object();
  return json_answer(json);
}

// Tools differ by role: what one caller was told is not for another.
void write_caching(JsonWriter& json, const Message& message) {
  if (message.stateless) json.field("ttlMs", 60'000).field("cacheScope", "private");
}

HttpResponse error_of(const Message& message, int code, std::string_view line) {
  JsonWriter json;
  json.begin_object().field("jsonrpc", "2.0").key("id").raw(message.id).key("error").begin_object();
  json.field("code", code).field("message", line);
  if (code == mcp::kUnsupportedVersion) {
    json.key("data").begin_object().key("supported").begin_array();
    for (const char* version : mcp::versions()) json.string(version);
    json.end_array().field("requested", as_one_line(message.requested_version.substr(0, 64))).end_object();
  }
  json.end_object().end_object();
  HttpResponse response = json_answer(json);
  // With a handshake an answer is 200, whatever it says, but for what is no message at all.
  if (message.stateless || code == mcp::kParseError || code == mcp::kInvalidRequest || code == mcp::kUnsupportedVersion)
    response.status = code == mcp::kMethodNotFound ? 404 : 400;
  return response;
}

HttpResponse initialize(const Message& message) {
  const std::string asked = message.params["protocolVersion"].string().value_or("");
  const char* agreed = mcp::kVersionNewestWithHandshake;
  for (const char* version : mcp::versions()) {
    if (asked == version && mcp::has_handshake(version)) agreed = version;
  }
  JsonWriter json;
  begin_result(json, message);
  json.field("protocolVersion", agreed);
  write_capabilities(json);
  json.key("serverInfo");
  write_server_info(json);
  json.field("instructions", kInstructions);
  return end_result(json);
}

HttpResponse discover(const Message& message) {
  JsonWriter json;
  begin_result(json, message);
  json.key("supportedVersions").begin_array();
  for (const char* version : mcp::versions()) json.string(version);
  json.end_array();
  write_capabilities(json);
  json.field("instructions", kInstructions);
  write_caching(json, message);
  return end_result(json);
}

HttpResponse list_tools(const Message& message, const Caller& caller) {
  JsonWriter json;
  begin_result(json, message);
  json.key("tools").begin_array();
  for (const mcp::ToolRow& tool : mcp::tools()) {
    if (mcp::may_use(tool, caller).ok()) mcp::write_tool(json, tool);
  }
  json.end_array();
  write_caching(json, message);
  return end_result(json);
}

HttpResponse call(const ApiContext& context, const ServerRequest& request, const Message& message) {
  const std::string name = message.params["name"].string().value_or("");
  const mcp::ToolRow* tool = mcp::find_tool(name);
  if (tool == nullptr)
    return error_of(
        message, mcp::kInvalidParams,
        format("there is no tool \"%.40s\"; tools/list has those that there are", as_one_line(name).c_str()));
  const mcp::ToolAnswer answer = mcp::call_tool(*tool, context, request, message.params["arguments"]);
  JsonWriter json;
  begin_result(json, message);
  json.key("content").begin_array();
  for (const std::string& text : answer.texts)
    json.begin_object().field("type", "text").field("text", text).end_object();
  json.end_array().field("isError", answer.is_error);
  return end_result(json);
}

HttpResponse dispatch(const ApiContext& context, const ServerRequest& request, const Message& message) {
  if (message.method == "tools/list") return list_tools(message, request.caller);
  if (message.method == "tools/call") return call(context, request, message);
  if (message.stateless) {
    if (message.method == "server/discover") return discover(message);
  } else if (message.method == "initialize") {
    return initialize(message);
  } else if (message.method == "ping") {
    JsonWriter json;
    begin_result(json, message);
    return end_result(json);
  }
  return error_of(message, mcp::kMethodNotFound,
                  format("there is no method \"%.80s\" here", as_one_line(message.method).c_str()));
}

// Without its parameters.
std::string media_type(std::string_view text) {
  return lower_case(trim(text.substr(0, text.find(';'))));
}

bool accepts_json(std::string_view accept) {
  const std::vector<std::string_view> listed = split(accept, ',');
  return accept.empty() || std::any_of(listed.begin(), listed.end(), [](std::string_view one) {
           const std::string type = media_type(one);
           return type == "application/json" || type == "application/*" || type == "*/*";
         });
}

}  // namespace

HttpResponse post_mcp(const ApiContext& context, const ApiRequest& request) {
  const ServerRequest& http = request.http;
  // No form can send this type, and a browser asks before it sends it to another site (net/cross_site.h). This one alone:
  // what a browser takes for text/plain may have another behind a comma.
  if (media_type(http.header("content-type")) != "application/json")
    return error_answer(415, "the content type must be application/json");
  if (!accepts_json(http.header("accept"))) return error_answer(406, "answers are application/json");
  const Message message = mcp::read_message_untrusted(http);
  if (message.error != 0) return error_of(message, message.error, message.error_line);
  if (message.kind == Message::Kind::kNotification) return HttpResponse{.status = 202};
  return dispatch(context, http, message);
}

}  // namespace lockstep
