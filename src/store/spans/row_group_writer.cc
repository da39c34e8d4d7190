#include <algorithm>
#include <array>

#include "base/crc32c.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/columns/text_codec.h"
#include "store/spans/row_group.h"
#include "store/spans/row_group_layout.h"

namespace lockstep::spans {

using namespace columns;
using namespace layout;

namespace {

// Ids of a step sent in pieces continue somewhere: so many places are tried in a row group before ids are kept as such.
constexpr size_t kPlacesTriedMax = 1'000'000;

// Finds the places that give the ids. They were numbered in the order in which they were sent, which is not always
// that of their starts.
class Places {
 public:
  Places(const SpanColumns& columns, const Kinds& kinds, std::vector<int64_t>& places)
      : columns_(columns), kinds_(kinds), places_(places) {}

  void find(const Group& group, const StepSpanIds& ids) {
    phases_.clear();
    ops_.clear();
    for (size_t i = group.begin; i < group.end; ++i) {
      const SpanRow& row = columns_.rows[i];
      if (!is_step_span(columns_, row)) continue;
      const Place place = kinds_.of(row);
      if (place == Place::kStep && same(row.span_id, ids.step())) places_[i] = 0;
      if (place == Place::kPhase) phases_.push_back(i);
      if (place == Place::kOp) ops_.push_back(i);
    }
    find(Place::kPhase, phases_, ids);
    find(Place::kOp, ops_, ids);
  }

 private:
  void find(Place place, std::vector<size_t>& rows, const StepSpanIds& ids) {
    auto came_before = [&](size_t a, size_t b) { return columns_.rows[a].arrival < columns_.rows[b].arrival; };
    if (!std::is_sorted(rows.begin(), rows.end(), came_before)) std::sort(rows.begin(), rows.end(), came_before);
    size_t next = 0;
    bool known = false;
    for (size_t i : rows) {
      const SpanRow& row = columns_.rows[i];
      if (same(row.span_id, id_at(ids, place, next))) {
        places_[i] = static_cast<int64_t>(next++);
      } else if (!known) {
        for (size_t at = 0; at < kOpsPerDetailMax && tried_ < kPlacesTriedMax; ++at, ++tried_) {
          if (!same(row.span_id, id_at(ids, place, at))) continue;
          places_[i] = static_cast<int64_t>(at);
          next = at + 1;
          break;
        }
      }
      known = true;  // looked for once
    }
  }

