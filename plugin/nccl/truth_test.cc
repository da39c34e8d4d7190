// What the plugin says of operations, whatever the version of NCCL's interface: groups, peers, graphs, copy engines,
// symmetric kernels, old interfaces; and how much it asks NCCL for.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstdarg>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "plugin/nccl/policy.h"
#include "plugin/nccl/test_clock.h"
#include "plugin/nccl/test_host.h"
#include "recorder/control.h"
#include "recorder/reader.h"
#include "recorder/test_process.h"
#include "recorder/writer.h"

namespace lockstep::nccl {
namespace {

using testing::drain_all;
using testing::in_child;
using testing::RecorderFolder;

std::vector<OpRecord> operations(RecorderReader& reader) {
  std::vector<OpRecord> found;
  for (const Record& record : drain_all(reader)) {
    if (record.head.type == RecordType::kColl || record.head.type == RecordType::kP2p) found.push_back(record.op);
  }
  return found;
}

uint64_t refused(const RecorderReader& reader, Refused reason) {
  return reader.header().refused.at(static_cast<size_t>(reason));
}

template <typename Version>
class OldInterface : public ::testing::Test {};
using OldVersions = ::testing::Types<V1, V2, V3>;
TYPED_TEST_SUITE(OldInterface, OldVersions);

TYPED_TEST(OldInterface, TheCommunicatorIsKnownFromItsFirstOperation) {
  RecorderFolder folder;
  in_child([] {
    TestHost<TypeParam> host;
    void* context = host.init(0xABCD, 16, 3, "dp");
    CHILD_CHECK(context != nullptr);
    host.play_collective(context, 7, 2, 2, 1'000'000);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  const auto comms = reader->in_flight();
  ASSERT_EQ(comms.size(), 1u);
  EXPECT_EQ(comms[0].comm_id, 0xABCDu);
  EXPECT_EQ(comms[0].rank_in_comm, 3);
  EXPECT_EQ(comms[0].name, "dp");
  EXPECT_EQ(comms[0].collectives_completed, 1u);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0].function, Function::kAllReduce);
  EXPECT_EQ(ops[0].datatype, Datatype::kFloat32);
  EXPECT_EQ(ops[0].bytes, 4u << 24);
  EXPECT_EQ(ops[0].algorithm, 2);
  EXPECT_EQ(ops[0].protocol, 3);
  EXPECT_EQ(ops[0].channels, 0) << "what these versions tell is the most it might use";
}

TEST(OldInterface, KernelsWithoutGpuTimesStillComplete) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V3> host;
    void* context = host.init(1, 8, 0);
    for (uint64_t i = 0; i < 3; ++i) host.play_collective(context, i, 4, 0, 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 3u);
  int kernels = 0;
  for (const Record& record : drain_all(*reader)) {
    if (record.head.type != RecordType::kKernelCh) continue;
    ++kernels;
    EXPECT_EQ(record.kernel.gpu_start_ns, 0u);
    EXPECT_NE(record.kernel.host_start_ns, 0u);
  }
  EXPECT_EQ(kernels, 12);
}

TEST(Truth, OperationsOfOneGroupCarryOneNumberAndThoseOfTheNextAnother) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* first = host.init(1);
    void* second = host.init(2);
    for (int round = 0; round < 2; ++round) {
      void* group = host.start(first, host.group_api(2));
      for (void* context : {first, second}) {  // a group may span communicators; its parent belongs to the first
        void* call = host.start(context, host.coll_api(group, "AllReduce", 1, "ncclFloat32"));
        CHILD_CHECK(call != nullptr);
        host.stop(call);
        auto coll = host.all_reduce(0, 1, 1);
        coll.parentObj = call;
        host.stop(host.start(context, coll));
        host.stop(call);  // NCCL 2.28 stops the last call again and again
      }
      host.stop(group);
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), 4u);
  EXPECT_NE(ops[0].group, 0u);
  EXPECT_EQ(ops[0].group, ops[1].group);
  EXPECT_EQ(ops[2].group, ops[3].group);
  EXPECT_NE(ops[0].group, ops[2].group);
  for (const auto& comm : reader->in_flight()) EXPECT_EQ(comm.collective_calls, 2u);
  EXPECT_EQ(reader->header().refused_total(), 0u);
}

