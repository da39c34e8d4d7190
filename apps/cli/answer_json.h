// Reading the server's answers, for commands: what is not there or of another type is empty, 0 or the fallback. A text
// is one line without bytes that a terminal would act on: it may come from anybody who sends data.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <simdjson.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "apps/cli/server_call.h"
#include "base/text.h"
#include "model/verdict_terms.h"

namespace lockstep::cli {

using Json = simdjson::dom::element;

inline std::string text_of(const Json& object, const char* key) {
  std::string_view value;
  return object[key].get_string().get(value) ? std::string() : as_one_line(value);
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
// Empty also where there is none: a default array of simdjson may not even be asked for its size.
inline simdjson::dom::array list_of(const Json& object, const char* key) {
  static simdjson::dom::parser none;
  static const simdjson::dom::array empty = none.parse(std::string_view("[]")).get_array().value();
  simdjson::dom::array list;
  if (object[key].get_array().get(list)) return empty;
  return list;
}

// Says on standard error that the answer is of another version; the exit code of the command.
int not_understood(const std::string& command);

struct Question {
  std::string server;
  std::string path;
  std::string command;  // what lines begin with
  bool json = false;    // the answer is printed as it came
};
// Asks, and has the answer shown; false: it is of another version. The exit code of the command.
int show_answer(const Question& question, const std::function<bool(const Json& document)>& show);
// Asks for a list, and has its rows (of `key`) shown. The exit code of the command.
int show_list(const Question& question, const char* key,
              const std::function<void(const Json& document, const simdjson::dom::array& rows)>& show);

}  // namespace lockstep::cli
