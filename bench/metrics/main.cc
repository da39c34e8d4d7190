// The load of ./dev bench metrics: makes the frames of a fleet once, then plays the same frames into any server that
// takes remote write.
//
//   metrics_load generate --out DIR --start-ms T [--nodes N] [--steps N] [--interval-ms N] [--jitter-ms N]
//                         [--churn SHARE] [--churn-steps N]
//   metrics_load replay --frames DIR --url URL [--from STEP] [--to STEP]
//   metrics_load fleet --url URL [--nodes N] [--ramp-s N] [--seconds N] [--interval-ms N] [--late-s-max N] [--job NAME]
//
// generate and replay: a request is four nodes (3,136 samples); a node always comes through the same of four
// connections, as an agent does. Frames are read from the page cache. replay prints one line of JSON and ends with 1
// where a request was refused.
// fleet: in real time and without files (push_frames.h): nodes come one after the other within --ramp-s, then all of
// them push once an interval, each at its own moment, for --seconds or until SIGTERM. Prints a line of JSON every ten
// seconds and one at the end; ends with 1 where a request was refused, or gives up where it is --late-s-max behind.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "bench/metrics/fleet.h"
#include "bench/metrics/push_frames.h"
#include "net/http_client.h"
#include "wire/compression.h"

namespace lockstep::bench {
namespace {

constexpr int kConnections = 4;
constexpr int kNodesPerRequest = 4;
constexpr int kFleetConnections = 16;
constexpr int64_t kTimeoutMs = 120'000;

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
  options.churn_steps = static_cast<int>(number_of(arguments, "--churn-steps", options.churn_steps));
  const int steps = static_cast<int>(number_of(arguments, "--steps", 24));
  const int64_t start_ms = number_of(arguments, "--start-ms", 0);
  const std::string folder = text_of(arguments, "--out", "");
  if (folder.empty() || start_ms == 0 || options.nodes < kNodesPerRequest || options.nodes % kNodesPerRequest != 0 ||
      options.interval_ms < 1 || options.churn_steps < 1) {
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
  std::printf(
      "{\"series\":%llu,\"series_made\":%llu,\"samples\":%llu,\"steps\":%d,\"plain_bytes\":%llu,\"frame_bytes\":%llu}"
      "\n",
      static_cast<unsigned long long>(fleet.series()), static_cast<unsigned long long>(fleet.series_made()),
      static_cast<unsigned long long>(samples), steps, static_cast<unsigned long long>(plain_bytes),
      static_cast<unsigned long long>(frame_bytes));
  return 0;
}

struct Sent {
  uint64_t samples = 0, requests = 0, bytes = 0, retried = 0;
  std::vector<float> latencies_ms;
  std::string problem;
};

HttpRequest write_request(const std::string& path) {
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.headers = {{"content-type", "application/x-protobuf"},
                     {"content-encoding", "snappy"},
                     {"user-agent", "metrics_load"},
                     {"x-prometheus-remote-write-version", "0.1.0"}};
  return request;
}

// Until it is taken. Empty, or why it was not.
std::string send_until_taken(HttpClient& client, const HttpRequest& request, const Clock& clock, Sent& sent) {
  for (int attempt = 0;; ++attempt) {
    const int64_t began_ns = clock.monotonic_ns();
    Result<HttpResponse> answer = client.send(request);
    if (!answer.ok()) return answer.error();
    sent.latencies_ms.push_back(static_cast<float>(static_cast<double>(clock.monotonic_ns() - began_ns) / 1e6));
    if (answer->status / 100 == 2) break;
    if ((answer->status != 429 && answer->status != 503) || attempt == 100) {
      return format("answered %d: %.200s", answer->status, as_one_line(answer->body).c_str());
    }
    ++sent.retried;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  sent.bytes += request.body.size();
  ++sent.requests;
  return {};
}

double quantile(std::vector<float>& all, double share) {
  if (all.empty()) return 0;
  const size_t at = static_cast<size_t>(share * static_cast<double>(all.size() - 1));
  std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(at), all.end());
  return all[at];
}

double own_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void play(const std::string& file, const Url& url, const std::string& path, int64_t from, int64_t to, Sent& sent) {
  Result<std::string> frames = read_file(file, 1ull << 36);
  if (!frames.ok()) {
    sent.problem = frames.error();
    return;
  }
  SystemClock clock;
  HttpClient client(url, kTimeoutMs);
  HttpRequest request = write_request(path);
  FrameHead head;
  for (size_t at = 0; at + sizeof head <= frames->size();) {
    std::memcpy(&head, frames->data() + at, sizeof head);
    at += sizeof head;
    const std::string_view body = std::string_view(*frames).substr(at, head.bytes);
    at += head.bytes;
    if (head.step < from || head.step >= to) continue;
    request.body.assign(body);
    sent.problem = send_until_taken(client, request, clock, sent);
    if (!sent.problem.empty()) return;
    sent.samples += head.samples;
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
  std::printf(
      "{\"samples\":%llu,\"requests\":%llu,\"bytes\":%llu,\"retried\":%llu,\"wall_s\":%.3f,\"client_cpu_s\":%.3f,"
      "\"p50_ms\":%.2f,\"p99_ms\":%.2f}\n",
      static_cast<unsigned long long>(total.samples), static_cast<unsigned long long>(total.requests),
      static_cast<unsigned long long>(total.bytes), static_cast<unsigned long long>(total.retried), wall_s, own_cpu_s(),
      quantile(total.latencies_ms, 0.5), quantile(total.latencies_ms, 0.99));
  if (!total.problem.empty()) std::fprintf(stderr, "metrics_load: %s\n", total.problem.c_str());
  return total.problem.empty() ? 0 : 1;
}

// One of the fleet's connections: its nodes, by their moment within the interval.
struct Line {
  struct Due {
    int64_t phase_ms;
    int node;
    int first_step;
  };
  std::vector<Due> nodes;
  Sent sent;  // its thread's until it has ended
  std::atomic<uint64_t> pushes{0}, bytes{0}, retried{0};
  std::atomic<int64_t> late_ms_most{0};  // since it was looked at last
  std::atomic<int64_t> latency_us_most{0};
};

struct FleetPlay {
  Fleet& fleet;
  int64_t start_ms, interval_ms, late_ms_max;
  int steps;
  std::atomic<bool> stopping{false};
};

void push_fleet(FleetPlay& play, Line& line, const Url& url, const std::string& path, const Clock& clock) {
  PushFrames frames(play.fleet);
  HttpClient client(url, kTimeoutMs);
  HttpRequest request = write_request(path);
  for (int step = 0; step < play.steps; ++step) {
    for (const Line::Due& due : line.nodes) {
      if (step < due.first_step) continue;
      const int64_t due_ms = play.start_ms + step * play.interval_ms + due.phase_ms;
      int64_t now_ms = clock.unix_ns() / 1'000'000;
      if (now_ms < due_ms) std::this_thread::sleep_for(std::chrono::milliseconds(due_ms - now_ms));
      if (play.stopping) return;
      std::string& frame = frames.fill(due.node, step, play.start_ms);
      now_ms = clock.unix_ns() / 1'000'000;
      const int64_t late_ms = now_ms - due_ms;
      if (late_ms > line.late_ms_most) line.late_ms_most = late_ms;
      if (late_ms > play.late_ms_max) {
        line.sent.problem = format("%lld s behind its time", static_cast<long long>(late_ms / 1000));
        play.stopping = true;
        return;
      }
      request.body.swap(frame);
      line.sent.problem = send_until_taken(client, request, clock, line.sent);
      request.body.swap(frame);
      if (!line.sent.problem.empty()) {
        play.stopping = true;
        return;
      }
      const int64_t latency_us = static_cast<int64_t>(line.sent.latencies_ms.back() * 1000);
      if (latency_us > line.latency_us_most) line.latency_us_most = latency_us;
      line.bytes = line.sent.bytes;
      line.retried = line.sent.retried;
      ++line.pushes;
    }
  }
}

// A fleet under way: its connections, each with a thread of its own, and what is told of them meanwhile and at the end.
class FleetRun {
 public:
  FleetRun(const FleetOptions& options, int ramp_steps, int steps, int64_t late_ms_max, const Clock& clock);

  void start(const Url& url, const std::string& path);
  // Every kLookMs a line, until all have ended; SIGTERM, which must be blocked, ends them.
  void watch(const sigset_t& signals);
  // Joins them. 1: one of them had a problem, which is told.
  int finish();

 private:
  static constexpr uint64_t kPush = kGpusPerNode * kSeriesPerGpu;
  static constexpr int64_t kLookMs = 10'000;

  int64_t now_ms() const { return clock_.unix_ns() / 1'000'000; }
  uint64_t offered(int64_t at_ms) const;
  uint64_t taken() const;
  void print_progress();

  const Clock& clock_;
  const int ramp_steps_;
  Fleet fleet_;
  FleetPlay play_;
  Line lines_[kFleetConnections];
  std::vector<std::thread> threads_;
  std::atomic<int> running_{kFleetConnections};
};

FleetRun::FleetRun(const FleetOptions& options, int ramp_steps, int steps, int64_t late_ms_max, const Clock& clock)
    : clock_(clock),
      ramp_steps_(ramp_steps),
      fleet_(options),
      play_{.fleet = fleet_,
            .start_ms = now_ms() + 1000,
            .interval_ms = options.interval_ms,
            .late_ms_max = late_ms_max,
            .steps = steps} {
  for (int node = 0; node < options.nodes; ++node) {
    const int first = static_cast<int>(static_cast<int64_t>(ramp_steps) * node / options.nodes);
    lines_[node % kFleetConnections].nodes.push_back({fleet_.time_ms(node, 0, 0), node, first});
  }
}

void FleetRun::start(const Url& url, const std::string& path) {
  for (Line& line : lines_) {
    std::sort(line.nodes.begin(), line.nodes.end(),
              [](const auto& a, const auto& b) { return a.phase_ms < b.phase_ms; });
    threads_.emplace_back([&] {
      push_fleet(play_, line, url, path, clock_);
      --running_;
    });
  }
}

// Samples that should have been sent by now.
uint64_t FleetRun::offered(int64_t at_ms) const {
  uint64_t pushes = 0;
  for (const Line& line : lines_) {
    for (const Line::Due& due : line.nodes) {
      const int64_t since_ms = at_ms - play_.start_ms - due.phase_ms;
      if (since_ms < 0) continue;
      const int64_t step = std::min<int64_t>(since_ms / play_.interval_ms, play_.steps - 1);
      pushes += static_cast<uint64_t>(std::max<int64_t>(0, step + 1 - due.first_step));
    }
  }
  return pushes * kPush;
}

uint64_t FleetRun::taken() const {
  uint64_t pushes = 0;
  for (const Line& line : lines_) pushes += line.pushes;
  return pushes * kPush;
}

void FleetRun::watch(const sigset_t& signals) {
  for (int64_t look = 1; running_ > 0; ++look) {
    const timespec tick{0, 50'000'000};
    while (running_ > 0 && now_ms() < play_.start_ms + look * kLookMs) {
      if (sigtimedwait(&signals, nullptr, &tick) == SIGTERM) play_.stopping = true;
    }
    print_progress();
  }
}

void FleetRun::print_progress() {
  const int64_t at_ms = now_ms();
  uint64_t bytes = 0, retried = 0;
  int64_t late_ms = 0, latency_us = 0;
  for (Line& line : lines_) {
    bytes += line.bytes;
    retried += line.retried;
    late_ms = std::max(late_ms, line.late_ms_most.exchange(0));
    latency_us = std::max(latency_us, line.latency_us_most.exchange(0));
  }
  std::printf(
      "{\"t_s\":%.1f,\"offered\":%llu,\"taken\":%llu,\"bytes\":%llu,\"retried\":%llu,\"late_ms_most\":%lld,"
      "\"latency_ms_most\":%.1f,\"client_cpu_s\":%.2f}\n",
      static_cast<double>(at_ms - play_.start_ms) / 1000, static_cast<unsigned long long>(offered(at_ms)),
      static_cast<unsigned long long>(taken()), static_cast<unsigned long long>(bytes),
      static_cast<unsigned long long>(retried), static_cast<long long>(late_ms), static_cast<double>(latency_us) / 1000,
      own_cpu_s());
  std::fflush(stdout);
}

int FleetRun::finish() {
  for (std::thread& thread : threads_) thread.join();
  std::vector<float> latencies_ms;
  uint64_t requests = 0, retried = 0;
  std::string problem;
  for (Line& line : lines_) {
    latencies_ms.insert(latencies_ms.end(), line.sent.latencies_ms.begin(), line.sent.latencies_ms.end());
    requests += line.sent.requests;
    retried += line.sent.retried;
    if (problem.empty()) problem = line.sent.problem;
  }
  std::printf(
      "{\"done\":true,\"samples\":%llu,\"offered\":%llu,\"requests\":%llu,\"retried\":%llu,\"series\":%llu,"
      "\"steps\":%d,\"ramp_steps\":%d,\"start_ms\":%lld,\"client_cpu_s\":%.2f,\"p50_ms\":%.2f,\"p99_ms\":%.2f}\n",
      static_cast<unsigned long long>(taken()), static_cast<unsigned long long>(offered(now_ms())),
      static_cast<unsigned long long>(requests), static_cast<unsigned long long>(retried),
      static_cast<unsigned long long>(fleet_.series()), play_.steps, ramp_steps_,
      static_cast<long long>(play_.start_ms), own_cpu_s(), quantile(latencies_ms, 0.5), quantile(latencies_ms, 0.99));
  if (!problem.empty()) std::fprintf(stderr, "metrics_load: %s\n", problem.c_str());
  return problem.empty() ? 0 : 1;
}

int fleet(const Arguments& arguments) {
  FleetOptions options;
  options.nodes = static_cast<int>(number_of(arguments, "--nodes", 19'133));
  options.interval_ms = number_of(arguments, "--interval-ms", 10'000);
  options.job = text_of(arguments, "--job", "");
  const int64_t ramp_s = number_of(arguments, "--ramp-s", 180), seconds = number_of(arguments, "--seconds", 600);
  Result<Url> url = parse_url(text_of(arguments, "--url", ""), 80);
  if (!url.ok() || options.nodes < 1 || ramp_s < 0 || seconds < 1) {
    std::fprintf(stderr, "metrics_load fleet: --url URL and sensible numbers\n");
    return 2;
  }
  const std::string path = url->path;
  url->path.clear();
  sigset_t signals;  // before there are threads: watch() takes it
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  SystemClock clock;
  for (int node = 0; node < options.nodes; node += std::max(1, options.nodes / 16)) {
    if (std::string problem = PushFrames::problem_of(options, node, clock.unix_ns() / 1'000'000); !problem.empty()) {
      std::fprintf(stderr, "metrics_load: %s\n", problem.c_str());
      return 1;
    }
  }
  const int ramp_steps = static_cast<int>((ramp_s * 1000 + options.interval_ms - 1) / options.interval_ms);
  FleetRun run(options, ramp_steps, ramp_steps + static_cast<int>(seconds * 1000 / options.interval_ms),
               number_of(arguments, "--late-s-max", 60) * 1000, clock);
  run.start(*url, path);
  run.watch(signals);
  return run.finish();
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  lockstep::bench::Arguments arguments;
  for (int i = 2; i + 1 < argc; i += 2) arguments[argv[i]] = argv[i + 1];
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "generate") return lockstep::bench::generate(arguments);
  if (command == "replay") return lockstep::bench::replay(arguments);
  if (command == "fleet") return lockstep::bench::fleet(arguments);
  std::fprintf(stderr, "metrics_load generate|replay|fleet ...\n");
  return 2;
}
