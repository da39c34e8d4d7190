// A step as a picture: one line per rank, its time cut into as many cells as the screen has columns. Reduced here and
// not in the browser, so that a step of thousands of ranks opens at once: what is sent grows with the screen, not with
// the job.
//
// A cell shows what took most of its time. Where there are more ranks than lines, each line stands for several
// neighbours and shows the one with the least waiting: the others wait for somebody, it does not. Where few spans are
// in view they come along as they are, for the mouse.
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/clocks/clock_alignment.h"
#include "store/span_store.h"

namespace lockstep {

// What a cell shows. One letter each on the wire; the names are for legends.
enum class CellKind : uint8_t {
  kNothing,  // before the rank's step, behind it, or nothing known
  kOwn,      // its own work, no phase told
  kInput,
  kForward,
  kBackward,
  kOptimizer,
  kCheckpoint,
  kEval,
  kSync,
  kWaiting,     // in a collective or receive, before the last one came
  kCollective,  // in a collective that everybody has entered
  kMessage,     // sending or receiving
};
inline constexpr size_t kCellKindCount = 12;
char letter_of(CellKind kind);  // . o i f b p k e s w c m
const char* to_text(CellKind kind);

struct TimelineWindow {
  int64_t from_ns = 0;  // since the step began on its first rank; both 0: the whole step
  int64_t to_ns = 0;
  std::vector<Rank> ranks;  // sorted; empty: all
  size_t columns = 1000;
  size_t lines = 600;
  size_t spans_most = 4'000;  // with more in view none are sent
};
inline constexpr size_t kTimelineColumnsMax = 4'096;
inline constexpr size_t kTimelineLinesMax = 4'096;

struct TimelineSpan {
  Rank rank;
  CellKind kind = CellKind::kOwn;
  int64_t from_ns = 0;  // since the step began
  int64_t duration_ns = 0;
  int64_t wait_ns = 0;         // of `duration_ns`, at its beginning
  std::string name;            // of the phase or function
  const OpSpan* op = nullptr;  // of the details handed in; nullptr: a phase
};

struct TimelineLine {
  Rank first_rank;  // of the ranks that have detail
  Rank last_rank;
  Rank shown_rank;
  std::string cells;  // run lengths: "f120w30." is 120 cells of forward, 30 of waiting, 1 of nothing
};

struct Timeline {
  int64_t start_unix_ns = 0;  // when the step began on its first rank, on the job's axis; times below count from here
  int64_t length_ns = 0;      // until its end on its last rank
  int64_t from_ns = 0;        // what is shown
  int64_t to_ns = 0;
  size_t columns = 0;
  size_t ranks = 0;  // shown
  std::vector<TimelineLine> lines;
  std::vector<TimelineSpan> spans;  // by rank and start; empty where there are too many
  size_t spans_in_view = 0;
};

// details: of one step, by rank. Must outlive the answer.
Timeline make_timeline(std::span<const RankDetail> details, const ClockAlignment& clocks, const TimelineWindow& window);

}  // namespace lockstep
