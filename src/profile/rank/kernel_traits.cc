#include "profile/rank/kernel_traits.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace lockstep::profile {
namespace {

bool has(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}
bool has_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return has(name, part); });
}

bool is_communication(std::string_view name) {
  return name.starts_with("nccl") || name.starts_with("rccl") || name.starts_with("hccl") ||
         name.starts_with("gloo:") ||
         has_any(name,
                 {"ncclKernel", "ncclDevKernel", "rcclKernel", "nvshmem", "cross_device_reduce", "one_shot_all_reduce",
                  "two_shot_all_reduce", "multimem_all_reduce", "mscclKernel", "msccl::", "deep_ep::"});
}

KernelFamily family_of(std::string_view name) {
  if (has_any(name, {"fmha", "flash_fwd", "flash_bwd", "flash::", "flashattn", "FlashAttn", "attention", "Attention",
                     "sdpa"}))
    return KernelFamily::kAttention;
  if (has_any(name,
              {"conv2d", "convolve", "wgrad", "dgrad", "Conv", "conv_", "_fprop", "winograd", "miopenSp3AsmConv"}))
    return KernelFamily::kConvolution;
  if (has_any(name, {"gemm", "Gemm", "GEMM", "nvjet", "Cijk_", "cutlass", "splitK", "matmul", "_mm_", "gemv"}))
    return KernelFamily::kGemm;
  if (has_any(name, {"multi_tensor_apply", "adam", "Adam", "sgd_", "lamb_"})) return KernelFamily::kOptimizer;
  if (has_any(name,
              {"direct_copy_kernel", "copy_kernel", "CatArrayBatchedCopy", "transpose", "Transpose", "aten::copy_",
               "aten::_to_copy", "aten::contiguous", "aten::clone", "permute", "nchwToNhwc", "nhwcToNchw"}))
    return KernelFamily::kCopy;
  if (has_any(name, {"layer_norm", "LayerNorm", "batch_norm", "bn_fw", "bn_bw", "RMSNorm", "rms_norm", "group_norm"}))
    return KernelFamily::kNormalization;
  if (has_any(name, {"reduce_kernel", "reduce_", "softmax", "Softmax", "SoftMax", "welford"}))
    return KernelFamily::kReduction;
  if (has_any(name, {"elementwise_kernel", "vectorized_elementwise", "pointwise", "triton_poi"}))
    return KernelFamily::kElementwise;
  if (has_any(name, {"triton_red", "triton_per"})) return KernelFamily::kReduction;
  return KernelFamily::kOther;
}

// nvjet_tst_128x256_...: a letter each for the operands and the result.
Precision nvjet_precision(std::string_view name) {
  size_t at = name.find("nvjet_") + 6;
  if (name.substr(at).starts_with("sm")) at = std::min(name.find('_', at), name.size() - 1) + 1;
  switch (at < name.size() ? name[at] : '\0') {
    case 'h':
      return Precision::kFp16;
    case 't':
      return Precision::kBf16;
    case 'q':
    case 'r':
      return Precision::kFp8;
    case 's':
      return Precision::kTf32;  // these kernels are for tensor cores alone
    case 'd':
      return Precision::kFp64;
    default:
      return Precision::kUnknown;
  }
}

Precision precision_of(std::string_view name) {
  if (has(name, "nvjet_")) return nvjet_precision(name);
  if (has_any(name, {"e4m3", "e5m2", "fp8", "float8"})) return Precision::kFp8;
  if (has_any(name, {"bf16", "bfloat16", "BFloat16"})) return Precision::kBf16;
  if (has_any(name, {"tf32"})) return Precision::kTf32;
  if (has_any(name, {"fp16", "_f16", "f16f16", "h884", "h1688", "h16816", "s884gemm", "hgemm", "half", "Half"}))
    return Precision::kFp16;
  if (has(name, "Cijk_")) {  // Tensile: type letters after the index letters
    if (has_any(name, {"_BBS_", "_BSS_", "_B_"})) return Precision::kBf16;
    if (has_any(name, {"_HHS_", "_HSS_", "_HB_", "_H_"})) return Precision::kFp16;
    if (has_any(name, {"_SB_", "_S_"})) return Precision::kFp32;
    if (has_any(name, {"_DB_", "_D_"})) return Precision::kFp64;
  }
  if (has_any(name, {"dgemm", "d884gemm", "f64f64"})) return Precision::kFp64;
  if (has_any(name, {"sgemm", "f32f32_f32f32", "simt_s", "gemmk1_kernel<float", "gemvNSP_kernel<float"}))
    return Precision::kFp32;
  return Precision::kUnknown;
}

