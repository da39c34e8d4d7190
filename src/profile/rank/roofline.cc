#include "profile/rank/roofline.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "analysis/cost/gpu_peak.h"
#include "base/text.h"

namespace lockstep::profile {
namespace {

struct MemoryPeak {
  std::string_view part;  // of the device's name; the first that fits counts
  double bytes_per_s;
};
// Vendors' data sheets.
constexpr MemoryPeak kMemoryPeaks[] = {
    {"GB300", 8.0e12}, {"GB200", 8.0e12},      {"B300", 8.0e12},          {"B200", 8.0e12},
    {"H200", 4.8e12},  {"H100 NVL", 3.9e12},   {"H100 PCIe", 2.0e12},     {"H100", 3.35e12},
    {"H800", 3.35e12}, {"H20", 4.0e12},        {"A100-SXM4-80", 2.04e12}, {"A100 80GB PCIe", 1.94e12},
    {"A100", 1.56e12}, {"A800", 2.04e12},      {"L40S", 0.864e12},        {"NVIDIA L4", 0.3e12},
    {"A10G", 0.6e12},  {"NVIDIA A10", 0.6e12}, {"V100", 0.9e12},          {"MI355", 8.0e12},
    {"MI350", 8.0e12}, {"MI325", 6.0e12},      {"MI300", 5.3e12},         {"MI250", 3.2e12},
};

constexpr double kMemoryShareLeast = 0.3;  // of the peak: below it bytes alone do not explain a kernel's time

int bytes_of_type(std::string_view type) {
  if (type.find("BFloat16") != std::string_view::npos || type.find("Half") != std::string_view::npos) return 2;
  if (type.find("Float8") != std::string_view::npos || type == "signed char" || type == "unsigned char" ||
      type == "bool")
    return 1;
  if (type == "double" || type == "long int" || type == "long") return 8;
  if (type == "float" || type == "int") return 4;
  return 0;  // "Scalar", "ScalarList", ""
}

std::vector<std::string> parse_types(std::string_view json) {
  std::vector<std::string> types;
  for (size_t at = json.find('"'); at != std::string_view::npos;) {
    const size_t end = json.find('"', at + 1);
    if (end == std::string_view::npos) break;
    types.emplace_back(json.substr(at + 1, end - at - 1));
    at = json.find('"', end + 1);
  }
  return types;
}

double elements(const std::vector<int64_t>& dims) {
  if (dims.empty()) return 0;
  double product = 1;
  for (int64_t dim : dims) product *= static_cast<double>(dim);
  return product;
}

struct Gemm {
  double batch = 1, m = 0, n = 0, k = 0;
};
// a is [..., m, k], b is [..., k, n] (or [n, k] for linear).
std::optional<Gemm> gemm_of(const std::vector<int64_t>& a, const std::vector<int64_t>& b, bool is_linear) {
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  Gemm gemm;
  for (size_t i = 0; i + 2 < a.size(); ++i) gemm.batch *= static_cast<double>(a[i]);
  gemm.m = static_cast<double>(a[a.size() - 2]);
  gemm.k = static_cast<double>(a.back());
  gemm.n = static_cast<double>(is_linear ? b[b.size() - 2] : b.back());
  return gemm;
}

Precision precision_for_peak(const KernelTraits& traits, std::string_view types) {
  if (traits.precision != Precision::kUnknown) return traits.precision;
  if (types.find("BFloat16") != std::string_view::npos) return Precision::kBf16;
  if (types.find("Half") != std::string_view::npos) return Precision::kFp16;
  if (types.find("float") != std::string_view::npos) {
    return traits.tensor_cores == TensorCores::kYes ? Precision::kTf32 : Precision::kFp32;
  }
  return Precision::kUnknown;
}

}  // namespace

const char* to_text(Bound bound) {
  constexpr std::array<const char*, 6> kNames = {"unknown",   "compute", "memory",
                                                 "host link", "launch",  "communication"};
  return kNames[static_cast<size_t>(bound)];
}

std::optional<double> memory_peak(std::string_view device_name) {
  for (const MemoryPeak& peak : kMemoryPeaks) {
    if (device_name.find(peak.part) != std::string_view::npos) return peak.bytes_per_s;
  }
  return std::nullopt;
}

std::vector<std::vector<int64_t>> parse_dims(std::string_view json) {
  std::vector<std::vector<int64_t>> out;
  int depth = 0;
  std::vector<int64_t> inner;  // of a list of tensors
  double list_elements = 0;
  bool is_list = false, in_number = false;
  int64_t number = 0;
  for (const char c : json) {
    if (c >= '0' && c <= '9') {
      number = std::min<int64_t>(number * 10 + (c - '0'), int64_t{1} << 50);
      in_number = true;
      continue;
    }
    if (in_number) {
      (depth >= 3 ? inner : out.empty() ? inner : out.back()).push_back(number);
      in_number = false;
      number = 0;
    }
    if (c == '[') {
      ++depth;
      if (depth == 2) {
        out.emplace_back();
        is_list = false;
        list_elements = 0;
      }
      if (depth == 3) {
        is_list = true;
        inner.clear();
      }
    } else if (c == ']') {
      if (depth == 3) list_elements += elements(inner);
      if (depth == 2 && is_list) out.back() = {static_cast<int64_t>(std::min(list_elements, 1e15))};
      --depth;
    } else if (c == '"' || c == '\0') {
      continue;
    }
  }
  return out;
}

OpWork work_of(std::string_view op, std::string_view dims_json, std::string_view types_json) {
  OpWork work;
  const std::vector<std::vector<int64_t>> dims = parse_dims(dims_json);
  const std::vector<std::string> types = parse_types(types_json);
  const auto size_at = [&](size_t i) { return i < types.size() ? bytes_of_type(types[i]) : 0; };
  double largest = 0;
  int largest_size = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    const double bytes = elements(dims[i]) * size_at(i);
    work.bytes += bytes;
    if (bytes > largest) {
      largest = bytes;
      largest_size = size_at(i);
    }
  }
  std::optional<Gemm> gemm;
  if (op == "aten::mm" || op == "aten::bmm" || op == "aten::matmul") {
    if (dims.size() >= 2) gemm = gemm_of(dims[0], dims[1], false);
  } else if (op == "aten::addmm" || op == "aten::baddbmm" || op == "aten::_addmm_activation") {
    if (dims.size() >= 3) gemm = gemm_of(dims[1], dims[2], false);
  } else if (op == "aten::linear") {
    if (dims.size() >= 2) gemm = gemm_of(dims[0], dims[1], true);
  }
  if (gemm) {
    work.flops = 2 * gemm->batch * gemm->m * gemm->n * gemm->k;
    work.bytes += gemm->batch * gemm->m * gemm->n * largest_size;
    return work;
  }
  const bool is_attention =
      op.find("attention_forward") != std::string_view::npos ||
      (op.find("scaled_dot_product") != std::string_view::npos && op.find("backward") == std::string_view::npos);
  if (is_attention && dims.size() >= 2 && dims[0].size() == 4 && dims[1].size() == 4) {
    // Batch, heads, queries, width and batch, heads, keys, width; a mask is not known, so all of it counts.
    work.flops = 4 * elements(dims[0]) * static_cast<double>(dims[1][2]);
    work.bytes += largest;
    return work;
  }
  const bool shrinks = op.find("sum") != std::string_view::npos || op.find("mean") != std::string_view::npos ||
                       op.find("norm_") != std::string_view::npos;
  if (!shrinks) work.bytes += largest;
  return work;
}

