// Snapshots of the GPUs as readings of the node: what the vendors' libraries said, labelled, plus lockstep_gpu_info.
//
// A label set is made once for each GPU and label, and kept while the GPU is there.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "sources/gpu/gpu_reader.h"
#include "sources/node_source.h"

namespace lockstep {

class GpuReadings {
 public:
  // Adds the values of all GPUs, and the snapshot's notes. Its events are not for here: they go on in Tick::gpu_events.
  void add(const GpuSnapshot& snapshot, NodeReadings& out);

 private:
  struct Known {
    GpuInfo info;
    LabelSet info_labels;
    LabelSet plain;  // gpu_uuid alone
    // By the label's name, as it stands in the row (one per name of a metric), and its value.
    std::map<const char*, std::map<std::string, LabelSet, std::less<>>> labelled;
    uint64_t seen = 0;  // in which snapshot, last
  };
  const LabelSet& labels_of(Known& known, const GpuValue& value);
  std::map<std::string, Known> known_;  // by uuid
  uint64_t snapshots_ = 0;
};

// "gpu_uuid, link" -> "link"; "" where there is no second label.
std::string_view second_label(std::string_view labels);

}  // namespace lockstep
