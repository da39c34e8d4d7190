// What PyTorch's profiler (Kineto) and a daemon on its node say to each other: datagrams of a header of 40 bytes (u64
// length of the payload, 32 bytes of a name) and the payload, in the machine's byte order.
//
//   "req"  i32 type, i32 n, i64 job, i32 pids[n]   what may be asked of me? Every five seconds. Answered with the text
//          of a configuration, or with nothing. pids: the process itself, then its ancestors, as it numbers them.
//          type: bit 1 (2) is set where it would take a configuration now. Older ones set bit 0 (events) besides.
//   "ctxt" i32 gpu, i32 pid, i64 job               of PyTorch before 2.7: answered with an i32, how many are known.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

inline constexpr size_t kKinetoHeaderBytes = 40;
inline constexpr size_t kKinetoDatagramBytesMax = 4'096;
inline constexpr int32_t kKinetoPidsMax = 64;
inline constexpr int32_t kKinetoTakesActivities = 2;

struct KinetoMessage {
  enum class Kind : uint8_t { kContext, kRequest } kind = Kind::kRequest;
  int32_t type = 0;  // of a request: what it would take now; of a context: its GPU
  int64_t job = 0;
  std::vector<int32_t> pids;  // at least one
};
// From whoever can reach the socket: one clear line on error.
Result<KinetoMessage> parse_kineto_untrusted(std::string_view datagram);
std::string encode_kineto(std::string_view name, std::string_view payload);

// What a process is to do. Every value is checked: a configuration that Kineto cannot read is used half-read by it.
struct KinetoOrder {
  std::string file;      // absolute, ends with ".json"; Kineto puts "_PID" before that
  std::string trace_id;  // of the capture
  // By Kineto's own count of steps, or, where that is -1, by time.
  int64_t start_iteration = -1;
  int64_t iterations = 0;
  int64_t start_unix_ms = 0;  // 0: as soon as it can
  int64_t duration_ms = 0;
  bool shapes = false;
  bool stacks = false;
};
Result<std::string> kineto_config(const KinetoOrder& order);
// The name that Kineto gives the file: "/a/b_17.json" of "/a/b.json".
std::string kineto_file_of(const std::string& file, int32_t pid);

}  // namespace lockstep
