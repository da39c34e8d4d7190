// The queries of ColumnarSpanStore. All run on units: the parts of the head and the row groups of the files, oldest
// first. A row group is read only where its metadata (times, durations, steps, ranks, names, keys, bloom filter of
// trace ids) leaves a chance.
//
// The head holds no span twice, nor does a file; between them one may be twice. So wherever a trace or step comes from
// more than one of them, keys are compared.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "store/spans/columnar_span_store.h"

namespace lockstep {

using spans::KeySet;
using spans::RowGroupMeta;
using spans::SpanColumns;
using spans::SpanFile;
using spans::SpanKey;
using spans::SpanRow;
using spans::SpanShape;
using spans::StepInGroup;
using spans::TraceInGroup;
using spans::Wanted;

namespace {

struct TraceIdHash {
  size_t operator()(const TraceId& id) const {
    uint64_t words[2];
    std::memcpy(words, id.data(), sizeof words);
    return (words[0] ^ words[1] * 0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93;
  }
};

SpanKey key_of(const SpanColumns& columns, const SpanRow& row) {
  return {columns.traces[row.trace], row.span_id, std::max(row.start_unix_ns, INT64_MIN + 2)};
}

StoredSpan stored(const SpanColumns& columns, const SpanRow& row) {
  return {columns.sources[row.source]->resource, columns.to_span(row)};
}

std::vector<std::string> listed(const std::set<std::string, std::less<>>& names) {
  return {names.begin(), names.end()};
}

// Spans of this step that are not among `keys` yet.
void count_new_spans(const SpanColumns& columns, std::string_view job_id, int64_t attempt, TracedStep& step,
                     KeySet& keys) {
  for (const SpanRow& row : columns.rows) {
    const spans::SpanSource& source = *columns.sources[row.source];
    if (StepNumber{columns.own_int(row, spans::OwnKey::kStep, -1)} != step.step || source.job_id != job_id ||
        source.attempt != attempt)
      continue;
    std::optional<StepSpanPart> part = columns.part_of(row);
    if (!part || !keys.insert(key_of(columns, row))) continue;
    ++step.spans;
    step.ranks += part->whole.has_value();
  }
}

// Which cell has the first attribute of this key; -1: none.
int32_t cell_of(const SpanShape& shape, const spans::TextTable& texts, std::string_view key) {
  for (size_t i = 0; i < shape.keys.size(); ++i) {
    if (texts[shape.keys[i].key] == key) return static_cast<int32_t>(i);
  }
  return -1;
}

}  // namespace

struct ColumnarSpanStore::Unit {
  Columns columns;  // of the head; else:
  File file;
  size_t group = 0;
  size_t home = 0;  // units of one home have no span twice among them

  const RowGroupMeta* meta() const { return file ? &file->group(group) : nullptr; }
};

struct ColumnarSpanStore::Snapshot {
  std::vector<Unit> units;
};

ColumnarSpanStore::Snapshot ColumnarSpanStore::snapshot() const {
  Snapshot all;
  SharedLock lock(mutex_);
  for (size_t i = 0; i < files_->size(); ++i) {
    const auto file = std::static_pointer_cast<const SpanFile>((*files_)[i]);
    for (size_t group = 0; group < file->groups(); ++group) {
      if (!file->is_corrupt(group)) all.units.push_back({nullptr, file, group, i + 1});
    }
  }
  for (const Part& part : head_)
    all.units.push_back({std::static_pointer_cast<const SpanColumns>(part.columns), nullptr, 0, 0});
  return all;
}

// nullptr: it cannot be read, which has been told.
ColumnarSpanStore::Columns ColumnarSpanStore::load(const Unit& unit, Wanted wanted) const {
  if (unit.columns) return unit.columns;
  Result<SpanColumns> columns = spans::read_row_group(*unit.file->source(), *unit.meta(), wanted);
  if (columns.ok()) return std::make_shared<const SpanColumns>(std::move(*columns));
  spoil(*unit.file, unit.group, columns.error());
  return nullptr;
}

// A query against the rows of one unit: texts are compared once, not for every row.
struct ColumnarSpanStore::Matcher {
  Matcher(const SpanColumns& of, const TraceQuery& asked) : columns(of), query(asked) {
    for (const auto& source : columns.sources)
      source_ok.push_back(query.service.empty() || source->service == query.service);
    if (!query.name.empty()) {
      std::optional<uint32_t> found = columns.texts.find(query.name);
      possible = found.has_value();
      name = found.value_or(0);
    }
    for (const AttributeMatch& match : query.attributes) {
      Attribute_& attribute = attributes.emplace_back();
      attribute.value = match.value;
      attribute.text = columns.texts.find(match.value);
      attribute.number = parse_int(match.value);
      if (attribute.number && std::to_string(*attribute.number) != match.value) attribute.number.reset();
      for (const auto& source : columns.sources) {
        const Value* value = find(*source->resource, match.key);
        attribute.of_source.push_back(value != nullptr && plain_text(*value) == match.value);
      }
      for (const SpanShape& shape : columns.shapes) attribute.cell.push_back(cell_of(shape, columns.texts, match.key));
    }
  }

