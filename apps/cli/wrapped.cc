#include "apps/cli/wrapped.h"

#include <cstdio>

#include "base/text.h"

namespace lockstep::cli {

std::string wrapped(std::string_view text, size_t indent, std::string_view label, size_t columns) {
  std::string out(label);
  if (out.size() < indent) out.append(indent - out.size(), ' ');
  size_t column = 0;
  for (std::string_view word : split(text, ' ')) {
    if (column > 0 && indent + column + 1 + word.size() > columns) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

void print_wrapped(std::string_view text, size_t indent, std::string_view label) {
  std::fputs(wrapped(text, indent, label).c_str(), stdout);
}

}  // namespace lockstep::cli
