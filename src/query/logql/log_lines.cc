#include "query/logql/log_lines.h"

#include <algorithm>
#include <unordered_map>

#include "query/logql/pipeline.h"

namespace lockstep::logql {
namespace {

size_t bytes_of(const Labels& labels) {
  size_t bytes = 0;
  for (const auto& [name, value] : labels) bytes += sizeof(Labels::value_type) + name.size() + value.size();
  return bytes;
}

// All of them, sorted by name; the first of equal names.
Labels together(const Line& line) {
  Labels all = line.parsed;
  all.insert(all.end(), line.metadata->begin(), line.metadata->end());
  all.insert(all.end(), line.stream->begin(), line.stream->end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  all.erase(std::unique(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
            all.end());
  return all;
}

}  // namespace

LogLines find_lines(const ColumnarLogStore& store, const LogSelection& selection, const LinesWanted& wanted) {
  LogLines found;
  const std::optional<std::vector<LogMatch>> matches = matches_of(selection.matchers);
  if (!matches) return found;
  LogQuery query{.matches = *matches,
                 .from_unix_ns = wanted.from_unix_ns,
                 .to_unix_ns = wanted.to_unix_ns,
                 .limit = wanted.limit,
                 .oldest_first = wanted.oldest_first,
                 .give_up = wanted.give_up};
  Pipeline filter(selection.stages, false);
  Line line;
  if (!filter.is_empty()) {
    query.also = [&](const logs::LogColumns& columns, const logs::LogRow& row) {
      const auto stream = [&](Labels& room) -> const Labels& { return room = stream_labels(columns, row); };
      return filter.run(text_of(columns, row), stream, line);
    };
  }
  const LogPage page = store.find(query);
  found.rows_looked_at = page.rows_looked_at;
  found.whole = page.whole;
  found.gave_up = page.gave_up;
  found.cut = page.more && page.entries.size() < wanted.limit;
  found.lines = page.entries.size();
  Pipeline pipeline(selection.stages, true);
  std::unordered_map<std::string, size_t> streams;
  for (const LogEntry& entry : page.entries) {
    const auto stream = [&](Labels& room) -> const Labels& { return room = stream_labels(entry); };
    if (!pipeline.run(text_of(entry), stream, line)) continue;
    if (!line.error.empty()) {
      line.parsed.emplace_back("__error__", line.error);
      line.parsed.emplace_back("__error_details__", line.error_details);
    }
    Labels labels = wanted.labels_apart ? *line.stream : together(line);
    const auto [known, is_new] = streams.try_emplace(to_text(labels), found.streams.size());
    if (is_new) {
      found.bytes += bytes_of(labels);
      found.streams.push_back({.labels = std::move(labels), .lines = {}});
    }
    LogLine one{.time_unix_ns = entry.time_unix_ns, .text = std::string(line.text), .metadata = {}, .parsed = {}};
    if (wanted.labels_apart) {
      one.metadata = *line.metadata;
      one.parsed = std::move(line.parsed);
    }
    found.bytes += sizeof one + one.text.size() + bytes_of(one.metadata) + bytes_of(one.parsed);
    found.streams[known->second].lines.push_back(std::move(one));
  }
  return found;
}

}  // namespace lockstep::logql
