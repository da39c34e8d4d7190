// The bus's reader over librdkafka: a member of a consumer group.
//
// All three topics are assigned by range: with the same number of partitions in each, a partition number of all three
// goes to one member, which a sticky assignment does not promise. That protocol takes everything away before it gives
// anything, so what a member has is changed when it is given, not when it is taken: what it had before and has again goes
// on where it was.
// Every partition has a queue of its own, of which more is taken when what was taken before is used up: so much of each
// is held as librdkafka fetches ahead, however far they are apart.
// Where the next record of a place is not the one that is expected, and the broker's oldest one shows that those between
// were deleted, they are told as missing: other holes (markers of somebody's transactions) were never records.
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "base/contained.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "bus/kafka_client.h"
#include "bus/place_merge.h"
#include "bus/record_times.h"

namespace lockstep {
namespace {

constexpr int kQueryMs = 5'000;
constexpr int kWaitMs = 10;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr size_t kAtOnce = 64;       // records of one place
constexpr size_t kTakenMax = 1'000;  // records of one take()
constexpr uint64_t kTakenBytes = 8 << 20;
constexpr auto kHeldUpMax = std::chrono::seconds(2);  // by a place whose broker does not answer
constexpr int kProbeMs = 500;
constexpr auto kNoteEvery = std::chrono::seconds(1);

using Partitions = std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)>;

Partitions copy_of(const rd_kafka_topic_partition_list_t* list) {
  return {rd_kafka_topic_partition_list_copy(list), rd_kafka_topic_partition_list_destroy};
}

std::optional<BusPlace> place_of(const char* topic, int32_t partition) {
  for (const kafka::Topic& one : kafka::kTopics) {
    if (std::string_view(one.name) == topic) return BusPlace{partition, one.kind};
  }
  return std::nullopt;
}

class KafkaReader final : public BusReader {
 public:
  KafkaReader(BusOptions options, BusReaderOptions reader, const Clock& clock, Counters& counters)
      : options_(std::move(options)), reader_(std::move(reader)), clock_(clock), counters_(counters) {}
  ~KafkaReader() override;

  Result<void> open();
  std::vector<TakenRecord> take(std::chrono::milliseconds longest) override;
  void applied(const std::map<BusPlace, int64_t>& next_offsets) override;
  bool is_at_end() const override { return is_at_end_; }
  BusAssignment assignment() const override {
    MutexLock lock(mutex_);
    return assignment_;
  }
  std::optional<std::string> trouble() const override;
  uint32_t cluster() const override { return cluster_; }

 private:
  struct QueueDeleter {
    void operator()(rd_kafka_queue_t* queue) const { rd_kafka_queue_destroy(queue); }
  };
  Result<kafka::Conf> make_conf(uint64_t kbytes_of_partition);
  static void rebalance(rd_kafka_t* client, rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* list,
                        void* opaque);
  static void failed(rd_kafka_t* client, int error, const char* reason, void* opaque);
  void assign(rd_kafka_topic_partition_list_t* list);
  void revoke();
  struct Start {
    int64_t by_time = 0;                          // negative: nothing is as young
    std::optional<int64_t> committed = {};        // negative: nobody has ever read it; nullopt: not known
    std::chrono::steady_clock::time_point until;  // by when brokers must have answered
  };
  int64_t start_of(const rd_kafka_topic_partition_t& one, const Start& start);
  bool fetch_all();
  bool fetch(const BusPlace& place);
  void keep(const BusPlace& place, const rd_kafka_message_t* message);
  void note_missing(const BusPlace& place, int64_t offset, int64_t oldest);
  void read_again(const BusPlace& place);
  void take_ordered(std::vector<TakenRecord>& taken);
  void set_partitions(const std::set<int32_t>& partitions);
  void note_waiting();

