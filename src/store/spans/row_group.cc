// How columns become small. Spans of steps lie rank after rank within their step, so that
//  - source, trace, shape and name repeat or follow a pattern that zstd sees from rank to rank;
//  - starts are differences within the rank's step, whose own start is apart (no jump back in the column);
//  - the ids of our own spans follow from trace, rank and place: the place alone is kept, after checking that it gives
//    exactly this id; ids that it does not give, and those of other services, are kept as they are.
#include "store/spans/row_group.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/crc32c.h"
#include "base/text.h"
#include "store/columns/byte_codec.h"
#include "store/columns/int_codec.h"
#include "store/columns/text_codec.h"
#include "store/spans/value_codec.h"

namespace lockstep::spans {

using namespace columns;

namespace {

// Beyond these (key, type) pairs, by frequency, cells of all others share one column.
constexpr size_t kCellColumnsMax = 200;
constexpr size_t kTextBytesMax = 256u << 20;
// Ids of a step sent in pieces continue somewhere: so many places are tried in a row group before ids are kept as such.
constexpr size_t kPlacesTriedMax = 1'000'000;
constexpr int64_t kNoPlace = -1;
enum ParentKind : int64_t { kNoParent = 0, kStepIsParent = 1, kOtherParent = 2 };

bool is_step_span(const SpanColumns& columns, const SpanRow& row) {
  return columns.shapes[row.shape].own[static_cast<size_t>(OwnKey::kKind)] >= 0 &&
         columns.shapes[row.shape].own[static_cast<size_t>(OwnKey::kStep)] >= 0 &&
         columns.sources[row.source]->identity.has_value();
}

// What a span of a step is, by the text of its kind: looked up once for each text, not for each row.
enum class Place : uint8_t { kNone, kStep, kPhase, kOp };
class Kinds {
 public:
  explicit Kinds(const SpanColumns& columns) : columns_(columns), of_text_(columns.texts.size(), Place::kNone) {
    for (uint32_t id = 1; id < columns.texts.size(); ++id) {
      std::string_view kind = columns.texts[id];
      of_text_[id] = kind == "collective" || kind == "p2p" ? Place::kOp
                     : kind == "phase"                     ? Place::kPhase
                     : kind == "step"                      ? Place::kStep
                                                           : Place::kNone;
    }
  }
  Place of(const SpanRow& row) const {
    const int64_t* kind = columns_.own(row, OwnKey::kKind);
    return kind == nullptr ? Place::kNone : of_text_[static_cast<size_t>(*kind)];
  }
  // Whether part_of() has something to say of it.
  bool is_part(const SpanRow& row) const {
    const Place place = of(row);
    if (place == Place::kNone || columns_.own_int(row, OwnKey::kStep, -1) < 0 ||
        columns_.end_unix_ns(row) < row.start_unix_ns)
      return false;
    if (place != Place::kPhase) return true;
    std::string_view phase = columns_.own_text(row, OwnKey::kPhase);
    for (size_t i = 0; i < kPhaseCount; ++i) {
      if (phase == to_text(static_cast<Phase>(i))) return true;
    }
    return false;
  }

 private:
  const SpanColumns& columns_;
  std::vector<Place> of_text_;
};

// Compared in one go: in places of every row.
uint64_t number_of(const SpanId& id) {
  uint64_t number;
  std::memcpy(&number, id.data(), sizeof number);
  return number;
}
bool same(const SpanId& a, const SpanId& b) {
  return number_of(a) == number_of(b);
}

SpanId id_at(const StepSpanIds& ids, Place place, size_t index) {
  switch (place) {
    case Place::kPhase:
      return ids.phase(index);
    case Place::kOp:
      return ids.op(index);
    default:
      return ids.step();
  }
}

// A step of a rank: neighbours with one trace and one source.
struct Group {
  size_t begin;
  size_t end;
};
template <typename Visit>
void each_group(const std::vector<SpanRow>& rows, const Visit& visit) {
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end].trace == rows[begin].trace && rows[end].source == rows[begin].source) ++end;
    visit(Group{begin, end});
    begin = end;
  }
}

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

