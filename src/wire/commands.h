// What the server asks of agents, as it travels (docs/formats/commands.md): text, a line each, so that code with libc
// alone reads it safely and a person with curl reads it too.
//
//     lockstep-commands 1
//     cursor 18a2f0-42
//     detail llama%2D70b 0 118 120 0-7,12
//     stacks llama%2D70b 0 3,5
//     profile llama%2D70b 0 p-0123456789ab 140 5 1700000000000 2500 120 1073741824 shapes 0,17
//     sample llama%2D70b 0 5 100 3,5
//
// Lines that begin with another word are from a newer server: skipped and counted. Everything else that is odd makes
// the whole answer void: half an order is none.
// Limits: kCommandsBytesMax, kCommandsMax lines, those of the requests, ranks over all lines
// together.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/detail_request.h"
#include "model/profile_capture.h"

namespace lockstep {

inline constexpr const char* kCommandsPath = "/v1/lockstep/commands";
inline constexpr const char* kCommandsContentType = "text/plain; charset=utf-8";
inline constexpr size_t kCommandsBytesMax = 1 << 20;
inline constexpr size_t kCommandsMax = 256;
inline constexpr size_t kCursorBytesMax = 64;

struct CommandList {
  std::string cursor;  // to be sent back as `after`: everything up to it has arrived
  std::vector<DetailRequest> details;
  std::vector<StackRequest> stacks;
  std::vector<ProfileRequest> profiles;
  std::vector<SampleRequest> samples;
  int64_t unknown = 0;  // lines that were not understood
  bool operator==(const CommandList&) const = default;
};

// Digits, small letters and dashes, at least one.
bool is_cursor(std::string_view text);
std::string encode_commands(const CommandList& list);
Result<CommandList> parse_commands(std::string_view text);

}  // namespace lockstep
