// Reading the server's answers, for commands: what is not there or of another type is empty, 0 or the fallback.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "model/verdict_terms.h"

namespace lockstep::cli {

using Json = simdjson::dom::element;

inline std::string text_of(const Json& object, const char* key) {
  std::string_view value;
  return object[key].get_string().get(value) ? std::string() : std::string(value);
}
// Nothing also where this version does not know the word.
template <typename Term>
std::optional<Term> term_in(const Json& object, const char* key) {
  return term_of<Term>(text_of(object, key));
}
inline double number_of(const Json& object, const char* key, double fallback = 0) {
  double value = 0;
  return object[key].get_double().get(value) ? fallback : value;
}
inline simdjson::dom::array list_of(const Json& object, const char* key) {
  simdjson::dom::array list;
  if (object[key].get_array().get(list)) return {};
  return list;
}

}  // namespace lockstep::cli
