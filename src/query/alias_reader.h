// Metrics under the names of other tools as well: asked for DCGM_FI_DEV_GPU_TEMP, it answers with what dcgm-exporter's
// scrapes stored and with what our own agents sent, in dcgm-exporter's labels and units; asked for
// hw_temperature_celsius, with our agents' series and with what came under dcgm-exporter's name. So dashboards made for
// other tools work on our agents untouched, and our pages on their exporters. The table: model/metric_aliases.h.
//
// Where a GPU (of NCCL Inspector: a node) has both, the series stored under the name that was asked for counts and the
// other is left out. For dcgm-exporter's names gpu, modelName, pci_bus_id, device and DCGM_FI_DRIVER_VERSION come from
// lockstep_gpu_info, and a series without `instance` has its host as that. A name is one that is asked for by equality,
// or by a regular expression that begins as one of others' (may_be_other_name()); all other questions go to the store as they are, at
// the cost of a look into a hash table. Lists of names have a name of others where a series of ours exists for it.
// Exemplars are the store's alone.
// Thread rule: Thread-safe, as the reader below.
#pragma once

#include "store/metric_reader.h"

namespace lockstep {

class AliasReader final : public MetricReader {
 public:
  explicit AliasReader(const MetricReader& store) : store_(store) {}

  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                  const SelectOptions& options) const override;
  Result<std::vector<std::string>> label_names(std::span<const std::vector<LabelMatcher>> any, int64_t from_ms,
                                               int64_t to_ms) const override;
  Result<std::vector<std::string>> label_values(std::string_view name, std::span<const std::vector<LabelMatcher>> any,
                                                int64_t from_ms, int64_t to_ms) const override;
  std::vector<MetricMetadata> metadata() const override;
  Result<std::vector<Exemplar>> exemplars(std::span<const LabelMatcher> matchers, int64_t from_ms,
                                          int64_t to_ms) const override {
    return store_.exemplars(matchers, from_ms, to_ms);
  }

 private:
  const MetricReader& store_;
};

}  // namespace lockstep
