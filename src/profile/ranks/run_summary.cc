#include "profile/ranks/run_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/median.h"
#include "base/text.h"
#include "profile/rank/host_time.h"
#include "profile/rank/roofline.h"

namespace lockstep::profile {
namespace {

template <typename Value>
double middle_of(const ProfileAnalysis& analysis, Value value) {
  std::vector<double> values;
  for (const RankProfile& rank : analysis.ranks) values.push_back(static_cast<double>(value(rank)));
  return median_or_zero(std::move(values));
}

// How far single steps lie from the middle one, as a standard deviation of the middle.
double step_noise(const ProfileAnalysis& analysis) {
  std::vector<double> distances;
  for (const RankProfile& rank : analysis.ranks) {
    const auto middle = static_cast<double>(rank.step_ns());
    for (const ProfileStep& step : rank.index.steps) {
      distances.push_back(std::fabs(static_cast<double>(step.end_ns - step.start_ns) - middle));
    }
  }
  if (distances.size() < 2) return 0;
  const double steps = middle_of(analysis, [](const RankProfile& rank) { return rank.steps(); });
  return 1.48 * 1.25 * median_or_zero(distances) / std::sqrt(std::max(1.0, steps));
}

// As it is kept and shown: one line of UTF-8, whatever a trace has.
std::string cut(std::string_view text, size_t bytes_max) {
  std::string line = as_one_line(utf8_prefix(text, bytes_max));
  if (is_utf8(line)) return line;
  for (size_t at = 0; at < line.size();) {
    const size_t length = utf8_length(line, at);
    if (length == 0) line[at] = '?';
    at += std::max<size_t>(1, length);
  }
  return line;
}

// Of a trace without a GPU it is the activity itself.
uint32_t operator_of(const Activity& activity) {
  return activity.op == kNoEvent ? activity.event : activity.op;
}

// What a kernel worked on; 0: not recorded. Texts of the trace have numbers, those of collectives are made here.
class ShapeTexts {
 public:
  explicit ShapeTexts(const TraceEvents& events) : events_(events) {}

  uint64_t of(const Activity& activity) {
    if (const CollectiveDetail* collective = events_.collective(activity.event);
        collective != nullptr && collective->elements_in >= 0) {
      const std::string& type = events_.texts[collective->dtype];
      auto [found, is_new] = sizes_.try_emplace({collective->elements_in, collective->dtype}, made_.size());
      if (is_new) {
        made_.push_back(format("%lld x %s", static_cast<long long>(collective->elements_in),
                               type.empty() ? "elements" : cut(type, 40).c_str()));
      }
      return kMade | found->second;
    }
    const OpDetail* op = events_.op(operator_of(activity));
    return op == nullptr ? 0 : op->dims;
  }
  std::string text(uint64_t shape) const {
    if ((shape & kMade) != 0) return made_[shape & ~kMade];
    return cut(events_.texts[static_cast<uint32_t>(shape)], kShapeBytesMax);
  }

