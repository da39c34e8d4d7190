// The closed list of causes (docs/guide/verdicts.md): what a verdict may name, and what a person may say it was
// instead.
//
// Thread rule: Immutable.
#pragma once

#include <algorithm>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kCauses[] = {
    "throttle-thermal",
    "throttle-power",
    "ecc",
    "xid",
    "foreign-process",
    "slow-compute",
    "pcie-degraded",
    "cpu-contention",
    "memory-pressure",
    "process-paused",
    "gc",
    "data-loader",
    "storage",
    "checkpoint",
    "nvlink-degraded",
    "nic-degraded",
    "link-flap",
    "congestion",
    "pfc-storm",
    "tcp-fallback",
    "stage-imbalance",
    "expert-imbalance",
    "rank-missing",
    "sequence-imbalance",
    "op-mismatch",
    "deadlock",
    "rank-dead",
    "code-regression",
    "nan-source",
    "in-operation-stall",
    "loss-spike",
};

constexpr bool is_cause(std::string_view word) {
  return std::find(std::begin(kCauses), std::end(kCauses), word) != std::end(kCauses);
}

}  // namespace lockstep