struct CellColumns {
  std::vector<SpanShape::Key> keys;
  static constexpr int32_t kRest = -1;
  // For each shape, for each cell: which column.
  std::vector<std::vector<int32_t>> of_shapes;

  void assign(const std::vector<SpanShape>& shapes) {
    std::map<std::pair<uint32_t, CellType>, int32_t> index;
    for (size_t i = 0; i < keys.size(); ++i) index[{keys[i].key, keys[i].type}] = static_cast<int32_t>(i);
    of_shapes.clear();
    for (const SpanShape& shape : shapes) {
      std::vector<int32_t>& of_shape = of_shapes.emplace_back();
      for (const SpanShape::Key& key : shape.keys) {
        auto found = index.find({key.key, key.type});
        of_shape.push_back(found == index.end() ? kRest : found->second);
      }
    }
  }
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

template <typename T>
void put_range(std::string& out, const Range<T>& range) {
  put_signed(out, range.least);
  put_signed(out, range.most);
}
template <typename T>
void read_range(ByteReader& in, Range<T>& range) {
  range.least = static_cast<T>(in.signed_varint());
  range.most = static_cast<T>(in.signed_varint());
}

}  // namespace

std::vector<TraceInGroup> summarise_traces(const SpanColumns& columns) {
  std::vector<TraceInGroup> traces(columns.traces.size());
  for (size_t i = 0; i < columns.rows.size(); ++i) {
    const SpanRow& row = columns.rows[i];
    TraceInGroup& trace = traces[row.trace];
    const int64_t end = columns.end_unix_ns(row);
    const bool has_parent = number_of(row.parent_span_id) != 0;
    const bool is_first = trace.spans++ == 0;
    if (is_first || row.start_unix_ns < trace.start_unix_ns) trace.start_unix_ns = row.start_unix_ns;
    if (is_first || end > trace.end_unix_ns) trace.end_unix_ns = end;
    if (is_first ||
        std::pair(has_parent, row.start_unix_ns) < std::pair(trace.root_has_parent, trace.root_start_unix_ns)) {
      trace.root_has_parent = has_parent;
      trace.root_start_unix_ns = row.start_unix_ns;
      trace.root_row = static_cast<uint32_t>(i);
      trace.root_name = row.name;
      trace.root_source = row.source;
    }
  }
  return traces;
}

std::vector<StepInGroup> summarise_steps(const SpanColumns& columns) {
  std::map<std::tuple<std::string_view, int64_t, int64_t>, StepInGroup> steps;
  StepInGroup* last = nullptr;
  const SpanSource* last_source = nullptr;
  const Kinds kinds(columns);
  for (const SpanRow& row : columns.rows) {
    const SpanSource& source = *columns.sources[row.source];
    if (source.job_id.empty() || !kinds.is_part(row)) continue;
    const int64_t* step = columns.own(row, OwnKey::kStep);
    if (last == nullptr || last_source != &source || last->step != *step) {
      last = &steps[{source.job_id, source.attempt, *step}];
      last_source = &source;
      last->job_id = source.job_id;
      last->attempt = source.attempt;
      last->step = *step;
    }
    if (last->spans++ == 0 || row.start_unix_ns < last->start_unix_ns) last->start_unix_ns = row.start_unix_ns;
    last->ranks += kinds.of(row) == Place::kStep;
  }
  std::vector<StepInGroup> answer;
  for (auto& [key, step] : steps) answer.push_back(std::move(step));
  return answer;
}

