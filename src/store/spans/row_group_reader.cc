#include <algorithm>
#include <limits>

#include "base/crc32c.h"
#include "base/text.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/columns/text_codec.h"
#include "store/spans/row_group.h"
#include "store/spans/row_group_layout.h"
#include "store/spans/value_codec.h"

namespace lockstep::spans {

using namespace columns;
using namespace layout;

namespace {

constexpr size_t kTextBytesMax = 256u << 20;

class SectionReader {
 public:
  SectionReader(const SectionSource& file, const RowGroupMeta& meta) : file_(file), meta_(meta) {}

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  void fail(Section section) { fail(static_cast<uint32_t>(section), "does not make sense"); }
  void fail(uint32_t section, const char* why) {
    if (ok()) error_ = format("section %u %s", section, why);
  }

  std::string bytes(uint32_t section) {
    for (const SectionPlace& place : meta_.sections) {
      if (place.section != section) continue;
      Result<std::string> read = file_.read(place);
      if (!read.ok()) {
        if (error_.empty()) error_ = read.error();
        return {};
      }
      if (crc32c(*read) != place.crc) {
        fail(section, "has a wrong checksum");
        return {};
      }
      return std::move(*read);
    }
    fail(section, "is missing");
    return {};
  }
  std::string bytes(Section section) { return bytes(static_cast<uint32_t>(section)); }
  std::string unpacked(Section section) {
    std::string plain;
    if (!unpack_bytes(bytes(section), kTextBytesMax, plain)) fail(section);
    return plain;
  }
  // `count` numbers in [least, most].
  std::vector<int64_t> ints(uint32_t section, size_t count, int64_t least = std::numeric_limits<int64_t>::min(),
                            int64_t most = std::numeric_limits<int64_t>::max()) {
    std::vector<int64_t> values;
    std::string encoded = bytes(section);
    if (!ok() || !decode_ints(encoded, count, values)) {
      fail(section, "does not make sense");
      values.assign(count, std::max<int64_t>(least, 0));
      return values;
    }
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    if (count > 0 && (*low < least || *high > most)) {
      fail(section, "has a number out of its range");
      values.assign(count, std::max<int64_t>(least, 0));
    }
    return values;
  }
  std::vector<int64_t> ints(Section section, size_t count, int64_t least = std::numeric_limits<int64_t>::min(),
                            int64_t most = std::numeric_limits<int64_t>::max()) {
    return ints(static_cast<uint32_t>(section), count, least, most);
  }

 private:
  const SectionSource& file_;
  const RowGroupMeta& meta_;
  std::string error_;
};

TextTable texts_from(SectionReader& sections) {
  TextTable texts;
  if (!decode_texts(sections.bytes(Section::kTexts), kTextBytesMax, texts)) sections.fail(Section::kTexts);
  return texts;
}

std::vector<TraceId> traces_from(SectionReader& sections) {
  const std::string bytes = sections.unpacked(Section::kTraces);
  std::vector<TraceId> traces(bytes.size() / sizeof(TraceId));
  if (bytes.size() % sizeof(TraceId) != 0) sections.fail(Section::kTraces);
  if (!traces.empty()) std::memcpy(traces.data(), bytes.data(), traces.size() * sizeof(TraceId));
  return traces;
}

std::vector<std::shared_ptr<const SpanSource>> sources_from(SectionReader& sections) {
  std::vector<std::shared_ptr<const SpanSource>> sources;
  const std::string bytes = sections.unpacked(Section::kSources);
  ByteReader in(bytes);
  const size_t count = in.count();
  for (size_t i = 0; i < count && in.ok(); ++i) {
    ByteReader source(in.bytes());
    std::string scope_name(source.bytes());
    std::string scope_version(source.bytes());
    std::optional<Attributes> resource = decode_attributes(source.raw(source.left()));
    if (!source.ok() || !resource) in.fail();
    if (in.ok()) sources.push_back(make_source(std::move(*resource), std::move(scope_name), std::move(scope_version)));
  }
  if (!in.ok() || !in.at_end()) sections.fail(Section::kSources);
  return sources;
}

bool read_keys(ByteReader& in, size_t texts, std::vector<SpanShape::Key>& keys) {
  keys.resize(in.count(2));
  for (SpanShape::Key& key : keys) {
    const uint64_t text = in.varint();
    const uint8_t type = in.fixed<uint8_t>();
    if (text >= texts || type >= kCellTypes) in.fail();
    if (!in.ok()) return false;
    key = {static_cast<uint32_t>(text), static_cast<CellType>(type)};
  }
  return in.ok();
}

constexpr int64_t kLeast64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast32 = std::numeric_limits<int32_t>::min();
constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();

bool is_text(CellType type) {
  return type == CellType::kText || type == CellType::kOther;
}

// Every step stops at the first section that makes no sense.
class RowGroupReader {
 public:
  RowGroupReader(const SectionSource& file, const RowGroupMeta& meta, const Wanted& wanted)
      : sections_(file, meta), row_count_(meta.rows), wanted_(wanted) {}

