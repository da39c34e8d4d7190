// What the metrics engine costs on the reference load (reference_load.h): CPU per sample and per new series, memory per
// series, bytes per sample in the log and on disk, time to start again, time of two fleet questions. How long a push
// waits for its answer (wall time), by what the answer promises; the folder is made in TMPDIR.
//
//   engine_bench                        64 nodes (50,176 series), as the test of every build runs it
//   LOCKSTEP_BENCH_NODES=1280           1,003,520 series
//   LOCKSTEP_BENCH_TICKS=360            an hour instead of 24 ticks
// Time is CPU time of the process. What was stored is checked against the load, so that fast and wrong fails.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "store/metrics/engine_world.h"
#include "store/metrics/reference_load.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::metrics {
namespace {

double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

size_t from_environment(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<size_t>(std::atoll(text));
}

double resident_bytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    if (word == "RssAnon:") {
      double kib = 0;
      file >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

uint64_t folder_bytes(const std::string& folder) {
  uint64_t sum = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) sum += entry.file_size();
  return sum;
}

// The label bytes of a node, as a sender would repeat them.
struct Node {
  std::string bytes;
  std::vector<std::pair<uint32_t, uint32_t>> places;
  explicit Node(uint64_t number) {
    for (size_t k = 0; k < ReferenceLoad::kPerNode; ++k) {
      const size_t start = bytes.size();
      for (const auto& [name, value] : ReferenceLoad::labels(number, k)) bytes += name + '\xff' + value + '\xff';
      places.emplace_back(static_cast<uint32_t>(start), static_cast<uint32_t>(bytes.size() - start));
    }
  }
};

struct PushCost {
  double create_s = 0;  // of the first tick, which makes the series
  double append_s = 0;
};

// Every node's row of every tick. `states`: of all series, so that a row can be made after another; not the engine's
// memory.
PushCost push_all(MetricEngine& engine, const ReferenceLoad& load, size_t ticks, std::vector<double>& states) {
  const uint64_t nodes = states.size() / ReferenceLoad::kPerNode;
  std::vector<double> values(ReferenceLoad::kPerNode);
  std::vector<PushedSeries> push(ReferenceLoad::kPerNode);
  PushCost cost;
  for (size_t tick = 0; tick < ticks; ++tick) {
    for (uint64_t number = 0; number < nodes; ++number) {
      const Node node(number);
      const int64_t time_ms = load.time_ms(number, tick);
      for (size_t k = 0; k < ReferenceLoad::kPerNode; ++k) {
        const uint64_t id = number * ReferenceLoad::kPerNode + k;
        const size_t kind = k % ReferenceLoad::kPerGpu;
        states[id] = load.next(kind, id, tick, states[id]);
        values[k] = load.shown(kind, id, tick, states[id]);
        push[k] = {std::string_view(node.bytes).substr(node.places[k].first, node.places[k].second),
                   {&time_ms, 1},
                   {&values[k], 1},
                   {},
                   {}};
      }
      const double made = cpu_s();
      Result<PushOutcome> outcome = engine.push("node " + std::to_string(number), push, [&](size_t k) {
        return Result<Labels>(ReferenceLoad::labels(number, k));
      });
      if (!outcome.ok() || outcome->stored != ReferenceLoad::kPerNode) std::abort();
      (tick == 0 ? cost.create_s : cost.append_s) += cpu_s() - made;
    }
  }
  return cost;
}

// All samples of what matches: `what`_ms and `what`_series.
void ask(benchmark::State& state, const MetricEngine& engine, const ReferenceLoad& load, size_t ticks,
         const std::string& what, const std::vector<LabelMatcher>& matchers) {
  const int64_t from_ms = load.time_ms(0, 0) - 20'000, to_ms = load.time_ms(0, ticks);
  const double start = cpu_s();
  Result<std::unique_ptr<MetricSelection>> selection = engine.select(matchers, {.from_ms = from_ms, .to_ms = to_ms});
  if (!selection.ok()) std::abort();
  SampleColumns columns;
  double sum = 0;
  for (size_t i = 0; i < (*selection)->size(); ++i) {
    if (!(*selection)->samples(i, from_ms, to_ms, columns).ok()) std::abort();
    sum += columns.values.back();
    if (columns.values.size() != ticks) std::abort();
  }
  benchmark::DoNotOptimize(sum);
  state.counters[what + "_ms"] = (cpu_s() - start) * 1e3;
  state.counters[what + "_series"] = static_cast<double>((*selection)->size());
}

void Engine(benchmark::State& state) {
  const size_t nodes = from_environment("LOCKSTEP_BENCH_NODES", 64);
  const size_t ticks = from_environment("LOCKSTEP_BENCH_TICKS", 24);
  const double series = static_cast<double>(nodes * ReferenceLoad::kPerNode);
  ReferenceLoad load;
  for (auto _ : state) {
    testing::FakeClock clock{kStartNs};
    testing::TemporaryFolder folder;
    Counters counters(kStoreCounters);
    MetricEngineOptions options;
    options.folder = folder.path();
    options.background = false;
    auto open = [&] {
      Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options, clock, counters);
      if (!engine.ok()) std::abort();
      return std::move(*engine);
    };
    malloc_trim(0);
    const double before_bytes = resident_bytes();
    std::unique_ptr<MetricEngine> engine = open();
    std::vector<double> states(nodes * ReferenceLoad::kPerNode);
    for (size_t i = 0; i < states.size(); ++i) states[i] = load.start(i % ReferenceLoad::kPerGpu, i);
    const PushCost cost = push_all(*engine, load, ticks, states);
    const double held_bytes = resident_bytes() - before_bytes - static_cast<double>(states.size() * 8);
    if (!engine->sync().ok()) std::abort();
    const double samples = series * static_cast<double>(ticks);
    state.counters["log_B_per_sample"] = static_cast<double>(folder_bytes(folder.path() + "/log")) / samples;
    state.counters["create_us_per_series"] = cost.create_s / series * 1e6;
    state.counters["append_ns_per_sample"] = cost.append_s / (samples - series) * 1e9;
    state.counters["rss_B_per_series"] = held_bytes / series;
    state.counters["reported_B_per_series"] = static_cast<double>(engine->memory_bytes()) / series;
    ask(state, *engine, load, ticks, "one_metric",
        {label_is("__name__", "lockstep_reference_metric_88"), label_is("job_id", "train-0000")});
    ask(state, *engine, load, ticks, "links", {label_is("__name__", "lockstep_reference_metric_40")});

    engine.reset();
    const double start = cpu_s();
    engine = open();
    state.counters["recover_s"] = cpu_s() - start;
    ask(state, *engine, load, ticks, "after", {label_is("__name__", "lockstep_reference_metric_88")});
    const double seal_start = cpu_s();
    if (!engine->seal().ok()) std::abort();
    state.counters["seal_ns_per_sample"] = (cpu_s() - seal_start) / samples * 1e9;
    state.counters["disk_B_per_sample"] = static_cast<double>(engine->disk_bytes()) / samples;
    ask(state, *engine, load, ticks, "disk_links", {label_is("__name__", "lockstep_reference_metric_40")});
  }
}
BENCHMARK(Engine)->Iterations(1)->Unit(benchmark::kMillisecond);

