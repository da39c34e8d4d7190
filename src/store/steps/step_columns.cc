// How rows become small. They lie by (job, step, rank), so neighbours are ranks of one step, which do nearly the same.
//  - Cells (communicators, flows, scalars) are written slot by slot: the first of all rows, then the second of all,
//  ...;
//    the same communicator of the next rank is a better neighbour than the next communicator of the same rank.
//  - Numbers that follow from others in the usual case are kept as the difference to what would follow: communication
//    is what own work leaves of a step, the parts of a step add up, a communicator with one operation has one duration.
//  - Times within a step are kept from its start.
#include "store/steps/step_columns.h"

#include <algorithm>
#include <bit>

#include "base/crc32c.h"
#include "base/text.h"
#include "base/wrapping.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/columns/text_codec.h"

namespace lockstep::steps {

using columns::ByteReader;
using columns::decode_ints;
using columns::encode_ints;
using columns::put_bytes;
using columns::put_fixed;
using columns::put_signed;
using columns::put_varint;
using columns::SectionPlace;
using columns::TextTable;

namespace {

constexpr size_t kRanksMax = 1u << 22;
constexpr size_t kShapesMax = 1u << 22;
constexpr size_t kShapeKeysMax = 1u << 24;
constexpr size_t kTextBytesMax = 256u << 20;
constexpr size_t kContentBytesSoftMax = 128u << 20;
constexpr size_t kShapeKeysSoftMax = 1u << 20;
constexpr int64_t kInferred = 1;  // bits of kFlags
constexpr int64_t kSplitKnown = 2;

// A time as the distance from the step's start, but "none" (0) as 0. The start itself takes the code that none would
// have had, so that every time has a code of its own.
int64_t from_start(int64_t time, int64_t start) {
  if (time == 0) return 0;
  return time == start ? minus(0, start) : minus(time, start);
}
int64_t to_time(int64_t code, int64_t start) {
  if (code == 0) return 0;
  return code == minus(0, start) ? start : plus(code, start);
}

// Where the cells of rows lie when they are written slot by slot: slot 0 of each row that has one, then slot 1, ...
std::vector<uint32_t> slot_order(const std::vector<size_t>& ends) {
  std::vector<uint32_t> order;
  if (ends.empty()) return order;
  order.reserve(ends.back());
  std::vector<uint32_t> rows(ends.size());
  for (uint32_t row = 0; row < rows.size(); ++row) rows[row] = row;
  for (size_t slot = 0; !rows.empty(); ++slot) {
    size_t kept = 0;
    for (uint32_t row : rows) {
      const size_t begin = row == 0 ? 0 : ends[row - 1];
      if (begin + slot >= ends[row]) continue;
      order.push_back(static_cast<uint32_t>(begin + slot));
      rows[kept++] = row;
    }
    rows.resize(kept);
  }
  return order;
}

std::string encode_cells(const std::vector<int64_t>& values, const std::vector<uint32_t>& order) {
  thread_local std::vector<int64_t> by_slot;
  by_slot.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) by_slot[i] = values[order[i]];
  return encode_ints(by_slot);
}

bool decode_cells(std::string_view bytes, const std::vector<uint32_t>& order, std::vector<int64_t>& values) {
  thread_local std::vector<int64_t> by_slot;
  if (!decode_ints(bytes, order.size(), by_slot)) return false;
  values.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) values[order[i]] = by_slot[i];
  return true;
}

// Of tables: each column as counted bytes, read back with a range.
template <typename Items, typename Get>
void put_column(std::string& out, const Items& items, const Get& get) {
  std::vector<int64_t> values;
  values.reserve(items.size());
  for (const auto& item : items) values.push_back(static_cast<int64_t>(get(item)));
  put_bytes(out, encode_ints(values));
}
std::vector<int64_t> take_column(ByteReader& in, size_t count, int64_t least, int64_t most) {
  std::vector<int64_t> values;
  const bool ok = decode_ints(in.bytes(), count, values) &&
                  std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= least && v <= most; });
  if (!ok) {
    in.fail();
    values.assign(count, least > 0 ? least : 0);
  }
  return values;
}

