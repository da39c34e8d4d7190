// The part that both programs share: options, and what a run says of itself.
//
//   PROGRAM URL CALLS BYTES [--ca FILE [--token TOKEN]]    (a token of a test: it is on the command line)
//
// Makes CALLS unary gRPC calls to the metrics service of URL, one after the other over one connection, each with a
// request of about BYTES bytes, and prints one line of numbers. run.py beside it compares.
#pragma once

#include <sys/resource.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <string>

inline constexpr const char* kMethod = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

struct Arguments {
  std::string url;
  long calls = 1;
  size_t bytes = 0;
  std::string ca;
  std::string token;
};

inline Arguments read_arguments(int count, char** words) {
  if (count != 4 && count != 6 && count != 8) {
    std::fprintf(stderr, "usage: %s URL CALLS BYTES [--ca FILE [--token TOKEN]]\n", words[0]);
    std::exit(2);
  }
  return {words[1], std::atol(words[2]), static_cast<size_t>(std::atol(words[3])), count >= 6 ? words[5] : "",
          count == 8 ? words[7] : ""};
}

// An ExportMetricsServiceRequest with an unknown field of that size: every receiver takes it and keeps nothing of it.
inline std::string request_of(size_t bytes) {
  std::string message = "\x9a\x06";  // field 99, bytes
  for (size_t left = bytes; left > 0 || message.size() == 2; left >>= 7) {
    message += static_cast<char>((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    if (left <= 0x7f) break;
  }
  return message + std::string(bytes, 'x');
}

inline double now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// At most so much since it was started; getrusage() would also count whoever started it.
inline long resident_kb_most() {
  std::FILE* status = std::fopen("/proc/self/status", "r");
  char line[256];
  long kb = 0;
  while (status != nullptr && std::fgets(line, sizeof line, status) != nullptr) std::sscanf(line, "VmHWM: %ld", &kb);
  if (status != nullptr) std::fclose(status);
  return kb;
}

// first_ms: at the first answer, on the machine's monotonic clock; run.py knows when the process was started.
inline void report(double first_ms) {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  std::printf("first_ms=%.3f cpu_s=%.4f rss_kb=%ld\n", first_ms, seconds(use.ru_utime) + seconds(use.ru_stime),
              resident_kb_most());
}
