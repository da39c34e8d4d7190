// What spans cost: decoding and storing, bytes on disk, and how long questions take on large stores.
//
//   traces_bench micro [--spans N]        decode + store + seal, one thread; result checked
//   traces_bench scale [--spans N]        a step of 4,096 ranks; N spans on disk; times of questions
//   traces_bench generate DIR [--spans N] requests as files, for the comparison through the receivers (compare.py)
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "bench/traces/load.h"
#include "ingest/otlp/span_decode.h"
#include "store/spans/columnar_span_store.h"
#include "store/store_counters.h"
#include "testing/temporary_folder.h"
#include "wire/otlp.h"

namespace lockstep::bench {
namespace {

double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}
double wall_s() {
  return static_cast<double>(SystemClock().monotonic_ns()) * 1e-9;
}
double peak_rss_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

uint64_t bytes_in(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) bytes += entry.file_size();
  return bytes;
}

struct Store {
  testing::TemporaryFolder folder;
  SystemClock clock;
  Counters counters{kStoreCounters};
  std::unique_ptr<ColumnarSpanStore> store;
  Store() { open(); }
  void open() {
    store.reset();
    Result<std::unique_ptr<ColumnarSpanStore>> opened =
        ColumnarSpanStore::open({.folder = folder.path(), .background = false}, clock, counters);
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.error().c_str());
      std::exit(1);
    }
    store = std::move(*opened);
  }
};

void fail(const char* what) {
  std::fprintf(stderr, "traces_bench: %s\n", what);
  std::exit(1);
}

struct Cost {
  double decode = 0;
  double append = 0;
  double seal = 0;
  double total() const { return decode + append + seal; }
};

// Requests into a new store, sealed whenever it is full; decoding, storing and sealing timed apart.
Cost store_all(const std::vector<std::string>& requests, size_t& spans, uint64_t& disk_bytes) {
  Cost cost;
  Store store;
  size_t in_head = 0;
  uint64_t sequence = 0;
  spans = 0;
  auto timed = [](double& into, auto&& work) {
    const double before = cpu_s();
    work();
    into += cpu_s() - before;
  };
  for (const std::string& request : requests) {
    DecodedSpans decoded;
    timed(cost.decode, [&] {
      Result<DecodedSpans> result = decode_spans(request);
      if (!result.ok()) fail(result.error().c_str());
      decoded = std::move(*result);
    });
    spans += decoded.columns.size();
    in_head += decoded.columns.size();
    timed(cost.append, [&] { store.store->append(std::move(decoded.columns), 1, ++sequence); });
    if (in_head >= spans::kRowGroupRows) {
      timed(cost.seal, [&] { (void)store.store->seal(); });
      in_head = 0;
    }
  }
  timed(cost.seal, [&] { (void)store.store->seal(); });
  disk_bytes = bytes_in(store.folder.path());
  return cost;
}

// The cheapest of a few runs: what others do on the machine makes a run dearer, never cheaper.
void micro(const char* name, const std::vector<std::string>& requests) {
  constexpr int kRuns = 5;
  size_t spans = 0;
  uint64_t disk = 0;
  size_t wire_bytes = 0;
  for (const std::string& request : requests) wire_bytes += request.size();
  Cost best = store_all(requests, spans, disk);
  double objects = 1e9;
  for (int i = 1; i < kRuns; ++i) {
    const Cost cost = store_all(requests, spans, disk);
    if (cost.total() < best.total()) best = cost;
    const double before = cpu_s();
    for (const std::string& request : requests) {
      if (!otlp::decode(Signal::kSpans, request).ok()) fail("not decoded");
    }
    objects = std::min(objects, cpu_s() - before);
  }
  const double per_span = 1e9 / static_cast<double>(spans);
  std::printf("%s: %zu spans, %zu B each on the wire\n", name, spans, wire_bytes / spans);
  std::printf(
      "  decode %.0f + append %.0f + sort, encode, write %.0f = %.0f ns per span: %.2f M spans per core-second\n",
      best.decode * per_span, best.append * per_span, best.seal * per_span, best.total() * per_span,
      static_cast<double>(spans) / best.total() / 1e6);
  std::printf("  (decoding into Span objects alone: %.0f ns)\n", objects * per_span);
  std::printf("  on disk %.2f B per span (%.2f MB)\n", static_cast<double>(disk) / static_cast<double>(spans),
              static_cast<double>(disk) / 1e6);
}

