#include "profile/rank/host_time.h"

#include <algorithm>

namespace lockstep::profile {
namespace {

bool is_step_mark(std::string_view name) {
  return name.starts_with("ProfilerStep#") || name.starts_with("PyTorch Profiler");
}

}  // namespace

bool is_data_loading(std::string_view what) {
  return what.find("DataLoader") != std::string_view::npos || what.find("dataloader") != std::string_view::npos ||
         what.find("data_loader") != std::string_view::npos;
}

void HostTime::sort_events() {
  const TraceEvents& events = *index_.events;
  for (uint32_t i = 0; i < events.size(); ++i) {
    const EventKind kind = events.kind[i];
    if (kind == EventKind::kCpuOp || kind == EventKind::kAnnotation || kind == EventKind::kRuntime ||
        kind == EventKind::kDriver) {
      order_.push_back(i);
    }
  }
  std::sort(order_.begin(), order_.end(), [&events](uint32_t a, uint32_t b) {
    if (events.track[a] != events.track[b]) return events.track[a] < events.track[b];
    if (events.start_ns[a] != events.start_ns[b]) return events.start_ns[a] < events.start_ns[b];
    return events.duration_ns[a] > events.duration_ns[b];
  });
  is_sorted_ = true;
}

HostTime::Thread& HostTime::thread(uint32_t track) {
  auto [found, is_new] = threads_.try_emplace(track);
  Thread& made = found->second;
  if (!is_new) return made;
  if (!is_sorted_) sort_events();
  const TraceEvents& events = *index_.events;
  const auto begin =
      std::partition_point(order_.begin(), order_.end(), [&](uint32_t event) { return events.track[event] < track; });
  std::vector<Segment> open;  // annotations around the present moment, outermost first
  int64_t flat_to = INT64_MIN;
  const auto close_until = [&](int64_t until) {
    while (!open.empty() && open.back().end_ns <= until) {
      const int64_t from = std::max(open.back().start_ns, flat_to);
      if (open.back().end_ns > from) made.annotations.push_back({from, open.back().end_ns, open.back().name});
      flat_to = std::max(flat_to, open.back().end_ns);
      open.pop_back();
    }
  };
  int64_t ops_to = INT64_MIN, calls_to = INT64_MIN;
  for (auto at = begin; at != order_.end() && events.track[*at] == track; ++at) {
    const int64_t start = events.start_ns[*at], end = events.end_ns(*at);
    const uint32_t name = events.name[*at];
    if (events.kind[*at] == EventKind::kAnnotation) {
      if (is_step_mark(events.name_of(*at))) continue;
      close_until(start);
      if (!open.empty()) {
        const int64_t from = std::max(open.back().start_ns, flat_to);
        if (start > from) made.annotations.push_back({from, start, open.back().name});
        flat_to = std::max(flat_to, start);
      }
      open.push_back({start, open.empty() ? end : std::min(end, open.back().end_ns), name});
    } else if (events.kind[*at] == EventKind::kCpuOp) {
      if (start < ops_to) continue;
      made.operators.push_back({start, end, name});
      ops_to = end;
    } else {
      if (start < calls_to) continue;
      made.calls.push_back({start, end, name});
      calls_to = end;
    }
  }
  close_until(INT64_MAX);
  return made;
}

uint32_t HostTime::mostly(const std::vector<Segment>& segments, int64_t from_ns, int64_t to_ns) const {
  auto at =
      std::partition_point(segments.begin(), segments.end(), [&](const Segment& one) { return one.end_ns <= from_ns; });
  std::unordered_map<uint32_t, int64_t> covered;
  uint32_t best = 0;
  int64_t most = 0;
  for (; at != segments.end() && at->start_ns < to_ns; ++at) {
    int64_t& sum = covered[at->name];
    sum += std::min(to_ns, at->end_ns) - std::max(from_ns, at->start_ns);
    if (sum > most) {
      most = sum;
      best = at->name;
    }
  }
  return most * 2 >= to_ns - from_ns ? best : 0;
}

std::string HostTime::what_ran(uint32_t track, int64_t from_ns, int64_t to_ns) {
  const Thread& found = thread(track);
  for (const std::vector<Segment>* segments : {&found.annotations, &found.operators, &found.calls}) {
    if (const uint32_t name = mostly(*segments, from_ns, to_ns); name != 0) return index_.events->texts[name];
  }
  return std::string(kOutsideOperators);
}

}  // namespace lockstep::profile
