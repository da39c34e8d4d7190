// What bounds a kernel: the arithmetic units, the device's memory, the link to the host, or its own launch.
//
// From the shapes of the operator that launched it, where the trace has them (record_shapes): FLOPs and bytes against
// the device's peaks; whichever would take longer at its peak is the bound, and `share` how much of that peak was
// reached. Else from the bytes a copy reports. A kernel that is shorter than the call that launched it is launch bound
// whatever it does. Where nothing of that is there, or the device is not in the tables, the bound is unknown.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/rank/breakdown.h"

namespace lockstep::profile {

enum class Bound : uint8_t { kUnknown, kCompute, kMemory, kHostLink, kLaunch, kCommunication };
const char* to_text(Bound bound);

struct Roofline {
  Bound bound = Bound::kUnknown;
  double flops = 0;      // of all calls; 0: not known
  double bytes = 0;      // of all calls; 0: not known
  double share = -1;     // of the peak that bounds it, 0 to 1; negative: not known
  const char* why = "";  // of an unknown bound
};

// One per row of the breakdown.
std::vector<Roofline> rooflines(const RankIndex& index, const Breakdown& breakdown);

// Bytes per second of a device's memory by its name; nullopt: not in the table.
std::optional<double> memory_peak(std::string_view device_name);

// "[[2,3],[3,4],[]]": what an operator was given. A list of tensors is one entry of all their elements.
std::vector<std::vector<int64_t>> parse_dims(std::string_view json);

struct OpWork {
  double flops = 0;  // 0: not known
  double bytes = 0;
};
OpWork work_of(std::string_view op, std::string_view dims, std::string_view types);

}  // namespace lockstep::profile
