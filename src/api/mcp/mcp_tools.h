// What an assistant may ask for over MCP: one row each in mcp_tools.cc, with its arguments.
//
// A tool asks the API in this process, as the caller and under the roles of the caller, and hands on what the API says:
// the same handlers, limits, roles and audit log as over HTTP. What writes needs operate, and a caller who showed who it
// is: where nobody has to (a server on loopback without tokens), assistants read and no more.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "access/role.h"
#include "api/context.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "net/http_server.h"

namespace lockstep::mcp {

enum class ArgumentKind : uint8_t { kText, kInteger };

struct ArgumentRow {
  const char* name;
  ArgumentKind kind;
  bool required;
  int64_t fallback, least, most;  // of a number
  const char* help;
};
inline constexpr size_t kArgumentBytesMax = 4096;

// Checked: what is there is of its kind and within its limits; numbers that were not given are what they are by default.
class Arguments {
 public:
  const std::string& text(std::string_view name) const;  // empty where it was not given
  int64_t number(std::string_view name) const;
  // A number that has a default always is.
  bool given(std::string_view name) const { return texts_.contains(name) || numbers_.contains(name); }

 private:
  friend Result<Arguments> read_arguments(const struct ToolRow& tool, const JsonValue& given_untrusted);
  std::map<std::string, std::string, std::less<>> texts_;
  std::map<std::string, int64_t, std::less<>> numbers_;
};

// The API of this process, as the one who asks.
class Asker {
 public:
  Asker(const ApiContext& context, const ServerRequest& outer) : context_(context), outer_(outer) {}
  // path: not percent-encoded. query: as behind a '?'. The error is the API's own line.
  Result<std::string> get(const std::string& path, const std::string& query = "") const;
  Result<std::string> post(const std::string& path, const std::string& query, const std::string& body = "") const;

 private:
  Result<std::string> ask(const char* method, const std::string& path, const std::string& query,
                          const std::string& body) const;
  const ApiContext& context_;
  const ServerRequest& outer_;
};

struct ToolRow {
  const char* name;
  const char* title;
  const char* help;
  Role role;  // kRead, or kOperate for what writes
  std::span<const ArgumentRow> arguments;
  Result<std::string> (*run)(const Asker&, const Arguments&);  // JSON
};
std::span<const ToolRow> tools();
const ToolRow* find_tool(std::string_view name);
// Also says why not.
Result<void> may_use(const ToolRow& tool, const Caller& caller);
Result<Arguments> read_arguments(const ToolRow& tool, const JsonValue& given_untrusted);
// The row as tools/list has it.
void write_tool(JsonWriter& json, const ToolRow& tool);

// Content of an answer: sentences first where there are verdicts, then JSON of at most `max_bytes`, then what was cut.
struct ToolAnswer {
  std::vector<std::string> texts;
  bool is_error = false;
};
ToolAnswer call_tool(const ToolRow& tool, const ApiContext& context, const ServerRequest& outer,
                     const JsonValue& arguments_untrusted);

}  // namespace lockstep::mcp
