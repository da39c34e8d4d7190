// What the topology of a large fleet costs: reported, built, held, asked.
//
//   fabric_bench [HOSTS] [FOLDER]     hosts of eight GPUs (default 12,500), where metrics go (default /tmp)
//
// The fleet: an adapter for each GPU, on its rail's leaf; pods of 125 hosts (800 leaves at 12,500 hosts), 200 spines in
// eight planes, so that each leaf has 25 uplinks. One job has all ranks. Metrics: two counters of every adapter, in the
// real engine, so that a path is asked for as the API does. Every answer is looked at, so that fast and wrong fails.
// Times are CPU time of the one thread that works.
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "fabric/fabric.h"
#include "fabric/graph.h"
#include "fabric/hop_state.h"
#include "fabric/path.h"
#include "fabric/testing/fleet.h"
#include "store/metrics/metric_engine.h"
#include "store/store_counters.h"

namespace lockstep::fabric {
namespace {

// Of this thread's CPU: nothing here waits for anybody, and a machine that others use shows the same.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double held_megabytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / 1e6;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fabric_bench: wrong: %s\n", what);
  std::exit(1);
}

struct Times {
  std::vector<double> all;
  template <typename Work>
  void measure(const Work& work) {
    const double began = seconds();
    work();
    all.push_back(seconds() - began);
  }
  void print(const char* what) {
    std::sort(all.begin(), all.end());
    auto at = [&](double share) { return 1e3 * all[static_cast<size_t>(share * static_cast<double>(all.size() - 1))]; };
    std::printf("%-34s p50 %8.3f ms  p99 %8.3f ms  most %8.3f ms  (%zu)\n", what, at(0.5), at(0.99), at(1), all.size());
  }
};

void fill_metrics(MetricEngine& metrics, const FleetShape& shape, int64_t now_ms) {
  constexpr const char* kNames[] = {"lockstep_nic_np_ecn_marked_roce_packets_total", "hw_network_io_bytes_total"};
  for (int32_t host = 0; host < shape.hosts; ++host) {
    std::vector<std::string> raw;
    std::vector<Labels> labels;
    for (int32_t rail = 0; rail < shape.gpus_per_host; ++rail) {
      for (const char* name : kNames) {
        labels.push_back(
            {{"__name__", name}, {"device", format("mlx5_%d", rail)}, {"host", fleet_host(host)}, {"port", "1"}});
        raw.push_back(format("T%s %d %d", name, host, rail));
      }
    }
    for (const int64_t ago_ms : {90'000, 30'000, 1'000}) {
      const int64_t time_ms = now_ms - ago_ms;
      const double value = static_cast<double>(time_ms % 1'000'000);
      std::vector<PushedSeries> series;
      for (const std::string& one : raw)
        series.push_back({.raw_labels = one, .times_ms = {&time_ms, 1}, .values = {&value, 1}});
      const Result<PushOutcome> pushed =
          metrics.push(fleet_host(host), series, [&](size_t k) -> Result<Labels> { return labels[k]; });
      require(pushed.ok() && pushed->refused.empty(), "a push was refused");
    }
  }
}

// Every agent reports its node, and every rank that it runs there.
void report(Fabric& fabric, const FleetShape& shape, int64_t now) {
  const double began = seconds();
  for (int32_t host = 0; host < shape.hosts; ++host)
    fabric.topology.on_metrics({{"host.name", fleet_host(host)}}, fleet_points(shape, host), now);
  std::printf("reported: %d hosts, %d GPUs            %8.2f s\n", shape.hosts, shape.hosts * 8, seconds() - began);
  const int32_t ranks = shape.hosts * 8;
  for (int32_t rank = 0; rank < ranks; ++rank)
    fabric.places.on_rank_started(
        {"llama", 0, Rank{rank}, ranks, rank % 8, fleet_host(rank / 8), fleet_gpu(rank / 8, rank % 8)}, now);
}

// Which ports and adapters a path crosses, asked how they do.
void ask_states(const MetricEngine& metrics, const Topology& topology, const FabricPath& path, int64_t now) {
  const HopStates states(metrics, topology, now);
  std::vector<NodeIndex> nics;
  std::vector<HopStates::PortEnd> ends;
  for (const Hop& hop : path.hops) {
    if (hop.link != kNone) {
      ends.push_back({hop.link, hop.node});
      ends.push_back({hop.link, topology.other_end(hop.link, hop.node)});
    } else if (topology.nodes()[hop.node].kind == NodeKind::kNic) {
      nics.push_back(hop.node);
    }
  }
  require(states.of_ports(ends).size() == ends.size(), "a port without an answer");
  for (const HopStates::Values& values : states.of_nics(nics)) require(!values.empty(), "an adapter without values");
}

void measure_paths(Fabric& fabric, const Topology& topology, const MetricEngine& metrics, int32_t ranks, int64_t now) {
  std::mt19937 random(1);
  Times path_times, state_times;
  for (int i = 0; i < 5000; ++i) {
    const std::string a = std::to_string(random() % static_cast<uint32_t>(ranks)),
                      b = std::to_string(random() % static_cast<uint32_t>(ranks));
    std::optional<FabricPath> path;
    path_times.measure([&] {
      const Result<PathEnd> from = find_path_end(topology, fabric.places, "llama", a, now),
                            to = find_path_end(topology, fabric.places, "llama", b, now);
      require(from.ok() && to.ok(), "a rank is not found");
      path = find_path(topology, {.a = from->gpu, .b = to->gpu}, nullptr);
    });
    if (i % 5 == 0) state_times.measure([&] { ask_states(metrics, topology, *path, now); });
  }
  path_times.print("path of two ranks");
  state_times.print("states of its hops, and siblings");
}

void measure_graphs(Fabric& fabric, const Topology& topology, int64_t now) {
  Times graph_times, affected_times;
  for (int i = 0; i < 50; ++i) {
    graph_times.measure([&] {
      const Result<Graph> graph = find_graph(topology, fabric.places, {}, {.focus = format("leaf-%d", i), .depth = 2});
      require(graph.ok() && graph->nodes.size() >= 60, "a graph is too small");
    });
    affected_times.measure([&] {
      const Result<Affected> affected = find_affected(topology, fabric.places, format("leaf-%d", i), now);
      require(affected.ok() && affected->jobs.size() == 1, "nobody is affected");
    });
  }
  graph_times.print("graph from a leaf, two deep");
  affected_times.print("who depends on a leaf");
}

void run(int32_t hosts, const std::string& folder) {
  FleetShape shape{.hosts = hosts, .hosts_per_pod = 125, .spines = 200, .planes = 8};
  SystemClock clock;
  const double before_mb = held_megabytes();
  Fabric fabric(fleet_switches(shape), clock);
  const int64_t now = clock.unix_ns();
  report(fabric, shape, now);
  const int32_t ranks = hosts * 8;
  const double reported_mb = held_megabytes() - before_mb;
  const double began = seconds();
  const std::shared_ptr<const Topology> topology = fabric.topology.topology();
  std::printf("built: %zu nodes, %zu links           %8.2f s\n", topology->nodes().size(), topology->links().size(),
              seconds() - began);
  require(topology->count(NodeKind::kGpu) == static_cast<size_t>(ranks), "GPUs are missing");
  std::printf("held: topology %.1f MB (%.1f by its own count), reports and places %.1f MB\n",
              held_megabytes() - before_mb - reported_mb, static_cast<double>(topology->memory_bytes()) / 1e6,
              reported_mb);

  Counters counters(kStoreCounters);
  const std::string metric_folder = folder + format("/fabric_bench.%d", getpid());
  require(make_directories(metric_folder).ok(), "no folder");
  auto metrics = MetricEngine::open({.folder = metric_folder, .background = false}, clock, counters);
  require(metrics.ok(), "metrics do not open");
  fill_metrics(**metrics, shape, now / 1'000'000);
  std::printf("metrics: %d series\n", ranks * 2);
  measure_paths(fabric, *topology, **metrics, ranks, now);
  measure_graphs(fabric, *topology, now);
  metrics->reset();
  std::filesystem::remove_all(metric_folder);
}

}  // namespace
}  // namespace lockstep::fabric

int main(int argc, char** argv) {
  const int hosts = argc > 1 ? std::atoi(argv[1]) : 12'500;
  if (hosts < 130 || hosts > 100'000) {
    std::fprintf(stderr, "fabric_bench: 130 to 100000 hosts\n");
    return 2;
  }
  lockstep::fabric::run(hosts, argc > 2 ? argv[2] : "/tmp");
  return 0;
}
