#include "bus/kafka_client.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <thread>

#include "base/log.h"
#include "base/text.h"

namespace lockstep {

int32_t partition_of(std::string_view key, int32_t partition_count) {
  return rd_kafka_msg_partitioner_murmur2(nullptr, key.data(), key.size(), partition_count, nullptr, nullptr);
}

namespace kafka {
namespace {

constexpr int kAnswerMs = 5'000;
constexpr int kAnswersMax = 4;

void log_line(const rd_kafka_t*, int level, const char* /*facility*/, const char* text) {
  if (level <= 4) LOCKSTEP_LOG_WARN("bus", "%s", as_one_line(text).c_str());
}

// Partitions of our topics that are there. Asks for all topics: one that is asked for by name may come to be by that, with
// as many partitions as the brokers like.
Result<std::map<std::string, int32_t>> partition_counts(rd_kafka_t* client, std::span<const char* const> names) {
  const rd_kafka_metadata_t* metadata = nullptr;
  const rd_kafka_resp_err_t error = rd_kafka_metadata(client, 1, nullptr, &metadata, kAnswerMs);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return Error{rd_kafka_err2str(error)};
  std::map<std::string, int32_t> counts;
  for (int i = 0; i < metadata->topic_cnt; ++i) {
    const rd_kafka_metadata_topic_t& one = metadata->topics[i];
    const bool is_ours =
        std::any_of(names.begin(), names.end(), [&](const char* name) { return std::string_view(name) == one.topic; });
    if (is_ours && one.err == RD_KAFKA_RESP_ERR_NO_ERROR && one.partition_cnt > 0)
      counts[one.topic] = one.partition_cnt;
  }
  rd_kafka_metadata_destroy(metadata);
  return counts;
}

struct TopicsDeleter {
  size_t count;
  void operator()(rd_kafka_NewTopic_t** topics) const {
    rd_kafka_NewTopic_destroy_array(topics, count);
    delete[] topics;
  }
};

// Another process may make them at the same time: whoever comes second finds them there.
Result<void> create_topics(rd_kafka_t* client, const std::vector<const char*>& names, int32_t partitions,
                           const std::vector<std::pair<const char*, std::string>>& settings) {
  std::unique_ptr<rd_kafka_NewTopic_t*[], TopicsDeleter> topics(
      new rd_kafka_NewTopic_t* [names.size()], TopicsDeleter { names.size() });
  char line[512] = {};
  for (size_t i = 0; i < names.size(); ++i) {
    // Replicas as the brokers have it by default.
    topics[i] = rd_kafka_NewTopic_new(names[i], partitions, -1, line, sizeof line);
    if (topics[i] == nullptr) return Error{line};
    for (const auto& [name, value] : settings) rd_kafka_NewTopic_set_config(topics[i], name, value.c_str());
  }
  std::unique_ptr<rd_kafka_queue_t, decltype(&rd_kafka_queue_destroy)> queue(rd_kafka_queue_new(client),
                                                                             rd_kafka_queue_destroy);
  rd_kafka_CreateTopics(client, topics.get(), names.size(), nullptr, queue.get());
  std::unique_ptr<rd_kafka_event_t, decltype(&rd_kafka_event_destroy)> event(rd_kafka_queue_poll(queue.get(), 10'000),
                                                                             rd_kafka_event_destroy);
  if (!event) return Error{"the brokers do not answer"};
  if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR)
    return Error{rd_kafka_event_error_string(event.get())};
  size_t count = 0;
  const rd_kafka_topic_result_t** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event.get()), &count);
  for (size_t i = 0; i < count; ++i) {
    const rd_kafka_resp_err_t error = rd_kafka_topic_result_error(results[i]);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR || error == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) continue;
    return Error{format("topic %s: %s", rd_kafka_topic_result_name(results[i]), rd_kafka_err2str(error))};
  }
  return {};
}

}  // namespace

const char* topic_of(RecordKind kind) {
  for (const Topic& topic : kTopics) {
    if (topic.kind == kind) return topic.name;
  }
  return "";
}

void ConfDeleter::operator()(rd_kafka_conf_s* conf) const {
  rd_kafka_conf_destroy(conf);
}