  Result<SpanColumns> read() {
    read_tables();
    if (sections_.ok()) read_fields();
    if (sections_.ok()) read_starts();
    // Which place an id stands for is said by the span's kind, so ids need the attributes too.
    if (sections_.ok() && (wanted_.attributes || wanted_.ids)) read_attributes();
    if (sections_.ok() && wanted_.ids) read_ids();
    if (!sections_.ok()) return Error{sections_.error()};
    return std::move(columns_);
  }

 private:
  // How many cells each column must have.
  struct CellCounts {
    std::vector<size_t> of_columns;
    size_t rest = 0;
    size_t all = 0;
    bool has_rest = false;
  };

  void read_tables() {
    columns_.texts = texts_from(sections_);
    columns_.traces = traces_from(sections_);
    columns_.sources = sources_from(sections_);
    if (row_count_ == 0 || columns_.traces.empty() || columns_.sources.empty()) sections_.fail(Section::kTraces);
    last_text_ = static_cast<int64_t>(columns_.texts.size()) - 1;
  }

  template <typename Member>
  void fill(Section section, Member SpanRow::*member, int64_t least, int64_t most) {
    if (!sections_.ok()) return;
    const std::vector<int64_t> values = sections_.ints(section, row_count_, least, most);
    for (size_t i = 0; i < row_count_; ++i) columns_.rows[i].*member = static_cast<Member>(values[i]);
  }

  void read_fields() {
    columns_.rows.resize(row_count_);
    fill(Section::kSource, &SpanRow::source, 0, static_cast<int64_t>(columns_.sources.size()) - 1);
    fill(Section::kTrace, &SpanRow::trace, 0, static_cast<int64_t>(columns_.traces.size()) - 1);
    fill(Section::kName, &SpanRow::name, 0, last_text_);
    fill(Section::kDuration, &SpanRow::duration_ns, kLeast64, kMost64);
    fill(Section::kStatusCode, &SpanRow::status_code, kLeast32, kMost32);
    if (!wanted_.all_fields) return;
    fill(Section::kKind, &SpanRow::kind, kLeast32, kMost32);
    fill(Section::kTraceState, &SpanRow::trace_state, 0, last_text_);
    fill(Section::kStatusMessage, &SpanRow::status_message, 0, last_text_);
    fill(Section::kExtra, &SpanRow::extra, 0, last_text_);
    fill(Section::kArrival, &SpanRow::arrival, 0, std::numeric_limits<uint32_t>::max());
  }

  void read_starts() {
    size_t groups = 0;
    each_group(columns_.rows, [&](const Group&) { ++groups; });
    const std::vector<int64_t> group_starts = sections_.ints(Section::kGroupStart, groups);
    const std::vector<int64_t> start_deltas = sections_.ints(Section::kStartDelta, row_count_ - groups);
    size_t next_group = 0;
    size_t next_delta = 0;
    each_group(columns_.rows, [&](const Group& group) {
      int64_t start = group_starts[next_group++];
      columns_.rows[group.begin].start_unix_ns = start;
      for (size_t i = group.begin + 1; i < group.end; ++i) {
        start = static_cast<int64_t>(static_cast<uint64_t>(start) + static_cast<uint64_t>(start_deltas[next_delta++]));
        columns_.rows[i].start_unix_ns = start;
      }
    });
  }

  void read_attributes() {
    CellColumns chosen;
    read_shapes(chosen);
    if (!sections_.ok()) return;
    chosen.assign(columns_.shapes);
    const CellCounts counts = count_cells(chosen);
    if (!sections_.ok()) return;
    const std::vector<std::vector<int64_t>> values = read_cell_columns(chosen, counts);
    const std::vector<int64_t> rest = sections_.ints(Section::kRestCells, counts.rest);
    if (sections_.ok()) place_cells(chosen, counts, values, rest);
  }