namespace {

// The work of the operators whose longest kernel is of a row.
struct RowWork {
  OpWork sum;
  uint64_t calls = 0;
  uint32_t types = 0;  // of the last of them: a text
};

// The kernel that took longest, of those that an operator launched, by the operator's event.
std::map<uint32_t, size_t> longest_kernels(const RankIndex& index) {
  std::map<uint32_t, size_t> longest;
  for (size_t i = 0; i < index.activities.size(); ++i) {
    const Activity& activity = index.activities[i];
    if (activity.op == kNoEvent || activity.traits.kernel_class != KernelClass::kCompute) continue;
    auto [found, is_new] = longest.try_emplace(activity.op, i);
    if (!is_new && activity.duration_ns() > index.activities[found->second].duration_ns()) found->second = i;
  }
  return longest;
}

// An operator may launch several kernels; its work is that of the longest.
std::vector<RowWork> work_by_row(const RankIndex& index, const Breakdown& breakdown) {
  const TraceEvents& events = *index.events;
  std::map<std::pair<uint32_t, KernelClass>, size_t> row_of;
  for (size_t i = 0; i < breakdown.kernels.size(); ++i) {
    row_of[{breakdown.kernels[i].name, breakdown.kernels[i].traits.kernel_class}] = i;
  }
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, OpWork> known;
  std::vector<RowWork> rows(breakdown.kernels.size());
  for (const auto& [op_event, longest] : longest_kernels(index)) {
    const OpDetail* op = events.op(op_event);
    if (op == nullptr || op->dims == 0) continue;
    const Activity& activity = index.activities[longest];
    RowWork& row = rows[row_of[{events.name[activity.event], activity.traits.kernel_class}]];
    auto [work, is_new] = known.try_emplace({events.name[op_event], op->dims, op->types});
    if (is_new) work->second = work_of(events.name_of(op_event), events.texts[op->dims], events.texts[op->types]);
    row.sum.flops += work->second.flops;
    row.sum.bytes += work->second.bytes;
    row.types = op->types;
    ++row.calls;
  }
  return rows;
}

struct Device {
  std::string name;  // empty: the trace names none
  std::optional<double> memory;
};

double seconds_of(const KernelRow& row) {
  return static_cast<double>(row.sum_ns) * 1e-9;
}

// Copies and fills: their bytes are in the trace.
void bound_of_copies(const KernelRow& row, const std::string& name, const Device& device, Roofline& roof) {
  const auto is = [&](const char* way) { return name.find(way) != std::string::npos; };
  roof.bytes = static_cast<double>(row.bytes) * (is("DtoD") ? 2 : 1);
  roof.bound = is("HtoD") || is("DtoH") ? Bound::kHostLink : Bound::kMemory;
  const double seconds = seconds_of(row);
  if (roof.bound == Bound::kMemory && device.memory && seconds > 0)
    roof.share = std::min(1.0, roof.bytes / seconds / *device.memory);
}

// Kernels whose work follows from the shapes of their operators.
void bound_of_compute(const KernelRow& row, const RowWork& work, const std::string& types, const Device& device,
                      Roofline& roof) {
  if (device.name.empty()) {
    roof.why = "the trace names no device";
    return;
  }
  if (work.calls == 0) {
    roof.why = "no shapes in the trace (record_shapes)";
    return;
  }
  // Shapes of some calls stand for all of them.
  const double scale = static_cast<double>(row.count) / static_cast<double>(work.calls);
  roof.flops *= scale;
  roof.bytes *= scale;
  const Precision precision = precision_for_peak(row.traits, types);
  const std::optional<GpuPeak> peak = gpu_peak(device.name, to_text(precision));
  const double compute_s = roof.flops > 0 && peak ? roof.flops / peak->flops : 0;
  const double memory_s = device.memory ? roof.bytes / *device.memory : 0;
  const double seconds = seconds_of(row);
  if (!device.memory && compute_s == 0) {
    roof.why = "the device's peaks are not known";
  } else if (compute_s > 0 && compute_s >= memory_s) {
    roof.bound = Bound::kCompute;
    roof.share = seconds > 0 ? compute_s / seconds : -1;
  } else if (memory_s > 0 && seconds > 0 && (roof.flops > 0 || memory_s / seconds >= kMemoryShareLeast)) {
    roof.bound = Bound::kMemory;
    roof.share = memory_s / seconds;
  } else {
    roof.why = "its operator's shapes do not explain its time";
  }
  if (roof.share > 1) roof.share = 1;  // caches, and halves of masks
}

}  // namespace

std::vector<Roofline> rooflines(const RankIndex& index, const Breakdown& breakdown) {
  const TraceEvents& events = *index.events;
  const std::vector<RowWork> works = work_by_row(index, breakdown);
  Device device;
  if (!events.devices.empty()) device.name = events.devices.front().name;
  device.memory = memory_peak(device.name);
  std::vector<Roofline> out(breakdown.kernels.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const KernelRow& row = breakdown.kernels[i];
    Roofline& roof = out[i];
    roof.flops = works[i].sum.flops;
    roof.bytes = works[i].sum.bytes;
    if (row.traits.kernel_class == KernelClass::kCommunication) {
      roof.bound = Bound::kCommunication;
    } else if (row.launch_ns > row.sum_ns && row.from_graph == 0) {
      roof.bound = Bound::kLaunch;
    } else if (row.traits.kernel_class == KernelClass::kMemory) {
      bound_of_copies(row, events.texts[row.name], device, roof);
    } else {
      bound_of_compute(row, works[i], events.texts[works[i].types], device, roof);
    }
  }
  return out;
}

}  // namespace lockstep::profile
