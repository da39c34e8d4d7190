#include <simdjson.h>

#include "base/text.h"
#include "plugin/capi/lockstep.h"
#include "sim/replay/recording.h"

namespace lockstep::replay {
namespace {

int phase_named(std::string_view key) {
  struct Row {
    std::string_view key;
    int phase;
  };
  static constexpr Row kRows[] = {
      {"data", LOCKSTEP_PHASE_INPUT},      {"fwd", LOCKSTEP_PHASE_FORWARD},   {"bwd", LOCKSTEP_PHASE_BACKWARD},
      {"fwdbwd", LOCKSTEP_PHASE_FORWARD},  {"opt", LOCKSTEP_PHASE_OPTIMIZER}, {"sync", LOCKSTEP_PHASE_SYNC},
      {"ckpt", LOCKSTEP_PHASE_CHECKPOINT}, {"eval", LOCKSTEP_PHASE_EVAL},
  };
  for (const Row& row : kRows) {
    if (row.key == key) return row.phase;
  }
  return LOCKSTEP_PHASE_OTHER;
}

// Empty: good. Else what is wrong with it.
std::string read_step(const simdjson::dom::object& object, LoggedStep& step) {
  bool has_step = false, has_begin = false, has_length = false;
  for (const auto [key, value] : object) {
    if (!value.is_number()) continue;
    if (key == "loss" || value.type() == simdjson::dom::element_type::DOUBLE) {
      step.scalars.emplace_back(std::string(key), value.get_double().value());
      continue;
    }
    int64_t number = 0;
    if (value.get_int64().get(number) != simdjson::SUCCESS || number < 0) {
      return format("%.*s is out of range", static_cast<int>(key.size()), key.data());
    }
    if (key == "step") {
      step.step = StepNumber{number};
      has_step = true;
    } else if (key == "t0") {
      step.begin_ns = static_cast<uint64_t>(number);
      has_begin = true;
    } else if (key == "total") {
      step.length_ns = static_cast<uint64_t>(number);
      has_length = true;
    } else if (number > 0) {
      step.phases.push_back({phase_named(key), static_cast<uint64_t>(number)});
    }
  }
  if (!has_step || !has_begin || !has_length) return "step, t0 or total is missing";
  return {};
}

}  // namespace

Result<std::vector<LoggedStep>> parse_steps(std::string_view json, const std::string& file) {
  simdjson::dom::parser parser;
  simdjson::dom::array array;
  if (const auto problem = parser.parse(json.data(), json.size()).get(array)) {
    return Error{format("%s: not a JSON array: %s", file.c_str(), simdjson::error_message(problem))};
  }
  std::vector<LoggedStep> steps;
  for (const simdjson::dom::element element : array) {
    simdjson::dom::object object;
    LoggedStep step;
    const std::string problem =
        element.get(object) == simdjson::SUCCESS ? read_step(object, step) : "it is not an object";
    if (!problem.empty()) return Error{format("%s: entry %zu: %s", file.c_str(), steps.size(), problem.c_str())};
    if (!steps.empty() && step.begin_ns < steps.back().begin_ns + steps.back().length_ns) {
      return Error{format("%s: entry %zu: begins before the one before it has ended", file.c_str(), steps.size())};
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace lockstep::replay