  bool matches(const SpanRow& row) const {
    if (!possible || !source_ok[row.source] || (!query.name.empty() && row.name != name)) return false;
    if ((query.start_from_unix_ns != 0 && row.start_unix_ns < query.start_from_unix_ns) ||
        (query.start_to_unix_ns != 0 && row.start_unix_ns > query.start_to_unix_ns))
      return false;
    if (row.duration_ns < query.duration_least_ns ||
        (query.duration_most_ns != 0 && row.duration_ns > query.duration_most_ns))
      return false;
    if (query.errors_only && row.status_code != 2) return false;
    return std::all_of(attributes.begin(), attributes.end(),
                       [&](const Attribute_& attribute) { return has(attribute, row); });
  }

  struct Attribute_ {
    std::string value;
    std::optional<uint32_t> text;
    std::optional<int64_t> number;
    std::vector<bool> of_source;
    std::vector<int32_t> cell;  // by shape
  };
  bool has(const Attribute_& attribute, const SpanRow& row) const {
    if (attribute.of_source[row.source]) return true;
    const int32_t at = attribute.cell[row.shape];
    if (at < 0) return false;
    const CellType type = columns.shapes[row.shape].keys[static_cast<size_t>(at)].type;
    const int64_t cell = columns.cells[row.cells + static_cast<uint32_t>(at)];
    if (type == CellType::kText) return attribute.text && cell == *attribute.text;
    if (type == CellType::kInt) return attribute.number && cell == *attribute.number;
    return plain_text(columns.value_of(type, cell)) == attribute.value;
  }

  // Whether every row of a row group matches, so that none need be looked at.
  static bool all_match(const RowGroupMeta& meta, const TraceQuery& query) {
    return query.service.empty() && query.name.empty() && query.attributes.empty() && !query.errors_only &&
           meta.durations.least >= query.duration_least_ns &&
           (query.duration_most_ns == 0 || meta.durations.most <= query.duration_most_ns) &&
           (query.start_from_unix_ns == 0 || meta.starts.least >= query.start_from_unix_ns) &&
           (query.start_to_unix_ns == 0 || meta.starts.most <= query.start_to_unix_ns);
  }
  // Whether any row of a row group may match, from what is known of it.
  static bool may_match(const RowGroupMeta& meta, const TraceQuery& query) {
    if (!meta.starts.overlaps(query.start_from_unix_ns == 0 ? INT64_MIN : query.start_from_unix_ns,
                              query.start_to_unix_ns == 0 ? INT64_MAX : query.start_to_unix_ns))
      return false;
    if (!meta.durations.overlaps(query.duration_least_ns,
                                 query.duration_most_ns == 0 ? INT64_MAX : query.duration_most_ns))
      return false;
    if (query.errors_only && !meta.has_errors) return false;
    if (!meta.is_listed) return true;
    if (!query.service.empty() && !meta.services.contains(query.service)) return false;
    if (!query.name.empty()) {
      const bool has_name = std::any_of(meta.names.begin(), meta.names.end(), [&](const auto& pair) {
        return pair.second == query.name && (query.service.empty() || pair.first == query.service);
      });
      if (!has_name) return false;
    }
    return std::all_of(query.attributes.begin(), query.attributes.end(), [&](const AttributeMatch& match) {
      if (match.key == "lockstep.step") {
        // Steps of ours are in a known range; others that use the word are listed without one.
        std::optional<int64_t> step = parse_int(match.value);
        const bool only_ours = !meta.jobs.empty() && meta.services.size() == 1;
        if (step && only_ours && std::none_of(meta.jobs.begin(), meta.jobs.end(), [&](const spans::JobSteps& job) {
              return job.steps.has(*step);
            }))
          return std::binary_search(meta.resource_keys.begin(), meta.resource_keys.end(), match.key);
      }
      return std::binary_search(meta.span_keys.begin(), meta.span_keys.end(), match.key) ||
             std::binary_search(meta.resource_keys.begin(), meta.resource_keys.end(), match.key);
    });
  }

