#include "analysis/whatif/op_graph.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

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
                workers[static_cast<size_t>(one.worker)].rank.value(),
                static_cast<long long>(steps[static_cast<size_t>(one.step)].value()));
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
  const std::vector<double> first_s = copy_ops(graph);
  LOCKSTEP_TRY(time_meetings(graph));
  sort_edges(graph);
  measure_gaps(graph, first_s);
  LOCKSTEP_TRY(put_in_order(graph));
  return graph;
}

std::vector<double> GraphBuilder::copy_ops(OpGraph& graph) const {
  const size_t count = ops_.size();
  graph.type.resize(count);
  graph.equals.resize(count);
  graph.worker.resize(count);
  graph.step.resize(count);
  graph.batch.resize(count);
  graph.meeting.assign(count, -1);
  graph.length_s.resize(count);
  graph.gap_s.resize(count);
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
  return first;
}

Result<void> GraphBuilder::time_meetings(OpGraph& graph) {
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
  return {};
}

void GraphBuilder::sort_edges(OpGraph& graph) {
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  graph.before_begin.assign(ops_.size() + 1, 0);
  graph.before.reserve(edges_.size());
  for (const auto& edge : edges_) {
    ++graph.before_begin[edge.first + 1];
    graph.before.push_back(edge.second);
  }
  for (size_t i = 0; i < ops_.size(); ++i) graph.before_begin[i + 1] += graph.before_begin[i];
}

void GraphBuilder::measure_gaps(OpGraph& graph, const std::vector<double>& first_s) const {
  for (uint32_t i = 0; i < ops_.size(); ++i) {
    double ready =
        graph.before_begin[i] == graph.before_begin[i + 1] ? first_s[static_cast<size_t>(ops_[i].step)] : -kNever;
    for (uint32_t at = graph.before_begin[i]; at < graph.before_begin[i + 1]; ++at)
      ready = std::max(ready, ops_[graph.before[at]].end_s);
    const double gap = ops_[i].start_s - ready;
    graph.gap_s[i] = gap <= -kSlackS ? 0 : gap;
  }
}

namespace {

// An operation is taken when all before it have ended; a meeting ends when all its members are taken.
class Ordering {
 public:
  // edges: then, first; sorted.
  Ordering(OpGraph& graph, const std::vector<std::pair<uint32_t, uint32_t>>& edges)
      : graph_(graph),
        waits_(graph.size(), 0),
        behind_begin_(graph.size() + 1, 0),
        behind_(edges.size()),
        missing_(graph.member_begin.size() - 1) {
    for (const auto& edge : edges) {
      ++behind_begin_[edge.second + 1];
      ++waits_[edge.first];
    }
    for (size_t i = 0; i < graph.size(); ++i) behind_begin_[i + 1] += behind_begin_[i];
    std::vector<uint32_t> next(behind_begin_.begin(), behind_begin_.end() - 1);
    for (const auto& edge : edges) behind_[next[edge.second]++] = edge.first;
    for (size_t meeting = 0; meeting < missing_.size(); ++meeting)
      missing_[meeting] = graph.member_begin[meeting + 1] - graph.member_begin[meeting];
  }

  // Step by step, so that a replay stays in a small part of its arrays.
  void run() {
    const size_t count = graph_.size();
    graph_.order.reserve(count);
    graph_.ends_meeting.reserve(count);
    std::vector<uint32_t> roots;
    for (uint32_t i = 0; i < count; ++i) {
      if (waits_[i] == 0) roots.push_back(i);
    }
    for (size_t i = 0; i < roots.size(); ++i) {
      if (i > 0 && graph_.step[roots[i]] != graph_.step[roots[i - 1]]) take_all();
      graph_.order.push_back(roots[i]);
    }
    take_all();
  }

  // Where not all were taken: one that still waits.
  uint32_t stuck() const {
    return static_cast<uint32_t>(std::find_if(waits_.begin(), waits_.end(), [](uint32_t left) { return left > 0; }) -
                                 waits_.begin());
  }

 private:
  void release(uint32_t op) {
    for (uint32_t at = behind_begin_[op]; at < behind_begin_[op + 1]; ++at) {
      if (--waits_[behind_[at]] == 0) graph_.order.push_back(behind_[at]);
    }
  }
  void take_all() {
    for (size_t place = graph_.ends_meeting.size(); place < graph_.order.size(); ++place) {
      const uint32_t op = graph_.order[place];
      const int32_t meeting = graph_.meeting[op];
      if (meeting < 0) {
        graph_.ends_meeting.push_back(0);
        release(op);
        continue;
      }
      const bool ends = --missing_[static_cast<size_t>(meeting)] == 0;
      graph_.ends_meeting.push_back(ends ? 1 : 0);
      if (!ends) continue;
      const uint32_t end = graph_.member_begin[static_cast<size_t>(meeting) + 1];
      for (uint32_t at = graph_.member_begin[static_cast<size_t>(meeting)]; at < end; ++at) release(graph_.member[at]);
    }
  }

  OpGraph& graph_;
  std::vector<uint32_t> waits_;  // for so many
  std::vector<uint32_t> behind_begin_, behind_;
  std::vector<uint32_t> missing_;  // members of each meeting
};

}  // namespace

Result<void> GraphBuilder::put_in_order(OpGraph& graph) const {
  Ordering ordering(graph, edges_);
  ordering.run();
  if (graph.order.size() == graph.size()) return {};
  return Error{
      format("whatif: %zu of %zu operations wait in a circle, %s among them: the recorded order does not fit "
             "the model",
             graph.size() - graph.order.size(), graph.size(), name_of(ordering.stuck()).c_str())};
}

}  // namespace lockstep
