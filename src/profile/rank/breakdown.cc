#include "profile/rank/breakdown.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <unordered_map>

#include "profile/rank/host_time.h"

namespace lockstep::profile {
namespace {

unsigned bit_of(KernelClass one) {
  return 1u << static_cast<unsigned>(one);
}

// One pass over starts and ends in order of time, with a count of what runs for each class. What lasts no time at all
// never runs.
TimeSplit split_time(const std::vector<Activity>& activities) {
  TimeSplit split;
  if (activities.empty()) return split;
  std::vector<std::pair<int64_t, unsigned>> ends;
  ends.reserve(activities.size());
  int64_t last_ns = activities.front().end_ns;
  for (const Activity& activity : activities) {
    last_ns = std::max(last_ns, activity.end_ns);
    if (activity.duration_ns() == 0) continue;
    ends.emplace_back(activity.end_ns, static_cast<unsigned>(activity.traits.kernel_class));
  }
  std::sort(ends.begin(), ends.end());
  std::array<uint64_t, kKernelClasses> running = {};
  unsigned mask = 0;
  int64_t at = activities.front().start_ns;
  size_t next_end = 0;
  const auto advance = [&](int64_t to) {
    split.by_classes_ns[mask] += to - at;
    at = to;
  };
  const auto pass_ends_until = [&](int64_t until) {
    for (; next_end < ends.size() && ends[next_end].first <= until; ++next_end) {
      advance(ends[next_end].first);
      const unsigned one = ends[next_end].second;
      if (--running[one] == 0) mask &= ~(1u << one);
    }
  };
  for (const Activity& activity : activities) {
    if (activity.duration_ns() == 0) continue;
    pass_ends_until(activity.start_ns);
    advance(activity.start_ns);
    const auto one = static_cast<unsigned>(activity.traits.kernel_class);
    ++running[one];
    mask |= 1u << one;
  }
  pass_ends_until(INT64_MAX);
  advance(last_ns);
  split.total_ns = last_ns - activities.front().start_ns;
  return split;
}

Distribution distribution_of(std::vector<int64_t>& values) {
  Distribution out;
  out.count = values.size();
  if (values.empty()) return out;
  for (int64_t value : values) out.sum += value;
  const auto nth = [&values](size_t at) {
    std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
    return values[at];
  };
  out.median = nth(values.size() / 2);
  out.p95 = nth(std::min(values.size() - 1, values.size() * 95 / 100));
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  out.least = *least;
  out.most = *most;
  return out;
}

std::vector<KernelRow> kernel_rows(const RankIndex& index) {
  const TraceEvents& events = *index.events;
  std::unordered_map<uint64_t, size_t> rows_by_name;  // name and class
  std::vector<KernelRow> rows;
  std::vector<double> squares;  // Welford
  std::vector<std::map<uint32_t, uint64_t>> ops;
  std::unordered_map<uint32_t, uint64_t> started;  // by a call
  for (const Activity& activity : index.activities) {
    if (activity.launch != kNoEvent) ++started[activity.launch];
  }
  for (uint32_t i = 0; i < index.activities.size(); ++i) {
    const Activity& activity = index.activities[i];
    const uint32_t name = events.name[activity.event];
    auto [found, is_new] = rows_by_name.try_emplace(
        uint64_t{name} << 2 | static_cast<uint64_t>(activity.traits.kernel_class), rows.size());
    if (is_new) {
      rows.push_back({.name = name, .traits = activity.traits, .min_ns = INT64_MAX, .max_ns = -1});
      squares.push_back(0);
      ops.emplace_back();
    }
    KernelRow& row = rows[found->second];
    const int64_t duration = activity.duration_ns();
    ++row.count;
    row.sum_ns += duration;
    row.min_ns = std::min(row.min_ns, duration);
    if (duration > row.max_ns) {
      row.max_ns = duration;
      row.example = i;
    }
    const double before = row.mean_ns;
    row.mean_ns += (static_cast<double>(duration) - before) / static_cast<double>(row.count);
    squares[found->second] += (static_cast<double>(duration) - before) * (static_cast<double>(duration) - row.mean_ns);
    row.from_graph += activity.from_graph ? 1 : 0;
    if (activity.launch != kNoEvent) {
      row.launch_ns += events.duration_ns[activity.launch] / static_cast<int64_t>(started[activity.launch]);
    }
    if (activity.op != kNoEvent) ++ops[found->second][events.name[activity.op]];
    if (const KernelDetail* detail = events.kernel(activity.event)) row.bytes += detail->bytes;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].count > 1) rows[i].deviation_ns = std::sqrt(squares[i] / static_cast<double>(rows[i].count - 1));
    uint64_t most = 0;
    for (const auto& [op, count] : ops[i]) {
      if (count > most) {
        most = count;
        rows[i].op = op;
      }
    }
  }
  std::sort(rows.begin(), rows.end(), [](const KernelRow& a, const KernelRow& b) {
    return a.sum_ns != b.sum_ns ? a.sum_ns > b.sum_ns : a.name < b.name;
  });
  return rows;
}

