#include "store/logs/log_columns.h"

#include <algorithm>
#include <iterator>

#include "base/crc32c.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "store/columns/int_codec.h"
#include "store/columns/text_codec.h"

namespace lockstep::logs {

using columns::ByteReader;
using columns::put_bytes;
using columns::put_signed;
using columns::put_varint;

namespace {

constexpr size_t kNamesBytesMax = 64u << 20;
constexpr size_t kLinesBytesMax = 256u << 20;
constexpr size_t kHashesMax = 512;
constexpr size_t kRanksKnownMax = 65'536;

std::string as_json(std::string_view text) {
  JsonWriter json;
  return json.string(text).take();
}

std::string body_of(const Value& body, size_t& cut) {
  const std::string* text = std::get_if<std::string>(&body.data);
  if (text == nullptr) {
    std::string json = to_text(body);
    if (json.size() <= kBodyBytesMax) return json;
    ++cut;
    return as_json(std::string(utf8_prefix(json, kBodyBytesMax)) + "...");
  }
  if (text->size() <= kBodyBytesMax) return as_json(*text);
  ++cut;
  return as_json(std::string(utf8_prefix(*text, kBodyBytesMax)) + format("... (%zu bytes)", text->size()));
}

std::string attributes_of(const Attributes& attributes, size_t& cut) {
  std::string json = to_text(Value(attributes));
  if (json.size() <= kAttributesBytesMax) return json;
  ++cut;
  return format("{\"lockstep.left_out_bytes\":%zu}", json.size());
}

// FNV-1a; the kind keeps a job apart from a host of the same name.
uint32_t hash_of(char kind, std::string_view text) {
  uint32_t hash = 2166136261u;
  auto mix = [&](char byte) { hash = (hash ^ static_cast<uint8_t>(byte)) * 16777619u; };
  mix(kind);
  for (char byte : text) mix(byte);
  return hash;
}

constexpr int64_t LogRow::*kTimes[] = {&LogRow::time_unix_ns, &LogRow::arrival_unix_ns};
constexpr int32_t LogRow::*kNumbers[] = {&LogRow::rank, &LogRow::severity};
// In the order of LogField.
constexpr uint32_t LogRow::*kNames[] = {&LogRow::job,   &LogRow::host, &LogRow::service,
                                        &LogRow::event, &LogRow::gpu,  &LogRow::severity_text};
constexpr uint32_t LogRow::*kLines[] = {&LogRow::body, &LogRow::attributes, &LogRow::resource, &LogRow::trace};

template <typename T>
void put_column(std::string& out, const std::vector<LogRow>& rows, T LogRow::*of) {
  std::vector<int64_t> values;
  values.reserve(rows.size());
  for (const LogRow& row : rows) values.push_back(static_cast<int64_t>(row.*of));
  put_bytes(out, columns::encode_ints(values));
}

// False: it does not make sense, or has a value that is not below `end` (0: any).
template <typename T>
bool read_column(ByteReader& in, std::vector<LogRow>& rows, T LogRow::*of, uint64_t end) {
  std::vector<int64_t> values;
  if (!columns::decode_ints(in.bytes(), rows.size(), values)) return false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (end > 0 && static_cast<uint64_t>(values[i]) >= end) return false;
    rows[i].*of = static_cast<T>(values[i]);
  }
  return true;
}

columns::SectionPlace put_section(std::string& content, uint32_t section, std::string_view bytes) {
  columns::SectionPlace place{section, content.size(), static_cast<uint32_t>(bytes.size()), crc32c(bytes)};
  content.append(bytes);
  return place;
}

Result<std::string> read_section(const columns::SectionSource& source, const columns::SectionPlace& place) {
  std::string bytes = LOCKSTEP_TRY(source.read(place));
  if (crc32c(bytes) != place.crc) return Error{"a section's checksum is wrong"};
  return bytes;
}

void put_place(std::string& out, const columns::SectionPlace& place) {
  put_varint(out, place.offset);
  put_varint(out, place.bytes);
  columns::put_fixed(out, place.crc);
}
void read_place(ByteReader& in, uint32_t section, columns::SectionPlace& place) {
  place.section = section;
  place.offset = in.varint();
  const uint64_t bytes = in.varint();
  if (bytes > UINT32_MAX) in.fail();
  place.bytes = static_cast<uint32_t>(bytes);
  place.crc = in.fixed<uint32_t>();
}

}  // namespace