Result<Conf> make_conf(const BusOptions& options, const std::vector<std::pair<const char*, std::string>>& ours) {
  Conf conf(rd_kafka_conf_new());
  char line[512] = {};
  auto set = [&](const std::string& name, const std::string& value) {
    return rd_kafka_conf_set(conf.get(), name.c_str(), value.c_str(), line, sizeof line) == RD_KAFKA_CONF_OK;
  };
  for (const std::string& property : options.properties) {
    const size_t equals = property.find('=');
    const std::string name(trim(std::string_view(property).substr(0, equals)));
    if (equals == std::string::npos || name.empty())
      return Error{format("--kafka-property: \"%s\" is not NAME=VALUE", name.c_str())};
    for (const auto& [own, value] : ours) {
      if (name == own) return Error{format("--kafka-property: %s is not for users to change", own)};
    }
    // What is said of a wrong value may hold it, and it may be a password.
    if (!set(name, property.substr(equals + 1)))
      return Error{
          format("--kafka-property: %s: librdkafka has no such property, or not with this value", name.c_str())};
  }
  if (!set("bootstrap.servers", options.brokers) || !set("client.id", "lockstepd"))
    return Error{format("--kafka: %s", line)};
  for (const auto& [name, value] : ours) {
    if (!set(name, value)) return Error{format("librdkafka does not take %s: %s", name, line)};
  }
  rd_kafka_conf_set_log_cb(conf.get(), log_line);
  return conf;
}

void ClientDeleter::operator()(rd_kafka_s* client) const {
  rd_kafka_destroy(client);
}

Result<Client> make_client(ClientKind kind, Conf conf) {
  char line[512] = {};
  rd_kafka_t* made = rd_kafka_new(kind == ClientKind::kProducer ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf.get(),
                                  line, sizeof line);
  if (made == nullptr) return Error{format("--kafka: %s", line)};
  (void)conf.release();  // the client's now
  return Client(made);
}

bool assign_all(rd_kafka_s* consumer, const char* topic, int32_t partitions, int64_t offset) {
  std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)> list(
      rd_kafka_topic_partition_list_new(partitions), rd_kafka_topic_partition_list_destroy);
  for (int32_t i = 0; i < partitions; ++i) rd_kafka_topic_partition_list_add(list.get(), topic, i)->offset = offset;
  return rd_kafka_assign(consumer, list.get()) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

Result<int32_t> prepare_topics(rd_kafka_s* client, const BusOptions& options) {
  std::string line;
  std::array<const char*, kTopics.size()> names{};
  std::transform(kTopics.begin(), kTopics.end(), names.begin(), [](const Topic& topic) { return topic.name; });
  for (int answers = 0; answers < kAnswersMax; ++answers) {
    if (answers > 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    Result<std::map<std::string, int32_t>> counts = partition_counts(client, names);
    if (!counts.ok())
      return Error{format("--kafka %s: %s", options.brokers.c_str(), counts.error().c_str()), ErrorCode::kNotFound};
    std::vector<const char*> absent;
    for (const Topic& topic : kTopics) {
      if (!counts->contains(topic.name)) absent.push_back(topic.name);
    }
    if (absent.empty()) {
      const int32_t partitions = counts->begin()->second;
      for (const auto& [name, count] : *counts) {
        if (count != partitions)
          return Error{
              format("--kafka: topics %s and %s have %d and %d partitions; a job is read as a whole only where "
                     "all three topics have the same number",
                     counts->begin()->first.c_str(), name.c_str(), partitions, count)};
      }
      return partitions;
    }
    const int32_t partitions = counts->empty() ? options.partitions : counts->begin()->second;
    if (Result<void> created =
            create_topics(client, absent, partitions,
                          {{"max.message.bytes", std::to_string(BusWriter::kRecordBytesMax + (1 << 20))}});
        !created.ok())
      line = created.error();
  }
  return Error{format("--kafka %s: the topics are not there and cannot be made: %s", options.brokers.c_str(),
                      line.empty() ? "the brokers do not show them" : line.c_str())};
}

Result<int32_t> prepare_topic(rd_kafka_s* client, const char* name, int32_t partitions,
                              const std::vector<std::pair<const char*, std::string>>& settings) {
  const std::map<std::string, int32_t> counts = LOCKSTEP_TRY(partition_counts(client, {{name}}));
  if (auto found = counts.find(name); found != counts.end()) return found->second;
  LOCKSTEP_TRY(create_topics(client, {name}, partitions, settings));
  return Error{"the topic is being made"};
}

std::string tenant_of(const rd_kafka_message_t* message) {
  rd_kafka_headers_t* headers = nullptr;
  const void* value = nullptr;
  size_t size = 0;
  if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
      rd_kafka_header_get_last(headers, kTenantHeader, &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR)
    return {};
  return {static_cast<const char*>(value), size};
}

bool answers_again(rd_kafka_s* client, std::chrono::steady_clock::time_point& last, int longest_ms) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last < kProbeEvery) return false;
  last = now;
  const rd_kafka_metadata_t* metadata = nullptr;
  if (rd_kafka_metadata(client, 0, nullptr, &metadata, longest_ms) != RD_KAFKA_RESP_ERR_NO_ERROR) return false;
  rd_kafka_metadata_destroy(metadata);
  LOCKSTEP_LOG_INFO("bus", "a broker answers again");
  return true;
}

}  // namespace kafka
}  // namespace lockstep
