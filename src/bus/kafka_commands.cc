#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <thread>

#include "base/contained.h"
#include "base/log.h"
#include "base/text.h"
#include "bus/command_topic.h"
#include "bus/kafka_client.h"

namespace lockstep {
namespace {

constexpr int64_t kTailRecords = 10'000;  // at a start; those that are too old are passed over
constexpr size_t kTakenMax = 1'000;
constexpr const char* kRetentionMs = "600000";

class KafkaCommandPoster final : public CommandPoster {
 public:
  explicit KafkaCommandPoster(kafka::Client client)
      : client_(std::move(client)), server_([this](const std::stop_token& stop) { serve(stop); }) {}

  bool post(const PostedCommand& command) override {
    if (command.text.size() > kTextBytesMax) return false;
    const rd_kafka_resp_err_t error = rd_kafka_producev(
        client_.get(), RD_KAFKA_V_TOPIC(kCommandTopic), RD_KAFKA_V_PARTITION(0),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_VALUE(const_cast<char*>(command.text.data()), command.text.size()),
        RD_KAFKA_V_KEY(command.host.data(), command.host.size()),
        RD_KAFKA_V_HEADER(kafka::kTenantHeader, command.tenant.data(), static_cast<ssize_t>(command.tenant.size())),
        RD_KAFKA_V_END);
    return error == RD_KAFKA_RESP_ERR_NO_ERROR;
  }

 private:
  void serve(const std::stop_token& stop) {
    bool has_topic = false;
    auto tried = std::chrono::steady_clock::time_point();
    while (!stop.stop_requested()) {
      rd_kafka_poll(client_.get(), 100);
      if (has_topic || std::chrono::steady_clock::now() - tried < std::chrono::seconds(1)) continue;
      tried = std::chrono::steady_clock::now();
      has_topic = kafka::prepare_topic(client_.get(), kCommandTopic, 1, {{"retention.ms", kRetentionMs}}).ok();
    }
  }

  const kafka::Client client_;
  std::jthread server_;  // ends before the client goes
};

class KafkaCommandListener final : public CommandListener {
 public:
  KafkaCommandListener(kafka::Client client, const Clock& clock, std::chrono::seconds keep)
      : client_(std::move(client)), clock_(clock), keep_(keep) {
    rd_kafka_poll_set_consumer(client_.get());
  }
  ~KafkaCommandListener() override { rd_kafka_consumer_close(client_.get()); }

  std::vector<PostedCommand> take(std::chrono::milliseconds longest) override {
    std::vector<PostedCommand> taken;
    if (!is_assigned_ && !assign()) {
      std::this_thread::sleep_for(longest);
      return taken;
    }
    int wait_ms = static_cast<int>(longest.count());
    while (taken.size() < kTakenMax) {
      std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)> message(
          rd_kafka_consumer_poll(client_.get(), wait_ms), rd_kafka_message_destroy);
      if (!message) break;
      wait_ms = 0;
      if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) add(*message, taken);
    }
    return taken;
  }

 private:
  bool assign() {
    const auto now = std::chrono::steady_clock::now();
    if (now - tried_ < std::chrono::seconds(1)) return false;
    tried_ = now;
    const Result<int32_t> partitions =
        kafka::prepare_topic(client_.get(), kCommandTopic, 1, {{"retention.ms", kRetentionMs}});
    if (!partitions.ok()) return false;
    is_assigned_ = kafka::assign_all(client_.get(), kCommandTopic, *partitions, RD_KAFKA_OFFSET_TAIL(kTailRecords));
    return is_assigned_;
  }

  void add(const rd_kafka_message_t& message, std::vector<PostedCommand>& taken) {
    const int64_t posted_ms = rd_kafka_message_timestamp(&message, nullptr);
    const int64_t keep_ms = std::chrono::duration_cast<std::chrono::milliseconds>(keep_).count();
    if (clock_.unix_ns() / 1'000'000 - posted_ms > keep_ms || message.len > CommandPoster::kTextBytesMax) return;
    PostedCommand one;
    one.host.assign(static_cast<const char*>(message.key), message.key_len);
    one.text.assign(static_cast<const char*>(message.payload), message.len);
    one.tenant = kafka::tenant_of(&message);
    taken.push_back(std::move(one));
  }

  const kafka::Client client_;
  const Clock& clock_;
  const std::chrono::seconds keep_;
  bool is_assigned_ = false;
  std::chrono::steady_clock::time_point tried_{};
};

}  // namespace

Result<std::unique_ptr<CommandPoster>> open_kafka_command_poster(const BusOptions& options) {
  kafka::Conf conf = LOCKSTEP_TRY(kafka::make_conf(options, {{"message.timeout.ms", "30000"},
                                                             {"queue.buffering.max.kbytes", "16384"},
                                                             {"linger.ms", "2"},
                                                             {"reconnect.backoff.max.ms", "1000"}}));
  kafka::Client client = LOCKSTEP_TRY(kafka::make_client(kafka::ClientKind::kProducer, std::move(conf)));
  return std::unique_ptr<CommandPoster>(std::make_unique<KafkaCommandPoster>(std::move(client)));
}

Result<std::unique_ptr<CommandListener>> open_kafka_command_listener(const BusOptions& options, const Clock& clock,
                                                                     std::chrono::seconds keep) {
  // Nobody joins the group: each reads all of it, and remembers nothing.
  kafka::Conf conf = LOCKSTEP_TRY(kafka::make_conf(options, {{"group.id", "lockstep-commands"},
                                                             {"enable.auto.commit", "false"},
                                                             {"enable.auto.offset.store", "false"},
                                                             {"auto.offset.reset", "latest"},
                                                             {"fetch.wait.max.ms", "500"},
                                                             {"queued.max.messages.kbytes", "16384"},
                                                             {"reconnect.backoff.max.ms", "1000"}}));
  kafka::Client client = LOCKSTEP_TRY(kafka::make_client(kafka::ClientKind::kConsumer, std::move(conf)));
  return std::unique_ptr<CommandListener>(std::make_unique<KafkaCommandListener>(std::move(client), clock, keep));
}

}  // namespace lockstep