  const BusOptions options_;
  const BusReaderOptions reader_;
  const Clock& clock_;
  Counters& counters_;
  kafka::Client client_;
  uint32_t cluster_ = 0;
  std::map<BusPlace, std::unique_ptr<rd_kafka_queue_t, QueueDeleter>> queues_;
  std::map<BusPlace, int64_t> next_;  // the offset that is expected; none: not known
  PlaceMerge merge_;
  RecordTimes times_;
  bool is_assigned_ = false;  // it was told what it has, be it nothing
  std::optional<std::chrono::steady_clock::time_point> held_up_since_;
  std::chrono::steady_clock::time_point probed_{};
  std::chrono::steady_clock::time_point noted_{};
  std::map<int32_t, int64_t> waiting_;  // as it was noted, by partition
  std::atomic<bool> is_at_end_{false};
  std::atomic<bool> is_down_{false};
  mutable Mutex mutex_;
  BusAssignment assignment_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string fatal_ LOCKSTEP_GUARDED_BY(mutex_);  // empty: none
};

Result<kafka::Conf> KafkaReader::make_conf(uint64_t kbytes_of_partition) {
  const int64_t session_ms = reader_.session.count();
  std::vector<std::pair<const char*, std::string>> ours{
      {"group.id", reader_.group},
      {"partition.assignment.strategy", "range"},
      {"session.timeout.ms", std::to_string(session_ms)},
      {"heartbeat.interval.ms", std::to_string(session_ms / 5)},
      {"max.poll.interval.ms", "600000"},
      {"enable.auto.commit", "false"},
      {"enable.auto.offset.store", "false"},
      {"auto.offset.reset", "earliest"},
      {"enable.partition.eof", "true"},
      {"check.crcs", "true"},
      {"fetch.wait.max.ms", "100"},
      {"fetch.message.max.bytes", std::to_string(kbytes_of_partition << 10)},
      {"queued.max.messages.kbytes", std::to_string(kbytes_of_partition)},
      {"reconnect.backoff.max.ms", "1000"}};
  if (!reader_.instance.empty()) ours.emplace_back("group.instance.id", reader_.instance);
  return kafka::make_conf(options_, ours);
}

Result<void> KafkaReader::open() {
  int32_t partitions = 0;
  {
    kafka::Conf conf = LOCKSTEP_TRY(kafka::make_conf(options_, {}));
    const kafka::Client asks = LOCKSTEP_TRY(kafka::make_client(kafka::ClientKind::kProducer, std::move(conf)));
    partitions = LOCKSTEP_TRY(kafka::prepare_topics(asks.get(), options_));
    if (char* id = rd_kafka_clusterid(asks.get(), kQueryMs)) {
      cluster_ = crc32c(id);
      rd_kafka_mem_free(asks.get(), id);
    }
  }
  const uint64_t places = static_cast<uint64_t>(partitions) * kafka::kTopics.size();
  kafka::Conf conf = LOCKSTEP_TRY(make_conf(std::clamp<uint64_t>(reader_.buffer_bytes_max / 1024 / places, 64, 8192)));
  rd_kafka_conf_set_opaque(conf.get(), this);
  rd_kafka_conf_set_rebalance_cb(conf.get(), rebalance);
  rd_kafka_conf_set_error_cb(conf.get(), failed);
  client_ = LOCKSTEP_TRY(kafka::make_client(kafka::ClientKind::kConsumer, std::move(conf)));
  rd_kafka_poll_set_consumer(client_.get());
  {
    MutexLock lock(mutex_);
    assignment_.partition_count = partitions;
  }
  Partitions topics(rd_kafka_topic_partition_list_new(3), rd_kafka_topic_partition_list_destroy);
  for (const kafka::Topic& topic : kafka::kTopics)
    rd_kafka_topic_partition_list_add(topics.get(), topic.name, RD_KAFKA_PARTITION_UA);
  const rd_kafka_resp_err_t error = rd_kafka_subscribe(client_.get(), topics.get());
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return Error{format("--kafka: %s", rd_kafka_err2str(error))};
  return {};
}

KafkaReader::~KafkaReader() {
  if (!client_) return;
  queues_.clear();
  rd_kafka_consumer_close(client_.get());
  queues_.clear();
  client_.reset();  // it may call back, so before the rest goes
}

void KafkaReader::failed(rd_kafka_t* client, int error, const char* reason, void* opaque) {
  KafkaReader& self = *static_cast<KafkaReader*>(opaque);
  if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && !self.is_down_.exchange(true))
    LOCKSTEP_LOG_WARN("bus", "%s", as_one_line(reason).c_str());
  if (error != RD_KAFKA_RESP_ERR__FATAL) return;
  char line[512] = {};
  rd_kafka_fatal_error(client, line, sizeof line);
  LOCKSTEP_LOG_ERROR("bus", "nothing more is read: %s (another process with this --instance?)",
                     as_one_line(line).c_str());
  MutexLock lock(self.mutex_);
  self.fatal_ = as_one_line(line);
  self.assignment_.partitions.clear();
}

