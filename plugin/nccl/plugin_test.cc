#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "plugin/capi/lockstep.h"
#include "plugin/nccl/names.h"
#include "plugin/nccl/test_clock.h"
#include "plugin/nccl/test_host.h"
#include "plugin/nccl/tracker.h"
#include "recorder/test_process.h"

namespace lockstep::nccl {
namespace {

using testing::drain_all;
using testing::in_child;
using testing::RecorderFolder;

std::vector<Record> of_type(const std::vector<Record>& records, RecordType type) {
  std::vector<Record> found;
  for (const Record& record : records) {
    if (record.head.type == type) found.push_back(record);
  }
  return found;
}

template <typename Version>
class EveryVersion : public ::testing::Test {};
using Versions = ::testing::Types<V4, V5, V6, V7>;
TYPED_TEST_SUITE(EveryVersion, Versions);

TYPED_TEST(EveryVersion, RecordsAWholeCollective) {
  RecorderFolder folder;
  in_child([] {
    ::setenv("LOCKSTEP_JOB_ID", "job-1", 1);
    TestHost<TypeParam> host;
    use_test_clock(host);
    test_now = 5000;
    void* context = host.init(0xABCD, 16, 3, "dp");
    CHILD_CHECK(context != nullptr);
    CHILD_CHECK(host.mask() == (TypeParam::kCopyEngine ? 0x105E : 0x5E));
    host.play_collective(context, 7, 4, 2, 1'000'000);
    host.finalize(context);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  RecorderReader::Drained drained;
  const auto records = drain_all(*reader, &drained);
  EXPECT_EQ(drained.torn + drained.overwritten, 0u);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  EXPECT_EQ(reader->header().job_id, "job-1");

  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.front().head.type, RecordType::kCommInit);
  EXPECT_EQ(records.front().mark.comm_id, 0xABCDu);
  EXPECT_EQ(records.back().head.type, RecordType::kCommFinalize);
  const auto colls = of_type(records, RecordType::kColl);
  ASSERT_EQ(colls.size(), 1u);
  const OpRecord& coll = colls[0].op;
  EXPECT_EQ(coll.head.comm_index, 0);
  EXPECT_EQ(coll.head.time_ns, 5000u);
  EXPECT_NE(coll.op_id, 0u);
  EXPECT_EQ(coll.ordinal, 1u);
  EXPECT_EQ(coll.seq, 7u);
  EXPECT_EQ(coll.bytes, 4u << 24);
  EXPECT_EQ(coll.function, Function::kAllReduce);
  EXPECT_EQ(coll.datatype, Datatype::kFloat32);
  EXPECT_EQ(coll.channels, 4);
  EXPECT_EQ(coll.algorithm, 2);
  EXPECT_EQ(coll.protocol, 3);

  const auto kernels = of_type(records, RecordType::kKernelCh);
  ASSERT_EQ(kernels.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(kernels[i].kernel.op_id, coll.op_id);
    EXPECT_EQ(kernels[i].kernel.channel, i);
    EXPECT_EQ(kernels[i].kernel.gpu_start_ns, 1'000'000u + i);
    EXPECT_EQ(kernels[i].kernel.gpu_stop_ns, 1'150'000u);
  }
  const auto proxy_ops = of_type(records, RecordType::kProxyOp);
  ASSERT_EQ(proxy_ops.size(), 8u);
  EXPECT_EQ(proxy_ops[0].proxy_op.op_id, coll.op_id);
  EXPECT_EQ(proxy_ops[0].proxy_op.peer, 4);
  EXPECT_EQ(proxy_ops[0].proxy_op.steps, 2u);
  EXPECT_EQ(proxy_ops[0].proxy_op.chunk_bytes, 1u << 19);
  EXPECT_EQ(proxy_ops[0].head.flags, kFlagSend);
  EXPECT_EQ(proxy_ops[1].head.flags, 0);
  EXPECT_EQ(of_type(records, RecordType::kProxyStep).size(), 16u);

  const auto comms = reader->in_flight();
  ASSERT_EQ(comms.size(), 1u);
  EXPECT_FALSE(comms[0].live);
  EXPECT_EQ(comms[0].name, "dp");
  EXPECT_EQ(comms[0].size, 16);
  EXPECT_EQ(comms[0].rank_in_comm, 3);
  EXPECT_EQ(comms[0].nodes, 2);
  EXPECT_EQ(comms[0].collectives_enqueued, 1u);
  EXPECT_EQ(comms[0].collectives_completed, 1u);
  ASSERT_EQ(comms[0].recent.size(), 1u);
  EXPECT_EQ(comms[0].recent[0].state, InFlightState::kCompleted);
  EXPECT_EQ(comms[0].proxy_state, 0);
}

TYPED_TEST(EveryVersion, AProxyOperationOfAnotherProcessIsCountedBeforeAnythingInItIsLookedAt) {
  RecorderFolder folder;
  in_child([] {
    TestHost<TypeParam> host;
    void* context = host.init(1);
    void* foreign = reinterpret_cast<void*>(0x7f0012345678);  // the other process's context and parent
    CHILD_CHECK(host.start(foreign, host.proxy_op(foreign, 0, 1, true, 4, ::getpid() + 1)) == nullptr);
    CHILD_CHECK(host.start(context, host.proxy_op(foreign, 0, 1, true, 4)) == nullptr);
    CHILD_CHECK(host.start(foreign, host.proxy_op(nullptr, 0, 1, true, 4)) == nullptr);
    host.play_collective(context, 0, 1, 1, 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 3u);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 1u);
}

TYPED_TEST(EveryVersion, StaleRepeatedForeignAndNullHandlesDoNoHarm) {
  RecorderFolder folder;
  in_child([] {
    TestHost<TypeParam> host;
    void* context = host.init(1);
    void* coll = host.start(context, host.all_reduce(0, 10, 1));
    void* kernel = host.start(context, host.kernel(coll, 0, 5));
    host.stop(coll);
    host.stop(coll);  // 1
    host.state(kernel, kStateKernelChStop, 9);
    host.stop(kernel);
    host.stop(kernel);                              // 2
    host.state(kernel, kStateKernelChStop, 99);     // 3
    host.stop(reinterpret_cast<void*>(0x1234));     // 4
    host.stop(reinterpret_cast<void*>(~0ULL));      // 5
    host.state(reinterpret_cast<void*>(~0ULL), 9);  // 6
    host.stop(nullptr);
    host.state(nullptr, kStateGroupEndApiStart);
    host.table().recordEventState(kernel, kStateKernelChStop, nullptr);      // 7
    CHILD_CHECK(host.start(context, host.kernel(kernel, 0, 5)) == nullptr);  // 8: a kernel is no parent
    CHILD_CHECK(host.start(context, host.proxy_step(coll, 0)) == nullptr);   // 9
    CHILD_CHECK(host.start(reinterpret_cast<void*>(77), host.all_reduce(0, 1, 1)) == nullptr);  // 10
    host.finalize(context);
    host.finalize(context);                                                  // 11
    CHILD_CHECK(host.start(context, host.all_reduce(1, 10, 1)) == nullptr);  // 12
    host.finalize(nullptr);
    // Every bit pattern of the fields that a handle is made of.
    for (uint64_t bit = 0; bit < 64; ++bit) {
      void* made_up = reinterpret_cast<void*>(reinterpret_cast<uint64_t>(coll) ^ (1ULL << bit));
      host.stop(made_up);
      host.state(made_up, kStateStepSendWait, 1);
      host.start(made_up, host.kernel(made_up, 0, 0));
      host.finalize(made_up);
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_GE(reader->header().refused_total(), 12u);
  const auto records = drain_all(*reader);
  EXPECT_EQ(of_type(records, RecordType::kKernelCh).size(), 1u);
  EXPECT_EQ(of_type(records, RecordType::kKernelCh)[0].kernel.gpu_stop_ns, 9u);
  EXPECT_EQ(of_type(records, RecordType::kColl).size(), 1u);
}

TEST(Plugin, ParentsThatNobodyAskedForAreAnsweredWithNull) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    for (uint64_t type : {kEventProxyCtrl, kEventNetPlugin, kEventCollApi, kEventP2pApi, kEventKernelLaunch}) {
      CHILD_CHECK(host.start(context, TestHost<V5>::of(type)) == nullptr);
    }
    CHILD_CHECK(host.start(context, TestHost<V5>::of(1ULL << 40)) == nullptr);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 0u);
}

TEST(Plugin, TheWaitsOfAProxyStepAreToldApartAndTheFirstOfARepeatedStateCounts) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    use_test_clock(host);
    void* context = host.init(1);
    void* coll = host.start(context, host.all_reduce(0, 10, 1));
    void* sender = host.start(context, host.proxy_op(coll, 2, 5, true, 1));
    void* receiver = host.start(context, host.proxy_op(coll, 2, 6, false, 1));
    const auto at = [&](uint64_t now) { test_now = now; };
    at(10'000);
    void* send = host.start(context, host.proxy_step(sender, 3));
    at(10'100), host.state(send, kStateStepSendGpuWait);
    at(10'300), host.state(send, kStateStepSendPeerWait);
    at(10'400), host.state(send, kStateStepSendPeerWait);
    at(10'500), host.state(send, kStateStepSendPeerWait);
    at(10'700), host.state(send, kStateStepSendWait, 4096);
    at(11'500), host.stop(send);
    at(20'000);
    void* receive = host.start(context, host.proxy_step(receiver, 4));
    at(20'001), host.state(receive, kStateStepRecvWait);
    at(20'011), host.state(receive, kStateStepRecvFlushWait, 8192);
    at(20'031), host.state(receive, kStateStepRecvGpuWait);
    at(5'000'020'031), host.stop(receive);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto steps = of_type(drain_all(*reader), RecordType::kProxyStep);
  ASSERT_EQ(steps.size(), 2u);
  const ProxyStepRecord& send = steps[0].proxy_step;
  EXPECT_EQ(send.head.flags, kFlagSend);
  EXPECT_EQ(send.start_ns, 10'000u);
  EXPECT_EQ(send.head.time_ns, 11'500u);
  EXPECT_EQ(send.wait_gpu_ns, 200u);
  EXPECT_EQ(send.wait_peer_ns, 400u);
  EXPECT_EQ(send.wire_ns, 800u);
  EXPECT_EQ(send.bytes, 4096u);
  EXPECT_EQ(send.peer, 5);
  EXPECT_EQ(send.step, 3u);
  EXPECT_EQ(send.channel, 2);
  const ProxyStepRecord& receive = steps[1].proxy_step;
  EXPECT_EQ(receive.wait_peer_ns, 10u);
  EXPECT_EQ(receive.wire_ns, 20u);
  EXPECT_EQ(receive.wait_gpu_ns, UINT32_MAX);
  EXPECT_EQ(receive.head.flags, kFlagSaturated);
  EXPECT_EQ(receive.bytes, 8192u);
}

TEST(Plugin, ADeadProcessStillShowsWhatItWaitedFor) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    use_test_clock(host);
    void* context = host.init(0x77, 4, 0);
    test_now = 100;
    void* done = host.start(context, host.all_reduce(0, 10, 2));
    for (uint8_t channel : {8, 9}) host.stop(host.start(context, host.kernel(done, channel, 1)));
    test_now = 200;
    void* stuck = host.start(context, host.all_reduce(1, 20, 2));
    host.stop(stuck);
    test_now = 300;
    host.start(context, host.kernel(stuck, 8, 1));
    void* proxy = host.start(context, host.proxy_op(stuck, 0, 2, false, 4));
    test_now = 310;
    host.state(host.start(context, host.proxy_step(proxy, 0)), kStateStepRecvWait);
    test_now = 400;
    host.stop(host.start(context, host.all_reduce(2, 30, 2)));
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto comm = reader->in_flight().at(0);
  EXPECT_TRUE(comm.live);
  EXPECT_EQ(comm.collectives_enqueued, 3u);
  EXPECT_EQ(comm.collectives_completed, 1u);
  ASSERT_EQ(comm.recent.size(), 3u);
  EXPECT_EQ(comm.recent[0].state, InFlightState::kCompleted);
  EXPECT_EQ(comm.recent[1].state, InFlightState::kStarted);
  EXPECT_EQ(comm.recent[1].seq, 1u);
  EXPECT_EQ(comm.recent[1].bytes, 80u);
  EXPECT_EQ(comm.recent[1].enqueued_ns, 200u);
  EXPECT_EQ(comm.recent[1].started_ns, 300u);
  EXPECT_EQ(comm.recent[2].state, InFlightState::kEnqueued);
  EXPECT_EQ(comm.proxy_state, kStateStepRecvWait);
  EXPECT_EQ(comm.proxy_peer, 2);
  EXPECT_EQ(comm.proxy_since_ns, 310u);
}

TEST(Plugin, PointToPointIsCountedApartAndV4DoesNotTrustItsChannelCount) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V4> host;
    void* context = host.init(1);
    void* send = host.start(context, host.p2p("Send", 2, 100, 200));  // 200: whatever was in that byte
    host.stop(send);
    void* first = host.start(context, host.kernel(send, 4, 1));
    void* second = host.start(context, host.kernel(send, 5, 1));
    host.stop(first);
    host.stop(second);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = of_type(drain_all(*reader), RecordType::kP2p);
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0].op.channels, 0);
  EXPECT_EQ(ops[0].op.function, Function::kSend);
  EXPECT_EQ(ops[0].op.peer, 2);
  EXPECT_EQ(ops[0].op.bytes, 200u);
  const auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.p2p_enqueued, 1u);
  EXPECT_EQ(comm.p2p_completed, 1u);
  EXPECT_EQ(comm.collectives_enqueued, 0u);
  EXPECT_TRUE(comm.recent.at(0).p2p);
}

TEST(Plugin, WhatARankSendsToItselfIsOverAtOnce) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1, 16, 3);
    for (const char* function : {"Send", "Recv"}) host.stop(host.start(context, host.p2p(function, 3, 100, 1)));
    host.stop(host.start(context, host.p2p("Send", 4, 100, 1)));
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto ops = of_type(drain_all(*reader), RecordType::kP2p);
  ASSERT_EQ(ops.size(), 3u);
  EXPECT_EQ(ops[0].head.flags & kFlagUnseen, kFlagUnseen) << "NCCL has no kernel events of it";
  EXPECT_EQ(ops[1].head.flags & kFlagUnseen, kFlagUnseen);
  EXPECT_EQ(ops[2].head.flags & kFlagUnseen, 0);
  const auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.p2p_enqueued, 3u);
  EXPECT_EQ(comm.p2p_completed, 2u);
}

// Kernel events of such a communicator may be told at once (docs/decisions/0027-parts-to-oneself.md).
TEST(Plugin, AfterAPartToItselfOperationsWaitForTheNetworkToo) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1, 16, 3);
    const auto send_to = [&](int peer, bool is_done) {
      void* send = host.start(context, host.p2p("Send", peer, 100, 1));
      host.stop(send);
      void* proxy = host.start(context, host.proxy_op(send, 0, peer, true, 1));
      host.stop(host.start(context, host.kernel(send, 0, 1)));
      if (is_done) host.stop(proxy);
    };
    send_to(4, false);  // the kernel alone tells
    host.stop(host.start(context, host.p2p("Send", 3, 100, 1)));
    send_to(5, true);
    send_to(6, false);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.p2p_enqueued, 4u);
  EXPECT_EQ(comm.p2p_completed, 3u);
  ASSERT_FALSE(comm.recent.empty());
  EXPECT_EQ(comm.recent.back().peer, 6);
  EXPECT_EQ(comm.recent.back().state, InFlightState::kStarted);
}

TEST(Plugin, WithKernelEventsMaskedOffTheLastProxyOperationCompletes) {
  RecorderFolder folder;
  in_child([] {
    ::setenv("LOCKSTEP_NCCL_MASK", "0x1e", 1);
    TestHost<V5> host;
    void* context = host.init(1);
    CHILD_CHECK(host.mask() == 0x1E);
    host.play_collective(context, 0, 2, 1, 1);
    for (int i = 0; i < 200; ++i)
      host.stop(host.start(context, host.all_reduce(1, 1, 2)));  // over shared memory: no proxy
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.collectives_completed, 1u);
  EXPECT_EQ(comm.recent.back().ordinal, 201u) << "where completion cannot be seen the newest are shown";
  EXPECT_EQ(comm.recent.size(), 32u);
  EXPECT_EQ(reader->header().refused_total(), 0u);
}

TEST(Plugin, EventsThatNcclNeverStopsAreCountedAndStarveNobody) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    void* coll = host.start(context, host.all_reduce(0, 1, 255));
    void* proxy = host.start(context, host.proxy_op(coll, 0, 1, true, 1));
    for (uint32_t i = 0; i < kEventSlots + 100; ++i) {
      CHILD_CHECK(host.start(context, host.kernel(coll, 0, 1)) != nullptr);
      void* step = host.start(context, host.proxy_step(proxy, 0));
      CHILD_CHECK(step != nullptr);
      host.state(step, kStateStepSendWait);
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_GE(reader->header().refused_total(), 200u);
  EXPECT_LE(reader->header().refused_total(), 300u) << "places that a thread took and did not come to stay free";
}

TEST(Plugin, ACompletionThatNeverCameIsCountedWhenItsPlaceIsNeeded) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    host.stop(host.start(context, host.all_reduce(0, 1, 4)));
    for (uint32_t i = 1; i <= kOpSlots; ++i) host.play_collective(context, i, 1, 0, 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 1u);
  const auto comm = reader->in_flight().at(0);
  EXPECT_EQ(comm.collectives_enqueued, comm.collectives_completed);
}

TEST(Plugin, AnOperationThatHangsKeepsItsPlaceWhileItsThreadGoesOnElsewhere) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* stuck = host.init(1);
    void* other = host.init(2);
    void* coll = host.start(stuck, host.all_reduce(0, 1, 1));
    host.stop(coll);
    void* kernel = host.start(stuck, host.kernel(coll, 0, 1));
    for (uint32_t i = 0; i < 3 * kOpSlots; ++i) host.play_collective(other, i, 1, 0, 1);
    host.state(kernel, kStateKernelChStop, 2);
    host.stop(kernel);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  for (const InFlightComm& comm : reader->in_flight()) EXPECT_EQ(comm.collectives_enqueued, comm.collectives_completed);
}

// How long a callback takes is how much of what it touches is still in a cache: what a communicator adds to the memory
// in use is what makes a callback slower with each.
TEST(Plugin, ACommunicatorAddsNextToNothingToTheMemoryThatCallbacksUse) {
  RecorderFolder folder;
  in_child([] {
    const auto own_kb = [] {  // without the recorder, which is shared
      std::ifstream in("/proc/self/status");
      for (std::string word; in >> word;) {
        int64_t kb = 0;
        if (word == "RssAnon:" && in >> kb) return kb;
      }
      return int64_t{-1};
    };
    TestHost<V5> host;
    std::vector<void*> contexts;
    const auto play_with = [&](size_t communicators) {
      while (contexts.size() < communicators) contexts.push_back(host.init(contexts.size()));
      for (uint64_t i = 0; i < 2 * kOpSlots; ++i) host.play_collective(contexts[i % communicators], i, 1, 1, 1);
      return own_kb();
    };
    const int64_t first = play_with(4);
    const int64_t with_4 = play_with(4);
    const int64_t with_256 = play_with(256);
    CHILD_CHECK(first > 0);
    const int64_t of_playing = with_4 - first;  // a sanitizer keeps what was freed
    CHILD_CHECK(with_256 - with_4 - of_playing < 252 * 8);
  });
}

TEST(Plugin, OperationsOfAThreadWithoutPlacesAreShownWithoutTheirEnd) {
  RecorderFolder folder;
  ::setenv("LOCKSTEP_RECORDER_LANES", "24", 1);
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    std::atomic<uint32_t> begun{0};
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kSpareOpPlaces + 2; ++i) {
      threads.emplace_back([&] {
        void* coll = host.start(context, host.all_reduce(0, 1, 1));
        if (coll != nullptr) host.stop(coll);
        begun += 1;
        while (begun < kSpareOpPlaces + 2) std::this_thread::yield();  // nobody takes the lane of one that has ended
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 2u);
  uint32_t unseen = 0;
  for (const Record& record : drain_all(*reader)) {
    if (record.head.type == RecordType::kColl) unseen += (record.head.flags & kFlagUnseen) != 0 ? 1 : 0;
  }
  EXPECT_EQ(unseen, 2u);
  EXPECT_EQ(reader->in_flight().at(0).collectives_enqueued, kSpareOpPlaces + 2);
}

TEST(Plugin, LateCallbacksOfAFinalizedCommunicatorDoNotTouchTheOneThatTookItsRow) {
  RecorderFolder folder;
  in_child([] {
    ::setenv("LOCKSTEP_RECORDER_COMMS", "256", 1);
    TestHost<V5> host;
    void* first = host.init(1);
    void* coll = host.start(first, host.all_reduce(0, 1, 1));
    void* kernel = host.start(first, host.kernel(coll, 0, 1));
    void* proxy = host.start(first, host.proxy_op(coll, 0, 1, true, 1));
    void* step = host.start(first, host.proxy_step(proxy, 0));
    host.state(step, kStateStepSendGpuWait);
    host.finalize(first);
    for (uint64_t i = 0; i < 256; ++i) CHILD_CHECK(host.init(100 + i) != nullptr);  // the last one takes row 0
    CHILD_CHECK(host.init(999) == nullptr);                                         // all rows live
    CHILD_CHECK(host.mask() != 0);                                                  // the others are still followed
    host.state(step, kStateStepSendWait, 1);
    host.stop(step);
    host.stop(proxy);
    host.stop(kernel);
    host.stop(coll);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto comms = reader->in_flight();
  ASSERT_EQ(comms.size(), 256u);
  EXPECT_EQ(comms[0].comm_id, 355u);
  EXPECT_EQ(comms[0].collectives_completed, 0u);
  EXPECT_TRUE(comms[0].recent.empty());
  EXPECT_EQ(comms[0].proxy_state, 0);
}

TEST(Plugin, TheLargestCommunicatorIsTheWorldWhereTheEnvironmentDoesNotSay) {
  for (const bool reported : {false, true}) {
    RecorderFolder folder;
    in_child([reported] {
      for (const char* name : {"RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "LOCKSTEP_RANK"}) ::unsetenv(name);
      if (reported) ::setenv("RANK", "9", 1);
      TestHost<V5> host;
      host.init(1, 4, 1);
      host.init(2, 32, 17);
      host.init(3, 8, 2);
    });
    auto reader = folder.reader();
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->header().rank, reported ? 9 : 17);
    EXPECT_EQ(reader->header().world_size, reported ? 0 : 32);
  }
}

TEST(Plugin, IsSilentWhereTheRecorderIsOff) {
  for (const char* variable : {"LOCKSTEP_DISABLE=1", "LOCKSTEP_RECORDER_DIR=/nonexistent/deeper"}) {
    RecorderFolder folder;
    in_child([variable] {
      ::putenv(const_cast<char*>(variable));
      TestHost<V5> host;
      CHILD_CHECK(host.init(1) == nullptr);
      CHILD_CHECK(host.mask() == 0);
      CHILD_CHECK(host.start(nullptr, host.all_reduce(0, 1, 1)) == nullptr);
      host.stop(nullptr);
      host.finalize(nullptr);
    });
    EXPECT_TRUE(folder.files().empty());
  }
}

TEST(Plugin, SwitchesItselfOffWhenSomebodyElseWroteIntoItsFile) {
  RecorderFolder folder;
  in_child([&folder] {
    TestHost<V5> host;
    void* context = host.init(1);
    FILE* file = std::fopen(folder.files().at(0).c_str(), "r+");
    std::fseek(file, 24, SEEK_SET);
    const int32_t other_pid = 1;
    std::fwrite(&other_pid, sizeof other_pid, 1, file);
    std::fclose(file);
    CHILD_CHECK(host.init(2) == nullptr);
    CHILD_CHECK(host.mask() == 0);
    CHILD_CHECK(host.start(context, host.all_reduce(0, 1, 1)) == nullptr);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().switched_off, static_cast<uint64_t>(SwitchOff::kHeaderChanged));
}

TEST(Plugin, StaysLoadedAndWorkingWhenNcclClosesAndOpensItAgain) {
  RecorderFolder folder;
  in_child([] {
    for (uint64_t round = 0; round < 3; ++round) {
      TestHost<V5> host;
      void* context = host.init(round);
      host.play_collective(context, 0, 1, 1, 1);
      host.finalize(context);
      ::dlclose(host.library());
      host.stop(context);  // the code is still there
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(of_type(drain_all(*reader), RecordType::kColl).size(), 3u);
}

TEST(Plugin, ThreadsOfSeveralCommunicatorsDoNotDisturbEachOther) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> opener;
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; ++i) {
      threads.emplace_back([i] {
        TestHost<V5> host;
        void* context = host.init(i + 1);
        for (uint64_t seq = 0; seq < 50; ++seq) host.play_collective(context, seq, 2, 2, seq);
      });
    }
    for (auto& thread : threads) thread.join();
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  std::map<uint64_t, int> kernels_per_op;
  RecorderReader::Drained drained;
  for (const auto& record : drain_all(*reader, &drained)) {
    if (record.head.type == RecordType::kKernelCh) kernels_per_op[record.kernel.op_id] += 1;
  }
  EXPECT_EQ(reader->header().refused_total(), 0u);
  for (const auto& comm : reader->in_flight()) EXPECT_EQ(comm.collectives_completed, 50u) << comm.comm_id;
  for (const auto& [op, count] : kernels_per_op) EXPECT_LE(count, 2) << op;
}

TEST(Plugin, ManyThreadsMayStopTheSameHandleAndOnlyOneRecordComesOfIt) {
  RecorderFolder folder;
  in_child([] {
    TestHost<V5> host;
    void* context = host.init(1);
    for (int round = 0; round < 50; ++round) {
      void* coll = host.start(context, host.all_reduce(0, 1, 1));
      void* kernel = host.start(context, host.kernel(coll, 0, 1));
      std::vector<std::thread> threads;
      for (int i = 0; i < 3; ++i) threads.emplace_back([&] { host.stop(kernel); });
      for (auto& thread : threads) thread.join();
    }
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(of_type(drain_all(*reader), RecordType::kKernelCh).size(), 50u);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 50u);
  EXPECT_EQ(reader->header().refused_total(), 100u);
}

struct CApi {
  CApi() {
    library = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so", RTLD_NOW | RTLD_LOCAL);
    CHILD_CHECK(library != nullptr);
  }
  template <typename Function>
  Function* get(const char* name) {
    auto* function = reinterpret_cast<Function*>(::dlsym(library, name));
    CHILD_CHECK(function != nullptr);
    return function;
  }
  void* library;
};

TEST(CApi, StepsPhasesScalarsAndTheEndAreRecorded) {
  RecorderFolder folder;
  in_child([] {
    CApi api;
    api.get<void(uint64_t(*)())>("lockstep_use_clock")(test_clock);
    test_now = 9000;
    CHILD_CHECK(api.get<decltype(lockstep_enabled)>("lockstep_enabled")() == 1);
    api.get<decltype(lockstep_step_begin)>("lockstep_step_begin")(41);
    api.get<decltype(lockstep_phase_begin)>("lockstep_phase_begin")(LOCKSTEP_PHASE_FORWARD);
    api.get<decltype(lockstep_phase_end)>("lockstep_phase_end")(LOCKSTEP_PHASE_FORWARD);
    api.get<decltype(lockstep_scalar)>("lockstep_scalar")("a_rather_long_name", 2.5);
    api.get<decltype(lockstep_scalar)>("lockstep_scalar")(nullptr, 1.0);
    api.get<decltype(lockstep_step_end)>("lockstep_step_end")(41);
    api.get<decltype(lockstep_shutdown)>("lockstep_shutdown")();
    api.get<decltype(lockstep_step_begin)>("lockstep_step_begin")(42);
    CHILD_CHECK(api.get<decltype(lockstep_enabled)>("lockstep_enabled")() == 0);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto records = drain_all(*reader);
  std::vector<RecordType> types;
  for (const auto& record : records) types.push_back(record.head.type);
  EXPECT_EQ(types,
            (std::vector{RecordType::kStepBegin, RecordType::kPhaseBegin, RecordType::kPhaseEnd, RecordType::kScalar,
                         RecordType::kScalar, RecordType::kStepEnd, RecordType::kShutdown}));
  EXPECT_EQ(records[0].mark.number, 41);
  EXPECT_EQ(records[0].head.time_ns, 9000u);
  EXPECT_EQ(records[0].head.comm_index, kNoComm);
  EXPECT_EQ(records[1].mark.number, LOCKSTEP_PHASE_FORWARD);
  EXPECT_STREQ(records[3].mark.name, "a_rather_long_n");
  EXPECT_EQ(records[3].mark.value, 2.5);
}

TEST(CApi, SharesOneFileWithThePluginInTheSameProcess) {
  RecorderFolder folder;
  in_child([] {
    CApi api;
    TestHost<V5> host;
    std::thread other([&] { host.play_collective(host.init(5), 0, 1, 1, 1); });
    for (int step = 0; step < 10; ++step) api.get<decltype(lockstep_step_begin)>("lockstep_step_begin")(step);
    other.join();
  });
  auto reader = folder.reader();  // and no leftover beside it
  ASSERT_TRUE(reader);
  const auto records = drain_all(*reader);
  EXPECT_EQ(of_type(records, RecordType::kStepBegin).size(), 10u);
  EXPECT_EQ(of_type(records, RecordType::kColl).size(), 1u);
}

TEST(CApi, DoesNothingWhenDisabled) {
  RecorderFolder folder;
  in_child([] {
    ::setenv("LOCKSTEP_DISABLE", "1", 1);
    CApi api;
    CHILD_CHECK(api.get<decltype(lockstep_enabled)>("lockstep_enabled")() == 0);
    api.get<decltype(lockstep_step_begin)>("lockstep_step_begin")(1);
    api.get<decltype(lockstep_shutdown)>("lockstep_shutdown")();
  });
  EXPECT_TRUE(folder.files().empty());
}

TEST(Names, AreReadByContent) {
  EXPECT_EQ(function_of("AllReduce"), Function::kAllReduce);
  EXPECT_EQ(function_of("Reduce"), Function::kReduce);
  EXPECT_EQ(function_of("ReduceScatter"), Function::kReduceScatter);
  EXPECT_EQ(function_of("SendRecv"), Function::kSendRecv);
  EXPECT_EQ(function_of("Send"), Function::kSend);
  EXPECT_EQ(function_of("WaitSignal"), Function::kUnknown);
  EXPECT_EQ(function_of(nullptr), Function::kUnknown);
  EXPECT_EQ(datatype_of("ncclInt8"), Datatype::kInt8);
  EXPECT_EQ(datatype_of("ncclFloat8e5m2"), Datatype::kFloat8e5m2);
  EXPECT_EQ(datatype_of("Unknown"), Datatype::kUint8) << "the one type that NCCL has no name for";
  EXPECT_EQ(datatype_of(""), Datatype::kUnknown);
  EXPECT_EQ(algorithm_of("NVLS_TREE"), 6);
  EXPECT_EQ(algorithm_of("NVLS"), 5);
  EXPECT_EQ(protocol_of("LL"), 1);
  EXPECT_EQ(protocol_of("LL128"), 2);
}

}  // namespace
}  // namespace lockstep::nccl
