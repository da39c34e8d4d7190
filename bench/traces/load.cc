#include "bench/traces/load.h"

#include <cstring>

#include "base/text.h"
#include "model/events.h"
#include "model/step_detail.h"
#include "wire/otlp.h"

namespace lockstep::bench {
namespace {

constexpr int64_t kMs = 1'000'000;

// Noise without a state: the same for the same question.
uint64_t hash_of(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t hash = a;
  for (uint64_t word : {b, c, d}) {
    hash += word + 0x9E3779B97F4A7C15;
    hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9;
    hash = (hash ^ hash >> 27) * 0x94D049BB133111EB;
    hash ^= hash >> 31;
  }
  return hash;
}
// Between -1 and 1, most near 0.
double noise(uint64_t hash) {
  double sum = 0;
  for (int i = 0; i < 4; ++i, hash >>= 16) sum += static_cast<double>(hash & 0xffff) / 32768.0 - 1.0;
  return sum / 4;
}

}  // namespace

ResourceGroup rank_step(const Load& load, StepNumber step, Rank rank) {
  const uint64_t base = hash_of(load.seed, static_cast<uint64_t>(step.value()), static_cast<uint64_t>(rank.value()), 0);
  auto random = [&](uint64_t what, int64_t around, double spread) {
    const double factor = 1.0 + spread * noise(hash_of(base, what, 1, 2));
    return static_cast<int64_t>(static_cast<double>(around) * factor);
  };
  Identity identity{.job_id = load.job_id,
                    .attempt = 0,
                    .rank = rank,
                    .world_size = load.ranks,
                    .local_rank = rank % kRanksPerHost,
                    .host = format("gpu-%04d", rank.value() / kRanksPerHost),
                    .gpu_uuid = format("GPU-%08x-%04x-4b1c-9e0d-%012llx", rank.value() * 2654435761u, rank.value(),
                                       static_cast<unsigned long long>(hash_of(load.seed, 7, rank.value(), 7) >> 16))};
  StepDetail detail;
  detail.step = step;
  detail.start_unix_ns = load.first_unix_ns + step.value() * 1000 * kMs + random(1, 200'000, 1.0);
  detail.duration_ns = random(2, 1000 * kMs, 0.02);
  static constexpr Phase kOrder[kPhases] = {Phase::kInput,     Phase::kForward, Phase::kBackward,
                                            Phase::kOptimizer, Phase::kSync,    Phase::kOther};
  static constexpr int64_t kShare[kPhases] = {20, 280, 560, 80, 40, 20};
  int64_t at = detail.start_unix_ns;
  for (int32_t i = 0; i < kPhases; ++i) {
    const int64_t duration = random(10 + static_cast<uint64_t>(i), kShare[i] * kMs, 0.03);
    detail.phases.push_back({kOrder[i], "", at, duration});
    at += duration;
  }
  const int32_t host = rank.value() / kRanksPerHost;
  const int64_t gap = 980 * kMs / load.ops;
  at = detail.start_unix_ns + 10 * kMs;
  for (int32_t i = 0; i < load.ops; ++i) {
    OpSpan op;
    const uint64_t what = 100 + static_cast<uint64_t>(i) * 4;
    const bool is_p2p = i % 25 == 24;
    const bool is_dp = !is_p2p && i % 3 == 2;
    op.p2p = is_p2p;
    op.comm_id = CommId{hash_of(load.seed,
                                is_p2p  ? 1
                                : is_dp ? 2
                                        : 3,
                                is_p2p  ? 0
                                : is_dp ? rank % kRanksPerHost
                                        : host,
                                0)};
    op.comm_size = is_dp ? load.ranks / kRanksPerHost : is_p2p ? load.ranks : kRanksPerHost;
    op.rank_in_comm = is_dp ? host : is_p2p ? rank.value() : rank % kRanksPerHost;
    op.function = is_p2p  ? (i % 50 == 24 ? "Send" : "Recv")
                  : is_dp ? "ReduceScatter"
                          : (i % 6 == 0   ? "AllReduce"
                             : i % 6 == 1 ? "AllGather"
                                          : "ReduceScatter");
    op.datatype = is_dp ? "ncclFloat32" : "ncclBfloat16";
    op.seq = static_cast<uint64_t>(step.value() * load.ops + i / (is_p2p ? 25 : 1));
    op.ordinal = op.seq + 1;
    op.peer = is_p2p ? (rank + kRanksPerHost) % load.ranks : -1;
    op.bytes = is_p2p ? 8 << 20 : is_dp ? (i > load.ops - 4 ? 7'340'032 : 26'214'400) : 67'108'864 >> (i % 2);
    op.start_unix_ns = at + random(what, gap / 4, 1.0);
    op.enqueued_unix_ns = op.start_unix_ns - random(what + 1, 2 * kMs, 0.8);
    op.duration_ns = random(what + 2, gap / 3, 0.3);
    op.timed = true;
    at += gap;
    detail.ops.push_back(std::move(op));
  }
  ResourceGroup group;
  group.resource = to_resource(identity);
  group.spans = to_spans(identity, detail, SampledFor::kPeriodic);
  return group;
}

std::string host_request(const Load& load, StepNumber step, int32_t host) {
  Batch batch;
  batch.signal = Signal::kSpans;
  for (int32_t i = 0; i < kRanksPerHost && host * kRanksPerHost + i < load.ranks; ++i)
    batch.groups.push_back(rank_step(load, step, Rank{host * kRanksPerHost + i}));
  return otlp::encode(batch);
}

std::string service_request(const Load& load, int64_t number, int32_t traces) {
  Batch batch;
  batch.signal = Signal::kSpans;
  ResourceGroup& group = batch.groups.emplace_back();
  group.resource = {{"service.name", format("vllm-%lld", static_cast<long long>(number % 4))},
                    {"service.version", "0.11.2"},
                    {"host.name", format("infer-%02lld", static_cast<long long>(number % 16))},
                    {"telemetry.sdk.language", "python"}};
  group.scope_name = "vllm.tracing";
  static constexpr const char* kNames[] = {"POST /v1/completions", "queue", "prefill", "decode", "detokenize"};
  for (int32_t trace = 0; trace < traces; ++trace) {
    Span root;
    for (int i = 0; i < 5; ++i) {
      const uint64_t id = hash_of(load.seed, static_cast<uint64_t>(number), static_cast<uint64_t>(trace), 10 + i);
      Span span;
      uint64_t words[2] = {hash_of(load.seed, number, trace, 1), hash_of(load.seed, number, trace, 2)};
      std::memcpy(span.trace_id.data(), words, sizeof words);
      std::memcpy(span.span_id.data(), &id, sizeof id);
      if (i > 0) span.parent_span_id = root.span_id;
      span.name = kNames[i];
      span.kind = i == 0 ? 2 : 1;
      span.start_unix_ns =
          load.first_unix_ns + (number * traces + trace) * kMs + i * 100'000 + static_cast<int64_t>(id % 90'000);
      span.end_unix_ns = span.start_unix_ns + static_cast<int64_t>(id >> 8) % (i == 0 ? 900 * kMs : 90 * kMs);
      span.attributes = {{"gen_ai.request.model", "llama-3.1-70b"},
                         {"gen_ai.request.id", format("cmpl-%016llx", static_cast<unsigned long long>(words[0]))},
                         {"gen_ai.usage.prompt_tokens", static_cast<int64_t>(id >> 20) % 4096},
                         {"gen_ai.usage.completion_tokens", static_cast<int64_t>(id >> 32) % 1024},
                         {"http.response.status_code", id % 50 == 0 ? 500 : 200},
                         {"gen_ai.latency.time_in_queue", static_cast<double>(id % 100'000) / 1e6}};
      if (id % 50 == 0) span.status_code = 2;
      if (i == 0) root = span;
      group.spans.push_back(std::move(span));
    }
  }
  return otlp::encode(batch);
}

}  // namespace lockstep::bench
