// Every format that is written to disk and read again, with its version: the one table. docs/formats/README.md says the
// same, and what is done with older files; a test holds them together.
//
// A file of another version is no damage: whoever opens a folder checks it first, and refuses to start with one line
// that names both versions rather than read it wrong, pass it over or delete it. To change a format: raise its version
// here, keep reading the old one (`oldest`) or convert it at start, and say so on the page.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::formats {

enum class VersionPlace : uint8_t {
  kDigit,      // a decimal digit behind the magic
  kWord,       // four bytes behind the magic, little-endian
  kElsewhere,  // in names, a pragma, or nowhere: the page says
};

struct Format {
  const char* name;
  std::string_view magic;  // what a file begins with; empty: nothing of its own
  uint32_t version;        // that is written
  uint32_t oldest;         // that is still read
  VersionPlace place;
};

inline constexpr Format kDurableLog{"durable log", "LSR", 1, 1, VersionPlace::kDigit};
inline constexpr Format kMetricLog{"metrics log", "LKSTMWAL", 1, 1, VersionPlace::kWord};
inline constexpr Format kMetricBlock{"metric block", "LKSTMBLK", 1, 1, VersionPlace::kWord};
inline constexpr Format kTombstones{"list of deletions", "LKSTMDEL", 2, 1, VersionPlace::kWord};
inline constexpr Format kSpanFile{"span file", "LSSPANS\n", 1, 1, VersionPlace::kWord};
inline constexpr Format kStepFile{"step file", "LSSTEPS\n", 1, 1, VersionPlace::kWord};
inline constexpr Format kLogFile{"log file", "LSLOGS \n", 1, 1, VersionPlace::kWord};
inline constexpr Format kState{"state database", "SQLite format 3", 5, 0, VersionPlace::kElsewhere};
inline constexpr Format kSpool{"agent's spool", "", 2, 1, VersionPlace::kElsewhere};
inline constexpr Format kKernelLogState{"kernel log position", "", 1, 1, VersionPlace::kElsewhere};

inline constexpr Format kSleLedger{"SLE ledger", "", 3, 1, VersionPlace::kElsewhere};
inline constexpr Format kBackup{"backup manifest", "", 1, 1, VersionPlace::kElsewhere};
inline constexpr Format kBaseline{"baseline", "", 1, 1, VersionPlace::kElsewhere};

inline constexpr const Format* kAll[] = {&kDurableLog, &kMetricLog, &kMetricBlock, &kTombstones, &kSpanFile,
                                         &kStepFile,   &kLogFile,   &kState,       &kSpool,      &kKernelLogState,
                                         &kSleLedger,  &kBackup,    &kBaseline};

enum class Found : uint8_t {
  kKnown,    // a version that is read
  kOlder,    // than any that is read
  kNewer,    // than what is written
  kForeign,  // it does not begin as the format does: something else, or damaged
  kTorn,     // too short to say, or never written (zeros)
};
struct Head {
  Found found = Found::kTorn;
  uint32_t version = 0;  // of kKnown, kOlder and kNewer
};
// bytes: the beginning of a file.
Head read_head(const Format& format, std::string_view bytes);

// An error where that version is not read: what it is, both versions, what to do. path: the file.
Result<void> check_version(const Format& format, const std::string& path, uint32_t version);
// The same of a file's head. One that is torn, foreign or cannot be read is no error here: its reader will say so.
Result<void> check_file(const Format& format, const std::string& path);

}  // namespace lockstep::formats
