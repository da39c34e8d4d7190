// `lockstep sim`: plays a simulated training job as real OTLP traffic, with faults on request.
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "base/flags.h"
#include "base/text.h"
#include "sim/fleet/interrupt.h"
#include "sim/fleet/otlp_sender.h"
#include "sim/fleet/player.h"

namespace lockstep::cli {

namespace {

// Fills in what was not given: --ranks alone gives a usual split, --tp and --pp alone leave the rest to dp.
Result<void> split_ranks(int64_t ranks, int64_t tp, int64_t pp, int64_t dp, sim::JobShape& shape) {
  if (ranks == 0 && dp > 0) ranks = std::max<int64_t>(tp, 1) * std::max<int64_t>(pp, 1) * dp;
  if (ranks == 0) ranks = 64;
  const bool plain = tp == 0 && pp == 0 && dp == 0;
  const int64_t usual = !plain || ranks < 16 ? 1 : ranks < 64 ? 2 : 4;
  if (tp == 0) tp = usual;
  if (pp == 0) pp = usual;
  if (dp == 0) dp = ranks / (tp * pp);
  if (tp * pp * dp != ranks) {
    return Error{format("%lld ranks are not tp %lld x pp %lld x dp; give --tp, --pp and --dp",
                        static_cast<long long>(ranks), static_cast<long long>(tp), static_cast<long long>(pp))};
  }
  shape.tp = static_cast<int32_t>(tp);
  shape.pp = static_cast<int32_t>(pp);
  shape.dp = static_cast<int32_t>(dp);
  return {};
}

int usage_error(const std::string& line) {
  std::fprintf(stderr, "lockstep sim: %s\n", line.c_str());
  return kExitUsage;
}

}  // namespace

int run_sim(const Arguments& arguments) {
  std::string server = "http://127.0.0.1:4318";
  sim::JobShape shape;
  sim::PlayerOptions options{.steps = 400};
  int64_t ranks = 0, tp = 0, pp = 0, dp = 0, seed = 1;
  std::vector<std::string> fault_texts;
  constexpr int64_t kMost = sim::kWorldSizeMax;
  Flags flags("lockstep sim", "play a simulated training job as real OTLP traffic, with faults on request");
  flags.text(&server, "--server", "URL", "OTLP/HTTP door (default http://127.0.0.1:4318)")
      .text(&shape.job_id, "--job", "NAME", "name of the job (default sim)")
      .number(&ranks, "--ranks", "N", "ranks (default 64: tp 4, pp 4, dp 4)", 1, kMost)
      .number(&tp, "--tp", "N", "tensor-parallel ranks", 1, kMost)
      .number(&pp, "--pp", "N", "pipeline stages", 1, kMost)
      .number(&dp, "--dp", "N", "data-parallel replicas", 1, kMost)
      .number(&options.steps, "--steps", "N", "steps to play (default 400; 0: until Ctrl-C)", 0, 1'000'000'000)
      .decimal(&shape.step_ms, "--step-ms", "MS", "length of a healthy step (default 250)", 10, 600'000)
      .decimal(&options.speed, "--speed", "N", "so many times faster than real (default 1)", 0.01, 10'000)
      .number(&seed, "--seed", "S", "same seed, same job (default 1)", 0, INT64_MAX)
      .list(&fault_texts, "--fault", "FAULT", "KIND:RANK[:STEP[:STEPS[:SEVERITY]]], may be repeated");
  if (std::optional<int> code =
          answered(flags, arguments,
                   "Faults: slow-gpu (severity: times as long, default 1.6), slow-input (ms, default\n"
                   "0.4 of a step), slow-link (share of the rate, default 0.2), missing-rank. They\n"
                   "begin at step 40 and last to the end unless told.\n"))
    return *code;
  if (Result<void> split = split_ranks(ranks, tp, pp, dp, shape); !split.ok()) return usage_error(split.error());
  shape.seed = static_cast<uint64_t>(seed);
  if (Result<void> possible = sim::check(shape); !possible.ok()) return usage_error(possible.error());
  if (options.speed > 1 && options.steps == 0)
    return usage_error("--speed above 1 needs --steps, or the job would run into the future");
  const sim::Fleet fleet(shape, 0);
  for (const std::string& text : fault_texts) {
    Result<sim::Fault> fault = sim::parse_fault(text);
    if (!fault.ok()) return usage_error(fault.error());
    if (Result<void> possible = fleet.check(*fault); !possible.ok()) return usage_error(possible.error());
    options.faults.push_back(*fault);
  }
  Result<Url> url = parse_url(server, 4318);
  if (!url.ok()) return usage_error(url.error());

  // Any answer will do: it is the door that must be there, not a page behind it.
  Result<HttpResponse> there = HttpClient(*url, 3'000).send({.path = "/"});
  if (!there.ok()) {
    std::fprintf(stderr, "lockstep sim: no server at %s: %s\n", server.c_str(), there.error().c_str());
    return kExitUnreachable;
  }

  sim::Interrupt interrupt;
  sim::OtlpSender sender(*url);
  const auto started = std::chrono::steady_clock::now();
  auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count(); };
  options.deliver = [&](const Batch& batch, std::stop_token stop) { sender.send(batch, stop); };
  options.on_fault = [&](const sim::FaultChange& change) {
    std::printf("%7.1f s  step %-7lld %s %s\n", seconds(), static_cast<long long>(change.step),
                change.began ? "inject" : "clear ",
                change.began ? sim::describe(change.fault).c_str()
                             : format("%s on rank %d", sim::to_text(change.fault.kind), change.fault.rank).c_str());
    std::fflush(stdout);
  };
  sim::Player player(shape, options);
  std::printf("job %s: %d ranks (tp %d, pp %d, dp %d), step %.0f ms, seed %lld, to %s\n", shape.job_id.c_str(),
              shape.world_size(), shape.tp, shape.pp, shape.dp, shape.step_ms, static_cast<long long>(seed),
              server.c_str());
  std::fflush(stdout);

  std::atomic<bool> over = false;
  std::jthread thread([&](std::stop_token stop) {
    player.run(stop);
    over = true;
  });
  double progress_at = 5;
  while (!over) {
    if (interrupt.asked()) thread.request_stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (seconds() < progress_at || over) continue;
    progress_at += 5;
    const sim::SendTotals totals = sender.totals();
    std::printf("%7.1f s  step %-7lld %s%lld requests sent%s\n", seconds(), static_cast<long long>(player.step()),
                player.hung() ? "stuck, " : "", static_cast<long long>(totals.requests_sent),
                totals.requests_failed + totals.retries > 0
                    ? format(", %lld tried again, %lld failed", static_cast<long long>(totals.retries),
                             static_cast<long long>(totals.requests_failed))
                          .c_str()
                    : "");
    std::fflush(stdout);
  }
  thread.join();
  const sim::SendTotals totals = sender.totals();
  std::printf("%7.1f s  end: %lld steps; requests: %lld sent, %lld failed, %lld tried again\n", seconds(),
              static_cast<long long>(player.step() + 1), static_cast<long long>(totals.requests_sent),
              static_cast<long long>(totals.requests_failed), static_cast<long long>(totals.retries));
  std::printf("           records: %lld accepted, %lld rejected, %lld failed; %s\n",
              static_cast<long long>(totals.records_accepted), static_cast<long long>(totals.records_rejected),
              static_cast<long long>(totals.records_failed), human_bytes(static_cast<double>(totals.bytes)).c_str());
  if (!totals.last_error.empty()) std::fprintf(stderr, "lockstep sim: last error: %s\n", totals.last_error.c_str());
  return totals.requests_failed + totals.records_rejected == 0 ? kExitOk : kExitFailed;
}

}  // namespace lockstep::cli
