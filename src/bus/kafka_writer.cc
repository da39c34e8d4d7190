// The bus's writer over librdkafka: an idempotent producer, every record confirmed by all in-sync replicas.
//
// A caller waits for its own records. What they hold stays the caller's memory until the brokers' answer, or librdkafka's
// own that there is none (message.timeout.ms), has come for each of them: nothing is copied. While no broker answers,
// callers are sent away at once instead of waiting for that long, each on one of the receivers' threads; the thread that
// serves answers asks meanwhile whether one is back.
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "bus/kafka_client.h"

namespace lockstep {
namespace {

constexpr int kServeMs = 50;
constexpr int kProbeMs = 1'000;
constexpr const char* kDownLine = "no broker of the bus can be reached; try again later";

// One call of write(), until each of its records has an answer.
struct Delivery {
  Mutex mutex;
  ConditionVariable changed;
  size_t waiting LOCKSTEP_GUARDED_BY(mutex) = 0;
  rd_kafka_resp_err_t failure LOCKSTEP_GUARDED_BY(mutex) = RD_KAFKA_RESP_ERR_NO_ERROR;

  void done(rd_kafka_resp_err_t error) {
    MutexLock lock(mutex);
    --waiting;
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR && failure == RD_KAFKA_RESP_ERR_NO_ERROR) failure = error;
    changed.notify_all();
  }
};

class KafkaWriter final : public BusWriter {
 public:
  KafkaWriter(BusOptions options, Counters& counters) : options_(std::move(options)), counters_(counters) {}
  ~KafkaWriter() override;

  Result<void> open(bool may_wait);
  Outcome write(std::span<const BusRecord> records) override;
  std::optional<std::string> trouble() const override;

 private:
  using Client = std::shared_ptr<rd_kafka_t>;

  Result<Client> make_client();
  Client client() {
    MutexLock lock(mutex_);
    return client_;
  }
  void serve(const std::stop_token& stop);
  bool find_topics(rd_kafka_t* client);
  void replace_client();
  rd_kafka_resp_err_t produce(rd_kafka_t* client, const BusRecord& record, Delivery& delivery);
  Outcome outcome_of(rd_kafka_resp_err_t error, size_t records);
  static void delivered(rd_kafka_t* client, const rd_kafka_message_t* message, void* opaque);
  static void failed(rd_kafka_t* client, int error, const char* reason, void* opaque);

  const BusOptions options_;
  Counters& counters_;
  std::atomic<bool> is_down_{false};
  std::atomic<bool> is_broken_{false};  // this client can do no more: another takes its place
  bool has_no_topics_ = false;          // nobody has looked whether they are there; the serving thread's own
  mutable Mutex mutex_;
  Client client_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread server_;
};

Result<KafkaWriter::Client> KafkaWriter::make_client() {
  // murmur2 is what Java's clients, and with them most tools, do with a key: whoever else writes or looks for a job finds it
  // in the same partition. message.timeout.ms: less than senders wait for an answer.
  kafka::Conf conf =
      LOCKSTEP_TRY(kafka::make_conf(options_, {{"enable.idempotence", "true"},
                                               {"acks", "all"},
                                               {"partitioner", "murmur2_random"},
                                               {"message.timeout.ms", "8000"},
                                               {"queue.buffering.max.kbytes", std::to_string(kQueueBytesMax >> 10)},
                                               {"queue.buffering.max.messages", "100000"},
                                               {"message.max.bytes", std::to_string(kRecordBytesMax + (1 << 20))},
                                               {"compression.codec", "zstd"},
                                               {"linger.ms", "2"},
                                               {"reconnect.backoff.max.ms", "1000"}}));
  rd_kafka_conf_set_opaque(conf.get(), this);
  rd_kafka_conf_set_dr_msg_cb(conf.get(), delivered);
  rd_kafka_conf_set_error_cb(conf.get(), failed);
  return Client(LOCKSTEP_TRY(kafka::make_client(kafka::ClientKind::kProducer, std::move(conf))));
}

Result<void> KafkaWriter::open(bool may_wait) {
  Client made = LOCKSTEP_TRY(make_client());
  if (Result<int32_t> partitions = kafka::prepare_topics(made.get(), options_); !partitions.ok()) {
    if (!may_wait || partitions.code() != ErrorCode::kNotFound) return std::move(partitions).failure();
    LOCKSTEP_LOG_WARN("bus", "%s; it is asked again until it answers", partitions.error().c_str());
    is_down_ = has_no_topics_ = true;
  }
  {
    MutexLock lock(mutex_);
    client_ = std::move(made);
  }
  server_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  return {};
}

KafkaWriter::~KafkaWriter() {
  server_ = {};
  MutexLock lock(mutex_);
  client_.reset();
}

void KafkaWriter::serve(const std::stop_token& stop) {
  auto probed = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    const Client held = client();
    rd_kafka_poll(held.get(), kServeMs);
    if (is_broken_) replace_client();
    if (is_down_ && kafka::answers_again(held.get(), probed, kProbeMs))
      is_down_ = has_no_topics_ && !find_topics(held.get());
  }
}

bool KafkaWriter::find_topics(rd_kafka_t* client) {
  const Result<int32_t> partitions = kafka::prepare_topics(client, options_);
  if (!partitions.ok()) LOCKSTEP_LOG_ERROR("bus", "%s", partitions.error().c_str());
  has_no_topics_ = !partitions.ok();
  return partitions.ok();
}

