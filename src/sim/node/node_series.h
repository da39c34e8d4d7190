// What an agent does between reading a node and sending it, for a simulated node: the same rows (the agent's own
// tables), the same rounding, sent only when changed or not sent for two minutes, a sum with the moment it counts from,
// a series that is no longer read told once as ended (src/agent/node/node_series.h).
//
// A fleet has thousands of nodes that differ in numbers only, so the list of series is made once for each shape of a
// node and shared; a node keeps 24 bytes for each. The list is not written down apart: the first pass over a node's
// models notes which series they put, in which order; every later pass puts the same ones.
//
// Thread rule: NodeLayout Immutable once made, NodeSeriesTable Confined.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/metric_descriptor.h"
#include "model/telemetry.h"

namespace lockstep::sim {

// How often an agent reads it: every second, or every tenth.
enum class Pace : uint8_t { kFast, kSlow };
// kCore: what tells causes apart, sent of very large fleets too.
enum class Part : uint8_t { kCore, kRest };
// Labels that only the node knows (its jobs, its switch ports) are made when a point is sent.
enum class Own : uint8_t { kNothing, kJobInfo, kGpuInfo, kNicInfo, kJobEnergy };

// For put(): not read this time.
inline constexpr double kNotRead = std::numeric_limits<double>::quiet_NaN();

struct SeriesShape {
  const MetricDescriptor* metric = nullptr;
  int32_t gpu = -1;  // whose resource it is under; -1: the node's
  Attributes attributes;
  Pace pace = Pace::kFast;
  Own own = Own::kNothing;
};

struct NodeLayout {
  std::vector<SeriesShape> series;  // in the order in which the models put them
  std::vector<uint32_t> order;      // in which they are sent: by GPU, points of one metric together
};

using PutLabels = std::initializer_list<std::pair<const char*, std::string_view>>;

// One pass over the series of a node.
class NodeReadout {
 public:
  // Notes what is put.
  NodeReadout(NodeLayout& layout, bool all) : layout_(&layout), all_(all) {}
  // Takes the values of what is put.
  NodeReadout(std::vector<double>& values, bool all) : values_(&values), all_(all) {}

  void of_gpu(int32_t gpu) { gpu_ = gpu; }
  void of_node() { gpu_ = -1; }
  void put(const MetricDescriptor& metric, PutLabels labels, Pace pace, Part part, double value,
           Own own = Own::kNothing) {
    if (!all_ && part == Part::kRest) return;
    if (layout_ != nullptr) {
      note(metric, labels, pace, own);
    } else {
      (*values_)[at_++] = value;
    }
  }

 private:
  void note(const MetricDescriptor& metric, PutLabels labels, Pace pace, Own own);

  NodeLayout* layout_ = nullptr;
  std::vector<double>* values_ = nullptr;
  size_t at_ = 0;
  int32_t gpu_ = -1;
  bool all_ = true;
};
void sort_for_sending(NodeLayout& layout);

// What the node itself has to say when a point is sent.
class NodeLabels {
 public:
  virtual ~NodeLabels() = default;
  virtual const std::string& host() const = 0;
  virtual const std::string& gpu_uuid(int32_t gpu) const = 0;
  virtual void add_own(const SeriesShape& shape, Attributes& attributes) const = 0;
};

class NodeSeriesTable {
 public:
  explicit NodeSeriesTable(std::shared_ptr<const NodeLayout> layout);

  // For one pass of NodeReadout; lent to all nodes of a thread in turn, so take() comes before the next node's pass.
  std::vector<double>& values();
  // One that is not in the layout because it is there only once something happened. value: as it is now.
  void set_further(const MetricDescriptor& metric, int32_t gpu, Attributes attributes, double value);
  // Tells everything anew, as if never told (a GPU got another name).
  void forget(int32_t gpu);
  // The labels of such a row are about to change: it ends under the old ones, with the next take().
  void end(Own own, int32_t gpu, Attributes old_attributes);

  // Adds what is due. slow: rows of Pace::kSlow were read too.
  void take(std::span<const double> values, int64_t at_unix_ns, bool slow, const NodeLabels& labels, Batch& out);

 private:
  // Moments are hundredths of a second since the first take(): they reach 248 days.
  using Moment = int32_t;
  struct Reported {
    double value = 0;
    Moment at = kNever;
    Moment read = 0;
    Moment since = 0;
  };
  struct Further {
    SeriesShape shape;
    double value = 0;
    Reported reported;
  };
  struct Ended {
    const SeriesShape* shape;
    Attributes attributes;
    Moment since;
  };
  static constexpr Moment kNever = std::numeric_limits<Moment>::min();
  bool due(const MetricDescriptor& metric, double& value, Moment now, Reported& reported) const;
  int64_t unix_ns(Moment moment) const;

  std::shared_ptr<const NodeLayout> layout_;
  std::vector<Reported> reported_;
  std::vector<Further> further_;
  std::vector<Ended> ended_;
  int64_t first_ns_ = 0;
  Moment stagger_ = 0;
};

}  // namespace lockstep::sim