void KafkaReader::rebalance(rd_kafka_t* client, rd_kafka_resp_err_t what, rd_kafka_topic_partition_list_t* list,
                            void* opaque) {
  KafkaReader& self = *static_cast<KafkaReader*>(opaque);
  if (what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) return self.assign(list);
  // Whoever was not heard of in time has lost them to another already.
  if (rd_kafka_assignment_lost(client)) self.set_partitions({});
  self.revoke();
}

void KafkaReader::revoke() {
  queues_.clear();
  merge_.reset({});
  is_assigned_ = false;
  is_at_end_ = false;
  rd_kafka_assign(client_.get(), nullptr);
}

// Where to begin.
int64_t KafkaReader::start_of(const rd_kafka_topic_partition_t& one, const Start& ask) {
  const BusPlace place = *place_of(one.topic, one.partition);
  const std::optional<int64_t> known = reader_.start_at ? reader_.start_at(place) : std::nullopt;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(ask.until - std::chrono::steady_clock::now());
  int64_t low = 0, high = 0;
  if (left.count() <= 0 ||
      rd_kafka_query_watermark_offsets(client_.get(), one.topic, one.partition, &low, &high,
                                       static_cast<int>(left.count())) != RD_KAFKA_RESP_ERR_NO_ERROR)
    return known.value_or(RD_KAFKA_OFFSET_BEGINNING);
  int64_t start = known.value_or(0);
  if (!known) {
    start = reader_.rewind.count() == 0 ? low : ask.by_time < 0 ? high : ask.by_time;
    // What nobody has in its stores is not passed over, however old it is.
    if (ask.committed) start = *ask.committed < 0 ? low : std::min(start, *ask.committed);
    start = std::min(start, high);
  }
  if (start > high) {
    LOCKSTEP_LOG_WARN("bus", "%s %d ends before what was read of it: it was made anew, and is read from its beginning",
                      one.topic, one.partition);
    if (reader_.anew) reader_.anew(place);
    return low;
  }
  if (start < low) {
    if ((known || ask.committed) && reader_.missing) reader_.missing(place, low - start);
    return low;
  }
  return start;
}

void KafkaReader::assign(rd_kafka_topic_partition_list_t* list) {
  Partitions by_time = copy_of(list);
  Partitions committed = copy_of(list);
  const int64_t since_ms = clock_.unix_ns() / 1'000'000 - reader_.rewind.count() * 1000;
  for (int i = 0; i < by_time->cnt; ++i) by_time->elems[i].offset = std::max<int64_t>(since_ms, 0);
  const bool times_known =
      rd_kafka_offsets_for_times(client_.get(), by_time.get(), kQueryMs) == RD_KAFKA_RESP_ERR_NO_ERROR;
  const bool committed_known =
      rd_kafka_committed(client_.get(), committed.get(), kQueryMs) == RD_KAFKA_RESP_ERR_NO_ERROR;
  std::set<BusPlace> places;
  std::set<int32_t> partitions;
  // Of all of them together: each is asked by itself, and while nobody answers the group waits for this member.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kQueryMs);
  next_.clear();
  times_.reset();
  for (int i = 0; i < list->cnt; ++i) {
    rd_kafka_topic_partition_t& one = list->elems[i];
    // A record that is not there by its time is yet to come.
    one.offset =
        start_of(one, {times_known ? by_time->elems[i].offset : 0,
                       committed_known ? std::optional<int64_t>(committed->elems[i].offset) : std::nullopt, until});
    const BusPlace place = *place_of(one.topic, one.partition);
    if (one.offset >= 0) next_[place] = one.offset;
    places.insert(place);
    partitions.insert(one.partition);
  }
  queues_.clear();
  merge_.reset(places);
  is_assigned_ = true;
  is_at_end_ = false;
  rd_kafka_assign(client_.get(), list);
  for (int i = 0; i < list->cnt; ++i) {
    const rd_kafka_topic_partition_t& one = list->elems[i];
    rd_kafka_queue_t* queue = rd_kafka_queue_get_partition(client_.get(), one.topic, one.partition);
    if (queue == nullptr) continue;
    rd_kafka_queue_forward(queue, nullptr);
    queues_[*place_of(one.topic, one.partition)].reset(queue);
  }
  set_partitions(partitions);
  LOCKSTEP_LOG_INFO("bus", "reads %zu partitions", partitions.size());
}

