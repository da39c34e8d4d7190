#include "apps/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "apps/cli/wrapped.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr size_t kLeastColumns = 40, kMostColumns = 1000;

// A copy of standard output as it was at first: whoever redirects it later is asked nothing.
int first_output() {
  static const int fd = ::isatty(STDOUT_FILENO) == 1 ? ::dup(STDOUT_FILENO) : -1;
  return fd;
}

std::optional<size_t> columns_variable() {
  const char* given = std::getenv("COLUMNS");
  const std::optional<uint64_t> columns = given != nullptr ? parse_uint(given) : std::nullopt;
  if (!columns || *columns == 0) return std::nullopt;
  return std::clamp<size_t>(*columns, kLeastColumns, kMostColumns);
}

bool default_color() {
  const char* none = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return first_output() >= 0 && (none == nullptr || *none == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

bool& is_colored() {
  static bool colored = default_color();
  return colored;
}

// Bytes of the escape sequence that begins here; 0: none does.
size_t escape_bytes(std::string_view text, size_t at) {
  if (text[at] != '\x1b' || at + 1 >= text.size() || text[at + 1] != '[') return 0;
  size_t end = at + 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return std::min(end + 1, text.size()) - at;
}

}  // namespace

std::optional<TerminalSize> terminal_size() {
  winsize size{};
  if (first_output() < 0 || ::ioctl(first_output(), TIOCGWINSZ, &size) != 0) return std::nullopt;
  TerminalSize found;
  if (size.ws_col > 0) found.columns = size.ws_col;
  if (size.ws_row > 0) found.rows = size.ws_row;
  return found;
}

std::optional<size_t> row_columns() {
  if (const std::optional<size_t> given = columns_variable()) return given;
  const std::optional<TerminalSize> size = terminal_size();
  if (!size) return std::nullopt;
  return std::clamp(size->columns, kLeastColumns, kMostColumns);
}

size_t prose_columns() {
  return row_columns().value_or(kUsualColumns);
}

Result<void> choose_color(const std::string& when) {
  if (when == "auto")
    is_colored() = default_color();
  else if (when == "always" || when == "never")
    is_colored() = when == "always";
  else
    return Error{format("--color is auto, always or never, not \"%s\"", as_one_line(when).c_str())};
  return {};
}

Result<void> take_color_option(std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size() && words[i] != "--" && !(i == 0 && words[0] == "run");) {
    const bool has_value = words[i].starts_with("--color=");
    if (!has_value && words[i] != "--color") {
      ++i;
      continue;
    }
    if (!has_value && i + 1 >= words.size()) return Error{"--color needs a value: auto, always or never"};
    const std::string when = has_value ? words[i].substr(8) : words[i + 1];
    LOCKSTEP_TRY(choose_color(when));
    words.erase(words.begin() + static_cast<ptrdiff_t>(i),
                words.begin() + static_cast<ptrdiff_t>(i + (has_value ? 1 : 2)));
  }
  return {};
}

std::string painted(Paint paint, std::string_view text) {
  if (!is_colored() || text.empty()) return std::string(text);
  const char* code = paint == Paint::kBad ? "1;31" : paint == Paint::kWarn ? "33" : paint == Paint::kDim ? "2" : "1";
  return format("\x1b[%sm%.*s\x1b[0m", code, static_cast<int>(text.size()), text.data());
}

std::string padded(std::string_view text, size_t columns) {
  const size_t shown = shown_columns(text);
  return std::string(text) + std::string(shown < columns ? columns - shown : 0, ' ');
}

size_t shown_columns(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    if (const size_t escape = escape_bytes(text, at)) {
      at += escape;
      continue;
    }
    at += std::max<size_t>(1, utf8_length(text, at));
    ++columns;
  }
  return columns;
}

std::string clipped(std::string_view text, size_t columns) {
  if (shown_columns(text) <= columns) return std::string(text);
  std::string out;
  size_t shown = 0;
  bool has_escape = false;
  for (size_t at = 0; at < text.size();) {
    if (const size_t escape = escape_bytes(text, at)) {
      out += text.substr(at, escape);
      has_escape = true;
      at += escape;
      continue;
    }
    if (shown + 1 >= columns) break;
    const size_t bytes = std::max<size_t>(1, utf8_length(text, at));
    out += text.substr(at, bytes);
    at += bytes;
    ++shown;
  }
  return out + "…" + (has_escape ? "\x1b[0m" : "");
}

std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t escape = escape_bytes(text, at);
    if (escape == 0) out += text[at];
    at += std::max<size_t>(1, escape);
  }
  return out;
}

std::string row_with_text(const std::string& row, const std::string& text) {
  constexpr size_t kRoom = 30, kIndent = 2;
  const std::optional<size_t> columns = row_columns();
  if (text.empty()) return row + "\n";
  if (!columns) return row + "  " + text + "\n";
  const size_t used = shown_columns(row) + 2;
  if (used + kRoom > *columns) return row + "\n" + wrapped(text, kIndent);
  return wrapped(text, used, row);
}

}  // namespace lockstep::cli