 private:
  static constexpr uint64_t kMade = 1ull << 32;
  const TraceEvents& events_;
  std::map<std::pair<int64_t, uint32_t>, uint64_t> sizes_;
  std::vector<std::string> made_;
};

struct Sums {
  std::vector<double> ns, count;  // of each rank that has it
  void add(double more_ns, double more_count) {
    ns.push_back(more_ns);
    count.push_back(more_count);
  }
  // Over all ranks: one that has none of it counts as 0.
  static double middle(std::vector<double> values, size_t ranks) {
    values.resize(std::max(ranks, values.size()), 0);
    return median_or_zero(std::move(values));
  }
};

struct KernelSums {
  Sums all;
  std::string op;
  KernelClass kernel_class = KernelClass::kCompute;
  std::map<std::string, Sums> shapes;
};

struct Time {
  double ns = 0;
  double count = 0;
};

using KernelTable = std::unordered_map<std::string, KernelSums>;

void add_shapes(const RankProfile& rank, KernelTable& kernels) {
  const TraceEvents& events = *rank.events;
  ShapeTexts texts(events);
  std::unordered_map<uint32_t, std::unordered_map<uint64_t, Time>> by_name;
  for (const Activity& activity : rank.index.activities) {
    Time& time = by_name[events.name[activity.event]][texts.of(activity)];
    time.ns += static_cast<double>(activity.duration_ns());
    ++time.count;
  }
  for (const auto& [name, shapes] : by_name) {
    if (shapes.size() == 1 && shapes.begin()->first == 0) continue;
    KernelSums& kernel = kernels[cut(events.texts[name], kNameBytesMax)];
    std::map<std::string, Time> by_text;  // texts that were cut may be the same
    for (const auto& [shape, time] : shapes) {
      Time& sum = by_text[texts.text(shape)];
      sum.ns += time.ns;
      sum.count += time.count;
    }
    for (const auto& [text, time] : by_text) kernel.shapes[text].add(time.ns / rank.steps(), time.count / rank.steps());
  }
}

void add_kernels(const RankProfile& rank, KernelTable& kernels) {
  std::unordered_map<std::string, Time> by_name;  // a name may be of several classes
  for (const KernelRow& row : rank.breakdown.kernels) {
    const std::string name = cut(rank.events->texts[row.name], kNameBytesMax);
    Time& time = by_name[name];
    time.ns += static_cast<double>(row.sum_ns);
    time.count += static_cast<double>(row.count);
    KernelSums& kernel = kernels[name];
    kernel.kernel_class = row.traits.kernel_class;
    if (row.op != 0) kernel.op = cut(rank.events->texts[row.op], kNameBytesMax);
  }
  for (const auto& [name, time] : by_name) kernels[name].all.add(time.ns / rank.steps(), time.count / rank.steps());
}

template <typename Row>
void sort_longest_first(std::vector<Row>& rows, std::string Row::*name) {
  std::sort(rows.begin(), rows.end(),
            [name](const Row& a, const Row& b) { return a.ns != b.ns ? a.ns > b.ns : a.*name < b.*name; });
}

std::vector<ShapeTime> shapes_of(const KernelSums& kernel, size_t ranks) {
  std::vector<ShapeTime> shapes;
  for (const auto& [text, sums] : kernel.shapes) {
    ShapeTime one{text, Sums::middle(sums.ns, ranks), Sums::middle(sums.count, ranks)};
    if (one.ns > 0 || one.count > 0) shapes.push_back(std::move(one));
  }
  sort_longest_first(shapes, &ShapeTime::shape);
  if (shapes.size() <= kShapesMax) return shapes;
  ShapeTime others{.shape = std::string(kOtherShapes)};
  for (size_t i = kShapesMax - 1; i < shapes.size(); ++i) {
    others.ns += shapes[i].ns;
    others.count += shapes[i].count;
  }
  shapes.resize(kShapesMax - 1);
  shapes.push_back(std::move(others));
  return shapes;
}

void add_kernels(const ProfileAnalysis& analysis, RunSummary& out) {
  KernelTable kernels;
  for (const RankProfile& rank : analysis.ranks) {
    add_kernels(rank, kernels);
    add_shapes(rank, kernels);
  }
  const size_t ranks = analysis.ranks.size();
  for (auto& [name, sums] : kernels) {
    KernelTime one{.name = name, .op = sums.op, .kernel_class = sums.kernel_class};
    one.ns = Sums::middle(sums.all.ns, ranks);
    one.count = Sums::middle(sums.all.count, ranks);
    if (one.ns <= 0 && one.count <= 0) continue;
    one.shapes = shapes_of(sums, ranks);
    out.kernels.push_back(std::move(one));
  }
  sort_longest_first(out.kernels, &KernelTime::name);
  if (out.kernels.size() <= kKernelsMax) return;
  out.kernels_left_out = out.kernels.size() - kKernelsMax;
  out.kernels.resize(kKernelsMax);
}

GapCause cause_of(const GapRow& gap) {
  if (gap.is_data_loading) return GapCause::kDataLoading;
  return gap.what == kGapBetweenKernels ? GapCause::kBetweenKernels : GapCause::kHost;
}

void add_gaps(const ProfileAnalysis& analysis, RunSummary& out) {
  std::map<std::string, GapTime> gaps;
  for (const RankProfile& rank : analysis.ranks) {
    const double share = 1 / rank.steps() / static_cast<double>(analysis.ranks.size());
    for (const GapRow& gap : rank.breakdown.gaps) {
      GapTime& one = gaps[cut(gap.what, kNameBytesMax)];
      one.cause = cause_of(gap);
      one.ns += static_cast<double>(gap.sum_ns) * share;
      one.count += static_cast<double>(gap.count) * share;
    }
  }
  for (auto& [what, gap] : gaps) {
    gap.what = what;
    out.gaps.push_back(std::move(gap));
  }
  sort_longest_first(out.gaps, &GapTime::what);
  if (out.gaps.size() > kGapsMax) out.gaps.resize(kGapsMax);
}

void add_work(const RankProfile& rank, double share, std::map<std::string, OperatorWork>& operators) {
  const TraceEvents& events = *rank.events;
  std::unordered_set<uint32_t> counted;  // an operator may launch several kernels
  std::unordered_map<uint32_t, std::pair<OperatorWork*, std::unordered_map<uint64_t, OpWork>>> by_name;
  for (const Activity& activity : rank.index.activities) {
    if (activity.traits.kernel_class != KernelClass::kCompute) continue;
    const uint32_t event = operator_of(activity);
    const OpDetail* op = events.op(event);
    if (op == nullptr || op->dims == 0 || !counted.insert(event).second) continue;
    auto& [sum, known] = by_name[events.name[event]];
    if (sum == nullptr) sum = &operators[cut(events.name_of(event), kNameBytesMax)];
    auto [work, is_new] = known.try_emplace(uint64_t{op->dims} << 32 | op->types);
    if (is_new) work->second = work_of(events.name_of(event), events.texts[op->dims], events.texts[op->types]);
    sum->calls += share;
    sum->flops += share * work->second.flops;
    sum->bytes += share * work->second.bytes;
  }
}

void add_work(const ProfileAnalysis& analysis, RunSummary& out) {
  std::map<std::string, OperatorWork> operators;
  for (const RankProfile& rank : analysis.ranks) {
    add_work(rank, 1 / rank.steps() / static_cast<double>(analysis.ranks.size()), operators);
  }
  for (auto& [name, work] : operators) {
    // Sizes in a trace may be anything.
    const auto can_be = [](double amount) { return amount >= 0 && amount <= kWorkMax; };
    if (!can_be(work.flops) || !can_be(work.bytes)) continue;
    work.name = name;
    out.operators.push_back(std::move(work));
    if (out.operators.size() == kOperatorsMax) break;
  }
}

void add_identity(const ProfileAnalysis& analysis, RunSummary& out) {
  out.ranks = analysis.ranks.size();
  out.world_size = analysis.world_size;
  std::set<std::string> devices;
  for (const RankProfile& rank : analysis.ranks) {
    out.has_shapes |= rank.events->has_shapes;
    for (const auto& [what, version] : rank.events->versions) out.versions.try_emplace(what, version);
    if (rank.index.has_gpu && !rank.events->devices.empty())
      devices.insert(cut(rank.events->devices.front().name, kShapeBytesMax));
  }
  out.devices.assign(devices.begin(), devices.end());
  if (analysis.ranks.empty()) return;
  out.has_gpu = analysis.ranks.front().index.has_gpu;
  out.step_marks = analysis.ranks.front().index.step_marks;
  out.steps = middle_of(analysis, [](const RankProfile& rank) { return rank.index.steps.size(); });
}

}  // namespace

const char* to_text(GapCause cause) {
  switch (cause) {
    case GapCause::kBetweenKernels:
      return "between_kernels";
    case GapCause::kDataLoading:
      return "data_loading";
    case GapCause::kHost:
      return "host";
  }
  return "host";
}

RunSummary summarize(const ProfileAnalysis& analysis) {
  RunSummary out;
  add_identity(analysis, out);
  const auto a_step = [&](auto value) {
    return middle_of(analysis,
                     [&](const RankProfile& rank) { return static_cast<double>(value(rank)) / rank.steps(); });
  };
  out.step_ns = middle_of(analysis, [](const RankProfile& rank) { return rank.step_ns(); });
  out.noise_ns = step_noise(analysis);
  out.busy_ns = a_step([](const RankProfile& rank) { return rank.breakdown.time.busy_ns(); });
  out.idle_ns = a_step([](const RankProfile& rank) { return rank.breakdown.time.idle_ns(); });
  out.exposed_ns = a_step([](const RankProfile& rank) { return rank.breakdown.time.exposed_communication_ns(); });
  out.calls = a_step([](const RankProfile& rank) { return rank.index.activities.size(); });
  add_kernels(analysis, out);
  add_gaps(analysis, out);
  add_work(analysis, out);
  return out;
}

}  // namespace lockstep::profile
