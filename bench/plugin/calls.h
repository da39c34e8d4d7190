// The kinds of calls that are told apart: one row each in the report.
//
// Thread rule: Immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugin/nccl/profiler_abi.h"

namespace lockstep::plugin_bench {

enum class Verb : uint8_t { kStart, kState, kStop };

enum class CallRow : uint8_t {
  kGroupApiStart,
  kGroupApiState,
  kGroupApiStop,
  kCollApiStart,
  kCollApiStop,
  kKernelLaunchStart,
  kKernelLaunchStop,
  kGroupStart,
  kGroupStop,
  kCollStart,
  kCollStop,
  kProxyOpStart,
  kProxyOpState,
  kProxyOpStop,
  kProxyStepStart,
  kProxyStepState,
  kProxyStepRepeat,
  kProxyStepStop,
  kKernelChStart,
  kKernelChState,
  kKernelChStop,
  kOther,  // point to point, and what only a recording has
};
inline constexpr size_t kCallRows = static_cast<size_t>(CallRow::kOther) + 1;

inline constexpr const char* kCallRowNames[kCallRows] = {"GroupApi start",
                                                         "GroupApi state",
                                                         "GroupApi stop",
                                                         "CollApi start",
                                                         "CollApi stop",
                                                         "KernelLaunch start",
                                                         "KernelLaunch stop",
                                                         "Group start",
                                                         "Group stop",
                                                         "Coll start",
                                                         "Coll stop",
                                                         "ProxyOp start",
                                                         "ProxyOp state",
                                                         "ProxyOp stop",
                                                         "ProxyStep start",
                                                         "ProxyStep state",
                                                         "ProxyStep state again",
                                                         "ProxyStep stop",
                                                         "KernelCh start",
                                                         "KernelCh state",
                                                         "KernelCh stop",
                                                         "other"};

// repeat: the event is in that state already (NCCL says so at every poll).
inline CallRow row_of(uint64_t type, Verb verb, bool repeat = false) {
  const auto from = [verb](CallRow start, bool has_state) {
    const int offset = verb == Verb::kStart ? 0 : verb == Verb::kState ? 1 : has_state ? 2 : 1;
    return static_cast<CallRow>(static_cast<int>(start) + offset);
  };
  switch (type) {
    case nccl::kEventGroupApi:
      return from(CallRow::kGroupApiStart, true);
    case nccl::kEventCollApi:
      return from(CallRow::kCollApiStart, false);
    case nccl::kEventKernelLaunch:
      return from(CallRow::kKernelLaunchStart, false);
    case nccl::kEventGroup:
      return from(CallRow::kGroupStart, false);
    case nccl::kEventColl:
      return from(CallRow::kCollStart, false);
    case nccl::kEventProxyOp:
      return from(CallRow::kProxyOpStart, true);
    case nccl::kEventProxyStep:
      if (repeat) return CallRow::kProxyStepRepeat;
      return verb == Verb::kStop ? CallRow::kProxyStepStop : from(CallRow::kProxyStepStart, true);
    case nccl::kEventKernelCh:
      return from(CallRow::kKernelChStart, true);
    default:
      return CallRow::kOther;
  }
}

}  // namespace lockstep::plugin_bench
