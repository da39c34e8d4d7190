// What a kernel's name says of it: its class as HTA has it (computation, communication, memory), its family, the
// precision it computes in, whether tensor cores do it, and for which alignment of its operands it was made.
//
// Names are those of cuBLAS, cuDNN, CUTLASS, PyTorch, Triton, NCCL and RCCL, hipBLASLt (Tensile). What a name does not
// say is unknown, not guessed.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "profile/read/trace_events.h"

namespace lockstep::profile {

enum class KernelClass : uint8_t { kCompute, kCommunication, kMemory };
inline constexpr size_t kKernelClasses = 3;
const char* to_text(KernelClass value);  // "computation", "communication", "memory"

enum class KernelFamily : uint8_t {
  kGemm,
  kAttention,
  kConvolution,
  kNormalization,
  kElementwise,
  kReduction,
  kCopy,  // copies by kernels, and memcpy
  kMemset,
  kOptimizer,
  kCollective,
  kOther,
};
const char* to_text(KernelFamily value);

enum class Precision : uint8_t { kUnknown, kFp64, kFp32, kTf32, kFp16, kBf16, kFp8 };
const char* to_text(Precision value);  // "fp32", as python/lockstep/peak_flops.csv has them; "unknown"
int bits_of(Precision value);          // 0: unknown

enum class TensorCores : uint8_t { kUnknown, kNo, kYes };

struct KernelTraits {
  KernelClass kernel_class = KernelClass::kCompute;
  KernelFamily family = KernelFamily::kOther;
  Precision precision = Precision::kUnknown;
  TensorCores tensor_cores = TensorCores::kUnknown;
  int alignment = 0;  // elements; 0: not said
};

KernelTraits kernel_traits(std::string_view name, EventKind kind);

// The part of a kernel's name that people say: without template and call arguments and namespaces.
std::string short_kernel_name(std::string_view name);

}  // namespace lockstep::profile
