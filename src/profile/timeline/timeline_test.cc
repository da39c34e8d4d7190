#include <gtest/gtest.h>

#include <map>
#include <random>

#include "profile/testing/trace_text.h"
#include "profile/timeline/timeline_view.h"
#include "profile/timeline/timeline_writer.h"

namespace lockstep::profile {
namespace {

using testing::analyze_texts;
using testing::TraceText;

// Two ranks, clocks apart by a millisecond: many short kernels, some that overlap, operators within operators, and an
// all-reduce at the end of each of six steps.
std::vector<std::string> two_ranks(int kernels_per_step = 400) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < 2; ++rank) {
    TraceText trace(format("\"distributedInfo\": {\"rank\": %d, \"world_size\": 2},", rank));
    std::mt19937 random(7);
    double at = 1000 + rank * 1000;
    for (int step = 0; step < 6; ++step) {
      const double begin = at;
      for (int i = 0; i < kernels_per_step; ++i) {
        const double length = 0.2 + (random() % 40) * 0.1 + (i % 97 == 0 ? 300 : 0);
        trace.launched(format("kernel_%d", i % 7), 7, at, at + 3, length, "", "aten::mm");
        at += 8 + length;
      }
      trace.launched("Memset (Device)", 7, at, at + 1, 0.5);
      trace.launched("Memcpy DtoD (Device -> Device)", 9, at + 1, at + 2, 2);
      trace.launched("Memcpy DtoD (Device -> Device)", 9, at + 2, at + 3, 2);  // over the one before it
      trace.launched("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, at + 5, at + 10, 50,
                     format("\"Collective name\": \"allreduce\", \"Process Group Name\": \"0\", \"dtype\": "
                            "\"BFloat16\", \"In msg nelems\": 64, \"Out msg nelems\": 64, \"Seq\": %d",
                            step));
      at += 70;
      trace.event("user_annotation", "Optimizer.step#SGD.step", begin - 2, at - begin, "");
    }
    texts.push_back(trace.text());
  }
  return texts;
}

std::string kept(const ProfileAnalysis& analysis, const TimelineOptions& options = {}) {
  std::string bytes;
  const Result<TimelineCounts> counts = write_timeline(analysis, options, [&bytes](std::string_view piece) {
    bytes += piece;
    return Result<void>();
  });
  EXPECT_TRUE(counts.ok()) << counts.error();
  EXPECT_EQ(counts->bytes, bytes.size());
  return bytes;
}

Result<TimelineView> view(const std::string& bytes, const TimelineQuestion& question = {}) {
  return view_timeline(
      bytes.size(), [&bytes](uint64_t from, size_t count) { return Result<std::string>(bytes.substr(from, count)); },
      question);
}

struct Sums {
  uint64_t count = 0;
  int64_t duration_ns = 0;
  bool operator==(const Sums&) const = default;
};
std::map<std::pair<Rank, std::string>, Sums> sums(const TimelineView& view) {
  std::map<std::pair<Rank, std::string>, Sums> all;
  for (const TimelineViewLane& lane : view.lanes) {
    Sums& sum = all[{lane.rank, lane.name}];
    for (const TimelineSlice& slice : lane.slices) {
      sum.count += slice.count;
      sum.duration_ns += slice.duration_ns;
    }
  }
  return all;
}

class TimelineTest : public ::testing::Test {
 protected:
  const std::vector<std::string> texts_ = two_ranks();
  const Result<ProfileAnalysis> analysis_ = analyze_texts(texts_);
};

