#include "agent/export/exporter.h"

#include <gtest/gtest.h>

#include <fstream>

#include "agent/counters_table.h"
#include "agent/export/otlp_sender_testing.h"
#include "agent/export/spool_testing.h"
#include "agent/testing.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;
using testing::OtlpReceiver;
using testing::ScriptedHttp;
using HttpScript = std::vector<ScriptedHttp::Response>;
using testing::SmallDisk;
using testing::TemporaryFolder;

constexpr int64_t kMs = 1'000'000;

Batch logs_named(const std::string& name, size_t records = 1) {
  Batch batch;
  batch.groups.resize(1);
  for (size_t i = 0; i < records; ++i) {
    LogRecord record;
    record.event_name = name;
    batch.groups[0].logs.push_back(record);
  }
  return batch;
}

struct ExporterTest : ::testing::Test {
  TemporaryFolder folder;
  Counters counters{kAgentCounters};
  std::unique_ptr<Exporter> exporter;

  ExporterOptions options(const std::string& server) {
    ExporterOptions options;
    Result<OtlpTargets> targets = choose_otlp_targets({.server = server}, {});
    EXPECT_TRUE(targets.ok()) << targets.error();
    options.targets = std::move(targets).value();
    for (OtlpTarget& target : options.targets.by_signal) target.timeout_ms = 2'000;
    options.spool_folder = folder.path() + "/spool";
    options.backoff_first_ms = 20;
    options.backoff_most_ms = 200;
    return options;
  }
  ExporterOptions into_folder() {
    ExporterOptions options = this->options("http://127.0.0.1:1");
    options.folder = folder.path() + "/out";
    return options;
  }
  void start(const ExporterOptions& with) {
    Result<std::unique_ptr<Exporter>> started = Exporter::start(with, counters);
    ASSERT_TRUE(started.ok()) << started.error();
    exporter = std::move(started).value();
  }
  int64_t passed() const { return counters.sum("lockstep_agent_records_passed_total"); }
  int64_t refused() const { return counters.sum("lockstep_agent_records_refused_total"); }
  int64_t dropped() const { return counters.sum("lockstep_agent_records_dropped_total"); }
  int64_t queued() const { return counters.value("lockstep_agent_records_queued"); }
  int64_t made() const { return counters.sum("lockstep_agent_records_total"); }
  void expect_every_record_accounted_for() { EXPECT_EQ(made(), passed() + refused() + dropped() + queued()); }
};

