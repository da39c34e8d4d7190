// Whether the server can do its work, as a list of named checks: /readyz answers from it, `lockstep_ready{check=...}`
// shows it, and a change is one line of the log.
//
// A check that fails makes the server not ready (503), so that whoever balances load sends elsewhere and whoever
// watches is woken; one that is a warning is told and changes nothing. What is asked must answer at once and take no
// lock that is held for long.
//
// Thread rule: Thread-safe. What checks refer to must live as long as anybody asks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/mutex.h"

namespace lockstep {

struct ReadinessCheck {
  std::string name;                                     // one word, the label of the gauge
  std::function<std::optional<std::string>()> problem;  // one line; nullopt: none
  bool is_warning = false;
  bool is_private = false;  // told to the operator, not to whoever asks /readyz
};

class Readiness {
 public:
  explicit Readiness(Counters& counters) : counters_(counters) {}

  void add(ReadinessCheck check);

  struct Row {
    std::string name;
    std::optional<std::string> problem;
    bool is_warning = false;
    bool is_private = false;
  };
  struct State {
    bool is_ready = true;
    std::vector<Row> rows;  // in the order they were added
  };
  // Asks every check; sets the gauges and logs what has changed.
  State ask();

 private:
  Counters& counters_;
  Mutex mutex_;
  std::vector<ReadinessCheck> checks_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<bool> failed_ LOCKSTEP_GUARDED_BY(mutex_);  // as it was logged
};

// Full: less is free than the durable log may need for one record, or, of a small disk, than a hundredth.
std::optional<std::string> full_disk(const std::string& folder);

}  // namespace lockstep
