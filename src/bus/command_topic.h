// How a command to an agent gets from the analyzer that wants it to every gateway, since nobody knows which one the agent
// asks next (docs/formats/commands.md). A topic of its own with one partition; nothing waits for it, and what is lost with
// a broker is asked for again or expires.
//
// Every gateway has every command for as long as it is worth something, so an agent whose gateway died finds it at the
// next one. It may get it from both: agents do a thing once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bus/telemetry_bus.h"

namespace lockstep {

inline constexpr const char* kCommandTopic = "lockstep_commands";

struct PostedCommand {
  std::string tenant;  // empty: the default one
  std::string host;
  std::string text;  // as wire/commands.h writes it
};

// Thread rule: Thread-safe.
class CommandPoster {
 public:
  static constexpr size_t kTextBytesMax = 1 << 20;
  virtual ~CommandPoster() = default;
  // Returns at once. False: too much is on its way already, or it is too long.
  virtual bool post(const PostedCommand& command) = 0;
};

// Thread rule: Confined.
class CommandListener {
 public:
  virtual ~CommandListener() = default;
  // What was posted since, and at first what is not older than `keep`; waits so long for the first of it. Nothing where
  // no broker answers: it goes on when one does.
  virtual std::vector<PostedCommand> take(std::chrono::milliseconds longest) = 0;
};

// Whichever comes first makes the topic.
Result<std::unique_ptr<CommandPoster>> open_kafka_command_poster(const BusOptions& options);
Result<std::unique_ptr<CommandListener>> open_kafka_command_listener(const BusOptions& options, const Clock& clock,
                                                                     std::chrono::seconds keep);

}  // namespace lockstep