std::vector<RowRef> disk_order(std::span<const SpanColumns* const> parts) {
  // Jobs in order of their names; what belongs to no step comes last.
  constexpr uint32_t kNoJob = ~uint32_t{0};
  std::map<std::pair<std::string_view, int64_t>, uint32_t> jobs;
  for (const SpanColumns* part : parts) {
    for (const auto& source : part->sources) {
      if (source->identity) jobs[{source->job_id, source->attempt}] = 0;
    }
  }
  uint32_t count = 0;
  for (auto& [job, number] : jobs) number = count++;

  struct Run {
    uint32_t job;
    int64_t step;
    int32_t rank;
    size_t begin;
    size_t end;
  };
  std::vector<RowRef> arrived;
  std::vector<Run> runs;
  for (uint32_t at = 0; at < parts.size(); ++at) {
    const SpanColumns& part = *parts[at];
    std::vector<std::pair<uint32_t, int32_t>> job_and_rank;
    for (const auto& source : part.sources) {
      if (source->identity) {
        job_and_rank.emplace_back(jobs[{source->job_id, source->attempt}], source->identity->rank);
      } else {
        job_and_rank.emplace_back(kNoJob, 0);
      }
    }
    for (uint32_t i = 0; i < part.rows.size(); ++i) {
      const SpanRow& row = part.rows[i];
      Run run{kNoJob, 0, 0, arrived.size(), arrived.size() + 1};
      if (is_step_span(part, row)) {
        run.job = job_and_rank[row.source].first;
        run.rank = job_and_rank[row.source].second;
        run.step = *part.own(row, OwnKey::kStep);
      }
      arrived.push_back({at, i});
      if (!runs.empty() && runs.back().job == run.job && runs.back().step == run.step && runs.back().rank == run.rank) {
        runs.back().end = run.end;
      } else {
        runs.push_back(run);
      }
    }
  }
  auto key = [](const Run& run) { return std::tuple(run.job, run.step, run.rank); };
  std::stable_sort(runs.begin(), runs.end(), [&](const Run& a, const Run& b) { return key(a) < key(b); });

  std::vector<RowRef> order;
  order.reserve(arrived.size());
  std::vector<std::pair<int64_t, RowRef>> group;
  for (size_t i = 0; i < runs.size();) {
    group.clear();
    size_t end = i;
    for (; end < runs.size() && key(runs[end]) == key(runs[i]); ++end) {
      for (size_t at = runs[end].begin; at < runs[end].end; ++at) {
        const RowRef ref = arrived[at];
        group.emplace_back(parts[ref.part]->rows[ref.row].start_unix_ns, ref);
      }
    }
    i = end;
    auto earlier = [](const auto& a, const auto& b) { return a.first < b.first; };
    if (!std::is_sorted(group.begin(), group.end(), earlier)) std::stable_sort(group.begin(), group.end(), earlier);
    for (const auto& [start, ref] : group) order.push_back(ref);
  }
  return order;
}

