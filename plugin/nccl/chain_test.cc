#include "plugin/nccl/chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "plugin/nccl/test_host.h"
#include "plugin/nccl/test_second_plugin.h"
#include "recorder/test_process.h"

namespace lockstep::nccl {
namespace {

using testing::drain_all;
using testing::in_child;
using testing::RecorderFolder;

constexpr int kOurMask = 0x5E;

std::string path_of(const char* versions) {
  return std::string(LOCKSTEP_TEST_DIRECTORY "/libnccl-profiler-second") + versions + ".so";
}

// In a child: the plugin that exports these versions will be chained to.
SecondPlugin& chain_to(const char* versions) {
  ::setenv("LOCKSTEP_CHAIN_PLUGIN", path_of(versions).c_str(), 1);
  void* library = ::dlopen(path_of(versions).c_str(), RTLD_NOW | RTLD_LOCAL);
  CHILD_CHECK(library != nullptr);
  const auto symbol = reinterpret_cast<SecondPluginSymbol>(::dlsym(library, kSecondPluginSymbol));
  CHILD_CHECK(symbol != nullptr);
  return *symbol();
}

std::string log_lines;
void keep_line(int, unsigned long, const char*, int, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  log_lines += line;
  log_lines += '\n';
}
size_t lines_with(const char* text) {
  size_t count = 0;
  for (size_t at = log_lines.find(text); at != std::string::npos; at = log_lines.find(text, at + 1)) count += 1;
  return count;
}

template <typename Nccl, typename Second>
void check_parents(const SecondPlugin& second, void* context) {
  std::map<void*, uint64_t> given;
  const auto type_of = [&](void* handle) -> uint64_t {
    if (handle == nullptr) return 0;
    CHILD_CHECK(given.contains(handle));
    return given[handle];
  };
  for (const SecondCall& call : second.of(SecondCall::kStart)) {
    CHILD_CHECK(call.version == Second::kNumber);
    CHILD_CHECK(call.context == context);
    const uint64_t parent = type_of(call.parent);
    switch (call.type) {
      case kEventColl:
        CHILD_CHECK(parent == (Second::kApiEvents ? kEventCollApi : kEventGroup));
        CHILD_CHECK(type_of(call.parent_group) == (Second::kApiEvents ? uint64_t{kEventGroup} : 0));
        break;
      case kEventCollApi:
      case kEventKernelLaunch:
        CHILD_CHECK(parent == kEventGroupApi);
        break;
      case kEventProxyOp:
      case kEventKernelCh:
        CHILD_CHECK(parent == kEventColl);
        break;
      case kEventProxyStep:
        CHILD_CHECK(parent == kEventProxyOp);
        break;
      default:
        CHILD_CHECK(parent == 0);
    }
    given[call.handle] = call.type;
  }
}

template <typename Nccl, typename Second>
void check_coll(const SecondCall& coll) {
  constexpr bool kNumbers = Second::kNamesAreNumbers;
  CHILD_CHECK(coll.seq == 7);
  CHILD_CHECK(coll.value == 1 << 24);
  CHILD_CHECK(coll.rank == 3);
  CHILD_CHECK(coll.channel == 2);
  CHILD_CHECK(coll.function == (kNumbers ? "4" : "AllReduce"));
  CHILD_CHECK(coll.datatype == (kNumbers ? "7" : "ncclFloat32"));
  CHILD_CHECK(coll.algorithm == (kNumbers ? "1" : "RING"));
  CHILD_CHECK(coll.protocol == (kNumbers ? "2" : "SIMPLE"));
  CHILD_CHECK(coll.name == (Second::kIdentityInInit ? "" : "dp"));
  CHILD_CHECK(coll.comm_id == (Second::kIdentityInInit ? 0 : 0xABCD));
}

template <typename Nccl, typename Second>
void hands_on_a_whole_collective(const char* plugin) {
  RecorderFolder folder;
  in_child([plugin] {
    SecondPlugin& second = chain_to(plugin);
    second.mask = 0xFFFFFF;
    TestHost<Nccl> host;
    void* context = host.init(0xABCD, 16, 3, "dp", keep_line);
    CHILD_CHECK(context != nullptr);
    const uint64_t ours = (kOurMask | kEventCeColl) & Nccl::kEvents;
    CHILD_CHECK(host.mask() == static_cast<int>(Second::kEvents | ours));
    CHILD_CHECK(second.calls.size() == 1 && second.calls[0].version == Second::kNumber);
    if (Second::kIdentityInInit) {
      CHILD_CHECK(second.calls[0].comm_id == 0xABCD && second.calls[0].name == "dp" && second.calls[0].rank == 3);
      CHILD_CHECK(second.calls[0].has_args);
      CHILD_CHECK(lines_with("forwarding to Second") == 1);
    }
    void* theirs = second.calls[0].context;
    host.play_collective(context, 7, 2, 3, 1'000'000);

    check_parents<Nccl, Second>(second, theirs);
    const auto colls = second.of(SecondCall::kStart, kEventColl);
    CHILD_CHECK(colls.size() == 1);
    check_coll<Nccl, Second>(colls[0]);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventGroup).size() == 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyOp).size() == 4);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyOp)[3].channel == 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyStep).size() == 12);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyStep)[11].value == 2);
    const auto kernels = second.of(SecondCall::kStart, kEventKernelCh);
    CHILD_CHECK(kernels.size() == (Second::kKernelEvents ? 2 : 0));
    if (Second::kGpuTimes) {
      CHILD_CHECK(kernels[1].channel == 1 && kernels[1].value == 1'000'001);
      const auto ends = second.of(SecondCall::kState, kEventKernelCh);
      CHILD_CHECK(ends.size() == 2);
      CHILD_CHECK(ends[0].state == kStateKernelChStop && ends[0].value == 1'150'000);
    }
    const auto steps = second.of(SecondCall::kState, kEventProxyStep);
    CHILD_CHECK(steps.size() == (Second::kIdentityInInit ? 36 : 30));  // older ones have no "waiting for the peer"
    CHILD_CHECK(steps.back().state == kStateStepRecvGpuWait);
    CHILD_CHECK(steps.back().value == (Second::kIdentityInInit ? 1 << 19 : 0));
    CHILD_CHECK(second.of(SecondCall::kState, kEventGroupApi).size() == (Second::kApiEvents ? 2 : 0));
    CHILD_CHECK(second.of(SecondCall::kStart, ~Second::kEvents).empty());

    CHILD_CHECK(second.open == 0 && second.stops_without_start == 0 && second.states_without_start == 0);
    host.finalize(context);
    host.finalize(context);
    const auto ends = second.of(SecondCall::kFinalize);
    CHILD_CHECK(ends.size() == 1 && ends[0].context == theirs);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 1u) << "the second finalize";
  const auto comms = reader->in_flight();
  ASSERT_EQ(comms.size(), 1u);
  EXPECT_EQ(comms[0].collectives_completed, 1u);
  EXPECT_EQ(comms[0].name, "dp");
}