  const SpanColumns& columns;
  const TraceQuery& query;
  bool possible = true;
  uint32_t name = 0;
  std::vector<bool> source_ok;
  std::vector<Attribute_> attributes;
};

Page<StoredSpan> ColumnarSpanStore::trace(const TraceId& trace_id, size_t limit) const {
  struct Found {
    int64_t start_unix_ns;
    size_t home;
    uint32_t part;  // of the head; row groups of a file share their arrivals
    uint32_t arrival;
    size_t columns;
    uint32_t row;
  };
  std::vector<Columns> loaded;
  std::vector<Found> found;
  uint32_t part = 0;
  for (const Unit& unit : snapshot().units) {
    if (unit.meta() != nullptr) {
      if (!unit.meta()->traces.may_have(trace_id)) continue;
      Result<std::vector<TraceId>> traces = spans::read_traces(*unit.file->source(), *unit.meta());
      if (traces.ok() && std::find(traces->begin(), traces->end(), trace_id) == traces->end()) continue;
    } else {
      ++part;
    }
    Columns columns = load(unit, {});
    if (!columns) continue;
    const auto at = std::find(columns->traces.begin(), columns->traces.end(), trace_id);
    if (at == columns->traces.end()) continue;
    const uint32_t trace = static_cast<uint32_t>(at - columns->traces.begin());
    const size_t home = unit.meta() != nullptr ? unit.home : SIZE_MAX;  // the head came last
    for (uint32_t row = 0; row < columns->size(); ++row) {
      const SpanRow& candidate = columns->rows[row];
      if (candidate.trace == trace)
        found.push_back({candidate.start_unix_ns, home, part, candidate.arrival, loaded.size(), row});
    }
    loaded.push_back(std::move(columns));
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.start_unix_ns, a.home, a.part, a.arrival) < std::tie(b.start_unix_ns, b.home, b.part, b.arrival);
  });
  if (loaded.size() > 1) {
    KeySet seen;
    std::erase_if(found, [&](const Found& item) {
      return !seen.insert(key_of(*loaded[item.columns], loaded[item.columns]->rows[item.row]));
    });
  }
  Page<StoredSpan> page;
  page.total = found.size();
  for (size_t i = 0; i < std::min(limit, found.size()); ++i)
    page.items.push_back(stored(*loaded[found[i].columns], loaded[found[i].columns]->rows[found[i].row]));
  return page;
}

// A search in three passes: which traces match, what those are as a whole, and of those on the page the spans. Every
// pass goes through the units in their order.
class ColumnarSpanStore::Search {
 public:
  Search(const ColumnarSpanStore& store, const TraceQuery& query)
      : store_(store), query_(query), all_(store.snapshot()) {}

  Page<TraceSummary> run() {
    find_matching();
    summarise();
    choose_shown();
    start_page();
    for (const auto& [at, places] : shown_in_) read_shown(at, places);
    return std::move(page_);
  }

 private:
  struct Candidate {
    TraceId id;
    uint32_t matched = 0;
    uint32_t spans = 0;
    int64_t start_unix_ns = 0;
    int64_t end_unix_ns = 0;
    bool root_has_parent = false;
    bool has_two_homes = false;
    int64_t root_start_unix_ns = 0;
    uint32_t root_unit = 0;
    uint32_t root_row = 0;
    uint32_t first_unit = 0;  // of those that have some of it
    uint32_t last_unit = 0;
    uint32_t matching_units = 0;
    uint32_t first_matching[kMatchingShownMax] = {};  // units
  };

