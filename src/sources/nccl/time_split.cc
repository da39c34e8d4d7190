// The idea: a GPU that is seen only through its communication still gives itself away. An operation that is enqueued
// and does not start waits for something, and what it can wait for is short: operations enqueued before it, and the
// rank's own kernels. Where the former are over, the latter are running. And an operation that starts at once, though
// it depends on the kernels before it, shows that these were done: the GPU had caught up with the host.
//
// What cannot be seen: kernels beside a chain of operations that follow each other without a gap, and short kernels of
// a GPU that waits for the host between them. So compute is a lower bound there, and communication and host upper ones.
#include "sources/nccl/time_split.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace lockstep {
namespace {

using Intervals = std::vector<Interval>;

// The GPU's clock counts in steps of up to a microsecond.
constexpr int64_t kClockGrainNs = 2'000;
// So many pairs are needed before their spread says anything.
constexpr size_t kPairsMin = 8;

// Sorted, joined, without empty ones; within `bounds`.
Intervals joined(Intervals intervals, const Interval& bounds) {
  for (Interval& one : intervals) one = {std::max(one.begin, bounds.begin), std::min(one.end, bounds.end)};
  std::erase_if(intervals, [](const Interval& one) { return one.end <= one.begin; });
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Intervals out;
  for (const Interval& one : intervals) {
    if (!out.empty() && one.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, one.end);
    } else {
      out.push_back(one);
    }
  }
  return out;
}

int64_t length_of(const Intervals& intervals) {
  int64_t total = 0;
  for (const Interval& one : intervals) total += one.end - one.begin;
  return total;
}

// What of `from` is in none of `what`; both joined.
Intervals without(const Intervals& from, const Intervals& what) {
  Intervals out;
  size_t next = 0;
  for (const Interval& one : from) {
    int64_t begin = one.begin;
    while (next < what.size() && what[next].end <= begin) ++next;
    for (size_t at = next; at < what.size() && what[at].begin < one.end; ++at) {
      if (what[at].begin > begin) out.push_back({begin, what[at].begin});
      begin = std::max(begin, what[at].end);
    }
    if (begin < one.end) out.push_back({begin, one.end});
  }
  return out;
}

// Takes out of `from` what is in `what` as well, and says how long that is.
int64_t take(Intervals& from, const Intervals& what) {
  int64_t before = length_of(from);
  from = without(from, what);
  return before - length_of(from);
}

// An operation and, of those enqueued before it, the end of the last one that it may have waited for.
struct Waiter {
  const SplitOp* op = nullptr;
  int64_t freed_ns = 0;  // that end; before op->enqueued_ns where nothing held it up
  bool chained() const { return freed_ns >= op->enqueued_ns; }
  bool waited() const { return chained() || op->start_ns - op->enqueued_ns > kLaunchNs; }
  // From here on to its end the operation accounts for the GPU.
  Interval covered() const { return {waited() ? std::min(op->enqueued_ns, op->start_ns) : op->start_ns, op->end_ns}; }
};

std::vector<Waiter> waiters_of(const SplitInput& input) {
  std::vector<Waiter> waiters;
  for (const SplitOp& op : input.ops) {
    if (op.enqueued_ns < input.step.end && op.end_ns > input.step.begin && op.end_ns >= op.start_ns)
      waiters.push_back({&op, 0});
  }
  std::stable_sort(waiters.begin(), waiters.end(),
                   [](const Waiter& a, const Waiter& b) { return a.op->enqueued_ns < b.op->enqueued_ns; });
  std::multiset<int64_t> ends;
  for (Waiter& waiter : waiters) {
    auto after = ends.upper_bound(waiter.op->start_ns + kClockGrainNs);
    waiter.freed_ns = after == ends.begin() ? waiter.op->enqueued_ns - 1 : *std::prev(after);
    ends.insert(waiter.op->end_ns);
  }
  return waiters;
}

// Only the stretch from freed_ns on needs to be looked at: an earlier one, between two operations that this one waited
// for, is the later one's own wait.
void add_waits(const std::vector<Waiter>& waiters, Intervals& compute) {
  for (const Waiter& waiter : waiters) {
    if (!waiter.waited()) continue;
    int64_t begin = waiter.chained() ? waiter.freed_ns + kHandOverNs : waiter.op->enqueued_ns;
    compute.push_back({begin, waiter.op->start_ns});
  }
}

// Two neighbours of a chain, the second enqueued before the first began and started well after it ended: between the
// two starts, or only between end and start, the rank's own work ran without a pause.
struct Pair {
  const SplitOp* first;
  const SplitOp* second;
  double gap_ns() const { return static_cast<double>(second->start_ns - first->end_ns); }
  double between_starts_ns() const { return static_cast<double>(second->start_ns - first->start_ns); }
};

double spread(const std::vector<Pair>& pairs, double (Pair::*value)() const) {
  double sum = 0;
  double squares = 0;
  for (const Pair& pair : pairs) sum += (pair.*value)();
  double mean = sum / static_cast<double>(pairs.size());
  for (const Pair& pair : pairs) squares += ((pair.*value)() - mean) * ((pair.*value)() - mean);
  return squares;
}

// Work that begins only when an operation is over takes the same time after a short one and a long one: the gap is
// steady. Work that runs beside it goes on from start to start: the longer the operation, the shorter the gap.
bool gap_makes_up(const std::vector<Pair>& pairs) {
  return pairs.size() >= kPairsMin && spread(pairs, &Pair::between_starts_ns) < spread(pairs, &Pair::gap_ns) / 2;
}