TEST_F(ExporterTest, DeliversBatchesInTheirOrderToThePathOfTheirSignal) {
  OtlpReceiver server;
  start(options(server.url()));
  for (int i = 0; i < 5; ++i) exporter->submit(logs_named(std::to_string(i)));
  Batch metrics;
  metrics.signal = Signal::kMetrics;
  metrics.groups.resize(1);
  MetricPoint point;
  point.name = "lockstep_test";
  metrics.groups[0].points = {point};
  uint64_t ticket = exporter->submit(metrics);
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  EXPECT_EQ(server.accepted(), (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(server.requests().front().path, "/v1/logs");
  EXPECT_EQ(server.requests().back().path, "/v1/metrics");
  exporter->stop(0);
  EXPECT_EQ(passed(), 6);
  EXPECT_EQ(counters.prometheus_text().find("partial_success"), std::string::npos) << "nothing was refused";
  EXPECT_EQ(queued(), 0);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, TriesAgainWithGrowingPausesWhileTheServerIsBusy) {
  OtlpReceiver server({503, 429, 503});
  start(options(server.url()));
  exporter->submit(logs_named("patient"));
  ASSERT_TRUE(eventually([&] { return server.requests().size() == 4; }));
  ASSERT_TRUE(eventually([&] { return queued() == 0; }));
  EXPECT_EQ(server.accepted(), std::vector<std::string>{"patient"});
  // Half of the back-off at least, and it doubles: 20, 40, 80 ms.
  std::vector<OtlpReceiver::Request> requests = server.requests();
  EXPECT_GE(requests[1].at_ns - requests[0].at_ns, 9 * kMs);
  EXPECT_GE(requests[2].at_ns - requests[1].at_ns, 19 * kMs);
  EXPECT_GE(requests[3].at_ns - requests[2].at_ns, 39 * kMs);
  exporter->stop(0);
  EXPECT_EQ(passed(), 1);
  EXPECT_EQ(refused(), 0);
  EXPECT_EQ(counters.value("lockstep_agent_export_requests_total", "code=\"503\""), 2);
  EXPECT_EQ(counters.value("lockstep_agent_export_requests_total", "code=\"429\""), 1);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, WhatTheServerRefusesIsCountedAndTheNextGoesOn) {
  OtlpReceiver server({400});
  start(options(server.url()));
  EXPECT_EQ(exporter->trouble(), "");
  exporter->submit(logs_named("bad", 3));
  ASSERT_TRUE(eventually([&] { return exporter->trouble().ends_with("; records are lost"); })) << exporter->trouble();
  EXPECT_TRUE(exporter->trouble().starts_with(server.url() + "/v1/logs: ")) << exporter->trouble();
  uint64_t ticket = exporter->submit(logs_named("good"));
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  exporter->stop(0);
  EXPECT_EQ(exporter->trouble(), "");
  EXPECT_EQ(server.accepted(), std::vector<std::string>{"good"});
  EXPECT_EQ(server.requests().size(), 2u);  // a refusal is not tried again
  EXPECT_EQ(counters.value("lockstep_agent_records_refused_total", "reason=\"http_400\""), 3);
  EXPECT_EQ(passed(), 1);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, CountsWhatTheServerRefusedOfARequestItTook) {
  OtlpReceiver server;
  server.answer_body(otlp::encode_response(Signal::kLogs, 2, "too old"));
  start(options(server.url()));
  uint64_t ticket = exporter->submit(logs_named("mixed", 5));
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  exporter->stop(0);
  EXPECT_EQ(passed(), 3);
  EXPECT_EQ(counters.value("lockstep_agent_records_refused_total", "reason=\"partial_success\""), 2);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, KeepsEverythingOnDiskWhileTheServerIsAwayAndDeliversItInOrderWhenItIsBack) {
  uint16_t port = OtlpReceiver::free_port();
  start(options(format("http://127.0.0.1:%d", port)));
  std::vector<std::string> names;
  uint64_t ticket = 0;
  for (int i = 0; i < 20; ++i) {
    names.push_back(std::to_string(i));
    ticket = exporter->submit(logs_named(names.back()));
  }
  // On disk is safe: the recorders may go.
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  ASSERT_TRUE(eventually([&] { return queued() == 20; }));
  EXPECT_GT(counters.value("lockstep_agent_spool_bytes"), 0);

  OtlpReceiver server({}, port);
  for (int i = 20; i < 25; ++i) {
    names.push_back(std::to_string(i));
    exporter->submit(logs_named(names.back()));
  }
  ASSERT_TRUE(eventually([&] { return passed() == 25; }));
  exporter->stop(1'000);
  EXPECT_EQ(server.accepted(), names);
  EXPECT_EQ(queued(), 0);
  EXPECT_EQ(counters.value("lockstep_agent_spool_bytes"), 0);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, ANewAgentTakesUpWhatTheOldOneSpooled) {
  uint16_t port = OtlpReceiver::free_port();
  start(options(format("http://127.0.0.1:%d", port)));
  for (int i = 0; i < 3; ++i) exporter->submit(logs_named(std::to_string(i), 2));
  exporter->stop(0);
  EXPECT_EQ(queued(), 6);
  expect_every_record_accounted_for();
  exporter.reset();

  OtlpReceiver server({}, port);
  Counters later(kAgentCounters);
  Result<std::unique_ptr<Exporter>> second = Exporter::start(options(server.url()), later);
  ASSERT_TRUE(second.ok()) << second.error();
  (*second)->submit(logs_named("new"));
  ASSERT_TRUE(eventually([&] { return later.sum("lockstep_agent_records_passed_total") == 7; }));
  (*second)->stop(1'000);
  EXPECT_EQ(server.accepted(), (std::vector<std::string>{"0", "0", "1", "1", "2", "2", "new"}));
  EXPECT_EQ(later.sum("lockstep_agent_records_total"), 7);
}

TEST_F(ExporterTest, AFullSpoolDropsTheOldestCountsItAndTellsTheServer) {
  uint16_t port = OtlpReceiver::free_port();
  ExporterOptions with = options(format("http://127.0.0.1:%d", port));
  with.spool_bytes_max = 10 * otlp::encode(logs_named("00")).size();
  start(with);
  uint64_t ticket = 0;
  for (int i = 10; i < 40; ++i) ticket = exporter->submit(logs_named(std::to_string(i)));
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  ASSERT_TRUE(eventually([&] { return queued() == 10; }));
  EXPECT_EQ(counters.value("lockstep_agent_records_dropped_total", "reason=\"spool_full\",value=\"events\""), 20);

  OtlpReceiver server({}, port);
  ASSERT_TRUE(eventually([&] { return passed() == 11; }));
  exporter->stop(1'000);
  std::vector<std::string> accepted = server.accepted();
  ASSERT_EQ(accepted.size(), 11u);
  EXPECT_EQ(accepted.front(), "30");  // the newest ten are left
  EXPECT_EQ(accepted.back(), "telemetry.gap");
  const LogRecord gap = server.requests().back().batch.groups.at(0).logs.at(0);
  EXPECT_EQ(find_int(gap.attributes, "records"), 20);
  EXPECT_EQ(find_string(gap.attributes, "reason"), "spool_full");
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, ARequestLargerThanTheSpoolIsDroppedAndCounted) {
  ExporterOptions with = options(format("http://127.0.0.1:%d", OtlpReceiver::free_port()));
  with.spool_bytes_max = 100;
  start(with);
  uint64_t ticket = exporter->submit(logs_named(std::string(200, 'x'), 2));
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  exporter->stop(0);
  EXPECT_EQ(counters.value("lockstep_agent_records_dropped_total", "reason=\"spool_error\",value=\"events\""), 2);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, StopDeliversWhatItCanInItsTime) {
  OtlpReceiver server;
  start(options(server.url()));
  for (int i = 0; i < 50; ++i) exporter->submit(logs_named("last words"));
  exporter->stop(10'000);
  EXPECT_EQ(server.accepted().size(), 50u);
  EXPECT_EQ(queued(), 0);
}

TEST_F(ExporterTest, WritesToAFolderInsteadOfAServer) {
  start(into_folder());
  exporter->submit(logs_named("a"));
  uint64_t ticket = exporter->submit(logs_named("b"));
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  exporter->stop(0);
  Result<std::vector<std::string>> names = list_directory(folder.path() + "/out");
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 2u);
  Result<std::string> bytes = read_file(folder.path() + "/out/" + names->at(1), 1 << 20);
  ASSERT_TRUE(bytes.ok());
  Result<Batch> batch = otlp::decode(Signal::kLogs, *bytes);
  ASSERT_TRUE(batch.ok()) << batch.error();
  EXPECT_EQ(*batch, logs_named("b"));
  EXPECT_EQ(passed(), 2);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, ANewAgentLeavesTheFilesOfTheOldOne) {
  for (const char* name : {"old", "new"}) {
    start(into_folder());
    exporter->submit(logs_named(name));
    exporter->stop(1'000);
    exporter.reset();
  }
  Result<std::vector<std::string>> names = list_directory(folder.path() + "/out");
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(names->size(), 2u);
}

TEST_F(ExporterTest, AServerThatSaysWhenToComeBackIsLeftAloneUntilThen) {
  ScriptedHttp server(HttpScript{{"503 Busy\r\nRetry-After: 1", ""}});
  start(options(server.url()));
  exporter->submit(logs_named("patient"));
  ASSERT_TRUE(eventually([&] { return server.requests().size() == 2; }));
  // The back-off alone would have come back after 20 ms.
  EXPECT_GE(server.requests()[1].at_ns - server.requests()[0].at_ns, 1'000 * kMs);
  ASSERT_TRUE(eventually([&] { return passed() == 1; }));
  exporter->stop(0);
  expect_every_record_accounted_for();
}

Batch metrics_of(size_t points, size_t name_bytes = 10) {
  Batch batch;
  batch.signal = Signal::kMetrics;
  batch.groups.resize(1);
  MetricPoint point;
  point.name = std::string(name_bytes, 'm');
  batch.groups[0].points.assign(points, point);
  return batch;
}

// A server that is short of room turns away what is worth least first.
TEST_F(ExporterTest, WhatIsWorthMoreIsNotHeldUpByWhatThereIsNoRoomFor) {
  ScriptedHttp server(HttpScript{{"429 Busy\r\nRetry-After: 3600", ""}});
  start(options(server.url()));
  exporter->submit(metrics_of(1));
  ASSERT_TRUE(eventually([&] { return counters.value("lockstep_agent_export_requests_total", "code=\"429\"") == 1; }));
  exporter->submit(metrics_of(1));
  exporter->submit(logs_named("gpu.xid"));
  ASSERT_TRUE(eventually([&] { return passed() == 1; }));
  exporter->submit(logs_named("rank.status"));
  ASSERT_TRUE(eventually([&] { return passed() == 2; }));
  EXPECT_EQ(counters.value("lockstep_agent_export_requests_total", "code=\"429\""), 1);
  exporter->stop(0);
  EXPECT_EQ(queued(), 2) << "metrics wait for as long as they were told to";
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, AFullSpoolGivesUpMetricsBeforeEventsAndSaysSoByValue) {
  ExporterOptions with = options(format("http://127.0.0.1:%d", OtlpReceiver::free_port()));
  const size_t event_bytes = otlp::encode(logs_named("rank.status")).size();
  with.spool_bytes_max = 5 * event_bytes + otlp::encode(metrics_of(3)).size();
  start(with);
  exporter->submit(metrics_of(3));
  uint64_t ticket = 0;
  for (int i = 0; i < 6; ++i) ticket = exporter->submit(logs_named("rank.status"));
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  ticket = exporter->submit(metrics_of(3, 2 * event_bytes));  // no room among events
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  exporter->stop(0);
  EXPECT_EQ(counters.value("lockstep_agent_records_dropped_total", "reason=\"spool_full\",value=\"metrics\""), 6);
  EXPECT_EQ(dropped(), 6);
  EXPECT_EQ(queued(), 6);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, WhatAPowerCutToreIsCountedAndToldToTheServer) {
  std::filesystem::create_directories(folder.path() + "/spool");
  auto spooled = [&](const char* name) { return std::ofstream(folder.path() + "/spool/" + name); };
  spooled("00000000000000000001-logs-3-events-100.otlp") << "short";
  spooled("00000000000000000002-logs-4-events-8.otlp") << std::string(8, '\0');  // right in length, zeros
  spooled("00000000000000000003-logs-1.otlp") << otlp::encode(logs_named("whole"));
  OtlpReceiver server;
  start(options(server.url()));
  ASSERT_TRUE(eventually([&] { return server.accepted().size() == 3; }));
  exporter->stop(1'000);
  EXPECT_EQ(server.accepted(), (std::vector<std::string>{"whole", "telemetry.gap", "telemetry.gap"}));
  EXPECT_EQ(counters.value("lockstep_agent_records_dropped_total", "reason=\"spool_torn\",value=\"events\""), 3);
  EXPECT_EQ(counters.value("lockstep_agent_records_dropped_total", "reason=\"spool_error\",value=\"events\""), 4);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, AFullDiskIsCountedToldLaterAndOverWhenThereIsRoom) {
  SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small tmpfs";
  const uint16_t port = OtlpReceiver::free_port();
  ExporterOptions with = options(format("http://127.0.0.1:%d", port));
  with.spool_folder = disk.path() + "/spool";
  start(with);
  std::ofstream(disk.path() + "/somebody else's") << std::string(52'000, 'x');
  uint64_t ticket = exporter->submit(logs_named("lost" + std::string(20'000, 'x')));
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  EXPECT_EQ(counters.value("lockstep_agent_records_dropped_total", "reason=\"disk_full\",value=\"events\""), 1);
  std::filesystem::remove(disk.path() + "/somebody else's");
  ticket = exporter->submit(logs_named("kept" + std::string(20'000, 'x')));
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  EXPECT_EQ(dropped(), 1);

  OtlpReceiver server({}, port);
  ASSERT_TRUE(eventually([&] { return server.accepted().size() == 2; }));
  EXPECT_EQ(server.accepted().front().substr(0, 4), "kept");
  const LogRecord gap = server.requests().back().batch.groups.at(0).logs.at(0);
  EXPECT_EQ(gap.event_name, "telemetry.gap");
  EXPECT_EQ(find_string(gap.attributes, "reason"), "disk_full");
  exporter->stop(1'000);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, APlaceThatIsAwayDoesNotHoldUpAnother) {
  OtlpReceiver metrics;
  const uint16_t away = OtlpReceiver::free_port();
  Result<OtlpTargets> targets =
      choose_otlp_targets({}, {{"OTEL_EXPORTER_OTLP_ENDPOINT", format("http://127.0.0.1:%d", away)},
                               {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", metrics.url() + "/v1/metrics"},
                               {"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=lab,service.name=not this"}});
  ASSERT_TRUE(targets.ok()) << targets.error();
  ExporterOptions with = options("http://127.0.0.1:1");
  with.targets = *targets;
  start(with);
  for (int i = 0; i < 5; ++i) {
    exporter->submit(logs_named(std::to_string(i)));
    Batch batch = metrics_of(1);
    batch.groups[0].resource = {{"service.name", "lockstep-agent"}};
    exporter->submit(batch);
  }
  ASSERT_TRUE(eventually([&] { return metrics.requests().size() == 5 && passed() == 5 && queued() == 5; }));
  const Attributes resource = metrics.requests()[0].batch.groups.at(0).resource;
  EXPECT_EQ(find_string(resource, "deployment.environment"), "lab");
  EXPECT_EQ(find_string(resource, "service.name"), "lockstep-agent");

  OtlpReceiver logs({}, away);
  exporter->submit(logs_named("5"));
  ASSERT_TRUE(eventually([&] { return passed() == 11; }));
  EXPECT_EQ(logs.accepted(), (std::vector<std::string>{"0", "1", "2", "3", "4", "5"}));
  exporter->stop(0);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, MemoryIsBoundedWhileNothingMovesAndTheLowestValueGoesFirst) {
  uint16_t port = 0;
  UniqueFd silent = testing::listen_on_loopback(port);  // takes the request, never answers
  ExporterOptions with = options(format("http://127.0.0.1:%d", port));
  for (OtlpTarget& target : with.targets.by_signal) target.timeout_ms = 60'000;
  start(with);
  exporter->submit(logs_named("in hand"));
  ASSERT_TRUE(eventually([&] {  // the thread waits for the answer now
    pollfd entry{silent.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }));
  exporter->submit(logs_named("rank.status"));
  uint64_t ticket = 0;
  for (int i = 0; i < 40; ++i) ticket = exporter->submit(metrics_of(1, 1 << 20));
  const int64_t over =
      counters.value("lockstep_agent_records_dropped_total", "reason=\"memory_full\",value=\"metrics\"");
  EXPECT_GE(over, 40 - static_cast<int64_t>(Exporter::kMemoryBytesMax >> 20));
  EXPECT_EQ(dropped(), over);
  silent.reset();  // breaks the connection: what is left goes to disk
  ASSERT_TRUE(eventually([&] { return exporter->settled(ticket); }));
  exporter->stop(0);
  expect_every_record_accounted_for();
  EXPECT_EQ(queued(), 42 - over);
}

TEST_F(ExporterTest, OfEqualValueTheOldestInMemoryGoesFirst) {
  uint16_t port = 0;
  UniqueFd silent = testing::listen_on_loopback(port);
  ExporterOptions with = options(format("http://127.0.0.1:%d", port));
  for (OtlpTarget& target : with.targets.by_signal) target.timeout_ms = 60'000;
  start(with);
  exporter->submit(logs_named("in hand"));
  ASSERT_TRUE(eventually([&] {
    pollfd entry{silent.get(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }));
  // 16 MiB hold 15 of a little more than 1 MiB.
  std::vector<std::string> left = {"in hand"};
  for (char name = 'a'; name <= 'q'; ++name) {
    exporter->submit(logs_named(std::string(1 << 20, name)));
    if (name >= 'c') left.push_back(std::string(1, name));
  }
  EXPECT_EQ(counters.value("lockstep_agent_records_dropped_total", "reason=\"memory_full\",value=\"events\""), 2);
  silent.reset();
  OtlpReceiver server({}, port);
  ASSERT_TRUE(eventually([&] { return passed() == 17; }));
  exporter->stop(0);
  left.push_back("telemetry.gap");
  std::vector<std::string> accepted = server.accepted();
  for (std::string& name : accepted) {
    if (name.size() == 1 << 20) name.resize(1);
  }
  EXPECT_EQ(accepted, left);
  expect_every_record_accounted_for();
}

TEST_F(ExporterTest, AFolderThatCannotBeMadeIsOneLine) {
  std::ofstream(folder.path() + "/file") << "x";
  ExporterOptions with = into_folder();
  with.folder = folder.path() + "/file/out";
  Result<std::unique_ptr<Exporter>> started = Exporter::start(with, counters);
  ASSERT_FALSE(started.ok());
  EXPECT_TRUE(started.error().starts_with("--export: ")) << started.error();
}

}  // namespace
}  // namespace lockstep