// An idempotent producer that has lost track of what the brokers have says so and takes nothing more.
void KafkaWriter::replace_client() {
  const Client old = client();
  rd_kafka_purge(old.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  while (rd_kafka_outq_len(old.get()) > 0 && rd_kafka_poll(old.get(), kServeMs) >= 0) {
  }
  Result<Client> made = make_client();
  if (!made.ok()) return;  // it was made before; tried again
  MutexLock lock(mutex_);
  client_ = std::move(*made);
  is_broken_ = false;
}

void KafkaWriter::delivered(rd_kafka_t*, const rd_kafka_message_t* message, void*) {
  static_cast<Delivery*>(message->_private)->done(message->err);
}

void KafkaWriter::failed(rd_kafka_t* client, int error, const char* reason, void* opaque) {
  KafkaWriter& self = *static_cast<KafkaWriter*>(opaque);
  if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && !self.is_down_.exchange(true))
    LOCKSTEP_LOG_WARN("bus", "%s", as_one_line(reason).c_str());
  if (error == RD_KAFKA_RESP_ERR__FATAL) {
    char line[512] = {};
    rd_kafka_fatal_error(client, line, sizeof line);
    LOCKSTEP_LOG_ERROR("bus", "the producer begins anew: %s", as_one_line(line).c_str());
    self.is_broken_ = true;
  }
}

rd_kafka_resp_err_t KafkaWriter::produce(rd_kafka_t* client, const BusRecord& record, Delivery& delivery) {
  rd_kafka_vu_t parts[8];
  size_t count = 0;
  auto add = [&](rd_kafka_vtype_t type) -> rd_kafka_vu_t& {
    parts[count].vtype = type;
    return parts[count++];
  };
  add(RD_KAFKA_VTYPE_TOPIC).u.cstr = kafka::topic_of(record.kind);
  auto& value = add(RD_KAFKA_VTYPE_VALUE).u.mem;
  value.ptr = const_cast<char*>(record.payload.data());
  value.size = record.payload.size();
  if (!record.key.empty()) {
    auto& key = add(RD_KAFKA_VTYPE_KEY).u.mem;
    key.ptr = const_cast<char*>(record.key.data());
    key.size = record.key.size();
  }
  add(RD_KAFKA_VTYPE_TIMESTAMP).u.i64 = record.received_unix_ns / 1'000'000;
  add(RD_KAFKA_VTYPE_OPAQUE).u.ptr = &delivery;
  if (!record.tenant.empty()) {
    auto& header = add(RD_KAFKA_VTYPE_HEADER).u.header;
    header.name = kafka::kTenantHeader;
    header.val = record.tenant.data();
    header.size = static_cast<ssize_t>(record.tenant.size());
  }
  rd_kafka_error_t* error = rd_kafka_produceva(client, parts, count);
  if (error == nullptr) return RD_KAFKA_RESP_ERR_NO_ERROR;
  const rd_kafka_resp_err_t code = rd_kafka_error_code(error);
  rd_kafka_error_destroy(error);
  return code;
}

BusWriter::Outcome KafkaWriter::outcome_of(rd_kafka_resp_err_t error, size_t records) {
  auto refused = [&](Refused why, const char* reason, std::string line) -> Outcome {
    counters_.add("lockstep_bus_records_refused_total", format("reason=\"%s\"", reason), static_cast<int64_t>(records));
    return {why, std::move(line)};
  };
  switch (error) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
      return {};
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
      return refused(Refused::kFull, "full", "too much is on its way to the bus; try again");
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
      return refused(Refused::kTooLarge, "too_large", "the bus takes no record of this size (max.message.bytes)");
    default:
      return refused(Refused::kDown, "down", format("the bus: %s", rd_kafka_err2str(error)));
  }
}

BusWriter::Outcome KafkaWriter::write(std::span<const BusRecord> records) {
  counters_.add("lockstep_bus_records_asked_total", "", static_cast<int64_t>(records.size()));
  for (const BusRecord& record : records) {
    if (record.payload.size() > kRecordBytesMax)
      return outcome_of(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, records.size());
  }
  if (is_down_) {
    counters_.add("lockstep_bus_records_refused_total", "reason=\"down\"", static_cast<int64_t>(records.size()));
    return {Refused::kDown, kDownLine};
  }
  const Client held = client();
  Delivery delivery;
  {
    MutexLock lock(delivery.mutex);
    delivery.waiting = records.size();
  }
  for (const BusRecord& record : records) {
    if (rd_kafka_resp_err_t error = produce(held.get(), record, delivery); error != RD_KAFKA_RESP_ERR_NO_ERROR)
      delivery.done(error);
  }
  rd_kafka_resp_err_t failure;
  {
    MutexLock lock(delivery.mutex);
    delivery.changed.wait(delivery.mutex, [&]() LOCKSTEP_REQUIRES(delivery.mutex) { return delivery.waiting == 0; });
    failure = delivery.failure;
  }
  if (failure != RD_KAFKA_RESP_ERR_NO_ERROR) return outcome_of(failure, records.size());
  for (const kafka::Topic& topic : kafka::kTopics) {
    const auto count = std::count_if(records.begin(), records.end(),
                                     [&](const BusRecord& record) { return record.kind == topic.kind; });
    if (count > 0) counters_.add("lockstep_bus_records_written_total", format("topic=\"%s\"", topic.name), count);
  }
  return {};
}

std::optional<std::string> KafkaWriter::trouble() const {
  if (!is_down_) return std::nullopt;
  return kDownLine;
}

}  // namespace

Result<std::unique_ptr<BusWriter>> open_kafka_writer(const BusOptions& options, Counters& counters, bool may_wait) {
  auto writer = std::make_unique<KafkaWriter>(options, counters);
  LOCKSTEP_TRY(writer->open(may_wait));
  return std::unique_ptr<BusWriter>(std::move(writer));
}

}  // namespace lockstep
