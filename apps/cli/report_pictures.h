// The pictures of a report, as SVG that needs nothing beside it: step time over steps, and who was slow in which step.
//
// Limits:      kHeatRows rows and kHeatColumns columns, whatever the job has: ranks share a row, steps a column, and the
//              worst of them is what is seen. So a picture has a bounded size.
// Thread rule: Thread-safe (no state); HeatMap is Confined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

inline constexpr size_t kHeatRows = 128, kHeatColumns = 250;

// Text as HTML and SVG show it: & < > " ' are entities.
std::string escaped(std::string_view text);

struct StepMark {
  int64_t step = 0;
  std::string text;  // what began there
};
// ms: by step; not finite: unknown. Both of the same length. Empty where nothing is known.
std::string step_time_picture(const std::vector<int64_t>& steps, const std::vector<double>& ms,
                              const std::vector<StepMark>& marks);

// Milliseconds beyond the peers' median, by rank and step.
class HeatMap {
 public:
  HeatMap(size_t ranks, std::vector<int64_t> steps);
  // index: of the rank, in order; rank: its number. values: by step; not finite: unknown.
  void add(size_t index, int64_t rank, const std::vector<double>& values);
  std::string picture();  // empty where nothing is known
  double worst_ms() const { return worst_ms_; }

 private:
  struct Row {
    int64_t first_rank = -1, last_rank = -1, worst_rank = -1;
    double worst_ms = 0;
    std::vector<double> cells;  // by column; NaN: unknown
  };
  size_t row_of(size_t index) const { return index / ranks_per_row_; }
  std::string rows_text() const;
  std::string rank_labels(double high) const;
  std::vector<double> worst_by_step() const;

  std::vector<int64_t> steps_;
  size_t ranks_per_row_ = 1, steps_per_column_ = 1, columns_ = 0;
  std::vector<Row> rows_;
  double worst_ms_ = 0, scale_ms_ = 0;
};

}  // namespace lockstep::cli