void LogColumns::add(const Attributes& resource, const LogRecord& record, int64_t received_unix_ns) {
  LogRow row;
  row.arrival_unix_ns = received_unix_ns;
  row.time_unix_ns = record.time_unix_ns != 0       ? record.time_unix_ns
                     : record.observed_unix_ns != 0 ? record.observed_unix_ns
                                                    : received_unix_ns;
  row.severity = std::clamp(record.severity, 0, 255);
  row.rank = static_cast<int32_t>(std::clamp<int64_t>(find_int(resource, "lockstep.rank", -1), -1, INT32_MAX));
  auto name = [&](std::string_view text) { return names.intern(utf8_prefix(text, kNameBytesMax)); };
  row.job = name(find_string(resource, "lockstep.job_id"));
  row.host = name(find_string(resource, "host.name"));
  row.service = name(find_string(resource, "service.name"));
  row.gpu = name(find_string(resource, "lockstep.gpu_uuid"));
  row.event = name(record.event_name);
  row.severity_text = name(record.severity_text);
  size_t pieces_cut = 0;
  row.body = lines.intern(body_of(record.body, pieces_cut));
  row.attributes = lines.intern(attributes_of(record.attributes, pieces_cut));
  row.resource = lines.intern(attributes_of(resource, pieces_cut));
  if (record.trace_id != TraceId{}) row.trace = lines.intern(to_hex(record.trace_id) + to_hex(record.span_id));
  cut += pieces_cut > 0;
  rows.push_back(row);
}

void LogColumns::add(const LogColumns& other, const LogRow& from) {
  LogRow row = from;
  for (uint32_t LogRow::*of : kNames) row.*of = names.intern(other.names[from.*of]);
  for (uint32_t LogRow::*of : kLines) row.*of = lines.intern(other.lines[from.*of]);
  rows.push_back(row);
}

LogEntry LogColumns::entry(const LogRow& row) const {
  auto name = [&](uint32_t id) { return std::string(names[id]); };
  auto line = [&](uint32_t id, const char* absent) { return id == 0 ? std::string(absent) : std::string(lines[id]); };
  return {.time_unix_ns = row.time_unix_ns,
          .severity = row.severity,
          .rank = Rank{row.rank},
          .job = name(row.job),
          .host = name(row.host),
          .service = name(row.service),
          .event = name(row.event),
          .gpu = name(row.gpu),
          .severity_text = name(row.severity_text),
          .body = line(row.body, "null"),
          .attributes = line(row.attributes, "{}"),
          .resource = line(row.resource, "{}"),
          .trace = line(row.trace, "")};
}

std::string_view LogColumns::name(const LogRow& row, LogField field) const {
  return names[row.*kNames[static_cast<size_t>(field)]];
}

bool LogMatcher::begin(const LogColumns& columns) {
  columns_ = &columns;
  known_.resize(query_.matches.size());
  for (size_t i = 0; i < known_.size(); ++i) {
    const LogMatch& match = query_.matches[i];
    Known& known = known_[i];
    if (match.field == LogField::kRank) {
      if (known.ranks.size() > kRanksKnownMax) known.ranks.clear();
      continue;
    }
    if (match.field == LogField::kLevel) {
      known.names.resize(kLogLevels, -1);
    } else if (match.is_text()) {
      const std::optional<uint32_t> text = columns.names.find(match.text);
      if (!text) return false;
      known.text = *text;
    } else {
      known.names.assign(columns.names.size(), -1);
    }
  }
  return true;
}

bool LogMatcher::holds(size_t at, const LogRow& row) {
  const LogMatch& match = query_.matches[at];
  Known& known = known_[at];
  if (match.field == LogField::kRank) {
    const auto [rank, is_new] = known.ranks.try_emplace(row.rank, false);
    if (is_new) rank->second = match.holds(row.rank < 0 ? std::string() : std::to_string(row.rank));
    return rank->second;
  }
  if (match.field == LogField::kLevel) {
    int8_t& level = known.names[log_level(row.severity)];
    if (level < 0) level = match.holds(severity_word(row.severity));
    return level > 0;
  }
  const uint32_t text = row.*kNames[static_cast<size_t>(match.field)];
  if (match.is_text()) return text == known.text;
  int8_t& name = known.names[text];
  if (name < 0) name = match.holds(columns_->names[text]);
  return name > 0;
}

bool LogMatcher::wants(const LogRow& row) {
  if (row.time_unix_ns < query_.from_unix_ns || row.time_unix_ns > query_.to_unix_ns ||
      row.arrival_unix_ns <= query_.after || row.severity < query_.severity_min ||
      (query_.rank != kNoRank && row.rank != query_.rank.value()))
    return false;
  for (size_t i = 0; i < known_.size(); ++i) {
    if (!holds(i, row)) return false;
  }
  return true;
}

bool LogMatcher::shows(const LogColumns& columns, const LogRow& row) const {
  if (query_.filters.empty()) return !query_.also || query_.also(columns, row);
  std::string line(columns.names[row.event]);
  line += ' ';
  line += columns.lines[row.body];
  line += ' ';
  line += columns.lines[row.attributes];
  return std::all_of(query_.filters.begin(), query_.filters.end(),
                     [&](const LogFilter& filter) { return filter.holds(line); }) &&
         (!query_.also || query_.also(columns, row));
}

