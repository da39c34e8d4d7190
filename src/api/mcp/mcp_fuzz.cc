// What anybody may send to /mcp, body and headers: whatever comes, it is a message or one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/mcp/bounded_json.h"
#include "api/mcp/mcp_message.h"
#include "api/mcp/mcp_tools.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  // The first line is two headers, the rest the body.
  const size_t line = text.find('\n');
  const std::string_view head = line == std::string_view::npos ? std::string_view() : text.substr(0, line);
  ServerRequest request;
  request.body = std::string(line == std::string_view::npos ? text : text.substr(line + 1));
  const size_t mark = head.find('|');
  if (!head.empty()) request.headers.emplace_back("mcp-protocol-version", std::string(head.substr(0, mark)));
  if (mark != std::string_view::npos) {
    request.headers.emplace_back("mcp-method", std::string(head.substr(mark + 1)));
    request.headers.emplace_back("mcp-name", std::string(head.substr(mark + 1)));
  }
  const mcp::Message message = mcp::read_message_untrusted(request);
  if (message.error != 0 && message.error_line.empty()) abort();
  const mcp::ToolRow* tool = mcp::find_tool(message.params["name"].string().value_or(""));
  if (tool != nullptr) (void)mcp::read_arguments(*tool, message.params["arguments"]);
  if (auto bounded = mcp::bounded_json(request.body, 1000); bounded.ok() && bounded->json.size() > 1000) abort();
  return 0;
}