  void read_shapes(CellColumns& chosen) {
    const std::string bytes = sections_.unpacked(Section::kShapes);
    ByteReader in(bytes);
    bool ok = read_keys(in, columns_.texts.size(), chosen.keys) && chosen.keys.size() <= kCellColumnsMax;
    columns_.shapes.resize(in.count());
    for (SpanShape& shape : columns_.shapes) {
      ok = ok && read_keys(in, columns_.texts.size(), shape.keys);
      if (ok) find_own_keys(shape, columns_.texts);
    }
    if (!ok || !in.ok() || !in.at_end() || columns_.shapes.empty()) sections_.fail(Section::kShapes);
    fill(Section::kShape, &SpanRow::shape, 0, static_cast<int64_t>(columns_.shapes.size()) - 1);
  }

  CellCounts count_cells(const CellColumns& chosen) {
    std::vector<size_t> rows_of_shape(columns_.shapes.size());
    for (const SpanRow& row : columns_.rows) ++rows_of_shape[row.shape];
    CellCounts counts;
    counts.of_columns.resize(chosen.keys.size());
    for (size_t shape = 0; shape < columns_.shapes.size(); ++shape) {
      const std::vector<int32_t>& of_shape = chosen.of_shapes[shape];
      counts.all += of_shape.size() * rows_of_shape[shape];
      if (counts.all > (1u << 25)) {
        sections_.fail(Section::kShapes);
        return counts;
      }
      for (size_t i = 0; i < of_shape.size(); ++i) {
        if (of_shape[i] >= 0) {
          counts.of_columns[static_cast<size_t>(of_shape[i])] += rows_of_shape[shape];
        } else {
          counts.rest += columns_.shapes[shape].keys[i].type != CellType::kNone ? rows_of_shape[shape] : 0;
          counts.has_rest = true;
        }
      }
    }
    return counts;
  }

  std::vector<std::vector<int64_t>> read_cell_columns(const CellColumns& chosen, const CellCounts& counts) {
    auto is_wanted = [&](const SpanShape::Key& key) {
      std::string_view name = columns_.texts[key.key];
      return wanted_.ids || wanted_.keys.empty() ||
             std::find(wanted_.keys.begin(), wanted_.keys.end(), name) != wanted_.keys.end();
    };
    std::vector<std::vector<int64_t>> values(chosen.keys.size());
    for (size_t i = 0; i < values.size() && sections_.ok(); ++i) {
      if (!is_wanted(chosen.keys[i])) continue;  // no values: left zero by place_cells()
      const bool text = is_text(chosen.keys[i].type);
      values[i] = sections_.ints(static_cast<uint32_t>(Section::kAttributes) + static_cast<uint32_t>(i),
                                 counts.of_columns[i], text ? 0 : kLeast64, text ? last_text_ : kMost64);
    }
    return values;
  }

  void place_cells(const CellColumns& chosen, const CellCounts& counts, const std::vector<std::vector<int64_t>>& values,
                   const std::vector<int64_t>& rest) {
    std::vector<const int64_t*> next(chosen.keys.size());
    for (size_t i = 0; i < values.size(); ++i) next[i] = values[i].empty() ? nullptr : values[i].data();
    size_t next_rest = 0;
    columns_.cells.resize(counts.all);
    int64_t* to = columns_.cells.data();
    for (SpanRow& row : columns_.rows) {
      row.cells = static_cast<uint32_t>(to - columns_.cells.data());
      const std::vector<int32_t>& of_shape = chosen.of_shapes[row.shape];
      if (!counts.has_rest) {
        for (int32_t column : of_shape) {
          const int64_t*& from = next[static_cast<size_t>(column)];
          *to++ = from == nullptr ? 0 : *from++;
        }
        continue;
      }
      for (size_t i = 0; i < of_shape.size(); ++i, ++to) {
        const CellType type = columns_.shapes[row.shape].keys[i].type;
        if (of_shape[i] >= 0) {
          const int64_t*& from = next[static_cast<size_t>(of_shape[i])];
          *to = from == nullptr ? 0 : *from++;
        } else if (type != CellType::kNone) {
          *to = rest[next_rest++];
          if (is_text(type) && (*to < 0 || *to > last_text_)) sections_.fail(Section::kRestCells);
        }
      }
    }
  }

