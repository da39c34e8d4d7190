// How a rank's process ended.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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
  std::string reason;              // the exception that ended it, in one line: "ValueError: ..."; empty: none is known
  int64_t reason_unix_ns = 0;      // when it was raised, by its host's clock; 0: not known
  bool operator==(const RankEnd&) const = default;
};

inline constexpr size_t kEndReasonBytesMax = 320;

// What a process left of the exception that ended it (python/lockstep/_failure.py), from bytes of another user: one line
// without what a terminal would act on, bounded. `thread`: of another thread than the main one, which ends nothing.
struct LeftFailure {
  std::string reason;  // empty: nothing was left
  int64_t time_unix_ns = 0;
  bool thread = false;
};
LeftFailure parse_left_failure_untrusted(std::string_view text);

// "SIGKILL"; empty: it has no name that people know.
const char* signal_name(int32_t number);

}  // namespace lockstep
