// lockstep-agent: reads this node (flight recorders, GPUs, NICs, host, kernel) and sends what it finds to the server.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "apps/agent/agent.h"
#include "apps/agent/options.h"
#include "apps/agent/talk.h"
#include "base/log.h"
#include "base/secret_file.h"
#include "base/text.h"
#include "base/version.h"
#include "sources/gpu/gpu_child.h"

namespace lockstep {
namespace {

volatile sig_atomic_t g_stop = 0;
// Whatever hangs, a file system or a driver: an agent that was asked to end does.
constexpr unsigned kEndWithinS = 20;
void on_signal(int) {
  g_stop = 1;
  alarm(kEndWithinS);
}
void on_alarm(int) {
  constexpr char kLine[] = "lockstep-agent: did not end within 20 s of being asked to; ending now\n";
  (void)!write(STDERR_FILENO, kLine, sizeof kLine - 1);
  _exit(1);
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int usage_error(const std::string& line) {
  std::fprintf(stderr, "lockstep-agent: %s\n", line.c_str());
  return 2;
}

int failure(const std::string& line) {
  std::fprintf(stderr, "lockstep-agent: %s\n", line.c_str());
  return 1;
}

// Whom to ask for commands. nullopt: nobody, and that is as it was told, or said in one line.
Result<std::optional<OtlpTarget>> command_endpoint(const AgentOptions& options, const OtlpTargets& targets) {
  if (options.commands == "off" || (options.commands.empty() && !options.exported.empty()))
    return std::optional<OtlpTarget>();
  if (options.commands.empty()) {
    Result<OtlpTarget> target = command_target(targets);
    if (target.ok()) return std::optional(std::move(*target));
    LOCKSTEP_LOG_INFO("agent", "detail is sent as sampled, not as asked: %s", target.error().c_str());
    return std::optional<OtlpTarget>();
  }
  OtlpSettings settings = options.otlp;
  settings.server = options.commands;
  settings.protocol = "http/protobuf";
  Result<OtlpTargets> chosen = choose_otlp_targets(settings, otel_environment());
  Result<OtlpTarget> target = chosen.ok() ? command_target(*chosen) : Result<OtlpTarget>(chosen.failure());
  if (!target.ok()) return prefixed(target.failure(), "--commands: ");
  return std::optional(std::move(*target));
}

Result<AgentSettings> check_settings(AgentOptions& options) {
  LOCKSTEP_TRY(check_options(options));
  AgentSettings settings;
  settings.ras = LOCKSTEP_TRY(parse_ras_option(options.ras));
  Result<ListenAddress> address = parse_listen_address(options.metrics);
  if (!address.ok()) return prefixed(address.failure(), "--metrics: ");
  if (!is_loopback(*address) && options.metrics_token_file.empty() && options.metrics_tls.client_ca_file.empty() &&
      !options.metrics_insecure)
    return Error{
        format("--metrics %s: others reach this address, and anybody may read there: ask for a token "
               "(--metrics-token-file FILE) or a certificate (--metrics-tls-client-ca FILE), or say "
               "--metrics-insecure",
               options.metrics.c_str())};
  if (options.metrics_tls.enabled() &&
      (options.metrics_tls.certificate_file.empty() || options.metrics_tls.key_file.empty()))
    return Error{"--metrics: TLS needs both --metrics-tls-certificate and --metrics-tls-key"};
  if (!options.metrics_token_file.empty()) {
    Result<std::string> token = read_private_file(options.metrics_token_file);
    if (!token.ok()) return prefixed(token.failure(), "--metrics-token-file: ");
  }
  settings.metrics = std::move(*address);
  settings.targets = LOCKSTEP_TRY(choose_otlp_targets(options.otlp, otel_environment()));
  settings.commands_from = LOCKSTEP_TRY(command_endpoint(options, settings.targets));
  return settings;
}

void print_effective(const AgentOptions& options, const AgentSettings& settings, const Flags& flags) {
  std::fputs(flags.effective().c_str(), stdout);
  for (Signal signal : {Signal::kMetrics, Signal::kLogs, Signal::kSpans})
    std::printf("# %s go to %s\n", to_text(signal),
                options.exported.empty() ? settings.targets.of(signal).text().c_str() : options.exported.c_str());
  std::printf("# commands come from %s\n", settings.commands_from ? settings.commands_from->text().c_str() : "nobody");
  for (const std::string& note : settings.targets.notes) std::printf("# note: %s\n", note.c_str());
}

int run(AgentOptions options, const Flags& flags) {
  const Result<AgentSettings> settings = check_settings(options);
  if (!settings.ok()) return usage_error(settings.error());
  if (flags.check_wanted()) {
    print_effective(options, *settings, flags);
    return 0;
  }
  for (const std::string& note : settings->targets.notes) LOCKSTEP_LOG_WARN("agent", "%s", note.c_str());
  catch_signals();
  OpenedParts opened;
  if (Result<void> done = opened.open(options); !done.ok()) return failure(done.error());
  AgentCommon common;
  const Result<std::unique_ptr<Exporter>> exporter = start_exporter(options, *settings, common);
  if (!exporter.ok()) return failure(exporter.error());
  Agent agent(options, *settings, opened, common, **exporter);
  if (Result<void> started = agent.start(); !started.ok()) return failure(started.error());
  agent.loop(g_stop);
  agent.stop();
  return 0;
}

int gpu_reader(const std::vector<std::string>& arguments) {
  GpuChildOptions options;
  Flags flags("lockstep-agent gpu-reader", "the process that reads the GPUs for the agent; started by it");
  flags.text(&options.vendor, "--gpus", "auto|nvidia|amd", "which")
      .text(&options.nvml_library, "--nvml-library", "FILE", "NVIDIA's library")
      .text(&options.amdsmi_library, "--amdsmi-library", "FILE", "AMD's library");
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  return run_gpu_child(options);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "gpu-reader") return gpu_reader({arguments.begin() + 1, arguments.end()});
  if (arguments == std::vector<std::string>{"--version"}) {
    std::printf("%s\n", version_line("lockstep-agent").c_str());
    return 0;
  }
  if (!arguments.empty() && !arguments[0].starts_with("-"))
    return run_talk_command(arguments[0], {arguments.begin() + 1, arguments.end()});

  AgentOptions options;
  Flags flags("lockstep-agent", "reads this node's flight recorders, GPUs, NICs and host, and sends what it finds");
  add_flags(options, flags);
  if (Result<void> parsed = flags.parse(arguments); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  if (flags.help_wanted()) {
    std::printf("%s\n%s", flags.help().c_str(), talk_commands_help());
    return 0;
  }
  return run(std::move(options), flags);
}
