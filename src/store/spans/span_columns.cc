#include "store/spans/span_columns.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/text.h"
#include "store/columns/byte_codec.h"
#include "store/spans/value_codec.h"

namespace lockstep::spans {

using columns::put_bytes;
using columns::same_text;

namespace {

struct OwnKeyInfo {
  std::string_view name;
  CellType type;
};
constexpr OwnKeyInfo kOwnKeyTable[kOwnKeys] = {
    {"lockstep.kind", CellType::kText},        {"lockstep.step", CellType::kInt},
    {"lockstep.comm_id", CellType::kText},     {"lockstep.comm_size", CellType::kInt},
    {"lockstep.rank_in_comm", CellType::kInt}, {"lockstep.seq", CellType::kInt},
    {"lockstep.ordinal", CellType::kInt},      {"lockstep.bytes", CellType::kInt},
    {"lockstep.datatype", CellType::kText},    {"lockstep.queue_ns", CellType::kInt},
    {"lockstep.peer", CellType::kInt},         {"lockstep.untimed", CellType::kFlag},
    {"lockstep.phase", CellType::kText},       {"lockstep.sampled", CellType::kText},
    {"lockstep.inferred", CellType::kFlag},    {"lockstep.left_out", CellType::kInt},
};

bool is_text(CellType type) {
  return type == CellType::kText || type == CellType::kOther;
}

uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xD6E8FEB86659FD93;
  return hash ^ hash >> 32;
}

uint64_t hash_of(const TraceId& id) {
  uint64_t words[2];
  std::memcpy(words, id.data(), sizeof words);
  return mix(mix(0, words[0]), words[1]);
}

uint64_t hash_of(const std::vector<SpanShape::Key>& keys) {
  uint64_t hash = keys.size();
  for (const SpanShape::Key& key : keys) hash = mix(hash, uint64_t{key.key} << 8 | static_cast<uint8_t>(key.type));
  return hash;
}

uint64_t hash_of(const std::string& text) {
  return std::hash<std::string>()(text);
}

const TraceId& key_of(const TraceId& id) {
  return id;
}

const std::string& key_of(const std::shared_ptr<const SpanSource>& source) {
  return source->key;
}

// The number of a thing among those that are known, by its key; a new one is added to them.
template <typename Thing>
uint32_t number_of(const Thing& thing, std::vector<Thing>& known, IdIndex& index) {
  return index.find_or(
      hash_of(key_of(thing)), [&](uint32_t at) { return key_of(known[at]) == key_of(thing); },
      [&] {
        known.push_back(thing);
        return static_cast<uint32_t>(known.size() - 1);
      });
}

}  // namespace

void IdIndex::grow() {
  std::vector<Slot> wider(std::max<size_t>(32, slots_.size() * 2), Slot{0, kFree});
  const size_t mask = wider.size() - 1;
  for (const Slot& slot : slots_) {
    if (slot.id == kFree) continue;
    size_t at = slot.hash & mask;
    while (wider[at].id != kFree) at = (at + 1) & mask;
    wider[at] = slot;
  }
  slots_ = std::move(wider);
}

std::shared_ptr<const SpanSource> make_source(Attributes resource, std::string scope_name, std::string scope_version) {
  auto source = std::make_shared<SpanSource>();
  put_bytes(source->key, scope_name);
  put_bytes(source->key, scope_version);
  encode_attributes(source->key, resource);
  source->scope_name = std::move(scope_name);
  source->scope_version = std::move(scope_version);
  source->service = find_string(resource, "service.name");
  source->job_id = find_string(resource, "lockstep.job_id");
  source->attempt = find_int(resource, "lockstep.attempt");
  if (!source->job_id.empty()) {
    if (Result<Identity> identity = identity_from_resource(resource); identity.ok()) source->identity = *identity;
  }
  source->resource = std::make_shared<const Attributes>(std::move(resource));
  return source;
}

void find_own_keys(SpanShape& shape, const TextTable& texts) {
  shape.own.fill(-1);
  uint32_t seen = 0;  // keys of which the first attribute has gone by
  for (size_t i = 0; i < shape.keys.size(); ++i) {
    std::string_view key = texts[shape.keys[i].key];
    if (!key.starts_with("lockstep.")) continue;
    for (size_t own = 0; own < kOwnKeys; ++own) {
      if (kOwnKeyTable[own].name != key || (seen & 1u << own) != 0) continue;
      seen |= 1u << own;
      if (kOwnKeyTable[own].type == shape.keys[i].type) shape.own[own] = static_cast<int32_t>(i);
    }
  }
}

