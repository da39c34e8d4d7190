#include "sim/fleet/fault.h"

#include <optional>
#include <vector>

#include "base/text.h"

namespace lockstep::sim {

namespace {

constexpr FaultKind kKinds[] = {FaultKind::kSlowGpu, FaultKind::kSlowInput, FaultKind::kSlowLink,
                                FaultKind::kMissingRank};

bool severity_possible(FaultKind kind, double severity) {
  switch (kind) {
    case FaultKind::kSlowGpu:
      return severity >= 1 && severity <= 1000;
    case FaultKind::kSlowInput:
      return severity > 0 && severity <= 3'600'000;
    case FaultKind::kSlowLink:
      return severity >= 0.001 && severity <= 1;
    case FaultKind::kMissingRank:
      return true;
  }
  return false;
}

const char* severity_help(FaultKind kind) {
  switch (kind) {
    case FaultKind::kSlowGpu:
      return "how many times longer kernels take, 1 to 1000";
    case FaultKind::kSlowInput:
      return "milliseconds per step, up to an hour";
    case FaultKind::kSlowLink:
      return "share of the normal rate, 0.001 to 1";
    case FaultKind::kMissingRank:
      return "not used";
  }
  return "";
}

}  // namespace

const char* to_text(FaultKind kind) {
  switch (kind) {
    case FaultKind::kSlowGpu:
      return "slow-gpu";
    case FaultKind::kSlowInput:
      return "slow-input";
    case FaultKind::kSlowLink:
      return "slow-link";
    case FaultKind::kMissingRank:
      return "missing-rank";
  }
  return "unknown";
}

double default_severity(FaultKind kind, double step_ms) {
  switch (kind) {
    case FaultKind::kSlowGpu:
      return 1.6;
    case FaultKind::kSlowInput:
      return 0.4 * step_ms;
    case FaultKind::kSlowLink:
      return 0.2;
    case FaultKind::kMissingRank:
      return 1;
  }
  return 1;
}

Result<Fault> parse_fault(std::string_view text) {
  std::string shown(text.substr(0, 80));
  std::vector<std::string_view> parts = split(text, ':');
  std::optional<FaultKind> kind;
  std::vector<std::string> names;
  for (FaultKind candidate : kKinds) {
    names.emplace_back(to_text(candidate));
    if (parts[0] == names.back()) kind = candidate;
  }
  if (!kind) {
    std::optional<std::string> near = did_you_mean(parts[0], names);
    return Error{format("fault \"%s\": no such kind.%s Kinds: slow-gpu, slow-input, slow-link, missing-rank",
                        shown.c_str(), near ? (" Did you mean " + *near + "?").c_str() : "")};
  }
  if (parts.size() < 2 || parts.size() > 5) {
    return Error{format("fault \"%s\": write it as KIND:RANK[:STEP[:STEPS[:SEVERITY]]]", shown.c_str())};
  }
  Fault fault{.kind = *kind, .from_step = kDefaultFromStep};
  auto number = [&](size_t index, int64_t fallback) {
    return index < parts.size() ? parse_int(parts[index]) : std::optional<int64_t>(fallback);
  };
  std::optional<int64_t> rank = number(1, 0), from_step = number(2, kDefaultFromStep.value()), steps = number(3, 0);
  if (!rank || *rank < 0 || *rank > 10'000'000)
    return Error{format("fault \"%s\": the rank must be a whole number from 0", shown.c_str())};
  if (!from_step || *from_step < 0)
    return Error{format("fault \"%s\": the step must be a whole number from 0", shown.c_str())};
  if (!steps || *steps < 0)
    return Error{format("fault \"%s\": the number of steps must be a whole number (0: until the end)", shown.c_str())};
  fault.rank = Rank{static_cast<int32_t>(*rank)};
  fault.from_step = StepNumber{*from_step};
  fault.steps = *steps;
  if (parts.size() == 5) {
    std::optional<double> severity = parse_double(parts[4]);
    if (!severity || !severity_possible(*kind, *severity)) {
      return Error{format("fault \"%s\": severity is %s", shown.c_str(), severity_help(*kind))};
    }
    fault.severity = *severity;
  }
  return fault;
}

std::string describe(const Fault& fault) {
  std::string text = format("%s on rank %d", to_text(fault.kind), fault.rank.value());
  switch (fault.kind) {
    case FaultKind::kSlowGpu:
      return text + format(" (kernels take %.3g times as long)", fault.severity);
    case FaultKind::kSlowInput:
      return text + format(" (input %.0f ms late)", fault.severity);
    case FaultKind::kSlowLink:
      return text + format(" (sends at %.3g %% of the rate)", 100 * fault.severity);
    case FaultKind::kMissingRank:
      return text + " (never enters the collective)";
  }
  return text;
}

}  // namespace lockstep::sim