RowGroupMeta describe(const SpanColumns& columns) {
  RowGroupMeta meta;
  meta.rows = static_cast<uint32_t>(columns.rows.size());
  std::vector<uint32_t> rows_of_source(columns.sources.size());
  std::unordered_set<uint64_t> source_names;  // source and name
  std::vector<int64_t> last_source_of_name(columns.texts.size(), -1);
  std::map<std::pair<std::string_view, int64_t>, JobSteps> jobs;
  JobSteps* last_job = nullptr;
  uint32_t last_job_source = ~uint32_t{0};
  // Names are counted by service, not by source: 4,096 ranks are one service.
  std::map<std::string_view, uint32_t> services;
  std::vector<uint32_t> service_of_source;
  for (const auto& source : columns.sources)
    service_of_source.push_back(
        services.emplace(source->service, static_cast<uint32_t>(services.size())).first->second);
  for (const SpanRow& row : columns.rows) {
    meta.starts.add(row.start_unix_ns);
    meta.durations.add(row.duration_ns);
    meta.has_errors |= row.status_code == 2;
    ++rows_of_source[row.source];
    const uint32_t service = service_of_source[row.source];
    if (last_source_of_name[row.name] != service) {
      last_source_of_name[row.name] = service;
      source_names.insert(uint64_t{service} << 32 | row.name);
    }
    if (!is_step_span(columns, row)) continue;
    const SpanSource& source = *columns.sources[row.source];
    if (last_job == nullptr || last_job_source != row.source) {
      last_job = &jobs[{source.job_id, source.attempt}];
      last_job_source = row.source;
      last_job->job_id = source.job_id;
      last_job->attempt = source.attempt;
      last_job->ranks.add(source.identity->rank);
    }
    last_job->steps.add(*columns.own(row, OwnKey::kStep));
  }
  meta.traces = TraceBloom(columns.traces);
  for (auto& [job, steps] : jobs) meta.jobs.push_back(std::move(steps));

  std::set<std::string> resource_keys;
  std::set<std::string> span_keys;
  for (const auto& source : columns.sources) {
    for (const Attribute& attribute : *source->resource) resource_keys.insert(attribute.key);
  }
  for (const SpanShape& shape : columns.shapes) {
    for (const SpanShape::Key& key : shape.keys) span_keys.emplace(columns.texts[key.key]);
  }
  meta.is_listed = source_names.size() <= kCatalogueMax && services.size() <= kCatalogueMax &&
                   resource_keys.size() + span_keys.size() <= kCatalogueMax;
  if (!meta.is_listed) return meta;
  std::vector<std::string_view> service_names(services.size());
  for (const auto& [name, number] : services) service_names[number] = name;
  for (size_t i = 0; i < columns.sources.size(); ++i) meta.services[columns.sources[i]->service] += rows_of_source[i];
  for (uint64_t pair : source_names) {
    meta.names.emplace_back(service_names[pair >> 32], columns.texts[static_cast<uint32_t>(pair)]);
  }
  std::sort(meta.names.begin(), meta.names.end());
  meta.resource_keys.assign(resource_keys.begin(), resource_keys.end());
  meta.span_keys.assign(span_keys.begin(), span_keys.end());
  return meta;
}