TEST(Chain, HandsOnAWholeCollectiveInTheSameVersion) {
  hands_on_a_whole_collective<V5, V5>("45");
  hands_on_a_whole_collective<V4, V4>("45");
  hands_on_a_whole_collective<V6, V6>("6");
}
TEST(Chain, HandsOnAWholeCollectiveToAnOlderPlugin) {
  hands_on_a_whole_collective<V5, V4>("4");
  hands_on_a_whole_collective<V7, V5>("45");
  hands_on_a_whole_collective<V7, V6>("6");
  hands_on_a_whole_collective<V4, V1>("1");
  hands_on_a_whole_collective<V7, V1>("1");
}

TEST(Chain, LeavesTheDescriptorAsNcclWroteIt) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    TestHost<V5> host;
    void* context = host.init(1);
    void* group = host.start(context, TestHost<V5>::of(kEventGroup));
    auto descriptor = host.all_reduce(0, 10, 1);
    descriptor.coll.parentGroup = group;
    const auto before = descriptor;
    host.start(context, descriptor);
    CHILD_CHECK(std::memcmp(&before, &descriptor, sizeof before) == 0);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventColl).at(0).parent_group ==
                second.of(SecondCall::kStart, kEventGroup).at(0).handle);
  });
}

TEST(Chain, AsksNcclForWhatEitherWantsAndTellsEachOnlyWhatItWants) {
  RecorderFolder folder;
  in_child([] {
    ::setenv("LOCKSTEP_NCCL_MASK", "0x1e", 1);  // no kernels for us
    SecondPlugin& second = chain_to("45");
    second.mask = kEventKernelLaunch | kEventKernelCh | kEventCeColl;  // the last is unknown to v5
    TestHost<V6> host;
    void* context = host.init(1);
    CHILD_CHECK(host.mask() == (0x1E | kEventKernelLaunch | kEventKernelCh));
    host.play_collective(context, 0, 2, 1, 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh).size() == 2);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelLaunch).size() == 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventColl | kEventGroup).size() == 2);  // above the kernels
    CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyOp | kEventProxyStep).empty());
    CHILD_CHECK(second.open == 0);

    // They change their mind: noticed at the start of an operation, in force from the next call on.
    const auto change = [&](uint64_t mask) {
      __atomic_store_n(second.nccl_mask, static_cast<int>(mask), __ATOMIC_RELAXED);
      host.play_collective(context, 1, 2, 1, 1);
      second.calls.clear();
      host.play_collective(context, 2, 2, 1, 1);
    };
    change(kEventProxyOp | kEventGroupApi);
    CHILD_CHECK(host.mask() == (0x1E | kEventGroupApi));
    CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyOp).size() == 4);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh | kEventProxyStep).empty());
    change(0);
    CHILD_CHECK(host.mask() == 0x1E);
    CHILD_CHECK(second.calls.empty());
    change(kEventKernelCh);
    CHILD_CHECK(host.mask() == (0x1E | kEventKernelCh));
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh).size() == 2);
    CHILD_CHECK(second.open == 0 && second.stops_without_start == 0);
    // A communicator more does not put back what was.
    host.init(2);
    CHILD_CHECK(host.mask() == (0x1E | static_cast<int>(second.mask & V5::kEvents)));
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  for (const Record& record : drain_all(*reader)) EXPECT_NE(record.head.type, RecordType::kKernelCh);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 7u) << "seen by their proxy operations";
}

