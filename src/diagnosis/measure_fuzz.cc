// measure_from: any values of a query are a measure within its limits or one line; a measure comes back from its query.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "base/text.h"
#include "diagnosis/measure.h"

namespace {

std::map<std::string, std::string, std::less<>> parameters_of(std::string_view query) {
  std::map<std::string, std::string, std::less<>> parameters;
  for (std::string_view one : lockstep::split(query, '&')) {
    const size_t equals = std::min(one.find('='), one.size());
    parameters[std::string(one.substr(0, equals))] = one.substr(std::min(one.size(), equals + 1));
  }
  return parameters;
}

lockstep::Result<lockstep::Measure> measure_of(std::string_view query) {
  const auto parameters = parameters_of(query);
  return lockstep::measure_from([&](std::string_view name) {
    const auto found = parameters.find(name);
    return found == parameters.end() ? std::string() : found->second;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  Result<Measure> measure = measure_of(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!measure.ok()) return 0;
  if (measure->steps.size() > Measure::kStepsMax || measure->ranks.size() > Measure::kRanksMax) std::abort();
  if (!measure->name.empty()) return 0;  // its text is escaped in a query
  const std::string query = measure->query();
  Result<Measure> again = measure_of(std::string_view(query).substr(query.find('?') + 1));
  if (!again.ok() || again->steps != measure->steps || again->ranks != measure->ranks) std::abort();
  return 0;
}
