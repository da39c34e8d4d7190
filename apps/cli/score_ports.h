// The series of switch ports (lockstep_port_*) of a played fleet, as diagnosis reads them of lockstepd's store: by switch
// and port, the newest kSamplesMax of each. Nothing else is kept, and no other question is answered.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apply/subscriber.h"
#include "store/metric_reader.h"

namespace lockstep::cli {

class PortSeries final : public StoreSubscriber, public MetricReader {
 public:
  static constexpr size_t kSamplesMax = 64;

  bool hears_metric(std::string_view name) const override { return name.starts_with("lockstep_port_"); }
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) override;

  // Matchers: of switch and port.
  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                  const SelectOptions& options) const override;
  Result<std::vector<std::string>> label_names(std::span<const std::vector<LabelMatcher>>, int64_t,
                                               int64_t) const override {
    return std::vector<std::string>();
  }
  Result<std::vector<std::string>> label_values(std::string_view, std::span<const std::vector<LabelMatcher>>, int64_t,
                                                int64_t) const override {
    return std::vector<std::string>();
  }
  std::vector<MetricMetadata> metadata() const override { return {}; }
  Result<std::vector<Exemplar>> exemplars(std::span<const LabelMatcher>, int64_t, int64_t) const override {
    return std::vector<Exemplar>();
  }

 private:
  class Selection;
  struct Series {
    std::vector<LabelSymbols> labels;
    SampleColumns samples;
  };
  using Port = std::pair<std::string, std::string>;  // switch, port

  uint32_t symbol(std::string_view text);

  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, uint32_t> symbols_;
  using OfPort = std::map<std::string, Series>;  // by name and direction
  std::map<Port, OfPort> ports_;
  mutable std::map<std::string, std::vector<const OfPort*>> asked_;  // the ports that fit, by the question
};

}  // namespace lockstep::cli