TEST(Truth, BothEndsOfAPointToPointOperationCanBePairedByPeerDirectionAndNumber) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1, 4, 1);
    for (int peer : {0, 2, 0, 3, 0}) {
      host.stop(host.start(context, host.p2p("Send", peer, 8, 1)));
      host.stop(host.start(context, host.p2p("Recv", peer, 8, 1)));
    }
    host.stop(host.start(context, host.p2p("Send", 99, 8, 1)));  // no such peer: recorded, not counted
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  std::vector<uint64_t> to_zero;
  std::vector<uint64_t> from_zero;
  for (const OpRecord& op : operations(*reader)) {
    if (op.peer == 0) (op.function == Function::kSend ? to_zero : from_zero).push_back(op.seq);
  }
  EXPECT_EQ(to_zero, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(from_zero, (std::vector<uint64_t>{0, 1, 2}));
}

TEST(Truth, AGraphsReplaysAreOperationsOfTheirOwnInGroupsOfTheirOwn) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    void* group = host.start(context, host.group_api(1, true));
    void* call = host.start(context, host.coll_api(group, "AllReduce", 1, "ncclFloat32", true));
    host.stop(call);
    host.stop(group);
    for (int replay = 0; replay < 3; ++replay) {  // on a CUDA callback thread, with the handles of the capture
      std::thread([&] {
        void* launch = host.start(context, TestHost<V5>::of(kEventGroup));
        auto coll = host.all_reduce(0, 1, 1);
        coll.parentObj = call;
        coll.coll.parentGroup = launch;
        void* op = host.start(context, coll);
        host.stop(op);
        host.stop(launch);
        void* kernel = host.start(context, host.kernel(op, 0, 10));
        host.state(kernel, kStateKernelChStop, 20);
        host.stop(kernel);
      }).join();
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), 3u);
  for (const OpRecord& op : ops) EXPECT_EQ(op.head.flags & kFlagGraph, kFlagGraph);
  EXPECT_NE(ops[0].op_id, ops[1].op_id);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 3u);
  EXPECT_EQ(reader->header().refused_total(), 0u);
}

TEST(Truth, WorkOfTheCopyEngineIsShownAndItsEndIsNot) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V6> host;
    void* context = host.init(1);
    host.play_copy_engine(context, 5, 16);
    host.play_collective(context, 0, 2, 0, 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].function, Function::kAllGather);
  EXPECT_EQ(ops[0].head.flags, kFlagCopyEngine | kFlagUnseen);
  EXPECT_EQ(ops[0].bytes, 1u << 20);
  const auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.collectives_completed, 2u) << "what ran before something complete is complete";
  EXPECT_FALSE(comm.recent.at(0).end_is_seen);
  EXPECT_TRUE(comm.recent.at(1).end_is_seen);
}

TEST(Truth, ASymmetricKernelIsMarkedWhereTheInterfaceShowsItAndOneThatIsNotShownIsACallTooMany) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V7> host;
    void* context = host.init(1);
    auto coll = host.all_reduce(0, 1, 1);
    coll.coll.isSymColl = true;
    host.stop(host.start(context, coll));
    void* group = host.start(context, host.group_api());
    host.stop(host.start(context, host.coll_api(group, "AllReduce", 1, "ncclFloat32")));  // nothing comes of it
    host.stop(group);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0].head.flags, kFlagSymmetric);
  const auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.collectives_enqueued, 1u);
  EXPECT_EQ(comm.collective_calls, 1u);
}

TEST(Truth, EveryTypeHasItsSize) {
  RecorderFolder folder;
  constexpr std::pair<const char*, uint64_t> kTypes[] = {
      {"ncclInt8", 1},       {"Unknown", 1},        {"ncclInt32", 4},   {"ncclUint32", 4},  {"ncclInt64", 8},
      {"ncclUint64", 8},     {"ncclFloat16", 2},    {"ncclFloat32", 4}, {"ncclFloat64", 8}, {"ncclBfloat16", 2},
      {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1}, {"ncclFloat4", 0}};
  in_child([&] {
    TestHost<V5> host;
    void* context = host.init(1);
    for (const auto& [name, bytes] : kTypes) host.stop(host.start(context, host.coll("AllReduce", 0, 1000, name, 1)));
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), std::size(kTypes));
  for (size_t i = 0; i < ops.size(); ++i) EXPECT_EQ(ops[i].bytes, 1000 * kTypes[i].second) << kTypes[i].first;
}

