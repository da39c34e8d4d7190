// A recording: a folder with, per rank R, `rankR.calls` and `steps_rankR.json`, each plain or packed (.zst, .gz).
// Who a rank is comes from inside its file; names in the path only pair a rank's two files.
//
// Limits: kCallsBytesMax per file, unpacked.
// On error: one line with the file (and line) at fault; nothing is loaded.
// Thread rule: Thread-safe (functions), Immutable once made (data).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "sim/replay/calls.h"

namespace lockstep::replay {

struct Phase {
  int phase = 0;  // enum lockstep_phase
  uint64_t length_ns = 0;
};

// A step of the training script's own log. Phases follow each other from begin_ns on.
struct LoggedStep {
  StepNumber step;
  uint64_t begin_ns = 0;
  uint64_t length_ns = 0;
  std::vector<Phase> phases;
  std::vector<std::pair<std::string, double>> scalars;
};

// The JSON array of a steps file: objects with `step`, `t0`, `total`; `loss` and every number with a fraction is a
// scalar; every other number is the length of a phase, in the order of the keys.
Result<std::vector<LoggedStep>> parse_steps(std::string_view json, const std::string& file);

struct RankRecording {
  std::unique_ptr<std::string> text;  // what `calls` points into
  RankCalls calls;
  std::vector<LoggedStep> steps;
  bool has_steps = false;
  // Added to this rank's times to bring them onto the first rank's monotonic clock.
  int64_t to_common_ns = 0;
};

struct Recording {
  std::vector<RankRecording> ranks;  // by rank, each rank once
  std::vector<std::string> notes;    // what a person should know: no step log, lines skipped, ranks missing
  // The span of everything to be played, on the common clock.
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
  uint64_t content_hash = 0;  // of the unpacked files
  uint64_t calls_total = 0;
};

struct RecordingOptions {
  bool skip_bad = false;  // leave malformed lines out (counted in notes) instead of failing
};
Result<Recording> load_recording(const std::string& directory, const RecordingOptions& options);

}  // namespace lockstep::replay
