#include "analysis/whatif/pipeline_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/text.h"

namespace lockstep {
namespace {

enum Kind : uint8_t {
  kForwardCompute,
  kBackwardCompute,
  kForwardSend,
  kForwardRecv,
  kBackwardSend,
  kBackwardRecv,
  kParamsGather,
  kGradsScatter,
  kSeparateGrads,
  kGarbageCollection,
  kLayernormGrads,
  kEmbeddingGrads,
  kClip,
  kOptimizer,
  kKindCount,
};

struct KindRow {
  const char* name;
  const char* reported_as;
  bool communication;
  OpRole role = OpRole::kOther;
};
constexpr std::array<KindRow, kKindCount> kKinds = {{
    {"forward-compute", "forward compute", false, OpRole::kForward},
    {"backward-compute", "backward compute", false, OpRole::kBackward},
    {"forward-send", "forward send/receive", true},
    {"forward-recv", "forward send/receive", true},
    {"backward-send", "backward send/receive", true},
    {"backward-recv", "backward send/receive", true},
    {"params-all-gather", "gather of parameters", true},
    {"grads-reduce-scatter", "scatter of gradients", true},
    {"separate-grads-all-reduce", "sum of separate gradients", true},
    {"gc", "garbage collection", false},
    {"layernorm-grads-all-reduce", "sum of layernorm gradients", true},
    {"embedding-grads-all-reduce", "sum of embedding gradients", true},
    {"optimizer-clip-main-grad", "clipping of gradients", true},
    {"optimizer", "optimizer", false},
}};

// Clocks of neighbours agree to about this; decides which sends and receives belong to no computation at all.
constexpr double kClockErrorS = 5e-5;
constexpr int64_t kRankMax = 1 << 24;
constexpr int64_t kStageMax = 4'096;

struct Row {
  int32_t step = 0;  // index
  int32_t dp = 0;
  int32_t stage = 0;
  Rank rank;
  Kind kind = kForwardCompute;
  int32_t seq = 0;
  int32_t chunk = 0;         // in the stage
  int32_t global_chunk = 0;  // in the model
  int32_t batch = -1;
  double start_s = 0;
  double end_s = 0;
};

// One data-parallel rank in one step: what all the others do as well.
class Pattern {
 public:
  explicit Pattern(std::vector<Row> rows, int32_t stages) : rows_(std::move(rows)), stages_(stages) {}

  Result<void> work_out(bool data_parallel, bool overlapped);

  size_t size() const { return rows_.size(); }
  const Row& row(size_t op) const { return rows_[op]; }
  // Place of an operation; -1: it is not in the pattern.
  int32_t find(Kind kind, int32_t stage, int32_t seq) const {
    const auto found = places_.find({kind, stage, seq});
    return found == places_.end() ? -1 : static_cast<int32_t>(found->second);
  }

  struct Meeting {
    std::vector<uint32_t> members;
    bool all_ranks = false;  // of every data-parallel rank together; else of each for itself
  };
  std::vector<std::pair<uint32_t, uint32_t>> edges;  // first, then
  std::vector<Meeting> meetings;

 private:
  using Ops = std::vector<uint32_t>;
  Ops ops(int32_t stage, std::initializer_list<Kind> kinds) const;
  void chain(const Ops& line) {
    for (size_t i = 1; i < line.size(); ++i) edges.emplace_back(line[i - 1], line[i]);
  }
  Result<void> match_messages(int32_t stage);
  Result<void> match(int32_t stage, Kind compute, Kind message, bool send);
  Result<void> pair_messages();
  void first_backward(int32_t stage);
  void data_parallel_edges(int32_t stage, bool overlapped);
  void after_computing(int32_t stage, bool data_parallel, bool overlapped);