int run_micro(int64_t spans_wanted) {
  Load load;
  std::vector<std::string> requests;
  const int64_t per_request = kRanksPerHost * (1 + kPhases + load.ops);
  for (StepNumber step = 0_step; static_cast<int64_t>(requests.size()) * per_request < spans_wanted; ++step) {
    for (int32_t host = 0; host < load.ranks / kRanksPerHost; ++host)
      requests.push_back(host_request(load, step, host));
  }
  micro("steps of 64 ranks, 93 % operations", requests);
  // Fast and wrong is wrong: the last step is read back and compared.
  Store store;
  const int64_t steps = 20;
  for (StepNumber step = 0_step; step < StepNumber{steps}; ++step) {
    for (int32_t host = 0; host < load.ranks / kRanksPerHost; ++host) {
      Result<DecodedSpans> decoded = decode_spans(host_request(load, step, host));
      store.store->append(std::move(decoded->columns), 1, 0);
    }
  }
  (void)store.store->seal();
  Page<StoredSpan> page = store.store->trace(step_trace_id(load.job_id, 0, StepNumber{steps - 1}), 1'000'000);
  std::map<SpanId, Span> got;
  for (StoredSpan& item : page.items) got[item.span.span_id] = std::move(item.span);
  for (Rank rank : all_ranks(load.ranks)) {
    for (const Span& span : rank_step(load, StepNumber{steps - 1}, rank).spans) {
      if (got[span.span_id] != span) fail("a span did not come back as it was sent");
    }
  }
  if (got.size() != static_cast<size_t>(load.ranks * (1 + kPhases + load.ops))) fail("spans are missing");
  std::printf("  read back and compared: %zu spans\n", got.size());

  requests.clear();
  for (int64_t i = 0; i * 1000 < spans_wanted / 4; ++i) requests.push_back(service_request(load, i, 200));
  micro("traces of a service", requests);
  std::printf("peak RSS %.0f MB, requests of the load included\n", peak_rss_mb());
  return 0;
}

void ask(const char* what, const std::function<size_t()>& question) {
  std::vector<double> times;
  size_t found = 0;
  for (int i = 0; i < 5; ++i) {
    const double before = wall_s();
    found = question();
    times.push_back((wall_s() - before) * 1e3);
  }
  std::sort(times.begin(), times.end());
  std::printf("  %-58s %8zu found   p50 %8.2f ms   most %8.2f ms\n", what, found, times[2], times[4]);
}

double bytes_per_span(const Store& store, size_t spans) {
  return static_cast<double>(bytes_in(store.folder.path())) / static_cast<double>(spans);
}

// One step of many ranks, in memory and on disk.
void scale_one_step() {
  Load load;
  load.ranks = 4096;
  Store store;
  double append = 0;
  size_t spans = 0;
  for (int32_t host = 0; host < load.ranks / kRanksPerHost; ++host) {
    const std::string request = host_request(load, 7_step, host);
    const double before = wall_s();
    Result<DecodedSpans> decoded = decode_spans(request);
    spans += decoded->columns.size();
    store.store->append(std::move(decoded->columns), 1, 0);
    append += wall_s() - before;
  }
  std::printf("one step of 4,096 ranks, %zu spans\n", spans);
  std::printf("  decoded and appended in %.0f ms\n", append * 1e3);
  ask("step(), from the head", [&] { return store.store->step(load.job_id, 0, 7_step, {}).size(); });
  const double before = wall_s();
  (void)store.store->seal();
  std::printf("  sealed in %.0f ms, %.2f B per span\n", (wall_s() - before) * 1e3, bytes_per_span(store, spans));
  ask("step(), all ranks, from disk", [&] { return store.store->step(load.job_id, 0, 7_step, {}).size(); });
  ask("step(), ranks 1000 to 1007, from disk", [&] {
    return store.store
        ->step(load.job_id, 0, 7_step,
               {1000_rank, 1001_rank, 1002_rank, 1003_rank, 1004_rank, 1005_rank, 1006_rank, 1007_rank})
        .size();
  });
  ask("traced_steps()", [&] { return store.store->traced_steps(load.job_id, 0, 100).items.size(); });
  ask("trace(), first 1000 spans",
      [&] { return store.store->trace(step_trace_id(load.job_id, 0, 7_step), 1000).items.size(); });
}

// What a store holds after the load has been put into it.
struct Filled {
  size_t spans = 0;
  int64_t steps = 0;
  TraceId service_trace{};  // one of a service
};

Filled fill(const Load& load, Store& store, int64_t spans_wanted) {
  Filled filled;
  int64_t number = 0;
  size_t in_head = 0;
  auto add = [&](const std::string& request) {
    Result<DecodedSpans> decoded = decode_spans(request);
    filled.spans += decoded->columns.size();
    in_head += decoded->columns.size();
    if (number == 100 && !decoded->columns.sources[0]->identity) filled.service_trace = decoded->columns.traces[0];
    store.store->append(std::move(decoded->columns), 1, 0);
    if (in_head >= spans::kRowGroupRows) {
      (void)store.store->seal();
      in_head = 0;
    }
  };
  // Three quarters are of training, as much as that job sends in 18 minutes if every step is asked for.
  for (; static_cast<int64_t>(filled.spans) < spans_wanted; ++filled.steps) {
    for (int32_t host = 0; host < load.ranks / kRanksPerHost; ++host)
      add(host_request(load, StepNumber{filled.steps}, host));
    for (int i = 0; i < 2; ++i) add(service_request(load, number++, 228));
  }
  (void)store.store->seal();
  return filled;
}