RowGroupMeta write_row_group(const SpanColumns& columns, std::string& file) {
  RowGroupMeta meta = describe(columns);
  SectionWriter sections(file, meta.sections);
  const std::vector<SpanRow>& rows = columns.rows;
  sections.add(Section::kTexts, encode_texts(columns.texts));
  sections.add(Section::kTraces, pack_bytes({reinterpret_cast<const char*>(columns.traces.data()),
                                             columns.traces.size() * sizeof(TraceId)}));
  std::string sources;
  put_varint(sources, columns.sources.size());
  for (const auto& source : columns.sources) put_bytes(sources, source->key);
  sections.add(Section::kSources, pack_bytes(sources));

  const std::vector<TraceInGroup> traces = summarise_traces(columns);
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
  sections.add(Section::kTraceSummaries, summaries);

  std::string steps;
  const std::vector<StepInGroup> in_group = summarise_steps(columns);
  put_varint(steps, in_group.size());
  for (const StepInGroup& step : in_group) {
    put_bytes(steps, step.job_id);
    put_signed(steps, step.attempt);
    put_signed(steps, step.step);
    put_signed(steps, step.start_unix_ns);
    put_varint(steps, step.ranks);
    put_varint(steps, step.spans);
  }
  sections.add(Section::kSteps, pack_bytes(steps));

  // All of them in one pass: rows are more than the processor's caches hold. Kept between calls, for memory that is
  // given back to the system and asked for again costs more than the copying.
  static constexpr Section kRowSections[] = {Section::kSource,     Section::kTrace,      Section::kShape,
                                             Section::kName,       Section::kDuration,   Section::kKind,
                                             Section::kStatusCode, Section::kTraceState, Section::kStatusMessage,
                                             Section::kExtra,      Section::kArrival};
  thread_local std::array<std::vector<int64_t>, std::size(kRowSections)> row_columns;
  for (std::vector<int64_t>& column : row_columns) column.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const SpanRow& row = rows[i];
    const int64_t values[] = {row.source,         row.trace, row.shape,       row.name,
                              row.duration_ns,    row.kind,  row.status_code, row.trace_state,
                              row.status_message, row.extra, row.arrival};
    for (size_t column = 0; column < std::size(kRowSections); ++column) row_columns[column][i] = values[column];
  }
  for (size_t column = 0; column < std::size(kRowSections); ++column)
    sections.add(kRowSections[column], row_columns[column]);

  std::vector<int64_t> group_starts;
  std::vector<int64_t> start_deltas;
  std::vector<int64_t> places(rows.size(), kNoPlace);
  std::vector<int64_t> parents(rows.size(), kNoParent);
  std::string span_ids;
  std::string parent_ids;
  const Kinds kinds(columns);
  Places finder(columns, kinds, places);
  each_group(rows, [&](const Group& group) {
    group_starts.push_back(rows[group.begin].start_unix_ns);
    for (size_t i = group.begin + 1; i < group.end; ++i)
      start_deltas.push_back(difference(rows[i].start_unix_ns, rows[i - 1].start_unix_ns));
    const SpanSource& source = *columns.sources[rows[group.begin].source];
    SpanId step_id{};
    if (source.identity) {
      const StepSpanIds ids(columns.traces[rows[group.begin].trace], source.identity->rank);
      step_id = ids.step();
      finder.find(group, ids);
    }
    for (size_t i = group.begin; i < group.end; ++i) {
      const SpanRow& row = rows[i];
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
  sections.add(Section::kGroupStart, group_starts);
  sections.add(Section::kStartDelta, start_deltas);
  sections.add(Section::kSpanIdPlace, places);
  sections.add(Section::kSpanId, pack_bytes(span_ids));
  sections.add(Section::kParentKind, parents);
  sections.add(Section::kParentId, pack_bytes(parent_ids));

  const CellColumns chosen = choose_columns(columns);
  thread_local std::vector<std::vector<int64_t>> values;  // as above
  values.resize(std::max(values.size(), chosen.keys.size()));
  for (size_t i = 0; i < chosen.keys.size(); ++i) values[i].clear();
  std::vector<int64_t> rest;
  for (const SpanRow& row : rows) {
    const std::vector<int32_t>& of_shape = chosen.of_shapes[row.shape];
    const int64_t* cells = columns.cells.data() + row.cells;
    for (size_t i = 0; i < of_shape.size(); ++i) {
      if (of_shape[i] >= 0) {
        values[static_cast<size_t>(of_shape[i])].push_back(cells[i]);
      } else if (columns.shapes[row.shape].keys[i].type != CellType::kNone) {
        rest.push_back(cells[i]);
      }
    }
  }
  sections.add(Section::kShapes, encode_shapes(chosen, columns.shapes));
  for (size_t i = 0; i < chosen.keys.size(); ++i)
    sections.add(static_cast<uint32_t>(Section::kAttributes) + static_cast<uint32_t>(i), encode_ints(values[i]));
  sections.add(Section::kRestCells, rest);
  return meta;
}

void encode_meta(std::string& out, const RowGroupMeta& meta) {
  put_varint(out, meta.rows);
  put_range(out, meta.starts);
  put_range(out, meta.durations);
  out.push_back(static_cast<char>(meta.has_errors | meta.is_listed << 1));
  put_bytes(out, meta.traces.bits());
  put_varint(out, meta.jobs.size());
  for (const JobSteps& job : meta.jobs) {
    put_bytes(out, job.job_id);
    put_signed(out, job.attempt);
    put_range(out, job.steps);
    put_range(out, job.ranks);
  }
  put_varint(out, meta.services.size());
  for (const auto& [service, rows] : meta.services) {
    put_bytes(out, service);
    put_varint(out, rows);
  }
  put_varint(out, meta.names.size());
  for (const auto& [service, name] : meta.names) {
    put_bytes(out, service);
    put_bytes(out, name);
  }
  for (const std::vector<std::string>* keys : {&meta.resource_keys, &meta.span_keys}) {
    put_varint(out, keys->size());
    for (const std::string& key : *keys) put_bytes(out, key);
  }
  put_varint(out, meta.sections.size());
  for (const SectionPlace& place : meta.sections) {
    put_varint(out, place.section);
    put_varint(out, place.offset);
    put_varint(out, place.bytes);
    put_fixed(out, place.crc);
  }
}

bool decode_meta(ByteReader& in, RowGroupMeta& meta) {
  const uint64_t rows = in.varint();
  if (rows > kRowGroupRows) in.fail();
  meta.rows = static_cast<uint32_t>(rows);
  read_range(in, meta.starts);
  read_range(in, meta.durations);
  const uint8_t flags = in.fixed<uint8_t>();
  meta.has_errors = (flags & 1) != 0;
  meta.is_listed = (flags & 2) != 0;
  meta.traces = TraceBloom(std::string(in.bytes()));
  meta.jobs.resize(in.count(6));
  for (JobSteps& job : meta.jobs) {
    job.job_id = in.bytes();
    job.attempt = in.signed_varint();
    read_range(in, job.steps);
    read_range(in, job.ranks);
  }
  const size_t services = in.count(2);
  for (size_t i = 0; i < services && in.ok(); ++i) {
    std::string service(in.bytes());
    meta.services[service] = static_cast<uint32_t>(in.varint());
  }
  meta.names.resize(in.count(2));
  for (auto& [service, name] : meta.names) {
    service = in.bytes();
    name = in.bytes();
  }
  for (std::vector<std::string>* keys : {&meta.resource_keys, &meta.span_keys}) {
    keys->resize(in.count());
    for (std::string& key : *keys) key = in.bytes();
  }
  meta.sections.resize(in.count(7));
  for (SectionPlace& place : meta.sections) {
    place.section = static_cast<uint32_t>(in.varint());
    place.offset = in.varint();
    place.bytes = static_cast<uint32_t>(in.varint());
    place.crc = in.fixed<uint32_t>();
  }
  return in.ok();
}

Result<SpanColumns> read_row_group(const SectionSource& file, const RowGroupMeta& meta, Wanted wanted) {
  SectionReader sections(file, meta);
  SpanColumns columns;
  const size_t rows = meta.rows;
  columns.texts = texts_from(sections);
  columns.traces = traces_from(sections);
  columns.sources = sources_from(sections);
  if (rows == 0 || columns.traces.empty() || columns.sources.empty()) sections.fail(Section::kTraces);
  if (!sections.ok()) return Error{sections.error()};
  columns.rows.resize(rows);
  auto fill = [&](Section section, auto member, int64_t least, int64_t most) {
    if (!sections.ok()) return;
    const std::vector<int64_t> values = sections.ints(section, rows, least, most);
    using Member = std::remove_reference_t<decltype(columns.rows[0].*member)>;
    for (size_t i = 0; i < rows; ++i) columns.rows[i].*member = static_cast<Member>(values[i]);
  };
  const int64_t last_text = static_cast<int64_t>(columns.texts.size()) - 1;
  constexpr int64_t kLeast64 = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost64 = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast32 = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost32 = std::numeric_limits<int32_t>::max();
  fill(Section::kSource, &SpanRow::source, 0, static_cast<int64_t>(columns.sources.size()) - 1);
  fill(Section::kTrace, &SpanRow::trace, 0, static_cast<int64_t>(columns.traces.size()) - 1);
  fill(Section::kName, &SpanRow::name, 0, last_text);
  fill(Section::kDuration, &SpanRow::duration_ns, kLeast64, kMost64);
  fill(Section::kStatusCode, &SpanRow::status_code, kLeast32, kMost32);
  if (wanted.all_fields) {
    fill(Section::kKind, &SpanRow::kind, kLeast32, kMost32);
    fill(Section::kTraceState, &SpanRow::trace_state, 0, last_text);
    fill(Section::kStatusMessage, &SpanRow::status_message, 0, last_text);
    fill(Section::kExtra, &SpanRow::extra, 0, last_text);
    fill(Section::kArrival, &SpanRow::arrival, 0, std::numeric_limits<uint32_t>::max());
  }
  if (!sections.ok()) return Error{sections.error()};

  size_t groups = 0;
  each_group(columns.rows, [&](const Group&) { ++groups; });
  const std::vector<int64_t> group_starts = sections.ints(Section::kGroupStart, groups);
  const std::vector<int64_t> start_deltas = sections.ints(Section::kStartDelta, rows - groups);
  size_t next_group = 0;
  size_t next_delta = 0;
  each_group(columns.rows, [&](const Group& group) {
    int64_t start = group_starts[next_group++];
    columns.rows[group.begin].start_unix_ns = start;
    for (size_t i = group.begin + 1; i < group.end; ++i) {
      start = static_cast<int64_t>(static_cast<uint64_t>(start) + static_cast<uint64_t>(start_deltas[next_delta++]));
      columns.rows[i].start_unix_ns = start;
    }
  });

  // Which place an id stands for is said by the span's kind, so ids need the attributes too.
  const std::string shape_bytes = wanted.attributes || wanted.ids ? sections.unpacked(Section::kShapes) : std::string();
  if (wanted.attributes || wanted.ids) {
    ByteReader in(shape_bytes);
    CellColumns chosen;
    bool ok = read_keys(in, columns.texts.size(), chosen.keys) && chosen.keys.size() <= kCellColumnsMax;
    columns.shapes.resize(in.count());
    for (SpanShape& shape : columns.shapes) {
      ok = ok && read_keys(in, columns.texts.size(), shape.keys);
      if (ok) find_own_keys(shape, columns.texts);
    }
    if (!ok || !in.ok() || !in.at_end() || columns.shapes.empty()) sections.fail(Section::kShapes);
    fill(Section::kShape, &SpanRow::shape, 0, static_cast<int64_t>(columns.shapes.size()) - 1);
    if (!sections.ok()) return Error{sections.error()};
    chosen.assign(columns.shapes);
    // How many cells each column must have.
    std::vector<size_t> rows_of_shape(columns.shapes.size());
    for (const SpanRow& row : columns.rows) ++rows_of_shape[row.shape];
    std::vector<size_t> counts(chosen.keys.size());
    size_t rest_count = 0;
    size_t cells = 0;
    bool has_rest = false;
    for (size_t shape = 0; shape < columns.shapes.size(); ++shape) {
      const std::vector<int32_t>& of_shape = chosen.of_shapes[shape];
      cells += of_shape.size() * rows_of_shape[shape];
      if (cells > (1u << 25)) sections.fail(Section::kShapes);
      if (!sections.ok()) return Error{sections.error()};
      for (size_t i = 0; i < of_shape.size(); ++i) {
        if (of_shape[i] >= 0) {
          counts[static_cast<size_t>(of_shape[i])] += rows_of_shape[shape];
        } else {
          rest_count += columns.shapes[shape].keys[i].type != CellType::kNone ? rows_of_shape[shape] : 0;
          has_rest = true;
        }
      }
    }
    auto is_wanted = [&](const SpanShape::Key& key) {
      std::string_view name = columns.texts[key.key];
      return wanted.ids || wanted.keys.empty() ||
             std::find(wanted.keys.begin(), wanted.keys.end(), name) != wanted.keys.end();
    };
    std::vector<std::vector<int64_t>> values(chosen.keys.size());
    for (size_t i = 0; i < values.size() && sections.ok(); ++i) {
      if (!is_wanted(chosen.keys[i])) continue;  // no values: left zero below
      const bool is_text = chosen.keys[i].type == CellType::kText || chosen.keys[i].type == CellType::kOther;
      values[i] = sections.ints(static_cast<uint32_t>(Section::kAttributes) + static_cast<uint32_t>(i), counts[i],
                                is_text ? 0 : kLeast64, is_text ? last_text : kMost64);
    }
    const std::vector<int64_t> rest = sections.ints(Section::kRestCells, rest_count);
    if (!sections.ok()) return Error{sections.error()};
    std::vector<const int64_t*> next(chosen.keys.size());
    for (size_t i = 0; i < values.size(); ++i) next[i] = values[i].empty() ? nullptr : values[i].data();
    size_t next_rest = 0;
    columns.cells.resize(cells);
    int64_t* to = columns.cells.data();
    for (SpanRow& row : columns.rows) {
      row.cells = static_cast<uint32_t>(to - columns.cells.data());
      const std::vector<int32_t>& of_shape = chosen.of_shapes[row.shape];
      if (!has_rest) {
        for (int32_t column : of_shape) {
          const int64_t*& from = next[static_cast<size_t>(column)];
          *to++ = from == nullptr ? 0 : *from++;
        }
        continue;
      }
      for (size_t i = 0; i < of_shape.size(); ++i, ++to) {
        const CellType type = columns.shapes[row.shape].keys[i].type;
        if (of_shape[i] >= 0) {
          const int64_t*& from = next[static_cast<size_t>(of_shape[i])];
          *to = from == nullptr ? 0 : *from++;
        } else if (type != CellType::kNone) {
          *to = rest[next_rest++];
          const bool is_text = type == CellType::kText || type == CellType::kOther;
          if (is_text && (*to < 0 || *to > last_text)) sections.fail(Section::kRestCells);
        }
      }
    }
  }

  if (wanted.ids) {
    const std::vector<int64_t> places = sections.ints(Section::kSpanIdPlace, rows, kNoPlace, kMost32);
    const std::vector<int64_t> parents = sections.ints(Section::kParentKind, rows, kNoParent, kOtherParent);
    const std::string span_id_bytes = sections.unpacked(Section::kSpanId);
    const std::string parent_id_bytes = sections.unpacked(Section::kParentId);
    if (!sections.ok()) return Error{sections.error()};
    const Kinds kinds(columns);
    ByteReader span_ids(span_id_bytes);
    ByteReader parent_ids(parent_id_bytes);
    each_group(columns.rows, [&](const Group& group) {
      const SpanSource& source = *columns.sources[columns.rows[group.begin].source];
      const StepSpanIds ids(columns.traces[columns.rows[group.begin].trace],
                            source.identity ? source.identity->rank : 0);
      const SpanId step_id = ids.step();
      for (size_t i = group.begin; i < group.end; ++i) {
        SpanRow& row = columns.rows[i];
        row.span_id = places[i] == kNoPlace ? span_ids.fixed<SpanId>()
                                            : id_at(ids, kinds.of(row), static_cast<size_t>(places[i]));
        row.parent_span_id = parents[i] == kNoParent       ? SpanId{}
                             : parents[i] == kStepIsParent ? step_id
                                                           : parent_ids.fixed<SpanId>();
      }
    });
    if (!span_ids.ok() || !span_ids.at_end()) sections.fail(Section::kSpanId);
    if (!parent_ids.ok() || !parent_ids.at_end()) sections.fail(Section::kParentId);
  }
  if (!sections.ok()) return Error{sections.error()};
  return columns;
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
    step.step = in.signed_varint();
    step.start_unix_ns = in.signed_varint();
    step.ranks = static_cast<uint32_t>(in.varint());
    step.spans = static_cast<uint32_t>(in.varint());
  }
  if (!in.ok() || !in.at_end()) sections.fail(Section::kSteps);
  if (!sections.ok()) return Error{sections.error()};
  return steps;
}

}  // namespace lockstep::spans