  // Of a unit, into traces_ and summaries_. False: it cannot be read, which has been told.
  bool read_summaries(const Unit& unit) {
    if (unit.meta() == nullptr) {
      traces_ = unit.columns->traces;
      summaries_ = spans::summarise_traces(*unit.columns);
      return true;
    }
    std::unique_ptr<spans::SectionSource> source = unit.file->source();
    Result<std::vector<TraceId>> ids = spans::read_traces(*source, *unit.meta());
    Result<std::vector<TraceInGroup>> read =
        ids.ok() ? spans::read_trace_summaries(*source, *unit.meta(), ids->size()) : ids.failure();
    if (!read.ok()) {
      store_.spoil(*unit.file, unit.group, read.error());
      return false;
    }
    traces_ = std::move(*ids);
    summaries_ = std::move(*read);
    return true;
  }

  void find_matching() {
    std::vector<std::string_view> keys;
    for (const AttributeMatch& match : query_.attributes) keys.push_back(match.key);
    for (uint32_t at = 0; at < all_.units.size(); ++at) {
      const Unit& unit = all_.units[at];
      if (unit.meta() != nullptr && !Matcher::may_match(*unit.meta(), query_)) continue;
      std::vector<uint32_t> matched;  // spans, by trace of the unit
      if (unit.meta() != nullptr && Matcher::all_match(*unit.meta(), query_)) {
        if (!read_summaries(unit)) continue;
        for (const TraceInGroup& summary : summaries_) matched.push_back(summary.spans);
      } else {
        Columns columns = store_.load(
            unit, {.ids = false, .attributes = !query_.attributes.empty(), .all_fields = false, .keys = keys});
        if (!columns) continue;
        const Matcher matcher(*columns, query_);
        matched.resize(columns->traces.size());
        for (const SpanRow& row : columns->rows) matched[row.trace] += matcher.matches(row);
        traces_ = columns->traces;
      }
      for (size_t trace = 0; trace < matched.size(); ++trace) {
        if (matched[trace] > 0) add_candidate(traces_[trace], matched[trace], at);
      }
    }
  }

  void add_candidate(const TraceId& trace, uint32_t matched, uint32_t unit) {
    auto [found, is_new] = index_.emplace(trace, static_cast<uint32_t>(candidates_.size()));
    if (is_new) candidates_.push_back({.id = trace});
    Candidate& candidate = candidates_[found->second];
    candidate.matched += matched;
    if (candidate.matching_units < kMatchingShownMax) candidate.first_matching[candidate.matching_units++] = unit;
  }

  // From the row groups' own summaries.
  void summarise() {
    constexpr size_t kAskFiltersMax = 256;
    for (uint32_t at = 0; at < all_.units.size() && !candidates_.empty(); ++at) {
      const Unit& unit = all_.units[at];
      if (unit.meta() != nullptr && candidates_.size() <= kAskFiltersMax &&
          std::none_of(candidates_.begin(), candidates_.end(),
                       [&](const Candidate& candidate) { return unit.meta()->traces.may_have(candidate.id); }))
        continue;
      if (!read_summaries(unit)) continue;
      for (size_t i = 0; i < traces_.size(); ++i) {
        const auto found = index_.find(traces_[i]);
        if (found == index_.end() || summaries_[i].spans == 0) continue;
        add_summary(candidates_[found->second], summaries_[i], at);
      }
    }
  }

  void add_summary(Candidate& candidate, const TraceInGroup& summary, uint32_t unit) const {
    const bool is_first = candidate.spans == 0;
    if (is_first) candidate.first_unit = unit;
    candidate.last_unit = unit;
    candidate.has_two_homes |= all_.units[candidate.first_unit].home != all_.units[unit].home;
    candidate.spans += summary.spans;
    if (is_first || summary.start_unix_ns < candidate.start_unix_ns) candidate.start_unix_ns = summary.start_unix_ns;
    if (is_first || summary.end_unix_ns > candidate.end_unix_ns) candidate.end_unix_ns = summary.end_unix_ns;
    if (is_first || std::pair(summary.root_has_parent, summary.root_start_unix_ns) <
                        std::pair(candidate.root_has_parent, candidate.root_start_unix_ns)) {
      candidate.root_has_parent = summary.root_has_parent;
      candidate.root_start_unix_ns = summary.root_start_unix_ns;
      candidate.root_unit = unit;
      candidate.root_row = summary.root_row;
    }
  }