template <typename Key>
void put_ends(std::string& out, const Shapes<Key>& shapes) {
  put_varint(out, shapes.size() - 1);
  std::vector<int64_t> lengths;
  for (size_t id = 1; id < shapes.size(); ++id) lengths.push_back(static_cast<int64_t>(shapes[id].size()));
  put_bytes(out, encode_ints(lengths));
}
template <typename Key>
bool take_ends(ByteReader& in, Shapes<Key>& shapes, int64_t length_max) {
  const uint64_t count = in.varint();
  if (count > kShapesMax) in.fail();
  if (!in.ok()) return false;
  for (int64_t length : take_column(in, count, 0, length_max)) {
    const size_t end = shapes.ends.back() + static_cast<size_t>(length);
    if (end > kShapeKeysMax) in.fail();
    if (!in.ok()) return false;
    shapes.ends.push_back(end);
  }
  shapes.keys.resize(shapes.ends.back());
  return in.ok();
}

int64_t last_split(const std::array<int64_t, kTimePartCount>& split, int64_t duration) {
  int64_t left = duration;
  for (size_t i = 0; i + 1 < kTimePartCount; ++i) left = minus(left, split[i]);
  return left;
}

}  // namespace

RankSeen seen_of(const RankInfo& rank) {
  return {.identity = rank.identity,
          .last_seen_unix_ns = rank.last_seen_unix_ns,
          .last_step = kNoStep,
          .records_lost = 0,
          .ended = rank.ended,
          .ended_cleanly = rank.ended_cleanly};
}

size_t StepTables::memory_bytes() const {
  size_t bytes = ranks.capacity() * sizeof(RankSeen) + comms.keys.capacity() * sizeof(CommKey) +
                 flows.keys.capacity() * sizeof(FlowKey) + scalars.keys.capacity() * sizeof(std::string) +
                 (comms.size() + flows.size() + scalars.size()) * sizeof(size_t);
  for (const RankSeen& rank : ranks)
    bytes += rank.identity.job_id.capacity() + rank.identity.host.capacity() + rank.identity.gpu_uuid.capacity();
  return bytes;
}

std::string StepTables::encode() const {
  TextTable texts;
  std::string body;
  put_varint(body, ranks.size());
  put_column(body, ranks, [&](const RankSeen& r) { return texts.intern(r.identity.job_id); });
  put_column(body, ranks, [](const RankSeen& r) { return r.identity.attempt; });
  put_column(body, ranks, [](const RankSeen& r) { return r.identity.rank.value(); });
  put_column(body, ranks, [](const RankSeen& r) { return r.identity.world_size; });
  put_column(body, ranks, [](const RankSeen& r) { return r.identity.local_rank; });
  put_column(body, ranks, [&](const RankSeen& r) { return texts.intern(r.identity.host); });
  put_column(body, ranks, [&](const RankSeen& r) { return texts.intern(r.identity.gpu_uuid); });
  put_column(body, ranks, [](const RankSeen& r) { return r.last_seen_unix_ns; });
  put_column(body, ranks, [](const RankSeen& r) { return r.last_step.value(); });
  put_column(body, ranks, [](const RankSeen& r) { return r.records_lost; });
  put_column(body, ranks, [](const RankSeen& r) { return (r.ended ? 1 : 0) + (r.ended_cleanly ? 2 : 0); });
  put_ends(body, comms);
  put_column(body, comms.keys, [](const CommKey& k) { return k.comm_id.value(); });
  put_column(body, comms.keys, [](const CommKey& k) { return k.size; });
  put_column(body, comms.keys, [](const CommKey& k) { return k.rank_in_comm; });
  put_column(body, comms.keys, [](const CommKey& k) { return k.p2p; });
  put_ends(body, flows);
  put_column(body, flows.keys, [](const FlowKey& k) { return k.comm_id.value(); });
  put_column(body, flows.keys, [](const FlowKey& k) { return k.peer; });
  put_column(body, flows.keys, [](const FlowKey& k) { return k.send; });
  put_ends(body, scalars);
  put_column(body, scalars.keys, [&](const std::string& name) { return texts.intern(name); });
  std::string out;
  put_bytes(out, columns::encode_texts(texts));
  out += body;
  return out;
}

