#include "diagnosis/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/text.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep {

namespace {

// How the steps become one number.
enum class Reduce : uint8_t {
  kRatio,    // sums over the steps, divided once: a mean where the divisor counts
  kMedian,   // of the steps' own numbers
  kQuarter,  // the number that a quarter of the steps is below
  kTotal,    // sum
  kKinds,    // how many different numbers there are
};

// Whose rows it looks at.
enum class Needs : uint8_t { kOwn, kOwnWhereSeen, kAll };

// What one step adds: sum / count, less what is subtracted from it.
struct Part {
  double sum = 0, count = 0;
  double less_sum = 0, less_count = 0;
};

using StepMeasure = std::optional<Part> (*)(const Measure&, const JobWindow&, const StepFrame&);

std::optional<Part> one(double value) {
  return Part{value, 1, 0, 0};
}

// The ranks of a measure whose rows are known in a step, by slot; all of them where it names none.
template <typename Each>
bool each_own(const Measure& measure, const JobWindow& window, const StepFrame& frame, Each each) {
  bool any = false;
  for (size_t slot = 0; measure.ranks.empty() && slot < frame.rows.size(); ++slot) {  // none named: all of them
    if (!frame.knows(slot)) continue;
    each(slot, frame.rows[slot]);
    any = true;
  }
  for (Rank rank : measure.ranks) {
    const int32_t slot = window.slot_of(rank);
    if (slot < 0 || !frame.knows(static_cast<size_t>(slot))) continue;
    each(static_cast<size_t>(slot), frame.rows[static_cast<size_t>(slot)]);
    any = true;
  }
  return any;
}

template <typename Each>
void each_known(const StepFrame& frame, Each each) {
  for (size_t slot = 0; slot < frame.rows.size(); ++slot)
    if (frame.knows(slot)) each(slot, frame.rows[slot]);
}

template <typename Of>
std::optional<Part> mean_of_own(const Measure& measure, const JobWindow& window, const StepFrame& frame, Of of) {
  Part part;
  each_own(measure, window, frame, [&](size_t slot, const RankStep& row) {
    part.sum += of(slot, row);
    part.count += 1;
  });
  return part.count > 0 ? std::optional(part) : std::nullopt;
}

double phase(const RankStep& row, Phase which) {
  return static_cast<double>(row.summary.phase_ns[static_cast<size_t>(which)]);
}

std::optional<Part> own(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  const StepLateness& late = lateness(window, frame);
  return mean_of_own(measure, window, frame,
                     [&](size_t slot, const RankStep&) { return static_cast<double>(late.own_ns[slot]); });
}

std::optional<Part> reported_own(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  return mean_of_own(measure, window, frame,
                     [&](size_t, const RankStep& row) { return static_cast<double>(row.own_ns()); });
}

std::optional<Part> input(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  return mean_of_own(measure, window, frame, [](size_t, const RankStep& row) { return phase(row, Phase::kInput); });
}

std::optional<Part> queue(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  return mean_of_own(measure, window, frame,
                     [](size_t, const RankStep& row) { return static_cast<double>(row.summary.queue_ns); });
}

std::optional<Part> late(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  const StepLateness& step = lateness(window, frame);
  Part part;
  each_own(measure, window, frame, [&](size_t slot, const RankStep&) {
    if (std::isnan(step.late_ns[slot])) return;
    part.sum += static_cast<double>(step.late_ns[slot]);
    part.count += 1;
  });
  return part.count > 0 ? std::optional(part) : std::nullopt;
}

// What the others of a communicator spend in it beyond what the rank does.
std::optional<Part> waited(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  if (measure.ranks.empty()) return std::nullopt;
  const int32_t own_slot = window.slot_of(measure.ranks.front());
  if (own_slot < 0 || !frame.knows(static_cast<size_t>(own_slot))) return std::nullopt;
  Part part;
  part.less_count = 1;
  const std::vector<CommStep>& its = frame.rows[static_cast<size_t>(own_slot)].summary.comms;
  if (std::none_of(its.begin(), its.end(), [&](const CommStep& comm) { return comm.comm_id == measure.comm_id; }))
    return part;
  each_known(frame, [&](size_t slot, const RankStep& row) {
    for (const CommStep& comm : row.summary.comms) {
      if (comm.comm_id != measure.comm_id) continue;
      if (slot == static_cast<size_t>(own_slot)) {
        part.less_sum += static_cast<double>(comm.gpu_ns);
      } else {
        part.sum += static_cast<double>(comm.gpu_ns);
        part.count += 1;
      }
    }
  });
  return part;
}

// Flows that the rank sends: all, or those to one peer of a communicator.
template <typename Each>
void each_sent(const Measure& measure, const RankStep& row, Each each) {
  for (const FlowStep& flow : row.summary.flows) {
    if (!flow.send || (measure.comm_id != CommId{} && flow.comm_id != measure.comm_id) ||
        (measure.peer >= 0 && flow.peer != measure.peer))
      continue;
    each(flow);
  }
}

std::optional<Part> sent(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  Part part;
  each_own(measure, window, frame, [&](size_t, const RankStep& row) {
    each_sent(measure, row, [&](const FlowStep& flow) {
      part.sum += static_cast<double>(flow.bytes);
      part.count += static_cast<double>(flow.wire_ns);
    });
  });
  return part.count > 0 ? std::optional(part) : std::nullopt;
}

std::optional<Part> wire(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  Part part;
  each_own(measure, window, frame, [&](size_t, const RankStep& row) {
    each_sent(measure, row, [&](const FlowStep& flow) {
      if (flow.bytes <= 0 || flow.wire_ns <= 0) return;
      part.sum += static_cast<double>(flow.wire_ns);
      part.count = 1;
    });
  });
  return part.count > 0 ? std::optional(part) : std::nullopt;
}

// What has arrived waits so long, a transfer, until it is handed on.
std::optional<Part> handling(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  Part part;
  each_own(measure, window, frame, [&](size_t, const RankStep& row) {
    for (const FlowStep& flow : row.summary.flows) {
      if (flow.send || flow.transfers <= 0) continue;
      part.sum += static_cast<double>(flow.wire_ns);
      part.count += static_cast<double>(flow.transfers);
    }
  });
  return part.count > 0 ? std::optional(part) : std::nullopt;
}

// The least that a member spends in a communicator's collectives: the last to arrive waits for nobody.
std::optional<Part> transfer(const Measure& measure, const JobWindow&, const StepFrame& frame) {
  double least = std::numeric_limits<double>::infinity();
  each_known(frame, [&](size_t, const RankStep& row) {
    for (const CommStep& comm : row.summary.comms) {
      if (comm.comm_id != measure.comm_id || comm.p2p || comm.count <= 0 || comm.shortest_ns <= 0) continue;
      least = std::min(least, static_cast<double>(comm.shortest_ns * comm.count));
    }
  });
  return std::isfinite(least) ? one(least) : std::nullopt;
}

// The least that a member spends in a communicator's collectives, waiting and all.
std::optional<Part> least_wait(const Measure& measure, const JobWindow&, const StepFrame& frame) {
  double least = std::numeric_limits<double>::infinity();
  each_known(frame, [&](size_t, const RankStep& row) {
    for (const CommStep& comm : row.summary.comms)
      if (comm.comm_id == measure.comm_id && !comm.p2p) least = std::min(least, static_cast<double>(comm.gpu_ns));
  });
  return std::isfinite(least) ? one(least) : std::nullopt;
}

// The longest that anything of the rank stood still: its calls, or a transfer from or to it.
std::optional<Part> stood(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  double longest = 0;
  const auto among = [&](Rank rank) {
    return std::find(measure.ranks.begin(), measure.ranks.end(), rank) != measure.ranks.end();
  };
  each_known(frame, [&](size_t slot, const RankStep& row) {
    const bool its_own = among(window.rank_of(slot));
    if (its_own) longest = std::max(longest, static_cast<double>(row.summary.quiet_ns));
    for (const FlowStep& flow : row.summary.flows) {
      if (flow.send && (its_own || among(window.world_rank(flow.comm_id, flow.peer))))
        longest = std::max(longest, static_cast<double>(flow.wire_longest_ns));
    }
  });
  return one(longest);
}

std::optional<Part> step_time(const Measure&, const JobWindow& window, const StepFrame& frame) {
  return frame.known.empty() ? std::nullopt : one(lateness(window, frame).duration_ns);
}

std::optional<Part> present(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  if (measure.ranks.empty()) return one(1);
  const bool any = std::any_of(measure.ranks.begin(), measure.ranks.end(),
                               [&](Rank rank) { return window.has_step(rank, frame.number); });
  return any ? one(1) : std::nullopt;
}

std::optional<Part> most_own(const Measure&, const JobWindow& window, const StepFrame& frame) {
  const StepLateness& step = lateness(window, frame);
  std::vector<double> all;
  each_known(frame, [&](size_t slot, const RankStep&) { all.push_back(static_cast<double>(step.own_ns[slot])); });
  if (all.empty()) return std::nullopt;
  const double most = *std::max_element(all.begin(), all.end());
  return one(most - median(std::move(all)));
}

std::vector<double> checkpoints_in(const StepFrame& frame) {
  std::vector<double> all;
  each_known(frame, [&](size_t, const RankStep& row) { all.push_back(phase(row, Phase::kCheckpoint)); });
  return all;
}

std::optional<Part> checkpoint(const Measure&, const JobWindow&, const StepFrame& frame) {
  const std::vector<double> all = checkpoints_in(frame);
  return all.empty() ? std::nullopt : one(*std::max_element(all.begin(), all.end()));
}

std::optional<Part> checkpoint_of_most(const Measure&, const JobWindow&, const StepFrame& frame) {
  std::vector<double> all = checkpoints_in(frame);
  return all.empty() ? std::nullopt : one(median(std::move(all)));
}

// Of what ranks report by that name, above zero, the mean.
std::optional<Part> work_reported(const Measure& measure, const JobWindow&, const StepFrame& frame) {
  Part part;
  each_known(frame, [&](size_t, const RankStep& row) {
    for (const StepScalar& scalar : row.summary.scalars) {
      if (scalar.name != measure.name || !(scalar.value > 0)) continue;
      part.sum += scalar.value;
      part.count += 1;
    }
  });
  return part.count > 0 ? one(part.sum / part.count) : std::nullopt;
}

std::optional<Part> scalar(const Measure& measure, const JobWindow&, const StepFrame& frame) {
  std::vector<double> all;
  each_known(frame, [&](size_t, const RankStep& row) {
    for (const StepScalar& scalar : row.summary.scalars)
      if (scalar.name == measure.name && std::isfinite(scalar.value)) all.push_back(scalar.value);
  });
  return all.empty() ? std::nullopt : one(median(std::move(all)));
}

std::optional<Part> not_finite(const Measure& measure, const JobWindow&, const StepFrame& frame) {
  double ranks = 0;
  each_known(frame, [&](size_t, const RankStep& row) {
    ranks += std::any_of(row.summary.scalars.begin(), row.summary.scalars.end(), [&](const StepScalar& scalar) {
      const bool named = measure.name.empty() ? scalar.name.ends_with("_local") : scalar.name == measure.name;
      return named && !std::isfinite(scalar.value);
    });
  });
  return one(ranks);
}

std::optional<Part> apart(const Measure&, const JobWindow& window, const StepFrame& frame) {
  const Latest latest = lateness(window, frame).latest;
  return one(latest.ns - std::max(0.0, latest.next_ns));
}

std::optional<Part> latest_rank(const Measure&, const JobWindow& window, const StepFrame& frame) {
  return one(window.rank_of(lateness(window, frame).latest.slot).value());
}

template <typename Of>
std::optional<Part> most_of(const JobWindow& window, const StepFrame& frame, Of of) {
  const StepLateness& step = lateness(window, frame);
  double most = 0;
  for (size_t slot = 0; slot < step.late_ns.size(); ++slot)
    if (!std::isnan(step.late_ns[slot])) most = std::max(most, static_cast<double>(of(step)[slot]));
  return one(most);
}

std::optional<Part> most_work(const Measure&, const JobWindow& window, const StepFrame& frame) {
  return most_of(window, frame, [](const StepLateness& step) -> const std::vector<float>& { return step.work_ns; });
}

std::optional<Part> most_late(const Measure&, const JobWindow& window, const StepFrame& frame) {
  return most_of(window, frame, [](const StepLateness& step) -> const std::vector<float>& { return step.late_ns; });
}

std::vector<double> own_of_stage(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  const Pipelines pipelines(window, frame);
  std::vector<double> all;
  each_known(frame, [&](size_t, const RankStep& row) {
    if (pipelines.stage_of(row.summary) == measure.stage) all.push_back(static_cast<double>(row.own_ns()));
  });
  return all;
}

std::optional<Part> stage(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  std::vector<double> all = own_of_stage(measure, window, frame);
  return all.empty() ? std::nullopt : one(lower_median(std::move(all)));
}

std::optional<Part> stage_quarter(const Measure& measure, const JobWindow& window, const StepFrame& frame) {
  std::vector<double> all = own_of_stage(measure, window, frame);
  return all.empty() ? std::nullopt : one(quantile(std::move(all), 0.25));
}

std::optional<Part> sharing(const Measure& measure, const JobWindow& window, const StepFrame&) {
  return one(static_cast<double>(victims_of(window, measure.ranks).size()));
}

}  // namespace

