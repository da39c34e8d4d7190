// lockstep-agent: reads the flight recorders of this node and sends what they hold to the server.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "agent/callback_cost.h"
#include "agent/counters_table.h"
#include "agent/exporter.h"
#include "agent/ras_watch.h"
#include "agent/recorder_watch.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/text.h"
#include "net/text_server.h"
#include "recorder/reader.h"

namespace {

volatile sig_atomic_t g_stop = 0;
void on_signal(int) {
  g_stop = 1;
}

// How long records are gathered into one request; what is urgent does not wait.
constexpr int64_t kBatchNs = 200'000'000;
constexpr int64_t kLookMs = 50;

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  std::string data, server = "http://127.0.0.1:4318", exported, metrics = "127.0.0.1:9410",
                    recorders = recorder_directory(), ras;
  int64_t spool_mb = 512;
  Flags flags("lockstep-agent", "reads this node's flight recorders and sends what they hold to a Lockstep server");
  flags.text(&data, "--data", "DIR", "folder for the spool and for the recorders of ranks that died (required)")
      .text(&server, "--server", "URL", "OTLP/HTTP door of the server (default http://127.0.0.1:4318)")
      .text(&exported, "--export", "file:DIR", "write the requests to files instead of sending them")
      .text(&metrics, "--metrics", "ADDR", "address for /metrics (default 127.0.0.1:9410; port 0 takes a free one)")
      .text(&recorders, "--recorders", "DIR",
            "folder of the flight recorders (default $LOCKSTEP_RECORDER_DIR, else /dev/shm/lockstep-UID)")
      .text(&ras, "--ras", "ADDR|off|always",
            "ask NCCL's in-job service there, never, or every 30 s (default: at localhost:28028 while a rank seems to "
            "hang, unless its NCCL may not stand it)")
      .number(&spool_mb, "--spool-mb", "N", "disk the spool may use (default 512)", 1, 1'000'000);
  if (Result<void> parsed = flags.parse({argv + 1, argv + argc}); !parsed.ok()) {
    std::fprintf(stderr, "%s\n", parsed.error().c_str());
    return 2;
  }
  if (flags.help_wanted()) {
    std::fputs(flags.help().c_str(), stdout);
    return 0;
  }
  if (data.empty()) {
    std::fprintf(stderr, "lockstep-agent: --data DIR is required: the folder for the spool\n");
    return 2;
  }
  if (!exported.empty() && !exported.starts_with("file:")) {
    std::fprintf(stderr, "lockstep-agent: --export takes file:DIR, not \"%s\"\n", exported.c_str());
    return 2;
  }

  Result<RasWatchOptions> ras_options = parse_ras_option(ras);
  if (!ras_options.ok()) {
    std::fprintf(stderr, "lockstep-agent: %s\n", ras_options.error().c_str());
    return 2;
  }

  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);

  if (Result<void> made = make_directories(recorders); !made.ok()) {
    std::fprintf(stderr, "lockstep-agent: --recorders: %s\n", made.error().c_str());
    return 1;
  }
  chmod(recorders.c_str(), 0700);

  Result<UniqueFd> lock = lock_folder(data, "lockstep-agent");
  if (!lock.ok()) {
    std::fprintf(stderr, "lockstep-agent: %s\n", lock.error().c_str());
    return 1;
  }
  SystemClock clock;
  Counters counters(kAgentCounters);
  Result<std::unique_ptr<Exporter>> exporter =
      Exporter::start({.server = exported.empty() ? server : exported,
                       .spool_folder = data + "/spool",
                       .spool_bytes_max = static_cast<uint64_t>(spool_mb) << 20},
                      counters);
  if (!exporter.ok()) {
    std::fprintf(stderr, "lockstep-agent: %s\n", exporter.error().c_str());
    return 1;
  }
  CallbackCost cost;
  RasWatch ras_watch(*ras_options, clock, counters);
  RecorderWatch watch({.folder = recorders, .kept_folder = data + "/postmortem"}, clock, counters, &cost, &ras_watch);

  Result<ListenAddress> address = parse_listen_address(metrics);
  if (!address.ok()) {
    std::fprintf(stderr, "lockstep-agent: --metrics: %s\n", address.error().c_str());
    return 2;
  }
  Result<std::unique_ptr<TextServer>> page =
      TextServer::start({.address = *address}, [&](const std::string& path) -> TextAnswer {
        if (path == "/healthz") return {.body = "ok\n"};
        if (path != "/metrics") return {.status = 404, .body = "this agent has /metrics and /healthz\n"};
        return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                .body = counters.prometheus_text() + cost.prometheus_text()};
      });
  if (!page.ok()) {
    std::fprintf(stderr, "lockstep-agent: --metrics: %s\n", page.error().c_str());
    return 1;
  }

  std::printf("ready metrics=%s\n", (*page)->address().c_str());
  std::fflush(stdout);
  LOCKSTEP_LOG_INFO("agent", "reading %s, sending to %s", recorders.c_str(),
                    exported.empty() ? server.c_str() : exported.c_str());

  Batch logs{.signal = Signal::kLogs, .groups = {}};
  Batch numbers{.signal = Signal::kMetrics, .groups = {}};
  int64_t batch_since = 0;
  auto gather = [&](Harvest harvest) {
    bool any = !harvest.logs.empty() || !harvest.metrics.empty();
    for (ResourceGroup& group : harvest.logs) logs.groups.push_back(std::move(group));
    for (ResourceGroup& group : harvest.metrics) numbers.groups.push_back(std::move(group));
    if (any && batch_since == 0) batch_since = clock.monotonic_ns();
    return harvest.urgent;
  };
  auto submit = [&] {
    uint64_t ticket = 0;
    if (!logs.groups.empty()) ticket = (*exporter)->submit(logs);
    if (!numbers.groups.empty()) ticket = (*exporter)->submit(numbers);
    logs.groups.clear();
    numbers.groups.clear();
    batch_since = 0;
    if (ticket != 0) watch.submitted(ticket);
  };
  while (!g_stop) {
    bool urgent = gather(watch.look());
    if (batch_since != 0 && (urgent || clock.monotonic_ns() - batch_since >= kBatchNs)) submit();
    watch.release([&](uint64_t ticket) { return (*exporter)->settled(ticket); });
    watch.wait(kLookMs);
  }
  gather(watch.final_look());
  submit();
  (*exporter)->stop(3'000);
  (*page)->stop();
  return 0;
}