Result<std::shared_ptr<const StepTables>> StepTables::decode(std::string_view bytes) {
  const Error nonsense{"its tables do not make sense"};
  auto tables = std::make_shared<StepTables>();
  ByteReader in(bytes);
  TextTable texts;
  if (!columns::decode_texts(in.bytes(), kTextBytesMax, texts)) return nonsense;
  const int64_t text_last = static_cast<int64_t>(texts.size()) - 1;
  constexpr int64_t kLeast = INT64_MIN;
  constexpr int64_t kMost = INT64_MAX;

  const uint64_t rank_count = in.varint();
  if (rank_count > kRanksMax || !in.ok()) return nonsense;
  {
    std::vector<int64_t> column = take_column(in, rank_count, 0, text_last);
    if (!in.ok()) return nonsense;  // before memory is taken for so many
    std::vector<RankSeen>& ranks = tables->ranks;
    ranks.resize(rank_count);
    auto fill = [&](int64_t least, int64_t most, auto&& set) {
      column = take_column(in, rank_count, least, most);
      for (size_t i = 0; i < rank_count; ++i) set(ranks[i], column[i]);
    };
    auto text = [&](int64_t id) { return std::string(texts[static_cast<uint32_t>(id)]); };
    for (size_t i = 0; i < rank_count; ++i) ranks[i].identity.job_id = text(column[i]);
    fill(kLeast, kMost, [](RankSeen& r, int64_t v) { r.identity.attempt = v; });
    fill(INT32_MIN, INT32_MAX, [](RankSeen& r, int64_t v) { r.identity.rank = Rank{static_cast<int32_t>(v)}; });
    fill(INT32_MIN, INT32_MAX, [](RankSeen& r, int64_t v) { r.identity.world_size = static_cast<int32_t>(v); });
    fill(INT32_MIN, INT32_MAX, [](RankSeen& r, int64_t v) { r.identity.local_rank = static_cast<int32_t>(v); });
    fill(0, text_last, [&](RankSeen& r, int64_t v) { r.identity.host = text(v); });
    fill(0, text_last, [&](RankSeen& r, int64_t v) { r.identity.gpu_uuid = text(v); });
    fill(kLeast, kMost, [](RankSeen& r, int64_t v) { r.last_seen_unix_ns = v; });
    fill(kLeast, kMost, [](RankSeen& r, int64_t v) { r.last_step = StepNumber{v}; });
    fill(kLeast, kMost, [](RankSeen& r, int64_t v) { r.records_lost = v; });
    fill(0, 3, [](RankSeen& r, int64_t v) {
      r.ended = (v & 1) != 0;
      r.ended_cleanly = (v & 2) != 0;
    });
  }
  auto fill = [&](auto& keys, int64_t least, int64_t most, auto&& set) {
    std::vector<int64_t> column = take_column(in, keys.size(), least, most);
    for (size_t i = 0; i < keys.size(); ++i) set(keys[i], column[i]);
  };
  if (!take_ends(in, tables->comms, kCommsPerStepMax)) return nonsense;
  fill(tables->comms.keys, kLeast, kMost, [](CommKey& k, int64_t v) { k.comm_id = CommId{static_cast<uint64_t>(v)}; });
  fill(tables->comms.keys, INT32_MIN, INT32_MAX, [](CommKey& k, int64_t v) { k.size = static_cast<int32_t>(v); });
  fill(tables->comms.keys, INT32_MIN, INT32_MAX,
       [](CommKey& k, int64_t v) { k.rank_in_comm = static_cast<int32_t>(v); });
  fill(tables->comms.keys, 0, 1, [](CommKey& k, int64_t v) { k.p2p = v != 0; });
  if (!take_ends(in, tables->flows, kFlowsPerStepMax)) return nonsense;
  fill(tables->flows.keys, kLeast, kMost, [](FlowKey& k, int64_t v) { k.comm_id = CommId{static_cast<uint64_t>(v)}; });
  fill(tables->flows.keys, INT32_MIN, INT32_MAX, [](FlowKey& k, int64_t v) { k.peer = static_cast<int32_t>(v); });
  fill(tables->flows.keys, 0, 1, [](FlowKey& k, int64_t v) { k.send = v != 0; });
  if (!take_ends(in, tables->scalars, kScalarsPerStepMax)) return nonsense;
  fill(tables->scalars.keys, 0, text_last,
       [&](std::string& name, int64_t v) { name = texts[static_cast<uint32_t>(v)]; });
  if (!in.ok() || !in.at_end()) return nonsense;
  return std::shared_ptr<const StepTables>(std::move(tables));
}

