#include "apps/cli/report_pictures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr double kWidth = 960, kLeft = 64, kRight = 12;
constexpr double kPlot = kWidth - kLeft - kRight;

// Cividis from dark blue (as its peers) to yellow (far slower), as the page has it.
constexpr std::array<const char*, 10> kScale = {"#00224e", "#123570", "#3b496c", "#575d6d", "#707173",
                                                "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"};

std::string open_picture(double height, const std::string& title) {
  return format("<svg viewBox=\"0 -4 %.0f %.0f\" role=\"img\" aria-label=\"%s\" xmlns=\"http://www.w3.org/2000/svg\">",
                kWidth, height + 4, escaped(title).c_str());
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>", x, y, anchor, escaped(text).c_str());
}

// 1, 2 or 5 times a power of ten, so that some four of them fit.
double tick_size(double most) {
  const double raw = std::max(most, 1e-6) / 4;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double times = raw / power;
  return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

std::string duration_label(double ms) {
  return human_duration(ms * 1e6);
}

// Steps below a picture: the first, the last and some between, at the middle of theirs.
std::string step_axis(const std::vector<int64_t>& steps, double y) {
  constexpr size_t kLabels = 6;
  std::string out;
  const size_t count = std::min(kLabels, steps.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t at = count == 1 ? 0 : i * (steps.size() - 1) / (count - 1);
    const double x = kLeft + kPlot * (static_cast<double>(at) + 0.5) / static_cast<double>(steps.size());
    const char* anchor = i == 0 && count > 1 ? "start" : i + 1 == count && count > 1 ? "end" : "middle";
    out += label(x, y, anchor, (i == 0 ? "step " : "") + with_thousands(steps[at]));
  }
  return out;
}

// The steps that stand beside each other as one column, by the worst of them.
std::vector<double> worst_by_column(const std::vector<double>& values, size_t per_column) {
  std::vector<double> columns;
  for (size_t at = 0; at < values.size(); at += per_column) {
    double worst = kNothing;
    for (size_t i = at; i < std::min(values.size(), at + per_column); ++i) {
      if (std::isfinite(values[i]) && !(worst >= values[i])) worst = values[i];
    }
    columns.push_back(worst);
  }
  return columns;
}

// What a scale ends at: the largest, unless a few stand far above all others (the first steps of a job), which would
// make all others look alike.
double scale_end(std::vector<double> values) {
  constexpr double kFarAbove = 2, kRoom = 1.25;
  std::erase_if(values, [](double value) { return !std::isfinite(value) || value <= 0; });
  if (values.empty()) return 0;
  const auto usual = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) * 97 / 100);
  std::nth_element(values.begin(), usual, values.end());
  const double most = *std::max_element(usual, values.end());
  return most > kFarAbove * *usual ? kRoom * *usual : most;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string step_time_picture(const std::vector<int64_t>& steps, const std::vector<double>& ms,
                              const std::vector<StepMark>& marks) {
  constexpr double kTop = 26, kHigh = 170, kBottom = kTop + kHigh, kHeight = kBottom + 24;
  const double most = scale_end(ms);
  if (steps.empty() || most <= 0) return {};
  const double tick = tick_size(most);
  const double top = std::ceil(most / tick) * tick;
  const auto x_of = [&](size_t i) {
    return kLeft + kPlot * (static_cast<double>(i) + 0.5) / static_cast<double>(steps.size());
  };
  const auto y_of = [&](double value) { return kBottom - kHigh * std::min(value, top) / top; };
  std::string out = open_picture(kHeight, "Step time over steps");
  for (double at = 0; at <= top + tick / 2; at += tick) {
    out += format("<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", kLeft, y_of(at), kWidth - kRight);
    out += label(kLeft - 8, y_of(at) + 4, "end", at == 0 ? "0" : duration_label(at));
  }
  // Where a step is unknown the line is broken, not drawn through.
  std::string line;
  bool is_down = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i >= ms.size() || !std::isfinite(ms[i])) {
      is_down = false;
      continue;
    }
    line += format("%s%.1f %.1f", is_down ? "L" : "M", x_of(i), y_of(ms[i]));
    if (!is_down && (i + 1 >= ms.size() || !std::isfinite(ms[i + 1]))) line += "h.1";
    is_down = true;
  }
  out += "<path class=\"line\" d=\"" + line + "\"/>";
  constexpr size_t kMarks = 8;
  for (size_t i = 0; i < std::min(kMarks, marks.size()); ++i) {
    const auto at = std::lower_bound(steps.begin(), steps.end(), marks[i].step);
    if (at == steps.end() || marks[i].step < steps.front()) continue;
    const double x = x_of(static_cast<size_t>(at - steps.begin()));
    out += format("<path class=\"mark\" d=\"M%.1f %.1fV%.1f\"><title>%s</title></path>", x, kTop - 6, kBottom,
                  escaped(marks[i].text).c_str());
    out += format("<text class=\"mark\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>", x, kTop - 10,
                  x > kWidth * 0.8 ? "end" : "start", escaped(marks[i].text).c_str());
  }
  return out + step_axis(steps, kBottom + 18) + "</svg>";
}

