// A tree back to text, in time that grows as the text does.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

#include "query/promql/ast.h"

namespace lockstep::promql {

std::string to_text(const Expr& expr);         // one line, in the language's normal form; parses to the same tree
std::string pretty(const Expr& expr);          // broken into lines where it is longer than 100 characters
std::string in_quotes(std::string_view text);  // "..." with escapes
std::string matcher_text(const LabelMatcher& matcher);
// Plain digits, never an exponent.
std::string plain_number(double number);

}  // namespace lockstep::promql