TEST(Chain, WhatBelongsToAnOperationIsToldByTheMaskThatItBeganUnder) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    second.mask = kEventKernelCh;
    TestHost<V5> host;
    void* context = host.init(1);
    void* coll = host.start(context, host.all_reduce(0, 10, 2));
    __atomic_store_n(second.nccl_mask, 0, __ATOMIC_RELAXED);
    host.stop(host.start(context, host.all_reduce(1, 10, 2)));  // here it is noticed
    host.stop(coll);
    host.stop(host.start(context, host.kernel(coll, 0, 5)));
    CHILD_CHECK(second.of(SecondCall::kStart, kEventColl).size() == 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh).size() == 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh)[0].parent ==
                second.of(SecondCall::kStart, kEventColl)[0].handle);
    CHILD_CHECK(second.open == 0);
  });
}

TEST(Chain, APluginThatDeclinesIsNotCalledBackAndSeesNullParents) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    TestHost<V5> host;
    void* context = host.init(1);
    second.declined = ~0ULL;
    host.play_collective(context, 0, 2, 1, 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh).size() == 2);
    for (const SecondCall& call : second.of(SecondCall::kStart)) {
      CHILD_CHECK(call.parent == nullptr && call.parent_group == nullptr);
    }
    CHILD_CHECK(second.of(SecondCall::kStop).empty() && second.of(SecondCall::kState).empty());
    second.calls.clear();
    second.declined = kEventColl;
    host.play_collective(context, 1, 2, 1, 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh).at(0).parent == nullptr);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyStep).at(0).parent != nullptr);
    CHILD_CHECK(second.open == 0 && second.stops_without_start == 0 && second.states_without_start == 0);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 2u);
}

