#include "profile/rank/rank_index.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/median.h"
#include "base/text.h"

namespace lockstep::profile {
namespace {

// From a number that runtimes hand out (a correlation, an external id) to the first event that has it. The numbers are
// usually small and dense, so that a table is enough; where they are not, a map.
class EventById {
 public:
  explicit EventById(size_t most_expected) : table_max_(most_expected * 16 + (1 << 20)) {}
  void add(uint64_t id, uint32_t event) {
    if (id == 0) return;
    if (id >= table_max_) {
      rest_.try_emplace(id, event);
      return;
    }
    if (id >= table_.size())
      table_.resize(std::min<size_t>(table_max_, std::max<size_t>(id + 1, table_.size() * 2)), kNoEvent);
    if (table_[id] == kNoEvent) table_[id] = event;
  }
  uint32_t find(uint64_t id) const {
    if (id < table_.size()) return table_[id];
    const auto found = rest_.find(id);
    return found == rest_.end() ? kNoEvent : found->second;
  }

 private:
  size_t table_max_;
  std::vector<uint32_t> table_;
  std::unordered_map<uint64_t, uint32_t> rest_;
};

class IndexBuilder {
 public:
  IndexBuilder(const TraceEvents& events, const IndexOptions& options) : events_(events), options_(options) {
    index_.events = &events;
  }

  RankIndex build() {
    find_bounds();
    find_steps();
    find_gpu_activities();
    if (!index_.has_gpu) find_host_activities();
    if (options_.within_steps && index_.steps.size() > 1) keep_within_steps();
    std::sort(index_.activities.begin(), index_.activities.end(), [](const Activity& a, const Activity& b) {
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns
             : a.end_ns != b.end_ns   ? a.end_ns > b.end_ns
                                      : a.event < b.event;
    });
    make_streams();
    return std::move(index_);
  }

 private:
  void find_bounds() {
    for (size_t i = 0; i < events_.size(); ++i) {
      if (i == 0 || events_.start_ns[i] < index_.first_ns) index_.first_ns = events_.start_ns[i];
      if (i == 0 || events_.end_ns(i) > index_.last_ns) index_.last_ns = events_.end_ns(i);
      index_.has_gpu |= events_.on_gpu(i);
    }
  }

  void find_steps() {
    std::unordered_map<uint32_t, int64_t> profiler_steps;            // by name
    std::unordered_map<uint32_t, std::vector<uint32_t>> optimizers;  // by name
    std::vector<uint8_t> checked(events_.texts.size(), 0);           // 1: of no interest, 2: a step, 3: an optimizer
    for (uint32_t i = 0; i < events_.size(); ++i) {
      if (events_.kind[i] != EventKind::kAnnotation) continue;
      uint8_t& what = checked[events_.name[i]];
      if (what == 0) {
        const std::string& name = events_.name_of(i);
        what = 1;
        if (name.starts_with("ProfilerStep#")) {
          if (const std::optional<int64_t> number = parse_int(std::string_view(name).substr(13))) {
            what = 2;
            profiler_steps[events_.name[i]] = *number;
          }
        } else if (name.starts_with("Optimizer.step#")) {
          what = 3;
        }
      }
      if (what == 2) index_.steps.push_back({profiler_steps[events_.name[i]], events_.start_ns[i], events_.end_ns(i)});
      if (what == 3) optimizers[events_.name[i]].push_back(i);
    }
    if (!index_.steps.empty()) {
      index_.step_marks = StepMarks::kProfiler;
    } else if (!optimizers.empty()) {
      steps_of_optimizer(optimizers);
    }
    std::sort(index_.steps.begin(), index_.steps.end(),
              [](const ProfileStep& a, const ProfileStep& b) { return a.start_ns < b.start_ns; });
  }
  // On demand there are no marks of steps: a step ends where the optimizer's does. Of several optimizers the one that
  // steps most often counts, and of equals the last of a step.
  void steps_of_optimizer(const std::unordered_map<uint32_t, std::vector<uint32_t>>& optimizers) {
    const std::vector<uint32_t>* chosen = nullptr;
    for (const auto& [name, calls] : optimizers) {
      if (chosen == nullptr || calls.size() > chosen->size() ||
          (calls.size() == chosen->size() && events_.start_ns[calls.front()] > events_.start_ns[chosen->front()])) {
        chosen = &calls;
      }
    }
    std::vector<int64_t> ends;
    for (uint32_t call : *chosen) ends.push_back(events_.end_ns(call));
    std::sort(ends.begin(), ends.end());
    // Kineto begins and ends in the optimizer's own call: what is before the first end may be the rest of a step that
    // was not ordered, and what is after the last one a whole step.
    std::vector<int64_t> lengths;
    for (size_t i = 1; i < ends.size(); ++i) lengths.push_back(ends[i] - ends[i - 1]);
    const int64_t half = upper_median_in_place(lengths) / 2;
    if (half > 0 && index_.last_ns - ends.back() >= half) ends.push_back(index_.last_ns);
    int64_t begin = index_.first_ns;
    for (int64_t end : ends) {
      if (end - begin >= half || !index_.steps.empty())
        index_.steps.push_back({static_cast<int64_t>(index_.steps.size()), begin, end});
      begin = end;
    }
    index_.step_marks = StepMarks::kOptimizer;
  }