  void read_ids() {
    const std::vector<int64_t> places = sections_.ints(Section::kSpanIdPlace, row_count_, kNoPlace, kMost32);
    const std::vector<int64_t> parents = sections_.ints(Section::kParentKind, row_count_, kNoParent, kOtherParent);
    const std::string span_id_bytes = sections_.unpacked(Section::kSpanId);
    const std::string parent_id_bytes = sections_.unpacked(Section::kParentId);
    if (!sections_.ok()) return;
    const Kinds kinds(columns_);
    ByteReader span_ids(span_id_bytes);
    ByteReader parent_ids(parent_id_bytes);
    each_group(columns_.rows, [&](const Group& group) {
      const SpanSource& source = *columns_.sources[columns_.rows[group.begin].source];
      const StepSpanIds ids(columns_.traces[columns_.rows[group.begin].trace],
                            source.identity ? source.identity->rank : 0_rank);
      const SpanId step_id = ids.step();
      for (size_t i = group.begin; i < group.end; ++i) {
        SpanRow& row = columns_.rows[i];
        row.span_id = places[i] == kNoPlace ? span_ids.fixed<SpanId>()
                                            : id_at(ids, kinds.of(row), static_cast<size_t>(places[i]));
        row.parent_span_id = parents[i] == kNoParent       ? SpanId{}
                             : parents[i] == kStepIsParent ? step_id
                                                           : parent_ids.fixed<SpanId>();
      }
    });
    if (!span_ids.ok() || !span_ids.at_end()) sections_.fail(Section::kSpanId);
    if (!parent_ids.ok() || !parent_ids.at_end()) sections_.fail(Section::kParentId);
  }

  SectionReader sections_;
  const size_t row_count_;
  const Wanted& wanted_;
  SpanColumns columns_;
  int64_t last_text_ = -1;
};

}  // namespace

Result<SpanColumns> read_row_group(const SectionSource& file, const RowGroupMeta& meta, Wanted wanted) {
  return RowGroupReader(file, meta, wanted).read();
}

Result<std::vector<TraceId>> read_traces(const SectionSource& file, const RowGroupMeta& meta) {
  SectionReader sections(file, meta);
  std::vector<TraceId> traces = traces_from(sections);
  if (!sections.ok()) return Error{sections.error()};
  return traces;
}

Result<std::vector<TraceInGroup>> read_trace_summaries(const SectionSource& file, const RowGroupMeta& meta,
                                                       size_t count) {
  SectionReader sections(file, meta);
  const std::string bytes = sections.bytes(Section::kTraceSummaries);
  ByteReader in(bytes);
  std::vector<int64_t> values[8];
  for (std::vector<int64_t>& column : values) {
    if (!sections.ok() || !decode_ints(in.bytes(), count, column)) {
      sections.fail(Section::kTraceSummaries);
      return Error{sections.error()};
    }
  }
  std::vector<TraceInGroup> traces(count);
  for (size_t i = 0; i < count; ++i) {
    TraceInGroup& trace = traces[i];
    trace.spans = static_cast<uint32_t>(values[0][i]);
    trace.root_row = static_cast<uint32_t>(values[1][i]);
    trace.root_name = static_cast<uint32_t>(values[2][i]);
    trace.root_source = static_cast<uint32_t>(values[3][i]);
    trace.start_unix_ns = values[4][i];
    trace.end_unix_ns = static_cast<int64_t>(static_cast<uint64_t>(values[4][i]) + static_cast<uint64_t>(values[5][i]));
    trace.root_start_unix_ns =
        static_cast<int64_t>(static_cast<uint64_t>(values[4][i]) + static_cast<uint64_t>(values[6][i]));
    trace.root_has_parent = values[7][i] != 0;
  }
  return traces;
}

Result<std::vector<StepInGroup>> read_steps(const SectionSource& file, const RowGroupMeta& meta) {
  SectionReader sections(file, meta);
  const std::string bytes = sections.unpacked(Section::kSteps);
  ByteReader in(bytes);
  std::vector<StepInGroup> steps(in.count(6));
  for (StepInGroup& step : steps) {
    step.job_id = in.bytes();
    step.attempt = in.signed_varint();
    step.step = StepNumber{in.signed_varint()};
    step.start_unix_ns = in.signed_varint();
    step.ranks = static_cast<uint32_t>(in.varint());
    step.spans = static_cast<uint32_t>(in.varint());
  }
  if (!in.ok() || !in.at_end()) sections.fail(Section::kSteps);
  if (!sections.ok()) return Error{sections.error()};
  return steps;
}

}  // namespace lockstep::spans
