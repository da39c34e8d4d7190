// The load of ./dev bench metrics: makes the frames of a fleet once, then plays the same frames into any server that
// takes remote write.
//
//   metrics_load generate --out DIR [--nodes N] [--steps N] [--interval-ms N] [--jitter-ms N] [--churn SHARE]
//   --start-ms T metrics_load replay --frames DIR --url URL [--from STEP] [--to STEP]
//
// A request is four nodes (3,136 samples); a node always comes through the same of four connections, as an agent
// does. Frames are read from the page cache. replay prints one line of JSON and ends with 1 where a request was
// refused.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "bench/metrics/fleet.h"
#include "net/http_client.h"
#include "wire/compression.h"

namespace lockstep::bench {
namespace {

constexpr int kConnections = 4;
constexpr int kNodesPerRequest = 4;

struct FrameHead {
  uint32_t step;
  uint32_t samples;
  uint32_t bytes;
};

using Arguments = std::map<std::string, std::string>;

std::string text_of(const Arguments& arguments, const char* name, const char* fallback) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? fallback : found->second;
}
int64_t number_of(const Arguments& arguments, const char* name, int64_t fallback) {
  const auto found = arguments.find(name);
  return found == arguments.end() ? fallback : parse_int(found->second).value_or(fallback);
}

std::string file_of(const std::string& folder, int connection) {
  return folder + format("/connection-%d.frames", connection);
}

int generate(const Arguments& arguments) {
  FleetOptions options;
  options.nodes = static_cast<int>(number_of(arguments, "--nodes", 1280));
  options.interval_ms = number_of(arguments, "--interval-ms", 10'000);
  options.jitter_ms = number_of(arguments, "--jitter-ms", 0);
  options.churn = parse_double(text_of(arguments, "--churn", "0")).value_or(0);
  const int steps = static_cast<int>(number_of(arguments, "--steps", 24));
  const int64_t start_ms = number_of(arguments, "--start-ms", 0);
  const std::string folder = text_of(arguments, "--out", "");
  if (folder.empty() || start_ms == 0 || options.nodes < kNodesPerRequest || options.nodes % kNodesPerRequest != 0) {
    std::fprintf(stderr, "metrics_load generate: --out DIR, --start-ms T and nodes by four\n");
    return 2;
  }
  if (Result<void> made = make_directories(folder); !made.ok()) {
    std::fprintf(stderr, "metrics_load: %s\n", made.error().c_str());
    return 1;
  }
  Fleet fleet(options);
  std::vector<std::ofstream> files;
  for (int i = 0; i < kConnections; ++i) files.emplace_back(file_of(folder, i), std::ios::binary);
  std::string request;
  uint64_t plain_bytes = 0, frame_bytes = 0, samples = 0;
  for (int step = 0; step < steps; ++step) {
    for (int first = 0; first < options.nodes; first += kNodesPerRequest) {
      request.clear();
      for (int node = first; node < first + kNodesPerRequest; ++node) fleet.append_node(request, node, step, start_ms);
      Result<std::string> frame = snappy_compress(request);
      if (!frame.ok()) {
        std::fprintf(stderr, "metrics_load: %s\n", frame.error().c_str());
        return 1;
      }
      const uint32_t count = kNodesPerRequest * kGpusPerNode * kSeriesPerGpu;
      const FrameHead head{static_cast<uint32_t>(step), count, static_cast<uint32_t>(frame->size())};
      std::ofstream& file = files[static_cast<size_t>(first / kNodesPerRequest % kConnections)];
      file.write(reinterpret_cast<const char*>(&head), sizeof head);
      file.write(frame->data(), static_cast<std::streamsize>(frame->size()));
      plain_bytes += request.size();
      frame_bytes += frame->size();
      samples += count;
    }
  }
  for (std::ofstream& file : files) {
    file.close();
    if (!file) {
      std::fprintf(stderr, "metrics_load: cannot write into %s\n", folder.c_str());
      return 1;
    }
  }
  std::printf("{\"series\":%llu,\"samples\":%llu,\"steps\":%d,\"plain_bytes\":%llu,\"frame_bytes\":%llu}\n",
              static_cast<unsigned long long>(fleet.series()), static_cast<unsigned long long>(samples), steps,
              static_cast<unsigned long long>(plain_bytes), static_cast<unsigned long long>(frame_bytes));
  return 0;
}

struct Sent {
  uint64_t samples = 0, requests = 0, bytes = 0, retried = 0;
  std::vector<double> latencies_ms;
  std::string problem;
};

void play(const std::string& file, const Url& url, const std::string& path, int64_t from, int64_t to, Sent& sent) {
  Result<std::string> frames = read_file(file, 1ull << 36);
  if (!frames.ok()) {
    sent.problem = frames.error();
    return;
  }
  SystemClock clock;
  HttpClient client(url, 120'000);
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.headers = {{"content-type", "application/x-protobuf"},
                     {"content-encoding", "snappy"},
                     {"user-agent", "metrics_load"},
                     {"x-prometheus-remote-write-version", "0.1.0"}};
  FrameHead head;
  for (size_t at = 0; at + sizeof head <= frames->size();) {
    std::memcpy(&head, frames->data() + at, sizeof head);
    at += sizeof head;
    const std::string_view body = std::string_view(*frames).substr(at, head.bytes);
    at += head.bytes;
    if (head.step < from || head.step >= to) continue;
    request.body.assign(body);
    for (int attempt = 0;; ++attempt) {
      const int64_t began_ns = clock.monotonic_ns();
      Result<HttpResponse> answer = client.send(request);
      if (!answer.ok()) {
        sent.problem = answer.error();
        return;
      }
      sent.latencies_ms.push_back(static_cast<double>(clock.monotonic_ns() - began_ns) / 1e6);
      if (answer->status / 100 == 2) break;
      if ((answer->status != 429 && answer->status != 503) || attempt == 100) {
        sent.problem = format("answered %d: %.200s", answer->status, as_one_line(answer->body).c_str());
        return;
      }
      ++sent.retried;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    sent.samples += head.samples;
    sent.bytes += head.bytes;
    ++sent.requests;
  }
}

int replay(const Arguments& arguments) {
  Result<Url> url = parse_url(text_of(arguments, "--url", ""), 80);
  const std::string folder = text_of(arguments, "--frames", "");
  if (!url.ok() || folder.empty()) {
    std::fprintf(stderr, "metrics_load replay: --frames DIR and --url URL\n");
    return 2;
  }
  const std::string path = url->path;
  url->path.clear();
  const int64_t from = number_of(arguments, "--from", 0), to = number_of(arguments, "--to", INT32_MAX);
  Sent all[kConnections];
  SystemClock clock;
  const int64_t began_ns = clock.monotonic_ns();
  std::vector<std::thread> threads;
  for (int i = 0; i < kConnections; ++i) {
    threads.emplace_back([&, i] { play(file_of(folder, i), *url, path, from, to, all[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  const double wall_s = static_cast<double>(clock.monotonic_ns() - began_ns) / 1e9;
  Sent total;
  for (Sent& one : all) {
    total.samples += one.samples;
    total.requests += one.requests;
    total.bytes += one.bytes;
    total.retried += one.retried;
    total.latencies_ms.insert(total.latencies_ms.end(), one.latencies_ms.begin(), one.latencies_ms.end());
    if (total.problem.empty()) total.problem = one.problem;
  }
  std::sort(total.latencies_ms.begin(), total.latencies_ms.end());
  auto quantile = [&](double share) {
    return total.latencies_ms.empty()
               ? 0.0
               : total.latencies_ms[static_cast<size_t>(share * static_cast<double>(total.latencies_ms.size() - 1))];
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double cpu_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  std::printf(
      "{\"samples\":%llu,\"requests\":%llu,\"bytes\":%llu,\"retried\":%llu,\"wall_s\":%.3f,\"client_cpu_s\":%.3f,"
      "\"p50_ms\":%.2f,\"p99_ms\":%.2f}\n",
      static_cast<unsigned long long>(total.samples), static_cast<unsigned long long>(total.requests),
      static_cast<unsigned long long>(total.bytes), static_cast<unsigned long long>(total.retried), wall_s, cpu_s,
      quantile(0.5), quantile(0.99));
  if (!total.problem.empty()) std::fprintf(stderr, "metrics_load: %s\n", total.problem.c_str());
  return total.problem.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Arguments arguments;
  for (int i = 2; i + 1 < argc; i += 2) arguments[argv[i]] = argv[i + 1];
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "generate") return lockstep::bench::generate(arguments);
  if (command == "replay") return lockstep::bench::replay(arguments);
  std::fprintf(stderr, "metrics_load generate|replay ...\n");
  return 2;
}
