// `lockstep plan`: how large a server a fleet needs, from what was measured. Every figure names the page that it stands in
// and what is written there; a test holds the two together (tests/system/test_plan.py).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "base/flags.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr double kDay = 86'400;

struct Figure {
  const char* name;
  double value;
  const char* unit;
  const char* page;   // below bench/results
  const char* quote;  // stands there
};

// In the order of their names below.
constexpr Figure kFigures[] = {
    // 127.4, less the metrics store and the signals of nodes, which go by samples: 13.2 and 5.1.
    {"rank_step_cpu", 109.1e-6, "s", "price.md", "| **all** | **225.6** | **127.4** |"},
    {"sample_cpu", 0.51e-6, "s", "metrics-fleet.md", "| server: cores, CPU-s per million samples | 0.78, 0.51 |"},
    {"series_memory", 341, "bytes", "metrics-fleet.md", "4.42 GB, 5.12 GB; 341"},
    {"rank_memory", 94'124, "bytes", "diagnosis.md", "| 8,192 | 149,498 | 0.91 | 53 (71) | 0.0 | 78,440 | 94,124 |"},
    {"rank_memory_large", 38'342, "bytes", "diagnosis.md", "38,342 (after 56)"},
    {"rank_step_disk", 111, "bytes", "steps.md", "| on disk | 111 bytes a row |"},
    {"sample_disk", 1.65, "bytes", "metrics-fleet.md", "(1.65 GB) |"},
    {"rank_step_wire", 305, "bytes", "node-wire.md", "| 3.43 | 0.43 |"},
    {"node_wire", 1'000, "bytes/s", "node-wire.md", "the node's own metrics are 1.0 kB/s"},
    {"agent_cpu", 0.024, "cores", "node-h200.md", "**kept** (2.40 %, 36.2 MiB)"},
    {"agent_memory", 36.2 * 1048576, "bytes", "node-h200.md", "**kept** (2.40 %, 36.2 MiB)"},
    {"series_start", 2.49e-6, "s", "metrics-fleet.md", "| restart until series answer | 37.3 s |"},
    {"ranks_tried", 98'304, "ranks", "fleet-100k.md", "tp 8 x pp 16 x dp 768, 12,288 hosts"},
    {"series_tried", 15'000'272, "series", "metrics-fleet.md", "15,000,272 series of 19,133 nodes"},
};

double figure(std::string_view name) {
  for (const Figure& one : kFigures)
    if (name == one.name) return one.value;
  return std::nan("");
}

struct Fleet {
  int64_t gpus = 0, gpus_per_node = 8, series_per_gpu = 98, step_days = 7, metric_days = 15;
  int64_t job_gpus = 0;  // of the largest job; 0: all of them
  double step_s = 5, sample_s = 10;
};

struct Plan {
  double cores = 0, memory = 0, step_disk = 0, metric_disk = 0, wire = 0, series = 0, start_s = 0;
  double nodes = 0;
  bool tried = true;
};

// A job of more ranks than this keeps fewer steps of each in memory.
constexpr double kRanksOfWholeWindow = 15'625;
constexpr double kServerMemory = 0.5e9;  // the program itself, with nothing in it; rounded up

Plan plan_of(const Fleet& fleet) {
  const double gpus = static_cast<double>(fleet.gpus), rank_steps = gpus / fleet.step_s;
  const double largest = fleet.job_gpus > 0 ? static_cast<double>(fleet.job_gpus) : gpus;
  Plan plan;
  plan.nodes = std::ceil(gpus / static_cast<double>(fleet.gpus_per_node));
  plan.series = gpus * static_cast<double>(fleet.series_per_gpu);
  const double samples = plan.series / fleet.sample_s;
  plan.cores = rank_steps * figure("rank_step_cpu") + samples * figure("sample_cpu");
  const double per_rank = figure(largest > kRanksOfWholeWindow ? "rank_memory_large" : "rank_memory");
  plan.memory = kServerMemory + gpus * per_rank + plan.series * figure("series_memory");
  plan.step_disk = rank_steps * kDay * static_cast<double>(fleet.step_days) * figure("rank_step_disk");
  plan.metric_disk = samples * kDay * static_cast<double>(fleet.metric_days) * figure("sample_disk");
  plan.wire = rank_steps * figure("rank_step_wire") + plan.nodes * figure("node_wire");
  plan.start_s = plan.series * figure("series_start");
  plan.tried = gpus <= figure("ranks_tried") * 1.02 && plan.series <= figure("series_tried");
  return plan;
}

// What to buy for it: twice the processor time, half as much memory again, and a whole number of each.
double cores_advised(const Plan& plan) {
  return std::max(2.0, std::ceil(2 * plan.cores));
}
double memory_advised(const Plan& plan) {
  return std::max(2.0, std::ceil(1.5 * plan.memory / 1e9));
}

void print_row(const char* what, const std::string& needs, const std::string& why) {
  std::printf("  %-10s %-12s %s\n", what, needs.c_str(), why.c_str());
}

void print_plan(const Fleet& fleet, const Plan& plan) {
  std::printf("%s GPUs on %s nodes, a step every %g s, %s series, each every %g s\n\n",
              with_thousands(fleet.gpus).c_str(), with_thousands(static_cast<int64_t>(plan.nodes)).c_str(),
              fleet.step_s, with_thousands(static_cast<int64_t>(plan.series)).c_str(), fleet.sample_s);
  std::printf("The server (one machine)\n");
  print_row("cores", format("%.0f", cores_advised(plan)),
            format("%.2f in use, and as much again for bursts", plan.cores));
  print_row("memory", format("%.0f GB", memory_advised(plan)), human_bytes(plan.memory) + " in use");
  print_row("disk", human_bytes(plan.step_disk + plan.metric_disk),
            format("%lld days of steps %s, %lld days of samples %s, without rollups; and 4 GiB of log",
                   static_cast<long long>(fleet.step_days), human_bytes(plan.step_disk).c_str(),
                   static_cast<long long>(fleet.metric_days), human_bytes(plan.metric_disk).c_str()));
  print_row("network", human_bytes(plan.wire) + "/s", "in, from all agents");
  print_row("a start", format("%.0f s", std::ceil(plan.start_s)), "until it answers again");
  std::printf(
      "  with       lockstepd --step-days %lld --step-bytes-max %.0f --metric-days %lld --metric-bytes-max %.0f\n",
      static_cast<long long>(fleet.step_days), std::ceil(plan.step_disk * 1.2),
      static_cast<long long>(fleet.metric_days), std::ceil(plan.metric_disk * 1.2));
  std::printf("\nEach node\n");
  print_row("agent", format("%.1f %%", 100 * figure("agent_cpu")),
            format("of a core, %.0f MiB, on 8 GPUs read every second", figure("agent_memory") / 1048576));
  if (!plan.tried)
    std::printf("\nBeyond what was tried: %s ranks in one job, %s series. Several servers, a part of the fleet each.\n",
                with_thousands(static_cast<int64_t>(figure("ranks_tried"))).c_str(),
                with_thousands(static_cast<int64_t>(figure("series_tried"))).c_str());
  std::printf("\nFrom (bench/results)\n");
  for (const Figure& one : kFigures)
    std::printf("  %-18s %-12s %s\n", one.name, format("%.6g %s", one.value, one.unit).c_str(), one.page);
}

std::string plan_json(const Plan& plan) {
  JsonWriter json;
  json.begin_object()
      .field("nodes", plan.nodes)
      .field("series", plan.series)
      .field("cores_used", plan.cores)
      .field("cores", cores_advised(plan))
      .field("memory_bytes_used", plan.memory)
      .field("memory_bytes", memory_advised(plan) * 1e9)
      .field("step_bytes", plan.step_disk)
      .field("metric_bytes", plan.metric_disk)
      .field("network_bytes_per_second", plan.wire)
      .field("start_s", plan.start_s)
      .field("tried", plan.tried)
      .key("figures")
      .begin_array();
  for (const Figure& one : kFigures)
    json.begin_object()
        .field("name", one.name)
        .field("value", one.value)
        .field("unit", one.unit)
        .field("page", one.page)
        .field("quote", one.quote)
        .end_object();
  json.end_array().end_object();
  return json.take();
}

}  // namespace

int run_plan(const Arguments& arguments) {
  Fleet fleet;
  bool json = false;
  Flags flags("lockstep plan", "how large a server a fleet needs, from what was measured");
  flags.number(&fleet.gpus, "--gpus", "N", "GPUs of the fleet (required)", 1, 10'000'000)
      .number(&fleet.gpus_per_node, "--gpus-per-node", "N", "GPUs of a node (default 8)", 1, 1024)
      .number(&fleet.job_gpus, "--largest-job", "N", "GPUs of the largest job (default: all)", 1, 10'000'000)
      .decimal(&fleet.step_s, "--step-seconds", "X", "a step of a job takes so long (default 5)", 0.001, 100'000)
      .number(&fleet.series_per_gpu, "--series-per-gpu", "N",
              "series of metrics for each GPU, its node's share included (default 98)", 0, 100'000)
      .decimal(&fleet.sample_s, "--sample-seconds", "X", "a series has a sample every so often (default 10)", 0.1,
               3'600)
      .number(&fleet.step_days, "--step-days", "N", "days for which steps are kept (default 7)", 1, 3'650)
      .number(&fleet.metric_days, "--metric-days", "N", "days for which raw samples are kept (default 15)", 1, 3'650)
      .toggle(&json, "--json", "the answer as JSON, with where each figure stands");
  if (std::optional<int> code = answered(flags, arguments)) return *code;
  if (fleet.gpus == 0) {
    std::fprintf(stderr, "lockstep plan: --gpus says how many GPUs (lockstep plan --help)\n");
    return kExitUsage;
  }
  const Plan plan = plan_of(fleet);
  if (json)
    std::printf("%s\n", plan_json(plan).c_str());
  else
    print_plan(fleet, plan);
  return kExitOk;
}

}  // namespace lockstep::cli