  std::vector<Row> rows_;
  int32_t stages_;
  int32_t chunks_per_stage_ = 1;
  std::map<std::tuple<Kind, int32_t, int32_t>, uint32_t> places_;
  std::vector<Ops> by_stage_and_kind_;
  std::vector<uint8_t> real_message_;  // by operation: somebody sends or receives at the other end
};

Pattern::Ops Pattern::ops(int32_t stage, std::initializer_list<Kind> kinds) const {
  Ops found;
  for (const Kind kind : kinds) {
    const Ops& some = by_stage_and_kind_[static_cast<size_t>(stage) * kKindCount + kind];
    found.insert(found.end(), some.begin(), some.end());
  }
  std::sort(found.begin(), found.end(), [&](uint32_t a, uint32_t b) {
    const Row &x = rows_[a], &y = rows_[b];
    // Names decide last: "backward" stands before "forward".
    return std::make_tuple(x.start_s, x.seq, std::string_view(kKinds[x.kind].name)) <
           std::make_tuple(y.start_s, y.seq, std::string_view(kKinds[y.kind].name));
  });
  return found;
}

// Each send and receive belongs to one computation, in order. Recorders also write down messages that were never sent:
// before the first computation of its direction has ended there is nothing to send, behind the last one's start nothing
// to receive, and the ends of the model have no neighbour. Those take part in the stream's order, but meet nobody.
Result<void> Pattern::match(int32_t stage, Kind compute, Kind message, bool send) {
  const Ops computes = ops(stage, {compute}), messages = ops(stage, {message});
  if (messages.empty()) return {};
  double last_start = -1e300, first_end = 1e300;
  for (const uint32_t op : computes) {
    last_start = std::max(last_start, rows_[op].start_s);
    first_end = std::min(first_end, rows_[op].end_s);
  }
  const auto has_computation = [&](uint32_t op) {
    return send ? rows_[op].end_s >= first_end - kClockErrorS : rows_[op].start_s <= last_start + kClockErrorS;
  };
  const auto matched = static_cast<size_t>(std::count_if(messages.begin(), messages.end(), has_computation));
  int32_t number = 0;
  if (matched != computes.size()) {
    // At the ends of the pipeline there may be none, or one less: the first receive has nobody to come from.
    const bool at_an_end = stage == 0 || stage == stages_ - 1;
    if (!at_an_end || (matched != 0 && matched + 1 != computes.size()))
      return Error{format("whatif: stage %d has %zu of %s for %zu of %s: they cannot be matched", stage, matched,
                          kKinds[message].name, computes.size(), kKinds[compute].name)};
    if (!send && matched + 1 == computes.size()) number = 1;
  }
  const bool forward = compute == kForwardCompute;
  const int32_t towards = forward == send ? 1 : -1;
  for (const uint32_t op : messages) {
    if (!has_computation(op)) continue;
    const int32_t computation = find(compute, stage, number);
    if (computation < 0)
      return Error{format("whatif: stage %d has no %s with seq_id %d", stage, kKinds[compute].name, number)};
    const auto mine = static_cast<uint32_t>(computation);
    const int32_t peer_chunk = rows_[mine].global_chunk + towards;
    real_message_[op] = peer_chunk >= 0 && peer_chunk < chunks_per_stage_ * stages_;
    if (send) {
      edges.emplace_back(mine, op);
    } else {
      edges.emplace_back(op, mine);
      if (const int32_t before = find(compute, stage, number - 1); before >= 0)
        edges.emplace_back(static_cast<uint32_t>(before), op);
    }
    ++number;
  }
  return {};
}

Result<void> Pattern::match_messages(int32_t stage) {
  for (const auto& [compute, message, send] :
       {std::make_tuple(kForwardCompute, kForwardSend, true), std::make_tuple(kForwardCompute, kForwardRecv, false),
        std::make_tuple(kBackwardCompute, kBackwardSend, true),
        std::make_tuple(kBackwardCompute, kBackwardRecv, false)}) {
    LOCKSTEP_TRY(match(stage, compute, message, send));
  }
  return {};
}

// The n-th real send of a stage is the n-th real receive of the next.
Result<void> Pattern::pair_messages() {
  for (const auto& [send, receive, towards] :
       {std::make_tuple(kForwardSend, kForwardRecv, 1), std::make_tuple(kBackwardSend, kBackwardRecv, -1)}) {
    for (int32_t stage = 0; stage < stages_; ++stage) {
      Ops sends = ops(stage, {send}), receives = ops((stage + towards + stages_) % stages_, {receive});
      const auto not_real = [&](uint32_t op) { return real_message_[op] == 0; };
      std::erase_if(sends, not_real);
      std::erase_if(receives, not_real);
      if (sends.size() != receives.size())
        return Error{format("whatif: stage %d has %zu of %s, its neighbour %zu of %s", stage, sends.size(),
                            kKinds[send].name, receives.size(), kKinds[receive].name)};
      for (size_t i = 0; i < sends.size(); ++i) meetings.push_back({{sends[i], receives[i]}, false});
    }
  }
  for (uint32_t op = 0; op < rows_.size(); ++op) {
    const Kind kind = rows_[op].kind;
    if (kind >= kForwardSend && kind <= kBackwardRecv && real_message_[op] == 0) meetings.push_back({{op}, false});
  }
  return {};
}

// The first message backwards is posted while the last forward computation before the first backward one runs.
void Pattern::first_backward(int32_t stage) {
  const Ops computes = ops(stage, {kForwardCompute, kBackwardCompute});
  const auto first =
      std::find_if(computes.begin(), computes.end(), [&](uint32_t op) { return rows_[op].kind == kBackwardCompute; });
  if (first == computes.end() || first - computes.begin() < 2) return;
  for (const Kind message : {kBackwardSend, kBackwardRecv}) {
    if (const int32_t op = find(message, stage, 0); op >= 0)
      edges.emplace_back(*(first - 2), static_cast<uint32_t>(op));
  }
}

void Pattern::data_parallel_edges(int32_t stage, bool overlapped) {
  chain(ops(stage, {kParamsGather, kGradsScatter}));
  // The last gather of a chunk feeds its first forward; the first scatter waits for its last backward.
  std::set<int32_t> done;
  Ops gathers = ops(stage, {kParamsGather});
  std::sort(gathers.begin(), gathers.end(), [&](uint32_t a, uint32_t b) { return rows_[a].seq > rows_[b].seq; });
  for (const uint32_t gather : gathers) {
    if (!done.insert(rows_[gather].chunk).second) continue;
    for (const uint32_t op : ops(stage, {kForwardCompute})) {
      if (rows_[op].chunk != rows_[gather].chunk) continue;
      edges.emplace_back(gather, op);
      break;
    }
  }
  if (!overlapped) return;
  done.clear();
  Ops scatters = ops(stage, {kGradsScatter});
  std::sort(scatters.begin(), scatters.end(), [&](uint32_t a, uint32_t b) { return rows_[a].seq < rows_[b].seq; });
  for (const uint32_t scatter : scatters) {
    if (!done.insert(rows_[scatter].chunk).second) continue;
    std::optional<uint32_t> last;
    for (const uint32_t op : ops(stage, {kBackwardCompute})) {
      if (rows_[op].chunk == rows_[scatter].chunk && (!last || rows_[op].end_s > rows_[*last].end_s)) last = op;
    }
    if (last) edges.emplace_back(*last, scatter);
  }
}

void Pattern::after_computing(int32_t stage, bool data_parallel, bool overlapped) {
  std::optional<uint32_t> last;
  for (const uint32_t op : ops(stage, {kForwardCompute, kBackwardCompute})) {
    if (!last || rows_[op].end_s > rows_[*last].end_s) last = op;
  }
  Ops before, line;
  const auto then = [&](Ops& where, Kind kind, int32_t seq) {
    if (const int32_t op = find(kind, stage, seq); op >= 0) where.push_back(static_cast<uint32_t>(op));
  };
  if (last) before.push_back(*last);
  then(before, kGarbageCollection, 0);
  chain(before);
  then(line, kLayernormGrads, 0);
  if (stage == 0 || stage == stages_ - 1) then(line, kEmbeddingGrads, 0);
  if (data_parallel && overlapped) then(line, kSeparateGrads, 0);
  if (data_parallel && !overlapped) {
    for (int32_t seq = 0; find(kGradsScatter, stage, seq) >= 0; ++seq) then(line, kGradsScatter, seq);
  }
  then(line, kClip, 0);
  then(line, kOptimizer, 0);
  chain(line);
  if (line.empty()) return;
  if (!before.empty()) edges.emplace_back(before.back(), line.front());
  if (!data_parallel || !overlapped) return;
  const Ops scatters = ops(stage, {kGradsScatter});
  const auto last_scatter = std::max_element(scatters.begin(), scatters.end(),
                                             [&](uint32_t a, uint32_t b) { return rows_[a].seq < rows_[b].seq; });
  if (last_scatter != scatters.end()) edges.emplace_back(*last_scatter, line.front());
}

Result<void> Pattern::work_out(bool data_parallel, bool overlapped) {
  by_stage_and_kind_.resize(static_cast<size_t>(stages_) * kKindCount);
  for (uint32_t op = 0; op < rows_.size(); ++op) {
    const Row& row = rows_[op];
    by_stage_and_kind_[static_cast<size_t>(row.stage) * kKindCount + row.kind].push_back(op);
    if (!places_.try_emplace({row.kind, row.stage, row.seq}, op).second)
      return Error{format("whatif: step %d: two of %s with stage %d, seq_id %d", row.step, kKinds[row.kind].name,
                          row.stage, row.seq)};
    chunks_per_stage_ = std::max(chunks_per_stage_, row.chunk + 1);
  }
  real_message_.assign(rows_.size(), 0);
  for (int32_t stage = 0; stage < stages_; ++stage) {
    chain(ops(stage, {kForwardCompute, kBackwardCompute}));
    for (const Kind stream : {kForwardSend, kForwardRecv, kBackwardSend, kBackwardRecv}) chain(ops(stage, {stream}));
    LOCKSTEP_TRY(match_messages(stage));
    first_backward(stage);
    if (data_parallel) data_parallel_edges(stage, overlapped);
    after_computing(stage, data_parallel, overlapped);
  }
  LOCKSTEP_TRY(pair_messages());
  Meeting embedding, clip{{}, true};
  for (uint32_t op = 0; op < rows_.size(); ++op) {
    const Row& row = rows_[op];
    const bool own_group = row.kind == kParamsGather || row.kind == kGradsScatter || row.kind == kSeparateGrads;
    if (own_group && data_parallel) meetings.push_back({{op}, true});
    if (row.kind == kEmbeddingGrads && row.seq == 0 && (row.stage == 0 || row.stage == stages_ - 1))
      embedding.members.push_back(op);
    if (row.kind == kClip && row.seq == 0) clip.members.push_back(op);
  }
  if (!embedding.members.empty()) meetings.push_back(std::move(embedding));
  if (!clip.members.empty()) meetings.push_back(std::move(clip));
  return {};
}

struct Columns {
  const ParquetColumn *dp, *stage, *rank, *step, *optype, *start, *duration, *seq, *chunk, *global_chunk, *batch;
};

Result<Columns> columns_of(const ParquetTable& table) {
  using ColumnKind = ParquetColumn::Kind;
  Columns columns{};
  struct Wanted {
    const char* name;
    const ParquetColumn** place;
    ColumnKind kind;
    bool needed;
  };
  for (const Wanted& wanted : {Wanted{"dp_rank", &columns.dp, ColumnKind::kInteger, true},
                               Wanted{"stage", &columns.stage, ColumnKind::kInteger, true},
                               Wanted{"rank", &columns.rank, ColumnKind::kInteger, true},
                               Wanted{"step", &columns.step, ColumnKind::kInteger, true},
                               Wanted{"optype", &columns.optype, ColumnKind::kText, true},
                               Wanted{"start_ts", &columns.start, ColumnKind::kReal, true},
                               Wanted{"duration", &columns.duration, ColumnKind::kReal, true},
                               Wanted{"seq_id", &columns.seq, ColumnKind::kInteger, true},
                               Wanted{"mc", &columns.chunk, ColumnKind::kInteger, false},
                               Wanted{"gmc", &columns.global_chunk, ColumnKind::kInteger, false},
                               Wanted{"mb_id", &columns.batch, ColumnKind::kInteger, false}}) {
    *wanted.place = table.find(wanted.name);
    if (*wanted.place == nullptr) {
      if (wanted.needed) return Error{format("whatif: the trace has no column %s", wanted.name)};
      continue;
    }
    if ((*wanted.place)->kind != wanted.kind)
      return Error{format("whatif: column %s is not of the kind that this format has", wanted.name)};
  }
  return columns;
}

Result<std::vector<Row>> rows_of(const ParquetTable& table, std::vector<StepNumber>& steps) {
  const Columns columns = LOCKSTEP_TRY(columns_of(table));
  std::vector<int> kind_of_code(columns.optype->words.size(), -1);
  for (size_t code = 0; code < kind_of_code.size(); ++code) {
    for (int kind = 0; kind < kKindCount; ++kind) {
      if (columns.optype->words[code] == kKinds[static_cast<size_t>(kind)].name) kind_of_code[code] = kind;
    }
  }
  steps.clear();
  for (int64_t number : columns.step->integers) steps.emplace_back(number);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());

