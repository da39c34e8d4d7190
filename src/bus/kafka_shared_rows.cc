#include <librdkafka/rdkafka.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "base/contained.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "bus/kafka_client.h"
#include "bus/shared_rows.h"

namespace lockstep {
namespace {

constexpr int kPutMs = 2'500;
constexpr int kFlushMs = 3'000;  // by then each has its answer
constexpr std::chrono::seconds kFailsFor{5};
constexpr std::chrono::seconds kReadWithin{60};

class KafkaSharedRows final : public SharedRows {
 public:
  explicit KafkaSharedRows(BusOptions options) : options_(std::move(options)) {}
  ~KafkaSharedRows() override {
    reading_ = {};
    if (consumer_) rd_kafka_consumer_close(consumer_.get());
  }

  Result<void> open(bool may_wait);
  Result<void> put(const std::string& tenant, std::span<const SharedRow> rows) override;
  std::vector<SharedRow> rows(const std::string& tenant) const override {
    std::vector<SharedRow> all;
    MutexLock lock(mutex_);
    const std::string first = tenant + "/";
    for (auto row = rows_.lower_bound(first); row != rows_.end() && row->first.starts_with(first); ++row)
      all.push_back({row->first.substr(first.size()), row->second});
    return all;
  }
  std::string find(const std::string& tenant, const std::string& id) const override {
    MutexLock lock(mutex_);
    const auto found = rows_.find(tenant + "/" + id);
    return found == rows_.end() ? std::string() : found->second;
  }
  uint64_t version() const override { return version_; }

 private:
  bool assign();
  Result<void> read_all();
  void read_one(int wait_ms);
  void note(const rd_kafka_message_t& message);

  const BusOptions options_;
  kafka::Client producer_, consumer_;
  Mutex put_mutex_;  // one put at a time
  std::chrono::steady_clock::time_point fails_until_ LOCKSTEP_GUARDED_BY(put_mutex_){};
  std::atomic<int> failures_{0};  // of this put
  std::atomic<uint64_t> version_{0};
  // Of the thread that reads, or of open().
  int ends_ = 0;  // partitions that are read to their end
  int partitions_ = 0;
  bool is_assigned_ = false;
  mutable Mutex mutex_;
  std::map<std::string, std::string, std::less<>> rows_ LOCKSTEP_GUARDED_BY(mutex_);  // by tenant and id
  uint64_t bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool is_full_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // said
  std::jthread reading_;
};

Result<void> KafkaSharedRows::open(bool may_wait) {
  kafka::Conf writes = LOCKSTEP_TRY(kafka::make_conf(options_, {{"enable.idempotence", "true"},
                                                                {"acks", "all"},
                                                                {"message.timeout.ms", std::to_string(kPutMs)},
                                                                {"linger.ms", "1"},
                                                                {"reconnect.backoff.max.ms", "1000"}}));
  rd_kafka_conf_set_opaque(writes.get(), this);
  rd_kafka_conf_set_dr_msg_cb(writes.get(), [](rd_kafka_t*, const rd_kafka_message_t* message, void* self) {
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) ++static_cast<KafkaSharedRows*>(self)->failures_;
  });
  producer_ = LOCKSTEP_TRY(kafka::make_client(kafka::ClientKind::kProducer, std::move(writes)));
  // Nobody joins the group: each reads all of it.
  kafka::Conf reads = LOCKSTEP_TRY(kafka::make_conf(options_, {{"group.id", "lockstep-state"},
                                                               {"enable.auto.commit", "false"},
                                                               {"enable.auto.offset.store", "false"},
                                                               {"enable.partition.eof", "true"},
                                                               {"auto.offset.reset", "earliest"},
                                                               {"fetch.wait.max.ms", "100"},
                                                               {"reconnect.backoff.max.ms", "1000"}}));
  consumer_ = LOCKSTEP_TRY(kafka::make_client(kafka::ClientKind::kConsumer, std::move(reads)));
  rd_kafka_poll_set_consumer(consumer_.get());
  if (!may_wait) LOCKSTEP_TRY(read_all());
  reading_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      contained("bus", "reading shared rows", [&] {
        if (is_assigned_) return read_one(200);
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        assign();
      });
    }
  });
  return {};
}