  const KernelTraits& traits_of(size_t event) {
    const uint32_t name = events_.name[event];
    if (traits_.size() <= name) traits_.resize(events_.texts.size());
    Known& known = traits_[name];
    if (!known.is_known) known = {kernel_traits(events_.texts[name], events_.kind[event]), true};
    return known.traits;
  }

  void find_gpu_activities() {
    if (!index_.has_gpu) return;
    EventById launches(events_.size()), ops(events_.size());
    for (uint32_t i = 0; i < events_.size(); ++i) {
      const EventKind kind = events_.kind[i];
      if (kind == EventKind::kRuntime || kind == EventKind::kDriver) launches.add(events_.correlation[i], i);
      if (kind == EventKind::kCpuOp) ops.add(events_.external_id[i], i);
    }
    std::vector<uint32_t> started(events_.size(), 0);  // by a call
    for (uint32_t i = 0; i < events_.size(); ++i) {
      if (!events_.on_gpu(i)) continue;
      Activity activity{events_.start_ns[i],
                        events_.end_ns(i),
                        i,
                        launches.find(events_.correlation[i]),
                        kNoEvent,
                        traits_of(i),
                        false};
      uint64_t external = events_.external_id[i];
      if (activity.launch != kNoEvent) {
        ++started[activity.launch];
        if (external == 0) external = events_.external_id[activity.launch];
      } else {
        ++index_.without_launch;
      }
      if (external != 0) activity.op = ops.find(external);
      index_.activities.push_back(activity);
    }
    for (Activity& activity : index_.activities) {
      if (activity.launch == kNoEvent) continue;
      const KernelDetail* detail = events_.kernel(activity.event);
      activity.from_graph = started[activity.launch] > 1 || (detail != nullptr && detail->graph_node != 0) ||
                            events_.name_of(activity.launch).find("GraphLaunch") != std::string::npos;
      index_.graph_activities += activity.from_graph ? 1 : 0;
    }
    for (uint32_t i = 0; i < events_.size(); ++i) {
      if (started[i] == 0) continue;
      ++index_.launches;
      index_.graph_launches += events_.name_of(i).find("GraphLaunch") != std::string::npos ? 1 : 0;
    }
  }

  // Outermost operators of every thread, and gloo's collectives wherever they ran.
  void find_host_activities() {
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < events_.size(); ++i) {
      const bool is_gloo = events_.kind[i] == EventKind::kAnnotation && events_.name_of(i).starts_with("gloo:");
      if (is_gloo)
        index_.activities.push_back({events_.start_ns[i], events_.end_ns(i), i, kNoEvent, i, traits_of(i), false});
      if (events_.kind[i] == EventKind::kCpuOp) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
      if (events_.track[a] != events_.track[b]) return events_.track[a] < events_.track[b];
      if (events_.start_ns[a] != events_.start_ns[b]) return events_.start_ns[a] < events_.start_ns[b];
      return events_.duration_ns[a] > events_.duration_ns[b];
    });
    int64_t covered_to = INT64_MIN;
    uint32_t track = UINT32_MAX;
    for (uint32_t i : order) {
      if (events_.track[i] != track) {
        track = events_.track[i];
        covered_to = INT64_MIN;
      }
      if (events_.start_ns[i] < covered_to) continue;
      covered_to = events_.end_ns(i);
      index_.activities.push_back({events_.start_ns[i], events_.end_ns(i), i, kNoEvent, i, traits_of(i), false});
    }
  }

  void keep_within_steps() {
    const int64_t last_ns = index_.steps.back().end_ns;
    const size_t before = index_.activities.size();
    std::erase_if(index_.activities, [&](const Activity& activity) {
      if (!index_.has_gpu) return activity.start_ns > last_ns;
      return activity.launch == kNoEvent || events_.start_ns[activity.launch] > last_ns;
    });
    index_.outside_steps = before - index_.activities.size();
  }

  void make_streams() {
    std::map<std::pair<int32_t, int64_t>, size_t> known;
    for (uint32_t i = 0; i < index_.activities.size(); ++i) {
      const uint32_t event = index_.activities[i].event;
      const std::pair<int32_t, int64_t> key = index_.has_gpu
                                                  ? std::pair(events_.device[event], events_.stream[event])
                                                  : std::pair(int32_t{-1}, static_cast<int64_t>(events_.track[event]));
      auto [found, is_new] = known.try_emplace(key, index_.streams.size());
      if (is_new) index_.streams.push_back({key.first, key.second, {}});
      index_.streams[found->second].activities.push_back(i);
    }
    std::sort(index_.streams.begin(), index_.streams.end(), [](const StreamIndex& a, const StreamIndex& b) {
      return std::pair(a.device, a.stream) < std::pair(b.device, b.stream);
    });
  }

  struct Known {
    KernelTraits traits;
    bool is_known = false;
  };
  const TraceEvents& events_;
  const IndexOptions& options_;
  RankIndex index_;
  std::vector<Known> traits_;
};

}  // namespace

const char* to_text(StepMarks marks) {
  switch (marks) {
    case StepMarks::kNone:
      return "none";
    case StepMarks::kProfiler:
      return "profiler";
    case StepMarks::kOptimizer:
      return "optimizer";
  }
  return "none";
}

RankIndex index_rank(const TraceEvents& events, const IndexOptions& options) {
  return IndexBuilder(events, options).build();
}

}  // namespace lockstep::profile