  std::vector<Row> rows(table.rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    for (const ParquetColumn* needed : {columns.dp, columns.stage, columns.rank, columns.step, columns.optype,
                                        columns.start, columns.duration, columns.seq}) {
      if (!needed->has_value(i)) return Error{format("whatif: row %zu: %s is missing", i, needed->name.c_str())};
    }
    const auto bounded = [&](const ParquetColumn* column, int64_t most, int32_t& target) -> Result<void> {
      if (column == nullptr || !column->has_value(i)) return {};
      const int64_t value = column->integers[i];
      if (value < 0 || value >= most)
        return Error{format("whatif: row %zu: %s is %lld; 0 to %lld is understood", i, column->name.c_str(),
                            static_cast<long long>(value), static_cast<long long>(most - 1))};
      target = static_cast<int32_t>(value);
      return {};
    };
    int32_t rank = 0;
    LOCKSTEP_TRY(bounded(columns.dp, kRankMax, row.dp));
    LOCKSTEP_TRY(bounded(columns.stage, kStageMax, row.stage));
    LOCKSTEP_TRY(bounded(columns.rank, kRankMax, rank));
    LOCKSTEP_TRY(bounded(columns.seq, kRankMax, row.seq));
    row.rank = Rank{rank};
    const uint32_t code = columns.optype->codes[i];
    if (kind_of_code[code] < 0)
      return Error{format("whatif: row %zu: operations of type \"%s\" are not known", i,
                          as_one_line(columns.optype->words[code].substr(0, 64)).c_str())};
    row.kind = static_cast<Kind>(kind_of_code[code]);
    const bool computes = row.kind == kForwardCompute || row.kind == kBackwardCompute;
    // Of other operations these may hold anything.
    const auto lenient = [&](const ParquetColumn* column, int32_t fallback) {
      if (column == nullptr || !column->has_value(i)) return fallback;
      const int64_t value = column->integers[i];
      return value < 0 || value >= kRankMax ? fallback : static_cast<int32_t>(value);
    };
    row.chunk = std::min(lenient(columns.chunk, 0), static_cast<int32_t>(kStageMax));
    row.global_chunk = lenient(columns.global_chunk, row.stage);
    row.batch = computes ? lenient(columns.batch, -1) : -1;
    row.step = static_cast<int32_t>(
        std::lower_bound(steps.begin(), steps.end(), StepNumber{columns.step->integers[i]}) - steps.begin());
    row.start_s = columns.start->reals[i];
    const double duration = columns.duration->reals[i];
    row.end_s = row.start_s + duration;
    if (!std::isfinite(row.end_s) || std::abs(row.start_s) > 1e12 || duration < 0 || duration > 1e9)
      return Error{format("whatif: row %zu: start %g s and duration %g s make no sense", i, row.start_s, duration)};
  }
  return rows;
}

// The rows of a trace, put into the pattern of its first step. A lane is one data-parallel rank in one step.
class PipelineGraph {
 public:
  PipelineGraph(std::vector<Row> rows, std::vector<StepNumber> step_numbers)
      : rows_(std::move(rows)), step_numbers_(std::move(step_numbers)), usable_(step_numbers_.size(), 1) {
    for (const Row& row : rows_) {
      dp_ranks_ = std::max(dp_ranks_, row.dp + 1);
      stages_ = std::max(stages_, row.stage + 1);
      overlapped_ = overlapped_ || row.kind == kSeparateGrads;
    }
  }

