// Which functions there are, and what each takes and gives.
#include <unordered_map>

#include "query/promql/ast.h"

namespace lockstep::promql {
namespace {

constexpr ValueType S = ValueType::kScalar;
constexpr ValueType V = ValueType::kVector;
constexpr ValueType M = ValueType::kMatrix;
constexpr ValueType T = ValueType::kString;

const std::vector<Function>& table() {
  static const std::vector<Function> kFunctions = {
      {"abs", {V}, 0, V},
      {"absent", {V}, 0, V},
      {"absent_over_time", {M}, 0, V},
      {"acos", {V}, 0, V},
      {"acosh", {V}, 0, V},
      {"asin", {V}, 0, V},
      {"asinh", {V}, 0, V},
      {"atan", {V}, 0, V},
      {"atanh", {V}, 0, V},
      {"avg_over_time", {M}, 0, V},
      {"ceil", {V}, 0, V},
      {"changes", {M}, 0, V},
      {"clamp", {V, S, S}, 0, V},
      {"clamp_max", {V, S}, 0, V},
      {"clamp_min", {V, S}, 0, V},
      {"cos", {V}, 0, V},
      {"cosh", {V}, 0, V},
      {"count_over_time", {M}, 0, V},
      {"day_of_month", {V}, 1, V},
      {"day_of_week", {V}, 1, V},
      {"day_of_year", {V}, 1, V},
      {"days_in_month", {V}, 1, V},
      {"deg", {V}, 0, V},
      {"delta", {M}, 0, V},
      {"deriv", {M}, 0, V},
      {"double_exponential_smoothing", {M, S, S}, 0, V},
      {"end", {}, 0, S},
      {"exp", {V}, 0, V},
      {"first_over_time", {M}, 0, V},
      {"floor", {V}, 0, V},
      {"histogram_avg", {V}, 0, V},
      {"histogram_count", {V}, 0, V},
      {"histogram_fraction", {S, S, V}, 0, V},
      {"histogram_quantile", {S, V}, 0, V},
      {"histogram_quantiles", {V, T, S, S}, 9, V},
      {"histogram_stddev", {V}, 0, V},
      {"histogram_stdvar", {V}, 0, V},
      {"histogram_sum", {V}, 0, V},
      {"hour", {V}, 1, V},
      {"idelta", {M}, 0, V},
      {"increase", {M}, 0, V},
      {"info", {V, V}, 1, V},
      {"irate", {M}, 0, V},
      {"label_join", {V, T, T, T}, -1, V},
      {"label_replace", {V, T, T, T, T}, 0, V},
      {"last_over_time", {M}, 0, V},
      {"ln", {V}, 0, V},
      {"log10", {V}, 0, V},
      {"log2", {V}, 0, V},
      {"mad_over_time", {M}, 0, V},
      {"max_of", {S, S}, 0, S},
      {"max_over_time", {M}, 0, V},
      {"min_of", {S, S}, 0, S},
      {"min_over_time", {M}, 0, V},
      {"minute", {V}, 1, V},
      {"month", {V}, 1, V},
      {"pi", {}, 0, S},
      {"predict_linear", {M, S}, 0, V},
      {"present_over_time", {M}, 0, V},
      {"quantile_over_time", {S, M}, 0, V},
      {"rad", {V}, 0, V},
      {"range", {}, 0, S},
      {"rate", {M}, 0, V},
      {"resets", {M}, 0, V},
      {"round", {V, S}, 1, V},
      {"scalar", {V}, 0, S},
      {"sgn", {V}, 0, V},
      {"sin", {V}, 0, V},
      {"sinh", {V}, 0, V},
      {"sort", {V}, 0, V},
      {"sort_by_label", {V, T}, -1, V},
      {"sort_by_label_desc", {V, T}, -1, V},
      {"sort_desc", {V}, 0, V},
      {"sqrt", {V}, 0, V},
      {"start", {}, 0, S},
      {"start_timestamp", {V}, 0, V},
      {"stddev_over_time", {M}, 0, V},
      {"stdvar_over_time", {M}, 0, V},
      {"step", {}, 0, S},
      {"sum_over_time", {M}, 0, V},
      {"tan", {V}, 0, V},
      {"tanh", {V}, 0, V},
      {"time", {}, 0, S},
      {"timestamp", {V}, 0, V},
      {"ts_of_first_over_time", {M}, 0, V},
      {"ts_of_last_over_time", {M}, 0, V},
      {"ts_of_max_over_time", {M}, 0, V},
      {"ts_of_min_over_time", {M}, 0, V},
      {"vector", {S}, 0, V},
      {"year", {V}, 1, V},
  };
  return kFunctions;
}

}  // namespace

const Function* find_function(std::string_view name) {
  static const std::unordered_map<std::string_view, const Function*> kByName = [] {
    std::unordered_map<std::string_view, const Function*> made;
    for (const Function& function : table()) made.emplace(function.name, &function);
    return made;
  }();
  const auto found = kByName.find(name);
  return found == kByName.end() ? nullptr : found->second;
}

}  // namespace lockstep::promql