TEST(Chain, ACommunicatorThatTheyRefuseIsNotTheirs) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    second.init_result = 3;
    second.mask = 0xFFF;
    TestHost<V5> host;
    void* refused = host.init(1);
    CHILD_CHECK(refused != nullptr && host.mask() == kOurMask);
    host.play_collective(refused, 0, 2, 1, 1);
    CHILD_CHECK(second.calls.size() == 1 && host.mask() == kOurMask);
    second.init_result = 0;
    void* accepted = host.init(2);
    CHILD_CHECK(host.mask() == 0xFFF);
    host.play_collective(refused, 1, 2, 1, 1);
    CHILD_CHECK(second.of(SecondCall::kStart).empty());
    host.play_collective(accepted, 0, 2, 1, 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventColl).size() == 1);
    host.finalize(refused);
    CHILD_CHECK(second.of(SecondCall::kFinalize).empty());
    host.finalize(accepted);
    CHILD_CHECK(second.of(SecondCall::kFinalize).size() == 1);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 2u);
}

TEST(Chain, APluginWithoutContextsIsToldEverythingButTheEnd) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    second.null_context = true;
    TestHost<V5> host;
    void* context = host.init(1);
    host.play_collective(context, 0, 2, 1, 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh).size() == 2 && second.open == 0);
    host.finalize(context);
    CHILD_CHECK(second.of(SecondCall::kFinalize).empty());  // NCCL does not finalize what is null
  });
}

TEST(Chain, APluginThatCannotBeUsedIsNamedOnceAndOurHalfGoesOn) {
  const std::string ourselves = LOCKSTEP_LIBRARY_DIRECTORY "/libnccl-profiler-lockstep.so";
  const std::pair<std::string, const char*> cases[] = {
      {"/nonexistent/plugin.so", "/nonexistent/plugin.so: cannot open"},
      {"no-such-plugin", "no-such-plugin: cannot open"},
      {path_of("6"), "needs interface v6 and this NCCL speaks v5"},
      {LOCKSTEP_LIBRARY_DIRECTORY "/liblockstep.so", "is no profiler plugin"},
      {ourselves, "is Lockstep itself"},
  };
  for (const auto& [value, line] : cases) {
    RecorderFolder folder;
    in_child([&value = value, line = line] {
      ::setenv("LOCKSTEP_CHAIN_PLUGIN", value.c_str(), 1);
      TestHost<V5> host;
      void* context = host.init(1, 16, 3, "dp", keep_line);
      host.init(2, 16, 3, "tp", keep_line);
      if (lines_with(line) != 1) std::fprintf(stderr, "said: %s", log_lines.c_str());
      CHILD_CHECK(lines_with(line) == 1 && lines_with("\n") == 1);
      CHILD_CHECK(host.mask() == kOurMask);
      host.play_collective(context, 0, 2, 1, 1);
    });
    auto reader = folder.reader();
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 1u);
    EXPECT_EQ(reader->header().refused_total(), 0u);
  }
}

TEST(Chain, AShortNameIsCompletedAsNcclDoes) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");  // loaded now, so that its file name is enough to find it
    ::setenv("LOCKSTEP_CHAIN_PLUGIN", "second45", 1);
    TestHost<V5> host;
    host.init(1);
    CHILD_CHECK(second.calls.size() == 1);
  });
}

