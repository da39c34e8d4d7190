// A real Prometheus that scrapes itself and writes to our receiver. Debian's speaks 1.0; LOCKSTEP_PROMETHEUS may name
// one that speaks 2.0.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/process.h"
#include "ingest/counters_table.h"
#include "ingest/prometheus/remote_write_receiver.h"
#include "ingest/testing/recording_metric_writer.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

void write_from(const std::string& program, bool is_2) {
  SystemClock clock;
  Counters counters(kServerCounters);
  testing::RecordingMetricWriter writer;
  MetricIntake intake(writer, clock, counters);
  RemoteWriteReceiver receiver(intake, clock, counters);
  Mutex mutex;
  std::string types;  // content types seen
  Result<std::unique_ptr<HttpServer>> server = HttpServer::start(
      {.address = {"127.0.0.1", 0}, .name = "http"},
      [&](const ServerRequest& request) {
        HttpResponse answer = receiver.handle(request);
        MutexLock lock(mutex);
        types = request.header("content-type");
        EXPECT_EQ(answer.status, 204) << answer.body;
        return answer;
      },
      counters);
  ASSERT_TRUE(server.ok()) << server.error();
  Result<ListenSocket> free = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(free.ok()) << free.error();
  const std::string address = free->bound;
  free->fd.reset();
  const testing::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  std::ofstream(folder / "prometheus.yml")
      << "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: itself\n  static_configs: [{targets: [\""
      << address << "\"]}]\nremote_write:\n- url: http://" << (*server)->address() << kRemoteWritePath
      << "\n  name: ours\n"
      << "  metadata_config: {send_interval: 1s}\n"
      << (is_2 ? "  protobuf_message: io.prometheus.write.v2.Request\n" : "");
  {
    const std::vector<std::string> arguments = {program, "--config.file=" + (folder / "prometheus.yml").string(),
                                                "--storage.tsdb.path=" + (folder / "data").string(),
                                                "--web.listen-address=" + address, "--log.level=error"};
    Result<ChildProcess> prometheus = ChildProcess::start({.arguments = arguments, .capture_stdout = false});
    ASSERT_TRUE(prometheus.ok()) << prometheus.error();
    auto passed = [&] { return counters.sum("lockstep_ingest_passed_records_total"); };
    EXPECT_TRUE(testing::eventually([&] { return passed() >= 3000; })) << passed();
    prometheus->stop();
  }
  (*server)->stop();
  EXPECT_EQ(types, is_2 ? "application/x-protobuf;proto=io.prometheus.write.v2.Request" : types);
  EXPECT_EQ(counters.sum("lockstep_ingest_refused_records_total"), 0);
  EXPECT_EQ(counters.sum("lockstep_ingest_undecodable_requests_total"), 0);
  EXPECT_TRUE(writer.samples.contains("up{instance=\"" + address + "\",job=\"itself\"}"));
  // Series repeat, so their labels are read once.
  EXPECT_EQ(writer.asked, writer.samples.size() + writer.histograms.size());
  if (!is_2) {  // 3.14 sends 2.0's metadata empty
    EXPECT_GT(writer.metadata.size(), 50u);
  }
}

TEST(RemoteWriteReal, TakesAllThatDebiansPrometheusWrites) {
  if (!std::filesystem::exists("/usr/bin/prometheus")) GTEST_SKIP() << "prometheus is not installed";
  write_from("/usr/bin/prometheus", false);
}

TEST(RemoteWriteReal, TakesRemoteWrite2) {
  const char* program = std::getenv("LOCKSTEP_PROMETHEUS");
  if (program == nullptr) GTEST_SKIP() << "LOCKSTEP_PROMETHEUS names no Prometheus that speaks 2.0";
  write_from(program, true);
}

}  // namespace
}  // namespace lockstep
