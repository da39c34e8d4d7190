// The plugin's clock in tests: moves only when told.
//
// Thread rule: Confined.
#pragma once

#include <dlfcn.h>

#include <cstdint>

#include "plugin/nccl/test_host.h"
#include "recorder/test_process.h"

namespace lockstep::nccl {

inline uint64_t test_now = 1'000'000'000;
inline uint64_t test_clock() {
  return test_now;
}

template <typename Version>
void use_test_clock(const TestHost<Version>& host) {
  auto use_clock = reinterpret_cast<void (*)(uint64_t(*)())>(::dlsym(host.library(), "lockstep_use_clock"));
  CHILD_CHECK(use_clock != nullptr);
  use_clock(test_clock);
}

}  // namespace lockstep::nccl