TEST(Chain, HandlesThatAreStaleRepeatedForeignOrNullDoNotReachThem) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    second.mask = 0xFFF;
    TestHost<V5> host;
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
    host.state(reinterpret_cast<void*>(~0ULL), 9);  // 5
    host.stop(context);                             // 6
    host.state(context, kStateKernelChStop);        // 7
    host.stop(nullptr);
    host.state(nullptr, kStateGroupEndApiStart);
    const size_t calls = second.calls.size();
    CHILD_CHECK(second.of(SecondCall::kState).size() == 1);
    CHILD_CHECK(host.start(reinterpret_cast<void*>(77), host.all_reduce(0, 1, 1)) == nullptr);  // 8
    CHILD_CHECK(second.calls.size() == calls);
    // NCCL stops the last call of a thread again at each of its calls.
    void* call = host.start(context, host.coll_api(nullptr, "AllReduce", 1, "ncclInt8"));
    for (int i = 0; i < 3; ++i) host.stop(call);
    CHILD_CHECK(second.of(SecondCall::kStop, kEventCollApi).size() == 1);
    // What was begun may still end after the communicator did; nothing new begins.
    void* late = host.start(context, host.all_reduce(1, 10, 1));
    host.finalize(context);
    CHILD_CHECK(host.start(context, host.all_reduce(2, 10, 1)) == nullptr);  // 9
    CHILD_CHECK(host.start(context, TestHost<V5>::of(kEventProxyCtrl)) == nullptr);
    host.stop(late);
    host.finalize(context);  // 10
    host.finalize(nullptr);
    CHILD_CHECK(second.of(SecondCall::kFinalize).size() == 1);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventColl).size() == 2);
    CHILD_CHECK(second.stops_without_start == 0 && second.states_without_start == 0 && second.open == 0);
    for (uint64_t bit = 0; bit < 64; ++bit) {
      void* made_up = reinterpret_cast<void*>(reinterpret_cast<uint64_t>(kernel) ^ (1ULL << bit));
      host.stop(made_up);
      host.state(made_up, kStateStepSendWait, 1);
      host.start(made_up, host.kernel(made_up, 0, 0));
      host.finalize(made_up);
    }
    CHILD_CHECK(second.stops_without_start == 0 && second.states_without_start == 0 && second.open == 0);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_GE(reader->header().refused_total(), 10u);
}

TEST(Chain, AProxyOperationOfAnotherProcessIsOursToCountAndNotTheirs) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    TestHost<V5> host;
    void* context = host.init(1);
    void* coll = host.start(context, host.all_reduce(0, 10, 1));
    void* foreign = reinterpret_cast<void*>(0x7f0012345678);
    CHILD_CHECK(host.start(foreign, host.proxy_op(foreign, 0, 1, true, 4, ::getpid() + 1)) == nullptr);
    CHILD_CHECK(host.start(context, host.proxy_op(coll, 0, 1, true, 4, ::getpid() + 1)) == nullptr);
    CHILD_CHECK(host.start(foreign, host.proxy_step(nullptr, 0)) == nullptr);  // NCCL goes on with its steps
    CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyOp | kEventProxyStep).empty());
    // Here the pid says nothing: another container may have the same. They see no foreign pointer all the same.
    CHILD_CHECK(host.start(foreign, host.proxy_op(foreign, 0, 1, true, 4)) == nullptr);
    host.start(context, host.proxy_op(foreign, 0, 1, true, 4));
    const auto starts = second.of(SecondCall::kStart, kEventProxyOp);
    CHILD_CHECK(starts.size() == 1 && starts[0].parent == nullptr);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused[static_cast<size_t>(Refused::kForeign)], 2u);
}

TEST(Chain, WorksWhereOurHalfIsOff) {
  for (const char* variable : {"LOCKSTEP_DISABLE=1", "LOCKSTEP_RECORDER_DIR=/nonexistent/deeper"}) {
    RecorderFolder folder;
    in_child([variable] {
      ::putenv(const_cast<char*>(variable));
      SecondPlugin& second = chain_to("45");
      second.mask = 0;
      TestHost<V7> host;
      void* context = host.init(1);
      CHILD_CHECK(context != nullptr);
      CHILD_CHECK(host.mask() == 0x6);  // enough to notice when they want something
      host.play_collective(context, 0, 2, 1, 1);
      CHILD_CHECK(second.of(SecondCall::kStart).empty());
      __atomic_store_n(second.nccl_mask, 0x5A, __ATOMIC_RELAXED);
      host.play_collective(context, 1, 2, 1, 1);
      second.calls.clear();
      CHILD_CHECK(host.mask() == 0x5E);
      host.play_collective(context, 2, 2, 1, 1);
      CHILD_CHECK(second.of(SecondCall::kStart, kEventKernelCh).size() == 2);
      CHILD_CHECK(second.of(SecondCall::kStart, kEventProxyStep).size() == 4);
      check_parents<V7, V5>(second, second.of(SecondCall::kStart)[0].context);
      CHILD_CHECK(second.open == 0 && second.stops_without_start == 0);
      host.finalize(context);
      CHILD_CHECK(second.of(SecondCall::kFinalize).size() == 1);
    });
  }
}

