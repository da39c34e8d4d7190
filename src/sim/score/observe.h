// Plays telemetry into subjects on a clock of its own and writes down what a client that looks at their verdicts would
// have seen, and when. Nothing here knows what was wrong.
//
// Requests arrive a network delay after they were sent, so the times are those of a real fleet however fast the machine
// is that plays it, and the same telemetry gives the same sightings.
// Thread rule: Thread-safe (no state); what is passed in is used by the calling thread alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "sim/read_verdicts.h"
#include "sim/scenario/scenario_run.h"
#include "sim/score/subject.h"
#include "sim/score/warnings.h"

namespace lockstep::sim {

// A verdict that was new or had changed in what it accuses: state, kind, ranks, layer, cause or place.
struct Sighting {
  int64_t at_unix_ns = 0;
  std::string job;
  StepNumber newest_step = kNoStep;  // of the job, that had been reported by then
  ReadVerdict verdict;
};

struct ObservedJob {
  int64_t first_unix_ns = 0;  // its first and last request
  int64_t last_unix_ns = 0;
  StepNumber newest_step = kNoStep;
};

struct Observed {
  // What each verdict said last, while it was confirmed, that it costs: share of a step, by job and id.
  std::map<std::pair<std::string, std::string>, double> prices;
  std::vector<Sighting> sightings;  // in order of time
  std::map<std::string, ObservedJob> jobs;
  std::vector<SeenWarning> warnings;  // in the order in which they were raised
  int64_t requests = 0;
  int64_t records = 0;
  int64_t bytes = 0;
  double subject_seconds = 0;  // CPU time spent in the subject
  std::string problem;         // one line: an answer that could not be read
};

// Follows the verdicts of the jobs it is shown. Used by observe() and by whoever asks a real server.
class Watcher {
 public:
  explicit Watcher(Observed& observed) : observed_(observed) {}
  // Reads an answer; an answer equal to the last one of the job costs nothing.
  void read(const std::string& job, std::string_view json, int64_t at_unix_ns);

 private:
  Observed& observed_;
  std::map<std::string, std::string> last_answer_;  // by job
  std::map<std::string, ReadVerdict> known_;        // by job and id
};

// Notes who is in a request: jobs, their times and steps.
void note_jobs(const Batch& batch, int64_t at_unix_ns, Observed& observed);

struct ObserveOptions {
  int64_t network_delay_ns = 20'000'000;
  int64_t tick_ns = 250'000'000;
  int64_t linger_ns = 10'000'000'000;  // how long clients look on after the last request
};
using NextSent = std::function<std::optional<Sent>()>;

// One Observed per subject, in their order. keep_on: asked now and then; false ends early.
std::vector<Observed> observe(const NextSent& next, std::span<Subject* const> subjects, const ObserveOptions& options,
                              const std::function<bool()>& keep_on = {});

}  // namespace lockstep::sim
