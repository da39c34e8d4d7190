#include "model/rank_end.h"

#include <csignal>

#include "base/text.h"

namespace lockstep {

LeftFailure parse_left_failure_untrusted(std::string_view text) {
  LeftFailure failure;
  std::string type, message;
  for (std::string_view line : split(text.substr(0, 4096), '\n')) {
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, blank), value = line.substr(blank + 1);
    if (name == "time") failure.time_unix_ns = std::max<int64_t>(0, parse_int(value).value_or(0));
    if (name == "type") type = as_one_line(value.substr(0, 100));
    if (name == "message") message = as_one_line(value.substr(0, 200));
    failure.thread |= name == "thread";
  }
  if (type.empty()) return {};
  failure.reason = message.empty() ? type : type + ": " + message;
  return failure;
}

const char* signal_name(int32_t number) {
  switch (number) {
    case SIGHUP:
      return "SIGHUP";
    case SIGINT:
      return "SIGINT";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGILL:
      return "SIGILL";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGKILL:
      return "SIGKILL";
    case SIGSEGV:
      return "SIGSEGV";
    case SIGPIPE:
      return "SIGPIPE";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    default:
      return "";
  }
}

}  // namespace lockstep
