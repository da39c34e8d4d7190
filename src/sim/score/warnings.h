// Early warnings beside what came of them: whoever was warned of a fault, how long before, and what came to nothing.
//
// A warning belongs to a fault when it names the GPU, or the adapter beside it, that the fault hits, and a cause that
// the fault has (truth.h; a flapping link is warned of as a bad one), and was raised before the fault did harm. It came
// true when the fault began within the horizon that it gave when it was raised; a fault that came later is counted
// apart. A warning of a fault that is there already says nothing new: it is left out. Every other warning came to
// nothing.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "base/result.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/scenario_run.h"

namespace lockstep::sim {

// As a client sees one when it is first there.
struct SeenWarning {
  std::string id, host, gpu_uuid, device, signal, sentence;
  Cause cause = Cause::kNone;
  double horizon_s = 0;
  int64_t raised_unix_ns = 0;
};

// Notes every warning once for each time it is raised.
class WarningWatcher {
 public:
  // A JSON array of warnings as docs/guide/warnings.md has them.
  Result<void> read(std::string_view json);
  std::vector<SeenWarning> take() { return std::move(seen_); }

 private:
  std::string last_;
  std::map<std::string, int64_t> raised_;  // by id
  std::vector<SeenWarning> seen_;
};

struct WarningScore {
  SeenWarning warning;
  double raised_s = 0;  // since the run began
  enum class Outcome : uint8_t { kTrue, kLater, kNothing, kAlreadyThere } outcome = Outcome::kNothing;
  int32_t fault = -1;       // index in the scenario, of kTrue, kLater and kAlreadyThere
  bool false_sign = false;  // came to nothing, and signs did rise there
};

// A fault that shows signs before it comes.
struct SignedFault {
  std::string cause;
  bool began = false;
  double warned_s = -1;  // how long before it did harm the first warning of it was raised; -1: never
};

struct WarningCase {
  std::vector<WarningScore> warnings;
  std::vector<SignedFault> faults;
  int64_t false_signs = 0;
  double gpu_hours = 0;
};

WarningCase judge_warnings(const Scenario& scenario, const std::vector<ScenarioRun::Onset>& onsets,
                           const std::vector<SeenWarning>& seen, int64_t first_unix_ns, double gpu_hours);

// Over many scenarios; "" where nothing was to be warned of and nothing was warned of.
std::string warnings_markdown(const std::vector<const WarningCase*>& cases);
void write_warnings(JsonWriter& json, const std::vector<const WarningCase*>& cases);

}  // namespace lockstep::sim