// False: not now.
bool KafkaSharedRows::assign() {
  const Result<int32_t> partitions =
      kafka::prepare_topic(consumer_.get(), kStateTopic, 1, {{"cleanup.policy", "compact"}});
  if (!partitions.ok()) return false;
  partitions_ = *partitions;
  is_assigned_ = kafka::assign_all(consumer_.get(), kStateTopic, *partitions, RD_KAFKA_OFFSET_BEGINNING);
  return is_assigned_;
}

Result<void> KafkaSharedRows::read_all() {
  const auto until = std::chrono::steady_clock::now() + kReadWithin;
  while (!is_assigned_ || ends_ < partitions_) {
    if (std::chrono::steady_clock::now() > until)
      return Error{format("--kafka: topic %s could not be read to its end within %lld s", kStateTopic,
                          static_cast<long long>(kReadWithin.count()))};
    if (is_assigned_)
      read_one(200);
    else if (!assign())
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return {};
}

void KafkaSharedRows::read_one(int wait_ms) {
  std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)> message(
      rd_kafka_consumer_poll(consumer_.get(), wait_ms), rd_kafka_message_destroy);
  if (!message) return;
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) ++ends_;
  if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) note(*message);
}

void KafkaSharedRows::note(const rd_kafka_message_t& message) {
  const std::string_view key(static_cast<const char*>(message.key), message.key_len);
  MutexLock lock(mutex_);
  ++version_;
  auto found = rows_.find(key);
  if (found != rows_.end()) bytes_ -= found->first.size() + found->second.size();
  if (message.len == 0) {
    if (found != rows_.end()) rows_.erase(found);
    return;
  }
  const bool has_room = (found != rows_.end() || rows_.size() < kRowsMax) &&
                        bytes_ + key.size() + message.len <= kBytesMax && message.len <= kRowBytesMax;
  if (!has_room) {
    if (!std::exchange(is_full_, true))
      LOCKSTEP_LOG_ERROR("bus", "topic %s has more than is kept here (%zu rows); further ones are not known",
                         kStateTopic, rows_.size());
    if (found != rows_.end()) rows_.erase(found);
    return;
  }
  bytes_ += key.size() + message.len;
  rows_[std::string(key)].assign(static_cast<const char*>(message.payload), message.len);
}

Result<void> KafkaSharedRows::put(const std::string& tenant, std::span<const SharedRow> rows) {
  MutexLock lock(put_mutex_);
  const auto failed = [&](const char* why) LOCKSTEP_REQUIRES(put_mutex_) {
    fails_until_ = std::chrono::steady_clock::now() + kFailsFor;
    return Error{format("other analyzers are not told: %s", why)};
  };
  if (std::chrono::steady_clock::now() < fails_until_)
    return Error{"other analyzers are not told: the bus failed just now"};
  failures_ = 0;
  for (const SharedRow& row : rows) {
    if (row.value.size() > kRowBytesMax) {
      LOCKSTEP_LOG_WARN("bus", "%s has %zu bytes and is not shared with other analyzers", as_one_line(row.id).c_str(),
                        row.value.size());
      continue;
    }
    const std::string key = tenant + "/" + row.id;
    const rd_kafka_resp_err_t error = rd_kafka_producev(
        producer_.get(), RD_KAFKA_V_TOPIC(kStateTopic), RD_KAFKA_V_PARTITION(0),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key.data(), key.size()),
        RD_KAFKA_V_VALUE(row.value.empty() ? nullptr : const_cast<char*>(row.value.data()), row.value.size()),
        RD_KAFKA_V_END);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return failed(rd_kafka_err2str(error));
  }
  const rd_kafka_resp_err_t flushed = rd_kafka_flush(producer_.get(), kFlushMs);
  if (flushed != RD_KAFKA_RESP_ERR_NO_ERROR || failures_ > 0) return failed("the brokers do not take it");
  return {};
}

}  // namespace

Result<std::unique_ptr<SharedRows>> open_kafka_shared_rows(const BusOptions& options, bool may_wait) {
  auto rows = std::make_unique<KafkaSharedRows>(options);
  LOCKSTEP_TRY(rows->open(may_wait));
  return std::unique_ptr<SharedRows>(std::move(rows));
}

}  // namespace lockstep