size_t SpanColumns::memory_bytes() const {
  size_t bytes = sizeof *this + texts.memory_bytes() + traces.capacity() * sizeof(TraceId) +
                 rows.capacity() * sizeof(SpanRow) + cells.capacity() * sizeof(int64_t);
  for (const auto& source : sources) bytes += sizeof(SpanSource) + source->key.size() * 4;
  for (const SpanShape& shape : shapes) bytes += sizeof(SpanShape) + shape.keys.capacity() * sizeof(SpanShape::Key);
  return bytes;
}

Value SpanColumns::value_of(CellType type, int64_t cell) const {
  switch (type) {
    case CellType::kNone:
      return {};
    case CellType::kText:
      return std::string(texts[static_cast<uint32_t>(cell)]);
    case CellType::kFlag:
      return cell != 0;
    case CellType::kInt:
      return cell;
    case CellType::kReal:
      return std::bit_cast<double>(cell);
    case CellType::kOther:
      return decode_value(texts[static_cast<uint32_t>(cell)]).value_or(Value());
  }
  return {};
}

Span SpanColumns::to_span(const SpanRow& row) const {
  Span span;
  span.trace_id = traces[row.trace];
  span.span_id = row.span_id;
  span.parent_span_id = row.parent_span_id;
  span.trace_state = texts[row.trace_state];
  span.name = texts[row.name];
  span.kind = row.kind;
  span.start_unix_ns = row.start_unix_ns;
  span.end_unix_ns = end_unix_ns(row);
  const SpanShape& shape = shapes[row.shape];
  span.attributes.reserve(shape.keys.size());
  for (size_t i = 0; i < shape.keys.size(); ++i) {
    span.attributes.push_back(
        {std::string(texts[shape.keys[i].key]), value_of(shape.keys[i].type, cells[row.cells + i])});
  }
  decode_extra(texts[row.extra], span.events, span.links);
  span.status_code = row.status_code;
  span.status_message = texts[row.status_message];
  return span;
}

std::optional<StepSpanPart> SpanColumns::part_of(const SpanRow& row) const {
  const int64_t* kind_cell = own(row, OwnKey::kKind);
  const int64_t* step_cell = own(row, OwnKey::kStep);
  if (kind_cell == nullptr || step_cell == nullptr) return std::nullopt;
  std::string_view kind = texts[static_cast<uint32_t>(*kind_cell)];
  if (kind != "collective" && kind != "p2p") return lockstep::part_of(to_span(row));
  if (*step_cell < 0 || end_unix_ns(row) < row.start_unix_ns) return std::nullopt;
  // Operations are the many: what op_of() of model/step_detail.cc does, from the cells.
  StepSpanPart part;
  part.step = StepNumber{*step_cell};
  OpSpan& op = part.op.emplace();
  op.p2p = kind == "p2p";
  op.comm_id = comm_id_from_text(own_text(row, OwnKey::kCommId)).value_or(kNoCommId);
  op.comm_size = static_cast<int32_t>(own_int(row, OwnKey::kCommSize, 0));
  op.rank_in_comm = static_cast<int32_t>(own_int(row, OwnKey::kRankInComm, 0));
  op.function = texts[row.name];
  op.datatype = own_text(row, OwnKey::kDatatype);
  op.seq = static_cast<uint64_t>(own_int(row, OwnKey::kSeq, 0));
  op.ordinal = static_cast<uint64_t>(own_int(row, OwnKey::kOrdinal, 0));
  op.peer = static_cast<int32_t>(own_int(row, OwnKey::kPeer, -1));
  op.bytes = own_int(row, OwnKey::kBytes, 0);
  op.start_unix_ns = row.start_unix_ns;
  op.enqueued_unix_ns = static_cast<int64_t>(static_cast<uint64_t>(row.start_unix_ns) -
                                             static_cast<uint64_t>(own_int(row, OwnKey::kQueueNs, 0)));
  op.duration_ns = row.duration_ns;
  op.timed = own_int(row, OwnKey::kUntimed, 0) == 0;
  return part;
}

void SpanColumns::keep_rows(const std::vector<bool>& keep) {
  size_t kept = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (keep[i]) rows[kept++] = rows[i];
  }
  rows.resize(kept);
}

Batch to_batch(const SpanColumns& columns) {
  Batch batch;
  batch.signal = Signal::kSpans;
  const SpanSource* last = nullptr;
  for (const SpanRow& row : columns.rows) {
    const SpanSource* source = columns.sources[row.source].get();
    if (source != last) {
      ResourceGroup& group = batch.groups.emplace_back();
      group.resource = *source->resource;
      group.scope_name = source->scope_name;
      group.scope_version = source->scope_version;
      last = source;
    }
    batch.groups.back().spans.push_back(columns.to_span(row));
  }
  return batch;
}

void SpanColumnsBuilder::begin_source(Attributes resource, std::string scope_name, std::string scope_version) {
  begin_source(make_source(std::move(resource), std::move(scope_name), std::move(scope_version)));
}

