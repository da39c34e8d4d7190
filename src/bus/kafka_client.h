// What the writer and the reader of Kafka share: a configured client of librdkafka, the topics, names and numbers.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bus/telemetry_bus.h"

struct rd_kafka_s;
struct rd_kafka_conf_s;
struct rd_kafka_message_s;

namespace lockstep::kafka {

struct Topic {
  RecordKind kind;
  const char* name;
};
// The names that the collector's kafka exporter has by default.
inline constexpr std::array<Topic, 3> kTopics{{{RecordKind::kOtlpMetrics, "otlp_metrics"},
                                               {RecordKind::kOtlpLogs, "otlp_logs"},
                                               {RecordKind::kOtlpSpans, "otlp_spans"}}};
inline constexpr const char* kTenantHeader = "tenant";

const char* topic_of(RecordKind kind);

struct ConfDeleter {
  void operator()(rd_kafka_conf_s* conf) const;
};
using Conf = std::unique_ptr<rd_kafka_conf_s, ConfDeleter>;

// brokers and the user's properties, then ours, which win: what we promise rests on them. A user's property that is one of
// ours is refused.
Result<Conf> make_conf(const BusOptions& options, const std::vector<std::pair<const char*, std::string>>& ours);

struct ClientDeleter {
  void operator()(rd_kafka_s* client) const;
};
using Client = std::unique_ptr<rd_kafka_s, ClientDeleter>;
enum class ClientKind : uint8_t { kProducer, kConsumer };

Result<Client> make_client(ClientKind kind, Conf conf);

// Reads all partitions of a topic, each from this offset on (one of librdkafka's too), as no member of a group.
bool assign_all(rd_kafka_s* consumer, const char* topic, int32_t partitions, int64_t offset);

// Waits until a broker answers, makes the topics that are not there. The number of partitions, which all three must have.
// kNotFound: no broker answers.
Result<int32_t> prepare_topics(rd_kafka_s* client, const BusOptions& options);

// One topic, made with these settings where it is not there. How many partitions it has. An error: not now.
Result<int32_t> prepare_topic(rd_kafka_s* client, const char* name, int32_t partitions,
                              const std::vector<std::pair<const char*, std::string>>& settings);

std::string tenant_of(const rd_kafka_message_s* message);

// Whether a broker answers, asked at most every kProbeEvery; waits for it for longest_ms. last: when it was asked.
inline constexpr std::chrono::seconds kProbeEvery{1};
bool answers_again(rd_kafka_s* client, std::chrono::steady_clock::time_point& last, int longest_ms);

}  // namespace lockstep::kafka