  // The newest; candidates_ are those from here on, and index_ counts for nothing.
  void choose_shown() {
    page_.total = candidates_.size();
    const size_t shown = std::min(query_.limit, candidates_.size());
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(shown), candidates_.end(),
                      [](const Candidate& a, const Candidate& b) {
                        return std::tie(b.start_unix_ns, a.id) < std::tie(a.start_unix_ns, b.id);
                      });
    candidates_.resize(shown);
  }

  // What is known of the traces on the page, and in which units their spans are.
  void start_page() {
    const size_t shown = candidates_.size();
    seen_.resize(shown);
    recount_.resize(shown);
    page_.items.resize(shown);
    for (size_t i = 0; i < shown; ++i) {
      const Candidate& candidate = candidates_[i];
      TraceSummary& trace = page_.items[i];
      trace.trace_id = candidate.id;
      trace.start_unix_ns = candidate.start_unix_ns;
      trace.end_unix_ns = candidate.end_unix_ns;
      recount_[i] = candidate.has_two_homes;
      trace.spans = recount_[i] ? 0 : candidate.spans;
      trace.matched = recount_[i] ? 0 : candidate.matched;
      // Matching spans come from the first units that have some; a recount needs all that have any.
      std::set<uint32_t> needed{candidate.root_unit};
      needed.insert(candidate.first_matching, candidate.first_matching + candidate.matching_units);
      for (uint32_t at = candidate.first_unit; recount_[i] && at <= candidate.last_unit; ++at) {
        const RowGroupMeta* meta = all_.units[at].meta();
        if (meta == nullptr || meta->traces.may_have(candidate.id)) needed.insert(at);
      }
      for (uint32_t unit : needed) shown_in_[unit].push_back(i);
    }
  }

  // The spans of a unit that belong to these places on the page.
  void read_shown(uint32_t at, const std::vector<size_t>& places) {
    Columns columns = store_.load(all_.units[at], {});
    if (!columns) return;
    const Matcher matcher(*columns, query_);
    std::unordered_map<uint32_t, size_t> wanted;  // trace here to place on the page
    for (uint32_t trace = 0; trace < columns->traces.size(); ++trace) {
      for (size_t i : places) {
        if (columns->traces[trace] == page_.items[i].trace_id) wanted[trace] = i;
      }
    }
    for (size_t i : places) {
      if (candidates_[i].root_unit != at || candidates_[i].root_row >= columns->size()) continue;
      const SpanRow& root = columns->rows[candidates_[i].root_row];
      page_.items[i].root_name = columns->texts[root.name];
      page_.items[i].root_service = columns->sources[root.source]->service;
    }
    std::map<size_t, std::vector<std::pair<uint32_t, uint32_t>>> matching;  // by arrival
    for (uint32_t row = 0; row < columns->size(); ++row) {
      const SpanRow& candidate = columns->rows[row];
      const auto found = wanted.find(candidate.trace);
      if (found == wanted.end()) continue;
      const size_t i = found->second;
      const bool is_new = !recount_[i] || seen_[i].insert(key_of(*columns, candidate));
      const bool is_match = is_new && matcher.matches(candidate);
      if (recount_[i]) {
        page_.items[i].spans += is_new;
        page_.items[i].matched += is_match;
      }
      if (is_match) matching[i].emplace_back(candidate.arrival, row);
    }
    for (auto& [i, rows] : matching) {
      std::sort(rows.begin(), rows.end());
      for (const auto& [arrival, row] : rows) {
        if (page_.items[i].matching.size() == kMatchingShownMax) break;
        page_.items[i].matching.push_back(stored(*columns, columns->rows[row]));
      }
    }
  }

  const ColumnarSpanStore& store_;
  const TraceQuery& query_;
  const Snapshot all_;
  std::vector<Candidate> candidates_;
  std::unordered_map<TraceId, uint32_t, TraceIdHash> index_;  // of candidates_
  std::vector<TraceId> traces_;                               // of the unit that was read last
  std::vector<TraceInGroup> summaries_;
  Page<TraceSummary> page_;
  std::map<uint32_t, std::vector<size_t>> shown_in_;  // by unit: places on the page
  std::vector<KeySet> seen_;                          // by place, of those whose spans are counted again
  std::vector<bool> recount_;
};