std::string StepColumns::encode() const {
  std::string out;
  for (const std::vector<int64_t>& column : row_) put_bytes(out, encode_ints(column));
  const std::vector<uint32_t> comm_order = slot_order(comm_ends_);
  for (const std::vector<int64_t>& column : comm_) put_bytes(out, encode_cells(column, comm_order));
  const std::vector<uint32_t> flow_order = slot_order(flow_ends_);
  for (const std::vector<int64_t>& column : flow_) put_bytes(out, encode_cells(column, flow_order));
  put_bytes(out, encode_cells(scalar_, slot_order(scalar_ends_)));
  return out;
}

Result<std::shared_ptr<const StepColumns>> StepColumns::decode(std::string_view bytes, size_t rows,
                                                               std::shared_ptr<const StepTables> tables) {
  if (rows > kGroupRows) return Error{format("%zu rows are more than a row group has", rows)};
  auto group = std::make_shared<StepColumns>();
  group->rows_ = rows;
  ByteReader in(bytes);
  for (std::vector<int64_t>& column : group->row_) {
    if (!decode_ints(in.bytes(), rows, column)) return Error{"a column of rows does not make sense"};
  }
  auto in_range = [&](RowColumn column, size_t count) {
    const std::vector<int64_t>& values = group->row_[static_cast<size_t>(column)];
    return std::all_of(values.begin(), values.end(),
                       [&](int64_t value) { return value >= 0 && static_cast<uint64_t>(value) < count; });
  };
  if (!in_range(RowColumn::kRank, tables->ranks.size()) || !in_range(RowColumn::kCommShape, tables->comms.size()) ||
      !in_range(RowColumn::kFlowShape, tables->flows.size()) ||
      !in_range(RowColumn::kScalarShape, tables->scalars.size()) || !in_range(RowColumn::kFlags, 4))
    return Error{"a row has a number out of its range"};
  auto place_cells = [&](RowColumn column, const auto& shapes, size_t row_max, std::vector<size_t>& ends) {
    ends.reserve(rows);
    size_t end = 0;
    for (int64_t shape : group->row_[static_cast<size_t>(column)]) {
      end += shapes[static_cast<size_t>(shape)].size();
      ends.push_back(end);
      if (end > kGroupCellsMax + row_max) return false;
    }
    return true;
  };
  if (!place_cells(RowColumn::kCommShape, tables->comms, kCommsPerStepMax, group->comm_ends_) ||
      !place_cells(RowColumn::kFlowShape, tables->flows, kFlowsPerStepMax, group->flow_ends_) ||
      !place_cells(RowColumn::kScalarShape, tables->scalars, kScalarsPerStepMax, group->scalar_ends_))
    return Error{"its rows have too many cells"};
  auto take = [&](const std::vector<uint32_t>& order, std::vector<int64_t>& column) {
    return decode_cells(in.bytes(), order, column);
  };
  const std::vector<uint32_t> comm_order = slot_order(group->comm_ends_);
  for (std::vector<int64_t>& column : group->comm_) {
    if (!take(comm_order, column)) return Error{"a column of communicators does not make sense"};
  }
  const std::vector<uint32_t> flow_order = slot_order(group->flow_ends_);
  for (std::vector<int64_t>& column : group->flow_) {
    if (!take(flow_order, column)) return Error{"a column of flows does not make sense"};
  }
  if (!take(slot_order(group->scalar_ends_), group->scalar_)) return Error{"the scalars do not make sense"};
  if (!in.ok() || !in.at_end()) return Error{"it does not end where it should"};
  group->tables_ = std::move(tables);
  return std::shared_ptr<const StepColumns>(std::move(group));
}