TensorCores tensor_cores_of(std::string_view name, Precision precision) {
  if (has_any(name, {"simt", "sgemm", "dgemm", "f32f32_f32f32"})) return TensorCores::kNo;
  if (has_any(name, {"tensorop", "wmma", "nvjet", "wgmma", "s884", "h884", "s1688", "h1688", "s16816", "h16816",
                     "i16832", "d884", "mma_", "_MI", "gmma"}))
    return TensorCores::kYes;
  if (precision == Precision::kTf32 || precision == Precision::kFp8) return TensorCores::kYes;
  return TensorCores::kUnknown;
}

// "..._tn_align8": CUTLASS and cuBLAS say for how many elements the operands have to be aligned.
int alignment_of(std::string_view name) {
  const size_t at = name.find("align");
  if (at == std::string_view::npos || at + 5 >= name.size()) return 0;
  int value = 0;
  for (size_t i = at + 5; i < name.size() && name[i] >= '0' && name[i] <= '9' && value < 1000; ++i) {
    value = value * 10 + (name[i] - '0');
  }
  return value;
}

}  // namespace

const char* to_text(KernelClass value) {
  constexpr std::array<const char*, kKernelClasses> kNames = {"computation", "communication", "memory"};
  return kNames[static_cast<size_t>(value)];
}
const char* to_text(KernelFamily value) {
  constexpr std::array<const char*, 11> kNames = {"matrix multiplication",
                                                  "attention",
                                                  "convolution",
                                                  "normalization",
                                                  "elementwise",
                                                  "reduction",
                                                  "copy",
                                                  "memset",
                                                  "optimizer",
                                                  "collective",
                                                  "other"};
  return kNames[static_cast<size_t>(value)];
}
const char* to_text(Precision value) {
  constexpr std::array<const char*, 7> kNames = {"unknown", "fp64", "fp32", "tf32", "fp16", "bf16", "fp8"};
  return kNames[static_cast<size_t>(value)];
}
int bits_of(Precision value) {
  constexpr std::array<int, 7> kBits = {0, 64, 32, 19, 16, 16, 8};
  return kBits[static_cast<size_t>(value)];
}

KernelTraits kernel_traits(std::string_view name, EventKind kind) {
  KernelTraits traits;
  const bool is_copy = kind == EventKind::kMemcpy || name.starts_with("Memcpy") || name.starts_with("hipMemcpy") ||
                       name.starts_with("dma") || has(name, "amd_rocclr_copyBuffer");
  const bool is_memset = kind == EventKind::kMemset || name.starts_with("Memset") || name.starts_with("hipMemset") ||
                         has(name, "amd_rocclr_fillBuffer");
  if (is_copy || is_memset) {
    traits.kernel_class = KernelClass::kMemory;
    traits.family = is_copy ? KernelFamily::kCopy : KernelFamily::kMemset;
    return traits;
  }
  if (is_communication(name)) {
    traits.kernel_class = KernelClass::kCommunication;
    traits.family = KernelFamily::kCollective;
    return traits;
  }
  traits.family = family_of(name);
  traits.precision = precision_of(name);
  traits.tensor_cores = tensor_cores_of(name, traits.precision);
  traits.alignment = alignment_of(name);
  return traits;
}

std::string short_kernel_name(std::string_view name) {
  if (name.starts_with("Memcpy") || name.starts_with("Memset") || name.starts_with("void at::native::(anonymous")) {
    if (!name.starts_with("void")) return std::string(name);
  }
  // What matters of a CUTLASS kernel is its argument: cutlass::Kernel2<cutlass_80_wmma_..._align8>.
  const size_t open = name.find('<');
  const std::string_view head = name.substr(0, open);
  if (open != std::string_view::npos && (head.ends_with("cutlass::Kernel") || head.ends_with("cutlass::Kernel2"))) {
    return short_kernel_name(name.substr(open + 1, name.find_first_of(",>(", open + 1) - open - 1));
  }
  std::string out;
  int depth = 0;
  for (const char c : name) {
    if (c == '<' || c == '(') ++depth;
    if (depth == 0) out.push_back(c);
    if ((c == '>' || c == ')') && depth > 0) --depth;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  if (name.starts_with("void ")) out.erase(0, std::min<size_t>(5, out.size()));
  const size_t scope = out.rfind("::");
  if (scope != std::string::npos && !name.starts_with("aten::") && !name.starts_with("autograd::") &&
      scope + 2 < out.size()) {
    out.erase(0, scope + 2);
  }
  // PyTorch's elementwise kernels differ in what they apply.
  for (const std::string_view functor :
       {"direct_copy_kernel_cuda", "FillFunctor", "MulFunctor", "AddFunctor", "CUDAFunctor_add", "FusedAdam",
        "sum_functor", "MeanOps", "gelu", "silu", "threshold", "neg_kernel"}) {
    if (out != functor && has(name, functor)) return out + " (" + std::string(functor) + ")";
  }
  return out.empty() ? std::string(name) : out;
}

}  // namespace lockstep::profile
