// How a rank's process ended.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

struct ExitStatus {
  int32_t code = 0;    // where no signal ended it
  int32_t signal = 0;  // 0: none
  bool operator==(const ExitStatus&) const = default;
};

struct RankEnd {
  int64_t time_unix_ns = 0;        // when its agent saw that it was gone
  bool clean = false;              // it said that it was done, or had ended its communicators
  std::optional<ExitStatus> exit;  // not always known (sources/ownership/process_exit.h)
  bool operator==(const RankEnd&) const = default;
};

// "SIGKILL"; empty: it has no name that people know.
const char* signal_name(int32_t number);

}  // namespace lockstep