TEST_F(TimelineTest, HasEveryKernelAndOperatorInExactlyOneLaneAtEveryZoom) {
  const std::string bytes = kept(*analysis_);
  const Result<TimelineView> fine = view(bytes, {.width = 1'000'000'000});
  ASSERT_TRUE(fine.ok()) << fine.error();
  uint64_t gpu = 0, host = 0;
  for (const TimelineViewLane& lane : fine->lanes) {
    int64_t before_ns = 0;
    for (const TimelineSlice& slice : lane.slices) {
      EXPECT_EQ(slice.count, 1u);
      EXPECT_GE(slice.start_ns, before_ns) << lane.name;
      before_ns = slice.end_ns();
    }
    if (lane.name != "steps") (lane.is_gpu ? gpu : host) += lane.slices.size();
  }
  uint64_t gpu_in_trace = 0, host_in_trace = 0;
  for (const RankProfile& rank : analysis_->ranks) {
    for (size_t i = 0; i < rank.events->size(); ++i) ++(rank.events->on_gpu(i) ? gpu_in_trace : host_in_trace);
  }
  EXPECT_EQ(gpu, gpu_in_trace);
  EXPECT_EQ(host, host_in_trace);
  const auto all = sums(*fine);
  for (const int64_t width : {16, 100, 1'200, 8'000}) {
    const Result<TimelineView> coarse = view(bytes, {.width = width});
    ASSERT_TRUE(coarse.ok()) << coarse.error();
    EXPECT_EQ(sums(*coarse), all) << width;
    for (const TimelineViewLane& lane : coarse->lanes)
      EXPECT_LE(lane.slices.size(), 2u * static_cast<size_t>(width) + 4) << lane.name;
    EXPECT_FALSE(coarse->truncated);
  }
}

TEST_F(TimelineTest, NamesLanesAndClassesAndPutsRanksOnOneAxis) {
  TimelineOptions options;
  options.first_steps = {{Rank{0}, 1241}, {Rank{1}, 1241}};
  const Result<TimelineView> all = view(kept(*analysis_, options), {.width = 1'000'000'000});
  ASSERT_TRUE(all.ok()) << all.error();
  ASSERT_EQ(all->steps.size(), 6u);
  EXPECT_EQ(all->steps[0].number, 1241);
  std::map<std::string, std::vector<int64_t>> ends;  // of the all-reduces
  std::map<std::string, const TimelineViewLane*> first;
  for (const TimelineViewLane& lane : all->lanes) {
    if (lane.rank == Rank{0}) first[lane.name] = &lane;
    if (lane.name == "stream 20") {
      for (const TimelineSlice& slice : lane.slices) ends[format("%d", lane.rank.value())].push_back(slice.end_ns());
    }
  }
  ASSERT_TRUE(first.contains("steps") && first.contains("stream 7") && first.contains("stream 9 (2)") &&
              first.contains("thread 1") && first.contains("thread 1 (2)"));
  EXPECT_EQ(first["stream 20"]->slices[0].slice_class, SliceClass::kCommunication);
  EXPECT_EQ(first["stream 9"]->slices[0].slice_class, SliceClass::kCopy);
  EXPECT_EQ(first["stream 7"]->slices.back().slice_class, SliceClass::kMemory);
  EXPECT_EQ(first["thread 1"]->slices[0].slice_class, SliceClass::kAnnotation);
  EXPECT_EQ(first["thread 1 (3)"]->slices[0].slice_class, SliceClass::kRuntime);
  EXPECT_EQ(all->names[first["steps"]->slices[1].name], "step 1242");
  ASSERT_EQ(ends["0"].size(), 6u);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(static_cast<double>(ends["0"][i]), static_cast<double>(ends["1"][i]), 1'000) << "a millisecond apart";
}

TEST_F(TimelineTest, ReadsOnlyThePartThatIsAskedFor) {
  const std::vector<std::string> texts = two_ranks(3'000);
  const Result<ProfileAnalysis> analysis = analyze_texts(texts);
  const std::string bytes = kept(*analysis);
  const Result<TimelineView> whole = view(bytes);
  const int64_t middle = whole->whole_ns * 5 / 12;  // within the third step
  const Result<TimelineView> part = view(bytes, {.from_ns = middle, .to_ns = middle + 1'000'000, .ranks = {Rank{1}}});
  ASSERT_TRUE(part.ok()) << part.error();
  EXPECT_LT(part->bytes_read, bytes.size() / 3);
  size_t slices = 0;
  for (const TimelineViewLane& lane : part->lanes) {
    EXPECT_EQ(lane.rank, Rank{1});
    slices += lane.slices.size();
    for (const TimelineSlice& slice : lane.slices) {
      EXPECT_LT(slice.start_ns, part->to_ns);
      EXPECT_GE(slice.end_ns(), part->from_ns);
    }
  }
  EXPECT_GT(slices, 10u);
  EXPECT_EQ(part->steps.size(), 1u);
  EXPECT_TRUE(view(bytes, {.from_ns = -5, .to_ns = INT64_MAX})->lanes.size() == whole->lanes.size());
  EXPECT_EQ(view(bytes, {.from_ns = INT64_MAX, .to_ns = 3})->from_ns, whole->whole_ns);
}

TEST_F(TimelineTest, RefusesADamagedFileWithOneLine) {
  const std::string good = kept(*analysis_);
  for (const size_t length : {size_t{0}, size_t{7}, size_t{31}, size_t{40}, good.size() - 1}) {
    const Result<TimelineView> cut = view(good.substr(0, length));
    ASSERT_FALSE(cut.ok()) << length;
    EXPECT_NE(cut.error().find("timeline"), std::string::npos);
  }
  std::string newer = good;
  newer[7] = '9';
  EXPECT_NE(view(newer).error().find("another version"), std::string::npos);
  std::mt19937 random(3);
  size_t refused = 0;
  for (int i = 0; i < 800; ++i) {
    std::string bad = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips)
      bad[random() % std::min<size_t>(bad.size(), 4'000)] = static_cast<char>(random());
    const Result<TimelineView> read = view(bad);
    if (read.ok()) continue;
    ++refused;
    EXPECT_EQ(read.error().find('\n'), std::string::npos);
  }
  EXPECT_GT(refused, 200u);
}

TEST(Timeline, MergesWhatIsShorterThanAColumnAndKeepsTheRest) {
  std::vector<TimelineSlice> slices = {{0, 10, 1, SliceClass::kCompute, 1},   {20, 30, 2, SliceClass::kCopy, 1},
                                       {60, 5, 3, SliceClass::kCompute, 2},   {99, 150, 4, SliceClass::kStep, 1},
                                       {250, 10, 5, SliceClass::kCompute, 1}, {310, 1, 6, SliceClass::kCompute, 1}};
  merge_columns(slices, 100);
  const std::vector<TimelineSlice> wanted = {{0, 45, 2, SliceClass::kCopy, 4},
                                             {99, 150, 4, SliceClass::kStep, 1},
                                             {250, 10, 5, SliceClass::kCompute, 1},
                                             {310, 1, 6, SliceClass::kCompute, 1}};
  EXPECT_EQ(slices, wanted);
}

TEST(Timeline, OfManyLanesAndSlicesShowsTheOutermostAndSaysSo) {
  TimelineDirectory directory;
  directory.whole_ns = 1'000'000'000;
  TimelineHead head;
  std::string data;
  std::vector<TimelineSlice> slices;
  for (int64_t i = 0; i < kChunkSlices; ++i) slices.push_back({i * 1'000'000, 900'000, 0, SliceClass::kCpuOp, 1});
  for (int32_t i = 0; i < 3'000; ++i) {
    TimelineLane& lane = directory.lanes.emplace_back();
    lane.rank = Rank{i / 30};
    lane.depth = static_cast<uint32_t>(i % 30);
    lane.name = "thread";
    const uint64_t offset = data.size();
    encode_slices(slices.data(), slices.size(), data);
    lane.levels.push_back(
        {0, {{0, slices.back().end_ns(), kChunkSlices, static_cast<uint32_t>(data.size() - offset), offset}}});
  }
  const std::string encoded = encode_directory(directory), names = encode_names({"op"});
  head = {encoded.size(), names.size(), data.size()};
  const Result<TimelineView> seen = view(encode_head(head) + encoded + names + data, {.width = 8'000});
  ASSERT_TRUE(seen.ok()) << seen.error();
  EXPECT_TRUE(seen->truncated);
  ASSERT_EQ(seen->lanes.size(), kViewLanesMax);
  EXPECT_EQ(seen->lanes.back().rank, Rank{99});
  size_t shown = 0;
  uint64_t counted = 0;
  for (const TimelineViewLane& lane : seen->lanes) {
    shown += lane.slices.size();
    for (const TimelineSlice& slice : lane.slices) counted += slice.count;
  }
  EXPECT_LE(shown, kViewSlicesMax);
  EXPECT_EQ(counted, kViewLanesMax * kChunkSlices);
}

}  // namespace
}  // namespace lockstep::profile