Page<TraceSummary> ColumnarSpanStore::search(const TraceQuery& query) const {
  return Search(*this, query).run();
}

Page<StoredSpan> ColumnarSpanStore::newest(std::string_view service, size_t limit) const {
  const Snapshot all = snapshot();
  Page<StoredSpan> page;
  KeySet seen;
  auto of_service = [&](const SpanColumns& columns, const SpanRow& row) {
    return service.empty() || columns.sources[row.source]->service == service;
  };
  for (size_t end = all.units.size(); end > 0;) {
    // Row groups of a file together, parts of the head one by one.
    size_t begin = end - 1;
    while (all.units[begin].file && begin > 0 && all.units[begin - 1].file == all.units[begin].file) --begin;
    std::vector<std::tuple<uint32_t, size_t, uint32_t>> rows;  // arrival, unit, row
    std::vector<Columns> loaded;
    for (size_t at = begin; at < end; ++at) {
      const Unit& unit = all.units[at];
      const RowGroupMeta* meta = unit.meta();
      if (meta != nullptr && meta->is_listed) {
        const auto found = meta->services.find(service);
        const size_t rows_of = service.empty() ? meta->rows : found == meta->services.end() ? 0 : found->second;
        page.total += rows_of;
        if (rows_of == 0 || page.items.size() >= limit) continue;
      }
      Columns columns = load(unit, {});
      if (!columns) continue;
      for (uint32_t row = 0; row < columns->size(); ++row) {
        if (!of_service(*columns, columns->rows[row])) continue;
        if (meta == nullptr || !meta->is_listed) ++page.total;
        rows.emplace_back(columns->rows[row].arrival, loaded.size(), row);
      }
      loaded.push_back(std::move(columns));
    }
    std::sort(rows.rbegin(), rows.rend());
    for (const auto& [arrival, at, row] : rows) {
      if (page.items.size() >= limit) break;
      const SpanRow& newest_row = loaded[at]->rows[row];
      if (seen.insert(key_of(*loaded[at], newest_row))) {
        page.items.push_back(stored(*loaded[at], newest_row));
      } else {
        --page.total;
      }
    }
    end = begin;
  }
  return page;
}

std::vector<std::string> ColumnarSpanStore::services() const {
  std::set<std::string, std::less<>> names;
  for (const Unit& unit : snapshot().units) {
    if (unit.meta() != nullptr && unit.meta()->is_listed) {
      for (const auto& [service, rows] : unit.meta()->services) names.insert(service);
    } else if (Columns columns = load(unit, {.ids = false, .attributes = false, .all_fields = false})) {
      for (const SpanRow& row : columns->rows) names.insert(columns->sources[row.source]->service);
    }
  }
  return listed(names);
}

std::vector<std::string> ColumnarSpanStore::span_names(std::string_view service) const {
  std::set<std::string, std::less<>> names;
  for (const Unit& unit : snapshot().units) {
    if (unit.meta() != nullptr && unit.meta()->is_listed) {
      for (const auto& [of, name] : unit.meta()->names) {
        if (service.empty() || of == service) names.insert(name);
      }
    } else if (Columns columns = load(unit, {.ids = false, .attributes = false, .all_fields = false})) {
      std::vector<bool> had(columns->texts.size());
      for (const SpanRow& row : columns->rows) {
        if (had[row.name] || (!service.empty() && columns->sources[row.source]->service != service)) continue;
        had[row.name] = true;
        names.emplace(columns->texts[row.name]);
      }
    }
  }
  return listed(names);
}

