#include "analysis/whatif/replay.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/median.h"

namespace lockstep {

Replayer::Replayer(const OpGraph& graph)
    : graph_(graph),
      start_(graph.size()),
      end_(graph.size()),
      last_start_(graph.member_begin.size() - 1),
      step_s_(graph.steps.size()) {}

const std::vector<double>& Replayer::run(std::span<const double> lengths, bool with_gaps) {
  const OpGraph& graph = graph_;
  std::fill(last_start_.begin(), last_start_.end(), -std::numeric_limits<double>::infinity());
  std::fill(step_s_.begin(), step_s_.end(), 0.0);
  const auto finish = [&](uint32_t op, double end) {
    end_[op] = end;
    double& step = step_s_[static_cast<size_t>(graph.step[op])];
    step = std::max(step, end);
  };
  for (size_t place = 0; place < graph.order.size(); ++place) {
    const uint32_t op = graph.order[place];
    const uint32_t from = graph.before_begin[op], to = graph.before_begin[op + 1];
    // A step begins at 0. What waits for something begins when that ends, also where a record is off and that is
    // before 0.
    double start = from == to ? 0 : end_[graph.before[from]];
    for (uint32_t at = from + 1; at < to; ++at) start = std::max(start, end_[graph.before[at]]);
    if (with_gaps) start += graph.gap_s[op];
    start_[op] = start;
    const int32_t meeting = graph.meeting[op];
    if (meeting < 0) {
      finish(op, start + lengths[op]);
      continue;
    }
    double& everybody_there = last_start_[static_cast<size_t>(meeting)];
    everybody_there = std::max(everybody_there, start);
    if (graph.ends_meeting[place] == 0) continue;
    const uint32_t end = graph.member_begin[static_cast<size_t>(meeting) + 1];
    for (uint32_t at = graph.member_begin[static_cast<size_t>(meeting)]; at < end; ++at)
      finish(graph.member[at], everybody_there + lengths[graph.member[at]]);
  }
  return step_s_;
}

double Replayer::mean_step_s(std::span<const double> lengths, bool with_gaps) {
  const std::vector<double>& steps = run(lengths, with_gaps);
  return std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(std::max<size_t>(1, steps.size()));
}

std::vector<double> ideal_lengths(const OpGraph& graph) {
  // Operations by their number of equals, one after the other.
  std::vector<uint32_t> begin(graph.equals_count + 1, 0), members(graph.size());
  for (const uint32_t number : graph.equals) ++begin[number + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
  for (uint32_t op = 0; op < graph.size(); ++op) members[next[graph.equals[op]]++] = op;

  std::vector<double> ideal(graph.size());
  std::vector<double> values;
  for (uint32_t number = 0; number < graph.equals_count; ++number) {
    const std::span<const uint32_t> group(members.data() + begin[number], begin[number + 1] - begin[number]);
    if (group.empty()) continue;
    values.clear();
    for (const uint32_t op : group) values.push_back(graph.length_s[op]);
    const double value = graph.types[graph.type[group.front()]].communication
                             ? median_of(values)
                             : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    for (const uint32_t op : group) ideal[op] = value;
  }
  return ideal;
}

std::vector<double> even_batches(const OpGraph& graph) {
  std::vector<double> sum(graph.workers.size() * graph.types.size()), lengths = graph.length_s;
  std::vector<uint32_t> count(sum.size());
  const auto cell = [&](size_t op) {
    return static_cast<size_t>(graph.worker[op]) * graph.types.size() + graph.type[op];
  };
  for (size_t op = 0; op < graph.size(); ++op) {
    if (graph.batch[op] < 0) continue;
    sum[cell(op)] += graph.length_s[op];
    ++count[cell(op)];
  }
  for (size_t op = 0; op < graph.size(); ++op) {
    if (graph.batch[op] >= 0) lengths[op] = sum[cell(op)] / count[cell(op)];
  }
  return lengths;
}

}  // namespace lockstep
