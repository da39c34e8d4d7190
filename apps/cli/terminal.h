// What the output goes to: how wide it is, and whether colour is seen there.
//
// Width: $COLUMNS, else the terminal's; without either, prose is kKept columns wide and rows of tables are as long as they
// are, for grep. Colour: on a terminal, unless NO_COLOR is set or TERM is dumb; --color always or never wins. Pipes get
// none by themselves. Found out before anything is printed: --watch later takes the output for itself.
//
// Thread rule: Confined.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

inline constexpr size_t kUsualColumns = 80;

struct TerminalSize {
  size_t columns = 80, rows = 24;
};
// Of the terminal that standard output is, or was when the program began; nothing where it is none.
std::optional<TerminalSize> terminal_size();
size_t prose_columns();
std::optional<size_t> row_columns();  // nothing: as long as they are

// auto, always, never.
Result<void> choose_color(const std::string& when);
// Takes --color WHEN out of the words of a command, but not out of those of a job that is run; an error where WHEN is
// none of the three.
Result<void> take_color_option(std::vector<std::string>& words);

enum class Paint { kBad, kWarn, kDim, kStrong };
// The text in that colour, or as it is where none is seen. Its width stays.
std::string painted(Paint paint, std::string_view text);
// Padded with blanks to so many columns.
std::string padded(std::string_view text, size_t columns);

// Columns that a terminal shows it in: escapes take none, every other character one.
size_t shown_columns(std::string_view text);
// Cut to so many columns, with "…" at the end where something was; escapes are kept whole.
std::string clipped(std::string_view text, size_t columns);
// The text without its escapes.
std::string without_escapes(std::string_view text);
// A row of a table with a sentence at its end: on a terminal the sentence wraps under itself, or under the row where
// there is little room for it.
std::string row_with_text(const std::string& row, const std::string& text);

}  // namespace lockstep::cli
