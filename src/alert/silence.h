// A silence: alerts whose labels match are not sent to anybody while it lasts; they are listed all the same. A planned one
// (maintenance, a job that is paused) says besides that nothing is expected of its jobs, hosts or GPUs: they are idle.
//
// Thread rule: Immutable once made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/result.h"
#include "model/metric_descriptor.h"
#include "store/metrics/matching.h"

namespace lockstep {

struct Silence {
  std::string id;
  std::string matchers;  // as PromQL writes them: {host="gpu-017",alertname=~"Lockstep.*"}
  int64_t starts_unix_ns = 0;
  int64_t ends_unix_ns = 0;
  std::string created_by;
  std::string comment;
  bool is_planned = false;
  metrics::CompiledMatchers compiled = {};

  bool is_active(int64_t now_unix_ns) const { return starts_unix_ns <= now_unix_ns && now_unix_ns < ends_unix_ns; }
  bool matches(const Labels& labels) const;
  bool asks_for(std::string_view label) const;
};

inline constexpr size_t kSilenceTextBytesMax = 2000;
inline constexpr int64_t kSilenceLongestNs = 366ll * 24 * 3600 * 1'000'000'000;

// Compiles its matchers. Refused: matchers that everything fits, an end before the beginning, longer than a year, a planned
// one that names more than jobs, hosts and GPUs.
Result<Silence> checked_silence(Silence silence);
// {"matchers":"{host=\"gpu-017\"}","for":"2h","starts_unix_ns":0,"comment":"...","planned":false}; starts 0: now.
Result<Silence> silence_from_request(std::string_view body, int64_t now_unix_ns);
void write_silence(JsonWriter& json, const Silence& silence, int64_t now_unix_ns);
Result<Silence> silence_from_json(const JsonValue& json);

}  // namespace lockstep