TEST(Chain, AParentMayBeNamedAfterItsStopUntilItsPlaceIsNeeded) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    TestHost<V5> host;
    void* context = host.init(1);
    void* coll = host.start(context, host.all_reduce(0, 10, 1));
    host.stop(coll);
    void* theirs = second.of(SecondCall::kStart, kEventColl)[0].handle;
    const auto parent_now = [&] {
      second.calls.clear();
      host.stop(host.start(context, host.kernel(coll, 0, 1)));
      return second.of(SecondCall::kStart, kEventKernelCh).at(0).parent;
    };
    for (uint32_t i = 0; i < 3 * Chain::kPairs; ++i) host.stop(host.start(context, TestHost<V5>::of(kEventGroup)));
    CHILD_CHECK(parent_now() == theirs);  // other kinds do not take its place
    for (uint32_t i = 1; i < Chain::kPairs; ++i) host.stop(host.start(context, host.all_reduce(i, 10, 1)));
    CHILD_CHECK(parent_now() == theirs);
    host.stop(host.start(context, host.all_reduce(0, 10, 1)));
    CHILD_CHECK(parent_now() == nullptr);
    CHILD_CHECK(second.open == 0 && second.stops_without_start == 0);
  });
}

TEST(Chain, ACallCapturedIntoAGraphIsTheParentOfEveryReplay) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    TestHost<V5> host;
    void* context = host.init(1);
    void* group = host.start(context, host.group_api(1, true));
    void* call = host.start(context, host.coll_api(group, "AllReduce", 10, "ncclInt8", true));
    host.stop(call);
    host.stop(group);
    void* theirs = second.of(SecondCall::kStart, kEventCollApi)[0].handle;
    second.calls.clear();
    for (uint32_t i = 0; i < 2 * Chain::kPairs; ++i) host.stop(host.start(context, host.group_api()));
    second.calls.clear();
    auto replay = host.all_reduce(0, 10, 1);
    replay.parentObj = call;
    host.stop(host.start(context, replay));
    CHILD_CHECK(second.of(SecondCall::kStart, kEventColl)[0].parent == theirs);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  const auto records = drain_all(*reader);
  const auto coll =
      std::find_if(records.begin(), records.end(), [](const Record& r) { return r.head.type == RecordType::kColl; });
  ASSERT_NE(coll, records.end());
  EXPECT_NE(coll->head.flags & kFlagGraph, 0) << "our half knows it too";
}

TEST(Chain, ALongLivedCommunicatorOutlastsAnyNumberOfShortOnes) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    TestHost<V5> host;
    void* world = host.init(1);
    void* theirs = second.calls[0].context;
    for (uint64_t i = 0; i < 2 * Chain::kContexts; ++i) host.finalize(host.init(2 + i));
    second.calls.clear();
    host.play_collective(world, 0, 1, 0, 1);
    check_parents<V5, V5>(second, theirs);
    CHILD_CHECK(second.of(SecondCall::kStart, kEventColl).size() == 1);
  });
}

TEST(Chain, WhatAnOlderVersionCannotSayIsNotSaidToIt) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("1");
    second.mask = 0x3F;
    TestHost<V5> host;
    void* context = host.init(0x77, 16, 3, "pp");
    host.start(context, host.coll("AlltoAll", 0, 10, "ncclInt8", 1));
    CHILD_CHECK(second.of(SecondCall::kStart).empty());
    void* send = host.start(context, host.p2p("Send", 5, 100, 2));
    host.state(send, kStateProxyOpInProgress);
    host.stop(send);
    const auto starts = second.of(SecondCall::kStart);
    CHILD_CHECK(starts.size() == 1 && starts[0].function == "6" && starts[0].datatype == "9" && starts[0].peer == 5);
    CHILD_CHECK(starts[0].name == "pp" && starts[0].comm_id == 0x77);
    CHILD_CHECK(second.of(SecondCall::kState).empty() && second.open == 0);
  });
}

