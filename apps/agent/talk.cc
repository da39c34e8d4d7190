#include "apps/agent/talk.h"

#include <poll.h>

#include <cstdio>
#include <optional>

#include "agent/control_socket.h"
#include "agent/node/node_metrics.h"
#include "base/flags.h"
#include "base/text.h"
#include "sources/gpu/gpu_child.h"

namespace lockstep {
namespace {

constexpr int kDrainWithinMs = 10'000;
constexpr int kAskEveryMs = 100;

int fail(const std::string& line, int code = 1) {
  std::fprintf(stderr, "lockstep-agent: %s\n", line.c_str());
  return code;
}

// The exit code where the words were wrong or asked for help.
std::optional<int> parsed_or_ended(Flags& flags, const std::vector<std::string>& arguments) {
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  if (!flags.help_wanted()) return std::nullopt;
  std::fputs(flags.help().c_str(), stdout);
  return 0;
}

int show_gpus(const std::vector<std::string>& arguments) {
  GpuChildOptions options;
  Flags flags("lockstep-agent gpus", "reads every GPU once and says what it sees; needs no running agent");
  flags.text(&options.vendor, "--gpus", "auto|nvidia|amd", "which (default auto)")
      .text(&options.nvml_library, "--nvml-library", "FILE", "NVIDIA's library (default libnvidia-ml.so.1)")
      .text(&options.amdsmi_library, "--amdsmi-library", "FILE", "AMD's library (default libamd_smi.so)");
  if (std::optional<int> code = parsed_or_ended(flags, arguments)) return *code;
  Result<std::string> text = describe_gpus(options);
  if (!text.ok()) return fail(text.error());
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace

const char* talk_commands_help() {
  return "commands, to the agent that runs with the same --data:\n"
         "  lockstep-agent drain --data DIR [--for SECONDS]  let go of every GPU (reset, MIG change, driver update)\n"
         "  lockstep-agent resume --data DIR                 read them again\n"
         "  lockstep-agent status --data DIR                 whether GPUs are read, and what is wrong\n"
         "by itself:\n"
         "  lockstep-agent gpus                              read every GPU once and say what it sees\n"
         "  lockstep-agent metrics                           every metric of a node, as a table\n";
}

int run_talk_command(const std::string& command, const std::vector<std::string>& arguments) {
  if (command == "gpus") return show_gpus(arguments);
  if (command == "metrics") {
    if (!arguments.empty()) return fail("metrics takes nothing", 2);
    std::fputs(node_metrics_markdown().c_str(), stdout);
    return 0;
  }
  if (command != "drain" && command != "resume" && command != "status")
    return fail(
        format("no command \"%s\" (drain, resume, status, gpus, metrics; lockstep-agent --help)", command.c_str()), 2);
  std::string data;
  int64_t for_s = 0;
  Flags flags("lockstep-agent " + command, command == "drain"    ? "makes the running agent let go of every GPU"
                                           : command == "resume" ? "makes the running agent read the GPUs again"
                                                                 : "says whether GPUs are read");
  flags.text(&data, "--data", "DIR", "the running agent's data folder (required)");
  if (command == "drain")
    flags.number(&for_s, "--for", "SECONDS", "read them again after so long (default: not before resume)", 1, 604'800);
  if (std::optional<int> code = parsed_or_ended(flags, arguments)) return *code;
  if (data.empty()) return fail("--data DIR is required: the running agent's data folder", 2);
  const std::string socket = data + "/control.sock";
  const std::string request =
      command == "drain" && for_s > 0 ? format("drain %lld", static_cast<long long>(for_s)) : command;
  Result<std::string> answer = ask_agent(socket, request);
  if (!answer.ok()) return fail(answer.error());
  if (answer->starts_with("wrong: ")) return fail(std::string(trim(answer->substr(7))));
  if (command == "resume") {
    std::puts("the agent reads the GPUs again");
    return 0;
  }
  if (command == "status") {
    std::fputs(answer->substr(answer->find('\n') + 1).c_str(), stdout);
    return 0;
  }
  // Drained is what the caller needs to know before it resets a GPU, so it is waited for.
  for (int waited_ms = 0; waited_ms <= kDrainWithinMs; waited_ms += kAskEveryMs) {
    answer = ask_agent(socket, "status");
    if (!answer.ok()) return fail(answer.error());
    if (answer->starts_with("drained\n")) {
      std::puts(
          for_s > 0
              ? format("drained: no GPU is held; they are read again in %lld s", static_cast<long long>(for_s)).c_str()
              : "drained: no GPU is held; lockstep-agent resume reads them again");
      return 0;
    }
    ::poll(nullptr, 0, kAskEveryMs);
  }
  return fail("the GPUs are still held after 10 s: " + std::string(trim(answer->substr(answer->find('\n') + 1))));
}

}  // namespace lockstep