HeatMap::HeatMap(size_t ranks, std::vector<int64_t> steps)
    : steps_(std::move(steps)),
      ranks_per_row_(std::max<size_t>(1, (ranks + kHeatRows - 1) / kHeatRows)),
      steps_per_column_(std::max<size_t>(1, (steps_.size() + kHeatColumns - 1) / kHeatColumns)),
      columns_((steps_.size() + steps_per_column_ - 1) / steps_per_column_),
      rows_((ranks + ranks_per_row_ - 1) / ranks_per_row_) {}

void HeatMap::add(size_t index, int64_t rank, const std::vector<double>& values) {
  if (row_of(index) >= rows_.size()) return;
  Row& row = rows_[row_of(index)];
  if (row.cells.empty()) row.cells.assign(columns_, kNothing);
  if (row.first_rank < 0) row.first_rank = rank;
  row.last_rank = rank;
  const std::vector<double> columns = worst_by_column(values, steps_per_column_);
  for (size_t i = 0; i < std::min(columns.size(), columns_); ++i) {
    if (!std::isfinite(columns[i])) continue;
    if (!(row.cells[i] >= columns[i])) row.cells[i] = columns[i];
    if (columns[i] > row.worst_ms) {
      row.worst_ms = columns[i];
      row.worst_rank = rank;
    }
    worst_ms_ = std::max(worst_ms_, columns[i]);
  }
}

// One path for each colour and one for what is unknown: cells beside each other are one stroke.
std::string HeatMap::rows_text() const {
  const double wide = kPlot / static_cast<double>(columns_);
  const double high = rows_.size() >= 64 ? 4 : rows_.size() >= 24 ? 8 : 14;
  std::array<std::string, kScale.size() + 1> paths;
  const auto level_of = [&](double value) {
    if (!std::isfinite(value)) return kScale.size();
    const double share = scale_ms_ > 0 ? std::clamp(value / scale_ms_, 0.0, 1.0) : 0;
    return std::min(kScale.size() - 1, static_cast<size_t>(share * static_cast<double>(kScale.size())));
  };
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < columns_;) {
      const size_t level = rows_[r].cells.empty() ? kScale.size() : level_of(rows_[r].cells[c]);
      size_t end = c + 1;
      while (end < columns_ && (rows_[r].cells.empty() ? kScale.size() : level_of(rows_[r].cells[end])) == level) ++end;
      paths[level] +=
          format("M%.1f %.0fh%.1fv%.0fh-%.1fz", kLeft + wide * static_cast<double>(c), high * static_cast<double>(r),
                 wide * static_cast<double>(end - c), high, wide * static_cast<double>(end - c));
      c = end;
    }
  }
  std::string out;
  for (size_t level = 0; level < paths.size(); ++level) {
    if (paths[level].empty()) continue;
    out += format("<path fill=\"%s\" d=\"%s\"/>", level < kScale.size() ? kScale[level] : "url(#unknown)",
                  paths[level].c_str());
  }
  return out;
}