void SpanColumnsBuilder::begin_source(std::shared_ptr<const SpanSource> source) {
  source_ = number_of(source, columns_.sources, source_index_);
}

uint32_t SpanColumnsBuilder::trace_of(const TraceId& id) {
  if (last_trace_ < columns_.traces.size() && columns_.traces[last_trace_] == id) return last_trace_;
  last_trace_ = number_of(id, columns_.traces, trace_index_);
  return last_trace_;
}

bool SpanColumnsBuilder::is_shape(uint32_t shape, std::span<const AttributeView> attributes) const {
  const std::vector<SpanShape::Key>& keys = columns_.shapes[shape].keys;
  if (keys.size() != attributes.size()) return false;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].type != attributes[i].type || !same_text(columns_.texts[keys[i].key], attributes[i].key)) return false;
  }
  return true;
}

uint32_t SpanColumnsBuilder::shape_of(std::span<const AttributeView> attributes) {
  // A span mostly looks like the one before it.
  if (last_shape_ < columns_.shapes.size() && is_shape(last_shape_, attributes)) return last_shape_;
  std::vector<SpanShape::Key> keys;
  keys.reserve(attributes.size());
  for (const AttributeView& attribute : attributes)
    keys.push_back({columns_.texts.intern(attribute.key), attribute.type});
  last_shape_ = shape_index_.find_or(
      hash_of(keys), [&](uint32_t id) { return columns_.shapes[id].keys == keys; },
      [&] {
        SpanShape& shape = columns_.shapes.emplace_back();
        shape.keys = std::move(keys);
        find_own_keys(shape, columns_.texts);
        return static_cast<uint32_t>(columns_.shapes.size() - 1);
      });
  return last_shape_;
}

void SpanColumnsBuilder::add(const SpanView& span) {
  SpanRow row;
  row.span_id = span.span_id;
  row.parent_span_id = span.parent_span_id;
  row.start_unix_ns = span.start_unix_ns;
  row.duration_ns =
      static_cast<int64_t>(static_cast<uint64_t>(span.end_unix_ns) - static_cast<uint64_t>(span.start_unix_ns));
  row.source = source_;
  row.trace = trace_of(span.trace_id);
  row.shape = shape_of(span.attributes);
  row.name = columns_.texts.intern_like(columns_.rows.empty() ? 0 : columns_.rows.back().name, span.name);
  row.cells = static_cast<uint32_t>(columns_.cells.size());
  row.arrival = static_cast<uint32_t>(columns_.rows.size());
  row.kind = span.kind;
  row.status_code = span.status_code;
  row.trace_state = columns_.texts.intern(span.trace_state);
  row.status_message = columns_.texts.intern(span.status_message);
  row.extra = columns_.texts.intern(span.extra);
  columns_.rows.push_back(row);
  // Texts are likely those of the last span of this shape.
  last_cells_.resize(columns_.shapes.size(), row.cells);
  const uint32_t likely = std::exchange(last_cells_[row.shape], row.cells);
  const bool has_likely = likely != row.cells;
  for (size_t i = 0; i < span.attributes.size(); ++i) {
    const AttributeView& attribute = span.attributes[i];
    if (is_text(attribute.type)) {
      const uint32_t last = has_likely ? static_cast<uint32_t>(columns_.cells[likely + i]) : 0;
      columns_.cells.push_back(columns_.texts.intern_like(last, attribute.text));
    } else {
      columns_.cells.push_back(static_cast<int64_t>(attribute.bits));
    }
  }
  latest_ = std::max({latest_, static_cast<uint64_t>(span.start_unix_ns), static_cast<uint64_t>(span.end_unix_ns)});
}

void SpanColumnsBuilder::add(const Span& span) {
  views_.clear();
  encoded_.clear();
  encoded_.reserve(span.attributes.size());  // views point into it
  for (const Attribute& attribute : span.attributes) {
    AttributeView view;
    view.key = attribute.key;
    const auto& data = attribute.value.data;
    if (const std::string* text = std::get_if<std::string>(&data)) {
      view.type = CellType::kText;
      view.text = *text;
    } else if (const bool* flag = std::get_if<bool>(&data)) {
      view.type = CellType::kFlag;
      view.bits = *flag;
    } else if (const int64_t* number = std::get_if<int64_t>(&data)) {
      view.type = CellType::kInt;
      view.bits = static_cast<uint64_t>(*number);
    } else if (const double* real = std::get_if<double>(&data)) {
      view.type = CellType::kReal;
      view.bits = std::bit_cast<uint64_t>(*real);
    } else if (!std::holds_alternative<std::monostate>(data)) {
      view.type = CellType::kOther;
      encode_value(encoded_.emplace_back(), attribute.value);
      view.text = encoded_.back();
    }
    views_.push_back(view);
  }
  const std::string extra = encode_extra(span.events, span.links);
  add(SpanView{.trace_id = span.trace_id,
               .span_id = span.span_id,
               .parent_span_id = span.parent_span_id,
               .trace_state = span.trace_state,
               .name = span.name,
               .status_message = span.status_message,
               .kind = span.kind,
               .status_code = span.status_code,
               .start_unix_ns = span.start_unix_ns,
               .end_unix_ns = span.end_unix_ns,
               .attributes = views_,
               .extra = extra});
}