  const SpanColumns& columns_;
  const Kinds& kinds_;
  std::vector<int64_t>& places_;
  std::vector<size_t> phases_;
  std::vector<size_t> ops_;
  size_t tried_ = 0;
};

CellColumns choose_columns(const SpanColumns& columns) {
  std::vector<size_t> rows_of_shape(columns.shapes.size());
  for (const SpanRow& row : columns.rows) ++rows_of_shape[row.shape];
  std::map<std::pair<uint32_t, CellType>, size_t> counts;
  for (size_t i = 0; i < columns.shapes.size(); ++i) {
    for (const SpanShape::Key& key : columns.shapes[i].keys) {
      if (key.type != CellType::kNone) counts[{key.key, key.type}] += rows_of_shape[i];
    }
  }
  std::vector<std::pair<size_t, SpanShape::Key>> by_count;
  for (const auto& [key, count] : counts) by_count.push_back({count, {key.first, key.second}});
  std::stable_sort(by_count.begin(), by_count.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (by_count.size() > kCellColumnsMax) by_count.resize(kCellColumnsMax);
  CellColumns chosen;
  for (const auto& [count, key] : by_count) chosen.keys.push_back(key);
  chosen.assign(columns.shapes);
  return chosen;
}

// Appends sections to a file and remembers where they are.
class SectionWriter {
 public:
  SectionWriter(std::string& file, std::vector<SectionPlace>& places) : file_(file), places_(places) {}
  void add(uint32_t section, std::string_view bytes) {
    places_.push_back({section, file_.size(), static_cast<uint32_t>(bytes.size()), crc32c(bytes)});
    file_ += bytes;
  }
  void add(Section section, std::string_view bytes) { add(static_cast<uint32_t>(section), bytes); }
  void add(Section section, const std::vector<int64_t>& values) { add(section, encode_ints(values)); }

 private:
  std::string& file_;
  std::vector<SectionPlace>& places_;
};

std::string encode_shapes(const CellColumns& cells, const std::vector<SpanShape>& shapes) {
  std::string out;
  auto put_keys = [&](const std::vector<SpanShape::Key>& keys) {
    put_varint(out, keys.size());
    for (const SpanShape::Key& key : keys) {
      put_varint(out, key.key);
      out.push_back(static_cast<char>(key.type));
    }
  };
  put_keys(cells.keys);
  put_varint(out, shapes.size());
  for (const SpanShape& shape : shapes) put_keys(shape.keys);
  return pack_bytes(out);
}

template <typename Rows, typename Member>
std::vector<int64_t> column_of(const Rows& rows, Member member) {
  std::vector<int64_t> values;
  values.reserve(rows.size());
  for (const auto& row : rows) values.push_back(static_cast<int64_t>(row.*member));
  return values;
}

int64_t difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// Groups of columns, in the order in which they lie in the file.
class RowGroupWriter {
 public:
  RowGroupWriter(const SpanColumns& columns, std::string& file, std::vector<SectionPlace>& places)
      : columns_(columns), rows_(columns.rows), sections_(file, places) {}

  void write() {
    add_tables();
    add_trace_summaries();
    add_steps();
    add_fields();
    add_starts_and_ids();
    add_cells();
  }

 private:
  void add_tables() {
    sections_.add(Section::kTexts, encode_texts(columns_.texts));
    sections_.add(Section::kTraces, pack_bytes({reinterpret_cast<const char*>(columns_.traces.data()),
                                                columns_.traces.size() * sizeof(TraceId)}));
    std::string sources;
    put_varint(sources, columns_.sources.size());
    for (const auto& source : columns_.sources) put_bytes(sources, source->key);
    sections_.add(Section::kSources, pack_bytes(sources));
  }

  void add_trace_summaries() {
    const std::vector<TraceInGroup> traces = summarise_traces(columns_);
    std::string summaries;
    for (auto member :
         {&TraceInGroup::spans, &TraceInGroup::root_row, &TraceInGroup::root_name, &TraceInGroup::root_source})
      put_bytes(summaries, encode_ints(column_of(traces, member)));
    std::vector<int64_t> ends;
    std::vector<int64_t> root_starts;
    std::vector<int64_t> starts;
    std::vector<int64_t> have_parents;
    for (const TraceInGroup& trace : traces) {
      starts.push_back(trace.start_unix_ns);
      have_parents.push_back(trace.root_has_parent);
      ends.push_back(difference(trace.end_unix_ns, trace.start_unix_ns));
      root_starts.push_back(difference(trace.root_start_unix_ns, trace.start_unix_ns));
    }
    for (const std::vector<int64_t>* values : {&starts, &ends, &root_starts, &have_parents})
      put_bytes(summaries, encode_ints(*values));
    sections_.add(Section::kTraceSummaries, summaries);
  }

  void add_steps() {
    std::string steps;
    const std::vector<StepInGroup> in_group = summarise_steps(columns_);
    put_varint(steps, in_group.size());
    for (const StepInGroup& step : in_group) {
      put_bytes(steps, step.job_id);
      put_signed(steps, step.attempt);
      put_signed(steps, step.step.value());
      put_signed(steps, step.start_unix_ns);
      put_varint(steps, step.ranks);
      put_varint(steps, step.spans);
    }
    sections_.add(Section::kSteps, pack_bytes(steps));
  }

  // All of them in one pass: rows are more than the processor's caches hold. Kept between calls, for memory that is
  // given back to the system and asked for again costs more than the copying.
  void add_fields() {
    static constexpr Section kRowSections[] = {Section::kSource,     Section::kTrace,      Section::kShape,
                                               Section::kName,       Section::kDuration,   Section::kKind,
                                               Section::kStatusCode, Section::kTraceState, Section::kStatusMessage,
                                               Section::kExtra,      Section::kArrival};
    thread_local std::array<std::vector<int64_t>, std::size(kRowSections)> row_columns;
    for (std::vector<int64_t>& column : row_columns) column.resize(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i) {
      const SpanRow& row = rows_[i];
      const int64_t values[] = {row.source,         row.trace, row.shape,       row.name,
                                row.duration_ns,    row.kind,  row.status_code, row.trace_state,
                                row.status_message, row.extra, row.arrival};
      for (size_t column = 0; column < std::size(kRowSections); ++column) row_columns[column][i] = values[column];
    }
    for (size_t column = 0; column < std::size(kRowSections); ++column)
      sections_.add(kRowSections[column], row_columns[column]);
  }

  void add_starts_and_ids() {
    std::vector<int64_t> group_starts;
    std::vector<int64_t> start_deltas;
    std::vector<int64_t> places(rows_.size(), kNoPlace);
    std::vector<int64_t> parents(rows_.size(), kNoParent);
    std::string span_ids;
    std::string parent_ids;
    const Kinds kinds(columns_);
    Places finder(columns_, kinds, places);
    each_group(rows_, [&](const Group& group) {
      group_starts.push_back(rows_[group.begin].start_unix_ns);
      for (size_t i = group.begin + 1; i < group.end; ++i)
        start_deltas.push_back(difference(rows_[i].start_unix_ns, rows_[i - 1].start_unix_ns));
      const SpanSource& source = *columns_.sources[rows_[group.begin].source];
      SpanId step_id{};
      if (source.identity) {
        const StepSpanIds ids(columns_.traces[rows_[group.begin].trace], source.identity->rank);
        step_id = ids.step();
        finder.find(group, ids);
      }
      for (size_t i = group.begin; i < group.end; ++i) {
        const SpanRow& row = rows_[i];
        if (places[i] == kNoPlace) put_fixed(span_ids, row.span_id);
        if (number_of(row.parent_span_id) == 0) continue;
        if (source.identity && same(row.parent_span_id, step_id)) {
          parents[i] = kStepIsParent;
        } else {
          parents[i] = kOtherParent;
          put_fixed(parent_ids, row.parent_span_id);
        }
      }
    });
    sections_.add(Section::kGroupStart, group_starts);
    sections_.add(Section::kStartDelta, start_deltas);
    sections_.add(Section::kSpanIdPlace, places);
    sections_.add(Section::kSpanId, pack_bytes(span_ids));
    sections_.add(Section::kParentKind, parents);
    sections_.add(Section::kParentId, pack_bytes(parent_ids));
  }

  void add_cells() {
    const CellColumns chosen = choose_columns(columns_);
    thread_local std::vector<std::vector<int64_t>> values;  // kept between calls, as in add_fields()
    values.resize(std::max(values.size(), chosen.keys.size()));
    for (size_t i = 0; i < chosen.keys.size(); ++i) values[i].clear();
    std::vector<int64_t> rest;
    for (const SpanRow& row : rows_) {
      const std::vector<int32_t>& of_shape = chosen.of_shapes[row.shape];
      const int64_t* cells = columns_.cells.data() + row.cells;
      for (size_t i = 0; i < of_shape.size(); ++i) {
        if (of_shape[i] >= 0) {
          values[static_cast<size_t>(of_shape[i])].push_back(cells[i]);
        } else if (columns_.shapes[row.shape].keys[i].type != CellType::kNone) {
          rest.push_back(cells[i]);
        }
      }
    }
    sections_.add(Section::kShapes, encode_shapes(chosen, columns_.shapes));
    for (size_t i = 0; i < chosen.keys.size(); ++i)
      sections_.add(static_cast<uint32_t>(Section::kAttributes) + static_cast<uint32_t>(i), encode_ints(values[i]));
    sections_.add(Section::kRestCells, rest);
  }

  const SpanColumns& columns_;
  const std::vector<SpanRow>& rows_;
  SectionWriter sections_;
};

}  // namespace

RowGroupMeta write_row_group(const SpanColumns& columns, std::string& file) {
  RowGroupMeta meta = describe(columns);
  RowGroupWriter(columns, file, meta.sections).write();
  return meta;
}

}  // namespace lockstep::spans
