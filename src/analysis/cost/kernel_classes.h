// What the MFU waterfall's one bar "kernels" is made of, by a kernel profile: the time of the job's kernels by what each
// is bound by, and by what it is for. Collectives are no part of it: they have bars of their own.
//
// The bar is split by time: how much of a kernel's own time is lost is known of few of them (where shapes are recorded).
//
// Thread rule: Thread-safe (pure functions; values are Immutable once made).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep {

inline constexpr size_t kKernelClassesMax = 32;  // of either list; what is more is in "other"

struct KernelClassShare {
  std::string name;   // "memory"; "matrix multiplication"
  std::string words;  // for people
  double share = 0;   // 0..1 of the time of all kernels but collectives
  bool operator==(const KernelClassShare&) const = default;
};

struct KernelClasses {
  double kernel_us = 0;  // of all ranks profiled
  int32_t ranks = 0;     // with kernels
  // Most first; each adds up to 1.
  std::vector<KernelClassShare> by_bound;
  std::vector<KernelClassShare> by_family;
  bool operator==(const KernelClasses&) const = default;
};

// Of a summary, exactly what `lockstep analyze --json` writes. It is made from traces that users write: every field is
// checked. kernel_us 0: it has no kernels (a job on CPUs).
Result<KernelClasses> kernel_classes_from_summary_untrusted(std::string_view summary_json);

}  // namespace lockstep
