// Durations as PromQL has them: 5m, and expressions such as step() * 2.
//
// Thread rule: Confined.
#pragma once

#include <memory>

#include "query/promql/token_reader.h"

namespace lockstep::promql {

class DurationParser : public TokenReader {
 protected:
  using TokenReader::TokenReader;
  using DurationPtr = std::unique_ptr<DurationExpr>;

  DurationPtr positive_duration();
  // After "offset" a bare operator ends the duration: foo offset 5m + 1 is (foo offset 5m) + 1. Only what began with a
  // parenthesis goes on: foo offset (5m) + 1m is foo offset ((5m) + 1m).
  DurationPtr offset_duration();

 private:
  DurationPtr duration_number(double seconds, bool is_duration, uint32_t begin);
  DurationPtr duration_expression(int least);
  DurationPtr duration_node(DurationExpr::Op op, DurationPtr left, DurationPtr right);
  DurationPtr duration_unary(bool tight);  // tight: no operator may follow
  DurationPtr duration_primary();
};

}  // namespace lockstep::promql
