// A number for each minute, kept as runs of minutes that have the same: 12 bytes for a month in which nothing changes.
//
// set() overwrites, so that what is judged again is not counted twice. 0: nothing for that minute.
// Thread rule: Confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::sle {

struct MinuteRun {
  int32_t first = 0;
  int32_t end = 0;  // behind the last
  uint32_t value = 0;
  bool operator==(const MinuteRun&) const = default;
};

class MinuteRuns {
 public:
  uint32_t at(int32_t minute) const;  // 0: nothing
  void set(int32_t minute, uint32_t value);
  // Behind everything that is there, as a snapshot has it; false: it is not behind, or empty.
  bool append(MinuteRun run);
  void drop_before(int32_t minute);
  std::span<const MinuteRun> runs() const { return runs_; }
  // Those that reach into [from, to).
  std::span<const MinuteRun> within(int32_t from, int32_t to) const;
  size_t size() const { return runs_.size(); }
  bool empty() const { return runs_.empty(); }
  // Every value by another number.
  template <typename Map>
  void renumber(const Map& map) {
    for (MinuteRun& run : runs_) run.value = map(run.value);
  }

 private:
  size_t place_of(int32_t minute) const;  // of the first run that ends behind it
  std::vector<MinuteRun> runs_;           // sorted, apart, values not 0; neighbours that touch differ
};

}  // namespace lockstep::sle