struct MeasureRow {
  const char* of;
  const char* unit;
  const char* help;
  double scale;  // from what a step adds to the unit
  Reduce reduce;
  Needs needs;
  StepMeasure step;
};

namespace {

constexpr double kMs = 1e-6;

constexpr MeasureRow kRows[] = {
    {"own_ms", "ms", "own time of the ranks, without checkpoints and evaluation; mean", kMs, Reduce::kRatio,
     Needs::kOwnWhereSeen, own},
    {"own_median_ms", "ms", "own time of the ranks as reported; median of the steps", kMs, Reduce::kMedian, Needs::kOwn,
     reported_own},
    {"input_ms", "ms", "time that the ranks wait for their input; mean", kMs, Reduce::kRatio, Needs::kOwn, input},
    {"queue_ms", "ms", "time that operations of the ranks wait behind their own kernels; mean", kMs, Reduce::kRatio,
     Needs::kOwn, queue},
    {"late_ms", "ms", "own time beyond that of ranks which do the same; median of the steps", kMs, Reduce::kMedian,
     Needs::kAll, late},
    {"waited_ms", "ms", "time in a communicator: of its other members, less the rank's; means", kMs, Reduce::kRatio,
     Needs::kAll, waited},
    {"sent_gb_s", "GB/s", "bytes sent over the time that they were on the wire", 1, Reduce::kRatio, Needs::kOwn, sent},
    {"flow_gb_s", "GB/s", "the same; median of the steps", 1, Reduce::kMedian, Needs::kOwn, sent},
    {"wire_ms", "ms", "time that transfers are on the wire, a step; mean", kMs, Reduce::kRatio, Needs::kOwn, wire},
    {"wire_median_ms", "ms", "the same; median of the steps", kMs, Reduce::kMedian, Needs::kOwn, wire},
    {"handling_ms", "ms", "time that what has arrived waits until it is handed on, a transfer", kMs, Reduce::kRatio,
     Needs::kOwn, handling},
    {"transfer_ms", "ms", "the least that a member spends in a communicator's collectives; median of the steps", kMs,
     Reduce::kMedian, Needs::kAll, transfer},
    {"least_wait_ms", "ms", "the least time that a member spends in a communicator; median of the steps", kMs,
     Reduce::kMedian, Needs::kAll, least_wait},
    {"stood_ms", "ms", "the longest that calls of the rank or a transfer from or to it stood still; mean", kMs,
     Reduce::kRatio, Needs::kAll, stood},
    {"step_ms", "ms", "a step, of the median rank; median of the steps", kMs, Reduce::kMedian, Needs::kAll, step_time},
    {"step_mean_ms", "ms", "a step, of the median rank; mean", kMs, Reduce::kRatio, Needs::kAll, step_time},
    {"step_quarter_ms", "ms", "a step, of the median rank; a quarter of the steps is shorter", kMs, Reduce::kQuarter,
     Needs::kAll, step_time},
    {"steps", "steps", "how many of the steps are stored of the ranks", 1, Reduce::kTotal, Needs::kOwn, present},
    {"most_own_ms", "ms", "own time of the rank that has the most, beyond the median; median of the steps", kMs,
     Reduce::kMedian, Needs::kAll, most_own},
    {"checkpoint_ms", "ms", "the longest checkpoint of any rank; median of the steps", kMs, Reduce::kMedian,
     Needs::kAll, checkpoint},
    {"checkpoint_of_most_ms", "ms", "checkpoint of the median rank; median of the steps", kMs, Reduce::kMedian,
     Needs::kAll, checkpoint_of_most},
    {"work", "", "what ranks report by a name (flops, tokens), mean of the ranks; median of the steps", 1,
     Reduce::kMedian, Needs::kAll, work_reported},
    {"scalar", "", "what ranks report by a name (loss), median of the ranks; median of the steps", 1, Reduce::kMedian,
     Needs::kAll, scalar},
    {"not_finite", "ranks", "ranks whose value by that name (own values, where none is given) is not finite", 1,
     Reduce::kTotal, Needs::kAll, not_finite},
    {"apart_ms", "ms", "how much later the latest rank is than the next; mean", kMs, Reduce::kRatio, Needs::kAll,
     apart},
    {"latest_ranks", "ranks", "how many different ranks were the latest", 1, Reduce::kKinds, Needs::kAll, latest_rank},
    {"work_ms", "ms", "what more work than its peers' explains of the time of the rank with the most; median", kMs,
     Reduce::kMedian, Needs::kAll, most_work},
    {"latest_ms", "ms", "how late the latest rank is, for its work; median of the steps", kMs, Reduce::kMedian,
     Needs::kAll, most_late},
    {"stage_ms", "ms", "own time of the median rank of a pipeline stage; median of the steps", kMs, Reduce::kMedian,
     Needs::kAll, stage},
    {"stage_quarter_ms", "ms", "own time of the fastest quarter of a stage; median of the steps", kMs, Reduce::kMedian,
     Needs::kAll, stage_quarter},
    {"sharing_ranks", "ranks", "ranks that share communicators with these, directly or through others", 1,
     Reduce::kMedian, Needs::kAll, sharing},
};

const MeasureRow* row_of(std::string_view of) {
  for (const MeasureRow& row : kRows)
    if (of == row.of) return &row;
  return nullptr;
}

// "40-49,52"
template <typename Number>
std::string runs_text(const std::vector<Number>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1].value() - numbers[last].value() == 1) ++last;
    if (!text.empty()) text += ',';
    text += format("%lld", static_cast<long long>(numbers[i].value()));
    if (last > i) text += format("-%lld", static_cast<long long>(numbers[last].value()));
    i = last + 1;
  }
  return text;
}