TEST(Chain, ThreadsThatWorkAtOnceGetEachEventStoppedOnce) {
  RecorderFolder folder;
  in_child([] {
    SecondPlugin& second = chain_to("45");
    second.mask = 0xFFF;
    second.keep_calls = false;
    TestHost<V5> first;
    // So few events that none of ours loses its place, however long a thread is kept from running.
    const auto work = [](void* context) {
      TestHost<V5> host;
      host.set_mask(0xFFF);
      for (uint64_t i = 0; i < 1000; ++i) host.play_collective(context, i, 1, 1, 1);
    };
    std::thread a(work, first.init(1));
    std::thread b(work, first.init(2));
    for (int i = 0; i < 50; ++i) {
      __atomic_store_n(second.nccl_mask, i % 2 == 0 ? 0x42 : 0xFFF, __ATOMIC_RELAXED);
      void* other = first.init(100 + static_cast<uint64_t>(i));
      first.play_collective(other, 0, 1, 1, 1);
      first.finalize(other);
    }
    a.join();
    b.join();
    CHILD_CHECK(second.stops_without_start == 0 && second.states_without_start == 0);
    CHILD_CHECK(second.open == 0);
  });
  auto reader = folder.reader();
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->header().refused_total(), 0u);
  EXPECT_EQ(reader->in_flight().at(0).collectives_completed, 1000u);
}

TEST(PairRing, WhoeverLooksWhileItGoesRoundSeesAWholePairOrNone) {
  constexpr uint32_t kRounds = 100'000;
  PairRing ring(8);
  std::atomic<uint32_t> newest{0};
  std::atomic<uint64_t> first_stops{0};
  std::atomic<uint64_t> broken{0};
  const auto look = [&](uint32_t position) {
    const auto seen = ring.peek(position);
    if (seen.found && (reinterpret_cast<uint64_t>(seen.theirs) != seen.ours || seen.wanted != seen.ours % 1000))
      broken += 1;
  };
  const auto work = [&](uint64_t from) {
    for (uint64_t value = from; value < from + kRounds; ++value) {
      const uint32_t position = ring.put(value, reinterpret_cast<void*>(value), static_cast<uint32_t>(value % 1000));
      if (position == 0) continue;
      const uint32_t others = newest.exchange(position);
      look(others);
      first_stops += ring.stop(others).open ? 1 : 0;
      first_stops += ring.stop(position).open ? 1 : 0;
      first_stops += ring.stop(position).open ? 1 : 0;
    }
  };
  std::thread a(work, 1'000'000);
  std::thread b(work, 2'000'000);
  a.join();
  b.join();
  EXPECT_EQ(broken, 0u);
  EXPECT_LE(first_stops, 2 * kRounds);
  EXPECT_GE(first_stops, kRounds / 2);
}