bool GroupMeta::may_have(const LogQuery& query) const {
  if (!time.overlaps(query.from_unix_ns, query.to_unix_ns) || arrival.most <= query.after ||
      severity_most < query.severity_min)
    return false;
  for (const LogMatch& match : query.matches) {
    if (hashes.empty() || !match.is_text()) continue;
    const char kind = match.field == LogField::kJob ? 'j' : match.field == LogField::kHost ? 'h' : 0;
    if (kind != 0 && !std::binary_search(hashes.begin(), hashes.end(), hash_of(kind, match.text))) return false;
  }
  return true;
}

void encode_meta(std::string& out, const GroupMeta& meta) {
  put_varint(out, meta.rows);
  for (const auto* range : {&meta.time, &meta.arrival}) {
    put_signed(out, range->least);
    put_signed(out, range->most);
  }
  put_varint(out, static_cast<uint64_t>(meta.severity_most));
  put_varint(out, meta.hashes.size());
  for (uint32_t hash : meta.hashes) columns::put_fixed(out, hash);
  put_place(out, meta.index);
  put_place(out, meta.lines);
}

bool decode_meta(ByteReader& in, GroupMeta& meta) {
  const uint64_t rows = in.varint();
  if (rows > kGroupRows) in.fail();
  meta.rows = static_cast<uint32_t>(rows);
  for (auto* range : {&meta.time, &meta.arrival}) {
    range->least = in.signed_varint();
    range->most = in.signed_varint();
  }
  meta.severity_most = static_cast<int32_t>(std::min<uint64_t>(in.varint(), 255));
  meta.hashes.resize(in.count(4));
  for (uint32_t& hash : meta.hashes) hash = in.fixed<uint32_t>();
  if (!std::is_sorted(meta.hashes.begin(), meta.hashes.end())) in.fail();
  read_place(in, 0, meta.index);
  read_place(in, 1, meta.lines);
  return in.ok();
}

GroupMeta meta_of(const LogColumns& columns) {
  GroupMeta meta{.rows = static_cast<uint32_t>(columns.rows.size())};
  for (const LogRow& row : columns.rows) {
    meta.time.add(row.time_unix_ns);
    meta.arrival.add(row.arrival_unix_ns);
    meta.severity_most = std::max(meta.severity_most, row.severity);
  }
  return meta;
}

GroupMeta write_group(const LogColumns& group, std::string& content) {
  GroupMeta meta = meta_of(group);
  std::vector<uint32_t>& hashes = meta.hashes;
  for (const LogRow& row : group.rows) {
    for (uint32_t hash : {hash_of('j', group.names[row.job]), hash_of('h', group.names[row.host])}) {
      const auto at = std::lower_bound(hashes.begin(), hashes.end(), hash);
      if (hashes.size() <= kHashesMax && (at == hashes.end() || *at != hash)) hashes.insert(at, hash);
    }
  }
  if (hashes.size() > kHashesMax) hashes.clear();
  std::string index, lines;
  put_bytes(index, columns::encode_texts(group.names));
  for (int64_t LogRow::*of : kTimes) put_column(index, group.rows, of);
  for (int32_t LogRow::*of : kNumbers) put_column(index, group.rows, of);
  for (uint32_t LogRow::*of : kNames) put_column(index, group.rows, of);
  put_bytes(lines, columns::encode_texts(group.lines));
  for (uint32_t LogRow::*of : kLines) put_column(lines, group.rows, of);
  meta.index = put_section(content, 0, index);
  meta.lines = put_section(content, 1, lines);
  return meta;
}

Result<LogColumns> read_index(const columns::SectionSource& source, const GroupMeta& meta) {
  const std::string bytes = LOCKSTEP_TRY(read_section(source, meta.index));
  ByteReader in(bytes);
  LogColumns group;
  bool ok = columns::decode_texts(in.bytes(), kNamesBytesMax, group.names);
  group.rows.resize(meta.rows);
  for (int64_t LogRow::*of : kTimes) ok = ok && read_column(in, group.rows, of, 0);
  for (int32_t LogRow::*of : kNumbers) ok = ok && read_column(in, group.rows, of, 0);
  for (uint32_t LogRow::*of : kNames) ok = ok && read_column(in, group.rows, of, group.names.size());
  if (!ok || !in.ok() || !in.at_end()) return Error{"its index does not make sense"};
  return group;
}

Result<void> read_lines(const columns::SectionSource& source, const GroupMeta& meta, LogColumns& group) {
  const std::string bytes = LOCKSTEP_TRY(read_section(source, meta.lines));
  ByteReader in(bytes);
  bool ok = columns::decode_texts(in.bytes(), kLinesBytesMax, group.lines);
  for (uint32_t LogRow::*of : kLines) ok = ok && read_column(in, group.rows, of, group.lines.size());
  if (!ok || !in.ok() || !in.at_end()) return Error{"its lines do not make sense"};
  return {};
}

}  // namespace lockstep::logs