void KafkaReader::set_partitions(const std::set<int32_t>& partitions) {
  counters_.set("lockstep_bus_partitions", "", static_cast<int64_t>(partitions.size()));
  MutexLock lock(mutex_);
  assignment_.partitions.assign(partitions.begin(), partitions.end());
}

// oldest: that the broker has; negative: not known.
void KafkaReader::note_missing(const BusPlace& place, int64_t offset, int64_t oldest) {
  const auto expected = next_.find(place);
  const int64_t missing = expected == next_.end() ? 0 : std::min(offset, oldest) - expected->second;
  if (missing > 0 && reader_.missing) reader_.missing(place, missing);
  next_[place] = offset + 1;
}

void KafkaReader::keep(const BusPlace& place, const rd_kafka_message_t* message) {
  if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return merge_.at_end(place);
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) return;  // librdkafka says so in its log, and tries again
  rd_kafka_timestamp_type_t type{};
  const int64_t time_ms = rd_kafka_message_timestamp(message, &type);
  const bool says = type != RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && time_ms > 0 && time_ms < INT64_MAX / kNsPerMs;
  const RecordTimes::Believed time =
      times_.believe(place, says ? std::optional(time_ms * kNsPerMs) : std::nullopt, clock_.unix_ns());
  if (time.is_corrected) counters_.add("lockstep_bus_record_times_corrected_total");
  int64_t low = 0, high = 0;
  rd_kafka_get_watermark_offsets(client_.get(), kafka::topic_of(place.kind), place.partition, &low, &high);
  merge_.add({.place = place,
              .offset = message->offset,
              .received_unix_ns = time.unix_ns,
              .tenant = kafka::tenant_of(message),
              .payload = std::string(static_cast<const char*>(message->payload), message->len),
              .cluster = cluster_},
             message->offset + 1 >= high);
  note_missing(place, message->offset, low);
}

// From the first record on that was not kept: librdkafka gives no record twice by itself.
void KafkaReader::read_again(const BusPlace& place) {
  const auto next = next_.find(place);
  if (next == next_.end()) return;
  Partitions list(rd_kafka_topic_partition_list_new(1), rd_kafka_topic_partition_list_destroy);
  rd_kafka_topic_partition_list_add(list.get(), kafka::topic_of(place.kind), place.partition)->offset = next->second;
  if (rd_kafka_error_t* error = rd_kafka_seek_partitions(client_.get(), list.get(), 0)) {
    LOCKSTEP_LOG_ERROR("bus", "partition %d cannot be read again: %s", place.partition, rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
  }
}

// Whether there was anything.
bool KafkaReader::fetch(const BusPlace& place) {
  const auto queue = queues_.find(place);
  if (queue == queues_.end()) return false;
  rd_kafka_message_t* messages[kAtOnce];
  const ssize_t count = rd_kafka_consume_batch_queue(queue->second.get(), 0, messages, kAtOnce);
  bool kept = true;
  for (ssize_t i = 0; i < count; ++i) {
    if (kept) kept = contained("bus", "keeping a record", [&] { keep(place, messages[i]); });
    rd_kafka_message_destroy(messages[i]);
  }
  if (!kept) read_again(place);
  return count > 0;
}

bool KafkaReader::fetch_all() {
  bool found = false;
  for (const auto& [place, queue] : queues_) {
    if (merge_.needs_more(place)) found |= fetch(place);
  }
  return found;
}

// Those whose turn it is.
void KafkaReader::take_ordered(std::vector<TakenRecord>& taken) {
  uint64_t bytes = 0;
  const auto now = std::chrono::steady_clock::now();
  const bool held_up_for_long = held_up_since_ && now - *held_up_since_ > kHeldUpMax;
  while (taken.size() < kTakenMax && bytes < kTakenBytes) {
    std::optional<TakenRecord> record = merge_.next(!held_up_for_long);
    if (!record) {
      if (merge_.is_empty())
        held_up_since_.reset();
      else if (!held_up_since_)
        held_up_since_ = now;
      return;
    }
    held_up_since_.reset();
    bytes += record->payload.size();
    taken.push_back(std::move(*record));
    if (merge_.needs_more(taken.back().place)) fetch(taken.back().place);
  }
}

// Once a second, of what the brokers said last. A partition that is another's now has nothing waiting here.
void KafkaReader::note_waiting() {
  const auto now = std::chrono::steady_clock::now();
  if (now - noted_ < kNoteEvery) return;
  noted_ = now;
  for (auto& [partition, records] : waiting_) records = 0;
  for (const auto& [place, queue] : queues_) {
    int64_t low = 0, high = 0;
    const auto next = next_.find(place);
    const rd_kafka_resp_err_t error =
        rd_kafka_get_watermark_offsets(client_.get(), kafka::topic_of(place.kind), place.partition, &low, &high);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR || next == next_.end()) continue;
    waiting_[place.partition] += std::max<int64_t>(high - next->second, 0);
  }
  for (const auto& [partition, records] : waiting_)
    counters_.set("lockstep_bus_waiting_records", format("partition=\"%d\"", partition), records);
}