  Result<OpGraph> make(const PipelineMeta& meta, std::vector<std::string>& notes) {
    LOCKSTEP_TRY(count_lanes());
    const Pattern pattern = LOCKSTEP_TRY(first_pattern(meta));
    place_rows(pattern);
    const auto kept = static_cast<size_t>(std::count(usable_.begin(), usable_.end(), 1));
    if (kept == 0) return Error{"whatif: no step in which all data-parallel ranks have the same operations"};
    if (kept < usable_.size())
      notes.push_back(format("%zu of %zu steps left out: not every rank has the operations of the first step there",
                             usable_.size() - kept, usable_.size()));
    LOCKSTEP_TRY(describe_job(meta));
    builder_.reserve(kept * dp_ranks() * pattern.size(), kept * dp_ranks() * pattern.edges.size());
    for (size_t step = 0; step < usable_.size(); ++step) {
      if (usable_[step] != 0) add_step(step, pattern);
    }
    return std::move(builder_).finish();
  }

 private:
  size_t dp_ranks() const { return static_cast<size_t>(dp_ranks_); }
  size_t lane_of(const Row& row) const {
    return static_cast<size_t>(row.step) * dp_ranks() + static_cast<size_t>(row.dp);
  }

  // There cannot be more lanes, nor more workers, than rows.
  Result<void> count_lanes() {
    const size_t lanes = dp_ranks() * step_numbers_.size();
    if (lanes > rows_.size() || dp_ranks() * static_cast<size_t>(stages_) > rows_.size())
      return Error{
          format("whatif: dp_rank up to %d and stage up to %d in %zu steps, but only %zu rows: ranks are missing",
                 dp_ranks_ - 1, stages_ - 1, step_numbers_.size(), rows_.size())};
    rows_in_lane_.assign(lanes, 0);
    for (const Row& row : rows_) ++rows_in_lane_[lane_of(row)];
    return {};
  }

