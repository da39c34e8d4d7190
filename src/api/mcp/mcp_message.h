// A message of the Model Context Protocol as it comes in by HTTP: one JSON-RPC object for each POST.
//
// Two ways of speaking are understood, on the same path and without any state between two requests:
//   2026-07-28              every request says its version and what the client can do, in params._meta, and repeats version,
//                           method and name in headers, which must agree; server/discover tells what is here
//   2025-11-25, 2025-06-18  initialize first, which agrees on a version; later requests may name it in a header
// Limits: kMessageBytesMax, kMessageValuesMax, depth 16; batches are refused (no version that is spoken here has them).
// Thread rule: Immutable once made.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json_reader.h"
#include "net/http_server.h"

namespace lockstep::mcp {

inline constexpr size_t kMessageBytesMax = 64u << 10;
inline constexpr size_t kMessageValuesMax = 4'096;

inline constexpr const char* kVersionStateless = "2026-07-28";
inline constexpr const char* kVersionNewestWithHandshake = "2025-11-25";
// All that are spoken here, newest first.
std::span<const char* const> versions();
bool has_handshake(std::string_view version);

// JSON-RPC's, and the protocol's own.
inline constexpr int kParseError = -32700;
inline constexpr int kInvalidRequest = -32600;
inline constexpr int kMethodNotFound = -32601;
inline constexpr int kInvalidParams = -32602;
inline constexpr int kHeaderMismatch = -32020;
inline constexpr int kUnsupportedVersion = -32022;

struct Message {
  enum class Kind { kRequest, kNotification };
  Kind kind = Kind::kRequest;
  std::string id = "null";  // as JSON
  std::string method;
  bool stateless = false;  // spoken as 2026-07-28 is
  JsonValue params;        // of `document`
  // What is wrong with it; 0: nothing.
  int error = 0;
  std::string error_line;
  std::string requested_version;  // of kUnsupportedVersion

  std::shared_ptr<const JsonDocument> document;
};

// The text of the request has to outlive the message.
Message read_message_untrusted(const ServerRequest& request);

}  // namespace lockstep::mcp