std::vector<TakenRecord> KafkaReader::take(std::chrono::milliseconds longest) {
  std::vector<TakenRecord> taken;
  taken.reserve(kTakenMax);  // what is in it is not given again
  bool found = !merge_.is_empty();
  const auto until = std::chrono::steady_clock::now() + longest;
  for (;;) {
    // Rebalances, errors; and the records of a moment in which a partition had no queue of its own yet. Waits here where
    // there was nothing the last time, also while one place holds up the others.
    if (rd_kafka_message_t* message = rd_kafka_consumer_poll(client_.get(), found ? 0 : kWaitMs)) {
      if (message->rkt != nullptr) {
        if (auto place = place_of(rd_kafka_topic_name(message->rkt), message->partition)) {
          if (!contained("bus", "keeping a record", [&] { keep(*place, message); })) read_again(*place);
        }
      }
      rd_kafka_message_destroy(message);
    }
    if (is_down_ && kafka::answers_again(client_.get(), probed_, kProbeMs)) is_down_ = false;
    found = fetch_all();
    take_ordered(taken);
    is_at_end_ = is_assigned_ && merge_.is_at_end();
    if (taken.empty() && std::chrono::steady_clock::now() < until) continue;
    // Here, because what was fetched and not taken before the partitions went is fetched again.
    counters_.add("lockstep_bus_records_received_total", "", static_cast<int64_t>(taken.size()));
    std::map<int32_t, int64_t> bytes;
    for (const TakenRecord& record : taken)
      bytes[record.place.partition] += static_cast<int64_t>(record.payload.size());
    for (const auto& [partition, count] : bytes)
      counters_.add("lockstep_bus_read_bytes_total", format("partition=\"%d\"", partition), count);
    note_waiting();
    return taken;
  }
}

void KafkaReader::applied(const std::map<BusPlace, int64_t>& next_offsets) {
  Partitions list(rd_kafka_topic_partition_list_new(static_cast<int>(next_offsets.size())),
                  rd_kafka_topic_partition_list_destroy);
  for (const auto& [place, offset] : next_offsets) {
    if (!queues_.contains(place)) continue;  // another's now
    rd_kafka_topic_partition_list_add(list.get(), kafka::topic_of(place.kind), place.partition)->offset = offset;
  }
  if (list->cnt > 0) rd_kafka_commit(client_.get(), list.get(), 1);
}

std::optional<std::string> KafkaReader::trouble() const {
  MutexLock lock(mutex_);
  if (!fatal_.empty()) return fatal_;
  if (is_down_) return "no broker of the bus can be reached";
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<BusReader>> open_kafka_reader(const BusOptions& options, BusReaderOptions reader,
                                                     const Clock& clock, Counters& counters) {
  auto opened = std::make_unique<KafkaReader>(options, std::move(reader), clock, counters);
  LOCKSTEP_TRY(opened->open());
  return std::unique_ptr<BusReader>(std::move(opened));
}

}  // namespace lockstep