std::vector<IdleRow> idle_rows(const RankIndex& index, const BreakdownOptions& options) {
  std::vector<IdleRow> rows;
  for (const StreamIndex& stream : index.streams) {
    IdleRow row{stream.device, stream.stream};
    int64_t last_end = INT64_MIN;
    for (uint32_t number : stream.activities) {
      const Activity& activity = index.activities[number];
      if (last_end != INT64_MIN && activity.start_ns > last_end) {
        const int64_t gap = activity.start_ns - last_end;
        const bool waits_for_host = activity.launch != kNoEvent && index.events->start_ns[activity.launch] > last_end;
        (waits_for_host ? row.host_wait_ns : gap < options.short_gap_ns ? row.kernel_wait_ns : row.other_ns) += gap;
      }
      last_end = std::max(last_end, activity.end_ns);
    }
    rows.push_back(row);
  }
  return rows;
}

LaunchStats launch_stats(const RankIndex& index, const BreakdownOptions& options) {
  const TraceEvents& events = *index.events;
  struct Work {
    int64_t first_ns = INT64_MAX;
    int64_t sum_ns = 0;
  };
  std::unordered_map<uint32_t, Work> calls;
  calls.reserve(index.launches);
  for (const Activity& activity : index.activities) {
    if (activity.launch == kNoEvent) continue;
    Work& work = calls[activity.launch];
    work.first_ns = std::min(work.first_ns, activity.start_ns);
    work.sum_ns += activity.duration_ns();
  }
  LaunchStats stats;
  std::vector<int64_t> call_ns, work_ns, delay_ns;
  for (const auto& [call, work] : calls) {
    call_ns.push_back(events.duration_ns[call]);
    work_ns.push_back(work.sum_ns);
    delay_ns.push_back(std::max<int64_t>(0, work.first_ns - events.end_ns(call)));
    stats.short_work += work.sum_ns < call_ns.back() ? 1 : 0;
    stats.slow_calls += call_ns.back() > options.slow_launch_ns ? 1 : 0;
    stats.long_delays += delay_ns.back() > options.long_delay_ns ? 1 : 0;
  }
  stats.call_ns = distribution_of(call_ns);
  stats.work_ns = distribution_of(work_ns);
  stats.delay_ns = distribution_of(delay_ns);
  return stats;
}

std::vector<QueueRow> queue_rows(const RankIndex& index, const BreakdownOptions& options) {
  std::vector<QueueRow> rows;
  for (const StreamIndex& stream : index.streams) {
    std::vector<std::pair<int64_t, int>> changes;  // one up at the launch, one down at the start
    for (uint32_t number : stream.activities) {
      const Activity& activity = index.activities[number];
      if (activity.launch == kNoEvent) continue;
      const int64_t launched = index.events->start_ns[activity.launch];
      changes.emplace_back(std::min(launched, activity.start_ns), 1);  // clocks may say it began before its launch
      changes.emplace_back(activity.start_ns, -1);
    }
    if (changes.empty()) continue;
    std::sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    QueueRow row{stream.device, stream.stream};
    int64_t length = 0, sum = 0;
    double in_time = 0;
    for (size_t i = 0; i < changes.size(); ++i) {
      length += changes[i].second;
      sum += length;
      row.most = std::max(row.most, length);
      if (i + 1 == changes.size()) break;
      const int64_t lasts = changes[i + 1].first - changes[i].first;
      in_time += static_cast<double>(length) * static_cast<double>(lasts);
      if (length >= options.queue_limit) row.at_limit_ns += lasts;
    }
    row.changes = changes.size();
    row.mean = static_cast<double>(sum) / static_cast<double>(changes.size());
    const auto span = static_cast<double>(changes.back().first - changes.front().first);
    row.mean_in_time = span > 0 ? in_time / span : 0;
    rows.push_back(row);
  }
  return rows;
}

std::string copy_kind(const std::string& name) {
  if (name.starts_with("Memset") || name.starts_with("hipMemset")) return "Memset";
  const size_t paren = name.find(" (");
  return paren == std::string::npos ? name.substr(0, 48) : name.substr(0, std::min<size_t>(paren, 48));
}

