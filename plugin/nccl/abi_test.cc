// The versions of the interface, what the library exports, and the host that plays NCCL for the other tests.
#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "plugin/nccl/test_host.h"

namespace lockstep::nccl {
namespace {

using AllVersions = ::testing::Types<V1, V2, V3, V4, V5, V6, V7>;
using ExportedVersions = AllVersions;

template <typename Version>
constexpr bool whole() {
  using Descriptor = typename Version::Descriptor;
  return std::is_standard_layout_v<Descriptor> && std::is_trivially_copyable_v<Descriptor> &&
         std::is_standard_layout_v<typename Version::Profiler> &&
         std::is_same_v<typename Version::Profiler,
                        ProfilerTable<std::remove_pointer_t<decltype(Version::Profiler::init)>, Descriptor,
                                      typename Version::StateArgs>> &&
         sizeof(Descriptor::type) == (Version::kApiEvents ? 8 : 1) &&
         sizeof(typename Version::StateArgs) == (Version::kIdentityInInit ? 8 : 16);
}
static_assert(whole<V1>() && whole<V2>() && whole<V3>() && whole<V4>() && whole<V5>() && whole<V6>() && whole<V7>());
static_assert(V1::kNamesAreNumbers && !V2::kNamesAreNumbers);
static_assert(!V2::kKernelEvents && V3::kKernelEvents && !V3::kGpuTimes && V4::kGpuTimes);
static_assert(!V3::kIdentityInInit && V4::kIdentityInInit && !V4::kApiEvents && V5::kApiEvents);
static_assert(!V5::kCopyEngine && V6::kCopyEngine && !V6::kKernelPhase && V7::kKernelPhase);
static_assert(V2::kEvents == kEventKernelCh - 1 && V4::kEvents == kEventGroupApi - 1);
static_assert(V5::kEvents == kEventCeColl - 1 && V6::kEvents == kEventKernelPhase - 1);
static_assert(V7::kEvents == 2 * uint64_t{kEventKernelPhase} - 1);

template <typename Version>
class Exported : public ::testing::Test {};
TYPED_TEST_SUITE(Exported, ExportedVersions);

TYPED_TEST(Exported, TheLibraryHasAWholeTable) {
  void* library = ::dlopen(LOCKSTEP_LIBRARY_DIRECTORY "/libnccl-profiler-lockstep.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  EXPECT_EQ(TypeParam::kSymbol, "ncclProfiler_v" + std::to_string(TypeParam::kNumber));
  const auto* table = static_cast<const typename TypeParam::Profiler*>(::dlsym(library, TypeParam::kSymbol));
  ASSERT_NE(table, nullptr) << TypeParam::kSymbol;
  EXPECT_STREQ(table->name, "Lockstep");
  EXPECT_NE(table->init, nullptr);
  EXPECT_NE(table->startEvent, nullptr);
  EXPECT_NE(table->stopEvent, nullptr);
  EXPECT_NE(table->recordEventState, nullptr);
  EXPECT_NE(table->finalize, nullptr);
}

const char* event_name(uint64_t type) {
  static constexpr const char* kNames[] = {
      "Group",    "Coll",    "P2p",    "ProxyOp",      "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",
      "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl",    "CeSync",    "CeBatch",  "KernelPhase"};
  return type == 0 ? "nothing" : kNames[__builtin_ctzll(type)];
}

// A plugin that writes down how it is called. A handle is the event's bit plus one, so that no handle is null.
template <typename Version>
struct Witness {
  using Descriptor = typename Version::Descriptor;
  static inline std::string calls;
  static inline int mask = 0;
  static inline uint64_t declined = 0;
  static inline Descriptor last_coll{};

  static void* handle_of(uint64_t type) { return reinterpret_cast<void*>(type << 1 | 1); }
  static std::string name_of(const void* handle) {
    return handle == nullptr ? "nothing" : event_name(reinterpret_cast<uint64_t>(handle) >> 1);
  }
  static int take(void** context, int* its_mask) {
    *context = &mask;
    *its_mask = mask;
    return kNcclSuccess;
  }
  static int start(void*, void** handle, Descriptor* descriptor) {
    if (descriptor->type == kEventColl) last_coll = *descriptor;
    calls += std::string("+") + event_name(descriptor->type) + "<" + name_of(descriptor->parentObj) + " ";
    *handle = (descriptor->type & declined) != 0 ? nullptr : handle_of(descriptor->type);
    return kNcclSuccess;
  }
  static int stop(void* handle) {
    calls += "-" + name_of(handle) + " ";
    return kNcclSuccess;
  }
  static int state(void* handle, int number, typename Version::StateArgs* args) {
    calls += name_of(handle) + "=" + std::to_string(number) + (args == nullptr ? "() " : " ");
    return kNcclSuccess;
  }
  static int finalize(void*) { return kNcclSuccess; }

  static typename Version::Profiler table() {
    typename Version::Profiler made{"witness", nullptr, start, stop, state, finalize};
    if constexpr (Version::kApiEvents) {
      made.init = [](void** context, uint64_t, int* its_mask, const char*, int, int, int, DebugLogger) {
        return take(context, its_mask);
      };
    } else if constexpr (Version::kIdentityInInit) {
      made.init = [](void** context, int* its_mask, const char*, uint64_t, int, int, int, DebugLogger) {
        return take(context, its_mask);
      };
    } else {
      made.init = take;
    }
    return made;
  }
};

// The calls of one AllReduce on one channel with one step.
template <typename Version>
std::string calls_of_a_collective(uint64_t mask, uint64_t declined = 0) {
  using Plugin = Witness<Version>;
  Plugin::calls.clear();
  Plugin::mask = static_cast<int>(mask);
  Plugin::declined = declined;
  const auto table = Plugin::table();
  TestHost<Version> host(table);
  void* context = host.init(0xABCD, 16, 5, "dp");
  EXPECT_EQ(host.mask(), static_cast<int>(mask));
  host.play_collective(context, 7, 1, 1, 1000);
  return Plugin::calls;
}

constexpr uint64_t kEverything = 0xFFFF;
constexpr uint64_t kUsual = kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventKernelCh;

TEST(TestHost, PlaysVersion1WithTheStatesOfTheProxyOperation) {
  EXPECT_EQ(calls_of_a_collective<V1>(kEverything),
            "+Group<nothing +Coll<Group -Coll -Group "
            "+ProxyOp<Coll +ProxyOp<Coll "
            "+ProxyStep<ProxyOp ProxyOp=0 ProxyStep=8() ProxyOp=1 ProxyOp=2 ProxyStep=9() -ProxyStep ProxyOp=3 "
            "+ProxyStep<ProxyOp ProxyOp=4 ProxyStep=10() ProxyOp=5 ProxyStep=11() ProxyOp=6 ProxyStep=12() -ProxyStep "
            "ProxyOp=7 "
            "-ProxyOp -ProxyOp ");
  EXPECT_EQ(calls_of_a_collective<V2>(kEverything), calls_of_a_collective<V1>(kEverything));
}

TEST(TestHost, PlaysVersion3WithKernelsThatHaveNoTime) {
  EXPECT_EQ(calls_of_a_collective<V3>(kEventKernelCh),
            "+Group<nothing +Coll<Group -Coll -Group +KernelCh<Coll -KernelCh ");
}

TEST(TestHost, PlaysVersion4) {
  EXPECT_EQ(calls_of_a_collective<V4>(kEverything),
            "+Group<nothing +Coll<Group -Coll -Group "
            "+ProxyOp<Coll ProxyOp=19 +ProxyOp<Coll ProxyOp=19 +KernelCh<Coll "
            "+ProxyStep<ProxyOp ProxyStep=8 ProxyStep=20 ProxyStep=9 -ProxyStep "
            "+ProxyStep<ProxyOp ProxyStep=10 ProxyStep=11 ProxyStep=12 -ProxyStep "
            "-ProxyOp -ProxyOp KernelCh=22 -KernelCh ");
}

TEST(TestHost, PlaysVersion5UnderItsApiCallWithTheGroupStoppedLast) {
  EXPECT_EQ(calls_of_a_collective<V5>(kEventKernelLaunch | kEventKernelCh),
            "+GroupApi<nothing GroupApi=23() +CollApi<GroupApi -CollApi GroupApi=24() "
            "+KernelLaunch<GroupApi -KernelLaunch "
            "+Group<nothing +Coll<CollApi -Coll -Group -GroupApi "
            "+KernelCh<Coll KernelCh=22 -KernelCh ");
  EXPECT_EQ(Witness<V5>::last_coll.coll.parentGroup, Witness<V5>::handle_of(kEventGroup));
  EXPECT_EQ(calls_of_a_collective<V5>(kEverything), calls_of_a_collective<V6>(kEverything));
}

TEST(TestHost, PlaysThePhasesOfAKernelJustBeforeItStops) {
  const std::string phase = "+KernelPhase<KernelCh KernelPhase=31 -KernelPhase ";
  const std::string calls = calls_of_a_collective<V7>(kEventKernelPhase);
  EXPECT_NE(calls.find("+KernelCh<Coll " + phase + phase + phase + "KernelCh=22 -KernelCh "), std::string::npos)
      << calls;
  EXPECT_EQ(calls_of_a_collective<V7>(kUsual).find("KernelPhase"), std::string::npos);
}

TEST(TestHost, PlaysACollectiveOfTheCopyEngine) {
  using Plugin = Witness<V6>;
  Plugin::calls.clear();
  Plugin::declined = 0;
  Plugin::mask = kEventCeSync | kEventCeBatch;
  const auto table = Plugin::table();
  TestHost<V6> host(table);
  host.play_copy_engine(host.init(1), 0, 8);
  EXPECT_EQ(Plugin::calls,
            "+GroupApi<nothing GroupApi=23() +CollApi<GroupApi -CollApi GroupApi=24() "
            "+CeColl<CollApi +CeSync<CeColl -CeSync +CeBatch<CeColl -CeBatch +CeSync<CeColl -CeSync -CeColl "
            "-GroupApi ");
}

TEST(TestHost, CanHideTheCommunicatorAsLaterReleasesDoFromAnOldPlugin) {
  const auto table = Witness<V3>::table();
  TestHost<V3> host(table);
  void* context = host.init(0xABCD, 16, 5, "dp");
  host.hide_identity();
  host.start(context, host.all_reduce(0, 1, 1));
  EXPECT_EQ(Witness<V3>::last_coll.coll.name, nullptr);
  EXPECT_EQ(Witness<V3>::last_coll.coll.commHash, 0u);
  EXPECT_EQ(Witness<V3>::last_coll.rank, 5);
}

template <typename Version>
class Host : public ::testing::Test {};
TYPED_TEST_SUITE(Host, AllVersions);

TYPED_TEST(Host, SendsNothingThatIsNotAskedFor) {
  EXPECT_EQ(calls_of_a_collective<TypeParam>(0), "");
  EXPECT_EQ(calls_of_a_collective<TypeParam>(kEventProxyCtrl), "");
  EXPECT_EQ(calls_of_a_collective<TypeParam>(kEventProxyStep).find("KernelCh"), std::string::npos);
}

TYPED_TEST(Host, SendsTheParentsOfWhatIsAskedFor) {
  const std::string calls = calls_of_a_collective<TypeParam>(kEventProxyStep);
  EXPECT_NE(calls.find("+Group<nothing "), std::string::npos) << calls;
  EXPECT_NE(calls.find("+ProxyOp<Coll "), std::string::npos) << calls;
  EXPECT_NE(calls.find("+ProxyStep<ProxyOp "), std::string::npos) << calls;
  EXPECT_EQ(calls.find("+CollApi<GroupApi ") != std::string::npos, TypeParam::kApiEvents) << calls;
}

TYPED_TEST(Host, NeverCallsWithTheHandleOfADeclinedEvent) {
  const std::string calls = calls_of_a_collective<TypeParam>(kEverything, kEverything);
  EXPECT_EQ(calls.find_first_of("-="), std::string::npos) << calls;
}

TYPED_TEST(Host, SendsNoCollectiveUnderADeclinedGroupBeforeVersion5) {
  const std::string calls = calls_of_a_collective<TypeParam>(kUsual, kEventGroup);
  EXPECT_EQ(calls.find("+Coll<") != std::string::npos, TypeParam::kApiEvents) << calls;
}

TYPED_TEST(Host, TellsWhichCommunicatorACollectiveBelongsToWhereTheVersionHasAPlaceForIt) {
  calls_of_a_collective<TypeParam>(kUsual);
  const auto& sent = Witness<TypeParam>::last_coll;
  EXPECT_EQ(sent.coll.seqNumber, 7u);
  EXPECT_EQ(sent.coll.count, 1u << 24);
  if constexpr (!TypeParam::kIdentityInInit) {
    EXPECT_EQ(sent.rank, 5);
    EXPECT_STREQ(sent.coll.name, "dp");
    EXPECT_EQ(sent.coll.commHash, 0xABCDu);
    EXPECT_EQ(sent.coll.nMaxChannels, 1);
  } else {
    EXPECT_EQ(sent.coll.nChannels, 1);
  }
  if constexpr (TypeParam::kNamesAreNumbers) {
    EXPECT_EQ(sent.coll.func, kFunctionV1AllReduce);
    EXPECT_EQ(sent.coll.datatype, kDatatypeV1Float32);
  } else {
    EXPECT_STREQ(sent.coll.func, "AllReduce");
    EXPECT_STREQ(sent.coll.datatype, "ncclFloat32");
  }
}

}  // namespace
}  // namespace lockstep::nccl
