// How an inference service does, from what it tells by itself: spans of its requests (vLLM's llm_request, or any span
// with the same gen_ai.latency.* attributes), or its metrics (vLLM's histograms, however they came in).
//
// Of spans every number is exact for the requests looked at; of metrics quantiles are read from histogram buckets, and
// which part makes the slowest requests slow cannot be told.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/metric_series.h"
#include "model/telemetry.h"
#include "store/span_store.h"

namespace lockstep {

struct Quantiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double mean = 0;
  size_t count = 0;  // 0: not known, and the rest means nothing
};

struct SlowRequest {
  TraceId trace_id{};
  int64_t start_unix_ns = 0;
  double ttft_s = 0;
  double queue_s = 0;
  double prefill_s = 0;
  double e2e_s = 0;
};

struct InferenceReport {
  std::string service;
  std::string source;  // "spans", "metrics"; empty: it tells neither
  int64_t from_unix_ns = 0;
  int64_t to_unix_ns = 0;
  size_t requests = 0;
  bool cut = false;  // more requests than were looked at
  Quantiles ttft_s;  // time to first token
  Quantiles tpot_s;  // time per output token after the first
  Quantiles e2e_s;
  Quantiles queue_s;
  Quantiles prefill_s;
  Quantiles decode_s;
  double prompt_tokens = 0;
  double completion_tokens = 0;
  double running = -1;  // requests, from metrics; -1: not known
  double waiting = -1;
  double kv_cache_share = -1;
  std::vector<SlowRequest> slowest;  // by time to first token, at most kSlowestShown; of spans only
  std::string sentence;
};
inline constexpr size_t kSlowestShown = 10;
inline constexpr size_t kRequestsMost = 10'000;

InferenceReport inference_report(const SpanStore& spans, const MetricReader& metrics, std::string_view service,
                                 int64_t from_unix_ns, int64_t to_unix_ns);

// Services that have told spans, or metrics of an inference engine. Sorted; not Lockstep's own agents.
std::vector<std::string> services_of(const SpanStore& spans, const MetricReader& metrics, int64_t from_unix_ns,
                                     int64_t to_unix_ns);

}  // namespace lockstep