TEST(Convert, AnOlderDescriptorSaysTheSameWithItsOwnFields) {
  const Links links{.parent = reinterpret_cast<void*>(1), .parent_group = reinterpret_cast<void*>(2)};
  const Identity identity{.name = "tp", .comm_id = 9};
  EventDescrV7 in = TestHost<V7>::coll("ReduceScatter", 4, 100, "Unknown", 8);
  in.coll.root = 6;
  in.coll.sendBuff = &in;
  in.coll.algo = "NVLS_TREE";
  in.coll.proto = "LL128";
  in.coll.parentGroup = kGarbage;
  in.parentObj = kGarbage;

  EventDescrV6 six;
  ASSERT_TRUE((convert<V7, V6>(in, links, identity, six)));
  EXPECT_EQ(six.parentObj, links.parent);
  EXPECT_EQ(six.coll.parentGroup, links.parent_group);
  EXPECT_EQ(six.coll.root, 6);
  EventDescrV3 three;
  ASSERT_TRUE((convert<V7, V3>(in, links, identity, three)));
  EXPECT_EQ(three.parentObj, links.parent_group);
  EXPECT_EQ(three.coll.commHash, 9u);
  EXPECT_STREQ(three.coll.name, "tp");
  EXPECT_EQ(three.coll.nMaxChannels, 8);
  EXPECT_EQ(three.coll.sendBuff, &in);
  EventDescrV1 one;
  ASSERT_TRUE((convert<V7, V1>(in, links, identity, one)));
  EXPECT_EQ(one.coll.func, kFunctionV1ReduceScatter);
  EXPECT_EQ(one.coll.datatype, kDatatypeV1Uint8) << "the type that NCCL has no name for";
  EXPECT_EQ(one.coll.algo, kAlgorithmV1NvlsTree);
  EXPECT_EQ(one.coll.proto, kProtocolV1Ll128);
  EXPECT_EQ(one.coll.op, 0u);

  EventDescrV2 two = TestHost<V2>::coll("AllGather", 1, 5, "ncclInt8", 3);
  two.coll.name = "own";
  two.coll.commHash = 5;
  two.coll.trafficBytes = 77;
  ASSERT_TRUE((convert<V2, V1>(two, links, identity, one)));
  EXPECT_EQ(one.coll.trafficBytes, 77u);
  EXPECT_EQ(one.coll.commHash, 5u);
  EXPECT_EQ(one.parentObj, links.parent);

  EventDescrV4 four;
  in = TestHost<V7>::kernel(nullptr, 3, 50);
  ASSERT_TRUE((convert<V7, V3>(in, links, identity, three)));
  EXPECT_EQ(three.kernelCh.channelId, 3);
  EXPECT_EQ(three.parentObj, links.parent);
  EXPECT_FALSE((convert<V7, V2>(in, links, identity, two)));
  EXPECT_FALSE((convert<V7, V6>(TestHost<V7>::kernel_phase(nullptr, 0, 0, 0), links, identity, six)));
  EXPECT_FALSE((convert<V7, V4>(TestHost<V7>::group_api(), links, identity, four)));
  ASSERT_TRUE((convert<V7, V4>(TestHost<V7>::p2p("Recv", 2, 3, 4), links, identity, four)));
  EXPECT_EQ(four.p2p.nChannels, 4) << "NCCL leaves it out";
  ASSERT_TRUE((convert<V7, V6>(TestHost<V7>::ce_coll(nullptr, "AllGather", 3, 64, "ncclInt8"), links, identity, six)));
  EXPECT_EQ(six.ceColl.seqNumber, 3u);
  EXPECT_EQ(six.ceColl.count, 64u);
  EXPECT_STREQ(six.ceColl.syncStrategy, "UC");
  auto call = TestHost<V7>::coll_api(nullptr, "Reduce", 8, "ncclInt8", true);
  call.collApi.root = 2;
  EventDescrV5 five;
  ASSERT_TRUE((convert<V7, V5>(call, links, identity, five)));
  EXPECT_EQ(five.collApi.root, 2);
  EXPECT_TRUE(five.collApi.graphCaptured);
}

TEST(Convert, StatesThatAnOlderVersionDoesNotHaveAreLeftOut) {
  EventStateArgs args{};
  args.proxyStep.transSize = 5;
  EventStateArgs same{};
  EventStateArgsV1 old{};
  EXPECT_TRUE((convert_state<V7, V6>(kStateStepSendWait, &args, same)));
  EXPECT_EQ(same.proxyStep.transSize, 5u);
  EXPECT_TRUE((convert_state<V7, V5>(kStateGroupEndApiStart, nullptr, same)));
  EXPECT_EQ(same.proxyStep.transSize, 0u);
  EXPECT_FALSE((convert_state<V7, V6>(kStateKernelPhaseStop, &args, same)));
  EXPECT_FALSE((convert_state<V7, V5>(kStateCeCollStart, &args, same)));
  EXPECT_FALSE((convert_state<V7, V4>(kStateGroupEndApiStart, &args, same)));
  EXPECT_FALSE((convert_state<V7, V3>(kStateKernelChStop, &args, old)));
  EXPECT_TRUE((convert_state<V7, V3>(kStateStepSendWait, &args, old)));
  EXPECT_EQ(old.proxyOp.transSize, 0u);
  args.proxyCtrl.appendedProxyOps = 7;
  EXPECT_TRUE((convert_state<V4, V1>(kStateProxyCtrlAppend, &args, old)));
  EXPECT_EQ(old.proxyCtrl.appendedProxyOps, 7);
}

}  // namespace
}  // namespace lockstep::nccl
