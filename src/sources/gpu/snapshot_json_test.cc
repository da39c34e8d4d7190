#include "sources/gpu/snapshot_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "sources/gpu/gpu_metrics.h"

namespace lockstep {
namespace {

GpuInfo info_of(int index) {
  GpuInfo info;
  info.uuid = format("GPU-%d", index);
  info.index = index;
  info.vendor = "nvidia";
  info.model = "H200 \"SXM\"";
  info.pci = "0000:1b:00.0";
  info.serial = "165";
  info.driver = "560.35";
  info.minor = index;
  return info;
}

GpuSnapshot snapshot_of(int gpus) {
  GpuSnapshot snapshot;
  snapshot.unix_ns = 1'700'000'000'123'456'789;
  for (int i = 0; i < gpus; ++i) {
    GpuState gpu;
    gpu.info = info_of(i);
    add_gpu_value(gpu, GpuMetric::kTempMemory, 71);
    add_gpu_value(gpu, GpuMetric::kPower, 312.5);
    add_gpu_value(gpu, GpuMetric::kTempGpu, 61);
    add_gpu_value(gpu, GpuMetric::kTempOther, "hbm2", 73);
    add_gpu_value(gpu, GpuMetric::kLinkUp, "17", 1);
    add_gpu_value(gpu, GpuMetric::kMemoryUsage, 81'604'378'624.0);
    snapshot.gpus.push_back(gpu);
  }
  return snapshot;
}

// By row and label: the line has them in the table's order.
std::vector<std::tuple<const MetricDescriptor*, std::string, double>> sorted(const GpuState& gpu) {
  std::vector<std::tuple<const MetricDescriptor*, std::string, double>> values;
  for (const GpuValue& value : gpu.values) values.emplace_back(value.metric, value.label, value.value);
  std::sort(values.begin(), values.end());
  return values;
}

TEST(GpuSnapshotJson, BringsAllOfASnapshotAcross) {
  GpuSnapshot sent = snapshot_of(2);
  sent.gpus[1].lost = true;
  sent.gpus[1].info.parent_uuid = "GPU-0";
  sent.processes_read = true;
  sent.processes = {{4242, "GPU-0", uint64_t{1} << 40}};
  sent.events = {{"GPU-1", "xid", 79, 1'700'000'000'000'000'000}};
  sent.notes = {"GPM: no permission"};
  GpuSnapshotWriter writer;
  const std::string text = writer.line(17, sent);
  EXPECT_EQ(text.find('\n'), std::string::npos);

  GpuLineReader reader;
  const Result<GpuLine> line = reader.read(text);
  ASSERT_TRUE(line.ok()) << line.error();
  EXPECT_EQ(line->kind, GpuLine::Kind::kSnapshot);
  EXPECT_EQ(line->request, 17u);
  const GpuSnapshot& got = line->snapshot;
  EXPECT_EQ(got.unix_ns, sent.unix_ns);
  ASSERT_EQ(got.gpus.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got.gpus[i].info, sent.gpus[i].info);
    EXPECT_EQ(got.gpus[i].lost, sent.gpus[i].lost);
    EXPECT_EQ(sorted(got.gpus[i]), sorted(sent.gpus[i]));
  }
  EXPECT_TRUE(got.processes_read);
  EXPECT_EQ(got.processes, sent.processes);
  EXPECT_EQ(got.events, sent.events);
  EXPECT_EQ(got.notes, sent.notes);
}

TEST(GpuSnapshotJson, CanBeReadByAPerson) {
  GpuSnapshotWriter writer;
  const std::string text = writer.line(1, snapshot_of(1));
  EXPECT_NE(text.find("\"hw.power\":312.5"), std::string::npos) << text;
  EXPECT_NE(text.find("\"hw.temperature\":{\"gpu\":61,\"memory\":71,\"hbm2\":73}"), std::string::npos) << text;
}

TEST(GpuSnapshotJson, EveryRowOfTheTableComesBackAsItself) {
  GpuSnapshot snapshot;
  GpuState gpu;
  gpu.info = info_of(0);
  for (size_t i = 0; i < kGpuMetricCount; ++i) {
    const bool free = std::string_view(kGpuLabelValues[i]) == kLabelByReader;
    gpu.values.push_back({&kGpuMetrics[i], free ? "its own" : kGpuLabelValues[i], static_cast<double>(i)});
  }
  snapshot.gpus = {gpu};
  GpuSnapshotWriter writer;
  GpuLineReader reader;
  const Result<GpuLine> line = reader.read(writer.line(1, snapshot));
  ASSERT_TRUE(line.ok()) << line.error();
  EXPECT_EQ(sorted(line->snapshot.gpus[0]), sorted(gpu));
  EXPECT_EQ(reader.unknown_metrics(), 0);
}

TEST(GpuSnapshotJson, SaysWhatAGpuIsOnceAndAgainWhenItChanges) {
  GpuSnapshot snapshot = snapshot_of(8);
  GpuSnapshotWriter writer;
  GpuLineReader reader;
  const std::string first = writer.line(1, snapshot);
  const std::string second = writer.line(2, snapshot);
  EXPECT_NE(first.find("H200"), std::string::npos);
  EXPECT_EQ(second.find("H200"), std::string::npos) << second;
  ASSERT_TRUE(reader.read(first).ok());
  Result<GpuLine> line = reader.read(second);
  ASSERT_TRUE(line.ok()) << line.error();
  EXPECT_EQ(line->snapshot.gpus[7].info, info_of(7));

  snapshot.gpus[7].info.driver = "570.00";
  line = reader.read(writer.line(3, snapshot));
  ASSERT_TRUE(line.ok()) << line.error();
  EXPECT_EQ(line->snapshot.gpus[7].info.driver, "570.00");
  EXPECT_EQ(line->snapshot.gpus[6].info, info_of(6));
}

TEST(GpuSnapshotJson, RefusesAGpuThatWasNeverDescribed) {
  GpuLineReader reader;
  const auto line = reader.read(R"({"request":1,"unix_ns":1,"gpus":[{"uuid":"GPU-0","values":{}}]})");
  ASSERT_FALSE(line.ok());
  EXPECT_NE(line.error().find("never described"), std::string::npos) << line.error();
}

TEST(GpuSnapshotJson, LeavesOutMetricsThatTheTableDoesNotHaveAndSaysSoOnce) {
  GpuLineReader reader;
  const std::string text =
      R"({"request":1,"unix_ns":1,"gpus":[{"uuid":"GPU-0","info":{"index":0},"values":{"hw.power":3,"hw.magic":4,)"
      R"("hw.errors":{"imagined":5}}}]})";
  Result<GpuLine> line = reader.read(text);
  ASSERT_TRUE(line.ok()) << line.error();
  ASSERT_EQ(line->snapshot.gpus[0].values.size(), 1u);
  EXPECT_EQ(line->snapshot.gpus[0].values[0].metric, &gpu_metric(GpuMetric::kPower));
  ASSERT_EQ(line->snapshot.notes.size(), 2u);
  EXPECT_NE(line->snapshot.notes[0].find("hw.magic"), std::string::npos);
  EXPECT_NE(line->snapshot.notes[1].find("hw.errors{imagined}"), std::string::npos);
  line = reader.read(text);
  ASSERT_TRUE(line.ok());
  EXPECT_TRUE(line->snapshot.notes.empty());
  EXPECT_EQ(reader.unknown_metrics(), 4);
}

TEST(GpuSnapshotJson, LeavesOutNumbersThatAreNone) {
  GpuSnapshot snapshot = snapshot_of(1);
  snapshot.gpus[0].values = {{&gpu_metric(GpuMetric::kPower), "", std::numeric_limits<double>::quiet_NaN()},
                             {&gpu_metric(GpuMetric::kEnergy), "", 5}};
  GpuSnapshotWriter writer;
  GpuLineReader reader;
  const Result<GpuLine> line = reader.read(writer.line(1, snapshot));
  ASSERT_TRUE(line.ok()) << line.error();
  ASSERT_EQ(line->snapshot.gpus[0].values.size(), 1u);
  EXPECT_EQ(line->snapshot.gpus[0].values[0].value, 5);
}

TEST(GpuSnapshotJson, KeepsToItsLimits) {
  GpuSnapshotWriter writer;
  GpuLineReader reader;
  EXPECT_TRUE(reader.read(writer.line(1, snapshot_of(kGpuLineGpusMax))).ok());
  EXPECT_FALSE(reader.read(writer.line(2, snapshot_of(kGpuLineGpusMax + 1))).ok());

  GpuSnapshot many = snapshot_of(1);
  for (size_t i = 0; i <= kGpuLineValuesMax; ++i) add_gpu_value(many.gpus[0], GpuMetric::kLinkUp, std::to_string(i), 1);
  EXPECT_FALSE(reader.read(writer.line(3, many)).ok());

  GpuSnapshot processes = snapshot_of(1);
  processes.processes_read = true;
  processes.processes.resize(kGpuLineProcessesMax + 1, {1, "GPU-0", 1});
  EXPECT_FALSE(reader.read(GpuSnapshotWriter().line(4, processes)).ok());
}

TEST(GpuSnapshotJson, RefusesWhatIsNotALineOfIts) {
  GpuLineReader reader;
  for (const char* text :
       {"", "hello", "{}", "[]", "{\"request\":-1}", "{\"request\":1}", "{\"request\":1,\"unix_ns\":1,\"gpus\":{}}",
        R"({"request":1,"unix_ns":1,"gpus":[{"uuid":"a","info":{},"values":{"hw.power":"3"}}]})",
        R"({"request":1,"unix_ns":1,"gpus":[{"uuid":"a\n","info":{},"values":{}}]})",
        R"({"request":1,"unix_ns":1,"gpus":[{"uuid":"a","info":{"index":"0"}}]})",
        R"({"request":1,"unix_ns":1,"gpus":[{"uuid":"a","info":{}},{"uuid":"a","info":{}}]})",
        R"({"request":1,"unix_ns":1,"gpus":[],"processes":[[0,"a",1]]})",
        R"({"request":1,"unix_ns":1,"gpus":[],"processes":[[1,"a"]]})",
        R"({"request":1,"unix_ns":1,"gpus":[],"events":[{"uuid":"a"}]})", "{\"error\":5}"}) {
    const Result<GpuLine> line = reader.read(text);
    ASSERT_FALSE(line.ok()) << text;
    EXPECT_EQ(line.error().find('\n'), std::string::npos);
  }
}

TEST(GpuSnapshotJson, CarriesReadyAndErrorLines) {
  GpuLineReader reader;
  Result<GpuLine> line = reader.read(gpu_ready_line("nvml"));
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->kind, GpuLine::Kind::kReady);
  line = reader.read(gpu_error_line("no \"library\"", true));
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->kind, GpuLine::Kind::kError);
  EXPECT_EQ(line->text, "no \"library\"");
  EXPECT_TRUE(line->absent);
}

TEST(GpuSnapshotJson, RequestsComeAcrossAndNothingElseDoes) {
  const GpuRequest request{17, true, false};
  const std::string line = to_line(request);
  EXPECT_EQ(line, "read 17 slow=1 processes=0\n");
  EXPECT_EQ(*parse_gpu_request(std::string_view(line).substr(0, line.size() - 1)), request);
  for (const char* text : {"", "read", "read x slow=1 processes=0", "read 1 slow=2 processes=0", "read 1 slow=1",
                           "write 1 slow=1 processes=0", "read 1 processes=0 slow=1", "read 1 slow=1 processes=0 "})
    EXPECT_FALSE(parse_gpu_request(text).ok()) << text;
}

}  // namespace
}  // namespace lockstep