TEST(Truth, OneRankAndIntraNodeCommunicatorsAreFollowedWithoutAnyNetwork) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* alone = host.init(1, 1, 0);  // NCCL copies and tells nothing
    void* inside = host.init(2, 8, 0);
    for (uint64_t i = 0; i < 5; ++i) host.play_collective(inside, i, 16, 0, 1000 * i);
    host.finalize(alone);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto comms = reader->in_flight();
  ASSERT_EQ(comms.size(), 2u);
  EXPECT_EQ(comms[0].collectives_enqueued, 0u);
  EXPECT_EQ(comms[1].collectives_completed, 5u);
}

TEST(Truth, KernelsOnAnyChannelsCompleteTheirOperation) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    void* op = host.start(context, host.all_reduce(0, 1, 4));
    std::vector<void*> kernels;
    for (uint8_t channel : {uint8_t{8}, uint8_t{9}, uint8_t{200}, uint8_t{255}})
      kernels.push_back(host.start(context, host.kernel(op, channel, 100)));
    host.stop(op);
    for (void* kernel : kernels) host.stop(kernel);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 1u);
}

TEST(Truth, StepsThatComeFasterThanTheRingIsReadShareRecordsAndLoseNothing) {
  RecorderFolder folder;  // 1,024 records a lane
  constexpr uint64_t kSteps = 8000;
  in_child([] {
    TestHost<V5> host;
    use_test_clock(host);
    void* context = host.init(1);
    void* op = host.start(context, host.all_reduce(0, 1, 1));
    void* send = host.start(context, host.proxy_op(op, 0, 4, true, kSteps));
    void* receive = host.start(context, host.proxy_op(op, 0, 2, false, kSteps));
    for (uint64_t i = 0; i < kSteps; ++i) {
      void* out = host.start(context, host.proxy_step(send, static_cast<int>(i)));
      host.state(out, kStateStepSendGpuWait);
      test_now += 3000;
      host.state(out, kStateStepSendWait, 100);
      void* in = host.start(context, host.proxy_step(receive, static_cast<int>(i)));
      host.state(in, kStateStepRecvWait);
      test_now += i == 7000 ? 90'000 : 5000;
      host.state(in, kStateStepRecvFlushWait, 10);
      host.stop(in);
      host.stop(out);
    }
    host.stop(send);
    host.stop(receive);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  RecorderReader::Drained drained;
  uint64_t steps = 0;
  uint64_t bytes = 0;
  uint64_t gpu_ns = 0;
  uint64_t wire_ns = 0;
  uint16_t longest_us = 0;
  uint64_t last_stop = 0;
  for (const Record& record : drain_all(*reader, &drained)) {
    if (record.head.type != RecordType::kProxyStep || (record.head.flags & kFlagSend) == 0) continue;
    const ProxyStepRecord& step = record.proxy_step;
    steps += step.merged + 1u;
    bytes += step.bytes;
    gpu_ns += step.wait_gpu_ns;
    wire_ns += step.wire_ns;
    longest_us = std::max(longest_us, step.wire_longest_us);
    EXPECT_GE(step.head.time_ns, last_stop);
    last_stop = step.head.time_ns;
  }
  // The first ring was full before there was a reason to merge; of the rest nothing is missing.
  EXPECT_LE(drained.overwritten, 1100u);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  EXPECT_GE(steps, kSteps - 600);
  EXPECT_EQ(bytes, steps * 100);
  EXPECT_EQ(gpu_ns, steps * 3000);
  EXPECT_EQ(wire_ns, steps * 5000 + 85'000);
  EXPECT_EQ(longest_us, 90);
}

// --- how much is asked for ---

TEST(Detail, TheControlWordChangesWhatARunningProcessAsksForAndRunsOut) {
  RecorderFolder folder;
  in_child([&] {
    TestHost<V5> host;
    use_test_clock(host);
    void* context = host.init(1);
    const auto path = folder.files().at(0);
    CHILD_CHECK(host.mask() == 0x5E);
    CHILD_CHECK(ask_detail(path, DetailRequest{.mask = 0x06, .until_s = 100}).ok());
    test_now = 2'000'000'000;
    host.play_collective(context, 0, 1, 0, 1);
    CHILD_CHECK(host.mask() == 0x06);
    host.play_collective(context, 1, 1, 0, 1);  // without kernel events: its end is not seen
    test_now = 100'000'000'000;                 // whoever asked for it may have died
    host.play_collective(context, 2, 1, 0, 1);
    CHILD_CHECK(host.mask() == 0x5E);
    CHILD_CHECK(ask_detail(path, DetailRequest{.mask = 0, .until_s = 200}).ok());
    test_now = 101'000'000'000;
    host.play_collective(context, 3, 1, 0, 1);
    CHILD_CHECK(host.mask() == 0x06);  // never less: nobody would look at the word again
    CHILD_CHECK(ask_detail(path, std::nullopt).ok());
    test_now = 102'000'000'000;
    host.play_collective(context, 4, 1, 0, 1);
    CHILD_CHECK(host.mask() == 0x5E);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), 5u);
  EXPECT_EQ(ops[0].head.flags & kFlagUnseen, 0);
  EXPECT_EQ(ops[1].head.flags & kFlagUnseen, kFlagUnseen);
  EXPECT_EQ(reader->header().mask, 0x5Eu);
}

TEST(Detail, AWordThatIsHalfWrittenIsNotObeyed) {
  const DetailRequest request{.mask = 0x5E, .until_s = 0x12345678};
  EXPECT_TRUE(DetailRequest::from(request.word(), 0));
  for (int bit = 0; bit < 64; ++bit) EXPECT_FALSE(DetailRequest::from(request.word() ^ 1ULL << bit, 0)) << bit;
  EXPECT_FALSE(DetailRequest::from(request.word(), 0x12345678ULL * 1'000'000'000));
}

TEST(Detail, SmallOperationsThatComeFastAreSeenInAnEighthOfTheStepsAndThenWhole) {
  RecorderFolder folder;
  ::setenv("LOCKSTEP_RECORDER_LANE_RECORDS", "65536", 1);
  in_child([] {
    TestHost<V5> host;
    use_test_clock(host);
    void* capi = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so", RTLD_NOW);
    CHILD_CHECK(capi != nullptr);
    auto step_begin = reinterpret_cast<void (*)(int64_t)>(::dlsym(capi, "lockstep_step_begin"));
    void* context = host.init(1);
    for (int64_t step = 0; step < 160; ++step) {
      step_begin(step);
      for (uint64_t i = 0; i < 50; ++i) {  // 5,000 a second of 4 kB
        test_now += 200'000;
        void* op = host.start(context, host.coll("AllReduce", i, 1000, "ncclFloat32", 1));
        if ((host.mask() & static_cast<int>(kEventKernelCh)) != 0)
          host.stop(host.start(context, host.kernel(op, 0, 1)));
        host.stop(op);
      }
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), 8000u);
  int whole_steps = 0;
  int seen = 0;
  for (size_t step = 80; step < 160; ++step) {  // after it has noticed
    int in_step = 0;
    for (size_t i = 0; i < 50; ++i) in_step += (ops[step * 50 + i].head.flags & kFlagUnseen) == 0 ? 1 : 0;
    seen += in_step;
    whole_steps += in_step == 50 ? 1 : 0;
  }
  EXPECT_NEAR(seen, 80 * 50 / 8, 101) << "a stretch more or less";
  EXPECT_GE(whole_steps, 6) << "a step with one operation unseen tells nothing";
  ::unsetenv("LOCKSTEP_RECORDER_LANE_RECORDS");
}

TEST(Detail, LargeOrRareOperationsAreAllSeen) {
  for (const auto& [count, gap_ns] : {std::pair<size_t, uint64_t>{1 << 24, 200'000}, {1000, 2'000'000}}) {
    RecorderFolder folder;
    in_child([&, count = count, gap_ns = gap_ns] {
      TestHost<V5> host;
      use_test_clock(host);
      void* context = host.init(1);
      for (uint64_t i = 0; i < 3000; ++i) {
        test_now += gap_ns;
        host.stop(host.start(context, host.coll("AllReduce", i, count, "ncclFloat32", 1)));
        CHILD_CHECK(host.mask() == 0x5E);
      }
    });
  }
}

// What of 160 steps of 50 small operations each, 20 a second, is seen; 0 or 50 of each step.
template <typename Version>
std::vector<int> seen_of_rare_small_operations(const std::function<void()>& prepare) {
  RecorderFolder folder;
  ::setenv("LOCKSTEP_RECORDER_LANE_RECORDS", "65536", 1);
  in_child([&] {
    prepare();
    TestHost<Version> host;
    use_test_clock(host);
    void* capi = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so", RTLD_NOW);
    CHILD_CHECK(capi != nullptr);
    auto step_begin = reinterpret_cast<void (*)(int64_t)>(::dlsym(capi, "lockstep_step_begin"));
    void* context = host.init(1);
    for (int64_t step = 0; step < 160; ++step) {
      step_begin(step);
      for (uint64_t i = 0; i < 50; ++i) {
        test_now += 50'000'000;
        host.stop(host.start(context, host.coll("AllReduce", i, 1000, "ncclFloat32", 1)));
      }
    }
  });
  auto reader = folder.reader();
  const auto ops = reader ? operations(*reader) : std::vector<OpRecord>();
  std::vector<int> seen(160);
  for (size_t i = 0; i < ops.size(); ++i) seen.at(i / 50) += (ops[i].head.flags & kFlagUnseen) == 0 ? 1 : 0;
  return seen;
}

TEST(Detail, WhereEveryKernelEventIsDearSmallOperationsAreSampledHoweverRare) {
  const auto as_2_31 = [] { ::setenv("LOCKSTEP_NCCL_VERSION", "23102", 1); };
  for (const auto& seen : {seen_of_rare_small_operations<V7>([] {}), seen_of_rare_small_operations<V5>(as_2_31)}) {
    for (size_t step = 0; step < 64; ++step) EXPECT_EQ(seen[step], 50) << "the first steps are seen, step " << step;
    int whole = 0;
    for (size_t step = 64; step < 160; ++step) {
      whole += seen[step] == 50 ? 1 : 0;
      // The first operation of a step comes under the mask of the step before.
      EXPECT_TRUE(seen[step] <= 1 || seen[step] >= 49) << "step " << step << ": " << seen[step];
    }
    EXPECT_EQ(whole, 9);
  }
}

TEST(Detail, ElsewhereAndWhereAPersonAskedForThemRareOperationsAreAllSeen) {
  const auto asked = [] { ::setenv("LOCKSTEP_NCCL_MASK", "0x5e", 1); };
  for (const auto& seen : {seen_of_rare_small_operations<V6>([] {}), seen_of_rare_small_operations<V7>(asked)}) {
    for (size_t step = 0; step < 160; ++step) EXPECT_EQ(seen[step], 50);
  }
}

TEST(Detail, OnRequestTransfersAloneAreSampledByTheStep) {
  RecorderFolder folder;
  in_child([&] {
    TestHost<V5> host;
    use_test_clock(host);
    void* capi = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so", RTLD_NOW);
    CHILD_CHECK(capi != nullptr);
    auto step_begin = reinterpret_cast<void (*)(int64_t)>(::dlsym(capi, "lockstep_step_begin"));
    void* context = host.init(1);
    const std::string path = folder.files().at(0);
    CHILD_CHECK(ask_detail(path, DetailRequest{.mask = kDetailSampled, .until_s = 100'000}).ok());
    int with_transfers = 0;
    for (int64_t step = 0; step < 160; ++step) {
      step_begin(step);
      for (uint64_t i = 0; i < 5; ++i) {
        test_now += 50'000'000;
        host.stop(host.start(context, host.coll("AllReduce", i, 8 << 20, "ncclFloat32", 1)));
      }
      CHILD_CHECK((host.mask() & static_cast<int>(kEventKernelCh)) != 0);
      with_transfers += step >= 32 && (host.mask() & static_cast<int>(kEventProxyStep)) != 0 ? 1 : 0;
    }
    CHILD_CHECK(with_transfers == 16);
    CHILD_CHECK(ask_detail(path, std::nullopt).ok());
    test_now += 1'000'000'000;
    host.stop(host.start(context, host.coll("AllReduce", 9, 8 << 20, "ncclFloat32", 1)));
    CHILD_CHECK((host.mask() & static_cast<int>(kEventProxyStep)) != 0);
  });
}

TEST(Detail, WithoutStepsAnEighthOfTheTimeIsSeenAndTheSameOneOnEveryRank) {
  std::vector<std::vector<uint64_t>> seen_by_rank;
  for (const uint64_t begun_ns : {1'000'000'000ULL, 1'777'000'000ULL}) {
    RecorderFolder folder;
    ::setenv("LOCKSTEP_RECORDER_LANE_RECORDS", "65536", 1);
    in_child([&] {
      TestHost<V7> host;
      use_test_clock(host);
      test_now = begun_ns;
      void* context = host.init(1);
      for (; test_now < 200'000'000'000; test_now += 50'000'000) {
        host.stop(host.start(context, host.coll("AllReduce", 0, 1000, "ncclFloat32", 1)));
      }
    });
    auto reader = folder.reader();
    ASSERT_TRUE(reader);
    seen_by_rank.emplace_back();
    for (const OpRecord& op : operations(*reader)) {
      if ((op.head.flags & kFlagUnseen) == 0 && op.head.time_ns > 20'000'000'000)
        seen_by_rank.back().push_back(op.head.time_ns / 1'000'000'000);
    }
    EXPECT_NEAR(static_cast<double>(seen_by_rank.back().size()), 180 * 20 / 8.0, 45);
  }
  std::set<uint64_t> seconds[2];
  for (size_t rank = 0; rank < 2; ++rank) seconds[rank] = {seen_by_rank[rank].begin(), seen_by_rank[rank].end()};
  size_t common = 0;
  for (const uint64_t second : seconds[0]) common += seconds[1].count(second);
  EXPECT_GE(common + 2, seconds[0].size()) << "a boundary may fall on either side of an operation";
}

TEST(Detail, OfACaptureOnlyTheFirstCallHasKernelEvents) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    const auto call = [&](bool captured) {
      const bool latched = (host.mask() & static_cast<int>(kEventKernelCh)) != 0;  // NCCL reads it before it calls
      void* group = host.start(context, host.group_api(1, captured));
      void* api = host.start(context, host.coll_api(group, "AllReduce", 1, "ncclFloat32", captured));
      host.stop(api);
      host.stop(group);
      return std::pair(api, latched);
    };
    const auto run = [&](void* api, bool latched) {
      void* launch = host.start(context, TestHost<V5>::of(kEventGroup));
      auto coll = host.all_reduce(0, 1, 1);
      coll.parentObj = api;
      coll.coll.parentGroup = launch;
      void* op = host.start(context, coll);
      if (op != nullptr) host.stop(op);
      host.stop(launch);
      if (latched) {
        void* kernel = host.start(context, host.kernel(op, 0, 10));
        host.state(kernel, kStateKernelChStop, 20);
        host.stop(kernel);
      }
      return op != nullptr;
    };
    CHILD_CHECK(call(false).second);
    std::vector<std::pair<void*, bool>> captured;
    for (int i = 0; i < 4; ++i) captured.push_back(call(true));
    CHILD_CHECK(captured[0].second && !captured[1].second && !captured[2].second && !captured[3].second);
    CHILD_CHECK((host.mask() & static_cast<int>(kEventKernelCh)) == 0);
    for (int replay = 0; replay < 3; ++replay) {
      for (size_t i = 0; i < captured.size(); ++i) CHILD_CHECK(run(captured[i].first, captured[i].second) == (i == 0));
    }
    call(false);  // a call that is not captured brings them back for the next
    const auto eager = call(false);
    CHILD_CHECK(eager.second && run(eager.first, eager.second));
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  const InFlightComm comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.collectives_enqueued, 4u);
  EXPECT_EQ(comm.collectives_completed, 4u);
  EXPECT_EQ(comm.collective_calls, 7u);
  const auto ops = operations(*reader);
  ASSERT_EQ(ops.size(), 4u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(ops[i].head.flags & (kFlagGraph | kFlagUnseen), kFlagGraph | kFlagUnseen)
        << "the rest of its step is not seen";
  EXPECT_EQ(ops[3].head.flags & (kFlagGraph | kFlagUnseen), 0);
}

TEST(Detail, WhoAsksForAllGetsTheKernelEventsOfEveryCapturedCall) {
  RecorderFolder folder;
  in_child([] {
    ::setenv("LOCKSTEP_NCCL_MASK", "0x5e", 1);
    TestHost<V5> host;
    void* context = host.init(1);
    for (int i = 0; i < 4; ++i) {
      void* group = host.start(context, host.group_api(1, true));
      host.stop(host.start(context, host.coll_api(group, "AllReduce", 1, "ncclFloat32", true)));
      host.stop(group);
      CHILD_CHECK(host.mask() == 0x5E);
    }
  });
}

TEST(Detail, KernelEventsNeedRoomInSharedMemoryForEveryRankOfTheNode) {
  EXPECT_FALSE(room_for_kernel_events(64ULL << 20, 2, 1)) << "a container's usual share, and two ranks: NCCL crashes";
  EXPECT_TRUE(room_for_kernel_events(64ULL << 20, 2, 2));
  EXPECT_TRUE(room_for_kernel_events(1ULL << 30, 8, 1));
  EXPECT_FALSE(room_for_kernel_events(1ULL << 30, 256, 2));
  EXPECT_TRUE(room_for_kernel_events(1ULL << 30, 0, 0)) << "before NCCL 2.27 nobody says how many";
  EXPECT_FALSE(room_for_kernel_events(0, 0, 0));
}

TEST(Detail, WhereSharedMemoryIsSmallNoKernelEventsAreAskedForWhoeverWishesThem) {
  RecorderFolder folder;
  in_child([&] {
    // A small /dev/shm of our own; where that is not allowed there is nothing to see.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m") != 0) {
      return;
    }
    ::setenv("LOCKSTEP_NCCL_MASK", "0x5e", 1);
    TestHost<V5> host;
    use_test_clock(host);
    void* context = host.init(1, 8, 3);  // on two nodes
    CHILD_CHECK(host.mask() == 0x1E);
    CHILD_CHECK(ask_detail(folder.files().at(0), DetailRequest{.mask = kDetailFull, .until_s = 100}).ok());
    test_now = 2'000'000'000;
    host.play_collective(context, 0, 1, 1, 1);
    CHILD_CHECK(host.mask() == 0x1E);
  });
}

TEST(Truth, TheRankIsThatOfInitWhateverRankTheEventsCarry) {
  RecorderFolder folder;
  in_child([] {
    for (const char* name : {"RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "LOCKSTEP_RANK"}) ::unsetenv(name);
    TestHost<V5> host;
    void* context = host.init(1, 16, 5);
    auto group_event = host.group_api(1, false);
    auto call_event = host.coll_api(nullptr, "AllReduce", 1, "ncclFloat32", false);
    group_event.rank = call_event.rank = 0;  // as NCCL has it on every rank
    void* group = host.start(context, group_event);
    call_event.parentObj = group;
    host.stop(host.start(context, call_event));
    host.play_collective(context, 0, 1, 1, 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().rank, 5);
  EXPECT_EQ(reader->in_flight().at(0).rank_in_comm, 5);
}

TEST(Truth, AChannelThatNcclStopsBeforeItStartsIsOvertakenAndLeavesNothingBehind) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    void* stale = nullptr;
    for (uint64_t i = 0; i < 5000; ++i) {
      void* coll = host.start(context, host.all_reduce(i, 1, 2));
      host.stop(coll);
      void* first = host.start(context, host.kernel(coll, 0, 1));
      host.state(first, kStateKernelChStop, 2);
      host.stop(first);
      if (i % 2 == 0 && stale != nullptr) {  // the race: the stop goes to what the place held before
        host.state(stale, kStateKernelChStop, 2);
        host.stop(stale);
        host.start(context, host.kernel(coll, 1, 1));  // and nobody stops it any more
        continue;
      }
      stale = host.start(context, host.kernel(coll, 1, 1));
      host.state(stale, kStateKernelChStop, 2);
      host.stop(stale);
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const InFlightComm comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.collectives_enqueued, 5000u);
  EXPECT_EQ(comm.collectives_completed, 5000u);
  EXPECT_EQ(refused(*reader, Refused::kNoSlot), 0u) << "nothing that is waited for loses its place";
}

TEST(Detail, AMaskThatSomebodyElseWroteIsLeftAlone) {
  RecorderFolder folder;
  in_child([&] {
    TestHost<V7> host;
    use_test_clock(host);
    void* context = host.init(1);
    host.set_mask(0x06);  // NCCL RAS: CONTROL PROFILER_MASK
    for (int i = 0; i < 10; ++i) {
      test_now += 1'000'000'000;
      host.play_collective(context, 0, 1, 0, 1);
    }
    CHILD_CHECK(host.mask() == 0x06);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().mask, 0x06u);
  for (const OpRecord& op : operations(*reader)) EXPECT_EQ(op.head.flags & kFlagUnseen, kFlagUnseen);
}

// --- what it costs and what stops it ---

TEST(Cost, CallsAreCountedAndEveryTwoHundredFiftySixthIsMeasured) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    for (uint64_t i = 0; i < 1000; ++i) host.play_collective(context, i, 4, 0, 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const RecorderCost cost = reader->cost();
  EXPECT_GE(cost.events, 16'000u);
  EXPECT_EQ(cost.samples, cost.events / kCostEvery);
  uint64_t in_buckets = 0;
  for (uint64_t count : cost.buckets) in_buckets += count;
  EXPECT_EQ(in_buckets, cost.samples);
  EXPECT_GT(cost.total_ns, 0u);
  EXPECT_GE(cost.worst_ns, cost.total_ns / cost.samples);
}

int log_lines = 0;
std::string last_line;
void test_logger(int, unsigned long, const char*, int, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  last_line = line;
  ++log_lines;
}

TEST(Safe, SaysOnceInNcclsLogWhyItDoesNotRecord) {
  RecorderFolder folder;
  ::setenv("LOCKSTEP_RECORDER_DIR", "/proc/no/such/place", 1);
  in_child([] {
    TestHost<V5> host;
    for (uint64_t i = 0; i < 3; ++i) {
      void* context = host.init(i, 8, 0, nullptr, test_logger);
      CHILD_CHECK(context == nullptr);
      CHILD_CHECK(host.mask() == 0);
      host.play_collective(context, 0, 2, 2, 1);
      host.finalize(context);
    }
    CHILD_CHECK(log_lines == 1);
    CHILD_CHECK(last_line.find("does not record") != std::string::npos);
  });
}

TEST(Safe, AlmostFullSharedMemoryIsLeftToNccl) {
  constexpr layout::Geometry kRequested{layout::kLanesDefault, layout::kLaneRecordsDefault, layout::kCommsDefault};
  const auto roomy = RecorderWriter::fitting(kRequested, 1ULL << 30);
  ASSERT_TRUE(roomy.ok());
  EXPECT_EQ(roomy->file_bytes(), kRequested.file_bytes());
  const auto docker = RecorderWriter::fitting(kRequested, 64ULL << 20);  // a container's usual share
  ASSERT_TRUE(docker.ok());
  EXPECT_LE(docker->file_bytes(), 4ULL << 20);
  EXPECT_TRUE(docker->sane());
  EXPECT_FALSE(RecorderWriter::fitting(kRequested, 1ULL << 20).ok());
}

TEST(Safe, ThousandsOfCommunicatorsAtOnceAreFollowedAsFarAsTheTableGoesAndTheRestIsCounted) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    std::vector<void*> contexts;
    for (uint64_t i = 0; i < 3000; ++i) contexts.push_back(host.init(i, 2, 0));
    for (void* context : contexts) host.play_collective(context, 0, 1, 0, 1);
    for (void* context : contexts) {
      if (context != nullptr) host.finalize(context);
    }
    CHILD_CHECK(host.init(5000) != nullptr);  // rows come free again
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->in_flight().size(), layout::kCommsDefault);
  EXPECT_GE(refused(*reader, Refused::kNoRow), 3000u - layout::kCommsDefault);
}

TEST(Safe, AForkedChildWritesNothingIntoItsParentsFile) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    host.play_collective(context, 0, 1, 0, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      host.play_collective(context, 1, 1, 1, 1);
      host.finalize(context);
      void* again = host.init(2);
      host.play_collective(again, 1, 1, 1, 1);
      ::_exit(0);
    }
    int status = 0;
    CHILD_CHECK(::waitpid(child, &status, 0) == child && status == 0);
    host.play_collective(context, 1, 1, 0, 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(operations(*reader).size(), 2u);
  EXPECT_TRUE(reader->in_flight().at(0).live);
}

TEST(Safe, RcclFindsTheSameLibraryUnderItsOwnName) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host(LOCKSTEP_LIBRARY_DIRECTORY "/librccl-profiler-lockstep.so");
    void* context = host.init(1);
    host.play_collective(context, 0, 2, 0, 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 1u);
}

}  // namespace
}  // namespace lockstep::nccl