// Who is slow all the time is named first, the others where there is room.
std::string HeatMap::rank_labels(double high) const {
  constexpr double kApart = 13;
  constexpr size_t kNamed = 12;
  std::vector<std::pair<double, size_t>> by_mean;
  for (size_t r = 0; r < rows_.size(); ++r) {
    double sum = 0;
    for (double cell : rows_[r].cells) sum += std::isfinite(cell) ? std::max(cell, 0.0) : 0;
    by_mean.emplace_back(sum / static_cast<double>(columns_), r);
  }
  std::stable_sort(by_mean.begin(), by_mean.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<double> taken;
  std::string out;
  const auto place = [&](size_t r, int64_t rank) {
    const double y = high * (static_cast<double>(r) + 0.5);
    if (std::any_of(taken.begin(), taken.end(), [&](double other) { return std::abs(other - y) < kApart; })) return;
    taken.push_back(y);
    out += label(kLeft - 8, y + 4, "end", format("rank %lld", static_cast<long long>(rank)));
  };
  const double least = by_mean[by_mean.size() / 2].first * 4 + scale_ms_ / 10;
  for (size_t i = 0; i < std::min(kNamed, by_mean.size()) && by_mean[i].first > least; ++i)
    place(by_mean[i].second, rows_[by_mean[i].second].worst_rank);
  for (size_t r = 0; r < rows_.size(); ++r) place(r, rows_[r].first_rank);
  return out;
}

// One slow rank of thousands has few of all cells, but it is the worst of each step.
std::vector<double> HeatMap::worst_by_step() const {
  std::vector<double> worst(columns_, kNothing);
  for (const Row& row : rows_) {
    for (size_t c = 0; c < row.cells.size(); ++c) {
      if (std::isfinite(row.cells[c]) && !(worst[c] >= row.cells[c])) worst[c] = row.cells[c];
    }
  }
  return worst;
}

std::string HeatMap::picture() {
  if (columns_ == 0 || rows_.empty()) return {};
  scale_ms_ = scale_end(worst_by_step());
  const double high = rows_.size() >= 64 ? 4 : rows_.size() >= 24 ? 8 : 14;
  const double bottom = high * static_cast<double>(rows_.size());
  std::string out = open_picture(bottom + 60, "Own time beyond the peers' median, by rank and step");
  out +=
      "<defs><pattern id=\"unknown\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect class=\"hatch0\" width=\"6\" height=\"6\"/><rect class=\"hatch1\" "
      "width=\"2\" "
      "height=\"6\"/></pattern></defs>";
  out += rows_text();
  for (size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    const double y = high * static_cast<double>(r);
    // What a row is, for whoever points at it.
    const std::string ranks = row.first_rank == row.last_rank
                                  ? format("rank %lld", static_cast<long long>(row.first_rank))
                                  : format("ranks %lld to %lld", static_cast<long long>(row.first_rank),
                                           static_cast<long long>(row.last_rank));
    const std::string worst = row.worst_rank < 0 ? "as its peers"
                                                 : format("rank %lld up to +%s", static_cast<long long>(row.worst_rank),
                                                          duration_label(row.worst_ms).c_str());
    out += format("<path class=\"row\" d=\"M%.0f %.0fH%.0fV%.0fH%.0fz\"><title>%s: %s</title></path>", kLeft, y,
                  kWidth - kRight, y + high, kLeft, ranks.c_str(), worst.c_str());
  }
  out += rank_labels(high);
  out += step_axis(steps_, bottom + 18);
  // The legend: what a colour is worth.
  const double legend = bottom + 34;
  for (size_t i = 0; i < kScale.size(); ++i)
    out += format("<rect x=\"%.0f\" y=\"%.0f\" width=\"24\" height=\"10\" fill=\"%s\"/>",
                  kLeft + 24.0 * static_cast<double>(i), legend, kScale[i]);
  out +=
      label(kLeft, legend + 22, "start", "0") +
      label(kLeft + 24.0 * kScale.size(), legend + 22, "end",
            "+" + duration_label(scale_ms_) + (scale_ms_ < worst_ms_ ? " and more" : "")) +
      format("<rect x=\"%.0f\" y=\"%.0f\" width=\"24\" height=\"10\" fill=\"url(#unknown)\"/>", kLeft + 300, legend) +
      label(kLeft + 330, legend + 9, "start", "unknown");
  return out + "</svg>";
}

}  // namespace lockstep::cli
