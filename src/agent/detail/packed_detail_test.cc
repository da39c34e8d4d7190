#include "agent/detail/packed_detail.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

constexpr int64_t kStart = 1'763'000'000'000'000'000;

// A step like that of a data-parallel job: gradients in buckets, a send now and then.
StepDetail step_of(int64_t ops) {
  StepDetail detail{.step = 118_step, .start_unix_ns = kStart, .duration_ns = 412'345'678};
  detail.phases = {{Phase::kInput, "", kStart, 2'000'111}, {Phase::kOther, "my phase", kStart + 5'000'000, 77}};
  detail.notes = {{kStart + 99, "switched to the second data set"}};
  for (int64_t i = 0; i < ops; ++i) {
    OpSpan op{.comm_id = CommId{0xfeedfacecafebeef},
              .comm_size = 8,
              .rank_in_comm = 3,
              .p2p = i % 7 == 6,
              .function = i % 7 == 6 ? "Send" : "AllReduce",
              .datatype = "bfloat16",
              .seq = static_cast<uint64_t>(90'000 + i),
              .ordinal = static_cast<uint64_t>(90'001 + i),
              .peer = i % 7 == 6 ? 2 : -1,
              .bytes = 25 << 20,
              .enqueued_unix_ns = kStart + i * 1'234'567,
              .start_unix_ns = kStart + i * 1'234'567 + 45'678,
              .duration_ns = 800'123 + i * 17,
              .timed = i % 11 != 10};
    detail.ops.push_back(op);
  }
  return detail;
}

TEST(PackedDetail, ComesOutAsItWentIn) {
  for (int64_t ops : {0, 1, 200}) {
    const StepDetail detail = step_of(ops);
    Result<StepDetail> back = unpack(pack(detail));
    ASSERT_TRUE(back.ok()) << back.error();
    EXPECT_EQ(*back, detail);
  }
}

TEST(PackedDetail, KeepsNumbersThatAreOddToo) {
  StepDetail detail{
      .step = kNoStep, .start_unix_ns = std::numeric_limits<int64_t>::min(), .inferred = true, .left_out = 7};
  detail.ops.push_back({.comm_id = CommId{~0ull},
                        .comm_size = -5,
                        .function = std::string(3, '\0'),
                        .seq = ~0ull,
                        .ordinal = 1,
                        .peer = std::numeric_limits<int32_t>::min(),
                        .bytes = -1,
                        .enqueued_unix_ns = std::numeric_limits<int64_t>::max(),
                        .start_unix_ns = std::numeric_limits<int64_t>::min(),
                        .duration_ns = -3});
  Result<StepDetail> back = unpack(pack(detail));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, detail);
}

TEST(PackedDetail, TakesAtMostFourteenBytesForAnOperation) {
  EXPECT_LE(static_cast<double>(pack(step_of(1000)).size()) / 1000, 14);
}

TEST(PackedDetail, RefusesWhatItDidNotWrite) {
  const std::string whole = pack(step_of(20));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(unpack(std::string_view(whole).substr(0, length)).ok()) << length;
  EXPECT_FALSE(unpack(whole + "x").ok());
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string other = whole;
    other[at] = static_cast<char>(other[at] ^ 0xff);
    (void)unpack(other).ok();  // another step or an error, and no more than that
  }
}

}  // namespace
}  // namespace lockstep