void StepColumns::get(size_t row, StepSummary& summary) const {
  summary.step = StepNumber{at(RowColumn::kStep, row)};
  const int64_t start = at(RowColumn::kStart, row);
  const int64_t duration = at(RowColumn::kDuration, row);
  summary.start_unix_ns = start;
  summary.duration_ns = duration;
  for (size_t i = 0; i < kPhaseCount; ++i) summary.phase_ns[i] = row_[static_cast<size_t>(RowColumn::kPhase0) + i][row];
  summary.self_ns = at(RowColumn::kSelf, row);
  summary.comm_ns = plus(at(RowColumn::kComm, row), minus(duration, summary.self_ns));
  summary.queue_ns = at(RowColumn::kQueue, row);
  summary.quiet_ns = at(RowColumn::kQuiet, row);
  summary.quiet_from_unix_ns = to_time(at(RowColumn::kQuietFrom, row), start);
  const int64_t flags = at(RowColumn::kFlags, row);
  summary.inferred = (flags & kInferred) != 0;
  summary.split_known = (flags & kSplitKnown) != 0;
  summary.records_lost = at(RowColumn::kRecordsLost, row);
  summary.unseen = at(RowColumn::kUnseen, row);
  for (size_t i = 0; i < kTimePartCount; ++i)
    summary.split_ns[i] = row_[static_cast<size_t>(RowColumn::kSplit0) + i][row];
  if (summary.split_known)
    summary.split_ns.back() = plus(summary.split_ns.back(), last_split(summary.split_ns, duration));
  get_comms(row, start, summary.comms);
  get_flows(row, summary.flows);
  get_scalars(row, summary.scalars);
}

void StepColumns::get_comms(size_t row, int64_t start, std::vector<CommStep>& out) const {
  const std::span<const CommKey> keys = tables_->comms[static_cast<size_t>(at(RowColumn::kCommShape, row))];
  out.resize(keys.size());
  size_t cell = comm_ends_[row] - keys.size();
  auto comm_at = [&](CommColumn column) { return comm_[static_cast<size_t>(column)][cell]; };
  for (size_t i = 0; i < keys.size(); ++i, ++cell) {
    CommStep& comm = out[i];
    comm.comm_id = keys[i].comm_id;
    comm.size = keys[i].size;
    comm.rank_in_comm = keys[i].rank_in_comm;
    comm.p2p = keys[i].p2p;
    comm.count = comm_at(CommColumn::kCount);
    comm.bytes = comm_at(CommColumn::kBytes);
    comm.gpu_ns = comm_at(CommColumn::kGpu);
    comm.longest_ns = minus(comm.gpu_ns, comm_at(CommColumn::kLongest));
    comm.shortest_ns = minus(comm.longest_ns, comm_at(CommColumn::kShortest));
    comm.first_start_unix_ns = to_time(comm_at(CommColumn::kFirst), start);
    comm.last_end_unix_ns = plus(plus(comm_at(CommColumn::kLast), comm.first_start_unix_ns), comm.gpu_ns);
    comm.queue_ns = comm_at(CommColumn::kQueue);
    comm.unseen = comm_at(CommColumn::kUnseen);
  }
}

void StepColumns::get_flows(size_t row, std::vector<FlowStep>& out) const {
  const std::span<const FlowKey> keys = tables_->flows[static_cast<size_t>(at(RowColumn::kFlowShape, row))];
  out.resize(keys.size());
  size_t cell = flow_ends_[row] - keys.size();
  auto flow_at = [&](FlowColumn column) { return flow_[static_cast<size_t>(column)][cell]; };
  for (size_t i = 0; i < keys.size(); ++i, ++cell) {
    FlowStep& flow = out[i];
    flow.comm_id = keys[i].comm_id;
    flow.peer = keys[i].peer;
    flow.send = keys[i].send;
    flow.transfers = flow_at(FlowColumn::kTransfers);
    flow.bytes = flow_at(FlowColumn::kBytes);
    flow.wire_ns = flow_at(FlowColumn::kWire);
    flow.own_gpu_ns = flow_at(FlowColumn::kOwnGpu);
    flow.peer_ns = flow_at(FlowColumn::kPeer);
    flow.wire_longest_ns = flow_at(FlowColumn::kWireLongest);
    flow.own_gpu_longest_ns = flow_at(FlowColumn::kOwnGpuLongest);
  }
}