SpanStore::AttributeNames ColumnarSpanStore::attribute_names() const {
  std::set<std::string, std::less<>> resource;
  std::set<std::string, std::less<>> span;
  for (const Unit& unit : snapshot().units) {
    if (unit.meta() != nullptr && unit.meta()->is_listed) {
      resource.insert(unit.meta()->resource_keys.begin(), unit.meta()->resource_keys.end());
      span.insert(unit.meta()->span_keys.begin(), unit.meta()->span_keys.end());
    } else if (Columns columns = load(unit, {.ids = false, .attributes = true, .all_fields = false})) {
      std::vector<bool> had_source(columns->sources.size());
      std::vector<bool> had_shape(columns->shapes.size());
      for (const SpanRow& row : columns->rows) {
        if (!had_source[row.source]) {
          for (const Attribute& attribute : *columns->sources[row.source]->resource) resource.insert(attribute.key);
        }
        if (!had_shape[row.shape]) {
          for (const SpanShape::Key& key : columns->shapes[row.shape].keys) span.emplace(columns->texts[key.key]);
        }
        had_source[row.source] = had_shape[row.shape] = true;
      }
    }
  }
  return {listed(resource), listed(span)};
}

std::vector<std::string> ColumnarSpanStore::attribute_values(std::string_view key, size_t limit) const {
  std::set<std::string, std::less<>> values;
  auto add = [&](std::string value) {
    if (values.size() < limit) values.insert(std::move(value));
  };
  const Snapshot all = snapshot();
  for (size_t at = all.units.size(); at-- > 0 && values.size() < limit;) {
    const Unit& unit = all.units[at];
    const RowGroupMeta* meta = unit.meta();
    const bool of_spans =
        meta == nullptr || !meta->is_listed || std::binary_search(meta->span_keys.begin(), meta->span_keys.end(), key);
    const bool of_resources = meta == nullptr || !meta->is_listed ||
                              std::binary_search(meta->resource_keys.begin(), meta->resource_keys.end(), key);
    if (!of_spans && !of_resources) continue;
    Columns columns = load(unit, {.ids = false, .attributes = of_spans, .all_fields = false, .keys = {key}});
    if (!columns) continue;
    std::vector<int32_t> cell;
    for (const SpanShape& shape : columns->shapes) cell.push_back(cell_of(shape, columns->texts, key));
    std::vector<bool> had_source(columns->sources.size());
    std::set<std::pair<CellType, int64_t>> had;
    for (const SpanRow& row : columns->rows) {
      if (!had_source[row.source]) {
        had_source[row.source] = true;
        const Value* value = find(*columns->sources[row.source]->resource, key);
        if (value != nullptr) add(plain_text(*value));
      }
      if (!of_spans || cell[row.shape] < 0) continue;
      const size_t place = static_cast<size_t>(cell[row.shape]);
      const CellType type = columns->shapes[row.shape].keys[place].type;
      const int64_t number = columns->cells[row.cells + place];
      if (had.size() < limit * 2 && had.emplace(type, number).second) add(plain_text(columns->value_of(type, number)));
    }
  }
  return listed(values);
}