std::vector<CopyRow> copy_rows(const RankIndex& index) {
  struct Running {
    CopyRow row;
    std::priority_queue<std::pair<int64_t, float>, std::vector<std::pair<int64_t, float>>, std::greater<>> ends;
    double now = 0;
  };
  std::map<std::string, Running> kinds;
  for (const Activity& activity : index.activities) {
    if (activity.traits.kernel_class != KernelClass::kMemory) continue;
    Running& one = kinds[copy_kind(index.name_of(activity))];
    ++one.row.count;
    one.row.sum_ns += activity.duration_ns();
    const KernelDetail* detail = index.events->kernel(activity.event);
    if (detail == nullptr) continue;
    one.row.bytes += detail->bytes;
    while (!one.ends.empty() && one.ends.top().first <= activity.start_ns) {
      one.now -= double{one.ends.top().second};
      one.ends.pop();
    }
    one.now += double{detail->gigabytes_per_s};
    one.ends.emplace(activity.end_ns, detail->gigabytes_per_s);
    one.row.most_gigabytes_per_s = std::max(one.row.most_gigabytes_per_s, one.now);
  }
  std::vector<CopyRow> rows;
  for (auto& [kind, one] : kinds) {
    one.row.kind = kind;
    if (one.row.sum_ns > 0)
      one.row.gigabytes_per_s = static_cast<double>(one.row.bytes) / static_cast<double>(one.row.sum_ns);
    rows.push_back(std::move(one.row));
  }
  std::sort(rows.begin(), rows.end(), [](const CopyRow& a, const CopyRow& b) { return a.sum_ns > b.sum_ns; });
  return rows;
}

// Gaps in which no stream had anything to do, and what the thread that ended them did meanwhile.
void find_gaps(const RankIndex& index, Breakdown& out) {
  HostTime host(index);
  std::unordered_map<std::string, GapRow> rows;
  int64_t last_end = INT64_MIN;
  for (const Activity& activity : index.activities) {
    if (last_end != INT64_MIN && activity.start_ns > last_end) {
      const int64_t gap = activity.start_ns - last_end;
      const bool waits_for_host = activity.launch != kNoEvent && index.events->start_ns[activity.launch] > last_end;
      if (waits_for_host) out.gaps_waiting_for_host_ns += gap;
      const std::string what = waits_for_host
                                   ? host.what_ran(index.events->track[activity.launch], last_end, activity.start_ns)
                                   : std::string(kGapBetweenKernels);
      GapRow& row = rows[what];
      ++row.count;
      row.sum_ns += gap;
      row.most_ns = std::max(row.most_ns, gap);
    }
    last_end = std::max(last_end, activity.end_ns);
  }
  for (auto& [what, row] : rows) {
    row.what = what;
    row.is_data_loading = is_data_loading(what);
    out.gaps.push_back(row);
  }
  std::sort(out.gaps.begin(), out.gaps.end(), [](const GapRow& a, const GapRow& b) {
    return a.sum_ns != b.sum_ns ? a.sum_ns > b.sum_ns : a.what < b.what;
  });
}

}  // namespace

int64_t TimeSplit::of(KernelClass one) const {
  int64_t sum = 0;
  for (unsigned mask = 0; mask < by_classes_ns.size(); ++mask) {
    if ((mask & bit_of(one)) != 0) sum += by_classes_ns[mask];
  }
  return sum;
}

int64_t TimeSplit::of_both(KernelClass one, KernelClass other) const {
  const unsigned both = bit_of(one) | bit_of(other);
  int64_t sum = 0;
  for (unsigned mask = 0; mask < by_classes_ns.size(); ++mask) {
    if ((mask & both) == both) sum += by_classes_ns[mask];
  }
  return sum;
}

double TimeSplit::overlap() const {
  const int64_t communication = of(KernelClass::kCommunication);
  if (communication == 0) return 0;
  return static_cast<double>(of_both(KernelClass::kCompute, KernelClass::kCommunication)) /
         static_cast<double>(communication);
}

Breakdown break_down(const RankIndex& index, const BreakdownOptions& options) {
  Breakdown out;
  out.time = split_time(index.activities);
  out.kernels = kernel_rows(index);
  if (!index.has_gpu) return out;
  out.idle = idle_rows(index, options);
  find_gaps(index, out);
  out.launches = launch_stats(index, options);
  out.queues = queue_rows(index, options);
  out.copies = copy_rows(index);
  return out;
}

}  // namespace lockstep::profile
