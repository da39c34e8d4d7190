// What every backing of the bus keeps: the durable log in the process, and Kafka, here as librdkafka's own mock of brokers.
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/text.h"
#include "bus/bus_counters.h"
#include "bus/command_topic.h"
#include "bus/log_counters.h"
#include "bus/log_origin.h"
#include "bus/place_merge.h"
#include "bus/record_times.h"
#include "bus/shared_rows.h"
#include "bus/telemetry_bus.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kTimeNs = 1'700'000'000'000 * kMs;

struct Backing {
  virtual ~Backing() = default;
  virtual bool write(const BusRecord& record) = 0;
  // All that there is, of each key in the order of the bus.
  virtual std::vector<TakenRecord> read(size_t expected) = 0;
  virtual uint64_t record_bytes_max() const = 0;
};

struct EmbeddedBacking final : Backing {
  testing::TemporaryFolder folder;
  Counters counters{kLogCounters};
  std::unique_ptr<DurableLog> log =
      DurableLog::open({.folder = folder.path() + "/log", .sync = false}, counters).value();

  bool write(const BusRecord& record) override {
    return log->append(record.kind, record.received_unix_ns, record.payload).ok();
  }
  std::vector<TakenRecord> read(size_t) override {
    log.reset();
    log = DurableLog::open({.folder = folder.path() + "/log", .sync = false}, counters).value();
    std::vector<TakenRecord> all;
    EXPECT_TRUE(log->replay([&](uint64_t sequence, RecordKind kind, int64_t received, std::string_view payload) {
                     all.push_back({{0, kind}, static_cast<int64_t>(sequence), received, "", std::string(payload)});
                   })
                    .ok());
    return all;
  }
  uint64_t record_bytes_max() const override { return DurableLog::kRecordBytesMax; }
};

// Brokers in the process.
struct MockBrokers {
  rd_kafka_t* host = nullptr;
  rd_kafka_mock_cluster_t* cluster = nullptr;
  BusOptions options;

  // spans: partitions of that topic, where it has others.
  explicit MockBrokers(int partitions = 4, int spans = 0) {
    char line[256];
    host = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), line, sizeof line);
    cluster = rd_kafka_mock_cluster_new(host, 1);
    for (const char* topic : {"otlp_metrics", "otlp_logs"}) rd_kafka_mock_topic_create(cluster, topic, partitions, 1);
    rd_kafka_mock_topic_create(cluster, "otlp_spans", spans > 0 ? spans : partitions, 1);
    options.brokers = rd_kafka_mock_cluster_bootstraps(cluster);
  }
  ~MockBrokers() {
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(host);
  }
};

// One for all tests of a process: to join a group takes seconds.
struct KafkaWorld {
  MockBrokers brokers;
  Counters counters{kBusCounters};
  SystemClock clock;
  std::unique_ptr<BusWriter> writer = open_kafka_writer(brokers.options, counters).value();
  std::unique_ptr<BusReader> reader;

  bool write(const BusRecord& record) { return writer->write({&record, 1}).refused == BusWriter::Refused::kNone; }
  // The first four records of this key were applied before the reader began.
  KafkaWorld() {
    for (int i = 0; i < 6; ++i) {
      const std::string payload = std::to_string(i);
      EXPECT_TRUE(write({.key = "earlier", .received_unix_ns = kTimeNs + i * kMs, .payload = payload}));
    }
    const BusPlace place{partition_of("earlier", 4), RecordKind::kOtlpLogs};
    auto start_at = [place](const BusPlace& one) { return one == place ? std::optional<int64_t>(4) : std::nullopt; };
    // Of each place 64 KiB are fetched ahead.
    reader = open_kafka_reader(brokers.options,
                               {.rewind = std::chrono::seconds(0),
                                .buffer_bytes_max = 1 << 20,
                                .start_at = start_at,
                                .missing = [this](const BusPlace&, int64_t records) { missing += records; }},
                               clock, counters)
                 .value();
    earlier = read(2);
  }
  std::vector<TakenRecord> read(size_t expected) {
    std::vector<TakenRecord> all;
    testing::eventually([&] {
      for (TakenRecord& record : reader->take(std::chrono::milliseconds(10))) all.push_back(std::move(record));
      return all.size() >= expected && reader->is_at_end();
    });
    return all;
  }
  std::vector<TakenRecord> earlier;
  int64_t missing = 0;  // told by the reader
};