Result<std::vector<int64_t>> runs_from_text(std::string_view what, std::string_view text, size_t most) {
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t dash = item.find('-', 1);
    const std::optional<int64_t> from = parse_int(std::string(item.substr(0, dash)));
    const std::optional<int64_t> to =
        dash == std::string_view::npos ? from : parse_int(std::string(item.substr(dash + 1)));
    if (!from || !to || *from < 0 || *to < *from || (!numbers.empty() && *from <= numbers.back()))
      return Error{format("%.*s \"%.40s\" is not numbers in order, like 3,5,8-11", static_cast<int>(what.size()),
                          what.data(), std::string(item).c_str())};
    if (static_cast<uint64_t>(*to - *from) >= most - numbers.size())
      return Error{format("%.*s: more than %zu", static_cast<int>(what.size()), what.data(), most)};
    for (int64_t more = 0; more <= *to - *from; ++more)
      numbers.push_back(*from + more);  // the largest number may be there
  }
  return numbers;
}

}  // namespace

std::string Measure::query() const {
  std::string text = "/api/jobs/{job}/evidence?of=" + of;
  if (!ranks.empty()) text += "&ranks=" + runs_text(ranks);
  if (comm_id != CommId{}) text += "&comm=" + comm_id_text(comm_id);
  if (peer >= 0) text += format("&peer=%d", peer);
  if (stage >= 0) text += format("&stage=%d", stage);
  if (!name.empty()) text += "&name=" + url_part(name);
  return text + "&steps=" + runs_text(steps);
}

