// What agents can be asked for (docs/formats/commands.md), and whether those of a host would answer.
//
// Thread rule: Immutable values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

enum class CommandKind : uint8_t { kDetail, kStacks, kProfiles, kSamples };
inline constexpr const char* kCommandKinds[] = {"detail", "stacks", "profiles", "samples"};  // as polls name them

enum class Answers : uint8_t {
  kUnknown,  // no agent of that host asks for commands
  kNo,       // one does, and has said that its ranks have none to give: they are simulated
  kYes,
};
using WhoAnswers = std::function<Answers(const std::string& host, CommandKind kind)>;

}  // namespace lockstep
