// One type per version of the interface, for code that is written once and instantiated for each: the plugin's
// adapters, the chain to a second plugin and the test host.
//
// Thread rule: Immutable (constants).
#pragma once

#include "plugin/nccl/abi/v1.h"
#include "plugin/nccl/abi/v2.h"
#include "plugin/nccl/abi/v3.h"
#include "plugin/nccl/abi/v4.h"
#include "plugin/nccl/abi/v5.h"
#include "plugin/nccl/abi/v6.h"
#include "plugin/nccl/abi/v7.h"

namespace lockstep::nccl {

template <int kVersion, typename ProfilerType, typename DescriptorType, typename StateArgsType>
struct Interface {
  static constexpr int kNumber = kVersion;
  using Profiler = ProfilerType;
  using Descriptor = DescriptorType;
  using StateArgs = StateArgsType;

  static constexpr bool kNamesAreNumbers = kVersion == 1;
  static constexpr bool kKernelEvents = kVersion >= 3;    // KernelCh, and NetPlugin with it
  static constexpr bool kIdentityInInit = kVersion >= 4;  // before: name and commHash in coll and p2p
  static constexpr bool kGpuTimes = kVersion >= 4;        // kernelCh.pTimer, and state 22 with the stop time
  static constexpr bool kApiEvents = kVersion >= 5;       // and parentGroup in coll and p2p
  static constexpr bool kCopyEngine = kVersion >= 6;
  static constexpr bool kKernelPhase = kVersion >= 7;  // and userTag, kernelVariant, isSymColl

  // Every event bit this version knows.
  static constexpr uint64_t kEvents = kKernelPhase    ? 0xFFFF
                                      : kCopyEngine   ? 0x7FFF
                                      : kApiEvents    ? 0x0FFF
                                      : kKernelEvents ? 0x00FF
                                                      : 0x003F;
};

struct V1 : Interface<1, ProfilerV1, EventDescrV1, EventStateArgsV1> {
  static constexpr const char* kSymbol = kSymbolV1;
};
struct V2 : Interface<2, ProfilerV2, EventDescrV2, EventStateArgsV2> {
  static constexpr const char* kSymbol = kSymbolV2;
};
struct V3 : Interface<3, ProfilerV3, EventDescrV3, EventStateArgsV3> {
  static constexpr const char* kSymbol = kSymbolV3;
};
struct V4 : Interface<4, ProfilerV4, EventDescrV4, EventStateArgs> {
  static constexpr const char* kSymbol = kSymbolV4;
};
struct V5 : Interface<5, ProfilerV5, EventDescrV5, EventStateArgs> {
  static constexpr const char* kSymbol = kSymbolV5;
};
struct V6 : Interface<6, ProfilerV6, EventDescrV6, EventStateArgs> {
  static constexpr const char* kSymbol = kSymbolV6;
};
struct V7 : Interface<7, ProfilerV7, EventDescrV7, EventStateArgs> {
  static constexpr const char* kSymbol = kSymbolV7;
};

}  // namespace lockstep::nccl
