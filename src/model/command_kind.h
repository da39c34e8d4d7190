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
  kNobody,   // no agent of that host asks for commands
  kNo,       // one does, and has said that its ranks have none to give: they are simulated
  kYes,      // one does
  kUnknown,  // its agent reports to a gateway, which alone hears what it answers; it may be asked
};
// Why it is not known, as people are told.
inline constexpr const char* kAnswersUnknown = "not known: its agent reports to a gateway";
using WhoAnswers = std::function<Answers(const std::string& host, CommandKind kind)>;

}  // namespace lockstep
