// How far two devices are from each other on PCIe: as NCCL numbers such paths, as `nvidia-smi topo` names them.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>

namespace lockstep {

struct PciePath {
  uint8_t nccl_number;
  const char* name;
};
// The nearest first. NCCL takes a NUMA node for one CPU, so that NODE is PHB there: the first name of a number is what is
// written for it.
inline constexpr PciePath kPciePaths[] = {{4, "PIX"}, {5, "PXB"}, {8, "PHB"}, {8, "NODE"}, {9, "SYS"}};

}  // namespace lockstep
