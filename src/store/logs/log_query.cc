#include "store/logs/log_query.h"

#include "base/text.h"

namespace lockstep {

const char* severity_word(int64_t severity) {
  constexpr const char* kWords[kLogLevels] = {"unknown", "trace", "debug", "info", "warn", "error", "fatal"};
  return kWords[log_level(severity)];
}

size_t log_level(int64_t severity) {
  return severity < 1 || severity > 24 ? 0 : 1 + static_cast<size_t>(severity - 1) / 4;
}

bool LogMatch::holds(std::string_view value) const {
  const bool is_it =
      pattern != nullptr ? RE2::FullMatch(re2::StringPiece(value.data(), value.size()), *pattern) : value == text;
  return is_it != is_not;
}

bool LogFilter::holds(std::string_view line) const {
  return pattern != nullptr ? RE2::PartialMatch(re2::StringPiece(line.data(), line.size()), *pattern)
                            : line.find(text) != std::string_view::npos;
}

Result<std::shared_ptr<const re2::RE2>> log_pattern(std::string_view text, bool with_newlines) {
  constexpr size_t kPatternBytesMax = 1024;
  if (text.size() > kPatternBytesMax) return Error{format("a pattern has at most %zu bytes", kPatternBytesMax)};
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(1 << 20);
  options.set_dot_nl(with_newlines);
  auto pattern = std::make_shared<const re2::RE2>(std::string(text), options);
  if (!pattern->ok())
    return Error{
        format("\"%.80s\" is no pattern: %.100s", as_one_line(text).c_str(), as_one_line(pattern->error()).c_str())};
  return std::shared_ptr<const re2::RE2>(std::move(pattern));
}

}  // namespace lockstep
