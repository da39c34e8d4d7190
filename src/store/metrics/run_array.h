// Numbers by place that mostly go up by one from place to place, kept as runs of such: 12 bytes a run. What is said of
// every series but changes from sender to sender only (where it lives, which number it has) costs next to nothing.
//
// Thread rule: Confined, or under its owner's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::metrics {

class RunArray {
 public:
  size_t size() const { return size_; }
  void push_back(uint64_t value) {
    if (runs_.empty() || runs_.back().at(size_) != value)
      runs_.push_back({size_, static_cast<uint32_t>(value >> 32), static_cast<uint32_t>(value)});
    ++size_;
  }
  uint64_t operator[](size_t place) const { return Walk(*this)[place]; }
  size_t memory_bytes() const { return runs_.capacity() * sizeof(Run); }

 private:
  struct Run {
    uint32_t start, high, low;
    uint64_t at(size_t place) const { return (uint64_t{high} << 32 | low) + (place - start); }
  };

 public:
  // For places that are asked for one after the other: remembers the run of the last.
  class Walk {
   public:
    explicit Walk(const RunArray& of) : of_(of) {}
    uint64_t operator[](size_t place) {
      const std::vector<Run>& runs = of_.runs_;
      if (place < runs[run_].start || place >= end(run_)) {
        if (run_ + 1 < runs.size() && place >= runs[run_ + 1].start && place < end(run_ + 1)) {
          ++run_;
        } else {
          run_ = static_cast<size_t>(std::upper_bound(runs.begin(), runs.end(), place,
                                                      [](size_t at, const Run& run) { return at < run.start; }) -
                                     runs.begin()) -
                 1;
        }
      }
      return runs[run_].at(place);
    }

   private:
    size_t end(size_t run) const { return run + 1 < of_.runs_.size() ? of_.runs_[run + 1].start : of_.size_; }
    const RunArray& of_;
    size_t run_ = 0;
  };

 private:
  std::vector<Run> runs_;
  uint32_t size_ = 0;
};

}  // namespace lockstep::metrics