void ask_all(const Load& load, const ColumnarSpanStore& all, const Filled& filled) {
  const int64_t middle = filled.steps / 2;
  ask("trace by id: a step of 64 ranks",
      [&] { return all.trace(step_trace_id(load.job_id, 0, StepNumber{middle}), 100'000).items.size(); });
  ask("trace by id: five spans of a service", [&] { return all.trace(filled.service_trace, 100).items.size(); });
  ask("trace by id: none such", [&] { return all.trace(TraceId{1, 2, 3}, 100).items.size(); });
  ask("step(), 64 ranks", [&] { return all.step(load.job_id, 0, StepNumber{middle}, {}).size(); });
  ask("traced_steps(), newest 50", [&] { return all.traced_steps(load.job_id, 0, 50).items.size(); });
  ask("search: service and name, one minute", [&] {
    const int64_t from = load.first_unix_ns + middle * 1'000'000'000;
    return all
        .search({.service = "lockstep-agent",
                 .name = "AllReduce",
                 .start_from_unix_ns = from,
                 .start_to_unix_ns = from + 60'000'000'000})
        .total;
  });
  ask("search: errors of a service, all time",
      [&] { return all.search({.service = "vllm-1", .errors_only = true}).total; });
  ask("search: longest operations, all time",
      [&] { return all.search({.name = "AllReduce", .duration_least_ns = 4'150'000}).total; });
  ask("search: an attribute, all time", [&] {
    return all.search({.attributes = {{"gen_ai.usage.prompt_tokens", "77"}}}).total;
  });
  ask("search: step by attribute", [&] {
    return all.search({.service = "lockstep-agent", .attributes = {{"lockstep.step", std::to_string(middle)}}}).total;
  });
  ask("search: everything, newest 20", [&] { return all.search({}).total; });
  ask("names of services, spans, attributes",
      [&] { return all.services().size() + all.span_names("").size() + all.attribute_names().span.size(); });
}

int run_scale(int64_t spans_wanted) {
  scale_one_step();
  const Load load;
  Store store;
  const double began = wall_s();
  const Filled filled = fill(load, store, spans_wanted);
  const double filled_s = wall_s() - began;
  const double before = wall_s();
  store.open();
  std::printf("%zu spans on disk, %.2f B each, filled in %.1f s (the load's own making included), opened in %.0f ms\n",
              filled.spans, bytes_per_span(store, filled.spans), filled_s, (wall_s() - before) * 1e3);
  ask_all(load, *store.store, filled);
  std::printf("peak RSS %.0f MB\n", peak_rss_mb());
  return 0;
}

int run_generate(const std::string& folder, int64_t spans_wanted) {
  if (Result<void> made = make_directories(folder); !made.ok()) fail(made.error().c_str());
  Load load;
  load.first_unix_ns = SystemClock().unix_ns() - 3600ll * 1'000'000'000;
  size_t spans = 0;
  size_t requests = 0;
  size_t bytes = 0;
  for (StepNumber step = 0_step; static_cast<int64_t>(spans) < spans_wanted; ++step) {
    for (int32_t host = 0; host < load.ranks / kRanksPerHost; ++host) {
      const std::string request = host_request(load, step, host);
      UniqueFd fd(
          ::open(format("%s/%06zu.otlp", folder.c_str(), requests++).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
      if (Result<void> written = write_all(fd.get(), request); !written.ok()) fail(written.error().c_str());
      spans += static_cast<size_t>(kRanksPerHost * (1 + kPhases + load.ops));
      bytes += request.size();
    }
  }
  std::printf("{\"spans\": %zu, \"requests\": %zu, \"bytes\": %zu}\n", spans, requests, bytes);
  return 0;
}

int64_t spans_of(const std::vector<std::string>& arguments, int64_t fallback) {
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--spans") return parse_int(arguments[i + 1]).value_or(fallback);
  }
  return fallback;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using namespace lockstep::bench;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "micro") return run_micro(spans_of(arguments, 1'000'000));
  if (command == "scale") return run_scale(spans_of(arguments, 10'000'000));
  if (command == "generate" && arguments.size() >= 2) return run_generate(arguments[1], spans_of(arguments, 1'000'000));
  std::fprintf(stderr, "usage: traces_bench micro|scale [--spans N], traces_bench generate DIR [--spans N]\n");
  return 2;
}
