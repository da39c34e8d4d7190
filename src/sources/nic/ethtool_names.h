// What the statistics that `ethtool -S` shows mean: from a driver's names to rows and labels. Names of mlx5, bnxt_en
// and ice; others have no meaning here, and there are thousands (one per queue).
//
// Thread rule: Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/metric_descriptor.h"

namespace lockstep {

struct EthtoolMeaning {
  const MetricDescriptor* metric = nullptr;
  Labels labels;      // besides the device
  double scale = 1;   // of the value
  int priority = -1;  // 0-7 for a statistic of one priority
};

std::optional<EthtoolMeaning> ethtool_meaning(std::string_view statistic);

}  // namespace lockstep