std::vector<RankDetail> ColumnarSpanStore::step(std::string_view job_id, int64_t attempt, StepNumber step,
                                                const std::vector<Rank>& ranks) const {
  const TraceId trace_id = step_trace_id(job_id, attempt, step);
  std::vector<Unit> units;
  std::set<size_t> homes;
  for (const Unit& unit : snapshot().units) {
    if (const RowGroupMeta* meta = unit.meta()) {
      if (!meta->traces.may_have(trace_id)) continue;
      const bool may_have = std::any_of(meta->jobs.begin(), meta->jobs.end(), [&](const spans::JobSteps& job) {
        return job.job_id == job_id && job.attempt == attempt && job.steps.has(step.value()) &&
               (ranks.empty() ||
                std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) { return job.ranks.has(rank.value()); }));
      });
      if (!may_have) continue;
    } else if (std::find(unit.columns->traces.begin(), unit.columns->traces.end(), trace_id) ==
               unit.columns->traces.end()) {
      continue;
    }
    units.push_back(unit);
    homes.insert(unit.home);
  }
  const bool compare_keys = homes.size() > 1;
  KeySet seen;
  std::map<Rank, RankDetail> details;
  for (const Unit& unit : units) {
    Columns columns = load(unit, {.ids = compare_keys, .attributes = true});
    if (!columns) continue;
    const auto at = std::find(columns->traces.begin(), columns->traces.end(), trace_id);
    if (at == columns->traces.end()) continue;
    const uint32_t trace = static_cast<uint32_t>(at - columns->traces.begin());
    std::vector<RankDetail*> detail_of(columns->sources.size(), nullptr);  // found when first needed
    std::vector<bool> is_wanted(columns->sources.size());
    for (size_t i = 0; i < columns->sources.size(); ++i) {
      const spans::SpanSource& source = *columns->sources[i];
      is_wanted[i] = source.identity && source.job_id == job_id && source.attempt == attempt &&
                     (ranks.empty() || std::find(ranks.begin(), ranks.end(), source.identity->rank) != ranks.end());
    }
    for (const SpanRow& row : columns->rows) {
      if (row.trace != trace || !is_wanted[row.source]) continue;
      std::optional<StepSpanPart> part = columns->part_of(row);
      if (!part || part->step != step) continue;
      if (compare_keys && !seen.insert(key_of(*columns, row))) continue;
      RankDetail*& detail = detail_of[row.source];
      const Identity& identity = *columns->sources[row.source]->identity;
      if (detail == nullptr) detail = &details[identity.rank];
      detail->identity = identity;
      add_to(detail->detail, std::move(*part));
    }
  }
  std::vector<RankDetail> answer;
  answer.reserve(details.size());
  for (auto& [rank, detail] : details) {
    finish(detail.detail);
    answer.push_back(std::move(detail));
  }
  return answer;
}

struct ColumnarSpanStore::StepUnits {
  TracedStep step;  // as if no span were in two units
  std::vector<size_t> units;
};

std::map<StepNumber, ColumnarSpanStore::StepUnits, std::greater<>> ColumnarSpanStore::units_of_steps(
    const Snapshot& all, std::string_view job_id, int64_t attempt) const {
  std::map<StepNumber, StepUnits, std::greater<>> steps;
  for (size_t at = 0; at < all.units.size(); ++at) {
    const Unit& unit = all.units[at];
    std::vector<StepInGroup> in_unit;
    if (const RowGroupMeta* meta = unit.meta()) {
      Result<std::vector<StepInGroup>> read = spans::read_steps(*unit.file->source(), *meta);
      if (!read.ok()) {
        spoil(*unit.file, unit.group, read.error());
        continue;
      }
      in_unit = std::move(*read);
    } else {
      in_unit = spans::summarise_steps(*unit.columns);
    }
    for (const StepInGroup& step : in_unit) {
      if (step.job_id != job_id || step.attempt != attempt) continue;
      StepUnits& seen = steps[step.step];
      TracedStep& traced = seen.step;
      traced.start_unix_ns =
          seen.units.empty() ? step.start_unix_ns : std::min(traced.start_unix_ns, step.start_unix_ns);
      traced.step = step.step;
      traced.ranks += step.ranks;
      traced.spans += step.spans;
      seen.units.push_back(at);
    }
  }
  return steps;
}

Page<TracedStep> ColumnarSpanStore::traced_steps(std::string_view job_id, int64_t attempt, size_t limit) const {
  const Snapshot all = snapshot();
  std::map<StepNumber, StepUnits, std::greater<>> steps = units_of_steps(all, job_id, attempt);
  Page<TracedStep> page;
  page.total = steps.size();
  std::map<size_t, Columns> loaded;
  for (auto& [number, seen] : steps) {
    if (page.items.size() >= limit) break;
    const size_t home = all.units[seen.units[0]].home;
    const bool may_be_twice =
        std::any_of(seen.units.begin(), seen.units.end(), [&](size_t at) { return all.units[at].home != home; });
    if (may_be_twice) {
      seen.step.ranks = seen.step.spans = 0;
      KeySet keys;
      for (size_t at : seen.units) {
        Columns& columns = loaded[at];
        if (!columns) columns = load(all.units[at], {});
        if (columns) count_new_spans(*columns, job_id, attempt, seen.step, keys);
      }
      // Steps come newest first and units oldest first: those of an earlier step are not asked for again.
      while (loaded.size() > 4) loaded.erase(std::prev(loaded.end()));
    }
    page.items.push_back(seen.step);
  }
  return page;
}

}  // namespace lockstep