std::vector<MeasureInfo> measures() {
  std::vector<MeasureInfo> all;
  for (const MeasureRow& row : kRows) all.push_back({row.of, row.unit, row.help});
  return all;
}

Result<Measure> measure_from(const std::function<std::string(std::string_view)>& parameter) {
  Measure measure;
  measure.of = parameter("of");
  if (row_of(measure.of) == nullptr) {
    std::string known;
    for (const MeasureRow& row : kRows) known += (known.empty() ? "" : ", ") + std::string(row.of);
    return Error{format("of: \"%.40s\" is no measure; there are %s", measure.of.c_str(), known.c_str())};
  }
  const std::vector<int64_t> ranks = LOCKSTEP_TRY(runs_from_text("ranks", parameter("ranks"), Measure::kRanksMax));
  for (int64_t rank : ranks) {
    if (rank > std::numeric_limits<int32_t>::max()) return Error{"ranks: no rank is that large"};
    measure.ranks.push_back(Rank{static_cast<int32_t>(rank)});
  }
  const std::vector<int64_t> steps = LOCKSTEP_TRY(runs_from_text("steps", parameter("steps"), Measure::kStepsMax));
  if (steps.empty()) return Error{"steps: which steps is not said, like 40-49"};
  for (int64_t step : steps) measure.steps.push_back(StepNumber{step});
  const std::string comm = parameter("comm");
  if (!comm.empty()) {
    const std::optional<CommId> id = comm_id_from_text(comm);
    if (!id) return Error{format("comm: \"%.40s\" is not a communicator's id", comm.c_str())};
    measure.comm_id = *id;
  }
  for (auto [what, into] : {std::pair("peer", &measure.peer), std::pair("stage", &measure.stage)}) {
    const std::string text = parameter(what);
    if (text.empty()) continue;
    const std::optional<int64_t> number = parse_int(text);
    if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max())
      return Error{format("%s: \"%.40s\" is not a whole number", what, text.c_str())};
    *into = static_cast<int32_t>(*number);
  }
  measure.name = parameter("name");
  return measure;
}