KafkaWorld& kafka_world() {
  static KafkaWorld world;
  return world;
}

struct KafkaBacking final : Backing {
  bool write(const BusRecord& record) override { return kafka_world().write(record); }
  std::vector<TakenRecord> read(size_t expected) override { return kafka_world().read(expected); }
  uint64_t record_bytes_max() const override { return BusWriter::kRecordBytesMax; }
};

template <typename T>
struct BusContract : ::testing::Test {
  T backing;
};
using Backings = ::testing::Types<EmbeddedBacking, KafkaBacking>;
TYPED_TEST_SUITE(BusContract, Backings);

TYPED_TEST(BusContract, WhatIsConfirmedIsReadWholeAndInTheOrderOfItsKey) {
  const std::string zeros("a\0b\xff", 4);
  for (int i = 0; i < 30; ++i) {
    const RecordKind kind = static_cast<RecordKind>(1 + i % 3);
    const std::string payload = std::to_string(i) + zeros;
    ASSERT_TRUE(this->backing.write({.kind = kind,
                                     .key = "job-" + std::to_string(i % 2),
                                     .received_unix_ns = kTimeNs + i * kMs,
                                     .payload = payload}));
  }
  const std::vector<TakenRecord> all = this->backing.read(30);
  ASSERT_EQ(all.size(), 30u);
  std::map<std::pair<int, RecordKind>, int> last;  // of each key and kind
  for (const TakenRecord& record : all) {
    const int number = std::atoi(record.payload.c_str());
    EXPECT_EQ(record.payload, std::to_string(number) + zeros);
    EXPECT_EQ(record.place.kind, static_cast<RecordKind>(1 + number % 3));
    EXPECT_EQ(record.received_unix_ns, kTimeNs + number * kMs);
    auto& before = last.try_emplace({number % 2, record.place.kind}, -1).first->second;
    EXPECT_LT(before, number);
    before = number;
  }
}

TYPED_TEST(BusContract, EveryRecordOfManyWritersIsThereOnce) {
  std::vector<std::jthread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([this, writer] {
      for (int i = 0; i < 25; ++i) {
        const std::string payload = format("%d/%d", writer, i);
        EXPECT_TRUE(this->backing.write({.key = std::to_string(i), .received_unix_ns = kTimeNs, .payload = payload}));
      }
    });
  }
  writers.clear();
  std::set<std::string> payloads;
  const std::vector<TakenRecord> all = this->backing.read(100);
  for (const TakenRecord& record : all) payloads.insert(record.payload);
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(payloads.size(), 100u);
}

TYPED_TEST(BusContract, ARecordOverTheLimitIsRefusedAndLeavesNothing) {
  const std::string large(this->backing.record_bytes_max() + 1, 'x');
  EXPECT_FALSE(this->backing.write({.key = "job", .received_unix_ns = kTimeNs, .payload = large}));
  EXPECT_TRUE(this->backing.write({.key = "job", .received_unix_ns = kTimeNs, .payload = "small"}));
  const std::vector<TakenRecord> all = this->backing.read(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].payload, "small");
}

