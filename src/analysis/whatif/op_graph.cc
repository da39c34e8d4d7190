#include "analysis/whatif/op_graph.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace lockstep {

void GraphBuilder::reserve(size_t ops, size_t edges) {
  ops_.reserve(ops);
  edges_.reserve(edges);
}

uint32_t GraphBuilder::add(const RecordedOp& op) {
  ops_.push_back(op);
  return static_cast<uint32_t>(ops_.size() - 1);
}

void GraphBuilder::add_edge(uint32_t first, uint32_t then) {
  edges_.emplace_back(then, first);
}

void GraphBuilder::add_meeting(std::span<const uint32_t> members) {
  member_.insert(member_.end(), members.begin(), members.end());
  member_begin_.push_back(static_cast<uint32_t>(member_.size()));
}

std::string GraphBuilder::name_of(uint32_t op) const {
  const RecordedOp& one = ops_[op];
  return format("%s of rank %d in step %lld", types[one.type].name.c_str(),
                workers[static_cast<size_t>(one.worker)].rank,
                static_cast<long long>(steps[static_cast<size_t>(one.step)]));
}

Result<OpGraph> GraphBuilder::finish() && {
  const size_t count = ops_.size();
  if (count == 0) return Error{"whatif: no operations"};
  if (count > kOpsMax) return Error{format("whatif: %zu operations (limit %zu)", count, kOpsMax)};
  OpGraph graph;
  graph.types = types;
  graph.workers = workers;
  graph.steps = steps;
  graph.gpus = std::max(gpus, static_cast<int64_t>(graph.workers.size()));

  graph.type.resize(count);
  graph.equals.resize(count);
  graph.worker.resize(count);
  graph.step.resize(count);
  graph.batch.resize(count);
  graph.meeting.assign(count, -1);
  graph.length_s.resize(count);
  graph.gap_s.resize(count);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> first(graph.steps.size(), kNever), last(graph.steps.size(), -kNever);
  for (size_t i = 0; i < count; ++i) {
    const RecordedOp& op = ops_[i];
    graph.type[i] = op.type;
    graph.equals[i] = op.equals;
    graph.equals_count = std::max(graph.equals_count, op.equals + 1);
    graph.worker[i] = op.worker;
    graph.step[i] = op.step;
    graph.batch[i] = op.batch;
    graph.length_s[i] = op.end_s - op.start_s;
    const auto step = static_cast<size_t>(op.step);
    first[step] = std::min(first[step], op.start_s);
    last[step] = std::max(last[step], op.end_s);
  }
  for (size_t step = 0; step < graph.steps.size(); ++step)
    graph.step_s.push_back(std::max(0.0, last[step] - first[step]));

  graph.member_begin = std::move(member_begin_);
  graph.member = std::move(member_);
  for (size_t meeting = 0; meeting + 1 < graph.member_begin.size(); ++meeting) {
    double everybody_there = -kNever;
    for (uint32_t at = graph.member_begin[meeting]; at < graph.member_begin[meeting + 1]; ++at) {
      const uint32_t op = graph.member[at];
      if (graph.meeting[op] >= 0) return Error{format("whatif: %s meets twice", name_of(op).c_str())};
      graph.meeting[op] = static_cast<int32_t>(meeting);
      everybody_there = std::max(everybody_there, ops_[op].start_s);
    }
    for (uint32_t at = graph.member_begin[meeting]; at < graph.member_begin[meeting + 1]; ++at) {
      const double transfer = ops_[graph.member[at]].end_s - everybody_there;
      graph.length_s[graph.member[at]] = transfer <= -kSlackS ? 0 : transfer;
    }
  }

  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  graph.before_begin.assign(count + 1, 0);
  graph.before.reserve(edges_.size());
  std::vector<uint32_t> waits(count, 0), behind_begin(count + 1, 0), behind(edges_.size());
  for (const auto& edge : edges_) {
    ++graph.before_begin[edge.first + 1];
    ++behind_begin[edge.second + 1];
    graph.before.push_back(edge.second);
    ++waits[edge.first];
  }
  for (size_t i = 0; i < count; ++i) {
    graph.before_begin[i + 1] += graph.before_begin[i];
    behind_begin[i + 1] += behind_begin[i];
  }
  std::vector<uint32_t> next(behind_begin.begin(), behind_begin.end() - 1);
  for (const auto& edge : edges_) behind[next[edge.second]++] = edge.first;

  for (uint32_t i = 0; i < count; ++i) {
    double ready =
        graph.before_begin[i] == graph.before_begin[i + 1] ? first[static_cast<size_t>(ops_[i].step)] : -kNever;
    for (uint32_t at = graph.before_begin[i]; at < graph.before_begin[i + 1]; ++at)
      ready = std::max(ready, ops_[graph.before[at]].end_s);
    const double gap = ops_[i].start_s - ready;
    graph.gap_s[i] = gap <= -kSlackS ? 0 : gap;
  }

  // An operation is taken when all before it have ended; a meeting ends when all its members are taken.
  std::vector<uint32_t> missing(graph.member_begin.size() - 1);
  for (size_t meeting = 0; meeting < missing.size(); ++meeting)
    missing[meeting] = graph.member_begin[meeting + 1] - graph.member_begin[meeting];
  graph.order.reserve(count);
  graph.ends_meeting.reserve(count);
  const auto release = [&](uint32_t op) {
    for (uint32_t at = behind_begin[op]; at < behind_begin[op + 1]; ++at) {
      if (--waits[behind[at]] == 0) graph.order.push_back(behind[at]);
    }
  };
  const auto take_all = [&] {
    for (size_t place = graph.ends_meeting.size(); place < graph.order.size(); ++place) {
      const uint32_t op = graph.order[place];
      const int32_t meeting = graph.meeting[op];
      if (meeting < 0) {
        graph.ends_meeting.push_back(0);
        release(op);
        continue;
      }
      const bool ends = --missing[static_cast<size_t>(meeting)] == 0;
      graph.ends_meeting.push_back(ends ? 1 : 0);
      if (!ends) continue;
      const uint32_t end = graph.member_begin[static_cast<size_t>(meeting) + 1];
      for (uint32_t at = graph.member_begin[static_cast<size_t>(meeting)]; at < end; ++at) release(graph.member[at]);
    }
  };
  // Step by step, so that a replay stays in a small part of its arrays.
  std::vector<uint32_t> roots;
  for (uint32_t i = 0; i < count; ++i) {
    if (waits[i] == 0) roots.push_back(i);
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    if (i > 0 && graph.step[roots[i]] != graph.step[roots[i - 1]]) take_all();
    graph.order.push_back(roots[i]);
  }
  take_all();
  if (graph.order.size() < count) {
    const auto stuck = static_cast<uint32_t>(
        std::find_if(waits.begin(), waits.end(), [](uint32_t left) { return left > 0; }) - waits.begin());
    return Error{
        format("whatif: %zu of %zu operations wait in a circle, %s among them: the recorded order does not fit "
               "the model",
               count - graph.order.size(), count, name_of(stuck).c_str())};
  }
  return graph;
}

}  // namespace lockstep