namespace {

// Brings rows of several columns into one: what these number by themselves gets numbers there.
class Gathering {
 public:
  Gathering(std::span<const SpanColumns* const> parts, std::span<const uint32_t> arrivals, size_t rows)
      : parts_(parts), arrivals_(arrivals), numbers_(parts.size()) {
    for (size_t i = 0; i < parts.size(); ++i) {
      numbers_[i].texts.assign(parts[i]->texts.size(), kUnknown);
      numbers_[i].texts[0] = 0;
      numbers_[i].traces.assign(parts[i]->traces.size(), kUnknown);
      numbers_[i].sources.assign(parts[i]->sources.size(), kUnknown);
      numbers_[i].shapes.assign(parts[i]->shapes.size(), kUnknown);
    }
    out_.rows.reserve(rows);
    out_.cells.reserve(rows * 10);
  }

  void add(const RowRef& ref) {
    const SpanColumns& part = *parts_[ref.part];
    Numbers& known = numbers_[ref.part];
    SpanRow row = part.rows[ref.row];
    const SpanShape& shape = part.shapes[row.shape];
    const int64_t* cells = part.cells.data() + row.cells;
    row.trace = trace(part, known, row.trace);
    row.source = source(part, known, row.source);
    row.shape = shape_of(part, known, row.shape);
    row.name = text(part, known, row.name);
    row.trace_state = text(part, known, row.trace_state);
    row.status_message = text(part, known, row.status_message);
    row.extra = text(part, known, row.extra);
    row.cells = static_cast<uint32_t>(out_.cells.size());
    row.arrival += arrivals_[ref.part];
    out_.rows.push_back(row);
    for (size_t i = 0; i < shape.keys.size(); ++i) {
      out_.cells.push_back(is_text(shape.keys[i].type) ? text(part, known, static_cast<uint32_t>(cells[i])) : cells[i]);
    }
  }
  SpanColumns take() { return std::move(out_); }

 private:
  static constexpr uint32_t kUnknown = ~uint32_t{0};
  // Of a part: its numbers to ours, found when first used.
  struct Numbers {
    std::vector<uint32_t> texts;
    std::vector<uint32_t> traces;
    std::vector<uint32_t> sources;
    std::vector<uint32_t> shapes;
  };

  uint32_t text(const SpanColumns& part, Numbers& known, uint32_t id) {
    uint32_t& to = known.texts[id];
    if (to == kUnknown) to = out_.texts.intern(part.texts[id]);
    return to;
  }
  uint32_t trace(const SpanColumns& part, Numbers& known, uint32_t number) {
    uint32_t& to = known.traces[number];
    if (to == kUnknown) to = number_of(part.traces[number], out_.traces, trace_index_);
    return to;
  }
  uint32_t source(const SpanColumns& part, Numbers& known, uint32_t number) {
    uint32_t& to = known.sources[number];
    if (to == kUnknown) to = number_of(part.sources[number], out_.sources, source_index_);
    return to;
  }
  uint32_t shape_of(const SpanColumns& part, Numbers& known, uint32_t number) {
    uint32_t& to = known.shapes[number];
    if (to != kUnknown) return to;
    const SpanShape& shape = part.shapes[number];
    std::vector<SpanShape::Key> keys = shape.keys;
    for (SpanShape::Key& key : keys) key.key = text(part, known, key.key);
    to = shape_index_.find_or(
        hash_of(keys), [&](uint32_t at) { return out_.shapes[at].keys == keys; },
        [&] {
          out_.shapes.push_back({keys, shape.own});
          return static_cast<uint32_t>(out_.shapes.size() - 1);
        });
    return to;
  }

  const std::span<const SpanColumns* const> parts_;
  const std::span<const uint32_t> arrivals_;
  std::vector<Numbers> numbers_;
  SpanColumns out_;
  IdIndex trace_index_;
  IdIndex source_index_;
  IdIndex shape_index_;
};

}  // namespace

SpanColumns gather(std::span<const SpanColumns* const> parts, std::span<const RowRef> order,
                   std::span<const uint32_t> arrivals) {
  Gathering gathering(parts, arrivals, order.size());
  for (const RowRef& ref : order) gathering.add(ref);
  return gathering.take();
}

}  // namespace lockstep::spans
