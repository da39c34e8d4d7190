// What an expression may be made of: types of operands and arguments, and what modifiers go together.
#pragma once

#include <optional>

#include "query/promql/ast.h"
#include "query/promql/token_reader.h"

namespace lockstep::promql {

// The first thing that is wrong. Fills in what only the whole expression tells: matching, may_match_all.
std::optional<ParseError> check_types(Expr& expr);

}  // namespace lockstep::promql
