// Both ends of the bus between machines: a gateway's sink, and an analyzer's way into log and stores.
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <csignal>
#include <vector>

#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "bus/command_topic.h"
#include "bus/log_origin.h"
#include "bus/shared_rows.h"
#include "ingest/counters_table.h"
#include "ingest/testing/recording_metric_writer.h"
#include "model/events.h"
#include "net/http_client.h"
#include "server/bus_feed.h"
#include "server/durable_sink.h"
#include "server/gateway.h"
#include "server/options.h"
#include "server/owned_jobs.h"
#include "server/server.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "testing/temporary_folder.h"
#include "wire/otlp.h"
#include "wire/step_walk.h"

namespace lockstep {
namespace {

constexpr int64_t kTimeNs = 1'700'000'000'000'000'000;

std::string step_request(const std::string& job_id, StepNumber step) {
  StepSummary summary;
  summary.step = step;
  summary.start_unix_ns = kTimeNs + step.value() * 100'000'000;
  summary.duration_ns = 100'000'000;
  const Identity identity{.job_id = job_id, .rank = 0_rank, .world_size = 1, .host = "node-0"};
  return otlp::encode(
      Batch{.signal = Signal::kLogs, .groups = {{.resource = to_resource(identity), .logs = {to_record(summary)}}}});
}

TakenRecord taken(int64_t offset, std::string payload, RecordKind kind = RecordKind::kOtlpLogs) {
  return {
      .place = {3, kind}, .offset = offset, .received_unix_ns = kTimeNs, .payload = std::move(payload), .cluster = 77};
}

struct StepsHeard final : StoreSubscriber {
  std::vector<int64_t> steps;
  void on_step(const Identity&, const StepSummary& step, int64_t) override { steps.push_back(step.step.value()); }
};

// A log whose disk may be full.
class FillingLog final : public DurableLog {
 public:
  explicit FillingLog(std::unique_ptr<DurableLog> log) : log_(std::move(log)) {}
  Result<uint64_t> append(RecordKind kind, int64_t received, std::string_view payload) override {
    return log_->append(kind, received, payload);
  }
  Result<uint64_t> append_all(std::span<const AppendedRecord> entries) override {
    if (is_full) return Error{"no room"};
    return log_->append_all(entries);
  }
  Result<void> replay(const std::function<void(uint64_t, RecordKind, int64_t, std::string_view)>& apply) override {
    return log_->replay(apply);
  }
  uint64_t next_sequence() const override { return log_->next_sequence(); }
  bool is_full = false;

 private:
  std::unique_ptr<DurableLog> log_;
};

struct FromBusTest : ::testing::Test {
  testing::TemporaryFolder folder;
  Counters counters{kServerCounters};
  MemoryStepStore steps{{}, counters};
  MemorySpanStore spans{{}, counters};
  SystemClock clock;
  testing::RecordingMetricWriter writer;
  MetricIntake intake{writer, clock, counters};
  MetricMapping metrics{intake, clock};
  AgentRegistry agents;
  Applier applier{steps, spans, agents, counters};
  StepsHeard heard;
  FillingLog log{DurableLog::open({.folder = folder.path() + "/log", .sync = false}, counters).value()};
  DurableSink sink{log, applier, metrics, 1 << 30, clock};
  BusOrigins origins;

