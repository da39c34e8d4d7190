// PromQL text to a tree: Pratt parser, types checked.
//
// Limits:   ParseLimits; a longer or deeper query is refused, so that whoever walks the tree may recurse.
// On error: one line that begins with where, "LINE:COLUMN: parse error: ...", both counted from 1, columns in bytes.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "query/promql/ast.h"

namespace lockstep::promql {

struct ParseLimits {
  size_t bytes_max = 1u << 20;
  size_t nodes_max = 50'000;
  uint32_t depth_max = 500;
};

Result<std::unique_ptr<Expr>> parse(std::string_view query, const ParseLimits& limits = {});

// One selector without range or modifiers, as match[] takes it.
Result<std::vector<LabelMatcher>> parse_selector(std::string_view query);

// Whether text is one that matchers of this kind take as empty; used where a selector must not select everything.
bool matches_empty(const LabelMatcher& matcher);

}  // namespace lockstep::promql