  // The pattern is the first step's.
  Result<Pattern> first_pattern(const PipelineMeta& meta) const {
    std::vector<Row> pattern_rows;
    for (const Row& row : rows_) {
      if (lane_of(row) == 0) pattern_rows.push_back(row);
    }
    Pattern pattern(std::move(pattern_rows), stages_);
    const bool data_parallel = dp_ranks_ * meta.dsp_size > 1;
    LOCKSTEP_TRY(pattern.work_out(data_parallel, overlapped_));
    return pattern;
  }

  // Finds out where each row of a usable step stands; a place taken twice means that another is empty.
  void place_rows(const Pattern& pattern) {
    const size_t width = pattern.size(), lanes = rows_in_lane_.size();
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (rows_in_lane_[lane] != width) usable_[lane / dp_ranks()] = 0;
    }
    lane_begin_.assign(lanes, 0);
    size_t used = 0;
    for (size_t lane = 0; lane < lanes; ++lane) {
      lane_begin_[lane] = used;
      if (usable_[lane / dp_ranks()] != 0) used += width;
    }
    row_at_.assign(used, UINT32_MAX);
    for (uint32_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      if (usable_[static_cast<size_t>(row.step)] == 0) continue;
      const int32_t place = pattern.find(row.kind, row.stage, row.seq);
      if (place < 0 || row_at_[lane_begin_[lane_of(row)] + static_cast<size_t>(place)] != UINT32_MAX) {
        usable_[static_cast<size_t>(row.step)] = 0;
        continue;
      }
      row_at_[lane_begin_[lane_of(row)] + static_cast<size_t>(place)] = i;
    }
  }

