// What a remote write request costs to read: snappy and the walk, per sample, with the labels of a GPU's series (238
// bytes a sample). One request is four nodes of 8 GPUs with 98 series each, one sample a series.
#include <benchmark/benchmark.h>

#include <cmath>

#include "base/text.h"
#include "wire/compression.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

std::vector<Labels> node_labels() {
  std::vector<Labels> all;
  for (int gpu = 0; gpu < 32; ++gpu) {
    for (int metric = 0; metric < 98; ++metric) {
      all.push_back({{"__name__", format("lockstep_gpu_metric_%02d_bytes_total", metric)},
                     {"cluster", "cluster-eu-west-1"},
                     {"gpu", std::to_string(gpu % 8)},
                     {"host", format("gpu-node-%05d", gpu / 8)},
                     {"job_id", "train-0000"},
                     {"model", "NVIDIA H100 80GB HBM3"},
                     {"rank", std::to_string(gpu)},
                     {"uuid", format("GPU-%08x-aaaa-bbbb-cccc-%012x", gpu * 7919, gpu)}});
    }
  }
  return all;
}

double value_of(size_t k) {
  return std::round(640 + 25 * std::sin(static_cast<double>(k))) + 0.125;
}

std::string request_1() {
  std::string request;
  size_t k = 0;
  for (const Labels& labels : node_labels()) {
    const int64_t time = 1'793'000'000'000;
    const double value = value_of(k++);
    const std::string raw = remote_write::raw_labels_of(labels);
    remote_write::append_series(request, {.raw_labels = raw, .times_ms = {&time, 1}, .values = {&value, 1}});
  }
  return request;
}

std::string request_2() {
  std::vector<std::string> symbols = {""};
  std::string series;
  protobuf::WireWriter out(series);
  size_t k = 0;
  for (const Labels& labels : node_labels()) {
    const size_t began = out.begin(5);
    const size_t refs = out.begin(1);
    for (const auto& [name, value] : labels) {
      for (const std::string& text : {name, value}) {
        size_t at = 0;
        while (at < symbols.size() && symbols[at] != text) ++at;
        if (at == symbols.size()) symbols.push_back(text);
        out.raw_varint(at);
      }
    }
    out.end(refs);
    const size_t sample = out.begin(2);
    out.real(1, value_of(k++));
    out.varint(2, 1'793'000'000'000);
    out.end(sample);
    out.end(began);
  }
  std::string request;
  protobuf::WireWriter head(request);
  for (const std::string& symbol : symbols) head.bytes(4, symbol);
  return request + series;
}

void read(benchmark::State& state, remote_write::Version version, const std::string& request) {
  const std::string frame = *snappy_compress(request);
  std::string buffer;
  remote_write::Walk walk;
  uint64_t samples = 0;
  double sum = 0;
  for (auto _ : state) {
    Result<std::string_view> plain = snappy_decompress(frame, 64 << 20, buffer);
    if (!plain.ok() || !walk.walk(version, *plain).ok()) return state.SkipWithError("not read");
    samples += walk.counts().samples;
    sum += walk.series().back().values[0];
  }
  if (walk.series().size() != 32 * 98 || !walk.labels(7).ok()) return state.SkipWithError("read something else");
  benchmark::DoNotOptimize(sum);
  state.SetItemsProcessed(static_cast<int64_t>(samples));
  state.counters["CPU-s/M"] =
      benchmark::Counter(static_cast<double>(samples) / 1e6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["B/sample"] = static_cast<double>(frame.size()) / (32 * 98);
}

void only_snappy(benchmark::State& state) {
  const std::string frame = *snappy_compress(request_1());
  std::string buffer;
  for (auto _ : state) benchmark::DoNotOptimize(snappy_decompress(frame, 64 << 20, buffer).ok());
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * 32 * 98);
  state.counters["CPU-s/M"] = benchmark::Counter(static_cast<double>(state.iterations()) * 32 * 98 / 1e6,
                                                 benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK(only_snappy);
BENCHMARK_CAPTURE(read, remote_write_1, remote_write::Version::k1, request_1());
BENCHMARK_CAPTURE(read, remote_write_2, remote_write::Version::k2, request_2());

}  // namespace
}  // namespace lockstep
