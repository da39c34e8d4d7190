#include "apps/cli/wrapped.h"

#include <cstdio>

#include "apps/cli/terminal.h"
#include "base/text.h"

namespace lockstep::cli {

std::string wrapped(std::string_view text, size_t indent, std::string_view label, size_t columns) {
  if (columns == 0) columns = prose_columns();
  std::string out = padded(label, indent);
  size_t column = 0;
  for (std::string_view word : split(text, ' ')) {
    const size_t width = shown_columns(word);
    if (column > 0 && indent + column + 1 + width > columns) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width;
  }
  return out + "\n";
}

std::string wrapped_row(std::string_view text, size_t indent, std::string_view label) {
  return row_columns() ? wrapped(text, indent, label) : padded(label, indent) + std::string(text) + "\n";
}

void print_wrapped(std::string_view text, size_t indent, std::string_view label) {
  std::fputs(wrapped(text, indent, label).c_str(), stdout);
}

}  // namespace lockstep::cli
