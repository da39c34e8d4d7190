#include "profile/read/nsys_reader.h"

#include <gtest/gtest.h>

#include <fstream>

#include "profile/analysis.h"
#include "profile/testing/nsys_export.h"
#include "testing/temporary_folder.h"

namespace lockstep::profile {
namespace {

using testing::NsysExport;

std::optional<uint32_t> event_of(const TraceEvents& events, std::string_view name) {
  for (uint32_t i = 0; i < events.size(); ++i) {
    if (events.name_of(i) == name) return i;
  }
  return std::nullopt;
}

TEST(NsysReader, AnExportHasTheColumnsOfATrace) {
  NsysExport file;
  file.range(17, "aten::linear, seq = 3", 900, 9'000);
  file.range(17, "aten::mm, seq = 4, op_id = 5", 950, 5'000);
  file.kernel(17, "sm90_xmma_gemm", 1'000, 4'000, 9'000);
  file.copy(17, 1, 8'000, 10'000, 12'000);
  file.range(17, "forward", 800, 9'500);
  const Result<TraceEvents> events = read_nsys_bytes(file.bytes());
  ASSERT_TRUE(events.ok()) << events.error();
  EXPECT_EQ(events->counts.kept, 6u);
  EXPECT_EQ(events->host, "gpu-017");
  ASSERT_EQ(events->devices.size(), 1u);
  EXPECT_EQ(events->devices[0].multiprocessors, 132);

  const std::optional<uint32_t> kernel = event_of(*events, "sm90_xmma_gemm"),
                                launch = event_of(*events, "cudaLaunchKernel");
  ASSERT_TRUE(kernel && launch);
  EXPECT_EQ(events->start_ns[*kernel], 1'700'000'000'000'004'000);
  EXPECT_EQ(events->duration_ns[*kernel], 5'000);
  EXPECT_EQ(events->kind[*kernel], EventKind::kKernel);
  EXPECT_EQ(events->stream[*kernel], 7);
  EXPECT_EQ(events->correlation[*kernel], events->correlation[*launch]);
  EXPECT_EQ(events->kernel(*kernel)->grid[0], 4u);
  EXPECT_EQ(events->kernel(*kernel)->block[0], 128u);
  EXPECT_EQ(events->kernel(*kernel)->shared_bytes, 1'536u);
  EXPECT_EQ(events->kind[*launch], EventKind::kRuntime);
  const std::optional<uint32_t> op = event_of(*events, "aten::mm");
  ASSERT_TRUE(op) << "an operator, without what emit_nvtx says of it";
  EXPECT_EQ(events->kind[*op], EventKind::kCpuOp);
  EXPECT_EQ(events->external_id[*launch], events->external_id[*op]) << "the innermost around the call";
  EXPECT_EQ(events->kind[*event_of(*events, "forward")], EventKind::kAnnotation);
  const std::optional<uint32_t> copy = event_of(*events, "Memcpy HtoD");
  ASSERT_TRUE(copy);
  EXPECT_EQ(events->kernel(*copy)->bytes, 8'000u);
  EXPECT_FLOAT_EQ(events->kernel(*copy)->gigabytes_per_s, 4);
}

TEST(NsysReader, TablesAndColumnsThatAreNotThereAreNotKnown) {
  NsysExport file;
  file.kernel(17, "gemm", 1'000, 4'000, 9'000);
  file.run(
      "DROP TABLE NVTX_EVENTS; DROP TABLE TARGET_INFO_GPU; DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME;"
      "DROP TABLE TARGET_INFO_SESSION_START_TIME;"
      "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN registersPerThread;");
  const Result<TraceEvents> events = read_nsys_bytes(file.bytes());
  ASSERT_TRUE(events.ok()) << events.error();
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ(events->start_ns[0], 4'000);
  EXPECT_EQ(events->kernels[0].registers, 0u);
}

// Two ranks of a node in one export; the second computes longer, the first waits for it in every all-reduce.
void record_two_ranks(NsysExport& file) {
  for (int step = 0; step < 4; ++step) {
    const long long begin = 1'000'000 + step * 1'000'000ll;
    for (const int rank : {0, 1}) {
      const int pid = rank == 0 ? 30 : 20;  // the order is the devices', not the processes'
      file.range(pid, format("step %d", step + 7), begin, begin + 900'000);
      const long long work_ns = rank == 1 ? 600'000 : 200'000;
      file.kernel(pid, "gemm", begin + 1'000, begin + 10'000, begin + 10'000 + work_ns, rank, 7);
      file.kernel(pid, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", begin + 20'000,
                  begin + 12'000 + work_ns, begin + 700'000, rank, 9);
    }
  }
}

TEST(NsysReader, EachProcessOfAnExportIsARankAndTheSlowOneIsNamed) {
  NsysExport file;
  record_two_ranks(file);
  ::lockstep::testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/node 1?.sqlite";
  std::ofstream(path, std::ios::binary) << file.bytes();
  const Result<std::vector<NsysProcess>> processes = nsys_processes(path);
  ASSERT_TRUE(processes.ok()) << processes.error();
  ASSERT_EQ(*processes, (std::vector<NsysProcess>{30ull << 24, 20ull << 24})) << "by device";
  std::vector<TraceInput> inputs;
  for (const NsysProcess process : *processes) {
    inputs.push_back({format("process %zu", inputs.size()), std::nullopt, nullptr,
                      [&path, process](const ReadOptions& options) { return read_nsys_file(path, process, options); }});
  }
  const Result<ProfileAnalysis> analysis = analyze(inputs);
  ASSERT_TRUE(analysis.ok()) << analysis.error();
  ASSERT_EQ(analysis->ranks.size(), 2u);
  EXPECT_EQ(analysis->ranks[0].index.steps.size(), 4u);
  EXPECT_EQ(analysis->ranks[0].index.steps[0].number, 7);
  EXPECT_TRUE(analysis->verdict.sentence.starts_with("Rank 1 holds the others up")) << analysis->verdict.sentence;
}

TEST(NsysReader, AsAStreamItIsReadWhereItHasOneProcessAndIsNotTooLarge) {
  NsysExport one, two;
  one.kernel(17, "gemm", 1'000, 4'000, 9'000);
  record_two_ranks(two);
  const std::string bytes = one.bytes(), many = two.bytes();
  EXPECT_EQ(read_trace(bytes_in_memory(bytes))->counts.kept, 2u);
  EXPECT_NE(read_trace(bytes_in_memory(many)).error().find("holds 2 processes"), std::string::npos);
  ReadOptions small;
  small.export_bytes_max = 4'096;
  EXPECT_NE(read_trace(bytes_in_memory(bytes), small).error().find("the limit here"), std::string::npos);
}

TEST(NsysReader, WhatIsNoneIsOneLine) {
  NsysExport empty, odd;
  odd.kernel(17, "gemm", 1'000, 9'000, 4'000);
  odd.kernel(17, "gemm", 1'000, 4'000, 9'000);
  const Result<TraceEvents> events = read_nsys_bytes(odd.bytes());
  ASSERT_TRUE(events.ok()) << events.error();
  EXPECT_EQ(events->counts.bad, 1u) << "it ends before it begins";
  EXPECT_EQ(events->counts.events, events->counts.kept + events->counts.bad);
  odd.run("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY");
  EXPECT_NE(read_nsys_bytes(odd.bytes()).error().find("--trace=cuda,nvtx"), std::string::npos);
  EXPECT_EQ(read_nsys_bytes(empty.bytes()).error(), "has nothing that ran on a GPU");
  const std::string whole = empty.bytes();
  for (const std::string& bytes :
       {whole.substr(0, 100), whole.substr(0, 5'000), std::string(kSqliteMagic), std::string("no database")}) {
    const Result<TraceEvents> read = read_nsys_bytes(bytes);
    ASSERT_FALSE(read.ok());
    EXPECT_TRUE(read.error().starts_with("is no export of Nsight Systems that can be read: ")) << read.error();
    EXPECT_EQ(read.error().find('\n'), std::string::npos) << read.error();
  }
  EXPECT_FALSE(nsys_processes("/nowhere/report.sqlite").ok());
}

// A table of an export that is a view, over something that never ends.
TEST(NsysReader, NothingThatAFileBringsIsRun) {
  NsysExport file;
  file.run(
      "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;"
      "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE more(start) AS (SELECT 1 UNION ALL SELECT start + 1"
      " FROM more) SELECT start, start AS end, 0 AS deviceId, 0 AS globalPid FROM more;");
  const Result<TraceEvents> read = read_nsys_bytes(file.bytes());
  EXPECT_FALSE(read.ok());
}

// What such a table or column holds is made as it is read.
TEST(NsysReader, OnlyWhatIsStoredIsRead) {
  NsysExport file;
  file.kernel(17, "gemm", 1'000, 4'000, 9'000);
  file.run(
      "DROP TABLE NVTX_EVENTS;"
      "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, \"end\", eventType, text, globalTid, textId);"
      "DROP TABLE StringIds;"
      "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT GENERATED ALWAYS AS ('made ' || id));"
      "INSERT INTO StringIds VALUES (1), (2);");
  file.range(17, "forward", 800, 9'500);
  const Result<TraceEvents> events = read_nsys_bytes(file.bytes());
  ASSERT_TRUE(events.ok()) << events.error();
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ(events->name_of(0), "");
  EXPECT_EQ(events->name_of(1), "");
}

TEST(NsysReader, TextsThatHaveNoRoomAreNotKept) {
  NsysExport file;
  file.kernel(17, "gemm", 1'000, 4'000, 9'000);
  for (int i = 0; i < 100; ++i) file.range(17, format("range %03d", i) + std::string(100, 'x'), 800, 9'500);
  ReadOptions options;
  options.text_bytes_max = 2'000;
  const Result<TraceEvents> events = read_nsys_bytes(file.bytes(), options);
  ASSERT_TRUE(events.ok()) << events.error();
  EXPECT_GT(events->counts.too_many, 80u);
  EXPECT_LT(events->texts.bytes(), 2'300u);
}

TEST(NsysReader, TracksThatAreKnownStayTheirOwnWhereThereAreTooMany) {
  NsysExport file;
  file.run(
      format("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, globalPid) WITH RECURSIVE"
             " more(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM more WHERE i < 100000)"
             " SELECT 10, 20, 0, i, %lld FROM more",
             NsysExport::process(17)));
  file.kernel(17, "gemm", 1'000, 4'000, 9'000, 0, 7);
  const Result<TraceEvents> events = read_nsys_bytes(file.bytes());
  ASSERT_TRUE(events.ok()) << events.error();
  EXPECT_EQ(events->tracks.size(), 100'000u);
  EXPECT_EQ(events->track[100'000], 0u) << "with the first";
  EXPECT_EQ(events->track[100'001], 7u);
  EXPECT_EQ(events->tracks[7].tid, "stream 7");
}

// Each of 40 pages has one row of 3,000 bytes, 480 times.
std::string with_rows_that_share_a_text() {
  constexpr size_t kPage = 4'096, kTimes = 480;
  NsysExport file;
  file.kernel(17, "gemm", 1'000, 4'000, 9'000);
  for (int i = 0; i < 40; ++i) file.range(17, std::string(3'000, 'x'), 800, 9'500);
  std::string bytes = file.bytes();
  for (size_t at = bytes.find(std::string(3'000, 'x')); at != std::string::npos;
       at = bytes.find(std::string(3'000, 'x'), at + 3'000)) {
    const size_t page = at / kPage * kPage;
    const std::string cell = bytes.substr(page + 8, 2);
    bytes[page + 3] = static_cast<char>(kTimes >> 8);
    bytes[page + 4] = static_cast<char>(kTimes & 0xff);
    for (size_t i = 0; i < kTimes; ++i) bytes.replace(page + 8 + 2 * i, 2, cell);
  }
  return bytes;
}

TEST(NsysReader, BytesThatAreReadAgainAndAgainAreWork) {
  const Result<TraceEvents> read = read_nsys_bytes(with_rows_that_share_a_text());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error(), "takes more work to read than its size justifies");
}

}  // namespace
}  // namespace lockstep::profile
