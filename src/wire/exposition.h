// What exporters show on /metrics: Prometheus text 0.0.4 (names in quotes as of 1.0.0 too) and OpenMetrics 1.0, walked
// line by line and handed on as views (model/pushed_series.h).
//
// Raw labels: 'T', the prefix (what the target adds: TargetPrefix), then the series as its line has it. They are read,
// and checked, by labels_of(), which the store asks for only where the bytes are new: a series whose labels are wrong
// is refused by itself, while a line that has no value or no end fails the whole text, as half a page must not pass for
// one. Samples without a time have `now_ms`. Created times (OpenMetrics' _created) are series like others. Exemplars of
// OpenMetrics go with their series.
// Limits: samples_max lines with samples; a line of kLineBytesMax.
// On error: one line that names the line's number; nothing is given out.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/pushed_series.h"

namespace lockstep::exposition {

enum class Format { kText, kOpenMetrics };
// From a Content-Type; what is not OpenMetrics is read as text.
Format format_of(std::string_view content_type);

inline constexpr size_t kLineBytesMax = 256 * 1024;

struct Metadata {
  std::string_view name;
  std::string type;
  std::string help;
  std::string unit;
};

// What a target adds to every series of its page. honor_labels: the page's label wins over the target's; otherwise the
// page's becomes exported_NAME.
std::string target_prefix(const Labels& target_labels, bool honor_labels);

class Walk {
 public:
  Result<void> walk(Format format, std::string_view text, std::string_view prefix, int64_t now_ms,
                    uint64_t samples_max = UINT64_MAX);
  std::span<const PushedSeries> series() const { return series_; }
  // Has a time of its own, so that its absence from the next page means nothing.
  bool has_own_time(size_t k) const { return entries_[k].has_own_time; }
  std::span<const Metadata> metadata() const { return metadata_; }
  static Result<Labels> labels_of(std::string_view raw_labels);

 private:
  struct Entry {
    size_t raw_at = 0, raw_size = 0;
    size_t first_exemplar = 0, exemplars = 0;
    bool has_own_time = false;
  };
  Result<void> line(std::string_view line, Format format, std::string_view prefix, int64_t now_ms);
  Result<void> exemplar(std::string_view text, int64_t time_ms);
  void comment(std::string_view line, Format format);

  std::vector<Entry> entries_;
  std::vector<PushedSeries> series_;
  std::vector<int64_t> times_;
  std::vector<double> values_;
  std::vector<PushedExemplar> exemplars_;
  std::vector<Metadata> metadata_;
  std::string raw_;
  bool ended_ = false;  // # EOF
};

}  // namespace lockstep::exposition
