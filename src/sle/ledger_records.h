// The records of the ledger's files (docs/formats/sle-ledger.md): how each is written. Ledger::restore_record() reads
// them.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sle/ledger.h"

namespace lockstep::sle::records {

enum class Kind : uint8_t {
  kVersion = 1,
  kJob = 2,
  kOwner = 3,
  kPlacement = 4,
  kCells = 5,
  kMinute = 6,
  kRuns = 7,
  kRecent = 8,
};
inline constexpr uint8_t kPlacementTrack = 255;  // in kRuns, beside the numbers of SLEs

struct Minute {
  uint32_t job = 0;
  int32_t minute = 0;
  uint64_t evidence = 0;
  uint32_t placement = 0;
  std::span<const std::pair<uint8_t, uint32_t>> cells;  // SLE, row
};

std::string version();
std::string job(uint32_t row, const std::string& job_id);
std::string owner(uint32_t row, const Owner& owner);
std::string placement(uint32_t row, const Placement& placement);
std::string cells(uint32_t row, const RankCells& cells);
std::string minute(const Minute& minute, const Baselines& baselines);
std::string runs(uint32_t job, uint8_t track, std::span<const MinuteRun> runs);
void put_baselines(std::string& out, const Baselines& baselines);

}  // namespace lockstep::sle::records