  Result<void> describe_job(const PipelineMeta& meta) {
    for (const KindRow& kind : kKinds)
      builder_.types.push_back({kind.name, kind.reported_as, kind.communication, kind.role});
    builder_.workers.resize(dp_ranks() * static_cast<size_t>(stages_));
    for (const Row& row : rows_)
      builder_.workers[static_cast<size_t>(row.dp) * static_cast<size_t>(stages_) + static_cast<size_t>(row.stage)] = {
          row.rank, row.dp, row.stage};
    for (const Worker& worker : builder_.workers) {
      if (worker.dp < 0) return Error{"whatif: a worker (dp_rank and stage) has no operations"};
    }
    builder_.gpus = meta.world_size;
    return {};
  }

  void add_step(size_t step, const Pattern& pattern) {
    const auto index = static_cast<int32_t>(builder_.steps.size());
    builder_.steps.push_back(step_numbers_[step]);
    uint32_t first = 0;
    std::vector<uint32_t> members;
    for (int32_t dp = 0; dp < dp_ranks_; ++dp) {
      const uint32_t base =
          add_lane(lane_begin_[step * dp_ranks() + static_cast<size_t>(dp)], dp, index, pattern.size());
      if (dp == 0) first = base;
      for (const auto& edge : pattern.edges) builder_.add_edge(base + edge.first, base + edge.second);
      for (const Pattern::Meeting& meeting : pattern.meetings) {
        if (meeting.all_ranks) continue;
        members.clear();
        for (const uint32_t op : meeting.members) members.push_back(base + op);
        builder_.add_meeting(members);
      }
    }
    for (const Pattern::Meeting& meeting : pattern.meetings) {
      if (!meeting.all_ranks) continue;
      members.clear();
      for (int32_t dp = 0; dp < dp_ranks_; ++dp) {
        for (const uint32_t op : meeting.members)
          members.push_back(first + static_cast<uint32_t>(dp) * static_cast<uint32_t>(pattern.size()) + op);
      }
      builder_.add_meeting(members);
    }
  }