void StepColumns::get_scalars(size_t row, std::vector<StepScalar>& out) const {
  const std::span<const std::string> names = tables_->scalars[static_cast<size_t>(at(RowColumn::kScalarShape, row))];
  out.resize(names.size());
  size_t cell = scalar_ends_[row] - names.size();
  for (size_t i = 0; i < names.size(); ++i, ++cell) {
    out[i].name = names[i];
    out[i].value = std::bit_cast<double>(scalar_[cell]);
  }
}

size_t StepColumns::memory_bytes() const {
  return sizeof(StepColumns) + 8 * (rows_ * (kRowColumns + 3) + kCommColumns * comm_[0].size() +
                                    kFlowColumns * flow_[0].size() + scalar_.size());
}

void StepColumns::clear() {
  rows_ = 0;
  for (std::vector<int64_t>& column : row_) column.clear();
  for (std::vector<int64_t>& column : comm_) column.clear();
  for (std::vector<int64_t>& column : flow_) column.clear();
  scalar_.clear();
  comm_ends_.clear();
  flow_ends_.clear();
  scalar_ends_.clear();
}

namespace {

bool same(const CommKey& key, const CommStep& other) {
  return key.comm_id == other.comm_id && key.size == other.size && key.rank_in_comm == other.rank_in_comm &&
         key.p2p == other.p2p;
}
bool same(const FlowKey& key, const FlowStep& other) {
  return key.comm_id == other.comm_id && key.peer == other.peer && key.send == other.send;
}
bool same(const std::string& key, const StepScalar& other) {
  return key == other.name;
}

CommKey key_of(const CommStep& comm) {
  return {comm.comm_id, comm.size, comm.rank_in_comm, comm.p2p};
}
FlowKey key_of(const FlowStep& flow) {
  return {flow.comm_id, flow.peer, flow.send};
}
std::string key_of(const StepScalar& scalar) {
  return scalar.name;
}
void put_key(std::string& out, const CommKey& key) {
  put_fixed(out, key.comm_id.value());
  put_fixed(out, key.size);
  put_fixed(out, key.rank_in_comm);
  put_fixed(out, key.p2p);
}
void put_key(std::string& out, const FlowKey& key) {
  put_fixed(out, key.comm_id.value());
  put_fixed(out, key.peer);
  put_fixed(out, key.send);
}
void put_key(std::string& out, const std::string& key) {
  put_bytes(out, key);
}

template <typename Key, typename Item>
uint32_t shape_of(uint32_t usual, const std::vector<Item>& items, Shapes<Key>& shapes,
                  std::unordered_map<std::string, uint32_t>& known) {
  const std::span<const Key> keys = shapes[usual];
  if (keys.size() == items.size() &&
      std::equal(keys.begin(), keys.end(), items.begin(), [](const Key& a, const Item& b) { return same(a, b); }))
    return usual;
  if (items.empty()) return 0;
  std::string content;
  for (const Item& item : items) put_key(content, key_of(item));
  auto [found, is_new] = known.try_emplace(std::move(content), static_cast<uint32_t>(shapes.size()));
  if (is_new) {
    for (const Item& item : items) shapes.keys.push_back(key_of(item));
    shapes.ends.push_back(shapes.keys.size());
  }
  return found->second;
}

void extend(std::vector<StepRun>& runs, StepNumber step) {
  if (!runs.empty() && (step == runs.back().last || step == StepNumber{plus(runs.back().last.value(), 1)})) {
    runs.back().last = step;
  } else if (runs.size() < kRunsMax) {
    runs.push_back({step, step});
  } else {
    runs.back().last = step;  // with the holes
  }
}

}  // namespace

