#include "profile/read/trace_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "profile/read/trace_header.h"
#include "profile/testing/trace_text.h"

namespace lockstep::profile {
namespace {

using testing::read_text;
using testing::TraceText;

std::string gzipped(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string usual() {
  return TraceText(
             "\"schemaVersion\": 1, \"baseTimeNanoseconds\": 1767225600000000000, \"distributedInfo\": {\"backend\": "
             "\"nccl\", \"rank\": 3, \"world_size\": 8, \"pg_config\": [{\"pg_name\": \"0\", \"pg_desc\": "
             "\"default_pg\", \"ranks\": \"[0, 1, 2]\"}]}, \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA "
             "H200\", "
             "\"numSms\": 132}],")
      .launched("gemm", 7, 10, 20.125, 5.5, "\"registers per thread\": 168, \"est. achieved occupancy %\": 19",
                "aten::mm")
      .kernel(
          "ncclDevKernel_AllReduce", 20, 30, 4, 900,
          "\"Collective name\": \"allreduce\", \"Process Group Name\": \"0\", \"Seq\": 42, \"In msg nelems\": 1024, "
          "\"dtype\": \"BFloat16\", \"Group size\": 8")
      .kernel("Memcpy HtoD (Pinned -> Device)", 7, 40, 2, 901, "\"bytes\": 4096, \"memory bandwidth (GB/s)\": 2.048")
      .raw("{\"ph\": \"s\", \"id\": 1, \"pid\": 1, \"tid\": 1, \"ts\": 3, \"cat\": \"ac2g\", \"name\": \"ac2g\"}")
      .raw(
          "{\"name\": \"thread_name\", \"ph\": \"M\", \"ts\": 0, \"pid\": 1, \"tid\": 7, \"args\": {\"name\": \"stream "
          "7\"}}")
      .text();
}

TEST(TraceReader, ReadsTimesAsWholeNanosecondsOnTheWallClock) {
  const Result<TraceEvents> events = read_text(usual());
  ASSERT_TRUE(events.ok()) << events.error();
  ASSERT_EQ(events->size(), 5u);
  EXPECT_EQ(events->name_of(2), "gemm");
  EXPECT_EQ(events->start_ns[2], 1767225600000000000 + 20'125);
  EXPECT_EQ(events->duration_ns[2], 5'500);
  EXPECT_EQ(events->counts.events, 7u);
  EXPECT_EQ(events->counts.kept + events->counts.skipped + events->counts.bad, events->counts.events);
}

TEST(TraceReader, KeepsWhatAnalysesNeed) {
  const Result<TraceEvents> events = read_text(usual());
  ASSERT_TRUE(events.ok()) << events.error();
  EXPECT_EQ(events->rank, Rank{3});
  EXPECT_EQ(events->world_size, 8);
  EXPECT_EQ(events->groups.at(0).ranks, (std::vector<Rank>{0_rank, 1_rank, 2_rank}));
  EXPECT_EQ(events->devices.at(0).name, "NVIDIA H200");
  EXPECT_EQ(events->texts[events->op(0)->dims], "[[8, 8]]");
  const KernelDetail* gemm = events->kernel(2);
  ASSERT_NE(gemm, nullptr);
  EXPECT_EQ(gemm->grid[0], 4u);
  EXPECT_EQ(gemm->grid[1], 2u);
  EXPECT_EQ(gemm->registers, 168u);
  EXPECT_NEAR(gemm->occupancy, 0.19, 1e-6);
  EXPECT_EQ(events->correlation[1], events->correlation[2]);
  const CollectiveDetail* collective = events->collective(3);
  ASSERT_NE(collective, nullptr);
  EXPECT_EQ(events->texts[collective->name], "allreduce");
  EXPECT_EQ(collective->seq, 42);
  EXPECT_EQ(collective->elements_in, 1024);
  EXPECT_EQ(events->kernel(4)->bytes, 4096u);
  EXPECT_EQ(events->kind[4], EventKind::kMemcpy);
  EXPECT_EQ(events->tracks[events->track[2]].thread_name, "stream 7");
}

TEST(TraceReader, ReadsTheSameThroughAnyWindowAndThroughGzip) {
  const std::string text = usual();
  const Result<TraceEvents> whole = read_text(text);
  ASSERT_TRUE(whole.ok());
  for (size_t window : {size_t{1}, size_t{300}, size_t{1000}}) {
    ReadOptions options;
    options.window_bytes = window;
    const Result<TraceEvents> events = read_text(text, options);
    ASSERT_TRUE(events.ok()) << window;
    EXPECT_EQ(events->start_ns, whole->start_ns);
    EXPECT_EQ(events->counts.bytes, text.size());
  }
  const std::string packed = gzipped(text.substr(0, 500)) + gzipped(text.substr(500));  // two members are one file
  const Result<TraceEvents> events = read_text(packed);
  ASSERT_TRUE(events.ok()) << events.error();
  EXPECT_EQ(events->start_ns, whole->start_ns);
}

TEST(TraceReader, LosesOneEventToAnUnescapedQuoteAndSaysWhere) {
  const std::string text = TraceText()
                               .event("cpu_op", "before", 1, 1, "")
                               .event("cpu_op", "a \"quoted\" name", 2, 1, "")
                               .event("cpu_op", "after", 3, 1, "\"name\": {\"ph\": \"X\"}")
                               .text();
  const Result<TraceEvents> events = read_text(text);
  ASSERT_TRUE(events.ok()) << events.error();
  EXPECT_EQ(events->counts.kept, 2u);
  EXPECT_EQ(events->counts.bad, 1u);
  EXPECT_FALSE(events->counts.truncated);
  EXPECT_EQ(text.substr(events->counts.first_bad_at, 6), "{\"ph\":");
  EXPECT_EQ(events->name_of(1), "after");
}

TEST(TraceReader, ArrowsAreSkippedWhateverIsInThemAndWhatFollowsIsRead) {
  for (const char* flow : {R"({"ph": "s", "id": 7, "pid": 1, "tid": 2, "ts": 1.5, "cat": "ac2g", "name": "ac2g"})",
                           R"({"ph":"f","id":7,"name":"a } in a name, and more that goes on past one block","bp":"e"})",
                           R"({"ph": "t", "name": "a \" and a } in a name", "id": 7})",
                           R"({"ph": "s", "args": {"a": {"b": [1, "}"]}}, "id": 7})", R"({"ph": "f"})",
                           R"({"id": 7, "name": "where it begins is known late", "ph": "s"})"}) {
    const std::string text = format(
        "{\"traceEvents\": [%s,%s, %s\n,{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": "
        "\"gemm\", \"pid\": 0, \"tid\": 7, \"ts\": 1, \"dur\": 2},%s]}",
        flow, flow, flow, flow);
    for (const size_t window : {256, 1 << 20}) {
      ReadOptions options;
      options.window_bytes = window;
      const Result<TraceEvents> events = read_text(text, options);
      ASSERT_TRUE(events.ok()) << flow << ": " << events.error();
      EXPECT_EQ(events->counts.skipped, 4u) << flow;
      EXPECT_EQ(events->counts.kept, 1u) << flow;
      EXPECT_EQ(events->counts.bad, 0u) << flow << ": " << events->counts.first_bad;
    }
  }
}

TEST(TraceReader, AnArrowWithoutAnEndCostsItselfAlone) {
  const std::string text =
      "{\"traceEvents\": [{\"ph\": \"s\", \"name\": \"no end\n},\n"
      "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"ts\": 1, \"dur\": 2}]}";
  const Result<TraceEvents> events = read_text(text);
  ASSERT_TRUE(events.ok()) << events.error();
  EXPECT_EQ(events->counts.bad, 1u);
  EXPECT_EQ(events->counts.kept, 1u);
}

TEST(TraceReader, GivesWhatCameBeforeAFileBreaksOff) {
  const std::string text = usual();
  const std::string packed = gzipped(text);
  for (size_t cut = 0; cut < text.size(); cut += 7) {
    const Result<TraceEvents> events = read_text(text.substr(0, cut));
    if (!events.ok()) {
      EXPECT_EQ(events.error().find('\n'), std::string::npos);
      continue;
    }
    EXPECT_TRUE(events->counts.truncated);
    EXPECT_LE(events->counts.kept, 5u);
  }
  const Result<TraceEvents> half = read_text(packed.substr(0, packed.size() - 20));
  EXPECT_TRUE(!half.ok() || half->counts.truncated);
}

TEST(TraceReader, GivesWhatCameBeforeDamageInAGzipFile) {
  TraceText trace;
  for (int i = 0; i < 3'000; ++i)
    trace.event("cpu_op", format("op %d", i * 7919 % 1000), i, 1, format("\"Ev Idx\": %d", i));
  const std::string packed = gzipped(trace.text());
  ReadOptions options;
  options.window_bytes = 512;  // so that the window grows and moves between two calls
  for (size_t at = 20; at < packed.size(); at += packed.size() / 40) {
    std::string damaged = packed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const Result<TraceEvents> events = read_text(damaged, options);
    if (!events.ok()) continue;
    EXPECT_TRUE(events->counts.truncated || events->counts.bad > 0 || events->counts.kept == 3'000u) << at;
    EXPECT_LE(events->counts.kept, 3'000u) << at;
  }
}

TEST(TraceReader, RefusesWhatIsNoTraceInOneLine) {
  EXPECT_EQ(read_text("").error(), "is empty");
  EXPECT_EQ(read_text("  \n ").error(), "is empty");
  EXPECT_EQ(read_text("hello").error(), "is not a JSON trace: it begins with neither { nor [");
  EXPECT_EQ(read_text("{\"nodes\": []}").error(), "has no traceEvents: no kernel trace");
  EXPECT_EQ(read_text("{ \"traceEvents\" \"traceEvents\" x [{}]}").error(), "breaks off before its events begin");
  EXPECT_EQ(read_text("{\"a\": 1").error(), "breaks off before its events begin");
}

TEST(TraceReader, KeepsToItsLimitsAndCountsWhatIsOver) {
  const std::string text = usual();
  ReadOptions options;
  options.events_max = 2;
  const Result<TraceEvents> few = read_text(text, options);
  ASSERT_TRUE(few.ok()) << few.error();
  EXPECT_EQ(few->size(), 2u);
  EXPECT_EQ(few->counts.too_many, 3u);
  options = {};
  options.window_bytes = 256;
  options.json_bytes_max = text.size() / 2;
  const Result<TraceEvents> half = read_text(text, options);
  ASSERT_TRUE(half.ok()) << half.error();
  EXPECT_TRUE(half->counts.truncated);
  EXPECT_LT(half->counts.bytes, text.size());
}

TEST(TraceReader, TakesOlderLayoutsAndBareLists) {
  const Result<TraceEvents> events = read_text(
      "[{\"name\":\"volta_sgemm\",\"ph\":\"X\",\"cat\":\"Kernel\",\"ts\":1621401187223005,\"dur\":7,\"pid\":0,\"tid\":"
      "\"stream "
      "7\",\"args\":{\"correlation\":5,\"external id\":9,\"device\":0,\"stream\":7}},"
      "{\"name\":\"cudaLaunchKernel\",\"ph\":\"X\",\"cat\":\"Runtime\",\"ts\":1.62e3,\"dur\":1e0,\"pid\":1,\"tid\":2,"
      "\"args\":{"
      "\"correlation\":\"5\"}}]");
  ASSERT_TRUE(events.ok()) << events.error();
  ASSERT_EQ(events->size(), 2u);
  EXPECT_EQ(events->kind[0], EventKind::kKernel);
  EXPECT_EQ(events->start_ns[0], 1621401187223005000);
  EXPECT_EQ(events->external_id[0], 9u);
  EXPECT_EQ(events->kind[1], EventKind::kRuntime);
  EXPECT_EQ(events->start_ns[1], 1'620'000);
  EXPECT_EQ(events->correlation[1], 5u);
}

TEST(TraceReader, UndoesEscapesInNames) {
  EXPECT_EQ(unescaped("a\\\"b\\\\c\\n\\u00e9\\ud83d\\ude00\\x"), "a\"b\\c\n\xC3\xA9\xF0\x9F\x98\x80x");
  EXPECT_EQ(unescaped("\\ud83d"), "\xEF\xBF\xBD");
  EXPECT_EQ(unescaped("\\u12"), "\\u12");
}

TEST(TraceReader, FindsTheRankInAFilesName) {
  EXPECT_EQ(rank_in_name("/a/rank_x/rank-17.json.gz"), Rank{17});
  EXPECT_EQ(rank_in_name("trace_rank0.pt.trace.json"), Rank{0});
  EXPECT_EQ(rank_in_name("/rank-3/trace.json"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::profile
