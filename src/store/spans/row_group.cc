#include "store/spans/row_group.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "store/columns/byte_codec.h"
#include "store/spans/row_group_layout.h"

namespace lockstep::spans {

using namespace columns;
using namespace layout;

namespace {

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
    if (last == nullptr || last_source != &source || last->step != StepNumber{*step}) {
      last = &steps[{source.job_id, source.attempt, *step}];
      last_source = &source;
      last->job_id = source.job_id;
      last->attempt = source.attempt;
      last->step = StepNumber{*step};
    }
    if (last->spans++ == 0 || row.start_unix_ns < last->start_unix_ns) last->start_unix_ns = row.start_unix_ns;
    last->ranks += kinds.of(row) == Place::kStep;
  }
  std::vector<StepInGroup> answer;
  for (auto& [key, step] : steps) answer.push_back(std::move(step));
  return answer;
}

namespace {

using JobKey = std::pair<std::string_view, int64_t>;  // and attempt

constexpr uint32_t kNoJob = ~uint32_t{0};  // what belongs to no step comes last

// Rows that came one behind the other and are of one rank's step.
struct Run {
  uint32_t job;
  StepNumber step;
  Rank rank;
  size_t begin;
  size_t end;

  auto key() const { return std::tuple(job, step, rank); }
};

// Numbered in order of their names.
std::map<JobKey, uint32_t> numbered_jobs(std::span<const SpanColumns* const> parts) {
  std::map<JobKey, uint32_t> jobs;
  for (const SpanColumns* part : parts) {
    for (const auto& source : part->sources) {
      if (source->identity) jobs[{source->job_id, source->attempt}] = 0;
    }
  }
  uint32_t count = 0;
  for (auto& [job, number] : jobs) number = count++;
  return jobs;
}

void add_runs(const SpanColumns& part, uint32_t part_number, const std::map<JobKey, uint32_t>& jobs,
              std::vector<RowRef>& arrived, std::vector<Run>& runs) {
  std::vector<std::pair<uint32_t, Rank>> job_and_rank;
  for (const auto& source : part.sources) {
    if (source->identity) {
      job_and_rank.emplace_back(jobs.at({source->job_id, source->attempt}), source->identity->rank);
    } else {
      job_and_rank.emplace_back(kNoJob, 0_rank);
    }
  }
  for (uint32_t i = 0; i < part.rows.size(); ++i) {
    const SpanRow& row = part.rows[i];
    Run run{kNoJob, 0_step, 0_rank, arrived.size(), arrived.size() + 1};
    if (is_step_span(part, row)) {
      run.job = job_and_rank[row.source].first;
      run.rank = job_and_rank[row.source].second;
      run.step = StepNumber{*part.own(row, OwnKey::kStep)};
    }
    arrived.push_back({part_number, i});
    if (!runs.empty() && runs.back().key() == run.key()) {
      runs.back().end = run.end;
    } else {
      runs.push_back(run);
    }
  }
}

}  // namespace

std::vector<RowRef> disk_order(std::span<const SpanColumns* const> parts) {
  const std::map<JobKey, uint32_t> jobs = numbered_jobs(parts);
  std::vector<RowRef> arrived;
  std::vector<Run> runs;
  for (uint32_t at = 0; at < parts.size(); ++at) add_runs(*parts[at], at, jobs, arrived, runs);
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.key() < b.key(); });

  std::vector<RowRef> order;
  order.reserve(arrived.size());
  std::vector<std::pair<int64_t, RowRef>> group;
  for (size_t i = 0; i < runs.size();) {
    group.clear();
    size_t end = i;
    for (; end < runs.size() && runs[end].key() == runs[i].key(); ++end) {
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

namespace {

// Names are counted by service, not by source: 4,096 ranks are one service.
struct ServiceNames {
  std::map<std::string_view, uint32_t> services;
  std::vector<uint32_t> rows_of_source;
  std::unordered_set<uint64_t> names;  // service and name
};

// What a group can be searched by, where that is not too much to be listed.
void list_names(const SpanColumns& columns, const ServiceNames& found, RowGroupMeta& meta) {
  std::set<std::string> resource_keys;
  std::set<std::string> span_keys;
  for (const auto& source : columns.sources) {
    for (const Attribute& attribute : *source->resource) resource_keys.insert(attribute.key);
  }
  for (const SpanShape& shape : columns.shapes) {
    for (const SpanShape::Key& key : shape.keys) span_keys.emplace(columns.texts[key.key]);
  }
  meta.is_listed = found.names.size() <= kCatalogueMax && found.services.size() <= kCatalogueMax &&
                   resource_keys.size() + span_keys.size() <= kCatalogueMax;
  if (!meta.is_listed) return;
  std::vector<std::string_view> service_names(found.services.size());
  for (const auto& [name, number] : found.services) service_names[number] = name;
  for (size_t i = 0; i < columns.sources.size(); ++i)
    meta.services[columns.sources[i]->service] += found.rows_of_source[i];
  for (uint64_t pair : found.names) {
    meta.names.emplace_back(service_names[pair >> 32], columns.texts[static_cast<uint32_t>(pair)]);
  }
  std::sort(meta.names.begin(), meta.names.end());
  meta.resource_keys.assign(resource_keys.begin(), resource_keys.end());
  meta.span_keys.assign(span_keys.begin(), span_keys.end());
}

}  // namespace

RowGroupMeta describe(const SpanColumns& columns) {
  RowGroupMeta meta;
  meta.rows = static_cast<uint32_t>(columns.rows.size());
  ServiceNames found;
  found.rows_of_source.resize(columns.sources.size());
  std::vector<int64_t> last_service_of_name(columns.texts.size(), -1);
  std::map<JobKey, JobSteps> jobs;
  JobSteps* last_job = nullptr;
  uint32_t last_job_source = ~uint32_t{0};
  std::vector<uint32_t> service_of_source;
  for (const auto& source : columns.sources)
    service_of_source.push_back(
        found.services.emplace(source->service, static_cast<uint32_t>(found.services.size())).first->second);
  for (const SpanRow& row : columns.rows) {
    meta.starts.add(row.start_unix_ns);
    meta.durations.add(row.duration_ns);
    meta.has_errors |= row.status_code == 2;
    ++found.rows_of_source[row.source];
    const uint32_t service = service_of_source[row.source];
    if (last_service_of_name[row.name] != service) {
      last_service_of_name[row.name] = service;
      found.names.insert(uint64_t{service} << 32 | row.name);
    }
    if (!is_step_span(columns, row)) continue;
    const SpanSource& source = *columns.sources[row.source];
    if (last_job == nullptr || last_job_source != row.source) {
      last_job = &jobs[{source.job_id, source.attempt}];
      last_job_source = row.source;
      last_job->job_id = source.job_id;
      last_job->attempt = source.attempt;
      last_job->ranks.add(source.identity->rank.value());
    }
    last_job->steps.add(*columns.own(row, OwnKey::kStep));
  }
  meta.traces = TraceBloom(columns.traces);
  for (auto& [job, steps] : jobs) meta.jobs.push_back(std::move(steps));
  list_names(columns, found, meta);
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

}  // namespace lockstep::spans
