#include "query/logql/log_lines.h"

#include <algorithm>
#include <unordered_map>

#include "query/logql/pipeline.h"

namespace lockstep::logql {
namespace {

Labels together(const Line& line) {
  Labels all = line.parsed;
  all.insert(all.end(), line.metadata->begin(), line.metadata->end());
  all.insert(all.end(), line.stream->begin(), line.stream->end());
  sort_labels(all);
  return all;
}

// Lines by stream, as they come.
class LineList {
 public:
  LineList(const LinesWanted& wanted, LogLines& found) : wanted_(wanted), found_(found) {}
  void add(int64_t time_unix_ns, Line& line) {
    if (!line.error.empty()) {
      line.parsed.emplace_back("__error__", line.error);
      line.parsed.emplace_back("__error_details__", line.error_details);
    }
    LogLine one{.time_unix_ns = time_unix_ns, .text = std::string(line.text), .metadata = {}, .parsed = {}};
    std::vector<LogLine>& lines = stream_of(wanted_.labels_apart ? *line.stream : together(line)).lines;
    if (wanted_.labels_apart) {
      one.metadata = *line.metadata;
      one.parsed = std::move(line.parsed);
    }
    found_.bytes += sizeof one + one.text.size() + bytes_of(one.metadata) + bytes_of(one.parsed);
    lines.push_back(std::move(one));
    ++found_.lines;
    // What was found, and the answer as it grows.
    found_.no_memory = wanted_.memory != nullptr && !wanted_.memory->hold(3 * found_.bytes);
  }

 private:
  LogStream& stream_of(Labels labels) {
    const auto [known, is_new] = streams_.try_emplace(to_text(labels), found_.streams.size());
    if (is_new) {
      found_.bytes += known->first.size() + bytes_of(labels);
      found_.streams.push_back({.labels = std::move(labels), .lines = {}});
    }
    return found_.streams[known->second];
  }

  const LinesWanted& wanted_;
  LogLines& found_;
  std::unordered_map<std::string, size_t> streams_;
};

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
  Pipeline pipeline(selection.stages, true);
  LineList list(wanted, found);
  size_t looked = 0;
  for (const LogEntry& entry : page.entries) {
    const auto stream = [&](Labels& room) -> const Labels& { return room = stream_labels(entry); };
    if (pipeline.run(text_of(entry), stream, line)) list.add(entry.time_unix_ns, line);
    if (found.no_memory) break;
    // What was found before somebody gave up is shown.
    if (++looked % kLogRowsBetweenLooks == 0 && !page.gave_up && wanted.give_up && wanted.give_up()) {
      found.gave_up = true;
      found.whole = false;
      break;
    }
  }
  return found;
}

}  // namespace lockstep::logql