// What a sender waits for, by when it is told: threads that push a node's samples each, as fast as they are answered.
void Acknowledge(benchmark::State& state) {
  const Ack ack = state.range(0) == 0 ? Ack::kWritten : Ack::kFsynced;
  const size_t writers = static_cast<size_t>(state.range(1));
  const size_t pushes = from_environment("LOCKSTEP_BENCH_PUSHES", 64);
  for (auto _ : state) {
    testing::FakeClock clock{kStartNs};
    testing::TemporaryFolder folder;
    Counters counters(kStoreCounters);
    MetricEngineOptions options;
    options.folder = folder.path();
    options.ack = ack;
    options.future_ms = int64_t{1} << 40;
    Result<std::unique_ptr<MetricEngine>> engine = MetricEngine::open(options, clock, counters);
    if (!engine.ok()) std::abort();
    std::vector<std::vector<double>> waited_ms(writers);
    auto write = [&](size_t writer, size_t first, size_t count) {
      ReferenceLoad load;
      const Node node(writer);
      std::vector<double> values(ReferenceLoad::kPerNode);
      std::vector<PushedSeries> push(ReferenceLoad::kPerNode);
      for (size_t tick = first; tick < first + count; ++tick) {
        const int64_t time_ms = load.time_ms(writer, tick);
        for (size_t k = 0; k < push.size(); ++k) {
          values[k] = static_cast<double>(ReferenceLoad::mix(tick * 1'000'003 + k) % 10'000) / 8;
          push[k] = {std::string_view(node.bytes).substr(node.places[k].first, node.places[k].second),
                     {&time_ms, 1},
                     {&values[k], 1},
                     {},
                     {}};
        }
        const auto start = std::chrono::steady_clock::now();
        Result<PushOutcome> outcome = (*engine)->push("node " + std::to_string(writer), push, [&](size_t k) {
          return Result<Labels>(ReferenceLoad::labels(writer, k));
        });
        if (!outcome.ok() || outcome->stored != push.size()) std::abort();
        if (first > 0)
          waited_ms[writer].push_back(
              std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      }
    };
    for (size_t writer = 0; writer < writers; ++writer) write(writer, 0, 1);  // series are made
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (size_t writer = 0; writer < writers; ++writer)
        threads.emplace_back([&, writer] { write(writer, 1, pushes); });
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::vector<double> all;
    for (const std::vector<double>& some : waited_ms) all.insert(all.end(), some.begin(), some.end());
    std::sort(all.begin(), all.end());
    state.counters["push_ms_median"] = all[all.size() / 2];
    state.counters["push_ms_p99"] = all[all.size() * 99 / 100];
    state.counters["samples_per_s"] = static_cast<double>(all.size() * ReferenceLoad::kPerNode) / seconds;
  }
}
BENCHMARK(Acknowledge)
    ->ArgNames({"synced", "writers"})
    ->ArgsProduct({{0, 1}, {1, 4, 16}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void Codec(benchmark::State& state) {
  const size_t rows = static_cast<size_t>(state.range(0));
  ReferenceLoad load;
  std::vector<std::vector<double>> columns;
  for (size_t k = 0; k < ReferenceLoad::kPerGpu; ++k) columns.push_back(load.column(3, k, rows));
  std::string bytes;
  double encode_s = 0, decode_s = 0, samples = 0, size = 0;
  double back[kChunkRowsMax];
  for (auto _ : state) {
    for (const std::vector<double>& column : columns) {
      bytes.clear();
      const double start = cpu_s();
      for (int i = 0; i < 20; ++i) {
        bytes.clear();
        encode_values(column, WithSummary::kYes, bytes);
      }
      const double middle = cpu_s();
      for (int i = 0; i < 20; ++i) {
        if (!decode_values(bytes, rows, back)) std::abort();
      }
      decode_s += cpu_s() - middle;
      encode_s += middle - start;
      samples += static_cast<double>(rows) * 20;
      size += static_cast<double>(bytes.size()) * 20;
    }
  }
  state.counters["encode_ns"] = encode_s / samples * 1e9;
  state.counters["decode_ns"] = decode_s / samples * 1e9;
  state.counters["B_per_sample"] = size / samples;
}
BENCHMARK(Codec)->Arg(16)->Arg(120)->Arg(240)->Iterations(20);

}  // namespace
}  // namespace lockstep::metrics