bool within(const Intervals& intervals, int64_t time_ns) {
  auto after = std::upper_bound(intervals.begin(), intervals.end(), time_ns,
                                [](int64_t time, const Interval& one) { return time < one.begin; });
  return after != intervals.begin() && time_ns < std::prev(after)->end;
}

// Operations that the rank's next work does not wait for. Gradients are such: reduced while the backward pass goes on
// to the next layer. They are known by being reductions of the backward phase while their function and communicator
// has none in forward, where results are needed at once; else by their gaps.
void add_beside(const std::vector<Waiter>& waiters, const Intervals& forward, const Intervals& backward,
                Intervals& compute) {
  struct Chain {
    std::vector<const SplitOp*> ops;
    bool in_forward = false;
  };
  std::map<uint32_t, Chain> chains;
  for (const Waiter& waiter : waiters) {
    Chain& chain = chains[waiter.op->chain];
    chain.ops.push_back(waiter.op);
    chain.in_forward |= within(forward, waiter.op->enqueued_ns);
  }
  for (auto& [number, chain] : chains) {
    std::stable_sort(chain.ops.begin(), chain.ops.end(),
                     [](const SplitOp* a, const SplitOp* b) { return a->start_ns < b->start_ns; });
    std::vector<Pair> pairs;
    for (size_t i = 1; i < chain.ops.size(); ++i) {
      Pair pair{chain.ops[i - 1], chain.ops[i]};
      // A mistake costs the whole operation, so a gap that a slow launch could leave is not enough.
      if (pair.second->enqueued_ns <= pair.first->start_ns && pair.gap_ns() > static_cast<double>(kLaunchNs))
        pairs.push_back(pair);
    }
    bool all = gap_makes_up(pairs);
    for (const Pair& pair : pairs) {
      bool gradients =
          !chain.in_forward && within(backward, pair.first->enqueued_ns) && within(backward, pair.second->enqueued_ns);
      if (all || gradients) compute.push_back({pair.first->start_ns, pair.first->end_ns});
    }
  }
}

// The stretches of the step without any operation, and in which of them the GPU had work all the same.
struct Uncovered {
  Intervals all;
  Intervals busy;
};

Uncovered uncovered_of(std::vector<Waiter> waiters, const Interval& step) {
  std::stable_sort(waiters.begin(), waiters.end(),
                   [](const Waiter& a, const Waiter& b) { return a.covered().begin < b.covered().begin; });
  Uncovered out;
  int64_t reach = step.begin;
  const SplitOp* last = nullptr;  // that ended last so far
  for (const Waiter& waiter : waiters) {
    Interval covered = waiter.covered();
    if (covered.begin >= step.end) break;
    if (covered.begin > reach) {
      out.all.push_back({reach, covered.begin});
      int64_t behind_ns = waiter.op->start_ns - waiter.op->enqueued_ns;
      if (behind_ns > std::max(kLaunchNs, (covered.begin - reach) / kBehindShare)) out.busy.push_back(out.all.back());
    }
    if (covered.end > reach || last == nullptr) {
      reach = std::max(reach, covered.end);
      last = waiter.op;
    }
  }
  if (reach < step.end) {
    out.all.push_back({reach, step.end});
    // While the last operation waited and ran, the host went on launching. It was ahead by so much.
    int64_t ahead_ns = last == nullptr ? 0 : std::max<int64_t>(0, last->end_ns - last->enqueued_ns);
    out.busy.push_back({reach, std::min(step.end, reach + ahead_ns)});
  }
  return out;
}

Intervals phases_of(const SplitInput& input, std::initializer_list<Phase> wanted) {
  Intervals out;
  for (const SplitPhase& phase : input.phases) {
    if (std::find(wanted.begin(), wanted.end(), phase.phase) != wanted.end()) out.push_back(phase.when);
  }
  return joined(std::move(out), input.step);
}

}  // namespace

std::optional<TimeSplit> split_time(const SplitInput& input) {
  std::vector<Waiter> waiters = waiters_of(input);
  if (waiters.empty() || input.step.end <= input.step.begin) return std::nullopt;

  Intervals compute;
  add_waits(waiters, compute);
  add_beside(waiters, phases_of(input, {Phase::kForward}), phases_of(input, {Phase::kBackward}), compute);
  compute = joined(std::move(compute), input.step);
  Intervals running;
  for (const Waiter& waiter : waiters) running.push_back({waiter.op->start_ns, waiter.op->end_ns});
  running = joined(std::move(running), input.step);

  TimeSplit split{};
  auto part = [&split](TimePart which) -> int64_t& { return split[static_cast<size_t>(which)]; };
  part(TimePart::kCompute) = length_of(compute);
  part(TimePart::kCommunication) = length_of(without(running, compute));

  Uncovered uncovered = uncovered_of(std::move(waiters), input.step);
  Intervals rest = joined(std::move(uncovered.all), input.step);
  part(TimePart::kInput) = take(rest, phases_of(input, {Phase::kInput}));
  part(TimePart::kCheckpoint) = take(rest, phases_of(input, {Phase::kCheckpoint}));
  part(TimePart::kCompute) += take(rest, phases_of(input, {Phase::kSync}));
  part(TimePart::kCompute) += take(rest, joined(std::move(uncovered.busy), input.step));
  part(TimePart::kHost) =
      take(rest, phases_of(input, {Phase::kForward, Phase::kBackward, Phase::kOptimizer, Phase::kEval}));

  int64_t known = 0;
  for (int64_t one : split) known += one;
  part(TimePart::kIdle) = input.step.end - input.step.begin - known;
  return split;
}

}  // namespace lockstep
