#include "query/export/stack_profile.h"

#include <gtest/gtest.h>

#include <set>

#include "base/protobuf_wire.h"

namespace lockstep {
namespace {

SampledRanks two_ranks() {
  SampledRanks ranks;
  RankSamples samples{.time_unix_ns = 5, .duration_ms = 1000, .looks = 100, .hz = 100};
  samples.threads = {{.role = ThreadRole::kMain, .pid = 1, .tid = 1}};
  samples.frames = {{"load;all", "/job/loader.py", 12}, {"main", "/job/train.py", 80}};
  samples.stacks = {{.thread = 0, .frames = {0, 1}, .count = 70}, {.thread = 0, .frames = {1}, .count = 30}};
  ranks[2_rank] = samples;
  samples.stacks = {{.thread = 0, .frames = {1}, .count = 100}};
  ranks[5_rank] = samples;
  return ranks;
}

TEST(StackProfile, CollapsedStacksHaveARankAndAThreadFirst) {
  EXPECT_EQ(collapsed_stacks(two_ranks()),
            "rank 2;main thread;main (train.py:80);load,all (loader.py:12) 70\n"
            "rank 2;main thread;main (train.py:80) 30\n"
            "rank 5;main thread;main (train.py:80) 100\n");
}

TEST(StackProfile, SpeedscopeHasAProfileForEveryRankOverSharedFrames) {
  const std::string json = speedscope_json(two_ranks(), "llama");
  EXPECT_NE(json.find(R"x("frames":[{"name":"load;all (loader.py:12)","file":"/job/loader.py","line":12},)x"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"x("name":"rank 2, main thread","unit":"milliseconds","startValue":0,"endValue":1000,)x"
                      R"x("samples":[[1,0],[1]],"weights":[700,300]})x"),
            std::string::npos)
      << json;
}

TEST(StackProfile, PprofNamesEveryFunctionAndLocationItUses) {
  const std::string bytes = pprof_profile(two_ranks());
  protobuf::WireError error;
  protobuf::WireReader reader(bytes, error);
  size_t samples = 0, strings = 0;
  std::set<uint64_t> used, known;
  while (reader.next()) {
    if (reader.tag() == protobuf::tag_of(2, protobuf::kBytes)) {
      ++samples;
      protobuf::WireReader sample(reader.bytes(), error);
      while (sample.next()) {
        if (sample.tag() != protobuf::tag_of(1, protobuf::kBytes)) {
          sample.skip();
          continue;
        }
        for (char id : sample.bytes()) used.insert(static_cast<uint8_t>(id));  // all below 128
      }
    } else if (reader.tag() == protobuf::tag_of(4, protobuf::kBytes)) {
      protobuf::WireReader location(reader.bytes(), error);
      while (location.next()) {
        if (location.tag() == protobuf::tag_of(1, protobuf::kVarint))
          known.insert(location.varint());
        else
          location.skip();
      }
    } else {
      strings += reader.tag() == protobuf::tag_of(6, protobuf::kBytes);
      reader.skip();
    }
  }
  EXPECT_EQ(error.what, nullptr);
  EXPECT_EQ(samples, 3u);
  EXPECT_EQ(used, known);
  EXPECT_GT(strings, 6u);
}

}  // namespace
}  // namespace lockstep
