#include "apps/cli/wrapped.h"

#include <cstdio>

#include "base/text.h"

namespace lockstep::cli {

void print_wrapped(const std::string& text, size_t indent, const char* label) {
  size_t column = 0;
  bool first = true;
  for (std::string_view word : split(text, ' ')) {
    if (column > 0 && indent + column + 1 + word.size() > kWrapColumns) {
      std::printf("\n");
      column = 0;
    }
    if (column == 0) std::printf("%-*s", static_cast<int>(indent), first ? label : "");
    first = false;
    std::printf("%s%.*s", column > 0 ? " " : "", static_cast<int>(word.size()), word.data());
    column += word.size() + (column > 0 ? 1 : 0);
  }
  std::printf("\n");
}

}  // namespace lockstep::cli