  // Gives the number of its first operation.
  uint32_t add_lane(size_t begin, int32_t dp, int32_t step, size_t width) {
    uint32_t base = 0;
    for (size_t op = 0; op < width; ++op) {
      const Row& row = rows_[row_at_[begin + op]];
      // A micro-batch passes every chunk of the stage, and each time is a pair of its own.
      const int32_t batch = row.batch < 0 ? -1 : row.batch * 64 + std::min(row.chunk, 63);
      const uint32_t number = builder_.add({.type = row.kind,
                                            .equals = row.kind,
                                            .worker = dp * stages_ + row.stage,
                                            .step = step,
                                            .batch = batch,
                                            .start_s = row.start_s,
                                            .end_s = row.end_s});
      if (op == 0) base = number;
    }
    return base;
  }

  const std::vector<Row> rows_;
  const std::vector<StepNumber> step_numbers_;
  int32_t dp_ranks_ = 0, stages_ = 0;
  bool overlapped_ = false;
  std::vector<uint8_t> usable_;  // per step
  std::vector<size_t> rows_in_lane_;
  std::vector<size_t> lane_begin_;  // of a lane in row_at_
  std::vector<uint32_t> row_at_;    // by lane and place in the pattern
  GraphBuilder builder_;
};

}  // namespace

Result<PipelineMeta> parse_pipeline_meta(std::string_view text) {
  PipelineMeta meta;
  for (std::string_view line : split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = trim(line.substr(0, colon)), value = trim(line.substr(colon + 1));
    if (key == "trial_name") meta.name = as_one_line(value.substr(0, 64));
    int64_t* number = key == "dsp_size" ? &meta.dsp_size : key == "world_size" ? &meta.world_size : nullptr;
    if (number == nullptr) continue;
    const std::optional<int64_t> parsed = parse_int(value);
    if (!parsed || *parsed < 1 || *parsed > kRankMax)
      return Error{format("whatif: %.*s is \"%s\"; it must be a number from 1 on", static_cast<int>(key.size()),
                          key.data(), as_one_line(value.substr(0, 40)).c_str())};
    *number = *parsed;
  }
  return meta;
}

const std::vector<std::string>& pipeline_trace_columns() {
  static const std::vector<std::string> kColumns = {"dp_rank",  "stage",  "rank", "step", "optype", "start_ts",
                                                    "duration", "seq_id", "mc",   "gmc",  "mb_id"};
  return kColumns;
}

Result<OpGraph> graph_of_pipeline_trace(const ParquetTable& table, const PipelineMeta& meta,
                                        std::vector<std::string>& notes) {
  std::vector<StepNumber> step_numbers;
  std::vector<Row> rows = LOCKSTEP_TRY(rows_of(table, step_numbers));
  if (rows.empty()) return Error{"whatif: the trace has no rows"};
  return PipelineGraph(std::move(rows), std::move(step_numbers)).make(meta, notes);
}

}  // namespace lockstep