bool needs_every_rank(const Measure& measure, bool communication_is_seen) {
  const Needs needs = row_of(measure.of)->needs;
  return measure.ranks.empty() || needs == Needs::kAll || (needs == Needs::kOwnWhereSeen && !communication_is_seen);
}

Measurement::Measurement(const Measure& measure) : measure_(measure), row_(*row_of(measure.of)) {}

std::string_view Measurement::unit() const {
  return row_.unit;
}

void Measurement::add(const JobWindow& window, StepNumber step) {
  const StepFrame* frame = window.frame(step);
  if (frame == nullptr) return;
  const std::optional<Part> part = row_.step(measure_, window, *frame);
  if (!part) return;
  sum_ += part->sum;
  count_ += part->count;
  less_sum_ += part->less_sum;
  less_count_ += part->less_count;
  if (part->count <= 0) return;
  const double less = part->less_count > 0 ? part->less_sum / part->less_count : 0;
  by_step_.emplace_back(step, (part->sum / part->count - less) * row_.scale);
}

std::optional<double> Measurement::value() const {
  if (by_step_.empty()) return std::nullopt;
  switch (row_.reduce) {
    case Reduce::kRatio:
      return (sum_ / count_ - (less_count_ > 0 ? less_sum_ / less_count_ : 0)) * row_.scale;
    case Reduce::kTotal:
      return sum_ * row_.scale;
    case Reduce::kMedian:
    case Reduce::kQuarter:
    case Reduce::kKinds:
      break;
  }
  std::vector<double> values;
  for (const auto& [step, value] : by_step_) values.push_back(value);
  if (row_.reduce == Reduce::kKinds) return static_cast<double>(std::set<double>(values.begin(), values.end()).size());
  return row_.reduce == Reduce::kQuarter ? quantile(std::move(values), 0.25) : median(std::move(values));
}

double measured(const JobWindow& window, const Measure& measure) {
  Measurement all(measure);
  for (StepNumber step : measure.steps) all.add(window, step);
  return all.value().value_or(0);
}

}  // namespace lockstep