void StepWriter::begin_job(const JobInFile& job) {
  rank_numbers_.clear();
  written_.jobs.push_back(job);
  written_.jobs.back().ranks = 0;
  written_.jobs.back().records_lost = 0;
  written_.jobs.back().last_step = kNoStep;
}

uint32_t StepWriter::rank_number(const RankSeen& rank) {
  auto [found, is_new] = rank_numbers_.try_emplace(rank.identity.rank, static_cast<uint32_t>(tables_.ranks.size()));
  if (!is_new && tables_.ranks[found->second].identity == rank.identity) return found->second;
  if (is_new) ++written_.jobs.back().ranks;
  found->second = static_cast<uint32_t>(tables_.ranks.size());  // new, or it has moved to another host
  tables_.ranks.push_back(rank);
  tables_.ranks.back().last_step = kNoStep;
  tables_.ranks.back().records_lost = 0;
  usual_.push_back({});
  return found->second;
}

// The rank and the job as a whole: when it was last heard of, how far it is, what was lost.
void StepWriter::note_progress(RankSeen& seen, const RankSeen& rank, const StepSummary& summary) {
  if (rank.last_seen_unix_ns >= seen.last_seen_unix_ns) {
    seen.last_seen_unix_ns = rank.last_seen_unix_ns;
    seen.ended = rank.ended;
    seen.ended_cleanly = rank.ended_cleanly;
  }
  seen.last_step = std::max(seen.last_step, summary.step);
  seen.records_lost = plus(seen.records_lost, summary.records_lost);
  JobInFile& job = written_.jobs.back();
  job.last_step = std::max(job.last_step, summary.step);
  job.records_lost = plus(job.records_lost, summary.records_lost);
}

void StepWriter::put_row(uint32_t number, const StepSummary& summary) {
  Usual& usual = usual_[number];
  usual.comms = shape_of(usual.comms, summary.comms, tables_.comms, comm_shapes_);
  usual.flows = shape_of(usual.flows, summary.flows, tables_.flows, flow_shapes_);
  usual.scalars = shape_of(usual.scalars, summary.scalars, tables_.scalars, scalar_shapes_);

  const int64_t start = summary.start_unix_ns;
  auto put = [&](RowColumn column, int64_t value) { open_.row_[static_cast<size_t>(column)].push_back(value); };
  put(RowColumn::kRank, number);
  put(RowColumn::kCommShape, usual.comms);
  put(RowColumn::kFlowShape, usual.flows);
  put(RowColumn::kScalarShape, usual.scalars);
  put(RowColumn::kStep, summary.step.value());
  put(RowColumn::kStart, start);
  put(RowColumn::kDuration, summary.duration_ns);
  for (size_t i = 0; i < kPhaseCount; ++i)
    open_.row_[static_cast<size_t>(RowColumn::kPhase0) + i].push_back(summary.phase_ns[i]);
  put(RowColumn::kSelf, summary.self_ns);
  put(RowColumn::kComm, minus(summary.comm_ns, minus(summary.duration_ns, summary.self_ns)));
  put(RowColumn::kQueue, summary.queue_ns);
  put(RowColumn::kQuiet, summary.quiet_ns);
  put(RowColumn::kQuietFrom, from_start(summary.quiet_from_unix_ns, start));
  put(RowColumn::kFlags, (summary.inferred ? kInferred : 0) | (summary.split_known ? kSplitKnown : 0));
  put(RowColumn::kRecordsLost, summary.records_lost);
  put(RowColumn::kUnseen, summary.unseen);
  for (size_t i = 0; i < kTimePartCount; ++i) {
    const bool follows = summary.split_known && i + 1 == kTimePartCount;
    open_.row_[static_cast<size_t>(RowColumn::kSplit0) + i].push_back(
        follows ? minus(summary.split_ns[i], last_split(summary.split_ns, summary.duration_ns)) : summary.split_ns[i]);
  }
}