TEST(KafkaBus, AReaderGoesOnWhereItsStoresEnd) {
  const std::vector<TakenRecord>& all = kafka_world().earlier;
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].payload, "4");
  EXPECT_EQ(all[0].offset, 4);
  EXPECT_EQ(kafka_world().reader->assignment().partitions, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(KafkaBus, ATenantTravelsWithItsRecordsAndAKeyIsInOnePartitionOfAllTopics) {
  KafkaWorld& bus = kafka_world();
  const int64_t before = bus.counters.value("lockstep_bus_records_received_total");
  for (int kind = 1; kind <= 3; ++kind)
    ASSERT_TRUE(bus.write({static_cast<RecordKind>(kind), "team-a", "job-7", kTimeNs, "x"}));
  const std::vector<TakenRecord> all = bus.read(3);
  ASSERT_EQ(all.size(), 3u);
  for (const TakenRecord& record : all) {
    EXPECT_EQ(record.tenant, "team-a");
    EXPECT_EQ(record.place.partition, partition_of("job-7", 4));
  }
  EXPECT_EQ(bus.counters.value("lockstep_bus_records_received_total"), before + 3);
}

TEST(KafkaBus, EveryRecordIsCountedWhereItWentOrWhyItDidNot) {
  KafkaWorld& bus = kafka_world();
  const auto count = [&](const char* name, const char* labels = "") { return bus.counters.value(name, labels); };
  const int64_t asked = count("lockstep_bus_records_asked_total");
  const int64_t logs = count("lockstep_bus_records_written_total", "topic=\"otlp_logs\""),
                spans = count("lockstep_bus_records_written_total", "topic=\"otlp_spans\""),
                metrics = count("lockstep_bus_records_written_total", "topic=\"otlp_metrics\""),
                large = count("lockstep_bus_records_refused_total", "reason=\"too_large\"");
  const BusRecord three[] = {{.kind = RecordKind::kOtlpLogs, .received_unix_ns = kTimeNs, .payload = "1"},
                             {.kind = RecordKind::kOtlpSpans, .received_unix_ns = kTimeNs, .payload = "2"},
                             {.kind = RecordKind::kOtlpLogs, .received_unix_ns = kTimeNs, .payload = "33"}};
  EXPECT_EQ(bus.writer->write(three).refused, BusWriter::Refused::kNone);
  const std::string too_much(BusWriter::kRecordBytesMax + 1, 'x');
  const BusRecord two[] = {three[0], {.payload = too_much}};
  EXPECT_EQ(bus.writer->write(two).refused, BusWriter::Refused::kTooLarge);
  EXPECT_EQ(count("lockstep_bus_records_asked_total"), asked + 5);
  EXPECT_EQ(count("lockstep_bus_records_written_total", "topic=\"otlp_logs\""), logs + 2);
  EXPECT_EQ(count("lockstep_bus_records_written_total", "topic=\"otlp_spans\""), spans + 1);
  EXPECT_EQ(count("lockstep_bus_records_written_total", "topic=\"otlp_metrics\""), metrics);
  EXPECT_EQ(count("lockstep_bus_records_refused_total", "reason=\"too_large\""), large + 2);
  const auto read_bytes = [&] { return bus.counters.sum("lockstep_bus_read_bytes_total"); };
  const int64_t before = read_bytes();
  EXPECT_EQ(bus.read(3).size(), 3u);
  EXPECT_EQ(read_bytes(), before + 4);
  EXPECT_EQ(bus.counters.value("lockstep_bus_partitions"), 4);
}

// What no compression makes smaller.
std::string noise(size_t bytes, uint32_t seed) {
  std::minstd_rand random(seed);
  std::string text(bytes, '\0');
  for (char& one : text) one = static_cast<char>(random() >> 8);
  return text;
}

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Its steps come one by one, and between them its metrics, which are younger, wait for the next one.
TEST(KafkaBus, WhileOnePlaceHoldsUpTheOthersItsReaderRests) {
  KafkaWorld& bus = kafka_world();
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(bus.write({.key = "job-7", .received_unix_ns = kTimeNs + i * kMs, .payload = noise(100'000, 1)}));
  ASSERT_TRUE(
      bus.write({RecordKind::kOtlpMetrics, "", "job-7", kTimeNs + 1'000 * kMs, "younger than all of the steps"}));
  const auto began = std::chrono::steady_clock::now();
  const double began_cpu_s = thread_cpu_s();
  size_t taken = 0;
  while (taken < 4 && std::chrono::steady_clock::now() - began < testing::kPatience)
    taken += bus.reader->take(std::chrono::milliseconds(100)).size();
  EXPECT_GE(taken, 4u);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_LT(thread_cpu_s() - began_cpu_s, 0.25 * took.count()) << took.count();
}

// The brokers of the test keep 5 MiB of a partition.
TEST(KafkaBus, WhatWasDeletedBeforeItWasReadIsMissing) {
  KafkaWorld& bus = kafka_world();
  EXPECT_EQ(bus.missing, 0);
  const std::string payload = noise(1 << 20, 2);
  for (int i = 0; i < 9; ++i)
    ASSERT_TRUE(bus.write({.key = "job-8", .received_unix_ns = kTimeNs + i * kMs, .payload = payload}));
  // The first may have been fetched before it was deleted.
  int64_t taken = 0;
  EXPECT_TRUE(testing::eventually([&] {
    if (taken + bus.missing < 9) taken += static_cast<int64_t>(bus.read(1).size());
    return taken + bus.missing >= 9;
  }));
  EXPECT_GT(bus.missing, 0);
  EXPECT_EQ(taken + bus.missing, 9);
}

TEST(RecordTimes, AreThoseThatCanBe) {
  constexpr int64_t kMinuteNs = 60'000'000'000, kNowNs = kTimeNs;
  const BusPlace place{0, RecordKind::kOtlpLogs}, other{1, RecordKind::kOtlpLogs};
  RecordTimes times;
  EXPECT_EQ(times.believe(place, kNowNs - 90 * kMinuteNs, kNowNs).unix_ns, kNowNs - 90 * kMinuteNs);
  EXPECT_EQ(times.believe(place, kNowNs - 95 * kMinuteNs, kNowNs).unix_ns, kNowNs - 95 * kMinuteNs)
      << "gateways differ";
  // Of a year to come, and of 1970: when the one before it was.
  for (const int64_t said : {INT64_MAX, kNowNs + 11 * kMinuteNs, int64_t{1}, int64_t{-5}}) {
    const RecordTimes::Believed believed = times.believe(place, said, kNowNs);
    EXPECT_TRUE(believed.is_corrected) << said;
    EXPECT_EQ(believed.unix_ns, kNowNs - 95 * kMinuteNs) << said;
  }
  EXPECT_EQ(times.believe(place, kNowNs - 80 * kMinuteNs, kNowNs).unix_ns, kNowNs - 80 * kMinuteNs) << "and goes on";
  // A clock here that is behind: what comes is of now.
  for (const int64_t passed : {0, 1, 2}) {
    const int64_t now_ns = kNowNs + passed * kMinuteNs;
    EXPECT_EQ(times.believe(other, now_ns + 90 * kMinuteNs, now_ns).unix_ns, now_ns);
  }
  EXPECT_EQ(times.believe(other, kNowNs + 5 * kMinuteNs, kNowNs).unix_ns, kNowNs);
  EXPECT_FALSE(times.believe(other, kNowNs + 5 * kMinuteNs, kNowNs).is_corrected);
  EXPECT_EQ(times.believe(other, std::nullopt, kNowNs).unix_ns, kNowNs);
}

TEST(RecordTimes, AreBelievedToTheirBorders) {
  const BusPlace place{0, RecordKind::kOtlpLogs};
  constexpr int64_t kAhead = RecordTimes::kAheadMaxNs, kOldest = RecordTimes::kOldestNs;
  const auto corrected = [&](int64_t said, int64_t now) {
    return RecordTimes().believe(place, said, now).is_corrected;
  };
  EXPECT_FALSE(corrected(kTimeNs + kAhead, kTimeNs));
  EXPECT_TRUE(corrected(kTimeNs + kAhead + 1, kTimeNs));
  EXPECT_FALSE(corrected(kTimeNs - kOldest, kTimeNs));
  EXPECT_TRUE(corrected(kTimeNs - kOldest - 1, kTimeNs));
  EXPECT_FALSE(corrected(1, kOldest));
  EXPECT_TRUE(corrected(0, kOldest));
  // What was before is news up to ten minutes ago, and then it is not.
  for (const int64_t more : {0, 1}) {
    RecordTimes times;
    times.believe(place, kTimeNs, kTimeNs);
    const int64_t now = kTimeNs + kAhead + more;
    EXPECT_EQ(times.believe(place, std::nullopt, now).unix_ns, more == 0 ? now : kTimeNs);
    EXPECT_FALSE(times.believe(place, std::nullopt, now).is_corrected) << "it does not say";
    times.reset();
    EXPECT_EQ(times.believe(place, std::nullopt, now).unix_ns, now);
  }
}

// Values of Java's own client, whose test has them (UtilsTest.testMurmur2), taken modulo 100.
TEST(KafkaBus, AKeyIsWhereJavasClientsPutIt) {
  EXPECT_EQ(partition_of("21", 100), (-973932308 & 0x7fffffff) % 100);
  EXPECT_EQ(partition_of("foobar", 100), (-790332482 & 0x7fffffff) % 100);
  EXPECT_EQ(partition_of("a-little-bit-long-string", 100), (-985981536 & 0x7fffffff) % 100);
}

TEST(KafkaBus, WhoeverAsksWhileNoBrokerAnswersIsSentAwayAndTakenAgainLater) {
  KafkaWorld& bus = kafka_world();
  ASSERT_TRUE(bus.write({.key = "job", .received_unix_ns = kTimeNs, .payload = "before"}));
  rd_kafka_mock_broker_set_down(bus.brokers.cluster, 1);
  EXPECT_TRUE(testing::eventually([&] { return bus.writer->trouble().has_value(); }));
  const BusRecord record{.key = "job", .received_unix_ns = kTimeNs, .payload = "meanwhile"};
  EXPECT_EQ(bus.writer->write({&record, 1}).refused, BusWriter::Refused::kDown);
  rd_kafka_mock_broker_set_up(bus.brokers.cluster, 1);
  EXPECT_TRUE(
      testing::eventually([&] { return bus.write({.key = "job", .received_unix_ns = kTimeNs, .payload = "after"}); }));
  EXPECT_EQ(
      bus.counters.value("lockstep_bus_records_asked_total"),
      bus.counters.sum("lockstep_bus_records_written_total") + bus.counters.sum("lockstep_bus_records_refused_total"));
}

TEST(KafkaBus, EveryGatewayHearsEveryCommandAlsoOneThatComesLater) {
  KafkaWorld& bus = kafka_world();
  rd_kafka_mock_topic_create(bus.brokers.cluster, kCommandTopic, 1, 1);
  const std::unique_ptr<CommandPoster> poster = open_kafka_command_poster(bus.brokers.options).value();
  EXPECT_TRUE(poster->post({"team", "node-1", "stacks"}));
  EXPECT_TRUE(poster->post({"", "node-2", "detail"}));
  EXPECT_FALSE(poster->post({"", "node-2", std::string(CommandPoster::kTextBytesMax + 1, 'x')}));
  for (int gateway = 0; gateway < 2; ++gateway) {
    const auto listener = open_kafka_command_listener(bus.brokers.options, bus.clock, std::chrono::seconds(60)).value();
    std::vector<PostedCommand> heard;
    ASSERT_TRUE(testing::eventually([&] {
      for (PostedCommand& one : listener->take(std::chrono::milliseconds(10))) heard.push_back(std::move(one));
      return heard.size() >= 2;
    }));
    EXPECT_EQ(heard[0].tenant + "/" + heard[0].host + "/" + heard[0].text, "team/node-1/stacks");
    EXPECT_EQ(heard[1].tenant + "/" + heard[1].host + "/" + heard[1].text, "/node-2/detail");
  }
}

TEST(KafkaBus, RowsThatWereSharedAreThereForWhoeverComesAndHeardByWhoIsThere) {
  KafkaWorld& bus = kafka_world();
  rd_kafka_mock_topic_create(bus.brokers.cluster, kStateTopic, 1, 1);
  const std::unique_ptr<SharedRows> first = open_kafka_shared_rows(bus.brokers.options).value();
  const std::vector<SharedRow> rows{{"a", "1"}, {"b", "2"}, {"c", "3"}};
  ASSERT_TRUE(first->put("", rows).ok());
  const std::vector<SharedRow> later{{"a", "4"}, {"b", ""}};
  ASSERT_TRUE(first->put("", later).ok());
  ASSERT_TRUE(first->put("team", {rows.data(), 1}).ok());
  const auto text = [](const SharedRows& all, const char* tenant) {
    std::string joined;
    for (const SharedRow& row : all.rows(tenant)) joined += row.id + "=" + row.value + " ";
    return joined;
  };
  const std::unique_ptr<SharedRows> second = open_kafka_shared_rows(bus.brokers.options).value();
  EXPECT_EQ(text(*second, ""), "a=4 c=3 ");
  EXPECT_EQ(text(*second, "team"), "a=1 ");
  EXPECT_TRUE(testing::eventually([&] { return text(*first, "team") == "a=1 "; }));
}

TEST(KafkaBus, WhatItsPromisesRestOnIsNotForUsersToChange) {
  MockBrokers brokers;
  Counters counters{kBusCounters};
  const auto said = [&](const char* property) {
    brokers.options.properties = {property};
    const auto opened = open_kafka_writer(brokers.options, counters);
    return opened.ok() ? std::string() : opened.error();
  };
  EXPECT_EQ(said("acks=1"), "--kafka-property: acks is not for users to change");
  EXPECT_EQ(said("acks"), "--kafka-property: \"acks\" is not NAME=VALUE");
  EXPECT_EQ(said("=1"), "--kafka-property: \"\" is not NAME=VALUE");
  EXPECT_EQ(said("no.such=secret"),
            "--kafka-property: no.such: librdkafka has no such property, or not with this value");
  EXPECT_EQ(said(" socket.timeout.ms =5000"), "");
}

TEST(KafkaBus, TopicsThatDoNotGoTogetherAreRefused) {
  MockBrokers brokers(2, 3);
  Counters counters{kBusCounters};
  const auto refused = open_kafka_writer(brokers.options, counters);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error(),
            "--kafka: topics otlp_logs and otlp_spans have 2 and 3 partitions; a job is read as a whole only where all "
            "three topics have the same number");
}

TEST(KafkaBus, ARowIsFoundByItsTenantAndOneThatIsTooLargeIsNotShared) {
  MockBrokers brokers;
  rd_kafka_mock_topic_create(brokers.cluster, kStateTopic, 1, 1);
  const std::unique_ptr<SharedRows> rows = open_kafka_shared_rows(brokers.options).value();
  EXPECT_EQ(rows->version(), 0u);
  const std::string most(SharedRows::kRowBytesMax, 'm'), more(SharedRows::kRowBytesMax + 1, 'm');
  const std::vector<SharedRow> put{{"a", "1"}, {"large", more}, {"most", most}};
  ASSERT_TRUE(rows->put("team", put).ok());
  ASSERT_TRUE(rows->put("team2", {put.data(), 1}).ok());
  ASSERT_TRUE(testing::eventually([&] { return rows->version() == 3; }));
  EXPECT_EQ(rows->find("team", "a"), "1");
  EXPECT_EQ(rows->find("team", "large"), "");
  EXPECT_TRUE(rows->find("team", "most") == most);
  EXPECT_EQ(rows->find("", "a"), "");
  EXPECT_EQ(rows->rows("team").size(), 2u);
  EXPECT_EQ(rows->rows("team2").size(), 1u);
  EXPECT_EQ(rows->rows("tea").size(), 0u);
  const std::vector<SharedRow> gone{{"a", ""}, {"never", ""}};
  ASSERT_TRUE(rows->put("team", gone).ok());
  ASSERT_TRUE(testing::eventually([&] { return rows->version() == 5; }));
  EXPECT_EQ(rows->find("team", "a"), "");
  EXPECT_EQ(rows->rows("team").size(), 1u);
}

TEST(PlaceMerge, GivesTheOldestOnceNoOlderOneCanCome) {
  const BusPlace steps{0, RecordKind::kOtlpLogs}, metrics{0, RecordKind::kOtlpMetrics};
  PlaceMerge merge;
  merge.reset({steps, metrics});
  merge.add({steps, 0, 20, "", "s20"}, false);
  merge.add({steps, 1, 40, "", "s40"}, true);
  EXPECT_FALSE(merge.next(true));  // metrics may be older
  merge.add({metrics, 0, 10, "", "m10"}, false);
  merge.add({metrics, 1, 30, "", "m30"}, false);
  EXPECT_EQ(merge.next(true)->payload, "m10");
  EXPECT_EQ(merge.next(true)->payload, "s20");
  EXPECT_EQ(merge.next(true)->payload, "m30");
  EXPECT_TRUE(merge.needs_more(metrics));
  EXPECT_FALSE(merge.next(true));
  EXPECT_FALSE(merge.is_at_end());
  EXPECT_EQ(merge.next(false)->payload, "s40");  // whoever cannot wait
  merge.at_end(metrics);
  EXPECT_TRUE(merge.is_at_end());
  merge.add({BusPlace{7, RecordKind::kOtlpLogs}, 0, 1, "", "another's"}, false);
  EXPECT_TRUE(merge.is_at_end());
}

TEST(PlaceMerge, OfTheSameTimeTheFirstPlaceIsFirstAndWhatWasTakenAwayIsForgotten) {
  const BusPlace steps{0, RecordKind::kOtlpLogs}, metrics{0, RecordKind::kOtlpMetrics};
  PlaceMerge merge;
  EXPECT_TRUE(merge.is_empty());
  EXPECT_FALSE(merge.next(false));
  EXPECT_FALSE(merge.needs_more(steps)) << "it is another's";
  merge.reset({steps, metrics});
  EXPECT_TRUE(merge.needs_more(steps));
  EXPECT_FALSE(merge.is_at_end());
  merge.at_end(steps);
  merge.at_end(metrics);
  EXPECT_TRUE(merge.is_at_end());
  merge.add({steps, 0, 20, "", "s"}, true);
  merge.add({metrics, 0, 20, "", "m"}, true);
  EXPECT_FALSE(merge.is_empty());
  EXPECT_FALSE(merge.is_at_end());
  EXPECT_FALSE(merge.needs_more(steps));
  EXPECT_EQ(merge.next(true)->payload, "m");
  EXPECT_EQ(merge.next(true)->payload, "s");
  EXPECT_TRUE(merge.is_empty());
  EXPECT_TRUE(merge.is_at_end());
  merge.add({steps, 1, 30, "", "s"}, false);
  merge.reset({metrics});
  EXPECT_TRUE(merge.is_empty());
}

TEST(LogOrigin, IsTakenOffAsItWasPutOn) {
  const LogOrigin origin{7, 3, 1'000'000'000'000, digest_of("payload")};
  const std::string bytes = with_origin(origin, "payload");
  std::string_view rest = bytes;
  const std::optional<LogOrigin> read = take_origin(rest);
  ASSERT_TRUE(read);
  EXPECT_EQ(rest, "payload");
  EXPECT_EQ(read->offset, origin.offset);
  EXPECT_EQ(read->partition, 3);
  EXPECT_EQ(read->digest, digest_of(rest));
  std::string_view truncated = std::string_view(bytes).substr(0, 31);
  EXPECT_FALSE(take_origin(truncated));
}

}  // namespace
}  // namespace lockstep