  FromBusTest() { applier.subscribe(heard); }
  size_t take(const std::vector<TakenRecord>& records) { return sink.take(records, origins, counters).done; }
  int64_t dropped(const char* reason) {
    return counters.value("lockstep_bus_records_dropped_total", format("reason=\"%s\"", reason));
  }
};

TEST_F(FromBusTest, ARecordIsAppliedOnceHoweverOftenItIsReadOrSent) {
  const std::string first = step_request("job", 1_step), second = step_request("job", 2_step);
  EXPECT_EQ(take({taken(10, first), taken(11, second), taken(12, first), taken(13, "not protobuf")}), 4u);
  EXPECT_EQ(heard.steps, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(dropped("sent_again"), 1) << "the same request at another place";
  EXPECT_EQ(counters.value("lockstep_bus_records_refused_total", "reason=\"undecodable\""), 1);
  EXPECT_EQ(take({taken(10, first), taken(11, second)}), 2u);
  EXPECT_EQ(dropped("read_again"), 2);
  EXPECT_EQ(heard.steps.size(), 2u);

  // What the log says after a restart.
  BusOrigins read_back;
  size_t logged = 0;
  ASSERT_TRUE(log.replay([&](uint64_t, RecordKind kind, int64_t, std::string_view payload) {
                   const std::optional<LogOrigin> origin = take_origin(payload);
                   ASSERT_TRUE(origin);
                   EXPECT_EQ(payload, logged == 0 ? first : second);
                   read_back.note(kind, *origin);
                   ++logged;
                 })
                  .ok());
  EXPECT_EQ(logged, 2u);
  origins = read_back;
  EXPECT_EQ(take({taken(11, second), taken(14, first), taken(15, step_request("job", 3_step))}), 3u);
  EXPECT_EQ(heard.steps, (std::vector<int64_t>{1, 2, 3}));

  // A topic that was made anew counts from the beginning.
  TakenRecord anew = taken(0, step_request("job", 4_step));
  anew.cluster = 78;
  EXPECT_EQ(take({anew}), 1u);
  EXPECT_EQ(heard.steps.size(), 4u);
}

// Whoever comes after them waits for their turns to be over.
TEST_F(FromBusTest, AFailureAfterTheyAreLoggedHoldsUpNobody) {
  const std::vector<TakenRecord> records{taken(0, step_request("job", 1_step)), taken(1, step_request("job", 2_step))};
  const auto fails = [](int64_t) { throw std::runtime_error("a look failed"); };
  EXPECT_EQ(sink.take(records, origins, counters, fails).done, 2u);
  EXPECT_EQ(take({taken(2, step_request("job", 3_step))}), 1u);
  EXPECT_EQ(heard.steps, (std::vector<int64_t>{1, 2, 3}));
}

std::string log_request(size_t bytes) {
  return otlp::encode(
      Batch{.signal = Signal::kLogs, .groups = {{.resource = {}, .logs = {{.body = std::string(bytes, 'x')}}}}});
}

TEST_F(FromBusTest, WhatNoMemoryWillEverBeThereForIsRefusedAndWhatThereIsNoneForNowIsNot) {
  std::atomic<uint64_t> resident = 0;
  MemoryBudget memory(4 << 20, [&] { return resident.load(); });
  DurableSink bounded{log, applier, metrics, 1 << 30, clock, nullptr, &memory};
  const std::vector<TakenRecord> records{taken(0, step_request("job", 1_step)), taken(1, log_request(3 << 20)),
                                         taken(2, step_request("job", 2_step)), taken(3, log_request(200'000))};
  DurableSink::FromBus first = bounded.take(records, origins, counters);
  EXPECT_EQ(first.done, 1u) << "a record is judged by itself";
  EXPECT_FALSE(first.no_memory);
  EXPECT_EQ(bounded.take(std::span(records).subspan(1, 2), origins, counters).done, 2u);
  EXPECT_EQ(counters.value("lockstep_bus_records_refused_total", "reason=\"memory\""), 1);
  EXPECT_EQ(heard.steps, (std::vector<int64_t>{1, 2}));

  resident = 4 << 20;  // others have it
  const DurableSink::FromBus later = bounded.take(std::span(records).subspan(3), origins, counters);
  EXPECT_EQ(later.done, 0u);
  EXPECT_TRUE(later.no_memory);
  resident = 0;
  EXPECT_EQ(bounded.take(std::span(records).subspan(3), origins, counters).done, 1u);
  EXPECT_EQ(counters.sum("lockstep_bus_records_refused_total"), 1);
}

// Not all who write to a bus are gateways, which have looked at it.
TEST_F(FromBusTest, WhatIsInARecordIsAdmittedAsReceiversDo) {
  const int64_t year_ns = 366ll * 86'400 * 1'000'000'000;
  auto request = [&](std::vector<int64_t> times_ns) {
    ResourceGroup group{.resource = to_resource({.job_id = "job", .rank = 0_rank, .world_size = 1, .host = "node-0"})};
    for (const int64_t time_ns : times_ns) {
      StepSummary summary;
      summary.step = StepNumber(time_ns > clock.unix_ns() ? 2 : 1);
      summary.start_unix_ns = time_ns;
      summary.duration_ns = 100'000'000;
      group.logs.push_back(to_record(summary));
    }
    return otlp::encode(Batch{.signal = Signal::kLogs, .groups = {group}});
  };
  const int64_t now_ns = clock.unix_ns();
  EXPECT_EQ(take({taken(0, request({now_ns - 1'000'000'000, now_ns + year_ns})), taken(1, request({now_ns + year_ns})),
                  taken(2, step_request("job", 3_step))}),
            3u);
  EXPECT_EQ(heard.steps, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(counters.value("lockstep_ingest_refused_records_total",
                           "receiver=\"kafka\",signal=\"logs\",reason=\"future_time\""),
            2);
  EXPECT_EQ(counters.value("lockstep_bus_records_refused_total", "reason=\"not_admitted\""), 1);
  const char* labels = "receiver=\"kafka\",signal=\"logs\"";
  EXPECT_EQ(counters.value("lockstep_ingest_received_records_total", labels),
            2 + counters.value("lockstep_ingest_passed_records_total", labels));
  // What is read back after a crash is what was kept, and known by what came.
  size_t logged = 0;
  ASSERT_TRUE(log.replay([&](uint64_t, RecordKind, int64_t, std::string_view payload) {
                   const std::optional<LogOrigin> origin = take_origin(payload);
                   const Result<LogsRequest> kept = otlp::decode_logs(payload);
                   EXPECT_TRUE(kept.ok() && kept->record_count() == 1u);
                   EXPECT_EQ(origin->digest == digest_of(payload), logged++ > 0);
                 })
                  .ok());
  EXPECT_EQ(logged, 2u);
}

TEST_F(FromBusTest, ARecordLongerThanAnyRequestIsRefused) {
  const std::string large(BusWriter::kRecordBytesMax + 1, 'x');
  EXPECT_EQ(take({taken(0, large), taken(1, step_request("job", 1_step))}), 2u);
  EXPECT_EQ(counters.value("lockstep_bus_records_refused_total", "reason=\"too_large\""), 1);
  EXPECT_EQ(heard.steps.size(), 1u);
}

TEST_F(FromBusTest, WhatTheLogCannotTakeNowIsHandedOverAgain) {
  const std::vector<TakenRecord> records{taken(0, step_request("job", 1_step)), taken(1, step_request("job", 2_step))};
  log.is_full = true;
  EXPECT_EQ(take(records), 0u);
  EXPECT_TRUE(heard.steps.empty());
  log.is_full = false;
  EXPECT_EQ(take(records), 2u);
  EXPECT_EQ(heard.steps, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(counters.sum("lockstep_bus_records_dropped_total"), 0);
  sink.close();
  EXPECT_EQ(take({taken(2, step_request("job", 3_step))}), 0u);
}

TEST_F(FromBusTest, OfMetricsTheLogHasOnlyWhereTheyStood) {
  Batch batch{.signal = Signal::kMetrics,
              .groups = {{.resource = {{"host.name", "n0"}}, .points = {{.name = "power", .value = 1}}}}};
  batch.groups[0].points[0].time_unix_ns = kTimeNs;
  const std::string request = otlp::encode(batch);
  EXPECT_EQ(take({taken(0, request, RecordKind::kOtlpMetrics)}), 1u);
  EXPECT_EQ(writer.samples.size(), 1u);
  size_t logged = 0;
  ASSERT_TRUE(log.replay([&](uint64_t, RecordKind kind, int64_t, std::string_view payload) {
                   const std::optional<LogOrigin> origin = take_origin(payload);
                   ASSERT_TRUE(origin);
                   EXPECT_EQ(origin->digest, digest_of(request));
                   EXPECT_TRUE(payload.empty());
                   origins = BusOrigins();
                   origins.note(kind, *origin);
                   ++logged;
                 })
                  .ok());
  EXPECT_EQ(logged, 1u);
  EXPECT_EQ(take({taken(0, request, RecordKind::kOtlpMetrics)}), 1u) << "after a restart";
  EXPECT_EQ(dropped("read_again"), 1);
}

TEST(BusPositions, AreReadAsTheyWereWrittenAndOnlyForTheirBus) {
  testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/bus_positions";
  BusPositions positions;
  positions.cluster = 77;
  positions.places[{3, RecordKind::kOtlpLogs}] = {12, 0};
  positions.places[{0, RecordKind::kOtlpMetrics}] = {1'000'000'000'000, 2};
  ASSERT_TRUE(positions.write(path).ok());
  const BusPositions read = BusPositions::read(path, 77);
  ASSERT_EQ(read.places.size(), 2u);
  EXPECT_EQ(read.places.at({3, RecordKind::kOtlpLogs}).next_offset, 12);
  EXPECT_EQ(read.places.at({0, RecordKind::kOtlpMetrics}).next_offset, 1'000'000'000'000);
  EXPECT_EQ(read.places.at({0, RecordKind::kOtlpMetrics}).anew, 2u);
  EXPECT_TRUE(BusPositions::read(path, 78).places.empty());
  EXPECT_TRUE(BusPositions::read(folder.path() + "/none", 77).places.empty());
  ASSERT_TRUE(write_file_atomically(path, "1 77\n9 1 1 1\n1 x 1 1\n1 1 -5 0\n2 1 4\n2 1 4 0\n\xff").ok());
  EXPECT_EQ(BusPositions::read(path, 77).places.size(), 1u);
}

struct FakeBus final : BusWriter {
  struct Written {
    RecordKind kind;
    std::string tenant, key, payload;
  };
  std::vector<Written> written;
  Outcome answer;
  Outcome write(std::span<const BusRecord> records) override {
    for (const BusRecord& record : records)
      written.push_back({record.kind, record.tenant, record.key, std::string(record.payload)});
    return answer;
  }
  std::optional<std::string> trouble() const override { return std::nullopt; }
};

TEST(BusSink, KeysByJobAndSaysWhatASenderIsToDo) {
  FakeBus bus;
  SystemClock clock;
  BusSink sink("team-a", bus, clock, nullptr);
  const std::string request = step_request("job-7", 1_step);
  EXPECT_EQ(sink.accept_logs({}, request, kTimeNs).error, AcceptError::kNone);
  ASSERT_EQ(bus.written.size(), 1u);
  EXPECT_EQ(bus.written[0].key, "job-7");
  EXPECT_EQ(bus.written[0].tenant, "team-a");
  EXPECT_EQ(bus.written[0].kind, RecordKind::kOtlpLogs);
  EXPECT_EQ(bus.written[0].payload, request);
  bus.answer = {BusWriter::Refused::kDown, "down"};
  EXPECT_EQ(sink.accept_logs({}, request, kTimeNs).error, AcceptError::kUnavailable);
  bus.answer = {BusWriter::Refused::kFull, "full"};
  EXPECT_EQ(sink.accept_logs({}, request, kTimeNs).error, AcceptError::kOverloaded);
  bus.answer = {BusWriter::Refused::kTooLarge, "too large"};
  const AcceptResult refused = sink.accept_logs({}, request, kTimeNs);
  EXPECT_EQ(refused.error, AcceptError::kNone) << "to send it again would not help";
  EXPECT_GT(refused.rejected, 0);
}

struct Evens final : JobOwnership {
  bool owns(std::string_view job_id) const override { return (job_id.back() - '0') % 2 == 0; }
};

TEST_F(FromBusTest, AnApiShowsTheJobsThatAreItsOwn) {
  EXPECT_EQ(take({taken(0, step_request("job-1", 1_step)), taken(1, step_request("job-2", 1_step))}), 2u);
  const Evens evens;
  const OwnedStepStore shown(steps, &evens), all(steps, nullptr);
  ASSERT_EQ(shown.jobs().size(), 1u);
  EXPECT_EQ(shown.jobs()[0].job_id, "job-2");
  EXPECT_FALSE(shown.job("job-1"));
  EXPECT_TRUE(shown.steps("job-1", 0_step, 9_step).empty());
  EXPECT_EQ(shown.steps("job-2", 0_step, 9_step).size(), 1u);
  EXPECT_EQ(all.jobs().size(), 2u);
}

// Otherwise a service manager waits for it in vain, and ends it.
TEST(ServerRoles, AGatewayTellsSystemdWhenItIsReadyAndWhenItStops) {
  char line[256];
  // Kept until the process ends: to end them takes a second.
  static rd_kafka_t* const host = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), line, sizeof line);
  static rd_kafka_mock_cluster_t* const brokers = rd_kafka_mock_cluster_new(host, 1);
  for (const char* topic : {"otlp_metrics", "otlp_logs", "otlp_spans", kCommandTopic, kStateTopic})
    rd_kafka_mock_topic_create(brokers, topic, 1, 1);
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/notify";
  const UniqueFd listener(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const auto heard = [&] {
    char got[64]{};
    ::recv(listener.get(), got, sizeof got - 1, 0);
    return std::string(got);
  };
  Result<ChildProcess> gateway = ChildProcess::start(
      {.arguments = {LOCKSTEPD_PATH, "--role", "gateway", "--kafka", rd_kafka_mock_cluster_bootstraps(brokers),
                     "--data", folder.path() + "/data", "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0",
                     "--otlp-grpc", "127.0.0.1:0"},
       .environment = {{"NOTIFY_SOCKET", path}},
       .stderr_path = folder.path() + "/stderr"});
  ASSERT_TRUE(gateway.ok()) << gateway.error();
  const Result<std::string> ready = gateway->read_line(30'000);
  ASSERT_TRUE(ready.ok()) << ready.error();
  EXPECT_TRUE(ready->starts_with("ready http=")) << *ready;
  timeval patience{.tv_sec = 30, .tv_usec = 0};
  ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  EXPECT_EQ(heard(), "READY=1");
  const std::string http(split(*ready, ' ')[1].substr(5));
  HttpClient client(*parse_url("http://" + http, 80), 20'000);
  const Result<HttpResponse> answer = client.send({.method = "GET", .path = "/readyz?format=json"});
  ASSERT_TRUE(answer.ok()) << answer.error();
  EXPECT_TRUE(answer->body.starts_with(
      "{\"ready\":true,\"checks\":[{\"name\":\"bus\",\"ok\":true},{\"name\":\"spool\",\"ok\":true},"))
      << answer->body;
  gateway->signal(SIGTERM);
  EXPECT_EQ(heard(), "STOPPING=1");
  EXPECT_TRUE(gateway->wait(30'000).ok());
}

TEST(ServerRoles, NeedABusOrHaveNone) {
  EXPECT_EQ(read_server_options({"--data", "d"})->role, ServerRole::kAll);
  const Result<ServerOptions> gateway =
      read_server_options({"--data", "d", "--role=gateway", "--kafka=k:9092", "--kafka-property", "sasl.password=x"});
  EXPECT_EQ(check_server_options(*gateway).error(),
            "--kafka-property sasl.password: a secret is read from a file: sasl.password=@FILE");
  ASSERT_TRUE(gateway.ok()) << gateway.error();
  EXPECT_EQ(gateway->role, ServerRole::kGateway);
  EXPECT_EQ(read_server_options({"--data", "d", "--role=analyzer"}).error(),
            "lockstepd: --role analyzer needs --kafka BROKERS: the bus between gateways and analyzers");
  EXPECT_FALSE(read_server_options({"--data", "d", "--kafka=k:9092"}).ok());
  EXPECT_EQ(read_server_options({"--data", "d", "--role=gateway", "--kafka=k:9092", "--scrape=f"}).error(),
            "lockstepd: --scrape would do nothing with --role gateway");
  EXPECT_EQ(read_server_options({"--data", "d", "--role=query"}).error(),
            "lockstepd: --role is all, gateway or analyzer, not \"query\"");
}

}  // namespace
}  // namespace lockstep