void StepWriter::put_cells(const StepSummary& summary) {
  const int64_t start = summary.start_unix_ns;
  auto put_comm = [&](CommColumn column, int64_t value) { open_.comm_[static_cast<size_t>(column)].push_back(value); };
  for (const CommStep& comm : summary.comms) {
    put_comm(CommColumn::kCount, comm.count);
    put_comm(CommColumn::kBytes, comm.bytes);
    put_comm(CommColumn::kGpu, comm.gpu_ns);
    put_comm(CommColumn::kLongest, minus(comm.gpu_ns, comm.longest_ns));
    put_comm(CommColumn::kShortest, minus(comm.longest_ns, comm.shortest_ns));
    put_comm(CommColumn::kFirst, from_start(comm.first_start_unix_ns, start));
    put_comm(CommColumn::kLast, minus(minus(comm.last_end_unix_ns, comm.first_start_unix_ns), comm.gpu_ns));
    put_comm(CommColumn::kQueue, comm.queue_ns);
    put_comm(CommColumn::kUnseen, comm.unseen);
  }
  auto put_flow = [&](FlowColumn column, int64_t value) { open_.flow_[static_cast<size_t>(column)].push_back(value); };
  for (const FlowStep& flow : summary.flows) {
    put_flow(FlowColumn::kTransfers, flow.transfers);
    put_flow(FlowColumn::kBytes, flow.bytes);
    put_flow(FlowColumn::kWire, flow.wire_ns);
    put_flow(FlowColumn::kOwnGpu, flow.own_gpu_ns);
    put_flow(FlowColumn::kPeer, flow.peer_ns);
    put_flow(FlowColumn::kWireLongest, flow.wire_longest_ns);
    put_flow(FlowColumn::kOwnGpuLongest, flow.own_gpu_longest_ns);
  }
  for (const StepScalar& scalar : summary.scalars) open_.scalar_.push_back(std::bit_cast<int64_t>(scalar.value));
  open_.comm_ends_.push_back(open_.comm_[0].size());
  open_.flow_ends_.push_back(open_.flow_[0].size());
  open_.scalar_ends_.push_back(open_.scalar_.size());
}

bool StepWriter::add(const RankSeen& rank, const StepSummary& summary) {
  if (open_.rows_ >= kGroupRows || open_.comm_[0].size() >= kGroupCellsMax || open_.flow_[0].size() >= kGroupCellsMax ||
      open_.scalar_.size() >= kGroupCellsMax)
    return false;
  const uint32_t number = rank_number(rank);
  note_progress(tables_.ranks[number], rank, summary);
  put_row(number, summary);
  put_cells(summary);
  ++open_.rows_;
  ++rows_;

  const uint32_t job_number = static_cast<uint32_t>(written_.jobs.size() - 1);
  if (open_parts_.empty() || open_parts_.back().job != job_number) open_parts_.push_back({job_number, 0, {}});
  ++open_parts_.back().rows;
  extend(open_parts_.back().runs, summary.step);
  return true;
}

void StepWriter::write_group() {
  if (open_.rows_ == 0) return;
  const std::string bytes = open_.encode();
  GroupMeta& meta = written_.groups.emplace_back();
  meta.rows = static_cast<uint32_t>(open_.rows_);
  meta.place = {0, written_.content.size(), static_cast<uint32_t>(bytes.size()), crc32c(bytes)};
  meta.parts = std::move(open_parts_);
  written_.content += bytes;
  open_.clear();
  open_parts_.clear();
}

bool StepWriter::is_full() const {
  return written_.content.size() >= kContentBytesSoftMax || tables_.comms.keys.size() >= kShapeKeysSoftMax ||
         tables_.flows.keys.size() >= kShapeKeysSoftMax || tables_.scalars.keys.size() >= kShapeKeysSoftMax ||
         tables_.ranks.size() >= kRanksMax / 4;
}

StepWriter::Written StepWriter::finish() {
  write_group();
  const std::string tables = tables_.encode();
  written_.tables = {0, written_.content.size(), static_cast<uint32_t>(tables.size()), crc32c(tables)};
  written_.content += tables;
  return std::move(written_);
}

}  // namespace lockstep::steps
