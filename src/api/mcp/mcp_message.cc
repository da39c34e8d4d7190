#include "api/mcp/mcp_message.h"

#include <algorithm>
#include <optional>

#include "base/base64.h"
#include "base/text.h"

namespace lockstep::mcp {
namespace {

constexpr const char* kVersions[] = {kVersionStateless, kVersionNewestWithHandshake, "2025-06-18"};
constexpr std::string_view kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr std::string_view kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr size_t kMethodBytesMax = 128;

void fail(Message& message, int error, std::string line) {
  message.error = error;
  message.error_line = std::move(line);
}

// A header's text: as it stands, or =?base64?...?= around what headers cannot carry. nullopt: malformed.
std::optional<std::string> header_text(std::string_view value) {
  constexpr std::string_view kBegin = "=?base64?", kEnd = "?=";
  if (!value.starts_with(kBegin) || !value.ends_with(kEnd) || value.size() < kBegin.size() + kEnd.size())
    return std::string(value);
  return decode_base64(value.substr(kBegin.size(), value.size() - kBegin.size() - kEnd.size()));
}

// Somebody between client and server may act on the headers: what they say must be what is done.
void check_headers(const ServerRequest& request, const std::string& version, Message& message) {
  if (request.header("mcp-protocol-version") != version)
    return fail(message, kHeaderMismatch, "the header MCP-Protocol-Version is not the version in params._meta");
  if (request.header("mcp-method") != message.method)
    return fail(message, kHeaderMismatch, "the header Mcp-Method is not the method of the request");
  if (message.method != "tools/call") return;
  const std::optional<std::string> name = message.params["name"].string();
  if (name && header_text(request.header("mcp-name")) != name)
    fail(message, kHeaderMismatch, "the header Mcp-Name is not the name in params");
}

void check_version(std::string version, Message& message) {
  const auto spoken = versions();
  if (std::find(spoken.begin(), spoken.end(), version) != spoken.end() &&
      (!message.stateless || !has_handshake(version)))
    return;
  message.requested_version = std::move(version);
  fail(message, kUnsupportedVersion, "this version of the protocol is not spoken here");
}

void check_stateless(const ServerRequest& request, Message& message) {
  const JsonValue meta = message.params["_meta"];
  const std::optional<std::string> version = meta[kVersionKey].string();
  if (!version || !meta[kCapabilitiesKey].is_object())
    return fail(message, kInvalidParams,
                format("params._meta must have %s, a text, and %s, an object", std::string(kVersionKey).c_str(),
                       std::string(kCapabilitiesKey).c_str()));
  check_headers(request, *version, message);
  if (message.error == 0) check_version(*version, message);
}

void read_envelope(const JsonValue& root, Message& message) {
  if (!root.is_object()) return fail(message, kInvalidRequest, "the body must be one JSON-RPC object");
  const JsonValue id = root["id"];
  // JSON-RPC: a text or a number. What was sent is sent back as it stands.
  const bool is_text = id.string().has_value();
  if (is_text || id.number()) message.id = std::string(id.json());
  if (root["jsonrpc"].string() != "2.0") return fail(message, kInvalidRequest, "jsonrpc must be \"2.0\"");
  const std::optional<std::string> method = root["method"].string();
  if (!method) {
    // An answer to something that this server never asks.
    if (root["result"].present() || root["error"].present()) {
      message.kind = Message::Kind::kNotification;
      return;
    }
    return fail(message, kInvalidRequest, "there is no method");
  }
  if (method->size() > kMethodBytesMax) return fail(message, kInvalidRequest, "the method's name is too long");
  message.method = *method;
  if (!id.present()) {
    message.kind = Message::Kind::kNotification;
  } else if (message.id == "null") {
    return fail(message, kInvalidRequest, "id must be a text or a number");
  }
  message.params = root["params"];
  if (message.params.present() && !message.params.is_object())
    fail(message, kInvalidParams, "params must be an object");
}

}  // namespace

std::span<const char* const> versions() {
  return kVersions;
}

bool has_handshake(std::string_view version) {
  return version != kVersionStateless;
}

Message read_message_untrusted(const ServerRequest& request) {
  Message message;
  Result<JsonDocument> document = JsonDocument::parse(
      request.body, {.bytes_max = kMessageBytesMax, .values_max = kMessageValuesMax, .depth_max = 16});
  if (!document.ok()) {
    fail(message, kParseError, "the body is no JSON of at most " + with_thousands(kMessageBytesMax) + " bytes");
    return message;
  }
  message.document = std::make_shared<const JsonDocument>(std::move(*document));
  read_envelope(message.document->root(), message);
  const std::string version(request.header("mcp-protocol-version"));
  // Who names a version that has no handshake, in the header or in the request, is held to what that version says.
  message.stateless =
      message.params["_meta"][kVersionKey].present() || (!version.empty() && version == kVersionStateless);
  if (message.error != 0 || message.kind == Message::Kind::kNotification) return message;
  if (message.stateless) {
    check_stateless(request, message);
  } else if (!version.empty() && message.method != "initialize") {
    check_version(version, message);
  }
  return message;
}

}  // namespace lockstep::mcp
