// Any query over lines that may be anything: no crash, one line on error; what is understood reads back as the same, and
// what it counts is what it shows.
#include <cstdint>
#include <cstdlib>

#include "query/logql/log_labels.h"
#include "query/logql/logql.h"
#include "query/logql/pipeline.h"
#include "store/logs/log_columns.h"

using namespace lockstep;

namespace {

void one_line(const std::string& line) {
  if (line.empty() || line.find('\n') != std::string::npos) std::abort();
}

void run_over(const logql::LogSelection& selection, std::string_view line_text) {
  logs::LogColumns columns;
  LogRecord record;
  record.body = std::string(line_text);
  record.attributes = {{"a", "b"}, {"code", int64_t{3}}};
  columns.add({{"lockstep.job_id", "a"}, {"host.name", std::string(line_text.substr(0, 8))}}, record, 1);
  record.body = Value();
  columns.add({{"lockstep.rank", int64_t{1}}}, record, 2);
  for (const bool with_metadata : {false, true}) {
    logql::Pipeline pipeline(selection.stages, with_metadata);
    logql::Line line;
    for (const logs::LogRow& row : columns.rows) {
      const auto stream = [&](logql::Labels& room) -> const logql::Labels& {
        return room = logql::stream_labels(columns, row);
      };
      if (!pipeline.run(logql::text_of(columns, row), stream, line)) continue;
      (void)logql::to_text(line.parsed);
      for (const auto& [name, value] : line.parsed) {
        if (!logql::is_label_name(name)) std::abort();
      }
    }
  }
  (void)logql::matches_of(selection.matchers);
}

void look(const logql::Expression& expression, std::string_view line) {
  if (expression.type == logql::Expression::Type::kLogs || expression.type == logql::Expression::Type::kRange)
    run_over(expression.logs, line);
  for (const logql::Expression& part : expression.parts) look(part, line);
}

}  // namespace

// The query up to the first 0 byte, then the line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::string_view query = all.substr(0, all.find('\0'));
  const std::string_view line = query.size() < all.size() ? all.substr(query.size() + 1) : std::string_view();
  if (const auto matchers = logql::parse_matchers(query); !matchers.ok()) one_line(matchers.error());
  const Result<logql::Expression> expression = logql::parse(query);
  if (!expression.ok()) {
    one_line(expression.error());
    return 0;
  }
  look(*expression, line);
  const std::string text = logql::to_text(*expression);
  const Result<logql::Expression> again = logql::parse(text);
  if (!again.ok() && text.size() <= logql::kQueryBytesMax) std::abort();
  if (again.ok() && logql::to_text(*again) != text) std::abort();
  return 0;
}
